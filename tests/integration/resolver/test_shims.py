#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Every hook ends in a tail call: the code of an exported function neither calls nor returns. The slow path could not
tell the caller otherwise, and a call outside a window would not be free.

usage: test_shims.py LIBRARY
"""

import platform
import re
import subprocess
import sys
import unittest

library = None

# Its result is returned in memory, which rules out a tail call.
EXCEPTIONS = {"cudaCreateChannelDesc"}
# Longer than any shim observed (26 instructions on average): arguments are being copied.
MOST_INSTRUCTIONS = 40


class Shims(unittest.TestCase):
    def test_end_in_tail_calls(self):
        leaves = {"x86_64": r"\b(call|ret)[a-z]*\b", "aarch64": r"\b(bl|blr|ret)\b"}.get(platform.machine())
        if leaves is None:
            self.skipTest(f"no idea what {platform.machine()} calls a call")
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], check=True, capture_output=True,
                              text=True).stdout
        shims = re.findall(r"^[0-9a-f]+ <(_*(?:cu[a-z]*|nccl)[A-Z]\w*)>:\n((?:.+\n)*)", text, re.MULTILINE)
        names = {name for name, _ in shims} - EXCEPTIONS
        self.assertGreater(len(names), 800, "hooks were not found in the code")
        self.assertEqual(EXCEPTIONS - {name for name, _ in shims}, set())
        self.assertEqual([name for name, code in shims if re.search(leaves, code) and name not in EXCEPTIONS], [])
        # Padding after the last jump is not part of a shim.
        lengths = {name: len([line for line in code.splitlines() if "nop" not in line]) for name, code in shims}
        self.assertEqual([name for name in names if lengths[name] > MOST_INSTRUCTIONS], [])


if __name__ == "__main__":
    library = sys.argv.pop(1)
    unittest.main(verbosity=2)
