# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The figures of a sweep as a page."""

from __future__ import annotations

import collections
import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from libinject.compare import describe
from libinject.page.parts import Article, Plot, Section, Table, as_column, plain_table
from libinject.page.render import articles_page
from libinject.result import printable
from libinject.sweep.measured import AT_PEAK, Measured
from libinject.sweep.points import Status, Sweep

_MOST_FAMILIES = 9
# Title, unit of the axis, of the table's cells, figure, factor from the figure to the axis.
_LINES = (("Step time", "ns", "step_time_ns"), ("Samples per second", "", "samples_per_s"), ("Units of work per second", "", "units_per_s"), ("GPU utilization (%)", "", "gpu_utilization_pct"),
          ("Occupancy, theoretical (%)", "", "occupancy_pct"), ("Occupancy, achieved (%)", "", "achieved_occupancy_pct"),
          ("GEMM rate (TFLOP/s)", "", "gemm_tflops"), ("Peak of allocated memory (MB)", "", "peak_memory_mb"),
          ("Peak memory in use (MB)", "", "memory_in_use_mb"), ("Peak reserved by PyTorch (MB)", "", "torch_reserved_mb"), ("Activations at the peak (MB)", "", "activations_mb"),
          ("Power (W)", "", "power_w"), ("Energy per sample (J)", "", "joules_per_sample"), ("Energy per unit of work (J)", "", "joules_per_unit"), ("SM clock (MHz)", "", "sm_clock_mhz"),
          ("Processors used", "", "processors"))
_NOTES = {"gpu_utilization_pct": "kernels by device time, of all windows", "occupancy_pct": "mean over the kernels, weighted by their time",
          "gemm_tflops": "calls in gemm_sum.csv, without products inside recurrent layers", "achieved_occupancy_pct": "mean over the windows",
          "memory_in_use_mb": "the highest reading while windows were open, of all processes on a GPU",
          "activations_mb": "the peak of PyTorch's allocator less what stays from one iteration to the next",
          "processors": "by the process and its children, in windows"}
_CELLS = (("Step time", "step_time_ns", "ns"), ("Samples/s", "samples_per_s", ""), ("GPU Util. (%)", "gpu_utilization_pct", "%"),
          ("Occupancy (%)", "occupancy_pct", "%"), ("GEMM TFLOP/s", "gemm_tflops", ""), ("Peak Memory", "peak_memory_mb", "MB"))


def page(sweep: Sweep, measured: Sequence[Measured]) -> str:
    names = [printable(name, 40) for name in sweep.variables]
    first = next(iter(sweep.variables))
    counts = collections.Counter(item.point.status.value for item in measured)
    facts = [("Command", printable(shlex.join(sweep.command), 2000)), ("Points", ", ".join(f"{count} {status}" for status, count in counts.items())),
             *([("Verdicts", _verdicts(measured))] if any(item.verdict for item in measured) else [])]
    points = Section("points", "Points", "A run of the command for each combination of values.", tables=[_table(sweep, measured)])
    lines = _lines(sweep, measured)
    figures = Section("figures", f"Over {names[0]}", f"Step time and samples per second: medians over {_iterations(measured)} of each run. A line is "
                                                     "broken where a run has no figure, and a cross says how the run ended.", side_by_side=True)
    figures.add(*(_line_plot(sweep, lines, *line) for line in _LINES))
    families = Section("families", "Kernel families", "Share of the kernels' time.").add(*_family_plots(lines, first, measured))
    memory = Section("memory", "PyTorch's memory by purpose", "Of the GPU whose allocator had the highest peak.").add(*_memory_plots(lines, first))
    article = Article(f"Sweep over {', '.join(names)}", facts, [part for part in (figures, memory, families, points) if not part.empty],
                      alerts=[problem for item in measured for problem in item.problems])
    return articles_page(article.name, "sweep", [article])


def _iterations(measured: Iterable[Measured]) -> str:
    return "the iterations without the profiler" if any(item.unprofiled for item in measured) else "the complete iterations in windows"


def _verdicts(measured: Iterable[Measured]) -> str:
    counts = collections.Counter(item.verdict for item in measured if item.verdict)
    return ", ".join(f"{verdict} ({count})" for verdict, count in counts.items())


def table_row(sweep: Sweep, item: Measured) -> dict[str, Any]:
    """Texts, which the terminal shows as well."""
    return {"values": [printable(item.point.values[name], 60) for name in sweep.variables], "status": item.point.status.value,
            "why": printable(item.point.why, 200), "good": item.point.status is Status.DONE, "verdict": item.verdict,
            "cells": [(item.figures.get(name), describe.figure(item.figures.get(name), unit)) for _, name, unit in _CELLS]}


def _table(sweep: Sweep, measured: Sequence[Measured]) -> Table:
    rows = []
    for item in measured:
        row = table_row(sweep, item)
        rows.append([*([_sort_key(value), value] for value in row["values"]), [row["status"], row["status"], "" if row["good"] else "bad"],
                     *(None if value is None else [value, text] for value, text in row["cells"]), row["verdict"], row["why"]])
    columns = [*(as_column(printable(name, 40)) for name in sweep.variables), as_column("Status", "text"), *(as_column(name) for name, _, _ in _CELLS),
               as_column("Verdict", "text"), as_column("Why", "text")]
    return plain_table("points", "Points", "sweep.csv", columns, rows, first=64)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _sort_key(value: str) -> float | str:
    number = _number(value)
    return value if number is None else number


def _lines(sweep: Sweep, measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """The first variable is the x axis; each combination of the others is a line, or a plot."""
    first, *others = sweep.variables
    _, order = _axis(sweep)
    found: dict[str, list[Measured]] = {}
    for item in measured:
        found.setdefault(" ".join(f"{printable(name, 40)}={printable(item.point.values[name], 40)}" for name in others), []).append(item)
    for items in found.values():
        items.sort(key=lambda item: order.get(item.point.values[first], math.inf))
    return found


def _axis(sweep: Sweep) -> tuple[dict[str, Any], dict[str, float]]:
    """The first variable's axis, and the places of its values: their own where all are numbers above 0, else one after the other."""
    name, values = next(iter(sweep.variables.items()))
    axis = {"title": printable(name, 40), "ticks": [printable(value, 40) for value in values]}
    numbers = {value: number for value in values if (number := _number(value)) is not None}
    if len(numbers) < len(values) or not 0 < min(numbers.values()) <= max(numbers.values()) < 1e18:
        return axis, {value: float(place) for place, value in enumerate(values)}
    return {**axis, "places": list(numbers.values()), "log": max(numbers.values()) / min(numbers.values()) >= 8}, numbers


def _value(item: Measured, name: str) -> float | None:
    return item.figures.get(name) if item.point.status is Status.DONE else None


def _line_plot(sweep: Sweep, lines: dict[str, list[Measured]], title: str, unit: str, name: str) -> Plot | None:
    if all(item.figures.get(name) is None for items in lines.values() for item in items):
        return None
    first = next(iter(sweep.variables))
    axis, places = _axis(sweep)
    series = []
    for number, (others, items) in enumerate(lines.items()):
        values = [_value(item, name) for item in items]
        x = [places.get(item.point.values[first]) for item in items]
        line = {"name": others or title, "x": x, "y": values, "lines": True, "of": number,
                "labels": [printable(item.point.title, 200) if value is not None else "" for item, value in zip(items, values)]}
        if name == "step_time_ns":
            line["errors"] = [_distances(items, values, quartile) for quartile in ("step_time_q1_ns", "step_time_q3_ns")]
        series.append(line)
        lacking = [item for item in items if item.point.status not in (Status.DONE, Status.WAITING)]
        if lacking:
            series.append({"name": others or title, "cross": True, "of": number, "x": [places.get(item.point.values[first]) for item in lacking],
                           "y": [0.0] * len(lacking), "labels": [printable(item.point.title, 200) for item in lacking],
                           "notes": [f"{item.point.status.value}{f': {printable(item.point.why, 200)}' if item.point.why else ''}" for item in lacking]})
    return Plot(name, title, "points", axis, series, {"title": title[0].lower() + title[1:] if title[1].islower() else title, "unit": unit, "zero": True},
                note=f"median of {_iterations(chain(*lines.values()))}; error bars are quartiles" if name == "step_time_ns" else _NOTES.get(name, ""))


def _distances(items: list[Measured], values: list[float | None], quartile: str) -> list[float | None]:
    """From the value to the quartile, or nothing."""
    return [None if value is None or (other := item.figures.get(quartile)) is None else abs(other - value)
            for item, value in zip(items, values)]


def _family_plots(lines: dict[str, list[Measured]], first: str, measured: Sequence[Measured]) -> Iterable[Plot]:
    # The same families in the same colours in all plots.
    total: collections.Counter[str] = collections.Counter()
    for item in measured:
        total.update(item.families)
    ordered = sorted(total, key=lambda name: (-total[name], name))
    largest, rest = ordered[:_MOST_FAMILIES], ordered[_MOST_FAMILIES:]

    def shares(item: Measured) -> dict[str, float]:
        others = {f"{len(rest)} other families": sum(item.families.get(name, 0.0) for name in rest)} if rest else {}
        return {**{name: item.families.get(name, 0.0) for name in largest}, **others} if item.families else {}

    return _stacks(lines, first, "families", "By family", {"title": "% of the kernels' time", "unit": "", "range": [0, 100]}, shares)


def _memory_plots(lines: dict[str, list[Measured]], first: str) -> Iterable[Plot]:
    def sizes(item: Measured) -> dict[str, float]:
        found = {name: item.figures.get(column) for name, column in AT_PEAK.items()}
        # These are known where all others are that there are.
        return {name: size or 0.0 for name, size in found.items()} if found["activations"] is not None else {}

    return _stacks(lines, first, "memory", "PyTorch's memory at its peak", {"title": "MB", "unit": ""}, sizes)


def _stacks(lines: dict[str, list[Measured]], first: str, id_: str, title: str, axis: dict[str, Any],
            parts: Callable[[Measured], dict[str, float]]) -> Iterable[Plot]:
    """For each line a plot with a bar for each of its points, named by its value of the variable `first`, and made of its `parts`,
    whose names are the same for all; none for a point without any."""
    for others, items in lines.items():
        shown = [(item, found) for item in items if (found := parts(item))]
        if not shown:
            continue
        names = [f"{printable(first, 40)}={printable(item.point.values[first], 40)}" for item, _ in shown]
        yield Plot(id_, f"{title}{f', {others}' if others else ''}", "bars", axis, [
            {"name": part, "names": names, "values": [round(found[part], 3) for _, found in shown]}
            for part in shown[0][1] if any(found[part] for _, found in shown)], stacked=True)
