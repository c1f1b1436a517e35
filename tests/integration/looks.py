# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""looks.h for programs in Python: a program that waits for libinject's threads is as slow as they are on a busy machine. Not a test
itself."""

import pathlib
import re
import time


def _waits():
    """How often each of libinject's threads has waited, as counted by the kernel."""
    found = {}
    for thread in pathlib.Path("/proc/self/task").iterdir():
        try:
            text = (thread / "status").read_text(encoding="utf-8")
        except OSError:  # it has ended
            continue
        waits = re.search(r"^voluntary_ctxt_switches:\s*(\d+)$", text, re.MULTILINE)
        if text.startswith("Name:\tlibinject\n") and waits:
            found[thread.name] = int(waits[1])
    return found


def wait(count=3, most=10.0):
    """Waits until one of them has checked what the program did `count` times, or there is none. A check lies between two waits."""
    before, end = _waits(), time.monotonic() + most
    while before and time.monotonic() < end:
        after = _waits()
        if not after or any(waits > before.get(thread, 0) + count for thread, waits in after.items()):
            return
        time.sleep(0.002)
