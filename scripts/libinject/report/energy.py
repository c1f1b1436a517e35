# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Power and clocks over time, and the energy of windows."""

from __future__ import annotations

from typing import Any

from libinject.page.parts import Section, numbers, table
from libinject.page.values import clean, objects, text_of
from libinject.result import Result, Row

_MOST_DEVICES = 8
_COLUMNS = ("Window", "Iteration", "Of", "Device", "Duration (ns)", "Energy (J)", "± Energy (J)", "Power (W)", "Energy per Sample (J)", "Idle Energy (%)",
            "SM Clock (MHz)", "Held Down (%)", "Held by Power (%)", "Held by Heat (%)", "Held Cost Bound (%)", "Temperature Max (C)")


def spans(name: str, rows: list[Row], column: str, **style: Any) -> dict[str, Any]:
    """A row's value from its start to its end. The line is interrupted where nothing is known."""
    x: list[int | None] = []
    y: list[float | None] = []
    notes: list[str] = []
    for row in rows:
        start, length = row["Start (ns)"], row["Duration (ns)"]
        if not isinstance(start, int) or not isinstance(length, int) or not numbers([row], column):
            continue
        window, iteration = (f"{what.lower()} {row[what]}" if row.get(what) is not None else "" for what in ("Window", "Iteration"))
        what = ", ".join(filter(None, (window, iteration)))
        if x and x[-1] != start:
            x.append(None)
            y.append(None)
            notes.append("")
        x += [start, start + length]
        y += numbers([row], column) * 2
        notes += [what] * 2
    return {"name": name, "x": x, "y": y, "notes": notes, "lines": True, **style}


def over_time(result: Result) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Axes with the series drawn over them."""
    devices: dict[str, list[Row]] = {}
    for row in result.rows("energy_sum", "Window", "Iteration", "Of", "Device", "Start (ns)", "Duration (ns)"):
        devices.setdefault(text_of(row["Device"]), []).append(row)
    found = []
    for what, column in (("power", "Power (W)"), ("SM clock", "SM Clock (MHz)")):
        series = []
        for device, of_device in list(devices.items())[:_MOST_DEVICES]:
            # Iterations give more detail if they are long enough to be distinguished.
            finer = [row for row in of_device if row["Of"] != "window" and numbers([row], column)]
            whole = [row for row in of_device if row["Of"] == "window" and numbers([row], column)]
            if finer:
                series.append(spans(f"{what} in iterations, GPU {device}", finer, column))
            if whole:
                series.append(spans(f"{what} in windows, GPU {device}", whole, column, dash=bool(finer)))
        found.append(({"title": what + column[column.index(" ("):], "unit": "", "zero": what == "power"}, series))
    return found


def section(result: Result) -> Section:
    part = Section("energy", "Energy and clocks", "Energy of each GPU in windows and their iterations, for all processes on it, and the clock at which it "
                                                  "ran: rates and shares of peaks are at that clock.")
    highest: dict[str, float] = {}
    for row in result.rows("energy_sum", *(column for column in _COLUMNS if column != "Idle Energy (%)"), "SM Clock Highest (MHz)"):
        if row["Of"] == "window" and (clock := numbers([row], "SM Clock Highest (MHz)")):
            highest[text_of(row["Device"])] = max(clock[0], highest.get(text_of(row["Device"]), 0))
    part.notes += [f"The highest SM clock of GPU {device} is {clock:,.0f} MHz." for device, clock in list(highest.items())[:_MOST_DEVICES]]
    for entry in objects(result.run.get("diagnosis"))[:_MOST_DEVICES]:
        if held := text_of(entry.get("clocks")):
            part.notes.append(clean(f"GPU {text_of(entry.get('device'))}: {held}."))
    return part.add(table(result, "energy_sum", "Energy and clocks by window and iteration", _COLUMNS))
