# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Kernels: which take the time, their families, and how well they fill the GPU."""

from __future__ import annotations

from typing import Any

from libinject.page.parts import Plot, Section, made_table, numbers, table
from libinject.page.values import clean, described
from libinject.result import Cell, Result, Row

_MOST_BARS = 15


def bars(rows: list[Row], name: str, value: str, id_: str, title: str, axis: str, notes: Any, most: int = _MOST_BARS) -> Plot | None:
    """The rows with the largest values, as bars."""
    largest = sorted((row for row in rows if numbers([row], value) and row[value]), key=lambda row: -row[value])[:most]
    if not largest:
        return None
    return Plot(id_, title, "bars", {"title": axis, "unit": "ns"}, [
        {"name": axis, "names": [clean(str(row[name])) for row in largest], "values": [row[value] for row in largest],
         "notes": [notes(row) for row in largest]}])


def top(result: Result) -> Section:
    part = Section("kernels", "Top kernels", "Which kernels take the GPU's time, over all windows; shares are of the total kernel time.")
    rows = result.rows("cuda_gpu_kern_sum", "Time (%)", "Total Time (ns)", "Instances", "Name")
    part.add(bars(rows, "Name", "Total Time (ns)", "kernels", f"The {min(_MOST_BARS, len(rows))} kernels that take most", "total time",
                  lambda row: described("{Time (%)}% of the kernels' time, {Instances} times", row, grouped=True)))
    families = result.rows("family_sum", "Time (%)", "Total Time (ns)", "Instances", "Family")
    part.add(bars(families, "Family", "Total Time (ns)", "families", "Kernels by family", "total time",
                  lambda row: described("{Time (%)}% of the kernels' time, {Instances} kernels", row, grouped=True), 25))
    # Elsewhere that column has names; here it counts them.
    columns = ("Family", "Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Min (ns)", "Max (ns)", "Different Kernels",
               "In Library Calls (%)", "Tensor Cores (%)", "Tensor Cores Unknown (%)", "FLOPs", "TFLOP/s")
    cells = [[{**row, "Different Kernels": row.get("Kernel Names")}.get(column) for column in columns] for row in families]
    return part.add(table(result, "cuda_gpu_kern_sum", "Kernels", ("Name",)),
                    made_table("family_sum", "Families", "family_sum.csv", columns, cells) if cells else None)


def _shape(row: Row, names: tuple[str, ...]) -> str:
    return "×".join(str(row.get(name)) for name in names) if row.get(names[0]) is not None else ""


def detail(result: Result) -> Section:
    part = Section("detail", "Launch shapes and occupancy", "How each kernel was launched, what limits its theoretical occupancy, how well its "
                   "grid fills the GPU, and the time lost because it does not.")
    rows = result.rows("kernel_detail", "GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ", "Total Time (ns)", "Lost Time (ns)", "Name")
    if not rows:
        return part
    part.add(bars(rows, "Name", "Lost Time (ns)", "lost-time", "Time lost in grids that do not fill the GPU", "lost time",
                  lambda row: f"grid {_shape(row, ('GrdX', 'GrdY', 'GrdZ'))}, block {_shape(row, ('BlkX', 'BlkY', 'BlkZ'))}", 10))
    names = [name for name in ("Name", "Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Device", "Grid", "Block", "Reg/Trd",
                               "StcSMem (B)", "DymSMem (B)", "Occupancy (%)", "Limited by", "Waves", "SM Efficiency (%)", "Tensor Cores",
                               "Lost Time (ns)")]
    cells: list[list[Cell]] = []
    for row in rows:
        whole = {**row, "Grid": _shape(row, ("GrdX", "GrdY", "GrdZ")), "Block": _shape(row, ("BlkX", "BlkY", "BlkZ"))}
        cells.append([whole.get(name) for name in names])
    return part.add(made_table("kernel_detail", "Kernels by launch shape", "kernel_detail.csv", names, cells))


def measured(result: Result) -> Section:
    part = Section("measured", "Kernels by hardware metrics", "What the GPU's own counters say about each kernel and launch shape; ± is "
                                                              "half of the 95 % interval, and values that were not measured well enough "
                                                              "are left empty.")
    rows = result.rows("kernel_metrics", "Name", "Total Time (ns)", "Unused Time (ns)")
    part.add(bars(rows, "Name", "Unused Time (ns)", "unused", "Time that long kernels leave unused", "unused time",
                  lambda row: described("{Busiest Unit} at {Utilization (%)}%", {"Busiest Unit": "busiest unit", **row}), 10))
    return part.add(table(result, "kernel_metrics", "Kernels, measured", ("Name", "Total Time (ns)", "Instances", "Samples", "Reliable")))
