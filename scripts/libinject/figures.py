# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Figures that several commands show, computed in one place: step time, samples per second, GPU utilization."""

from __future__ import annotations

import math
import statistics

from libinject.result import Result, Row


def numbers(rows: list[Row], column: str) -> list[float]:
    """Without empty cells."""
    return [float(value) for row in rows if isinstance(value := row.get(column), int | float)]


def complete_iterations(result: Result) -> list[Row]:
    return [row for row in result.rows("iteration_sum", "Device", "Label", "Complete", "Duration (ns)")
            if row["Device"] == "all" and row["Label"] == "iteration" and row["Complete"] == 1]


def windows(result: Result) -> list[Row]:
    return [row for row in result.rows("window_sum", "Device") if row["Device"] == "all"]


def step_times(result: Result) -> list[float]:
    """Of the complete iterations, from boundary to boundary on the host. Their median is the step time: when a window opens, the host
    often runs ahead of the GPU for some steps, which makes the mean too short."""
    return [time for time in numbers(complete_iterations(result), "Duration (ns)") if time > 0]


def samples_per_second(result: Result) -> float | None:
    """Median over the complete iterations; if there are none, over the windows."""
    rates = numbers(complete_iterations(result), "Samples/s") or numbers(windows(result), "Samples/s")
    return statistics.median(rates) if rates else None


def utilization(result: Result) -> float | None:
    """Percent of the device time of all windows with at least one kernel: `Kernel Busy (ns)` by `Device Time (ns)`, added up over windows and
    GPUs."""
    rows = windows(result)
    time = math.fsum(numbers(rows, "Device Time (ns)"))
    return 100 * math.fsum(numbers(rows, "Kernel Busy (ns)")) / time if time > 0 else None
