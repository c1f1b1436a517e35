# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A comparison as text."""

from __future__ import annotations

import textwrap

import rich.box
import rich.console
from rich.table import Table
from rich.text import Text

from libinject import console
from libinject.compare import describe
from libinject.compare.changes import Change, Comparison
from libinject.compare.measures import KINDS

_WIDTH = 120


def _style(change: Change, better: int) -> str:
    if not change.real or not better:
        return ""
    return "green" if (change.difference > 0) == (better > 0) else "red"


def _show(table: Table) -> None:
    wide = max(_WIDTH, console.out.width) if console.out.is_terminal else _WIDTH
    rich.console.Console(highlight=False, markup=False, emoji=False, width=wide).print(table)


def _new_table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", title_style="bold", box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))


def print_comparison(comparison: Comparison, top: int) -> None:
    print_ = console.out.print
    for letter, side in (("A", comparison.before), ("B", comparison.after)):
        for run in side:
            print_(f"{letter}: {describe.run_line(run)}")
    for line in describe.differences(comparison.before[0].result, comparison.after[0].result):
        print_(f"   {line}")
    for line in describe.caveats([*comparison.before, *comparison.after]):
        print_(f"   {line}")
    print_(describe.how_normalised(comparison))
    print_()

    table = _new_table("The runs")
    for header, justify in (("Figure", "left"), ("A", "right"), ("B", "right"), ("Change", "right"), ("", "right"), ("95% interval", "right"),
                            ("Verdict", "left")):
        table.add_column(header, justify=justify, no_wrap=True)
    for metric, change in comparison.metrics:
        table.add_row(Text(metric.title), describe.figure(change.before, metric.unit), describe.figure(change.after, metric.unit),
                      describe.difference(change, metric.unit), describe.percent(change.relative), describe.interval(change),
                      describe.VERDICTS[change.verdict], style=_style(change, metric.better))
    _show(table)

    quiet = []
    for kind in KINDS:
        changes = comparison.tables[kind.name]
        real = [change for change in changes if change.real]
        if not changes:
            continue
        if not real:
            unknown = all(change.verdict == "unknown" for change in changes)
            quiet.append(f"{kind.title} ({len(changes)}{', noise unknown' if unknown else ''})")
            continue
        table = _new_table(f"{kind.title}: {len(real)} of {len(changes)} changed, {comparison.basis.per}" if kind.unit == "ns"
                           else f"{kind.title}: {len(real)} of {len(changes)} changed")
        for header in ("Change", "", "95% interval", "A", "B", "Calls"):
            table.add_column(header, justify="right", no_wrap=True)
        table.add_column("Name", no_wrap=True, overflow="ellipsis")
        for change in real[:top]:
            table.add_row(describe.difference(change, kind.unit), change.verdict if change.verdict in ("new", "gone") else describe.percent(change.relative),
                          describe.interval(change), describe.figure(change.before, kind.unit), describe.figure(change.after, kind.unit),
                          describe.counts(change), Text(describe.shorten(change.name, 48)), style=_style(change, -1))
        _show(table)
        if len(real) > top:
            print_(f"   … and {len(real) - top} more: --top, --json or -o compare.html")
    if quiet:
        print_("No change beyond noise:")
        for line in textwrap.wrap("; ".join(quiet), _WIDTH - 3):
            print_(f"   {line}")
