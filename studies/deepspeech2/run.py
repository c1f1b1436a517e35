#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""DeepSpeech 2's kind of network over batch size and precision: step time, seconds of sound a second, utilization, occupancy, what the kernels
are and what the host does. Needs PyTorch, one GPU, and the right to sample its counters.

    studies/deepspeech2/run.py --out results     # tables and README.md; some fifteen minutes

The same command goes on where it was ended.
"""

import pathlib
import sys
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from study import Point, Run, Spread, Study, ratio  # noqa: E402

PRECISIONS = "fp32,tf32,bf16,fp16"
ITERATIONS = "120"
OPTIONS = ["--batch-var", "BATCH", "--window", "iter:20+10", "--after", "exit", "--metrics", "auto", "--timeout-each", "5m", "--summary", "off"]
LONGEST = 5  # kernels
ACTIONS = 3  # library calls


def sampled(column: str) -> Callable[[Run], float | None]:
    """The mean over the windows' samples."""
    def mean(run: Run) -> float | None:
        found = [row[column] for row in run.rows("window_sum") if row["Total"] == "no" and isinstance(row.get(column), (int, float))]
        return sum(found) / len(found) if found else None
    return mean


def phase(name: str) -> Callable[[Run], float | None]:
    return lambda run: run.share("phase_sum", "Kernel Time (ns)", lambda row: row["Phase"] == name)


def family(name: str) -> Callable[[Run], float | None]:
    return lambda run: run.share("family_sum", "Total Time (ns)", lambda row: row["Family"] == name)


def rnn_rate(run: Run) -> float | None:
    """TFLOP/s of the recurrent layers' calls: the mean of the rows that have a rate, over their time."""
    rows = [row for row in run.rows("rnn_sum") if isinstance(row["TFLOP/s"], (int, float))]
    time = sum(row["GPU Time (ns)"] for row in rows)
    return sum(row["TFLOP/s"] * row["GPU Time (ns)"] for row in rows) / time if time else None


def flops(rows: list[dict]) -> int:
    """Of all calls."""
    return sum((row["FLOPs"] or 0) * row["Calls"] for row in rows)


def derived_flops(run: Run) -> float | None:
    """FLOPs of the products derived from the recurrent layers' descriptors, over those of the layers' calls."""
    layers = flops(run.rows("rnn_sum"))
    return flops([row for row in run.rows("gemm_sum") if row["Derived"] == "product"]) / layers if layers else None


def products_with_row(run: Run) -> float | None:
    """Percent of the time of products' kernels that is in a row of gemm_sum.csv."""
    products = run.total("family_sum", "Total Time (ns)", lambda row: row["Family"] == "GEMM")
    return 100 * run.total("gemm_sum", "GPU Time (ns)") / products if products else None


def kernels_a_step(run: Run) -> float | None:
    count = run.total("iteration_sum", "Kernels", lambda row: row["Device"] == "all")
    return count / run.figures["iterations"] if count and run.figures.get("iterations") else None


def actions(point: Point) -> str:
    """The outermost library calls in which the host spends most time, in the first round that is done."""
    run = next((run for run in point.rounds if run.status == "done"), None)
    rows = [row for row in run.rows("library_sum") if row["Depth"] == 0] if run else []
    whole = sum(row["Host Time (ns)"] or 0 for row in rows)
    rows.sort(key=lambda row: -(row["Host Time (ns)"] or 0))
    return ", ".join(f"{row['Call']} {100 * (row['Host Time (ns)'] or 0) / whole:.0f} %" for row in rows[:ACTIONS]) if whole else ""


def longest(points: list[Point]) -> list[dict[str, str]]:
    """The longest kernels of each precision, at the largest batch that is done."""
    found: list[dict[str, str]] = []
    for precision in dict.fromkeys(point.values.get("PREC", "") for point in points):
        done = [point for point in points if point.values.get("PREC", "") == precision and point.is_done]
        if not done:
            continue
        point = max(done, key=lambda point: int(point.values["BATCH"]))
        run = next(run for run in point.rounds if run.status == "done")
        for row in run.rows("kernel_detail")[:LONGEST]:
            grid, block = (" × ".join(str(row[f"{of}{axis}"]) for axis in "XYZ") for of in ("Grd", "Blk"))
            found.append({"Precision": precision, "Batch": point.values["BATCH"], "Time (%)": str(row["Time (%)"]), "Kernel": str(row["Name"])[:100], "Calls": str(row["Instances"]),
                          "Average (µs)": f"{row['Avg (ns)'] / 1e3:.1f}", "Grid": grid, "Block": block, "Registers": str(row["Reg/Trd"]),
                          "Shared memory (B)": str((row["StcSMem (B)"] or 0) + (row["DymSMem (B)"] or 0)), "Tensor cores": str(row["Tensor Cores"])})
    return found


# --- what the tables say ---------------------------------------------------------------------------------------------

def medians(points: list[Point], of: Callable[[Point], Spread]) -> dict[tuple[int, str], float]:
    """By batch and precision."""
    return {(int(point.values["BATCH"]), point.values["PREC"]): spread.median for point in points
            if {"BATCH", "PREC"} <= point.values.keys() and (spread := of(point)).values}


def of_precisions(points: list[Point]) -> str:
    """Gains of narrower types in time and memory, at the smallest batch and at the largest."""
    step, memory = medians(points, lambda point: point.figure("step_time_ns")), medians(points, lambda point: point.figure("peak_memory_mb"))
    told = []
    for precision in ("tf32", "bf16", "fp16"):
        batches = sorted(batch for batch, of in step if of == precision and (batch, "fp32") in step)
        ratios = [f"{step[batch, 'fp32'] / step[batch, precision]:.2f} times (batch {batch})" for batch in dict.fromkeys(batches[:1] + batches[-1:])]
        if ratios:
            text = f"{precision} is {' and '.join(ratios)} as fast as fp32"
            if (batches[-1], precision) in memory and (batches[-1], "fp32") in memory:
                text += f", with {100 * memory[batches[-1], precision] / memory[batches[-1], 'fp32']:.0f} % of its memory"
            told.append(text)
    return f"{'; '.join(told)} (*Speed*)." if told else ""


def of_batches(points: list[Point]) -> str:
    """The gain from a larger batch."""
    rate = medians(points, lambda point: point.figure("units_per_s"))
    told = []
    for precision in dict.fromkeys(of for _, of in rate):
        batches = sorted(batch for batch, of in rate if of == precision)
        if len(batches) > 1:
            told.append(f"{precision} {rate[batches[-1], precision] / rate[batches[0], precision]:.1f} times (batch {batches[0]} to {batches[-1]})")
    return f"Throughput grows with the batch: {', '.join(told)} (*Speed*)." if told else ""


def of_limits(points: list[Point]) -> str:
    """How far the fastest point is from the GPU's limits."""
    rate = medians(points, lambda point: point.figure("units_per_s"))
    busy, tensor = medians(points, lambda point: point.figure("gpu_utilization_pct")), medians(points, lambda point: point.spread(sampled("Tensor Pipe (%)")))
    both = set(rate) & set(busy) & set(tensor)
    if not both:
        return ""
    batch, precision = fastest = max(both, key=lambda key: rate[key])
    return (f"The fastest point, {precision} at batch {batch}, keeps the GPU busy for {busy[fastest]:.0f} % of the time and the tensor pipe for {tensor[fastest]:.1f} %; "
            f"no point has a tensor pipe at more than {max(tensor.values()):.1f} % (*Speed*).")


def of_phases(points: list[Point]) -> str:
    """Ratio of forward to backward, and the share of products in both."""
    ratios = tuple(spread.median for point in points if (spread := ratio(point.spread(phase("backward")), point.spread(phase("forward")))).values)
    products = tuple(medians(points, lambda point: point.spread(family("GEMM"))).values())
    if not ratios or not products:
        return ""
    return f"The backward pass takes {Spread(ratios).text(1)} times as long as the forward pass; products are {Spread(products).text(0)} % of kernel time (*Kernels and the host*)."


def of_products(points: list[Point]) -> str:
    """Whether the products inside the recurrent layers are all in gemm_sum.csv."""
    derived, rows = (tuple(value for point in points for value in point.spread(of).values) for of in (derived_flops, products_with_row))
    if not derived or not rows:
        return ""
    return (f"The products derived from the recurrent layers' descriptors have {Spread(derived).text(4)} times the FLOPs of the layers' calls, "
            f"and {Spread(rows).text(1)} % of the time of products' kernels has a row (`gemm_sum.csv`, `rnn_sum.csv`).")


def main(arguments: list[str] | None = None) -> int:
    study = Study(HERE, __doc__, arguments)
    points = study.sweep("batch", {"BATCH": "1,4,16,64,256", "PREC": PRECISIONS}, [sys.executable, str(HERE / "train.py"), "{BATCH}", "{PREC}", ITERATIONS], OPTIONS)
    study.table("speed", points, lambda point: {
        "Runs": point.status, "Step (ms)": point.figure("step_time_ns", 1e-6).text(1), "Sound (s/s)": point.figure("units_per_s").text(0),
        "GPU utilization (%)": point.figure("gpu_utilization_pct").text(), "SM active (%)": point.spread(sampled("SM Active (%)")).text(),
        "Achieved occupancy (%)": point.figure("achieved_occupancy_pct").text(), "IPC": point.spread(sampled("IPC")).text(2),
        "Tensor pipe (%)": point.spread(sampled("Tensor Pipe (%)")).text(), "Peak memory (GB)": point.figure("peak_memory_mb", 1e-3).text(2)})
    study.table("kernels", points, lambda point: {
        "Kernels a step": point.spread(kernels_a_step).text(0), "Forward (%)": point.spread(phase("forward")).text(), "Backward (%)": point.spread(phase("backward")).text(),
        "Optimizer (%)": point.spread(phase("optimizer")).text(), "Products (%)": point.spread(family("GEMM")).text(), "Cells (%)": point.spread(family("RNN cell")).text(),
        "Recurrent layers (TFLOP/s)": point.spread(rnn_rate).text(2), "Host time in library calls": actions(point)})
    study.rows("longest", longest(points))
    study.findings([of_precisions(points), of_batches(points), of_limits(points), of_phases(points), of_products(points)])
    study.figures.update(conditions=study.conditions(points))
    return study.finish()


if __name__ == "__main__":
    sys.exit(main())
