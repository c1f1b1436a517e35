# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A point's figures, from its tables."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import statistics

from libinject import figures
from libinject.compare import noise
from libinject.compare.measures import Basis, Run, number
from libinject.result import BadFile, Result, printable
from libinject.sweep.points import Point, Status, Sweep

# Name in sweep.csv and JSON.
FIGURES = ("iterations", "unprofiled_iterations", "step_time_ns", "step_time_q1_ns", "step_time_q3_ns", "window_step_time_ns", "samples_per_s",
           "units_per_s", "joules_per_unit",
           "gpu_utilization_pct", "occupancy_pct", "achieved_occupancy_pct", "kernel_time_ns", "gemm_tflops", "gemm_time_ns", "flop_rate_tflops",
           "peak_memory_mb", "failed_allocations", "memory_in_use_mb", "torch_reserved_mb", "torch_peak_mb", "activations_mb", "parameters_mb", "gradients_mb",
           "optimizer_state_mb", "buffers_mb", "workspaces_mb", "communication_buffers_mb", "power_w", "joules_per_sample", "sm_clock_mhz", "clocks_held_down_pct", "processors",
           "processors_wanted", "processors_allowed")
# What memory at the peak of PyTorch's allocator is for: these add up to it.
AT_PEAK = {"parameters": "parameters_mb", "gradients": "gradients_mb", "optimizer state": "optimizer_state_mb", "buffers": "buffers_mb",
           "workspaces": "workspaces_mb", "communication buffers": "communication_buffers_mb", "activations": "activations_mb"}
_MOST_NAMED = 3


@dataclasses.dataclass
class Measured:
    point: Point
    figures: dict[str, float | None] = dataclasses.field(default_factory=dict)
    families: dict[str, float] = dataclasses.field(default_factory=dict)  # percent of kernel time
    verdict: str = ""
    unprofiled: bool = False  # step time and throughput are of iterations that ran without CUPTI
    problems: list[str] = dataclasses.field(default_factory=list)

    def as_dict(self) -> dict:
        return {"values": self.point.values, "status": self.point.status.value, "why": self.point.why, "exit_status": self.point.exit_status,
                "seconds": self.point.seconds, "folder": self.point.folder, "unprofiled": self.unprofiled,
                **{name: self.figures.get(name) for name in FIGURES}, "verdict": self.verdict, "family_time_pct": self.families, "problems": self.problems}


def measure_all(sweep: Sweep) -> list[Measured]:
    """With step times of the same kind for all points."""
    found = [_read(sweep, point) for point in sweep.points]
    done = [(item, bool(run.steps)) for item, run in found if run is not None and item.point.status is Status.DONE and (run.complete or run.steps)]
    lacking = [item for item, enough in done if not enough]
    if lacking:
        which = ", ".join(printable(item.point.folder, 40) for item in lacking[:_MOST_NAMED])
        lacking[0].problems.append("the step times include the profiler's overhead: there are fewer than seven step times without it in "
                                   f"{which}{f' and {len(lacking) - _MOST_NAMED} more' if len(lacking) > _MOST_NAMED else ''}")
    measured = []
    while found:
        item, run = found.pop(0)  # the tables of a run that has been measured need not stay in memory
        item.unprofiled = bool(done) and not lacking
        if run is not None:
            _measure(item, run)
        measured.append(item)
    return measured


def _read(sweep: Sweep, point: Point) -> tuple[Measured, Run | None]:
    found = Measured(point)
    results = []
    for folder in sweep.tables(point):
        try:
            results.append(Result(folder))
        except BadFile as problem:
            found.problems.append(printable(str(problem), 500))
    if not results:
        return found, None
    # Of several processes (ranks, workers), the one that gave the GPU most work represents the point.
    result = max(results, key=_kernel_time)
    if len(results) > 1:
        found.problems.append(f"{point.folder}: {len(results)} processes wrote tables: the one shown, {printable(result.name, 40)}, has most kernel time")
    return found, Run(result)


def _measure(found: Measured, run: Run) -> None:
    result, basis = run.result, run.bases()[0]
    run.measure(basis, found.unprofiled)
    values = found.figures
    # Where the run ended early its windows may be cut; memory counts all the same.
    if "peak_memory" in run.metrics:
        values["peak_memory_mb"] = run.metrics["peak_memory"].value
    failed = figures.numbers([row for row in result.rows("memory_sum", "API", "Device", "Failed") if row["API"] == "[all]" and row["Device"] != "host"], "Failed")
    if failed or (table := result.table("memory_sum")) is not None and "Failed" in table.columns:
        values["failed_allocations"] = math.fsum(failed)
    if found.point.status is Status.DONE:
        _measure_work(run, result, basis, found)
    found.problems += [printable(problem, 500) for problem in result.problems]


def _kernel_time(result: Result) -> float:
    return math.fsum(number(row, "Kernel Time (ns)") for row in result.rows("window_sum", "Device", "Kernel Time (ns)") if row["Device"] == "all")


def _measure_work(run: Run, result: Result, basis: Basis, found: Measured) -> None:
    values = found.figures
    values["iterations"] = run.iterations
    values["unprofiled_iterations"] = figures.unprofiled_count(result)
    for name, metric in (("step_time_ns", "step_time"), ("samples_per_s", "throughput"), ("gpu_utilization_pct", "utilization"),
                         ("gemm_tflops", "gemm_rate"), ("flop_rate_tflops", "flop_rate")):
        if metric in run.metrics:
            values[name] = run.metrics[metric].value
    values["units_per_s"] = figures.unit_rate(run.with_units())
    if times := figures.window_step_times(result):
        values["window_step_time_ns"] = statistics.median(times)
    if basis is Basis.ITERATION:
        for name in ("kernel_time", "gemm_time"):
            if name in run.metrics:
                values[f"{name}_ns"] = run.metrics[name].value
    if "power" in run.metrics:
        values["power_w"] = run.metrics["power"].value
    values["joules_per_sample"], values["joules_per_unit"] = (figures.joules_per(of, result) for of in ("Sample", "Unit"))
    values["sm_clock_mhz"], values["clocks_held_down_pct"] = figures.clock(result), figures.clock(result, "Held Down (%)")
    values["memory_in_use_mb"] = figures.memory_in_use(result)
    values["torch_reserved_mb"] = figures.torch_reserved(result)
    host = figures.processors(result)
    values["processors"], values["processors_wanted"], values["processors_allowed"] = host.used, host.wanted, host.allowed
    for memory in figures.memory_purposes(result)[:1]:
        sizes = {**memory.bytes, "activations": memory.activations}
        values |= {column: _megabytes(sizes.get(purpose)) for purpose, column in AT_PEAK.items()} | {"torch_peak_mb": _megabytes(memory.peak)}
    steps = sorted(run.metrics["step_time"].series) if "step_time" in run.metrics else []
    if len(steps) >= 2:
        values["step_time_q1_ns"], values["step_time_q3_ns"] = noise.quantile(steps, 0.25), noise.quantile(steps, 0.75)
    values["occupancy_pct"] = figures.mean(result.rows("kernel_detail", "Total Time (ns)", "Occupancy (%)"), "Occupancy (%)", "Total Time (ns)")
    values["achieved_occupancy_pct"] = figures.mean(run.windows, "Occupancy (%)", "Duration (ns)")
    total = math.fsum(m.value for m in run.tables["families"].values())
    if total > 0:
        found.families = {printable(name, 80): 100 * m.value / total for name, m in run.tables["families"].items()}
    found.verdict = ", ".join(dict.fromkeys(printable(str(part.get("verdict")), 60) for part in result.run.get("diagnosis") or []
                                            if isinstance(part, dict)))


def _megabytes(size: float | None) -> float | None:
    return None if size is None else size / 1e6


def _plain(text: str) -> str:
    """Not a formula to a spreadsheet, as in libinject's tables; numbers are left alone."""
    try:
        float(text)
    except ValueError:
        return "'" + text if text.lstrip("'")[:1] in {"=", "+", "-", "@", "\t", "\r", "\n"} else text
    return text


def as_csv(sweep: Sweep, measured: list[Measured]) -> str:
    """A row for each point; families have columns of their own, those with most time first."""
    families: dict[str, float] = {}
    for item in measured:
        for name, share in item.families.items():
            families[name] = families.get(name, 0.0) + share
    ordered = sorted(families, key=lambda name: (-families[name], name))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = ["status", "why", "exit_status", "seconds", "folder", *FIGURES, "verdict", *(_plain(printable(f"{name} (%)", 90)) for name in ordered)]
    # A variable may have the name of a column.
    writer.writerow([*(_plain(printable(name, 80)) + (" (--var)" if name in columns else "") for name in sweep.variables), *columns])
    for item in measured:
        point = item.point
        writer.writerow([*(_plain(printable(point.values[name], 200)) for name in sweep.variables), point.status.value, _plain(printable(point.why, 300)),
                         _cell(point.exit_status), _cell(point.seconds), _plain(printable(point.folder, 200)), *(_cell(item.figures.get(name)) for name in FIGURES),
                         _plain(printable(item.verdict, 200)), *(_cell(item.families.get(name, 0.0) if item.families else None) for name in ordered)])
    return out.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else f"{value:.10g}"


