# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""looks.h for programs in Python: one that waits for libinject's threads is as slow as they are on a busy machine. No test of its own."""

import pathlib
import re
import time


def _waits():
    """Of each of libinject's threads, how often it has waited, as the kernel counts it."""
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
    """Until one of them has looked at what the program did `count` times, or there is none. A look lies between two waits."""
    before, end = _waits(), time.monotonic() + most
    while before and time.monotonic() < end:
        after = _waits()
        if not after or any(waits > before.get(thread, 0) + count for thread, waits in after.items()):
            return
        time.sleep(0.002)
