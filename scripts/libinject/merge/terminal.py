# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The report on the terminal."""

from __future__ import annotations

from typing import Any

from libinject import console
from libinject.merge import shown
from libinject.page.parts import Table

_WIDEST = 400


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


def _table(table: Table) -> None:
    import rich.box
    import rich.table

    drawn = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        drawn.add_column(column["name"], justify="left" if column["kind"] == "text" else "right", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*(shown.cell_text(cell, column) for cell, column in zip(row, table.columns, strict=True)))
    console.print_wrapped(table.title, "  ", "  ")
    # At full width: what a narrow terminal wraps can still be read, what is cut off cannot.
    width, console.out.width = console.out.width, _WIDEST
    console.out.print(drawn)
    console.out.width = width
    if table.note:
        console.print_wrapped(table.note, "  ", "  ")
        console.out.print()
