# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A fixed set of cases of tests/fuzz/result_folders.py for each command."""

import sys
import unittest

import folders

sys.path.insert(0, str(folders.ROOT / "tests" / "fuzz"))

import result_folders

CASES = {"report": 25, "check": 100, "compare": 40, "merge": 12, "sweep": 25}


class Fuzz(unittest.TestCase):
    def test_damaged_folders(self):
        kept = result_folders.folders_to_begin_with(kept=True)
        for target, count in CASES.items():
            with self.subTest(target=target):
                found = list(result_folders.run_cases(target, 1, 0, count, kept))
                self.assertEqual([number for number, _ in found], list(range(count)))
                self.assertEqual([(number, *finding) for number, finding in found if finding], [])


if __name__ == "__main__":
    unittest.main()
