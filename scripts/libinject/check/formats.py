# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Individual cells: headers, digits, units and ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator

from libinject.check.folder import Folder, Place, Table, is_others, may_be_negative, number_of
from libinject.check.rules import ERROR, WARNING, rule
from libinject.result import is_number_column, printable

_STATISTICS = "Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
# As Nsight Systems writes them.
HEADERS = {
    "cuda_gpu_kern_sum": f"Time (%),Total Time (ns),Instances,{_STATISTICS},Name",
    "cuda_gpu_kern_gb_sum": f"Time (%),Total Time (ns),Instances,{_STATISTICS},GridXYZ,BlockXYZ,Name",
    "cuda_api_sum": f"Time (%),Total Time (ns),Num Calls,{_STATISTICS},Name",
    "cuda_gpu_mem_time_sum": f"Time (%),Total Time (ns),Count,{_STATISTICS},Operation",
    "cuda_gpu_mem_size_sum": "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation",
    "nvtx_sum": f"Time (%),Total Time (ns),Instances,{_STATISTICS},Style,Range",
    "nvtx_kern_sum": f"NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),{_STATISTICS},Kernel Name",
    "cuda_gpu_trace": "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
                      "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name",
}
_INTEGER = re.compile(r"-?\d+")
_TENTHS = re.compile(r"-?\d+\.\d")
_THOUSANDTHS = re.compile(r"-?\d+\.\d{3}")
# Numbers without a unit that may have decimals.
_RATIOS = {"Cores by Quota", "Cores Used", "Cores Wanted", "FLOP/Byte", "IPC", "± IPC", "Kernel Concurrency", "Samples/s", "Samples/s in Window", "TFLOP/s",
           "Units", "Units in Window", "Units/s", "Units/s in Window", "Units/s of GPU Busy", "Units/s of GPU Busy in Window", "Waves"}
_MEANS = re.compile(r"(Avg|Med|StdDev|Step Time.*) \(ns\)$")


def is_whole(column: str) -> bool:
    """Whether a column of numbers has only integers: times in ns and counts, but not means or ratios."""
    return not _MEANS.search(column) if column.endswith("(ns)") else not column.endswith(")") and column not in _RATIOS


def _numbers(table: Table) -> Iterator[str]:
    """The columns that contain numbers."""
    return (column for column in table.columns if is_number_column(column))


@rule("readable", ERROR, "Each table is CSV in UTF-8, with a header of distinct columns, and as many cells in each row.")
def readable(folder: Folder) -> Iterator[Place]:
    for _ in folder.tables():
        pass
    for problem in folder.unreadable:
        yield Place(problem.path.name, problem.line or 1, "-", problem.why)


@rule("size", WARNING, "No table is too large to check.")
def size(folder: Folder) -> Iterator[Place]:
    for _ in folder.tables():
        pass
    for name in folder.too_large:
        yield Place(name, 1, "-", "too large: nothing in it was looked at")


@rule("header", ERROR, "A table that Nsight Systems also has uses the same header, byte for byte.")
def header(folder: Folder) -> Iterator[Place]:
    for name, expected in HEADERS.items():
        if (table := folder.table(name)) is not None and ",".join(table.columns) != expected:
            theirs = expected.split(",")
            wrong = next((found for found, wanted in zip(table.columns, theirs) if found != wanted), table.columns[-1])
            yield table.place(None, printable(wrong, 40), f"the header is not '{expected}'")


@rule("number", ERROR, "Times in ns and counts are whole numbers, means of times have one decimal, MB have three.")
def number(folder: Folder) -> Iterator[Place]:
    for table in folder.tables():
        for column in _numbers(table):
            if is_whole(column):
                form, means = _INTEGER, "a whole number of ns" if column.endswith("(ns)") else "a whole number"
            elif column.endswith("(ns)"):
                form, means = _TENTHS, "a number with one decimal"
            elif column.endswith("(MB)"):
                form, means = _THOUSANDTHS, "a number with three decimals"
            else:
                form, means = None, "a number"
            for index, cell in enumerate(table.cells(column)):
                if not cell or column == "Window" and is_others(cell):
                    continue
                if number_of(cell) is None or form is not None and not form.fullmatch(cell):
                    yield table.place(index, column, f"'{printable(cell, 40)}' is not {means}")


@rule("negative", ERROR, "No time, count, size or rate is below 0.")
def negative(folder: Folder) -> Iterator[Place]:
    for table in folder.tables():
        for column in _numbers(table):
            if not may_be_negative(column):
                for index, cell in enumerate(table.cells(column)):
                    if cell.startswith("-") and (number_of(cell) or 0) < 0:
                        yield table.place(index, column, f"{cell} is below 0")


# Percentages that may exceed 100: a sum over kernels that run at the same time; copies served by the L2 cache (docs/copies.md); rates,
# which have rules of their own.
_BEYOND = {"Share of a Core (%)", "Workers Computing (%)", "Workers Queued (%)", "FP32 Utilization (%)", "Tensor Utilization (%)", "Link (%)", "Peak (%)", "Roofline (%)"}


@rule("share-range", ERROR, "A percentage is between 0 and 100, except for the few that can exceed 100 by definition.")
def share_range(folder: Folder) -> Iterator[Place]:
    for table in folder.tables():
        for column in table.columns:
            if column.endswith("(%)") and not column.startswith("Profiler Overhead"):
                most = float("inf") if column in _BEYOND or column.startswith("±") else 100
                for index, value in enumerate(table.numbers(column)):
                    if value is not None and not 0 <= value <= most:
                        yield table.place(index, column, f"{table.cells(column)[index]} is not between 0 and 100")


_OVERHEAD = "Profiler Overhead (%)"
_INTERVAL = ("Profiler Overhead Low (%)", "Profiler Overhead High (%)")


@rule("overhead-range", ERROR, "The profiler's overhead is above 0 and within its interval, and is shown if the whole interval is above 0.")
def overhead_range(folder: Folder) -> Iterator[Place]:
    table = folder.table("window_sum", _OVERHEAD)
    if table is None:
        return
    for index, value in enumerate(table.numbers(_OVERHEAD)):
        if value is not None and not 0 <= value <= 100:
            yield table.place(index, _OVERHEAD, f"{value} is not between 0 and 100")
    if not all(table.has(column) for column in _INTERVAL):
        return
    for index, value in enumerate(table.numbers(_OVERHEAD)):
        low, high = (table.numbers(column)[index] for column in _INTERVAL)
        if low is None or high is None:
            if value is not None:
                yield table.place(index, _OVERHEAD, f"{value} without an interval")
        elif not low <= high <= 100:
            yield table.place(index, _INTERVAL[0], f"{low} to {high} is no interval that ends at 100 or below")
        elif value is not None and not low - 0.1 <= value <= high + 0.1:
            yield table.place(index, _OVERHEAD, f"{value} is not between {low} and {high}")
        # Printed values slightly above 0 and slightly below it look alike.
        elif (value is None and low > 0.05) or (value is not None and low < -0.05):
            yield table.place(index, _OVERHEAD, f"{table.cells(_OVERHEAD)[index] or 'empty'}, with an interval from {low} on")

