# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Which name was meant by a wrong one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def _word(name: str) -> str:
    """Without what all names have in common, which would make any two of them alike."""
    return name.lstrip("-").removeprefix("INJECT_").lower()


def nearest(name: str, known: Iterable[str]) -> str | None:
    words = {_word(each): each for each in known}
    found = difflib.get_close_matches(_word(name), words, 1, cutoff=0.66)
    return words[found[0]] if found else None
