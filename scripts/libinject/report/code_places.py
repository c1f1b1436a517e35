# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What launches the kernels: modules, lines of Python, operators."""

from __future__ import annotations

from collections.abc import Callable

from libinject.page.parts import Plot, Section, Table, made_table, numbers
from libinject.page.values import clean, share
from libinject.report.icicles import COLOURS, icicle, module_boxes, stack_boxes
from libinject.report.lines import MEANINGS, place_of
from libinject.result import Result, Row
from libinject.stacks import FILE, read_stacks

PHASES = ("Forward", "Backward", "Recomputation", "Optimizer", "Other")
_MOST_BARS = 12


def _number(row: Row, name: str) -> float:
    """0 if the cell is empty or missing."""
    return float(next(iter(numbers([row], name)), 0))


def _plot(rows: list[Row], name: Callable[[Row], str], time: str, id_: str, title: str, total: float) -> Plot | None:
    """The rows with the most time, split by phase; the phases are those of the total time."""
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


def _table(rows: list[Row], id_: str, title: str, first: tuple[str, ...], on: tuple[str, ...]) -> Table | None:
    """For lines, the first column has the whole place."""
    if not rows:
        return None
    whole = [{**row, "Place": place_of(row)} if first == ("Place",) else row for row in rows]
    columns = tuple(dict.fromkeys((*first, *on, *rows[0])))
    return made_table(id_, title, f"{id_}.csv", columns, [[row.get(column) for column in columns] for row in whole], on=(*first, *on), meanings=MEANINGS)


def section(result: Result) -> Section:
    part = Section("code", "Modules, lines and operators", "What in the program launches the kernels. The backward pass counts towards the code of its forward pass.")
    times = ("Self Time (ns)", "Total Time (ns)", *(f"{phase} (ns)" for phase in PHASES))
    modules = result.rows("module_sum", "Module", "Class", *times)
    lines = result.rows("line_sum", "File", "Line", "Function", "User Code Time (ns)", *times)
    operators = result.rows("op_sum", "Operator", *times)
    total = sum(numbers(operators, "Self Time (ns)"))
    part.add(_plot(modules, lambda row: str(row["Module"]), "Self Time (ns)", "code-modules", "Modules that launch the most", total),
             # Lines of libraries are in the table.
             _plot([row for row in lines if row.get("In Library") == 0], place_of, "User Code Time (ns)", "code-lines",
                   "Lines of the program that launch the most", total),
             icicle(module_boxes(modules), "module-icicle", "Kernel time by module", "module_sum.csv"),
             icicle(stack_boxes(read_stacks(result)), "stack-icicle", "Kernel time by Python stack", FILE))
    phases = tuple(f"{phase} (ns)" for phase in PHASES)
    rates = ("Compute-bound (ns)", "Memory-bound (ns)", "Latency-bound (ns)", "TFLOP/s", "Peak (%)")
    return part.add(_table(modules, "module_sum", "Modules", ("Module",), ("Time (%)", "Class", "Self Time (ns)", "Total Time (ns)", *phases, *rates)),
                    _table(lines, "line_sum", "Lines", ("Place",), ("Time (%)", "User Code Time (ns)", "User Code Copy Time (ns)", "Self Time (ns)", "Total Time (ns)", *phases, *rates)),
                    _table(operators, "op_sum", "Operators", ("Operator",), ("Time (%)", "Self Time (ns)", "Self Instances", "Total Time (ns)", *phases, *rates)))
