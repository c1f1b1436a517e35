# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Suggests the name that was meant by a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def _word(name: str) -> str:
    """Without the part that all names share, which would make any two of them similar."""
    return name.lstrip("-").removeprefix("INJECT_").lower()


def nearest(name: str, known: Iterable[str]) -> str | None:
    words = {_word(each): each for each in known}
    found = difflib.get_close_matches(_word(name), words, 1, cutoff=0.66)
    return words[found[0]] if found else None
