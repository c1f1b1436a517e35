# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Figures that several commands show, computed in one place: step time, samples and units of work per second, GPU utilization, energy, memory,
processors."""

from __future__ import annotations

import dataclasses
import math
import statistics

from libinject.result import Result, Row


def numbers(rows: list[Row], column: str) -> list[float]:
    """Without empty cells."""
    return [float(value) for row in rows if isinstance(value := row.get(column), (int, float))]


def mean(rows: list[Row], column: str, weight: str) -> float | None:
    """Of the rows that have both."""
    known = [row for row in rows if numbers([row], column) and numbers([row], weight)]
    weights = numbers(known, weight)
    total = math.fsum(weights)
    return math.fsum(a * b for a, b in zip(numbers(known, column), weights)) / total if total > 0 else None


def complete_iterations(result: Result) -> list[Row]:
    return [row for row in result.rows("iteration_sum", "Device", "Label", "Complete", "Duration (ns)")
            if row["Device"] == "all" and row["Label"] == "iteration" and row["Complete"] == 1]


def windows(result: Result) -> list[Row]:
    return [row for row in result.rows("window_sum", "Device") if row["Device"] == "all"]


FEWEST_STEPS = 7  # whose median has an interval


def unprofiled_steps(result: Result) -> list[Row]:
    """The iterations that ran without CUPTI, if there are enough of them; not those in which the host ran ahead of the GPU."""
    rows = [row for row in result.rows("step_times", "Duration (ns)") if isinstance(time := step_time(row), (int, float)) and time > 0]
    return rows if len(rows) >= FEWEST_STEPS else []


def step_time(row: Row) -> object:
    """Of a row of step_times.csv or iteration_sum.csv, in ns. Older versions have no such column."""
    return row["Step Time (ns)"] if "Step Time (ns)" in row else row["Duration (ns)"]


def unprofiled_count(result: Result) -> int:
    """How many iterations ran without CUPTI: step_times.csv has the latest 1,000 of them, and older versions' windows do not say."""
    return int(max(numbers(windows(result), "Unprofiled Iterations"), default=len(result.rows("step_times", "Duration (ns)"))))


def window_step_times(result: Result) -> list[float]:
    """Of the complete iterations in windows, with what the profiler adds to them."""
    times = [step_time(row) for row in complete_iterations(result)]
    return [float(time) for time in times if isinstance(time, (int, float)) and time > 0]


def step_times(result: Result) -> list[float]:
    """Of the iterations that ran without CUPTI; where these are not known, of those in windows. Their median is the step time: when a window
    opens, the host often runs ahead of the GPU for some steps, which makes the mean too short."""
    return unprofiled_step_times(result) or window_step_times(result)


def unprofiled_step_times(result: Result) -> list[float]:
    return [float(time) for row in unprofiled_steps(result) if isinstance(time := step_time(row), (int, float))]


def samples_per_second(result: Result) -> float | None:
    """Median over the iterations that ran without CUPTI; where these are not known, over those in windows, or over the windows."""
    rates = (numbers(unprofiled_steps(result), "Samples/s") or numbers(complete_iterations(result), "Samples/s")
             or numbers(windows(result), "Samples/s in Window"))
    return statistics.median(rates) if rates else None


def with_units(rows: list[Row]) -> list[Row]:
    """The iterations of which it is known how many units of work they are, but for those in which the host ran ahead of the GPU."""
    return [row for row in rows if numbers([row], "Units") and numbers([row], "Duration (ns)") and numbers([row], "Units/s")]


def unit_iterations(result: Result) -> list[Row]:
    """Whose rate counts: those that ran without CUPTI, or, where they are too few, the complete ones in windows."""
    steps = with_units(result.rows("step_times"))
    return steps if len(steps) >= FEWEST_STEPS else with_units(complete_iterations(result))


def unit_rate(rows: list[Row]) -> float | None:
    """All units by all the time: the units of an iteration may vary."""
    time = math.fsum(numbers(rows, "Duration (ns)"))
    return math.fsum(numbers(rows, "Units")) * 1e9 / time if time > 0 else None


def units_per_second(result: Result) -> float | None:
    return unit_rate(unit_iterations(result))


def unit_source(result: Result) -> str:
    """`called`, `payload`, `loader`, `stated`; empty where no units are known."""
    return next((str(row["Units From"]) for row in windows(result) if row.get("Units From")), "")


def utilization(result: Result) -> float | None:
    """Percent of the device time of all windows with at least one kernel: `Kernel Busy (ns)` by `Device Time (ns)`, added up over windows and
    GPUs."""
    rows = windows(result)
    time = math.fsum(numbers(rows, "Device Time (ns)"))
    return 100 * math.fsum(numbers(rows, "Kernel Busy (ns)")) / time if time > 0 else None


@dataclasses.dataclass(frozen=True)
class Energy:
    """Of all windows and GPUs whose energy is known. `whole`: that is all of them."""

    joules: float
    error: float  # that libinject states: the true value is within it
    seconds: float  # of GPUs
    whole: bool


def energy(result: Result) -> Energy | None:
    rows = [row for row in result.rows("energy_sum", "Of", "Duration (ns)", "Energy (J)", "± Energy (J)") if row["Of"] == "window"]
    known = [row for row in rows if numbers([row], "Energy (J)")]
    if not known:
        return None
    return Energy(math.fsum(numbers(known, "Energy (J)")), math.fsum(numbers(known, "± Energy (J)")), math.fsum(numbers(known, "Duration (ns)")) / 1e9,
                  len(known) == len(rows))


def joules_per(what: str, result: Result) -> float | None:
    """`Sample` or `Unit`. Of all GPUs of the run: of each the median over its windows."""
    devices: dict[object, list[float]] = {}
    for row in result.rows("energy_sum", "Of", "Device"):
        if row["Of"] == "window":
            devices.setdefault(row["Device"], []).extend(numbers([row], f"Energy per {what} (J)"))
    return math.fsum(map(statistics.median, devices.values())) if devices and all(devices.values()) else None


def clock(result: Result, column: str = "SM Clock (MHz)") -> float | None:
    """Mean over the windows' readings; likewise of shares of these."""
    return mean([row for row in result.rows("energy_sum", "Of", "Clock Readings", column) if row["Of"] == "window"], column, "Clock Readings")


@dataclasses.dataclass(frozen=True)
class Purposes:
    """What PyTorch's memory on a GPU is for, in bytes. What is not known is not there, or None."""

    device: str
    bytes: dict[str, float]
    peak: float | None  # of what the allocator had allocated
    activations: float | None  # of that peak, what does not last


def memory_purposes(result: Result) -> list[Purposes]:
    """Of each GPU, the one with the highest peak first."""
    devices: dict[str, list[Row]] = {}
    for row in result.rows("memory_purpose", "Device", "Purpose", "Total", "Memory (B)", "Peak Allocated (B)", "Activations at Peak (B)"):
        devices.setdefault(str(row["Device"]), []).append(row)
    found = []
    for device, rows in devices.items():
        total = [row for row in rows if row["Total"] == "yes"]
        peak, activations = (next(iter(numbers(total, column)), None) for column in ("Peak Allocated (B)", "Activations at Peak (B)"))
        found.append(Purposes(device, {str(row["Purpose"]): float(row["Memory (B)"]) for row in rows if row["Total"] != "yes" and numbers([row], "Memory (B)")},
                              peak, activations))
    return sorted(found, key=lambda each: -(each.peak or 0.0))


def memory_in_use(result: Result) -> float | None:
    """MB: the highest reading of a GPU, of all processes together, at windows' edges and in between."""
    between = [row for row in result.rows("memory_timeline", "Of", "Highest (MB)") if row["Of"] == "in use"]
    edges = [size for edge in ("Start", "End") for size in numbers(result.rows("window_sum"), f"Memory at {edge} (MB)")]
    return max([*numbers(between, "Highest (MB)"), *edges], default=None)


def torch_reserved(result: Result) -> float | None:
    """MB: the most that PyTorch's caching allocator had reserved on a GPU."""
    rows = [row for row in result.rows("memory_timeline", "Of", "Highest (MB)") if row["Of"] == "PyTorch reserved"]
    return max(numbers(rows, "Highest (MB)"), default=None)


@dataclasses.dataclass(frozen=True)
class Processors:
    """Of the process and its children. Means over the windows in which they are known; `allowed` is the least of all windows."""

    used: float | None
    wanted: float | None
    allowed: float | None


def processors(result: Result) -> Processors:
    rows = [row for row in result.rows("host_sum", "Role", "Span (ns)") if row["Role"] == "process"]
    return Processors(mean(rows, "Cores Used", "Span (ns)"), mean(rows, "Cores Wanted", "Span (ns)"),
                      min(numbers(rows, "Cores by Affinity") + numbers(rows, "Cores by Quota"), default=None))
