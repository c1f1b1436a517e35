# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Steps, memory, power and clocks over one time axis: what a GPU was doing while its memory grew or its clock dropped."""

from __future__ import annotations

from typing import Any

from libinject import figures
from libinject.page.parts import Plot
from libinject.report import energy, transfers
from libinject.result import Result

_MOST_STEPS = 1000  # of each kind, the latest


def plot(result: Result) -> Plot | None:
    """None if there is only the steps' own plot."""
    panels = [({"title": "step time", "unit": "ns", "zero": True}, _steps(result)), ({"title": "memory (MB)", "unit": "", "zero": True}, transfers.over_time(result)),
              *energy.over_time(result)]
    shown = [(axis, series) for axis, series in panels if series]
    if len(shown) == bool(panels[0][1]):
        return None
    return Plot("over-time", "Over time", "points", {"title": "time since CUDA's initialisation", "unit": "ns"},
                [{**series, "panel": at, "of": place} for at, (_, of_axis) in enumerate(shown) for place, series in enumerate(of_axis)], bands=transfers.windows_over_time(result),
                note="the figures are in the tables of steps, memory, and energy and clocks", panels=[axis for axis, _ in shown])


def _steps(result: Result) -> list[dict[str, Any]]:
    inside = [row for row in figures.complete_iterations(result) if "Start (ns)" in row]
    outside = [row for row in figures.unprofiled_steps(result) if "Start (ns)" in row]
    return [energy.spans(name, rows[-_MOST_STEPS:], "Step Time (ns)" if "Step Time (ns)" in rows[0] else "Duration (ns)", plain=True)
            for name, rows in (("step time in windows", inside), ("step time without the profiler", outside)) if rows]
