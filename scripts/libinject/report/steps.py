# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Step times over the run, and the windows in which they were measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libinject import figures
from libinject.console import duration
from libinject.page.parts import Plot, Section, numbers, table
from libinject.page.values import text_of
from libinject.report import breakdown, over_time
from libinject.report.overview import TOO_SHORT, step_times
from libinject.result import Result, Row

_MOST_DEVICES = 8
# What decides, in this order; all others are there to be asked for.
_WINDOW_COLUMNS = ("Window", "Device", "Verdict", "Potential Gain (%)", "Duration (ns)", "Iterations", "GPU Utilization (%)", "Step Time in Window (ns)",
                   "Step Time (ns)", "Samples/s", "Units/s", "Idle (ns)", "Launch-bound (%)", "Profiler Overhead (%)", "Reason")
_ITERATION_COLUMNS = ("Iteration", "Label", "Duration (ns)", "GPU Utilization (%)", "Kernel Busy (ns)", "Gap to Next (ns)", "Samples/s", "Units", "Units/s", "TFLOP/s", "Window",
                      "Complete", "Device")
_KINDS = (("iteration", "step"), ("validation", "validation"), ("checkpoint", "checkpoint"))


def _series(name: str, rows: list[tuple[int, Row]], time: Callable[[Row], object], **style: Any) -> dict[str, Any]:
    """A line ends with its window: None."""
    x: list[int | None] = []
    y: list[float | None] = []
    notes: list[str] = []
    before = None
    for at, row in rows:
        if not isinstance(value := time(row), (int, float)):
            continue
        if style.get("lines") and x and row["Window"] != before:
            x.append(None)
            y.append(None)
            notes.append("")
        before = row["Window"]
        x.append(at)
        y.append(value)
        number = row["Iteration"] if row["Iteration"] is not None else "–"
        notes.append(f"window {before}, iteration {number}, begins at {duration(row['Start (ns)'] or 0)}")
    return {"name": name, "x": x, "y": y, "notes": notes, **style}


def _duration(row: Row) -> object:
    return row["Duration (ns)"]


def _bands(rows: list[tuple[int, Row]], reasons: dict[Any, str]) -> list[dict[str, Any]]:
    """A window's first row to its last one."""
    ends: dict[Any, list[int]] = {}
    for at, row in rows:
        ends.setdefault(row["Window"], [at, at])[1] = at
    # Reasons of several would run into each other.
    alone = len(ends) == 1
    return [{"from": first - 0.5, "to": last + 0.5, "label": f"window {window}" + (f" ({reasons[window]})" if alone and reasons.get(window) else "")}
            for window, (first, last) in ends.items()]


def _plot(result: Result) -> Plot | None:
    rows = result.rows("iteration_sum", "Window", "Iteration", "Label", "Complete", "Device", "Start (ns)", "Duration (ns)")
    rows = [row for row in rows if row["Label"] in dict(_KINDS) and isinstance(row["Window"], int)]
    hosts = list(enumerate(row for row in rows if row["Device"] == "all"))
    if not hosts:
        return None
    reasons = {row["Window"]: text_of(row["Reason"]) for row in result.rows("window_sum", "Window", "Reason")}
    series = []
    for label, name in _KINDS:
        of_kind = [(at, row) for at, row in hosts if row["Label"] == label]
        whole = [(at, row) for at, row in of_kind if row["Complete"] == 1]
        cut = [(at, row) for at, row in of_kind if row["Complete"] != 1]
        if whole:
            of_step = label == "iteration"
            series.append(_series(f"{name} time in windows", whole, figures.step_time if of_step else _duration, lines=of_step))
        if cut:
            series.append(_series(f"{name}, not complete", cut, _duration, hollow=True))
    places = {(row["Window"], row["Iteration"], row["Label"], row["Start (ns)"]): at for at, row in hosts}
    devices: dict[str, list[tuple[int, Row]]] = {}
    for row in rows:
        at = places.get((row["Window"], row["Iteration"], row["Label"], row["Start (ns)"]))
        if row["Device"] != "all" and at is not None and row["Complete"] == 1:
            devices.setdefault(str(row["Device"]), []).append((at, row))
    for device, of_device in list(devices.items())[:_MOST_DEVICES]:
        if "Kernel Busy (ns)" in of_device[0][1]:
            series.append(_series(f"kernels running, GPU {text_of(device)}", of_device, lambda row: row["Kernel Busy (ns)"], lines=True, dash=True))
    ticks = [str(row["Iteration"]) if row["Iteration"] is not None else str(row["Label"]) for _, row in hosts]
    return Plot("steps", "Step time in windows", "points", {"title": "iteration", "ticks": ticks}, series,
                {"title": "time", "unit": "ns", "zero": True}, bands=_bands(hosts, reasons))


def section(result: Result) -> Section:
    part = Section("steps", "Steps and windows", "How long each training iteration took, and the profiled windows of the run: shaded, "
                                                 "with their number and what opened them.")
    part.add(_plot(result), over_time.plot(result), *breakdown.iterations(result), breakdown.windows(result))
    if figures.unprofiled_steps(result) and (steps := step_times(result)):
        part.notes.append(f"{int(steps['count'])} iterations without the profiler: median {duration(steps['median'])}, mean {duration(steps['mean'])}, "
                          f"{duration(steps['min'])} … {duration(steps['max'])}.")
    if steps := step_times(result, in_windows=True):
        part.notes.append(f"{int(steps['count'])} complete iterations in windows: median {duration(steps['median'])}, mean {duration(steps['mean'])}, "
                          f"{duration(steps['min'])} … {duration(steps['max'])}.")
    short = dict.fromkeys(text_of(row["Window"]) for row in result.rows("window_sum", "Window") if row.get("Device Time (ns)") and row.get("Verdict") in TOO_SHORT)
    if short:
        which, more = list(short)[:20], " …" if len(short) > 20 else ""
        part.notes.append(f"Window {which[0]} is too short for a verdict." if len(short) == 1 else
                          f"Windows {', '.join(which)}{more} are too short for a verdict.")
    part.add(table(result, "window_sum", "Windows", on=_WINDOW_COLUMNS))
    # One GPU's rows would say the same again.
    iterations = result.table("iteration_sum")
    devices = {row.get("Device") for row in iterations or ()} - {"all"}
    part.add(table(result, "iteration_sum", "Iterations", on=_ITERATION_COLUMNS,
                   where=(lambda row: row.get("Device") == "all") if len(devices) == 1 else None))
    if numbers(result.rows("window_sum"), "Profiler Overhead (%)"):
        part.notes.append("Profiler Overhead compares the iterations in the window with those that ran without CUPTI.")
    return part
