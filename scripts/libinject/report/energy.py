# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Power and clocks over time, and what windows used."""

from __future__ import annotations

from typing import Any

from libinject.page.parts import Plot, Section, numbers, table
from libinject.page.values import clean, objects, text_of
from libinject.report.transfers import windows_over_time
from libinject.result import Result, Row

_MOST_DEVICES = 8
_COLUMNS = ("Window", "Iteration", "Of", "Device", "Duration (ns)", "Energy (J)", "± Energy (J)", "Power (W)", "Energy per Sample (J)", "Idle Energy (%)",
            "SM Clock (MHz)", "Held Down (%)", "Held by Power (%)", "Held by Heat (%)", "Held Cost Bound (%)", "Temperature Max (C)")


def _series(name: str, rows: list[Row], column: str, **style: Any) -> dict[str, Any]:
    """A row's figure from its start to its end. A line ends where nothing is known."""
    x: list[int | None] = []
    y: list[float | None] = []
    notes: list[str] = []
    for row in rows:
        start, length = row["Start (ns)"], row["Duration (ns)"]
        if not isinstance(start, int) or not isinstance(length, int) or not numbers([row], column):
            continue
        what = f"window {row['Window']}" + (f", iteration {row['Iteration']}" if row["Iteration"] is not None else "")
        if x and x[-1] != start:
            x.append(None)
            y.append(None)
            notes.append("")
        x += [start, start + length]
        y += numbers([row], column) * 2
        notes += [what] * 2
    return {"name": name, "x": x, "y": y, "notes": notes, "lines": True, **style}


def section(result: Result) -> Section:
    part = Section("energy", "Energy and clocks", "What each GPU used in windows and their iterations, by all processes on it, and the clock at which it "
                                                  "ran: rates and shares of peaks are at that clock.")
    rows = result.rows("energy_sum", *(column for column in _COLUMNS if column != "Idle Energy (%)"), "Start (ns)", "SM Clock Highest (MHz)")
    devices: dict[str, list[Row]] = {}
    for row in rows:
        devices.setdefault(text_of(row["Device"]), []).append(row)
    bands = windows_over_time(result)
    for title, column in (("Power (W)", "Power (W)"), ("SM clock (MHz)", "SM Clock (MHz)")):
        series = []
        for device, of_device in list(devices.items())[:_MOST_DEVICES]:
            # Iterations are finer, where they are long enough to be told apart.
            finer = [row for row in of_device if row["Of"] != "window" and numbers([row], column)]
            whole = [row for row in of_device if row["Of"] == "window" and numbers([row], column)]
            if finer:
                series.append(_series(f"iterations, GPU {device}", finer, column))
            if whole:
                series.append(_series(f"windows, GPU {device}", whole, column, dash=bool(finer)))
            highest = numbers(whole, "SM Clock Highest (MHz)")
            if column.startswith("SM") and highest:
                part.notes.append(f"The highest SM clock of GPU {device} is {max(highest):,.0f} MHz.")
        if series:
            part.add(Plot(f"energy-{len(part.plots)}", title, "points", {"title": "time since CUDA's initialisation", "unit": "ns"}, series,
                          {"title": title, "zero": column.startswith("Power")}, bands=bands))
    for entry in objects(result.run.get("diagnosis"))[:_MOST_DEVICES]:
        if held := text_of(entry.get("clocks")):
            part.notes.append(clean(f"GPU {text_of(entry.get('device'))}: {held}."))
    return part.add(table(result, "energy_sum", "Energy and clocks by window and iteration", _COLUMNS))
