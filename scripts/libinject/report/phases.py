# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Phases of the training step, and what the host did during them."""

from __future__ import annotations

from libinject.page.parts import Plot, Section, numbers, table
from libinject.page.values import clean, share
from libinject.result import Result

_MOST_WINDOWS = 20


def phases(result: Result) -> Section:
    part = Section("phases", "Phases", "How kernel time divides into forward pass, backward pass and optimizer, over all windows.")
    devices: dict[str, dict[str, int | float]] = {}
    for row in result.rows("phase_sum", "Device", "Phase", "Kernel Time (ns)"):
        of_device = devices.setdefault(str(row["Device"]), {})
        phase = clean(str(row["Phase"]))
        of_device[phase] = of_device.get(phase, 0) + sum(numbers([row], "Kernel Time (ns)"))
    if devices:
        names = list(dict.fromkeys(phase for times in devices.values() for phase in times))
        shown = list(devices)[:16]
        labels = [clean(f"GPU {device}") for device in shown]
        part.add(Plot("phases", "Kernel time by phase", "bars", {"title": "kernel time", "unit": "ns"}, [
            {"name": name, "names": labels, "values": [devices[device].get(name, 0) for device in shown],
             "notes": [f"{name}: {share(devices[device].get(name, 0), sum(devices[device].values()))}% of the kernels' time" for device in shown]}
            for name in names], stacked=True))
    return part.add(table(result, "phase_sum", "Phases", on=("Phase", "Kernel Time (%)", "Kernel Time (ns)", "Kernels", "Copies", "Copy Time (ns)", "Window", "Device")))


def processors(result: Result) -> Section:
    part = Section("processors", "Processors", "How much of a processor the process's threads and its children took in each window, by role, and what "
                                               "the process was allowed.")
    rows = [row for row in result.rows("host_sum", "Window", "Role", "Processor Time (ns)", "Share of a Core (%)") if row["Role"] != "process"]
    windows = list(dict.fromkeys(row["Window"] for row in rows))[:_MOST_WINDOWS]
    if numbers(rows, "Share of a Core (%)"):
        names = [f"window {window}" for window in windows]
        roles = list(dict.fromkeys(str(row["Role"]) for row in rows if sum(numbers([row], "Share of a Core (%)")) > 0))
        shares = {(row["Window"], str(row["Role"])): row["Share of a Core (%)"] for row in rows}
        part.add(Plot("processors", "Processors used, by role", "bars", {"title": "share of a core", "unit": "%"}, [
            {"name": clean(role), "names": names, "values": [shares.get((window, role)) or 0 for window in windows]} for role in roles], stacked=True))
    return part.add(table(result, "host_sum", "Threads and child processes", on=("Window", "Role", "Count", "Share of a Core (%)", "Run Queue Wait (ns)",
                                                                            "Voluntary Switches", "Involuntary Switches", "Major Faults", "Read (MB)",
                                                                            "Cores by Affinity", "Cores by Quota", "Cores Used", "Cores Wanted")))


def host(result: Result) -> Section:
    part = Section("host", "Host: API calls, ranges, threads", "Time that the host's threads spent in CUDA calls, the program's own NVTX "
                                                               "ranges, and how much kernel time each thread launched.")
    return part.add(table(result, "cuda_api_sum", "API calls", ("Name",)), table(result, "nvtx_sum", "NVTX ranges", ("Range",)),
                    table(result, "thread_kern_sum", "Launching threads", ("Thread Name",)))
