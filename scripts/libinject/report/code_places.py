# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What launches the kernels: modules, lines of Python, operators."""

from __future__ import annotations

from collections.abc import Callable

from libinject.page.parts import Plot, Section, Table, made_table, numbers
from libinject.page.values import clean, share
from libinject.report.icicles import COLOURS, icicle, module_boxes, stack_boxes
from libinject.result import Result, Row
from libinject.stacks import FILE, read_stacks

PHASES = ("Forward", "Backward", "Recomputation", "Optimizer", "Other")
_MOST_BARS = 12


def _place(row: Row) -> str:
    """As tracebacks have it, with the file's own name."""
    file = str(row.get("File") or "")
    return f"{file.rpartition('/')[2]}:{row['Line']} {row['Function']}" if file else str(row["Function"])


def _number(row: Row, name: str) -> float:
    """0 where there is none."""
    return float(next(iter(numbers([row], name)), 0))


def _plot(rows: list[Row], name: Callable[[Row], str], time: str, id_: str, title: str, total: float) -> Plot | None:
    """The rows that take the longest, each by phase: its phases are those of the total time."""
    shown = sorted((row for row in rows if _number(row, time) > 0), key=lambda row: -_number(row, time))[:_MOST_BARS]
    if not shown:
        return None
    names = [clean(name(row)) for row in shown]
    series = []
    for phase in PHASES:
        values = [_number(row, time) * _number(row, f"{phase} (ns)") / max(_number(row, "Total Time (ns)"), 1) for row in shown]
        if any(values):
            series.append({"name": phase.lower(), "names": names, "values": values, "colours": [COLOURS[phase.lower()]] * len(shown),
                           "notes": [f"{share(_number(row, time), total)}% of the kernels' time" for row in shown]})
    return Plot(id_, title, "bars", {"title": "kernel time", "unit": "ns"}, series, stacked=True) if series else None


def _table(rows: list[Row], id_: str, title: str, columns: tuple[str, ...]) -> Table | None:
    if not rows:
        return None
    made = made_table(id_, title, f"{id_}.csv", columns, [[row.get(column) for column in columns] for row in rows])
    # A line's number is no quantity: 1779, not 1,779.
    for at, column in enumerate(made.columns):
        if column["name"] == "Line":
            column["kind"] = "text"
            for cells in made.rows:
                cells[at] = "" if cells[at] is None else str(cells[at])
    return made


def section(result: Result) -> Section:
    part = Section("code", "Modules, lines and operators", "What in the program launches the kernels: in the backward pass, what its forward pass did.")
    times = ("Self Time (ns)", "Total Time (ns)", *(f"{phase} (ns)" for phase in PHASES))
    modules = result.rows("module_sum", "Module", "Class", *times)
    lines = result.rows("line_sum", "File", "Line", "Function", "User Code Time (ns)", *times)
    operators = result.rows("op_sum", "Operator", *times)
    total = sum(numbers(operators, "Self Time (ns)"))
    part.add(_plot(modules, lambda row: str(row["Module"]), "Self Time (ns)", "code-modules", "Modules that launch the most", total),
             # Lines of libraries are in the table.
             _plot([row for row in lines if row.get("In Library") == 0], _place, "User Code Time (ns)", "code-lines",
                   "Lines of the program that launch the most", total),
             icicle(module_boxes(modules), "module-icicle", "Kernel time by module", "module_sum.csv"),
             icicle(stack_boxes(read_stacks(result)), "stack-icicle", "Kernel time by Python stack", FILE))
    counts = ("Self Time (ns)", "Self Instances", "Total Time (ns)", "Total Instances")
    phases = tuple(f"{phase} (ns)" for phase in PHASES)
    return part.add(_table(modules, "module_sum", "Modules", ("Module", "Time (%)", "Class", "Parent", *counts, *phases)),
                    _table(lines, "line_sum", "Lines", ("Function", "Time (%)", "User Code Time (ns)", "File", "Line", *counts, *phases, "In Library")),
                    _table(operators, "op_sum", "Operators", ("Operator", "Time (%)", *counts, *phases)))
