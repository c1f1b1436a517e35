# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A comparison as text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import rich.box
import rich.console
from rich.table import Table
from rich.text import Text

from libinject import console
from libinject.compare import describe
from libinject.compare.changes import CERTAIN, Change, Comparison
from libinject.compare.conditions import Outcome
from libinject.compare.measures import KINDS

_WIDTH = 120


def _style(change: Change, better: int) -> str:
    if not change.real or not better:
        return ""
    return "green" if (change.difference > 0) == (better > 0) else "red"


def _width() -> int:
    return max(_WIDTH, console.out.width) if console.out.is_terminal else _WIDTH


def _show(table: Table) -> None:
    rich.console.Console(highlight=False, markup=False, emoji=False, width=_width()).print(table)


def _wrapped(name: str, room: int) -> str:
    return "\n".join(textwrap.wrap(describe.shorten(name, 3 * room - 8), room, break_on_hyphens=False))


def _new_table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", title_style="bold", box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))


def print_comparison(comparison: Comparison, top: int, outcomes: Sequence[Outcome]) -> None:
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
    for header, justify in (("Figure", "left"), ("A", "right"), ("B", "right"), ("Change", "right"), (f"{1 - CERTAIN:.0%} interval", "right"),
                            ("Verdict", "left")):
        table.add_column(header, justify=justify, no_wrap=True)
    for metric, change in comparison.metrics:
        table.add_row(Text(metric.title), describe.figure(change.before, metric.unit), describe.figure(change.after, metric.unit),
                      describe.percent(change.relative), describe.interval(change), describe.verdict(change, metric), style=_style(change, metric.better))
    _show(table)

    quiet = []
    for kind in KINDS:
        changes = comparison.tables[kind.name]
        real = [change for change in changes if change.real]
        if not changes:
            continue
        if not real:
            few = sum(change.verdict == "too few" for change in changes)
            quiet.append(f"{kind.title} ({len(changes)}{f', {few} with too few samples to say' if few else ''})")
            continue
        table = _new_table(f"{kind.title}: {len(real)} of {len(changes)} changed, {comparison.basis.per}" if kind.unit == "ns"
                           else f"{kind.title}: {len(real)} of {len(changes)} changed")
        headers = ("Change", "", "Interval", "A", "B", "Calls")
        rows = [(describe.difference(change, kind.unit), change.verdict if change.verdict in ("new", "gone") else describe.percent(change.relative),
                 describe.interval(change), describe.figure(change.before, kind.unit), describe.figure(change.after, kind.unit),
                 describe.counts(change)) for change in real[:top]]
        # Figures are whole, and names have what they leave, on some lines.
        widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
        room = max(20, _width() - sum(width + 3 for width in widths) - 2)
        for header, width in zip(headers, widths, strict=True):
            table.add_column(header, justify="right", no_wrap=True, min_width=width)
        table.add_column("Name", no_wrap=True, overflow="ellipsis")
        for change, row in zip(real, rows, strict=False):
            name = describe.without_signature(change.name) if kind.name == "kernels" else change.name
            table.add_row(*row, Text(_wrapped(name, room)), style=_style(change, -1))
        _show(table)
        if len(real) > top:
            print_(f"   … and {len(real) - top} more: --top, --json or -o compare.html")
    if quiet:
        print_("No difference seen:")
        for line in textwrap.wrap("; ".join(quiet), _WIDTH - 3):
            print_(f"   {line}")
    print_()
    for line in textwrap.wrap(describe.conclusion(comparison, outcomes), _WIDTH, break_on_hyphens=False):
        print_(line)
