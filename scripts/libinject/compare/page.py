# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A comparison as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from libinject.compare import describe
from libinject.compare.changes import Change, Comparison
from libinject.compare.conditions import Outcome
from libinject.compare.measures import KINDS, Basis, Kind, Metric, Run
from libinject.page.parts import MOST_ROWS, Article, Plot, Section, Table, as_column, plain_table
from libinject.page.render import articles_page
from libinject.result import printable

_MOST_BARS = 20
_WITH_BARS = ("kernels", "families")
_SHAPES = ("gemm", "conv", "attention", "rnn", "nccl")
_LONGEST = 1 << 11  # of a name
_NEW = 1e300  # the relative change of a new row, for sorting


def page(comparisons: Sequence[Comparison], outcomes: Sequence[Sequence[Outcome]]) -> str:
    return articles_page("Comparison of runs", "compare", [_article(*pair) for pair in zip(comparisons, outcomes)])


def _article(comparison: Comparison, outcomes: Sequence[Outcome]) -> Article:
    sides = (("A", comparison.before), ("B", comparison.after))
    headline, mood = _headline(comparison)
    sections = [_runs(comparison)]
    for kind in KINDS:
        changes = comparison.tables[kind.name]
        if changes:
            sections.append(_breakdown(kind, changes, comparison.basis.per))
    differing = describe.differing(comparison.before, comparison.after)
    if differing:
        two = len(comparison.before) == len(comparison.after) == 1
        columns = [as_column(name, "text") for name in ("What", *(("A", "B") if two else ("First run of A", "The runs named")))]
        sections.insert(1, Section("differences", "What else differs", "GPUs, versions, options, command lines and verdicts that differ.",
                                   tables=[plain_table("differences", "Between the runs", "run.json", columns, differing)]))
    facts = [(letter, describe.run_line(run)) for letter, runs in sides for run in runs]
    facts += [("Totals", describe.how_normalised(comparison)), *(("Gate", describe.gate(outcome)) for outcome in outcomes),
              ("Conclusion", describe.conclusion(comparison, outcomes))]
    return Article(f"{_name(comparison.after)} against {_name(comparison.before)}", facts, sections, headline, mood, describe.caveats([*comparison.before, *comparison.after]))


def _name(runs: Sequence[Run]) -> str:
    return printable(runs[0].result.name, 80) if len(runs) == 1 else f"{len(runs)} runs"


def _mood(change: Change, better: int) -> str:
    return "" if not change.real or not better else "good" if (change.difference > 0) == (better > 0) else "bad"


def _headline(comparison: Comparison) -> tuple[str, str]:
    for metric, change in comparison.metrics[:1]:
        before, after = (describe.figure(value, metric.unit) for value in (change.before, change.after))
        return f"{metric.title} {before} → {after}: {describe.percent(change.relative)}, {describe.verdict(change, metric)}", _mood(change, metric.better)
    return "", ""


def _runs(comparison: Comparison) -> Section:
    of = ("the iterations without the profiler" if comparison.unprofiled else
          "the complete iterations in windows" if comparison.basis is Basis.ITERATION else "")
    part = Section("run", "The whole run", f"{f'Step time and samples per second are medians over {of}. ' if of else ''}A figure has changed if its "
                                           "99 % interval does not include zero.")
    rows = [[metric.title, *_cells(change, metric.unit, metric.better, metric)] for metric, change in comparison.metrics]
    columns = [as_column("Figure", "text"), *_columns()]
    return part.add(_steps(comparison), plain_table("metrics", "Figures of the whole run", "", columns, rows, first=30) if rows else None)


def _columns() -> list[dict]:
    # A phone shows only the first ones.
    return [as_column("Change (%)"), as_column("Verdict", "text"), *(as_column(name) for name in ("A", "B", "Change", "Interval", "Calls"))]


def _cells(change: Change, unit: str, better: int, metric: Metric | None = None) -> list[list | str | None]:
    mood = _mood(change, better)
    relative = _NEW if change.relative is not None and math.isinf(change.relative) else change.relative
    count = change.count_before if change.count_after is None else change.count_after
    verdict = describe.verdict(change, metric)
    return [_cell(relative, describe.percent(change.relative), mood), [verdict, verdict, mood],
            _cell(change.before, describe.figure(change.before, unit)),
            _cell(change.after, describe.figure(change.after, unit)), _cell(change.difference, describe.difference(change, unit), mood),
            _cell(change.interval and change.interval[0], describe.interval(change)), _cell(count, describe.counts(change))]


def _cell(value: float | None, text: str, mood: str = "") -> list | None:
    return None if value is None else [value, text, mood]


def _breakdown(kind: Kind, changes: list[Change], per: str) -> Section:
    real = [change for change in changes if change.real]
    part = Section(kind.name, kind.title, f"{len(real)} of {len(changes)} changed{f'; {per}' if kind.unit == 'ns' else ''}.")
    if kind.name in _WITH_BARS and real:
        part.add(_bars(real[:_MOST_BARS], kind.title, per))
    return part.add(_table(kind, changes))


def _table(kind: Kind, changes: list[Change]) -> Table:
    rows = [[describe.printable(change.name, _LONGEST), *_cells(change, kind.unit, -1)] for change in changes[:MOST_ROWS]]
    # Shapes consist of words, none of which can be left out.
    columns = [as_column("Name", "text" if kind.name in _SHAPES else "name"), *_columns()]
    return plain_table(kind.name, kind.title, "", columns, rows, len(changes), "" if len(changes) <= MOST_ROWS else "--json lists all rows")


def _bars(changes: list[Change], title: str, per: str) -> Plot:
    axis = f"change of time {per}"
    return Plot("changes", f"{title} whose time changed most", "bars", {"title": axis, "unit": "ns", "signed": True}, [
        {"name": axis, "names": [describe.printable(change.name, _LONGEST) for change in changes], "values": [change.difference for change in changes],
         "colours": [_mood(change, -1) for change in changes],
         "notes": [f"{describe.figure(change.before, 'ns')} → {describe.figure(change.after, 'ns')}, {describe.verdict(change)}"
                   for change in changes]}])


def _steps(comparison: Comparison) -> Plot | None:
    """The noise is judged by these step times."""
    series = []
    for letter, runs in (("A", comparison.before), ("B", comparison.after)):
        for run in runs:
            times = run.metrics["step_time"].series if "step_time" in run.metrics else ()
            times = times[:MOST_ROWS]
            if times:
                series.append({"name": f"{letter}: {printable(run.result.name, 40)}", "x": list(range(1, len(times) + 1)), "y": list(times), "lines": True})
    if not series:
        return None
    return Plot("steps", "Step time, iteration by iteration", "points", {"title": "iteration, in the order of the run"}, series,
                {"title": "step time", "unit": "ns", "zero": True})
