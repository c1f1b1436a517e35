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

_NARROW = 100  # columns: below that, intervals are left out, which --json and the page have


def _style(change: Change, better: int) -> str:
    if not change.real or not better:
        return ""
    return "green" if (change.difference > 0) == (better > 0) else "red"


def _show(table: Table) -> None:
    rich.console.Console(highlight=False, markup=False, emoji=False, width=console.width()).print(table)


def _wrapped(name: str, room: int) -> str:
    return "\n".join(textwrap.wrap(describe.shorten(name, 3 * room - 8), room, break_on_hyphens=False))


def _narrow() -> bool:
    return console.width() < _NARROW


def _new_table(title: str) -> Table:
    return Table(title=Text(title), title_justify="left", title_style="bold", box=rich.box.SIMPLE_HEAD, pad_edge=False,
                 padding=(0, 1, 0, 0) if _narrow() else (0, 1))


def print_comparison(comparison: Comparison, top: int, outcomes: Sequence[Outcome]) -> None:
    print_ = console.out.print
    for letter, side in (("A", comparison.before), ("B", comparison.after)):
        for run in side:
            console.print_wrapped(describe.run_line(run), f"{letter}: ", "   ")
    for line in describe.differences(comparison.before, comparison.after):
        console.print_wrapped(line, "   ", "     ")
    for line in describe.caveats([*comparison.before, *comparison.after]):
        console.print_wrapped(line, "   ", "     ")
    console.print_wrapped(describe.how_normalised(comparison))
    print_()

    table = _new_table("The runs")
    columns = [("Figure", "left"), ("A", "right"), ("B", "right"), ("Change", "right"), (f"{1 - CERTAIN:.0%} interval", "right"), ("Verdict", "left")]
    shown = [index for index in range(len(columns)) if index != 4 or not _narrow()]
    rows = [(metric.title, describe.figure(change.before, metric.unit), describe.figure(change.after, metric.unit), describe.percent(change.relative),
             describe.interval(change), describe.verdict(change, metric)) for metric, change in comparison.metrics]
    for index in shown:
        # Figures are whole; texts have what they leave.
        header, justify = columns[index]
        figures = justify == "right"
        table.add_column(header, justify=justify, no_wrap=figures, min_width=max(map(len, (header, *(row[index] for row in rows)))) if figures else None)
    for (metric, change), row in zip(comparison.metrics, rows):
        table.add_row(*(Text(row[index]) for index in shown), style=_style(change, metric.better))
    _show(table)

    quiet, few_samples = [], []
    for kind in KINDS:
        changes = comparison.tables[kind.name]
        real = [change for change in changes if change.real]
        if not changes:
            continue
        if not real:
            few = sum(change.verdict == "too few" for change in changes)
            if few == len(changes):
                few_samples.append(f"{kind.title} ({few})")
            else:
                quiet.append(f"{kind.title} ({len(changes)}{f', {few} with too few samples to say' if few else ''})")
            continue
        table = _new_table(f"{kind.title}: {len(real)} of {len(changes)} changed, {comparison.basis.per}" if kind.unit == "ns"
                           else f"{kind.title}: {len(real)} of {len(changes)} changed")
        headers = ("Change", "", "Interval", "A", "B", "Calls")
        rows = [(describe.difference(change, kind.unit), change.verdict if change.verdict in ("new", "gone") else describe.percent(change.relative),
                 describe.interval(change), describe.figure(change.before, kind.unit), describe.figure(change.after, kind.unit),
                 describe.counts(change)) for change in real[:top]]
        if _narrow():
            headers, *rows = (row[:2] + row[3:] for row in (headers, *rows))
        # Figures are whole, and names have what they leave, on some lines.
        widths = [max(map(len, column)) for column in zip(headers, *rows)]
        room = max(20, console.width() - sum(width + 3 for width in widths) - 2)
        for header, width in zip(headers, widths):
            table.add_column(header, justify="right", no_wrap=True, min_width=width)
        table.add_column("Name", no_wrap=True, overflow="ellipsis")
        for change, row in zip(real, rows):
            name = describe.without_signature(change.name) if kind.name == "kernels" else change.name
            table.add_row(*row, Text(_wrapped(name, room)), style=_style(change, -1))
        _show(table)
        if len(real) > top:
            print_(f"   … and {len(real) - top} more: --top, --json or -o compare.html")
    for heading, titles in (("No difference seen:", quiet), ("Too few samples to say:", few_samples)):
        if titles:
            print_(heading)
            console.print_wrapped("; ".join(titles), "   ", "   ")
    print_()
    console.print_wrapped(describe.conclusion(comparison, outcomes))
