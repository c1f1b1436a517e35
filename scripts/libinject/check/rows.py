# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Consistency of the cells in a row, and of the rows in a table."""

from __future__ import annotations

import collections
import math
from collections.abc import Iterator

from libinject.check.folder import Folder, Place, Table, named
from libinject.check.rules import ERROR, rule

APART = 0.063  # medians are exact up to 1,024 values; beyond that, within this relative error for any values
# The total, the count, and the form of the columns with mean, median, minimum, maximum and deviation.
_SUMS = {
    "cuda_gpu_kern_sum": ("Total Time (ns)", "Instances", "{} (ns)"),
    "cuda_gpu_kern_gb_sum": ("Total Time (ns)", "Instances", "{} (ns)"),
    "cuda_api_sum": ("Total Time (ns)", "Num Calls", "{} (ns)"),
    "cuda_gpu_mem_time_sum": ("Total Time (ns)", "Count", "{} (ns)"),
    "cuda_gpu_mem_size_sum": ("Total (MB)", "Count", "{} (MB)"),
    "nvtx_sum": ("Total Time (ns)", "Instances", "{} (ns)"),
    "nvtx_kern_sum": ("Total Time (ns)", "Kern Inst", "{} (ns)"),
    "thread_kern_sum": ("Total Time (ns)", "Instances", "{} (ns)"),
    "kernel_detail": ("Total Time (ns)", "Instances", "{} (ns)"),
    "family_sum": ("Total Time (ns)", "Instances", "{} (ns)"),
}
SHAPES = ("gemm_sum", "conv_sum", "attention_sum", "rnn_sum", "norm_sum", "nccl_sum")


def _column(table: Table, form: str, statistic: str) -> str | None:
    name = form.format(statistic)
    return name if table.has(name) else None


def _summed(folder: Folder) -> Iterator[tuple[Table, str, str, str]]:
    for name, (total, count, form) in _SUMS.items():
        if (table := folder.table(name, total, count)) is not None:
            yield table, total, count, form


def executed(table: Table, index: int) -> int:
    """Calls whose work was executed: calls captured into a graph are executed by the graph's launches (docs/graphs.md)."""
    calls, captured, replayed = (int(table.numbers(column)[index] or 0) if table.has(column) else 0
                                 for column in ("Calls", "Captured Calls", "Replayed Calls"))
    return calls - captured + replayed


def is_derived(table: Table, index: int) -> bool:
    """Whether the row is of products within other calls, which have rows of their own (docs/gemm.md)."""
    return table.has("Derived") and table.cells("Derived")[index] != ""


@rule("order", ERROR, "The median and the mean are between the minimum and the maximum.")
def order(folder: Folder) -> Iterator[Place]:
    forms = {name: form for name, (_, _, form) in _SUMS.items()} | dict.fromkeys(SHAPES, "GPU {} (ns)") | {"library_sum": "Host {} (ns)"}
    for name, form in forms.items():
        least, greatest = form.format("Min"), form.format("Max")
        if (table := folder.table(name, least, greatest)) is None:
            continue
        for index, (low, high) in table.each(least, greatest):
            if low > high:
                yield table.place(index, least, f"{low} is above the greatest, {high}")
        for statistic in ("Avg", "Med"):
            if (column := _column(table, form, statistic)) is not None:
                for index, (low, value, high) in table.each(least, column, greatest):
                    slack = table.half(index, column) + (APART * value if statistic == "Med" else 1e-9 * value)
                    if low <= high and not low - slack <= value <= high + slack:
                        yield table.place(index, column, f"{value} is not between {low} and {high}")


@rule("average", ERROR, "A mean is the total divided by the count.")
def average(folder: Folder) -> Iterator[Place]:
    rows = [(table, total, count, _column(table, form, "Avg")) for table, total, count, form in _summed(folder)]
    for name, total, count, mean in (("copy_sum", "Total Time (ns)", "Count", "Avg (ns)"), ("copy_sum", "Total (MB)", "Count", "Avg (MB)")):
        if (table := folder.table(name)) is not None:
            rows.append((table, total, count, mean))
    for table, total, count, column in rows:
        for index, (summed, number, value) in table.each(total, count, column) if column else ():
            slack = table.half(index, column) * number + table.half(index, total) * (1 if total.endswith("(MB)") else 0) + 1e-9 * summed
            if abs(value * number - summed) > slack:
                yield table.place(index, column,
                                  f"{value} is not {summed} / {number}" + (f", which is {summed / number:.3f}" if number else ""))
    if (table := folder.table("library_sum")) is not None:
        for index, (number, summed, value) in table.each("Calls", "Host Time (ns)", "Host Avg (ns)"):
            if abs(value * number - summed) > table.half(index, "Host Avg (ns)") * number + 1e-9 * summed:
                yield table.place(index, "Host Avg (ns)", f"{value} is not {summed} / {number}")
    # The average only covers calls that launched kernels.
    for name in SHAPES:
        if (table := folder.table(name, "Calls")) is not None and not folder.lost():
            for index, (summed, value) in table.each("GPU Time (ns)", "GPU Avg (ns)"):
                number = executed(table, index)
                if table.numbers("Calls")[index] and summed > (value + table.half(index, "GPU Avg (ns)")) * number * (1 + 1e-9):
                    yield table.place(index, "GPU Avg (ns)", f"{value} of {number} calls is less than the time of all, {summed}")


@rule("total", ERROR, "A total is possible for the number of values, their minimum and their maximum.")
def total(folder: Folder) -> Iterator[Place]:
    for table, column, count, form in _summed(folder):
        least, greatest = form.format("Min"), form.format("Max")
        for index, (summed, number, low, high) in table.each(column, count, least, greatest):
            slack = (number + 2) * table.half(index, least) if column.endswith("(MB)") else 0
            if number and low <= high and not low * (number - 1) + high - slack <= summed <= low + high * (number - 1) + slack:
                yield table.place(index, column, f"{summed} is no sum of {number} values from {low} to {high}")


@rule("deviation", ERROR, "A standard deviation is 0 for a single value, and possible for the minimum and the maximum.")
def deviation(folder: Folder) -> Iterator[Place]:
    for table, _, count, form in _summed(folder):
        column = form.format("StdDev")
        for index, (value, number, low, high) in table.each(column, count, form.format("Min"), form.format("Max")):
            slack = table.half(index, column) + 1e-6 * value + (2 * table.half(index, form.format("Min")) if form.endswith("(MB)") else 0)
            if number < 2:
                if value != 0:
                    yield table.place(index, column, f"{value} of {number} value")
            elif low <= high:
                most = (high - low) / 2 * math.sqrt(number / (number - 1))
                fewest = (high - low) / math.sqrt(2 * (number - 1))
                if not fewest - slack <= value <= most + slack:
                    yield table.place(index, column,
                                      f"{value} of {number} values from {low} to {high}, where it is {fewest:.1f} to {most:.1f}")


# Percentages, and the column of which they are shares; the total is over all listed rows that agree in the last columns.
_SHARES = [(name, "Time (%)", "Total Time (ns)", ()) for name in
           ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum", "nvtx_sum", "family_sum", "kernel_detail",
            "thread_kern_sum")]
_SHARES += [(name, "GPU Time (%)", "GPU Time (ns)", ()) for name in ("library_sum", *SHAPES)]
_SHARES += [("phase_sum", "Kernel Time (%)", "Kernel Time (ns)", ("Window", "Device"))]


@rule("share", ERROR, "A share is the row's part of the total of the listed rows.")
def share(folder: Folder) -> Iterator[Place]:
    for name, column, part, alike in _SHARES:
        if (table := folder.table(name, column, part, *alike)) is None:
            continue
        keys = list(zip(*(table.cells(key) for key in alike))) if alike else [()] * len(table)
        totals: dict[tuple, float] = collections.defaultdict(int)
        for index, (value,) in table.each(part):
            totals[keys[index]] += value
        for index, (value, mine) in table.each(column, part):
            whole = totals[keys[index]]
            expected = 100 * mine / whole if whole else 0.0
            if abs(value - expected) > table.half(index, column) + 1e-6:
                yield table.place(index, column, f"{value} is not {mine} of {whole}, which is {expected:.2f} %")
    for part, column in (("Small Copies", "Small Copies (%)"), ("Synchronizing", "Synchronizing (%)")):
        if (table := folder.table("copy_sum")) is not None:
            for index, (mine, whole, value) in table.each(part, "Count", column):
                if mine > whole or abs(value - 100 * mine / max(whole, 1)) > table.half(index, column) + 1e-6:
                    yield table.place(index, column, f"{value} is not {mine} of {whole}")


_KEYS = {
    "cuda_gpu_kern_sum": ("Name",), "cuda_gpu_kern_gb_sum": ("GridXYZ", "BlockXYZ", "Name"), "cuda_api_sum": ("Name",),
    "cuda_gpu_mem_time_sum": ("Operation",), "cuda_gpu_mem_size_sum": ("Operation",), "nvtx_sum": ("Style", "Range"),
    "nvtx_kern_sum": ("NVTX Range", "Style", "PID", "TID", "Kernel Name"), "family_sum": ("Family",), "phase_sum": ("Window", "Device", "Phase"),
    "library_sum": ("Depth", "Library", "Call"), "window_sum": ("Window", "Device"), "memory_sum": ("Device", "Kind", "API"),
    "copy_sum": ("Device", "Direction", "Source", "Target"), "op_sum": ("Operator",), "module_sum": ("Module",),
    "host_sum": ("Window", "Role"), "memory_purpose": ("Device", "Purpose"), "line_sum": ("File", "Line", "Function"), "gap_line_sum": ("File", "Line", "Function"),
    "energy_sum": ("Window", "Of", "Start (ns)", "Device"), "memory_timeline": ("Device", "Of", "Start (ns)"),
}


@rule("distinct", ERROR, "No two rows of a table have the same key.")
def distinct(folder: Folder) -> Iterator[Place]:
    for name, columns in _KEYS.items():
        if (table := folder.table(name, *columns)) is not None:
            first: dict[tuple, int] = {}
            for index, key in enumerate(zip(*(table.cells(column) for column in columns))):
                if key in first:
                    yield table.place(index, columns[-1], f"{named(', '.join(key))} has row {table.lines[first[key]]} as well")
                first.setdefault(key, index)


# The column that marks totals, and its cell in rows that are sums of others.
_TOTALS = {"window_sum": ("Device", "all"), "iteration_sum": ("Device", "all"), "memory_sum": ("API", "[all]"), "host_sum": ("Role", "process"),
           "memory_purpose": ("Purpose", "[all]")}


@rule("total-mark", ERROR, "Rows that are sums of others are marked, and no others are.")
def total_mark(folder: Folder) -> Iterator[Place]:
    for name, (column, word) in _TOTALS.items():
        if (table := folder.table(name, column, "Total")) is not None:
            for index, (cell, mark) in enumerate(zip(table.cells(column), table.cells("Total"))):
                if mark != (expected := "yes" if cell == word else "no"):
                    yield table.place(index, "Total", f"{named(mark)} of {column} {named(cell)}, where it is {expected}")


def _rates_of_families(folder: Folder) -> Iterator[Place]:
    """A family's rate is the mean of its calls' rates."""
    families = folder.table("family_sum")
    tables = [table for name in SHAPES[:4] if (table := folder.table(name, "TFLOP/s")) is not None]
    if families is None or len(tables) < 4:
        return
    most = max((value for table in tables for _, (value,) in table.each("TFLOP/s")), default=0)
    for index, (value,) in families.each("TFLOP/s"):
        if value > most + 2 * families.half(index, "TFLOP/s"):
            yield families.place(index, "TFLOP/s", f"{value}, where no call has more than {most}")


@rule("rate", ERROR, "A rate is the work divided by the time: FLOPs, bytes, samples.")
def rate(folder: Folder) -> Iterator[Place]:
    for name in ("window_sum", "iteration_sum"):
        if (table := folder.table(name)) is not None:
            # Where the host ran ahead, an iteration's rate uses its step time, and can't be checked without it.
            if name == "iteration_sum" and not table.has("Step Time (ns)"):
                continue
            steps = dict(table.each("Step Time (ns)")) if name == "iteration_sum" else {}
            for index, (flops, duration, value) in table.each("FLOPs", "Duration (ns)", "TFLOP/s"):
                # Older versions divided by the duration even where the host ran ahead.
                times = [time for time in {duration, *steps.get(index, ())} if time]
                slack = table.half(index, "TFLOP/s") * 1.01 + 1e-6 * value
                if times and all(abs(value - flops / time / 1e3) > slack for time in times):
                    yield table.place(index, "TFLOP/s", f"{value} is not {flops} in {times[0]} ns, which is {flops / times[0] / 1e3:.3f}")
    yield from _rates_of_families(folder)
    for name in SHAPES:
        if (table := folder.table(name, "Calls")) is not None:
            # Some of the calls may have no kernels.
            for index, (flops, time, value) in table.each("FLOPs", "GPU Time (ns)", "TFLOP/s"):
                most = flops * executed(table, index) / time / 1e3 if time else 0
                if value > most + table.half(index, "TFLOP/s") * 1.01 + 1e-6 * value:
                    yield table.place(index, "TFLOP/s",
                                      f"{value} is more than {executed(table, index)} calls of {flops} FLOPs in {time} ns")
            for index, (size, time, value) in table.each("Bytes", "GPU Time (ns)", "Algorithm BW (GB/s)"):
                most = size * executed(table, index) / time if time else 0
                if value > most + table.half(index, "Algorithm BW (GB/s)") * 1.01 + 1e-6 * value:
                    yield table.place(index, "Algorithm BW (GB/s)",
                                      f"{value} is more than {executed(table, index)} calls of {size} bytes in {time} ns")
    if (table := folder.table("copy_sum")) is not None:
        for index, (size, time, value) in table.each("Total (MB)", "Total Time (ns)", "Throughput (GB/s)"):
            step = table.half(index, "Total (MB)") * 1e6
            if time and abs(value - size * 1e6 / time) > step / time + table.half(index, "Throughput (GB/s)") * 1.01 + 1e-6 * value:
                yield table.place(index, "Throughput (GB/s)", f"{value} is not {size} MB in {time} ns")
        for index, (value, link, of_link) in table.each("Throughput (GB/s)", "Link (GB/s)", "Link (%)"):
            slack = 100 * (table.half(index, "Throughput (GB/s)") + 0.0005 * value / link) / link if link else 0
            if link and abs(of_link - 100 * value / link) > slack + table.half(index, "Link (%)") * 1.01:
                yield table.place(index, "Link (%)", f"{of_link} is not {value} of {link} GB/s")


_BUS = {"AllReduce": lambda ranks: 2 * (ranks - 1) / ranks, "AllGather": lambda ranks: (ranks - 1) / ranks,
        "ReduceScatter": lambda ranks: (ranks - 1) / ranks, "AllToAll": lambda ranks: (ranks - 1) / ranks,
        "Gather": lambda ranks: (ranks - 1) / ranks, "Scatter": lambda ranks: (ranks - 1) / ranks,
        "Broadcast": lambda ranks: 1, "Reduce": lambda ranks: 1, "Send": lambda ranks: 1, "Recv": lambda ranks: 1, "SendRecv": lambda ranks: 1}


@rule("bus-bandwidth", ERROR, "The bus bandwidth of a collective is the algorithm bandwidth times the factor for its operation and ranks.")
def bus_bandwidth(folder: Folder) -> Iterator[Place]:
    if (table := folder.table("nccl_sum", "Operation")) is not None:
        operations = table.cells("Operation")
        for index, (ranks, algorithm, bus) in table.each("Ranks", "Algorithm BW (GB/s)", "Bus BW (GB/s)"):
            if operations[index] in _BUS and ranks > 0:
                factor = _BUS[operations[index]](ranks)
                slack = factor * table.half(index, "Algorithm BW (GB/s)") + table.half(index, "Bus BW (GB/s)") * 1.01
                if abs(bus - factor * algorithm) > slack + 1e-6 * bus:
                    yield table.place(index, "Bus BW (GB/s)",
                                      f"{bus} is not {factor:.3f} · {algorithm}, as of {operations[index]} of {ranks} ranks")


@rule("call-counts", ERROR, "A row has no more captured calls than calls, and its time including nested calls is not less than its own.")
def call_counts(folder: Folder) -> Iterator[Place]:
    for name in SHAPES:
        if (table := folder.table(name)) is not None:
            for index, (calls, captured) in table.each("Calls", "Captured Calls"):
                if captured > calls:
                    yield table.place(index, "Captured Calls", f"{captured} of {calls} calls")
    if (table := folder.table("library_sum")) is not None:
        for mine, nested in (("Kernels", "Kernels incl. Nested"), ("GPU Time (ns)", "GPU Time incl. Nested (ns)")):
            for index, (own, both) in table.each(mine, nested):
                if own > both:
                    yield table.place(index, nested, f"{both} is less than the call's own, {own}")


@rule("memory", ERROR, "Live bytes do not exceed the peak, a device's rows add up to its [all], and memory in use fits the device.")
def memory(folder: Folder) -> Iterator[Place]:
    table = folder.table("memory_sum", "Device", "Kind", "API")
    if table is None:
        return
    for lesser, greater in (("Live (MB)", "Peak (MB)"), ("Peak (MB)", "Allocated (MB)"), ("Largest (MB)", "Allocated (MB)"),
                            ("Largest Failed (MB)", "Failed Size (MB)"), ("Last Failed (MB)", "Largest Failed (MB)"), ("Frees", "Allocations")):
        for index, (low, high) in table.each(lesser, greater):
            if low > high:
                yield table.place(index, lesser, f"{low} is more than {greater}, {high}")
    windows = folder.table("window_sum", "Device")
    for column in ("Memory at Start (MB)", "Memory at End (MB)") if windows is not None else ():
        for index, (used,) in windows.each(column):
            most = folder.device(windows.cells("Device")[index]).get("memory_bytes")
            if most is not None and used > most / 1e6:
                yield windows.place(index, column, f"{used}, the device has {most / 1e6:.3f}")
    devices, apis = table.cells("Device"), table.cells("API")
    parts_of = {device: [row for row in rows if apis[row] != "[all]"] for device, rows in table.rows_by("Device").items()}
    for column in ("Allocations", "Frees", "Allocated (MB)", "Live (MB)", "Failed", "Failed Size (MB)"):
        if not table.has(column):
            continue
        for index, api in enumerate(apis):
            if api == "[all]":
                rows = parts_of[devices[index]]
                both, parts = table.numbers(column)[index], table.sum(column, rows)
                if both is not None and abs(both - parts) > (0.0005 * (len(rows) + 1.01) if column.endswith("(MB)") else 0):
                    yield table.place(index, column, f"{both} of all, {parts} in its rows")


@rule("memory-timeline", ERROR, "Lowest and highest are in that order, the highest within its row, rows follow each other, the most that was allocated is the peak, and PyTorch allocates no more than it has reserved; unless some are counted as lost, each device that allocated has rows, up to one moment.",
      compares=True)
def memory_timeline(folder: Folder) -> Iterator[Place]:
    table = folder.table("memory_timeline", "Device", "Of", "Start (ns)", "Duration (ns)", "Lowest (MB)", "Highest (MB)", "Highest at (ns)")
    if table is None:
        return
    for index, (low, high) in table.each("Lowest (MB)", "Highest (MB)"):
        if low > high:
            yield table.place(index, "Lowest (MB)", f"{low} is more than the highest, {high}")
    for index, (start, duration, reached) in table.each("Start (ns)", "Duration (ns)", "Highest at (ns)"):
        if not start <= reached <= start + duration:
            yield table.place(index, "Highest at (ns)", f"{reached} is not within {duration} from {start} on")
    devices, kinds = table.cells("Device"), table.cells("Of")
    latest: dict[tuple[str, str], tuple[int, int]] = {}
    highest: dict[str, tuple[float, float, int]] = {}
    of_torch: dict[tuple[str, str], tuple[float, int]] = {}
    for index, (start, duration, high, reached) in table.each("Start (ns)", "Duration (ns)", "Highest (MB)", "Highest at (ns)"):
        key = devices[index], kinds[index]
        end, before = latest.get(key, (start, index))
        # There is time between readings.
        if start < end or (start > end and kinds[index] != "in use" and before == index - 1):
            yield table.place(index, "Start (ns)", f"{start}, where the row before ends at {end}")
        latest[key] = start + duration, index
        if kinds[index] == "allocated" and high > highest.get(devices[index], (-1.0,))[0]:
            highest[devices[index]] = high, reached, index
        if kinds[index].startswith("PyTorch ") and high > of_torch.get(key, (-1.0,))[0]:
            of_torch[key] = high, index
        most = folder.device(devices[index]).get("memory_bytes") if kinds[index] == "in use" else None
        if most is not None and high > most / 1e6:
            yield table.place(index, "Highest (MB)", f"{high}, the device has {most / 1e6:.3f}")
    for (device, kind), (high, index) in of_torch.items():
        if kind == "PyTorch allocated" and high > of_torch.get((device, "PyTorch reserved"), (high, 0))[0]:
            yield table.place(index, "Highest (MB)", f"{high}, more than was reserved")
    ends = {device: end for (device, kind), (end, _) in latest.items() if kind == "allocated"}
    for device, end in ends.items():
        if end != max(ends.values()):
            yield table.place(latest[device, "allocated"][1], "Duration (ns)", f"ends at {end}, those of another device at {max(ends.values())}")
    peaks = folder.table("memory_sum", "Device", "API", "Peak (MB)", "Peak at (ns)")
    for index, (peak, reached) in peaks.each("Peak (MB)", "Peak at (ns)") if peaks is not None else ():
        device = peaks.cells("Device")[index]
        if peaks.cells("API")[index] != "[all]":
            continue
        if device not in highest:
            if peak > 0 and not folder.lost("memory_lines"):
                yield peaks.place(index, "Peak (MB)", f"{peak}, and {table.path.name} has no row of what was allocated there")
            continue
        high, time, row = highest[device]
        if high != peak:
            yield table.place(row, "Highest (MB)", f"{high} at most, where the peak is {peak}")
        # Maxima that differ by less than the printed precision can't be distinguished.
        elif time > reached:
            yield table.place(row, "Highest at (ns)", f"{time}, where the peak is at {reached}")


@rule("energy", ERROR, "An energy's error is at most a third of it, power is energy divided by time, and a window's parts use no more than the window.")
def energy(folder: Folder) -> Iterator[Place]:
    table = folder.table("energy_sum", "Window", "Of", "Device")
    if table is None:
        return
    for column in ("Energy (J)", "Idle Energy (J)"):
        for index, (value, error) in table.each(column, f"± {column}"):
            if 3 * error > value + 4 * table.half(index, column):
                yield table.place(index, f"± {column}", f"{error} is more than a third of {value}")
    for index, (value, time, power) in table.each("Energy (J)", "Duration (ns)", "Power (W)"):
        slack = table.half(index, "Power (W)") * 1.01 + table.half(index, "Energy (J)") / max(time, 1) * 1e9
        if not time or abs(power - value / time * 1e9) > slack:
            yield table.place(index, "Power (W)", f"{power} is not {value} J in {time} ns")
    kinds, devices, windows = table.cells("Of"), table.cells("Device"), table.cells("Window")
    whole: dict[tuple, tuple[int, float]] = {}
    parts: dict[tuple, float] = collections.defaultdict(float)
    for index, (value, error) in table.each("Energy (J)", "± Energy (J)"):
        key = windows[index], devices[index]
        if kinds[index] == "window":
            whole[key] = index, value + error
        else:
            parts[key] += value - error
    for key, (index, most) in whole.items():
        if parts[key] > most + 1e-3 * (1 + len(table)):
            yield table.place(index, "Energy (J)", f"at most {most:.3f}, and at least {parts[key]:.3f} in its parts")
    for lesser, greater in (("SM Clock Min (MHz)", "SM Clock (MHz)"), ("Memory Clock Min (MHz)", "Memory Clock (MHz)"),
                            ("Held by Power (%)", "Held Down (%)"), ("Held by Heat (%)", "Held Down (%)"),
                            ("Held by Hardware (%)", "Held Down (%)"), ("Held Cost Bound (%)", "Held Down (%)")):
        for index, (low, high) in table.each(lesser, greater):
            if low > high + 0.05:
                yield table.place(index, lesser, f"{low} is more than {greater}, {high}")


@rule("memory-purpose", ERROR, "A device's purposes add up to its row [all], memory of tensors has tensors, and nothing exceeds the peaks.")
def memory_purpose(folder: Folder) -> Iterator[Place]:
    table = folder.table("memory_purpose", "Device", "Purpose", "Memory (B)")
    if table is None:
        return
    purposes, sizes = table.cells("Purpose"), table.numbers("Memory (B)")
    for rows in table.rows_by("Device").values():
        parts = [sizes[row] for row in rows if purposes[row] != "[all]"]
        for row in (row for row in rows if purposes[row] == "[all]"):
            if sizes[row] is not None and None not in parts and sum(part or 0 for part in parts) != sizes[row]:
                yield table.place(row, "Memory (B)", f"{sizes[row]} is not {sum(part or 0 for part in parts)}, the sum of the purposes")
    for index, (allocated, reserved) in table.each("Peak Allocated (B)", "Peak Reserved (B)"):
        if allocated > reserved:
            yield table.place(index, "Peak Allocated (B)", f"{allocated} is more than was reserved, {reserved}")
    for index, (rest, allocated) in table.each("Activations at Peak (B)", "Peak Allocated (B)"):
        if rest > allocated:
            yield table.place(index, "Activations at Peak (B)", f"{rest} is more than the peak, {allocated}")
    for index, (count, memory) in table.each("Tensors", "Memory (B)"):
        # The part of an allocation that none of its tensors reaches counts as other tensors.
        if memory and not count and purposes[index] != "other tensors":
            yield table.place(index, "Tensors", f"{memory} bytes of no tensor")


_THREADS = ("main", "autograd", "NCCL", "pin memory", "libinject", "CUDA driver", "other thread", "[rest]")
_TAKEN = ("Processor Time (ns)", "Voluntary Switches", "Involuntary Switches", "Minor Faults", "Major Faults", "Read (MB)")


@rule("host-sum", ERROR, "A window's threads add up to the process, within the time of the readings, and shares follow from the times.")
def host_sum(folder: Folder) -> Iterator[Place]:
    table = folder.table("host_sum", "Window", "Role", "Span (ns)", "Reading (ns)", "Count")
    if table is None:
        return
    roles, counts, readings = table.cells("Role"), table.numbers("Count"), table.numbers("Reading (ns)")
    windows = table.rows_by("Window")
    for rows in windows.values():
        threads = [row for row in rows if roles[row] in _THREADS]
        for process in (row for row in rows if roles[row] == "process"):
            for column in _TAKEN:
                parts = [table.numbers(column)[row] for row in (*threads, process)] if table.has(column) else [None]
                if None in parts:
                    continue
                *parts, whole = parts
                # Threads are read one after the other, and then the process: the rest is 0 if the threads used more in between.
                slack = 0.0005 * (len(parts) + 2) if column == "Read (MB)" else 0
                more = 0 if not threads or parts[-1] else (readings[process] or 0) * sum(counts[row] or 0 for row in threads) if "(ns)" in column else math.inf
                if not -slack <= sum(parts) - whole <= slack + more:
                    yield table.place(process, column, f"{whole} of the process, {sum(parts)} of its threads")
    for index, (time, span, value) in table.each("Processor Time (ns)", "Span (ns)", "Share of a Core (%)"):
        if span and abs(value - 100 * time / span) > table.half(index, "Share of a Core (%)") + 1e-6 * value:
            yield table.place(index, "Share of a Core (%)", f"{value} is not {time} of {span} ns, which is {100 * time / span:.2f} %")
    for index, (moments, asleep, blocked) in table.each("Loader Moments", "Workers Asleep", "Workers Blocked"):
        if not blocked <= asleep <= moments:
            yield table.place(index, "Loader Moments", f"{moments} moments, {asleep} with all asleep, {blocked} of these with one blocked")
    for index, (used, wanted) in table.each("Cores Used", "Cores Wanted"):
        if used > wanted + 0.001:
            yield table.place(index, "Cores Used", f"{used} is more than the {wanted} that were wanted")
