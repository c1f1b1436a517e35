# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Values that several commands show, computed in one place: step time, samples and units of work per second, GPU utilization, energy,
memory, CPU use."""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import statistics

from libinject.result import BadFile, Result, Row

_WHOLE_NUMBER = re.compile("[0-9]{1,10}")


def numbers(rows: list[Row], column: str) -> list[float]:
    """The column's values, without empty cells."""
    return [float(value) for row in rows if isinstance(value := row.get(column), (int, float))]


def mean(rows: list[Row], column: str, weight: str) -> float | None:
    """Weighted mean over the rows that have both values."""
    known = [row for row in rows if numbers([row], column) and numbers([row], weight)]
    weights = numbers(known, weight)
    total = math.fsum(weights)
    return math.fsum(a * b for a, b in zip(numbers(known, column), weights)) / total if total > 0 else None


def complete_iterations(result: Result) -> list[Row]:
    return [row for row in result.rows("iteration_sum", "Device", "Label", "Complete", "Duration (ns)")
            if row["Device"] == "all" and row["Label"] == "iteration" and row["Complete"] == 1]


def windows(result: Result) -> list[Row]:
    return [row for row in result.rows("window_sum", "Device") if row["Device"] == "all"]


def whole_windows(result: Result) -> list[Row]:
    """Those whose Device Time goes from opening to closing on each GPU that worked in them: where records were lost it ends earlier, or is not
    known."""
    gpus = collections.Counter(row.get("Window") for row in result.rows("window_sum", "Device")
                               if row["Device"] != "all" and numbers([row], "Device Time (ns)"))
    return [row for row in windows(result) if isinstance(time := row.get("Device Time (ns)"), (int, float)) and time > 0
            and isinstance(duration := row.get("Duration (ns)"), (int, float)) and time >= duration * max(1, gpus[row.get("Window")])]


def may_outlast(result: Result) -> bool:
    """Whether the GPUs may have done part of the work of iterations after the end of their window, as where the host ran ahead of them: step
    times are those on the GPU then, or unknown. Older versions don't report them."""
    return any("Step Time (ns)" in row and row["Step Time (ns)"] != row["Duration (ns)"] for row in complete_iterations(result))


FEWEST_STEPS = 7  # number of steps from which a median has an interval


def unprofiled_steps(result: Result) -> list[Row]:
    """The iterations that ran without CUPTI, if there are enough of them, excluding those in which the host ran ahead of the GPU."""
    rows = [row for row in result.rows("step_times", "Duration (ns)") if isinstance(time := step_time(row), (int, float)) and time > 0]
    return rows if len(rows) >= FEWEST_STEPS else []


def step_time(row: Row) -> object:
    """Step time of a row of step_times.csv or iteration_sum.csv, in ns. Older versions lack the column."""
    return row["Step Time (ns)"] if "Step Time (ns)" in row else row["Duration (ns)"]


def unprofiled_count(result: Result) -> int:
    """The number of iterations without CUPTI. step_times.csv has the latest 1,000 of them, and windows of older versions don't report
    it."""
    return int(max(numbers(windows(result), "Unprofiled Iterations"), default=len(result.rows("step_times", "Duration (ns)"))))


def window_step_times(result: Result) -> list[float]:
    """Step times of the complete iterations in windows, including the profiler's overhead."""
    times = [step_time(row) for row in complete_iterations(result)]
    return [float(time) for time in times if isinstance(time, (int, float)) and time > 0]


def step_times(result: Result) -> list[float]:
    """Step times of the iterations without CUPTI; if these are unknown, of those in windows. Their median is the step time: when a window
    opens, the host often runs ahead of the GPU for some steps, which makes the mean too short."""
    return unprofiled_step_times(result) or window_step_times(result)


def unprofiled_step_times(result: Result) -> list[float]:
    return [float(time) for row in unprofiled_steps(result) if isinstance(time := step_time(row), (int, float))]


def stated_batch(options: dict) -> int | None:
    """The samples of an iteration, if INJECT_BATCH is their number."""
    text = str(options.get("INJECT_BATCH", ""))
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def samples_per_second(result: Result) -> float | None:
    """By the step time. The tables' rates are rounded: to 0.1 in older versions."""
    batch, times = stated_batch(result.run["options"]), step_times(result)
    return batch * 1e9 / statistics.median(times) if batch and times else None


def with_units(rows: list[Row]) -> list[Row]:
    """The iterations with a known number of units of work, excluding those in which the host ran ahead of the GPU."""
    return [row for row in rows if numbers([row], "Units") and numbers([row], "Duration (ns)") and numbers([row], "Units/s")]


def unit_iterations(result: Result) -> list[Row]:
    """The iterations that determine the rate: those without CUPTI or, if they are too few, the complete ones in windows."""
    steps = with_units(result.rows("step_times"))
    return steps if len(steps) >= FEWEST_STEPS else with_units(complete_iterations(result))


def unit_rate(rows: list[Row]) -> float | None:
    """Total units divided by total time, since the units of an iteration may vary."""
    time = math.fsum(numbers(rows, "Duration (ns)"))
    return math.fsum(numbers(rows, "Units")) * 1e9 / time if time > 0 else None


def units_per_second(result: Result) -> float | None:
    return unit_rate(unit_iterations(result))


def unit_source(result: Result) -> str:
    """`called`, `payload`, `loader`, `stated`; empty if no units are known."""
    return next((str(row["Units From"]) for row in windows(result) if row.get("Units From")), "")


NO_UTILIZATION = "a window has only one of 'Kernel Busy (ns)' and 'Device Time (ns)': no GPU utilization"


def utilization(result: Result) -> float | None:
    """GPU utilization in percent of the device time of all windows with at least one kernel: the sum of `Kernel Busy (ns)` divided by that
    of `Device Time (ns)`, over windows and GPUs. Windows in which a GPU did nothing have neither; where one has only one of them, the figure
    would be another, so there is none."""
    rows = windows(result)
    if any(len(numbers([row], "Kernel Busy (ns)")) != len(numbers([row], "Device Time (ns)")) for row in rows):
        result.add_problem(BadFile(result.path / "window_sum.csv", NO_UTILIZATION))
        return None
    time = math.fsum(numbers(rows, "Device Time (ns)"))
    return 100 * math.fsum(numbers(rows, "Kernel Busy (ns)")) / time if time > 0 else None


def idle_causes(row: Row) -> dict[str, float] | None:
    """Idle time of a row of window_sum.csv by cause, in ns. None if it is not known, or the causes do not add up to it: one of their columns,
    or a cell, is missing then. Older versions have fewer causes."""
    causes = {column.removeprefix("Idle: ").removesuffix(" (ns)"): float(value) for column, value in row.items()
              if column.startswith("Idle: ") and isinstance(value, (int, float))}
    return causes if numbers([row], "Idle (ns)") == [sum(causes.values())] else None


@dataclasses.dataclass(frozen=True)
class Energy:
    """Energy of all windows and GPUs for which it is known. `whole`: it is known for all of them."""

    joules: float
    error: float  # bound stated by libinject: the true value is within it
    seconds: float  # summed over GPUs; 0 where it is not known for all that `joules` is of
    whole: bool


def energy(result: Result) -> Energy | None:
    rows = [row for row in result.rows("energy_sum", "Of", "Duration (ns)", "Energy (J)", "± Energy (J)") if row["Of"] == "window"]
    known = [row for row in rows if all(numbers([row], column) for column in ("Energy (J)", "± Energy (J)"))]
    if not known:
        return None
    times = numbers(known, "Duration (ns)")
    return Energy(math.fsum(numbers(known, "Energy (J)")), math.fsum(numbers(known, "± Energy (J)")),
                  math.fsum(times) / 1e9 if len(times) == len(known) else 0.0, len(known) == len(rows))


def joules_per(what: str, result: Result) -> float | None:
    """`Sample` or `Unit`. The sum over the run's GPUs of the median over each GPU's windows."""
    devices: dict[object, list[float]] = {}
    for row in result.rows("energy_sum", "Of", "Device"):
        if row["Of"] == "window":
            devices.setdefault(row["Device"], []).extend(numbers([row], f"Energy per {what} (J)"))
    return math.fsum(map(statistics.median, devices.values())) if devices and all(devices.values()) else None


def clock(result: Result, column: str = "SM Clock (MHz)") -> float | None:
    """Mean over the windows' time; also for percentages."""
    return mean([row for row in result.rows("energy_sum", "Of", "Duration (ns)", column) if row["Of"] == "window"], column, "Duration (ns)")


@dataclasses.dataclass(frozen=True)
class Purposes:
    """What PyTorch's memory on a GPU is used for, in bytes. Unknown values are missing or None."""

    device: str
    bytes: dict[str, float]
    peak: float | None  # of the memory that the allocator had allocated
    activations: float | None  # the part of that peak that does not persist


def memory_purposes(result: Result) -> list[Purposes]:
    """For each GPU, the one with the highest peak first."""
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
    """MB: the highest reading of any GPU, over all processes, at windows' edges and within windows."""
    between = [row for row in result.rows("memory_timeline", "Of", "Highest (MB)") if row["Of"] == "in use"]
    edges = [size for edge in ("Start", "End") for size in numbers(result.rows("window_sum"), f"Memory at {edge} (MB)")]
    return max([*numbers(between, "Highest (MB)"), *edges], default=None)


def torch_reserved(result: Result) -> float | None:
    """MB: the most that PyTorch's caching allocator had reserved on any GPU."""
    rows = [row for row in result.rows("memory_timeline", "Of", "Highest (MB)") if row["Of"] == "PyTorch reserved"]
    return max(numbers(rows, "Highest (MB)"), default=None)


@dataclasses.dataclass(frozen=True)
class Processors:
    """CPU use of the process and its children. Means over the windows for which it is known; `allowed` is the minimum over all windows."""

    used: float | None
    wanted: float | None
    allowed: float | None


def processors(result: Result) -> Processors:
    rows = [row for row in result.rows("host_sum", "Role", "Span (ns)") if row["Role"] == "process"]
    return Processors(mean(rows, "Cores Used", "Span (ns)"), mean(rows, "Cores Wanted", "Span (ns)"),
                      min(numbers(rows, "Cores by Affinity") + numbers(rows, "Cores by Quota"), default=None))
