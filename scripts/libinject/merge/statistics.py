# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Statistics in SQL."""

from __future__ import annotations


def middle(values: str) -> str:
    """SQL: the columns of a sorted list that `median_of_others` needs; the rest of the list need not be joined."""
    return f"len({values}) AS n, {values}[n // 2] AS low, {values}[n // 2 + 1] AS mid, {values}[n // 2 + 2] AS high"


def median_of_others(v: str) -> str:
    """SQL: the median of a list's values without one occurrence of v. Removing v shifts the values after it; with even n one value is in
    the middle of the others, with odd n two are."""
    first, second = f"(CASE WHEN {v} > low THEN low ELSE mid END)", f"(CASE WHEN {v} > mid THEN mid ELSE high END)"
    return f"(CASE WHEN n < 2 THEN NULL WHEN n % 2 = 0 THEN {first} ELSE ({first} + {second}) / 2.0 END)"
