# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Cases that say nothing where library and programs are built with a sanitizer (scripts/sanitize.sh)."""

import os
import unittest

SANITIZER = os.environ.get("INJECT_TEST_SANITIZER", "")


def unsanitized(why):
    """Skips a case under a sanitizer; the reason is printed, as unittest does not do that by itself."""
    if SANITIZER:
        print(f"skipped under the {SANITIZER} sanitizer: {why}")
    return unittest.skipIf(bool(SANITIZER), why)
