# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The report on the terminal."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from libinject import console
from libinject.merge import shown
from libinject.page.parts import Table

_WIDEST = 400
_GAP = 2  # between columns if the width is limited
_EDGES = 2  # of a table
_LONGEST_WORD = 21
# Columns to omit first if not all fit; after these, from the right.
_LEFT_OUT_FIRST = ("StdDev", "Mean", "P95", "Steps", "Coll (%)", "Slowest", "Lost", "Peak (MB)", "GPU Util. (%)", "Made by", "Kernels", "Copies", "Size (MB)",
                   "Memory", "Median GB/s", "Host", "Median", "by rank", "of rank")


def show(report: dict[str, Any], ranks: int) -> None:
    scaling = shown.scaling_table(report)
    for job in report["jobs"]:
        console.print_wrapped(shown.title(job), "", "  ")
        for what, text in shown.lines(job):
            console.print_wrapped(text, f"  {what:<12} ", " " * 15)
        for table in shown.tables(job, ranks, 8):
            _table(table)
        console.out.print()
    if scaling is not None:
        _table(scaling)


def _room() -> int:
    """The width that a table may take. A file or a pipe has no limit."""
    return console.width() if console.out.is_terminal or os.environ.get("COLUMNS", "").isdecimal() else _WIDEST


@dataclasses.dataclass
class _Column:
    name: str
    cells: list[str]
    is_text: bool

    @property
    def widest(self) -> int:
        return max(map(cell_len, (self.name, *self.cells)))

    @property
    def least(self) -> int:
        """The minimum width: numbers are not broken; names and headers may wrap."""
        header = max(map(cell_len, self.name.split()), default=0)
        cells = max((cell_len(part) for cell in self.cells for part in (cell.split() if self.is_text else [cell])), default=0)
        return max(header, min(cells, _LONGEST_WORD) if self.is_text else cells)


def _fitting(columns: list[_Column], room: int) -> list[_Column]:
    """Removes the least important columns until the others fit."""
    shown = list(columns)
    while len(shown) > 2 and sum(column.least for column in shown) + _GAP * (len(shown) - 1) + _EDGES > room:
        last = next((name for name in _LEFT_OUT_FIRST if any(column.name == name for column in shown[1:])), shown[-1].name)
        shown.remove(next(column for column in shown[::-1] if column.name == last))
    return shown


def _widths(columns: list[_Column], room: int) -> list[int]:
    """Distributes the remaining width to text columns, the first one first."""
    widths = [column.least for column in columns]
    spare = max(0, room - sum(widths) - _GAP * (len(columns) - 1) - _EDGES)
    for at, column in enumerate(columns):
        more = min(spare, max(0, column.widest - widths[at])) if column.is_text else 0
        widths[at] += more
        spare -= more
    return widths


def _table(table: Table) -> None:
    import rich.box
    import rich.table

    columns = [_Column(column["name"], [shown.cell_text(row[at], column) for row in table.rows], column["kind"] == "text")
               for at, column in enumerate(table.columns)]
    room = _room()
    fits = sum(column.widest for column in columns) + (_GAP + 1) * (len(columns) - 1) + _EDGES <= room
    kept = columns if fits else _fitting(columns, room)
    drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1) if fits else (0, 1, 0, 0))
    for column, width in zip(kept, [column.widest for column in kept] if fits else _widths(kept, room)):
        header = column.name if fits or column.is_text else "\n".join(textwrap.wrap(column.name, column.least, break_long_words=False, break_on_hyphens=False))
        drawn.add_column(header, justify="left" if column.is_text else "right", overflow="fold", width=width)
    for row in zip(*(column.cells for column in kept)):
        drawn.add_row(*map(Text, row))
    console.print_wrapped(table.title, "  ", "  ")
    width, console.out.width = console.out.width, room
    console.out.print(drawn)
    console.out.width = width
    left_out = [column.name or "marks" for column in columns if column not in kept]
    notes = [table.note] * bool(table.note) + [f"left out: {', '.join(left_out)}; --json and -o have them"] * bool(left_out)
    for note in notes:
        console.print_wrapped(note, "  ", "  ")
    if notes:
        console.out.print()
