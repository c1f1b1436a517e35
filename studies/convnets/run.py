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
    """Of the kernels' time, in percent."""
    return lambda run: run.share("family_sum", "Total Time (ns)", lambda row: row["Family"] in families)


def convolutions(run: Run) -> float | None:
    return run.share("family_sum", "Total Time (ns)", lambda row: row["Family"].startswith("convolution"))


def algorithms(point: Point) -> str:
    """Shares of the convolutions' own kernels, the largest first."""
    def time(run: Run, algorithm: str | None) -> float | None:
        start = "convolution " + (algorithm or "")
        passes = ("", " forward", " data gradient", " filter gradient")
        return run.total("family_sum", "Total Time (ns)", lambda row: row["Family"] in {start + name for name in passes} if algorithm else row["Family"].startswith(start))

    whole = point.spread(lambda run: time(run, None))
    shares = [(ratio(point.spread(lambda run, name=name: time(run, name)), whole, 100), name) for name in ALGORITHMS]
    found = sorted(((share.median, name) for share, name in shares if share.values and share.median >= 0.5), reverse=True)
    return ", ".join(f"{name} {share:.0f} %" for share, name in found)


def api_share(*starts: str):
    """Of the time in hooked calls, in percent."""
    return lambda run: run.share("cuda_api_sum", "Total Time (ns)", lambda row: row["Name"].startswith(starts))


def windows(run: Run, whole: str = "no") -> list[dict]:
    return [row for row in run.rows("window_sum") if row["Total"] == whole]


def concurrency(run: Run) -> float | None:
    found = [row["Kernel Concurrency"] for row in windows(run) if isinstance(row["Kernel Concurrency"], (int, float))]
    return max(found) if found else None


def copied(run: Run, column: str) -> float | None:
    """Host to device: megabytes in windows, or nanoseconds."""
    return run.total("copy_sum", column, lambda row: row["Direction"] == "Host-to-Device")


def copy_rate(run: Run) -> float | None:
    size, time = copied(run, "Total (MB)"), copied(run, "Total Time (ns)")
    return size * 1e6 / time if size and time else None  # GB/s: bytes a nanosecond


def copy_size(run: Run) -> float | None:
    count, size = copied(run, "Count"), copied(run, "Total (MB)")
    return size / count if size and count else None


def exposed(run: Run) -> float | None:
    """Of the GPUs' time in windows, while nothing but a collective ran, in percent."""
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


def scaling(study: Study, one: list[Point], several: list[Point], gpus: int) -> None:
    alone = {(point.values.get("MODEL"), point.values["BATCH"]): point.figure("samples_per_s") for point in one}

    def cells(point: Point) -> dict[str, str]:
        together = point.figure("samples_per_s", gpus)
        single = alone.get((point.values.get("MODEL"), point.values["BATCH"]), Spread(()))
        return {"Runs": point.status, "Images/s": together.text(0), "Efficiency (%)": ratio(together, single, 100 / gpus).text(),
                "Collectives (% of kernels)": point.spread(family_share(*COLLECTIVES)).text(), "Broadcast (%)": point.spread(family_share("broadcast")).text(),
                "All-reduce and reduce (%)": point.spread(family_share("all-reduce", "reduce")).text(), "Nothing but collectives (% of time)": point.spread(exposed).text(),
                "GPU utilization (%)": point.figure("gpu_utilization_pct").text()}

    study.table("scaling", several, cells)


def main(arguments: list[str] | None = None) -> int:
    study = Study(HERE, __doc__, arguments)
    program = [sys.executable, str(HERE / "train.py"), "{MODEL}", "{BATCH}"]
    one = study.sweep("one_gpu", {"BATCH": "4,16,64,256", "MODEL": NETWORKS}, [*program, "none", ITERATIONS], OPTIONS)
    gpus = study.gpus()
    several = study.sweep("gpus", {"BATCH": "16,64,256", "MODEL": NETWORKS, "PARALLEL": "dp,ddp"}, [*program, "{PARALLEL}", ITERATIONS], OPTIONS) if gpus > 1 else []
    one_gpu(study, one)
    scaling(study, one, several, gpus)
    study.figures.update(conditions=study.conditions([*several, *one]), gpus=str(gpus))
    return study.finish()


if __name__ == "__main__":
    sys.exit(main())
