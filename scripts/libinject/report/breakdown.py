# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Stacked plots of the device's time, for each iteration and each window. Only values that add up are drawn."""

from __future__ import annotations

from typing import Any

from libinject.page.parts import Plot, numbers
from libinject.page.values import clean, text_of
from libinject.report.idle import CAUSES, COLOURS, PATTERNS
from libinject.result import Result, Row

_MOST_STACKS = 400
_MOST_DEVICES = 4
# GPU Utilization has one decimal and gives an iteration's time on the device; below this percentage, that time is off by more than one
# percent.
_LEAST_UTILIZATION = 5.0
# For idle time in the same colour as something that runs.
_IDLE_PATTERNS = {**PATTERNS, "Copy Call": "/", "Collective": "/"}


def _number(row: Row, name: str) -> float | None:
    return next(iter(numbers([row], name)), None)


def _columns(id_: str, title: str, axis: str, ticks: list[str], series: list[dict[str, Any]], note: str = "") -> Plot | None:
    shown = [each for each in series if any(each["values"])]
    return Plot(id_, title, "columns", {"title": axis, "ticks": ticks}, shown, {"title": "device time", "unit": "ns", "zero": True}, note=note) if ticks and shown else None


def iterations(result: Result) -> list[Plot]:
    """Complete iterations for each device: kernels, copies without a kernel, and idle, from the iteration's first work to the next
    one's."""
    devices: dict[str, list[tuple[Row, tuple[float, float, float]]]] = {}
    for row in result.rows("iteration_sum", "Iteration", "Label", "Complete", "Device"):
        kernels, busy, utilization = (_number(row, name) for name in ("Kernel Busy (ns)", "GPU Busy (ns)", "GPU Utilization (%)"))
        if row["Device"] == "all" or row["Label"] != "iteration" or row["Complete"] != 1 or kernels is None or busy is None or utilization is None:
            continue
        if utilization < _LEAST_UTILIZATION or not 0 < kernels <= busy:
            continue
        # Because of rounding it may appear to be less than what ran.
        devices.setdefault(text_of(row["Device"]), []).append((row, (kernels, busy - kernels, max(0.0, 100 * kernels / utilization - busy))))
    made = []
    for device, rows in list(devices.items())[:_MOST_DEVICES]:
        shown = rows[-_MOST_STACKS:]
        if len(shown) < 2:
            continue
        names = ("kernels", "compute"), ("copies alone", "copy"), ("idle", "rest")
        series = [{"name": name, "colour": colour, "values": [round(parts[at]) for _, parts in shown]} for at, (name, colour) in enumerate(names)]
        made.append(_columns(f"iterations-{device}", "Where each iteration's time went" + (f", GPU {device}" if len(devices) > 1 else ""), "iteration",
                             [text_of(row["Iteration"]) for row, _ in shown], series,
                             "On the device, from an iteration's first work to the next one's. Idle time is to the rounding of GPU Utilization (%)."
                             + (f" The latest {_MOST_STACKS}." if len(rows) > _MOST_STACKS else "")))
    return [plot for plot in made if plot is not None]


def windows(result: Result) -> Plot | None:
    """Several windows with the causes of idle time. A single window is shown by the verdict's bar and the plot of idle time."""
    rows: list[tuple[str, str, dict[str, float]]] = []
    for row in result.rows("window_sum", "Window", "Device"):
        if row["Device"] == "all" or not (total := _number(row, "Device Time (ns)")):
            continue
        collectives = _number(row, "Exposed Collective (ns)") or 0
        parts = {"computing": (_number(row, "Kernel Busy (ns)") or 0) - collectives, "collectives alone": collectives, "copies alone": _number(row, "Copy Only (ns)") or 0,
                 **{f"idle: {cause.lower()}": _number(row, f"Idle: {cause} (ns)") or 0 for cause in CAUSES}}
        if min(parts.values()) >= 0 and sum(parts.values()) == total:
            rows.append((text_of(row["Window"]), text_of(row["Device"]), parts))
    shown = rows[-_MOST_STACKS:]
    if len(shown) < 2:
        return None
    colours = {"computing": "compute", "collectives alone": "comm", "copies alone": "copy", **{f"idle: {cause.lower()}": COLOURS.get(cause, "rest") for cause in CAUSES}}
    patterns = {f"idle: {cause.lower()}": pattern for cause, pattern in _IDLE_PATTERNS.items()}
    several = len({device for _, device, _ in shown}) > 1
    return _columns("windows", "Where each window's time went", "window", [clean(f"{window}, GPU {device}" if several else window) for window, device, _ in shown],
                    [{"name": name, "colour": colour, "pattern": patterns.get(name, ""), "values": [parts[name] for *_, parts in shown]} for name, colour in colours.items()],
                    f"The latest {_MOST_STACKS} of {len(rows)}." if len(rows) > _MOST_STACKS else "")
