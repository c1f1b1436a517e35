# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The statistics of a comparison, in plain Python: no files, units or names."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Sequence

_NORMAL = statistics.NormalDist()
MOST_BLOCKS = 32
_LEAST_INDEPENDENT = 4
_EXACT = 400  # pairs up to which the rank test's distribution is counted out


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            result[order[place]] = (first + last) / 2 + 1
        first = last + 1
    return result


def autocorrelation(values: Sequence[float]) -> float:
    """Of each value's rank with the next one's, with what short series underestimate it by added; 0.9 at most."""
    count = len(values)
    if count < 3:
        return 0.0
    ranked = ranks(values)
    mean = (count + 1) / 2
    total = sum((rank - mean) ** 2 for rank in ranked)
    if total == 0:
        return 0.0
    r = sum((a - mean) * (b - mean) for a, b in zip(ranked, ranked[1:])) / total
    return min(0.9, r + (1 + 3 * r) / count)


def inflation(*alike: Sequence[float]) -> float:
    """By what factor the variance of a mean of values in order of time exceeds that of independent ones. Several series, if they are
    alike in this, show it better than one."""
    r = max(0.0, statistics.fmean(map(autocorrelation, alike)))
    return (1 + r) / (1 - r)


def error_of_mean(values: Sequence[float], inflated: float | None = None) -> tuple[float, float]:
    """Standard error of the mean of values in order of time, and its degrees of freedom. Outliers count, as they do in the mean.
    `inflated`: the inflation, if it is known from more than these."""
    few = averages(values)
    independent = len(few) / (inflation(few) if inflated is None else inflated)
    return deviation(few) / math.sqrt(independent), max(0.5, independent - 1)


def averages(values: Sequence[float]) -> Sequence[float]:
    """At most 32 means of successive values, as in blocks()."""
    if len(values) <= MOST_BLOCKS:
        return values
    edges = [len(values) * i // MOST_BLOCKS for i in range(MOST_BLOCKS + 1)]
    return [math.fsum(values[a:b]) / (b - a) for a, b in zip(edges, edges[1:])]


def blocks(values: Sequence[float]) -> list[float]:
    """At most 32 medians of equally many successive values: neighbours in time are alike, and count once."""
    if len(values) <= MOST_BLOCKS:
        return list(values)
    edges = [len(values) * i // MOST_BLOCKS for i in range(MOST_BLOCKS + 1)]
    return [statistics.median(values[a:b]) for a, b in zip(edges, edges[1:])]


@functools.lru_cache(maxsize=64)
def _ways(n: int, m: int) -> tuple[int, ...]:
    """The number of orderings of n and m values for which the Mann-Whitney statistic is 0, 1, …, n m."""
    counts = [1] + [0] * (n * m)
    # The generating function is the Gaussian binomial coefficient: product of (1 - q^(m+i)) / (1 - q^i).
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    return tuple(counts)


def rank_interval(a: Sequence[float], b: Sequence[float], p: float) -> tuple[float, float]:
    """Of how much larger b's values are: all shifts that Mann and Whitney's test does not refute at `p`. Without limits where there
    are too few values."""
    n, m = len(a), len(b)
    if n * m <= _EXACT:
        place = _refuted(n, m, p)
    else:
        place = math.floor(n * m / 2 - 0.5 - _NORMAL.inv_cdf(1 - p / 2) * math.sqrt(n * m * (n + m + 1) / 12))
    if place < 1:
        return -math.inf, math.inf
    shifts = sorted(y - x for x in a for y in b)
    return shifts[place - 1], shifts[-place]


@functools.lru_cache(maxsize=256)
def _refuted(n: int, m: int, p: float) -> int:
    """How many of the statistic's smallest values, and as many of the largest, have a probability of `p` at most."""
    ways = _ways(n, m)
    least = p / 2 * sum(ways)
    return next(place for place, count in enumerate(itertools.accumulate(ways)) if count > least)


def deviation(values: Sequence[float]) -> float:
    """Of a sample. (That of the module statistics computes with fractions, a hundred times as long.)"""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)) if len(values) > 1 else 0.0


def quantile(ordered: Sequence[float], q: float) -> float:
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def median_with_error(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Median, its standard error and the error's degrees of freedom, for values in order of time; None for fewer than 3."""
    few = blocks(values)
    if len(few) < 3:
        return None
    ordered = sorted(few)
    center = quantile(ordered, 0.5)
    # Both are the standard deviation of normally distributed values, and blind to outliers. Where values come in two clusters the
    # median may lie in either: then the quartiles tell.
    by_median = 1.4826 * statistics.median(abs(value - center) for value in few)
    by_quartiles = (quantile(ordered, 0.75) - quantile(ordered, 0.25)) / 1.349
    independent = len(few) / inflation(few)
    # They use less than half of what the values know of their spread. That neighbours are alike is in the error already.
    freedom = 0.5 * max(independent - 1, min(_LEAST_INDEPENDENT, len(few) - 1))
    return statistics.median(values), 1.2533 * max(by_median, by_quartiles) / math.sqrt(independent), freedom


def largest_deviation(average: float, smallest: float, largest: float) -> float:
    """The largest standard deviation that values of this mean between these two can have (Bhatia and Davis)."""
    return math.sqrt(max(0.0, largest - average) * max(0.0, average - smallest))


def student_p(t: float, freedom: float) -> float:
    """Two-sided p of Student's t."""
    if not math.isfinite(t):
        return 0.0
    if freedom <= 0:
        return 1.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def student_factor(freedom: float, p: float = 0.05) -> float:
    """t whose two-sided p is `p`, to a thousandth."""
    return math.inf if freedom <= 0 else _student_factor(float(f"{freedom:.4g}"), p)


@functools.lru_cache(maxsize=4096)
def _student_factor(freedom: float, p: float) -> float:
    low, high = 0.0, 1e6
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_p(middle, freedom) > p else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    # Lentz's continued fraction.
    tiny = 1e-300
    c, d, value = 1.0, 0.0, 1.0
    for i in range(400):
        k = i // 2
        if i == 0:
            term = 1.0
        elif i % 2 == 0:
            term = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k))
        else:
            term = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))
        d = 1 / (1 + term * d or tiny)
        c = 1 + term / c or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return min(1.0, max(0.0, front * (value - 1)))
