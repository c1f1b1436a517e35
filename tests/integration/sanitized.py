# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Cases that say nothing where library and programs are built with a sanitizer (scripts/sanitize.sh)."""

import os
import unittest

SANITIZER = os.environ.get("INJECT_TEST_SANITIZER", "")
# How much longer things may take: sanitizers slow programs down, and a busy machine those that take more of it.
PACE = 10 if SANITIZER else 1
# What run.json may then say was lost, as not every time can wait for its turn.
LOST_TO_PACE = {"busy_time_records"} if SANITIZER else set()
_RUNTIME = os.environ.get("INJECT_TEST_SANITIZER_RUNTIME")  # what scripts/sanitize.sh has preloaded


def preload(*libraries):
    """LD_PRELOAD's value for these libraries, of which there may be none. The sanitizer's run-time library comes first, as it
    has to come before the C library, but in programs that nobody watches (Python, sh) would come with ours, after it."""
    return " ".join(str(path) for path in (*([_RUNTIME] if _RUNTIME else []), *libraries))


def unsanitized(why, alone=None):
    """Skips a case under a sanitizer (under `alone`, if there is one that is meant); the reason is printed, as unittest does
    not do that by itself."""
    skipped = SANITIZER != "" and alone in (None, SANITIZER)
    if skipped:
        print(f"skipped under the {SANITIZER} sanitizer: {why}")
    return unittest.skipIf(skipped, why)
