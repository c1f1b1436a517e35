# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Cases that are meaningless if library and programs are built with a sanitizer (scripts/sanitize.sh)."""

import os
import unittest

SANITIZER = os.environ.get("INJECT_TEST_SANITIZER", "")
# The factor by which things may take longer: sanitizers slow programs down, and on a busy machine even more.
PACE = 10 if SANITIZER else 1
# Losses that run.json may then report, as some times arrive too late.
LOST_TO_PACE = {"busy_time_records"} if SANITIZER else set()
_RUNTIME = os.environ.get("INJECT_TEST_SANITIZER_RUNTIME")  # preloaded by scripts/sanitize.sh


def preload(*libraries):
    """LD_PRELOAD's value for these libraries, possibly none. The sanitizer's run-time library comes first because it must precede the C
    library, which would not be so in uninstrumented programs (Python, sh) that load it through our library."""
    return " ".join(str(path) for path in (*([_RUNTIME] if _RUNTIME else []), *libraries))


def unsanitized(why, alone=None):
    """Skips a case under a sanitizer (only under `alone`, if given); the reason is printed, as unittest does not do that by itself."""
    skipped = SANITIZER != "" and alone in (None, SANITIZER)
    if skipped:
        print(f"skipped under the {SANITIZER} sanitizer: {why}")
    return unittest.skipIf(skipped, why)
