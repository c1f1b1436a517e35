# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What is moved and stored: copies, memory, collectives."""

from __future__ import annotations

from typing import Any, Optional

from libinject.console import duration
from libinject.page.parts import Plot, Section, numbers, table
from libinject.page.values import clean, described, objects, text_of, whole
from libinject.result import Result, Row

_MOST_BARS = 20
_MOST_DEVICES = 8
_MOST_STEPS = 2500  # of a memory curve


def copies(result: Result) -> Section:
    part = Section("copies", "Copies and memsets", "What was copied between which kinds of memory, how fast compared with the link, "
                                                   "whether kernels ran at the same time, and whether the host waited.")
    rows = [row for row in result.rows("copy_sum", "Direction", "Source", "Target", "Count", "Total (MB)", "Throughput (GB/s)", "Link (GB/s)")
            if numbers([row], "Throughput (GB/s)")][:_MOST_BARS]
    if rows:
        devices = {row.get("Device") for row in rows}
        names = [clean(f"{row['Direction']}, {row['Source']} → {row['Target']}" + (f", GPU {row.get('Device')}" if len(devices) > 1 else ""))
                 for row in rows]
        series: list[dict[str, Any]] = [{"name": "throughput", "names": names, "values": [row["Throughput (GB/s)"] for row in rows],
                                         "notes": [described("{Count} copies, {Total (MB)} MB", row) for row in rows]}]
        if numbers(rows, "Link (GB/s)"):
            series.append({"name": "the link at most", "names": names, "values": [row["Link (GB/s)"] for row in rows], "mark": True})
        part.add(Plot("copies", "Throughput of copies", "bars", {"title": "GB/s"}, series))
    return part.add(table(result, "copy_sum", "Copies", on=("Direction", "Source", "Target", "Total Time (ns)", "Count", "Total (MB)", "Throughput (GB/s)", "Link (%)",
                                                        "Overlap with Kernels (%)", "Synchronizing (%)", "Hint", "Device")),
                    table(result, "cuda_gpu_mem_time_sum", "Copies and memsets by time", ("Operation",)),
                    table(result, "cuda_gpu_mem_size_sum", "Copies and memsets by size", ("Operation",)))


_Points = list[tuple[Optional[float], Optional[float], str]]  # time, MB, note; None interrupts the line


def _timeline(result: Result, kind: str) -> dict[str, list[Row]]:
    """Rows of memory_timeline.csv by device."""
    devices: dict[str, list[Row]] = {}
    needed = ("Start (ns)", "Duration (ns)", "Lowest (MB)", "Highest (MB)")
    for row in result.rows("memory_timeline", "Device", "Of", "Window", *needed):
        if row["Of"] == kind and all(numbers([row], column) for column in needed):
            devices.setdefault(text_of(row["Device"]), []).append(row)
    return devices


def _merged(rows: list[Row]) -> list[tuple[Row, Row, float, float]]:
    """Groups of rows, merged so that at most _MOST_STEPS remain: the first and the last row, the lowest and the highest value."""
    each = -(-len(rows) // _MOST_STEPS)
    parts = [rows[at:at + each] for at in range(0, len(rows), each or 1)]
    return [(part[0], part[-1], min(numbers(part, "Lowest (MB)")), max(numbers(part, "Highest (MB)"))) for part in parts]


def _steps(rows: list[Row]) -> tuple[_Points, _Points]:
    """Allocated memory: the maximum and, if it differs, the minimum."""
    most: _Points = []
    least: _Points = []
    for first, last, low, high in _merged(rows):
        for time in (first["Start (ns)"], last["Start (ns)"] + last["Duration (ns)"]):
            most.append((time, high, "" if low == high else f"at most, {low} MB at least"))
            least.append((time, low, "at least"))
    return most, least if any(low[1] != high[1] for low, high in zip(least, most)) else []


def _readings(rows: list[Row]) -> _Points:
    points: _Points = []
    window = None
    for first, last, low, high in _merged(rows):
        if points and first["Window"] != window:
            points.append((None, None, ""))  # memory in use between windows is unknown
        window = last["Window"]
        note = "" if low == high else f"at most, {low} MB at least"
        points += [(time, high, note) for time in (first["Start (ns)"], last["Start (ns)"] + last["Duration (ns)"])]
    return points


def _edges(result: Result) -> dict[str, _Points]:
    """Memory in use at the windows' edges, for runs without memory_timeline.csv."""
    devices: dict[str, _Points] = {}
    for row in result.rows("window_sum", "Window", "Device", "Start (ns)", "End (ns)", "Memory at Start (MB)", "Memory at End (MB)"):
        of_device = devices.setdefault(text_of(row["Device"]), [])
        if of_device:
            of_device.append((None, None, ""))
        for edge in ("Start", "End"):
            if numbers([row], f"Memory at {edge} (MB)") and numbers([row], f"{edge} (ns)"):
                of_device.append((row[f"{edge} (ns)"], row[f"Memory at {edge} (MB)"], f"{edge.lower()} of window {row['Window']}"))
    return {device: points for device, points in devices.items() if any(value is not None for _, value, _ in points)}


def _peaks(result: Result) -> dict[str, Row]:
    return {text_of(row["Device"]): row for row in result.rows("memory_sum", "Device", "API", "Peak (MB)")
            if row["API"] == "[all]" and numbers([row], "Peak (MB)") and row["Device"] != "host"}


def over_time(result: Result) -> list[dict[str, Any]]:
    """Memory in use and allocated on each GPU, and what PyTorch's allocator holds."""
    in_use = {device: _readings(rows) for device, rows in _timeline(result, "in use").items()} or _edges(result)
    allocated = _timeline(result, "allocated")
    of_torch = {kind: _timeline(result, f"PyTorch {kind}") for kind in ("reserved", "allocated")}
    peaks = _peaks(result)
    series: list[dict[str, Any]] = []

    def line(name: str, points: _Points, **style: Any) -> None:
        if points:
            times, values, notes = zip(*points)
            series.append({"name": clean(name), "x": list(times), "y": list(values), "notes": list(notes), "lines": True, **style})

    for device in list(dict.fromkeys([*in_use, *(device for device in allocated if device != "host"), *of_torch["allocated"]]))[:_MOST_DEVICES]:
        line(f"in use, GPU {device}", in_use.get(device, []))
        if device in allocated:
            most, least = _steps(allocated[device])
            line(f"allocated, GPU {device}", most, plain=True)
            line(f"allocated at least, GPU {device}", least, plain=True, dash=True)
        elif device in peaks and device in in_use:
            spans = [time for time, _, _ in in_use[device] if time is not None] + [edge for band in windows_over_time(result) for edge in (band["from"], band["to"])]
            series.append({"name": f"allocated at most, GPU {device}", "y": [peaks[device]["Peak (MB)"]] * 2, "roof": True, "dash": True,
                           "x": [find(spans) for find in (min, max)]})
        for kind, devices in of_torch.items():
            line(f"{kind} by PyTorch, GPU {device}", _steps(devices.get(device, []))[0], plain=True)
    return series


def memory(result: Result) -> Section:
    part = Section("memory", "Memory", "What the program had allocated through the CUDA runtime on each GPU, by function and over time, what was in use by all "
                                       "processes, what PyTorch's allocator holds, and what for.")
    part.notes += [clean(f"GPU {device}: {row['Peak (MB)']:,.3f} MB allocated at most, {duration(row['Peak at (ns)'])} after CUDA's initialisation.")
                   for device, row in _peaks(result).items() if numbers([row], "Peak at (ns)")][:_MOST_DEVICES]
    part.add(table(result, "memory_purpose", "PyTorch's memory by purpose", ("Device", "Purpose")), table(result, "memory_sum", "Allocations by function", ("Device", "Kind", "API")),
             table(result, "memory_timeline", "Memory over time, row by row", ("Start (ns)", "Duration (ns)", "Window", "Iteration", "Of", "Lowest (MB)", "Highest (MB)", "Device")))
    if not part.empty:
        part.notes += [f"GPU {text_of(device.get('id'))} has {size / 1e6:,.0f} MB." for device in objects(result.run["devices"])
                       if (size := whole(device.get("memory_bytes")))][:_MOST_DEVICES]
    return part


def windows_over_time(result: Result, most: int = 200) -> list[dict[str, Any]]:
    """Windows as bands over time."""
    spans = {row["Window"]: (row["Start (ns)"], row["End (ns)"]) for row in result.rows("window_sum", "Window", "Start (ns)", "End (ns)")
             if numbers([row], "Start (ns)") and numbers([row], "End (ns)")}
    return [{"from": start, "to": end, "label": f"window {window}"} for window, (start, end) in list(spans.items())[:most]]


def collectives(result: Result) -> Section:
    part = Section("collectives", "Collectives", "NCCL's operations by size: bus bandwidth over the bytes of a call, and for how much of "
                                                 "their time other kernels ran beside them.")
    kinds: dict[str, list[Any]] = {}
    for row in result.rows("nccl_sum", "Operation", "Bytes", "Bus BW (GB/s)", "GPU Time (ns)"):
        if numbers([row], "Bytes") and numbers([row], "Bus BW (GB/s)") and row["Bytes"] > 0:
            kinds.setdefault(str(row["Operation"]), []).append(row)
    if kinds:
        part.add(Plot("collectives", "Bus bandwidth", "points", {"title": "bytes of a call", "unit": "si", "log": True}, [
            {"name": clean(kind), "x": [row["Bytes"] for row in rows], "y": [row["Bus BW (GB/s)"] for row in rows],
             "sizes": [row["GPU Time (ns)"] for row in rows],
             "notes": [clean(described("{Calls} calls of {Type}, {Ranks} ranks, {Overlap with Compute (%)}% beside other kernels", row)) for row in rows]}
            for kind, rows in kinds.items()], {"title": "GB/s", "zero": True}))
    return part.add(table(result, "nccl_sum", "Collectives", on=("Operation", "Type", "Bytes", "Ranks", "Calls", "GPU Time (%)", "GPU Time (ns)", "GPU Avg (ns)",
                                                                "Bus BW (GB/s)", "Overlap with Compute (%)", "Kernel Names")))
