# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Idle time by cause: over all windows, for each device."""

from __future__ import annotations

from libinject.page.parts import Plot, Section, made_table, numbers
from libinject.page.values import share, text_of
from libinject.result import Cell, Result

_MOST_DEVICES = 8
# docs/diagnosis.md, one line each.
_CAUSES = {
    "Start-up": "before the window's first work on the device",
    "Synchronization": "the host waited for the device, and therefore launched late",
    "Copy Call": "the host was in a copy call",
    "Launch Call": "the host was in the launch call, or in a call of cuBLAS, cuDNN or NCCL",
    "Other Call": "the host was in another CUDA call",
    "Host Compute": "the host computed between calls: Python, the framework",
    "Host Wait": "the host waited for something other than the device: data, a lock, a file",
    "Other Stream": "the work waited for another stream, or for something outside this device",
    "Collective": "the work waited for a collective on another stream",
    "Queue": "the time the device takes from one piece of work to the next on a stream",
    "Unknown": "the launch of the next work was not seen",
}
_COLOURS = {"Synchronization": "sync", "Copy Call": "copy", "Launch Call": "launch", "Other Call": "launch", "Host Compute": "launch",
            "Queue": "launch", "Host Wait": "input", "Collective": "comm"}


def section(result: Result) -> Section:
    part = Section("idle", "Idle time by cause", "Why no kernel and no copy ran: every gap between two pieces of work has one cause, summed up "
                   "over all windows.")
    times: dict[str, dict[str, int | float]] = {}
    totals: dict[str, int | float] = {}
    rows = [row for row in result.rows("window_sum", "Device", "Device Time (ns)") if row["Device"] != "all"]
    for row in rows:
        device = text_of(row["Device"])
        totals[device] = totals.get(device, 0) + sum(numbers([row], "Device Time (ns)"))
        for cause in _CAUSES:
            of_device = times.setdefault(device, {})
            of_device[cause] = of_device.get(cause, 0) + sum(numbers([row], f"Idle: {cause} (ns)"))
    cells: list[list[Cell]] = []
    for device, causes in times.items():
        for cause, time in sorted(causes.items(), key=lambda item: -item[1]):
            if time:
                cells.append([device, cause, time, share(time, totals[device]), _CAUSES[cause]])
    if not cells:
        return part
    devices = list(times)[:_MOST_DEVICES]
    shown = sorted((cause for cause in _CAUSES if any(times[device][cause] for device in devices)),
                   key=lambda cause: -max(times[device][cause] for device in devices))
    part.add(Plot("idle", "Idle time", "bars", {"title": "idle time", "unit": "ns"}, [
        {"name": f"GPU {device}", "names": shown, "values": [times[device][cause] for cause in shown],
         "notes": [f"{share(times[device][cause], totals[device])}% of the device's time: {_CAUSES[cause]}" for cause in shown],
         "colours": [_COLOURS.get(cause, "rest") for cause in shown] if len(devices) == 1 else None} for device in devices]))
    part.add(made_table("idle", "Idle time by cause", "window_sum.csv", ["Device", "Cause", "Idle (ns)", "Device Time (%)", "Meaning"], cells))
    return part
