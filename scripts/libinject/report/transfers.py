# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What is moved and stored: copies, memory, collectives."""

from __future__ import annotations

from typing import Any

from libinject.page.parts import Plot, Section, numbers, table
from libinject.page.values import clean, described, objects, text_of, whole
from libinject.result import Result

_MOST_BARS = 20
_MOST_DEVICES = 8


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


def memory(result: Result) -> Section:
    part = Section("memory", "Memory", "Memory in use on each GPU (by all processes) as windows opened and closed, and the peak of what "
                                       "the program had allocated.")
    devices: dict[str, list[tuple[float | None, float | None, str]]] = {}
    for row in result.rows("window_sum", "Window", "Device", "Start (ns)", "End (ns)", "Memory at Start (MB)", "Memory at End (MB)"):
        of_device = devices.setdefault(text_of(row["Device"]), [])
        if of_device:
            of_device.append((None, None, ""))  # what was in use between windows is not known
        for edge in ("Start", "End"):
            if numbers([row], f"Memory at {edge} (MB)") and numbers([row], f"{edge} (ns)"):
                of_device.append((row[f"{edge} (ns)"], row[f"Memory at {edge} (MB)"], f"{edge.lower()} of window {row['Window']}"))
    peaks = {text_of(row["Device"]): row["Peak (MB)"] for row in result.rows("memory_sum", "Device", "API", "Peak (MB)")
             if row["API"] == "[all]" and numbers([row], "Peak (MB)") and row["Device"] != "host"}
    series: list[dict[str, Any]] = []
    bands = windows_over_time(result)
    measured = {device: points for device, points in devices.items() if any(value is not None for _, value, _ in points)}
    for device, points in list(measured.items())[:_MOST_DEVICES]:
        times, values, notes = zip(*points)
        spans = [time for time in times if time is not None], [edge for band in bands for edge in (band["from"], band["to"])]
        series.append({"name": f"in use, GPU {device}", "x": list(times), "y": list(values), "notes": list(notes), "lines": True})
        if device in peaks:
            series.append({"name": f"allocated at most, GPU {device}", "y": [peaks[device]] * 2, "roof": True, "dash": True,
                           "x": [find(spans[0] + spans[1]) for find in (min, max)]})
    if series:
        part.add(Plot("memory", "Memory over time", "points", {"title": "time since CUDA's initialisation", "unit": "ns"}, series,
                      {"title": "MB", "zero": True}, bands=bands))
        sizes = {text_of(device.get("id")): whole(device.get("memory_bytes")) for device in objects(result.run["devices"])}
        part.notes += [f"GPU {device} has {size / 1e6:,.0f} MB." for device, size in sizes.items() if size and device in measured][:_MOST_DEVICES]
    part.add(table(result, "memory_purpose", "PyTorch's memory by purpose", ("Device", "Purpose")))
    return part.add(table(result, "memory_sum", "Allocations by function", ("Device", "Kind", "API")))


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
