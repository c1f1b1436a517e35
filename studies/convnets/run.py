#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""AlexNet, ResNet-18 and VGG-16 over their batch size, on one GPU and on all there are: algorithms of convolutions, share of collectives,
launches, copies, FLOPs, and what is lost in scaling. Needs PyTorch and torchvision.

    studies/convnets/run.py --out results      # tables and README.md; some ten minutes on one GPU, twenty on two

The same command goes on where it was ended.
"""

import pathlib
import sys
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from study import Point, Run, Spread, Study, ratio  # noqa: E402

NETWORKS = "alexnet,resnet18,vgg16"
ITERATIONS = "200"
OPTIONS = ["--batch-var", "BATCH", "--window", "iter:20+10", "--after", "exit", "--timeout-each", "3m", "--summary", "off"]
ALGORITHMS = ("Winograd", "implicit GEMM", "GEMM", "FFT", "direct", "other")
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "broadcast", "reduce", "send/receive", "collective other")
MEMORY = ("cudaMemcpy", "cudaMemset", "cuMemset", "cudaMalloc", "cudaFree")
LAUNCHES = ("cudaLaunchKernel", "__cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")


def family_share(*families: str):
    """Share of the kernels' time, in percent."""
    return lambda run: run.share("family_sum", "Total Time (ns)", lambda row: row["Family"] in families)


def convolutions(run: Run) -> float | None:
    return run.share("family_sum", "Total Time (ns)", lambda row: row["Family"].startswith("convolution"))


def algorithm_share(point: Point, name: str) -> Spread:
    """Share of the convolutions' own kernels, in percent."""
    def time(run: Run, algorithm: str | None) -> float | None:
        start = "convolution " + (algorithm or "")
        passes = ("", " forward", " data gradient", " filter gradient")
        return run.total("family_sum", "Total Time (ns)", lambda row: row["Family"] in {start + name for name in passes} if algorithm else row["Family"].startswith(start))

    return ratio(point.spread(lambda run: time(run, name)), point.spread(lambda run: time(run, None)), 100)


def algorithms(point: Point) -> str:
    """Algorithms with half a percent or more, the largest first."""
    shares = [(algorithm_share(point, name), name) for name in ALGORITHMS]
    found = sorted(((share.median, name) for share, name in shares if share.values and share.median >= 0.5), reverse=True)
    return ", ".join(f"{name} {share:.0f} %" for share, name in found)


def api_share(*starts: str):
    """Share of the time in hooked calls, in percent."""
    return lambda run: run.share("cuda_api_sum", "Total Time (ns)", lambda row: row["Name"].startswith(starts))


def windows(run: Run, whole: str = "no") -> list[dict]:
    return [row for row in run.rows("window_sum") if row["Total"] == whole]


def concurrency(run: Run) -> float | None:
    found = [row["Kernel Concurrency"] for row in windows(run) if isinstance(row["Kernel Concurrency"], (int, float))]
    return max(found) if found else None


def copied(run: Run, column: str) -> float | None:
    """Copies from host to device: megabytes in windows, or nanoseconds."""
    return run.total("copy_sum", column, lambda row: row["Direction"] == "Host-to-Device")


def copy_rate(run: Run) -> float | None:
    size, time = copied(run, "Total (MB)"), copied(run, "Total Time (ns)")
    return size * 1e6 / time if size and time else None  # GB/s: bytes per nanosecond


def copy_size(run: Run) -> float | None:
    count, size = copied(run, "Count"), copied(run, "Total (MB)")
    return size / count if size and count else None


def exposed(run: Run) -> float | None:
    """Share of the GPUs' time in windows during which only a collective ran, in percent."""
    rows = [row for row in windows(run) if isinstance(row["Exposed Collective (ns)"], (int, float)) and row["Device Time (ns)"]]
    return 100 * sum(row["Exposed Collective (ns)"] for row in rows) / sum(row["Device Time (ns)"] for row in rows) if rows else None


def one_gpu(study: Study, points: list[Point]) -> None:
    study.table("speed", points, lambda point: {
        "Runs": point.status, "Step (ms)": point.figure("step_time_ns", 1e-6).text(2), "Images/s": point.figure("samples_per_s").text(0),
        "GPU utilization (%)": point.figure("gpu_utilization_pct").text(), "TFLOP/s": point.figure("flop_rate_tflops").text(2) or "–",
        "Kernels at once": point.spread(concurrency).text(2), "Peak memory (GB)": point.figure("peak_memory_mb", 1e-3).text(2)})
    study.table("kernels", points, lambda point: {
        "Convolutions by algorithm": algorithms(point), "Convolutions (%)": point.spread(convolutions).text(),
        "Pooling, backward (%)": point.spread(family_share("pooling backward")).text(2), "Products (%)": point.spread(family_share("GEMM")).text(),
        "Normalization (%)": point.spread(family_share("normalization")).text(), "Optimizer (%)": point.spread(family_share("optimizer")).text()})
    study.table("host", points, lambda point: {
        "Launches (% of API time)": point.spread(api_share(*LAUNCHES)).text(), "Copies and memory (% of API time)": point.spread(api_share(*MEMORY)).text(),
        "Copy to the GPU (MB)": point.spread(copy_size).text(2), "Copy rate (GB/s)": point.spread(copy_rate).text()})


def efficiency(one: list[Point], point: Point, gpus: int) -> Spread:
    """Throughput relative to that of one GPU with the same batch times the number of GPUs, in percent."""
    for alone in one:
        if all(alone.values.get(name) == point.values.get(name) for name in ("MODEL", "BATCH")):
            return ratio(point.figure("samples_per_s", gpus), alone.figure("samples_per_s"), 100 / gpus)
    return Spread(())


def scaling(study: Study, one: list[Point], several: list[Point], gpus: int) -> None:
    def cells(point: Point) -> dict[str, str]:
        return {"Runs": point.status, "Images/s": point.figure("samples_per_s", gpus).text(0), "Efficiency (%)": efficiency(one, point, gpus).text(),
                "Collectives (% of kernels)": point.spread(family_share(*COLLECTIVES)).text(), "Broadcast (%)": point.spread(family_share("broadcast")).text(),
                "All-reduce and reduce (%)": point.spread(family_share("all-reduce", "reduce")).text(), "Nothing but collectives (% of time)": point.spread(exposed).text(),
                "GPU utilization (%)": point.figure("gpu_utilization_pct").text()}

    study.table("scaling", several, cells)


# --- what the tables say ---------------------------------------------------------------------------------------------

def at(point: Point) -> str:
    return f"{point.values['MODEL']} at batch {point.values['BATCH']}"


def extremes(points: list[Point], of: Callable[[Point], Spread]) -> tuple[tuple[float, str], tuple[float, str]] | None:
    """The lowest and the highest median, each with its point's name. None if there are fewer than two."""
    found = sorted((spread.median, at(point)) for point in points if {"MODEL", "BATCH"} <= point.values.keys() and (spread := of(point)).values)
    return (found[0], found[-1]) if len(found) > 1 else None


def of_algorithms(points: list[Point]) -> str:
    told = []
    for name in ("Winograd", "FFT"):
        if found := extremes(points, lambda point, name=name: algorithm_share(point, name)):
            _, (most, where) = found
            if most >= 0.5:
                told.append(f"{most:.0f} % {name} ({where})")
    return f"Of the convolutions' time at most: {', '.join(told)} (*Kernels*)." if told else ""


def of_pooling(points: list[Point]) -> str:
    pooling, optimizer = (extremes(points, lambda point, name=name: point.spread(family_share(name))) for name in ("pooling backward", "optimizer"))
    if not pooling or not optimizer:
        return ""
    return (f"Pooling's backward pass takes {pooling[0][0]:.1f} % ({pooling[0][1]}) to {pooling[1][0]:.1f} % ({pooling[1][1]}) of kernel time, "
            f"the optimizer {optimizer[0][0]:.1f} % ({optimizer[0][1]}) to {optimizer[1][0]:.1f} % ({optimizer[1][1]}; *Kernels*).")


def of_batches(points: list[Point]) -> str:
    """The gain from a larger batch, network by network."""
    rates: dict[str, dict[int, float]] = {}
    for point in points:
        if {"MODEL", "BATCH"} <= point.values.keys() and (spread := point.figure("samples_per_s")).values:
            rates.setdefault(point.values["MODEL"], {})[int(point.values["BATCH"])] = spread.median
    told = [f"{model} {of[max(of)] / of[min(of)]:.1f} times (batch {min(of)} to {max(of)})" for model, of in rates.items() if len(of) > 1]
    return f"Throughput grows with the batch: {', '.join(told)} (*Speed*)." if told else ""


def of_launches(points: list[Point]) -> str:
    found = extremes(points, lambda point: point.spread(api_share(*LAUNCHES)))
    return f"Launches are {found[0][0]:.0f} % ({found[0][1]}) to {found[1][0]:.0f} % ({found[1][1]}) of the time in API calls (*The host*)." if found else ""


def of_scaling(one: list[Point], several: list[Point], gpus: int) -> str:
    """Efficiency of each way to use several GPUs."""
    told = []
    for way in dict.fromkeys(point.values.get("PARALLEL") for point in several):
        found = extremes([point for point in several if point.values.get("PARALLEL") == way], lambda point: efficiency(one, point, gpus))
        if found:
            told.append(f"{way} {found[0][0]:.0f} % ({found[0][1]}) to {found[1][0]:.0f} % ({found[1][1]})")
    return f"Efficiency with {gpus} GPUs: {', '.join(told)} (*Several GPUs*)." if told else ""


def main(arguments: list[str] | None = None) -> int:
    study = Study(HERE, __doc__, arguments)
    program = [sys.executable, str(HERE / "train.py"), "{MODEL}", "{BATCH}"]
    one = study.sweep("one_gpu", {"BATCH": "4,16,64,256", "MODEL": NETWORKS}, [*program, "none", ITERATIONS], OPTIONS)
    gpus = study.gpus()
    several = study.sweep("gpus", {"BATCH": "16,64,256", "MODEL": NETWORKS, "PARALLEL": "dp,ddp"}, [*program, "{PARALLEL}", ITERATIONS], OPTIONS) if gpus > 1 else []
    one_gpu(study, one)
    scaling(study, one, several, gpus)
    study.findings([of_batches(one), of_algorithms(one), of_pooling(one), of_launches(one), of_scaling(one, several, gpus)])
    study.figures.update(conditions=study.conditions([*several, *one]), gpus=str(gpus))
    return study.finish()


if __name__ == "__main__":
    sys.exit(main())
