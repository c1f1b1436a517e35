# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Holds runs against runs: which figures changed, by how much, and whether that is more than noise."""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

from libinject.compare import noise
from libinject.compare.measures import KINDS, METRICS, Basis, Measure, Metric, Run, Shape, together

CERTAIN = 0.01  # p up to which a figure of the whole run is taken to have changed
FALSE_SHARE = 0.05  # of the rows of the breakdowns that are called changes
LEAST = 0.01
_TYPED = ("gemm", "conv", "attention", "rnn")
_PRIOR = 4  # degrees of freedom that all rows' spread between runs has in one row's


@dataclasses.dataclass
class Change:
    """`verdict`: changed, new, gone, noise; 'small' for what is certain and less than asked for; 'unknown' where nothing says how large
    the noise is."""

    name: str
    before: float | None
    after: float | None
    count_before: float | None = None
    count_after: float | None = None
    p: float | None = None
    low: float | None = None  # 95 % interval of the relative change
    high: float | None = None
    adjusted_p: float | None = None
    verdict: str = "unknown"

    @property
    def difference(self) -> float:
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def relative(self) -> float | None:
        if self.before is None:
            return math.inf
        if self.after is None:
            return -1.0
        if self.before == 0:
            return 0.0 if self.after == 0 else math.copysign(math.inf, self.after)
        return self.after / self.before - 1

    @property
    def real(self) -> bool:
        return self.verdict in ("changed", "new", "gone")

    def as_dict(self) -> dict:
        return {**dataclasses.asdict(self), "difference": self.difference, "relative": self.relative}


@dataclasses.dataclass
class Comparison:
    before: list[Run]
    after: list[Run]
    basis: Basis
    metrics: list[tuple[Metric, Change]]
    tables: dict[str, list[Change]]

    def rows(self) -> Iterable[Change]:
        for changes in self.tables.values():
            yield from changes


def common_basis(runs: Sequence[Run]) -> Basis:
    possible = [run.bases() for run in runs]
    return next(basis for basis in Basis if all(basis in bases for bases in possible))


def compare(before: Sequence[Run], after: Sequence[Run], basis: Basis, least: float = LEAST) -> Comparison:
    """Runs that have been measured on `basis`."""
    before, after = _with_shapes_paired(before, after)
    metrics = []
    for metric in METRICS:
        a, b = ([run.metrics[metric.name] for run in side if metric.name in run.metrics] for side in (before, after))
        if a and b:
            change = _metric(metric.name, a, b)
            _judge(change, change.p, CERTAIN, least)
            metrics.append((metric, change))
    tables = {kind.name: _table(kind.name, before, after) for kind in KINDS}
    known = [change for changes in tables.values() for change in changes if change.p is not None]
    for change, p in zip(known, noise.adjusted([change.p or 0.0 for change in known]), strict=True):
        change.adjusted_p = p
        _judge(change, p, FALSE_SHARE, least)
    for changes in tables.values():
        changes.sort(key=lambda change: (not change.real, -abs(change.difference), change.name))
    return Comparison(list(before), list(after), basis, metrics, tables)


def _with_shapes_paired(before: Sequence[Run], after: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Where one side alone has a shape in some types, and the other side alone in others, that is one row: with other types a step asks for
    the same, and how much faster each of it got is what one wants to know. Copies: a run may be held against several."""
    names: dict[tuple[str, str], str] = {}
    for kind in _TYPED:
        a, b = ({name for run in side for name in run.tables[kind]} for side in (before, after))
        gone, new = (_alone(side, names_of) for side, names_of in ((before, a - b), (after, b - a)))
        for size in gone.keys() & new.keys():
            if len(gone[size]) == len(new[size]) == 1:
                (old, was), (fresh, becomes) = gone[size][0], new[size][0]
                if len(was.types) == len(becomes.types):
                    names[kind, old] = names[kind, fresh] = was.to(becomes)
    if not names:
        return list(before), list(after)

    def renamed(run: Run) -> Run:
        found = copy.copy(run)
        found.tables = {kind: {names.get((kind, name), name): measure for name, measure in table.items()} for kind, table in run.tables.items()}
        return found

    return [renamed(run) for run in before], [renamed(run) for run in after]


def _alone(side: Sequence[Run], names: Iterable[str]) -> dict[str, list[tuple[str, Shape]]]:
    found: dict[str, list[tuple[str, Shape]]] = {}
    for name in names:
        shape = next((run.shapes[name] for run in side if name in run.shapes), None)
        if shape is not None and shape.size:
            found.setdefault(shape.size, []).append((name, shape))
    return found


def _judge(change: Change, p: float | None, certain: float, least: float) -> None:
    relative = change.relative
    if p is None:
        change.verdict = "unknown"
    elif p > certain or relative is None:
        change.verdict = "noise"
    elif abs(relative) < least:
        change.verdict = "small" if relative else "noise"
    elif change.before is None:
        change.verdict = "new"
    else:
        change.verdict = "gone" if change.after is None else "changed"


def _metric(name: str, a: list[Measure], b: list[Measure]) -> Change:
    change = Change(name, statistics.fmean(m.value for m in a), statistics.fmean(m.value for m in b))
    _test(change, a, b, None)
    if change.p is not None and len(a) == 1 and len(b) == 1 and a[0].series and b[0].series:
        # Of values that are in no way normally distributed, too: neither test alone is to be trusted (docs/compare.md).
        change.p = max(change.p, noise.rank_test(noise.blocks(a[0].series), noise.blocks(b[0].series)))
    return change


def sum_of(name: str, before: Sequence[Run], after: Sequence[Run], kind: str, names: Sequence[str], least: float = LEAST) -> Change:
    """The change of several rows' sum, judged by itself."""
    sides = []
    for side in (before, after):
        sides.append([together(run.tables[kind][row] for row in names if row in run.tables[kind]) for run in side])
    change = Change(name, *(statistics.fmean(m.value for m in side) for side in sides))
    if change.before == 0:
        change.before = None
    if change.after == 0:
        change.after = None
    _test(change, sides[0], sides[1], None)
    _judge(change, change.p, CERTAIN, least)
    return change


def _table(kind: str, before: Sequence[Run], after: Sequence[Run]) -> list[Change]:
    names = dict.fromkeys(name for run in (*before, *after) for name in run.tables[kind])
    absent = Measure(0.0, 0.0, math.inf, 0.0)
    rows = []
    for name in names:
        a, b = ([run.tables[kind].get(name, absent) for run in side] for side in (before, after))
        rows.append((name, a, b))
    spread = _usual_spread([(a, b) for _, a, b in rows]) if len(before) + len(after) > 2 else None
    changes = []
    for name, a, b in rows:
        there = [any(m is not absent for m in side) for side in (a, b)]
        values = [statistics.fmean(m.value for m in side) if is_there else None for side, is_there in zip((a, b), there, strict=True)]
        counts = [statistics.fmean(m.count or 0.0 for m in side) if is_there and side[0].count is not None else None
                  for side, is_there in zip((a, b), there, strict=True)]
        change = Change(name, values[0], values[1], counts[0], counts[1])
        _test(change, a, b, spread)
        changes.append(change)
    return changes


def _usual_spread(rows: list[tuple[list[Measure], list[Measure]]]) -> float | None:
    """The median of all rows' relative variances between runs of one side."""
    variances = []
    for sides in rows:
        found = _between(*sides)
        if found is not None:
            variances.append(found[0])
    return statistics.median(variances) if variances else None


def _between(a: list[Measure], b: list[Measure]) -> tuple[float, int] | None:
    """Relative variance between runs, pooled over both sides, and its degrees of freedom."""
    total, freedom = 0.0, 0
    for side in (a, b):
        mean = statistics.fmean(m.value for m in side)
        if len(side) > 1 and mean > 0:
            total += sum((m.value / mean - 1) ** 2 for m in side)
            freedom += len(side) - 1
    return (total / freedom, freedom) if freedom else None


def _test(change: Change, a: list[Measure], b: list[Measure], usual_spread: float | None) -> None:
    """Welch's test with the errors within runs, or the spread between runs where that is larger."""
    if any(m.error is None for m in (*a, *b)):
        return
    between = _between(a, b)
    variances, freedoms = [], []
    for side in (a, b):
        mean = statistics.fmean(m.value for m in side)
        variance = statistics.fmean((m.error or 0.0) ** 2 for m in side) / len(side)
        freedom = min((m.freedom for m in side), default=0.0) * len(side)
        if between is not None:
            relative, degrees = between
            if usual_spread is not None:
                relative, degrees = (relative * degrees + usual_spread * _PRIOR) / (degrees + _PRIOR), degrees + _PRIOR
            if relative * mean * mean / len(side) >= variance:
                variance, freedom = relative * mean * mean / len(side), degrees
        variances.append(variance)
        freedoms.append(freedom)
    total = sum(variances)
    difference = statistics.fmean(m.value for m in b) - statistics.fmean(m.value for m in a)
    if total <= 0:
        change.p = 1.0 if difference == 0 else 0.0
        return
    parts = sum(variance * variance / freedom for variance, freedom in zip(variances, freedoms, strict=True) if variance > 0 and freedom > 0)
    if any(variance > 0 and freedom <= 0 for variance, freedom in zip(variances, freedoms, strict=True)):
        return
    freedom = total * total / parts if parts > 0 else math.inf
    change.p = noise.student_p(difference / math.sqrt(total), min(freedom, 1e6))
    if change.before and change.after is not None:
        half = noise.student_factor(min(freedom, 1e6)) * math.sqrt(total) / change.before
        change.low, change.high = max(-1.0, difference / change.before - half), difference / change.before + half
