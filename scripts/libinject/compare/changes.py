# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Compares runs: which figures changed, by how much, and whether that is more than noise."""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence

from libinject.compare import noise
from libinject.compare.measures import KINDS, METRICS, UNNAMED, Basis, Kind, Measure, Metric, Run, Shape, together

CERTAIN = 0.01  # share of equal runs in which a figure may be called changed: its interval is of 99 %
FALSE_SHARE = 0.05  # share of false changes among the rows called changes
LEAST = 0.01
COARSE = 0.1  # an interval that reaches further is inconclusive
_TYPED = ("gemm", "conv", "attention", "rnn")
_PRIOR = 4  # degrees of freedom that all rows' spread between runs has in one row's


@dataclasses.dataclass(frozen=True)
class Test:
    """A difference's standard error, with its degrees of freedom. It may be off by anything within `slack` besides."""

    error: float
    freedom: float
    slack: tuple[float, float] = (0.0, 0.0)

    def p(self, difference: float) -> float:
        low, high = (difference + end for end in self.slack)
        least = 0.0 if low <= 0 <= high else min(low, high, key=abs)
        if self.error <= 0:
            return float(least == 0)
        return noise.student_p(least / self.error, self.freedom)

    def span(self, difference: float, p: float) -> tuple[float, float]:
        """The interval that holds the true difference except in `p` of all cases."""
        half = noise.student_factor(self.freedom, p) * self.error if self.error > 0 else 0.0
        return difference + self.slack[0] - half, difference + self.slack[1] + half


@dataclasses.dataclass
class Change:
    """`verdict` follows from the interval alone. Without zero in it: changed, new, gone; 'small' for what is less than asked for. With
    zero: 'no difference'; 'too few' where it reaches so far that this would say nothing, or where there is none."""

    name: str
    before: float | None
    after: float | None
    count_before: float | None = None
    count_after: float | None = None
    span: tuple[float, float] | None = None  # the interval of the difference
    confidence: float | None = None  # of the interval
    verdict: str = "too few"

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
    def interval(self) -> tuple[float, float] | None:
        """Of the relative change. What is certain to be 0 on both sides has not changed."""
        if self.before == self.after == 0 and self.span == (0, 0):
            return 0.0, 0.0
        if self.span is None or not self.before or self.after is None:
            return None
        low, high = (end / self.before for end in self.span)
        return max(-1.0, low), max(-1.0, high)

    @property
    def certain(self) -> bool:
        return self.span is not None and (self.span[0] > 0 or self.span[1] < 0)

    @property
    def real(self) -> bool:
        return self.verdict in ("changed", "new", "gone")

    def as_dict(self) -> dict:
        low, high = self.interval or (None, None)
        return {"name": self.name, "before": self.before, "after": self.after, "difference": self.difference, "relative": self.relative,
                "low": low, "high": high, "confidence": self.confidence, "verdict": self.verdict, "count_before": self.count_before,
                "count_after": self.count_after}


@dataclasses.dataclass
class Comparison:
    before: list[Run]
    after: list[Run]
    basis: Basis
    metrics: list[tuple[Metric, Change]]
    tables: dict[str, list[Change]]
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)  # kinds that one of the runs does not have, and why

    @property
    def unprofiled(self) -> bool:
        """Step time and throughput are of iterations that ran without CUPTI."""
        return all(run.unprofiled for run in (*self.before, *self.after))

    def rows(self) -> Iterable[Change]:
        for changes in self.tables.values():
            yield from changes


def common_basis(runs: Sequence[Run]) -> Basis:
    possible = [run.bases() for run in runs]
    return next(basis for basis in Basis if all(basis in bases for bases in possible))


def measure(runs: Sequence[Run]) -> Basis:
    """All of them on the same basis, and with step times of the same kind."""
    basis = common_basis(runs)
    unprofiled = all(run.steps for run in runs)
    same_work = len({run.work() for run in runs}) == 1
    for run in runs:
        run.measure(basis, unprofiled, same_work)
        if run.steps and not unprofiled and basis is Basis.ITERATION:
            run.notes.append("step times are those in windows, and include the profiler's overhead: not all runs have seven step times without it")
    return basis


def compare(before: Sequence[Run], after: Sequence[Run], basis: Basis, least: float = LEAST) -> Comparison:
    """Compares runs that were measured on `basis`."""
    before, after = _with_shapes_paired(before, after)
    left_out = _left_out([*before, *after])
    metrics = []
    for metric in METRICS:
        if metric.kind in left_out:
            continue
        a, b = ([run.metrics[metric.name] for run in side if metric.name in run.metrics] for side in (before, after))
        # Tokens are not compared with samples: as far as can be told, what a unit is.
        if metric.name in ("unit_rate", "energy_per_unit") and len({run.unit for run in (*before, *after)}) > 1:
            continue
        if not a or not b:
            continue
        lacking = [run for run in (*before, *after) if metric.name not in run.metrics]
        for run in lacking:  # the mean of the others would be another run's
            _note(run, f"no {metric.name}: it is left out of comparisons with this run")
        if not lacking:
            metrics.append((metric, _metric(metric.name, a, b, least)))
    rows = {kind.name: [] if kind.name in left_out else _table(kind, before, after) for kind in KINDS}
    for kind in KINDS:
        shares = [_unnamed(kind, run) for run in (*before, *after)] if kind.named and rows[kind.name] else []
        for run, share in zip((*before, *after), shares):
            if share >= min(shares) + LEAST:
                _note(run, f"{share:.0%} of the time by {kind.name} is {UNNAMED}, more than in other runs: intervals allow for it")
    # What is known exactly can't be called a change by chance.
    level = _level([test.p(change.difference) for of_kind in rows.values() for change, test in of_kind if test is not None and test.error > 0])
    for of_kind in rows.values():
        for change, test in of_kind:
            _judge(change, test, level, least)
    tables = {name: sorted((change for change, _ in of_kind), key=lambda change: (not change.real, -abs(change.difference), change.name))
              for name, of_kind in rows.items()}
    return Comparison(list(before), list(after), basis, metrics, tables, left_out)


def _left_out(runs: Sequence[Run]) -> dict[str, str]:
    """Kinds of which one run does not know the rows, or only some of them, and why: what it lacks is not known to be new or gone."""
    found: dict[str, str] = {}
    for run in runs:
        by_reason: dict[str, list[str]] = {}
        for kind in KINDS:
            if not any(each.tables[kind.name] for each in runs):
                continue
            off = [need for need in kind.needs if need not in run.recorded() and any(need in each.recorded() for each in runs)]
            why = run.lacking.get(kind.name) or (f"recorded without {', '.join(off)} (INJECT_HOOKS, INJECT_API)" if off else "")
            if why:
                by_reason.setdefault(why, []).append(kind.name)
                found.setdefault(kind.name, why)
        for why, kinds in by_reason.items():
            _note(run, f"{why}: no {', '.join(kinds)} in comparisons with this run")
    return found


def _note(run: Run, note: str) -> None:
    if note not in run.notes:
        run.notes.append(note)


def _level(ps: list[float]) -> float:
    """Benjamini and Hochberg call what has the k smallest p a change, with the largest k whose p is at most k / n of the share of false
    ones. Intervals of 1 - that leave zero out for these rows, and for no others (Benjamini and Yekutieli)."""
    called = [k for k, p in enumerate(sorted(ps), 1) if p <= k / len(ps) * FALSE_SHARE]
    return max(called, default=1) / max(1, len(ps)) * FALSE_SHARE


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


def _judge(change: Change, test: Test | None, p: float, least: float, more: tuple[float, float] | None = None) -> None:
    """`more`: another interval, which the result also encloses."""
    if test is None:
        return
    low, high = test.span(change.difference, p)
    if more is not None:
        low, high = min(low, more[0]), max(high, more[1])
    if not math.isfinite(high - low):
        return
    change.span, change.confidence = (low, high), 1 - p
    relative, interval = change.relative, change.interval
    if change.certain and relative is not None and abs(relative) < least:
        change.verdict = "small"
    elif change.certain:
        change.verdict = "new" if change.before is None else "gone" if change.after is None else "changed"
    elif low == high == 0 or (interval is not None and -COARSE <= interval[0] and interval[1] <= COARSE):
        change.verdict = "no difference"


def _metric(name: str, a: list[Measure], b: list[Measure], least: float) -> Change:
    change = Change(name, statistics.fmean(m.value for m in a), statistics.fmean(m.value for m in b))
    more = None
    if len(a) == 1 and len(b) == 1 and a[0].series and b[0].series:
        # Values may be anything but normally distributed: neither interval alone can be trusted (docs/compare.md).
        more = noise.rank_interval(noise.blocks(a[0].series), noise.blocks(b[0].series), CERTAIN)
    # A little more, so that neighbouring cells' ranges meet in floating point as well.
    rounding = 1.000001 * sum(statistics.fmean(m.rounding for m in side) for side in (a, b))
    if more is not None:
        more = more[0] - rounding, more[1] + rounding
    _judge(change, _test(a, b, None, (-rounding, rounding)), CERTAIN, least, more)
    return change


def sum_of(name: str, before: Sequence[Run], after: Sequence[Run], kind: Kind, names: Sequence[str], least: float = LEAST) -> Change:
    """The change of the sum of several rows, judged by itself."""
    sides = []
    for side in (before, after):
        sides.append([together(run.tables[kind.name][row] for row in names if row in run.tables[kind.name]) for run in side])
    slack = (0.0, 0.0) if UNNAMED in names else _slack(kind, before, after)
    change = Change(name, *(statistics.fmean(m.value for m in side) for side in sides))
    if change.before == 0 and change.difference > -slack[0]:
        change.before = None
    if change.after == 0 and -change.difference > slack[1]:
        change.after = None
    _judge(change, _test(sides[0], sides[1], None, slack), CERTAIN, least)
    return change


def _slack(kind: Kind, before: Sequence[Run], after: Sequence[Run]) -> tuple[float, float]:
    """How much less and more than it looks a row may have changed because one side has more of its time in no row: the difference in that
    share may be all its own."""
    if not kind.named:
        return 0.0, 0.0
    a, b = (statistics.fmean(_unnamed(kind, run) for run in side) for side in (before, after))
    if abs(a - b) < LEAST:
        return 0.0, 0.0
    totals = [statistics.fmean(_total(kind, run) for run in side) for side in (before, after)]
    return -max(0.0, a - b) * totals[0], max(0.0, b - a) * totals[1]


def _total(kind: Kind, run: Run) -> float:
    return math.fsum(m.value for m in run.tables[kind.name].values())


def _unnamed(kind: Kind, run: Run) -> float:
    """The share of the time that is in no row."""
    unnamed = run.tables[kind.name].get(UNNAMED)
    return 0.0 if unnamed is None else unnamed.value / _total(kind, run)


def _table(kind: Kind, before: Sequence[Run], after: Sequence[Run]) -> list[tuple[Change, Test | None]]:
    names = dict.fromkeys(name for run in (*before, *after) for name in run.tables[kind.name])
    absent = Measure(0.0, 0.0, math.inf, 0.0)
    rows = []
    for name in names:
        a, b = ([run.tables[kind.name].get(name, absent) for run in side] for side in (before, after))
        rows.append((name, a, b))
    spread = _usual_spread([(a, b) for _, a, b in rows]) if len(before) + len(after) > 2 else None
    of_kind = _slack(kind, before, after)
    changes = []
    for name, a, b in rows:
        slack = (0.0, 0.0) if name == UNNAMED else of_kind
        # What may be among the unnamed is not known to be new or gone.
        hidden = math.fsum(m.value for m in b) <= -slack[0] * len(b), math.fsum(m.value for m in a) <= slack[1] * len(a)
        there = [any(m is not absent for m in side) or may_be for side, may_be in zip((a, b), hidden)]
        values = [statistics.fmean(m.value for m in side) if is_there else None for side, is_there in zip((a, b), there)]
        counts = [statistics.fmean(m.count or 0.0 for m in side) if is_there and side[0].count is not None else None
                  for side, is_there in zip((a, b), there)]
        changes.append((Change(name, values[0], values[1], counts[0], counts[1]), _test(a, b, spread, slack)))
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


def _test(a: list[Measure], b: list[Measure], usual_spread: float | None, slack: tuple[float, float] = (0.0, 0.0)) -> Test | None:
    """Welch's standard error, from the errors within runs, or the spread between runs if that is larger. None if neither is known."""
    between = _between(a, b)
    if any(m.error is None and not (m.if_repeated and between) for m in (*a, *b)):
        return None
    variances, freedoms = [], []
    pooled, of_pool = 0.0, 0  # of both sides: one estimate
    for side in (a, b):
        mean = statistics.fmean(m.value for m in side)
        variance = statistics.fmean((m.error or 0.0) ** 2 for m in side) / len(side)
        freedom = min((m.freedom for m in side), default=0.0) * len(side)
        if between is not None:
            relative, degrees = between
            if usual_spread is not None:
                relative, degrees = (relative * degrees + usual_spread * _PRIOR) / (degrees + _PRIOR), degrees + _PRIOR
            if relative * mean * mean / len(side) >= variance:
                pooled, of_pool = pooled + relative * mean * mean / len(side), degrees
                continue
            # Which of two estimates is larger is chance: where one is poorly known, so is the larger one.
            freedom = min(freedom, degrees)
        variances.append(variance)
        freedoms.append(freedom)
    variances.append(pooled)
    freedoms.append(of_pool)
    if any(variance > 0 and freedom <= 0 for variance, freedom in zip(variances, freedoms)):
        return None
    total = sum(variances)
    parts = sum(variance * variance / freedom for variance, freedom in zip(variances, freedoms) if variance > 0)
    return Test(math.sqrt(total), min(total * total / parts if parts > 0 else math.inf, 1e6), slack)
