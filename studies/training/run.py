#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Seven kinds of training as benchmarks of training have them, at two batch sizes: throughput, utilization without the profiler's overhead, FP32 and
tensor utilization, processors, memory by purpose, what each is bound by, and long kernels of low utilization. Needs PyTorch, torchvision,
one GPU, and the right to sample its counters.

    studies/training/run.py --out results     # tables and README.md; some fifteen minutes

The same command goes on where it was ended.
"""

import pathlib
import sys
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from study import Point, Run, Spread, Study  # noqa: E402

# With the unit of each; train.py has the sizes.
UNITS = {"image_classification": "images", "object_detection": "images", "translation_transformer": "tokens", "translation_lstm": "tokens", "speech": "sounds",
         "gan": "images", "reinforcement_learning": "games' steps"}
ITERATIONS = "100"
OPTIONS = ["--window", "iter:30+10", "--after", "exit", "--metrics", "auto", "--timeout-each", "4m", "--summary", "off"]
NONE = "–"
KERNELS = 3
LONG = 10.0  # percent of kernel time
PURPOSES = (("Parameters", "parameters_mb"), ("Gradients", "gradients_mb"), ("Optimizer", "optimizer_state_mb"), ("Activations at peak", "activations_mb"),
            ("Workspaces", "workspaces_mb"))


def windows(column: str) -> Callable[[Run], float | None]:
    """The mean over the windows."""
    def mean(run: Run) -> float | None:
        found = [row[column] for row in run.rows("window_sum") if row["Total"] == "no" and isinstance(row.get(column), (int, float))]
        return sum(found) / len(found) if found else None
    return mean


def diagnosis(run: Run) -> dict:
    """The diagnosis of the first GPU, since only one is used."""
    return next((found for result in run.results for found in result.run.get("diagnosis") or []), {})


def verdicts(point: Point) -> str:
    return ", ".join(dict.fromkeys(str(diagnosis(run).get("verdict", "")) for run in point.rounds if run.results))


def without_overhead(run: Run) -> float | None:
    """Utilization without the profiler's overhead or, if too few steps determined it, with the overhead."""
    found = windows("Utilization w/o Overhead (%)")(run)
    return run.figures.get("gpu_utilization_pct") if found is None else found


def unused(points: list[Point]) -> list[dict[str, str]]:
    """For each point's first round that is done: the kernels that leave most of the GPU unused for longest."""
    rows = []
    for point in points:
        run = next((run for run in point.rounds if run.status == "done"), None)
        found = [row for row in run.rows("kernel_metrics") if row["Unused Time (ns)"]] if run else []
        whole = run.total("window_sum", "Kernel Time (ns)", lambda row: row["Total"] == "no") if run else None
        for row in sorted(found, key=lambda row: -row["Unused Time (ns)"])[:KERNELS]:
            rows.append({"Workload": point.values["WORKLOAD"], "Size": point.values.get("SIZE", NONE), "Kernel": str(row["Name"])[:90],
                         "Kernel time (%)": f"{100 * row['Total Time (ns)'] / whole:.1f}" if whole else NONE, "Busiest unit": str(row["Busiest Unit"]),
                         "Of it used (%)": f"{row['Utilization (%)']:.1f}", "Unused (ms)": f"{row['Unused Time (ns)'] / 1e6:.2f}"})
    return rows


# --- what the tables say ---------------------------------------------------------------------------------------------

def title(point: Point) -> str:
    return f"{point.values['WORKLOAD'].replace('_', ' ')}, {point.values.get('SIZE', NONE)}"


def of_verdicts(points: list[Point]) -> str:
    """What limits them, by size."""
    told = []
    for size in dict.fromkeys(point.values.get("SIZE", NONE) for point in points):
        of_size = [verdicts(point) for point in points if point.values.get("SIZE", NONE) == size and verdicts(point)]
        counts = {verdict: of_size.count(verdict) for verdict in sorted(set(of_size), key=lambda verdict: -of_size.count(verdict))}
        if counts:
            told.append(f"{size}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return f"Bound by, at each size: {'; '.join(told)} (*Speed*)." if told else ""


def of_sizes(points: list[Point]) -> str:
    """The gain from a larger batch."""
    by_name: dict[str, dict[str, Point]] = {}
    for point in points:
        by_name.setdefault(point.values["WORKLOAD"], {})[point.values.get("SIZE", NONE)] = point
    won = {}
    for name, sizes in by_name.items():
        small, large = (sizes[size].figure("units_per_s") if size in sizes else None for size in ("small", "large"))
        if small and large and small.values and large.values:
            won[name] = large.median / small.median
    if len(won) < 2:
        return ""
    least, most = min(won, key=lambda name: won[name]), max(won, key=lambda name: won[name])
    return f"With the larger batch, throughput is {won[least]:.1f} ({least.replace('_', ' ')}) to {won[most]:.1f} times ({most.replace('_', ' ')}) as high (*Speed*)."


def of_tensor_cores(points: list[Point]) -> str:
    """How much of the tensor pipe is used."""
    shares = {title(point): spread.median for point in points if (spread := point.spread(windows("Tensor Utilization (%)"))).values}
    if len(shares) < 2:
        return ""
    most = max(shares, key=lambda name: shares[name])
    return f"The tensor pipe's utilization is at most {shares[most]:.1f} % ({most}); the median is {Spread(tuple(shares.values())).median:.1f} % (*Speed*)."


def of_idle_kernels(rows: list[dict[str, str]]) -> str:
    """The one that uses least, among those that run for a tenth of the time."""
    long = [row for row in rows if row["Kernel time (%)"] != NONE and float(row["Kernel time (%)"]) >= LONG]
    if not long:
        return ""
    worst = min(long, key=lambda row: float(row["Of it used (%)"]))
    name = worst["Kernel"].replace("(anonymous namespace)::", "").partition("(")[0].partition("<")[0]
    return (f"Of the kernels with {LONG:.0f} % of kernel time or more, `{name}` uses least of the GPU: {worst['Of it used (%)']} % of its busiest unit, in {worst['Kernel time (%)']} % of kernel time ({worst['Workload'].replace('_', ' ')}, {worst['Size']}; "
            "*Long kernels*).")


def of_memory(points: list[Point]) -> str:
    """How much memory activations take."""
    shares = {}
    for point in points:
        activations, peak = point.figure("activations_mb"), point.figure("peak_memory_mb")
        if activations.values and peak.values:
            shares[title(point)] = 100 * activations.median / peak.median
    if len(shares) < 2:
        return ""
    least, most = min(shares, key=lambda name: shares[name]), max(shares, key=lambda name: shares[name])
    return f"Activations are {shares[least]:.0f} % ({least}) to {shares[most]:.0f} % ({most}) of the peak (*Memory*)."


def main(arguments: list[str] | None = None) -> int:
    study = Study(HERE, __doc__, arguments)
    points = study.sweep("workloads", {"WORKLOAD": ",".join(UNITS), "SIZE": "small,large"},
                         [sys.executable, str(HERE / "train.py"), "{WORKLOAD}", "{SIZE}", ITERATIONS], OPTIONS)
    study.table("speed", points, lambda point: {
        "Runs": point.status, "Step (ms)": point.figure("step_time_ns", 1e-6).text(2), "Units/s": point.figure("units_per_s").text(0),
        "Unit": UNITS.get(point.values["WORKLOAD"], NONE), "GPU utilization (%)": point.spread(without_overhead).text(),
        "FP32 (%)": point.spread(windows("FP32 Utilization (%)")).text() or NONE, "Tensor (%)": point.spread(windows("Tensor Utilization (%)")).text() or NONE,
        "Processors used": point.figure("processors").text(2) or NONE, "Bound by": verdicts(point)})
    study.table("memory", points, lambda point: {
        "Peak (GB)": point.figure("peak_memory_mb", 1e-3).text(2), **{f"{name} (MB)": point.figure(figure).text(1) or NONE for name, figure in PURPOSES}})
    rows = unused(points)
    study.rows("unused", rows)
    study.findings([of_verdicts(points), of_sizes(points), of_tensor_cores(points), of_idle_kernels(rows), of_memory(points)])
    study.figures.update(conditions=study.conditions(points))
    return study.finish()


if __name__ == "__main__":
    sys.exit(main())
