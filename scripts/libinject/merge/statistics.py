# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Statistics that Python's own module lacks."""

from __future__ import annotations

import math


def student_tail(t: float, freedom: int) -> float:
    """P(T > t) of Student's t with a whole number of degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    if t < 0:
        return 1 - student_tail(-t, freedom)
    if math.isinf(t):
        return 0.0
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2 == 1
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, (1 - inside) / 2)


def middle(values: str) -> str:
    """SQL: the columns of a sorted list that `median_of_others` needs; the rest of the list need not be joined."""
    return f"len({values}) AS n, {values}[n // 2] AS low, {values}[n // 2 + 1] AS mid, {values}[n // 2 + 2] AS high"


def median_of_others(v: str) -> str:
    """SQL: the median of a list's values without one occurrence of v. Removing v shifts the values after it; with even n one value is in
    the middle of the others, with odd n two are."""
    first, second = f"(CASE WHEN {v} > low THEN low ELSE mid END)", f"(CASE WHEN {v} > mid THEN mid ELSE high END)"
    return f"(CASE WHEN n < 2 THEN NULL WHEN n % 2 = 0 THEN {first} ELSE ({first} + {second}) / 2.0 END)"
