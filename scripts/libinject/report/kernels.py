# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Kernels: which take the time, their families, and how well they fill the GPU."""

from __future__ import annotations

import itertools
from typing import Any

from libinject.page.parts import Plot, Section, Table, made_table, numbers, table
from libinject.page.values import clean, described
from libinject.result import OTHERS, Result, Row

_MOST_BARS = 15
_FEWEST_CUMULATED = 20  # kernels


def bars(rows: list[Row], name: str, value: str, id_: str, title: str, axis: str, notes: Any, most: int = _MOST_BARS) -> Plot | None:
    """The rows with the largest values, as bars."""
    largest = sorted((row for row in rows if numbers([row], value) and row[value]), key=lambda row: -row[value])[:most]
    if not largest:
        return None
    return Plot(id_, title, "bars", {"title": axis, "unit": "ns"}, [
        {"name": axis, "names": [clean(str(row[name])) for row in largest], "values": [row[value] for row in largest],
         "after": _launch_shapes(largest, name), "notes": [notes(row) for row in largest]}])


def _cumulated(rows: list[Row], part: Section) -> Plot | None:
    """How few kernels take how much of the time. Kernels beyond the table's rows only count in the total."""
    total = sum(numbers(rows, "Total Time (ns)"))
    times = sorted(numbers([row for row in rows if row["Name"] != OTHERS], "Total Time (ns)"), reverse=True)
    if len(times) < _FEWEST_CUMULATED or not total > 0:
        return None
    shares = [100 * time / total for time in itertools.accumulate(times)]
    needed = [(percent, next((place for place, reached in enumerate(shares, 1) if reached >= percent), None)) for percent in (50, 80, 95)]
    part.notes.append(f"Of {len(times):,} kernels " + ", ".join(f"{count:,} take{'s' if count == 1 else ''} {percent}%" for percent, count in needed if count) + " of the time."
                      if needed[0][1] else f"The {len(times):,} kernels with rows take {shares[-1]:.1f}% of the time.")
    # All of the first, then increasingly few.
    places = sorted({min(len(times), round(1.02**step)) for step in range(1000) if 1.02**step <= 1.02 * len(times)} | {len(times)})
    return Plot("kernels-share", "Share of the time that so many kernels take", "points", {"title": "kernels, the longest first", "log": True}, [
        {"name": "share", "x": places, "y": [round(shares[place - 1], 2) for place in places], "lines": True}], {"title": "% of the kernels' time", "zero": True})


def top(result: Result) -> Section:
    part = Section("kernels", "Top kernels", "Which kernels take the GPU's time, over all windows; shares are of the total kernel time.")
    rows = result.rows("cuda_gpu_kern_sum", "Time (%)", "Total Time (ns)", "Instances", "Name")
    part.add(bars(rows, "Name", "Total Time (ns)", "kernels", f"The {min(_MOST_BARS, len(rows))} kernels that take most", "total time",
                  lambda row: described("{Time (%)}% of the kernels' time, {Instances} times", row, grouped=True)))
    part.add(_cumulated(rows, part))
    families = result.rows("family_sum", "Time (%)", "Total Time (ns)", "Instances", "Family")
    part.add(bars(families, "Family", "Total Time (ns)", "families", "Kernels by family", "total time",
                  lambda row: described("{Time (%)}% of the kernels' time, {Instances} kernels", row, grouped=True), 25))
    # In other tables that column has names; here it is a count.
    columns = ("Family", "Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Tensor Cores (%)", "TFLOP/s", "In Library Calls (%)", "Different Kernels", "Min (ns)",
               "Max (ns)", "Tensor Cores Unknown (%)", "FLOPs")
    cells = [[{**row, "Different Kernels": row.get("Kernel Names")}.get(column) for column in columns] for row in families]
    return part.add(table(result, "cuda_gpu_kern_sum", "Kernels", ("Name",)),
                    made_table("family_sum", "Families", "family_sum.csv", columns, cells, on=columns[:9],
                               meanings={"Different Kernels": "Number of distinct kernel names."}) if cells else None)


def _shape(row: Row, names: tuple[str, ...]) -> str:
    return "×".join(str(row.get(name)) for name in names) if row.get(names[0]) is not None else ""


_GRID, _BLOCK = ("GrdX", "GrdY", "GrdZ"), ("BlkX", "BlkY", "BlkZ")
_MEANINGS = {"Grid": "Blocks in x, y and z.", "Block": "Threads per block in x, y and z."}


def _by_shape(rows: list[Row], id_: str, title: str, on: tuple[str, ...]) -> Table | None:
    """Grid and block in one column each; all columns that are not in `on` are shown on request."""
    if not rows:
        return None
    columns = tuple(dict.fromkeys((*on, *(name for name in rows[0] if name not in (*_GRID, *_BLOCK)))))
    whole = ({**row, "Grid": _shape(row, _GRID), "Block": _shape(row, _BLOCK)} for row in rows)
    return made_table(id_, title, f"{id_}.csv", columns, [[row.get(name) for name in columns] for row in whole], on=on, meanings=_MEANINGS)


def _launch_shapes(rows: list[Row], name: str) -> list[str] | None:
    """Labels that distinguish rows with the same name; None if all names are unique."""
    if len({row[name] for row in rows}) == len(rows):
        return None
    return [f"{_shape(row, _GRID)} · {_shape(row, _BLOCK)}" if row.get("GrdX") is not None else "" for row in rows]


def detail(result: Result) -> Section:
    part = Section("detail", "Launch shapes and occupancy", "How each kernel was launched, what limits its theoretical occupancy, how well its "
                   "grid fills the GPU, and the time lost because it does not.")
    rows = result.rows("kernel_detail", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Total Time (ns)", "Lost Time (ns)", "Name")
    if not rows:
        return part
    part.add(bars(rows, "Name", "Lost Time (ns)", "lost-time", "Time lost in grids that do not fill the GPU", "lost time",
                  lambda row: f"grid {_shape(row, _GRID)}, block {_shape(row, _BLOCK)}", 10))
    return part.add(_by_shape(rows, "kernel_detail", "Kernels by launch shape", (
        "Name", "Time (%)", "Total Time (ns)", "Lost Time (ns)", "SM Efficiency (%)", "Waves", "Occupancy (%)", "Limited by", "Instances", "Avg (ns)", "Grid", "Block")))


def measured(result: Result) -> Section:
    part = Section("measured", "Kernels by hardware metrics", "What the GPU's own counters say about each kernel and launch shape; ± is "
                                                              "half of the 95 % interval, and values that were not measured well enough "
                                                              "are left empty.")
    rows = result.rows("kernel_metrics", "Name", "Total Time (ns)", "Unused Time (ns)")
    part.add(bars(rows, "Name", "Unused Time (ns)", "unused", "Time that long kernels leave unused", "unused time",
                  lambda row: described("{Busiest Unit} at {Utilization (%)}%", {"Busiest Unit": "busiest unit", **row}), 10))
    return part.add(_by_shape(rows, "kernel_metrics", "Kernels, measured", (
        "Name", "Total Time (ns)", "Unused Time (ns)", "Busiest Unit", "Utilization (%)", "Bound", "Roofline (%)", "SM Active (%)", "Tensor Pipe (%)", "FMA Pipe (%)",
        "DRAM Read (%)", "DRAM Write (%)", "L2 (%)", "Occupancy (%)", "Grid", "Block", "Instances", "Reliable")))
