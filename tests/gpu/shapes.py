# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Library calls by shape in training: how much of the GPU's time has one, and whether FLOPs are what the model says.

For each model, a window of three steps: of the time of the kernels of products, convolutions and attention, at least
COVERED must be in rows of gemm_sum, conv_sum, rnn_sum and attention_sum that have a shape; kernels that no library
launched (flash attention) are told of by name. Forward convolutions' FLOPs must be twice the multiply-adds that
PyTorch's modules count.
"""

import json
import os
import sys

from gputest import Folder, folders, main, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = ["resnet50", "unet", "deepspeech2", "transformer-cudnn", "transformer-flash", "transformer-efficient"]
COVERED = 0.98


def time_of(rows):
    return sum(int(row["GPU Time (ns)"]) for row in rows)


def executed(row):
    return int(row["Calls"]) - int(row["Captured Calls"]) + int(row["Replayed Calls"])


def one_model(options, report, name):
    out = os.path.join(options.work, name)
    environment = profiled_environment(options.library, out, "api", summary="off")
    command = [sys.executable, os.path.join(HERE, "programs", "model_steps.py"), name]
    result = run(command, environment, timeout=100, cwd=options.work, log=os.path.join(options.work, name + ".log"))
    found = folders(out)
    if not report.check(f"{name}: the program ends well, one output folder", result.rc == 0 and len(found) == 1,
                        result.why() if result.rc else found):
        return
    folder = Folder(found[0])
    truth = json.loads(result.out.strip().splitlines()[-1])
    tables = {table: folder.rows(table + "_sum.csv") for table in ("gemm", "conv", "rnn", "attention", "norm")}
    for table, rows in tables.items():  # kernels without a shape
        tables[table] = [row for row in rows if not next(iter(row.values())).startswith("[")]
    families = {row["Family"]: int(row["Total Time (ns)"]) for row in folder.rows("family_sum.csv")}
    products = time_of(row for row in folder.rows("gemm_sum.csv") if row["GPU Time (ns)"])
    report.check(f"{name}: GPU time of products that has a row", products >= families.get("GEMM", 0),
                 f"{products / 1e6:.2f} of {families.get('GEMM', 0) / 1e6:.2f} ms")
    tables["gemm"] = [row for row in tables["gemm"] if not row["Derived"]]  # the others are included in rnn_sum's time
    wanted = sum(time for family, time in families.items()
                 if family in ("GEMM", "attention", "RNN cell") or family.startswith("convolution"))
    by_name = [row for row in tables["attention"] if row["Source"] == "kernel name"]
    shaped = sum(time_of(tables[table]) for table in ("gemm", "conv", "rnn")) + \
        time_of([row for row in tables["attention"] if row["Source"] != "kernel name"])
    # Calls also launch kernels of other families (a copy into another layout): of the relevant ones, all or nearly all have a shape.
    report.check(f"{name}: GPU time of products, convolutions and library attention that has a shape",
                 shaped >= COVERED * (wanted - time_of(by_name)),
                 f"{shaped / 1e6:.2f} of {(wanted - time_of(by_name)) / 1e6:.2f} ms; by kernel name alone {time_of(by_name) / 1e6:.2f} ms")
    kernels = sum(int(row["Total Time (ns)"]) for row in folder.rows("cuda_gpu_kern_sum.csv"))
    report.check(f"{name}: families add up to all kernels", sum(families.values()) == kernels, f"{kernels / 1e6:.2f} ms")
    forward = sum(int(row["FLOPs"]) * executed(row) for row in tables["conv"] if row["Direction"] == "forward")
    # A transposed convolution's forward pass is a data gradient.
    gradient = sum(int(row["FLOPs"]) * executed(row) for row in tables["conv"] if row["Direction"] == "data gradient")
    expected = 2 * truth["multiply_adds"]["conv"] * truth["steps"]
    if expected:
        transposed = name == "unet"
        close = (forward + gradient > 1.5 * expected) if transposed else abs(forward - expected) <= 1e-6 * expected
        report.check(f"{name}: FLOPs of forward convolutions", close,
                     f"{forward / 1e9:.3f} GFLOP, the model's {expected / 1e9:.3f}, data gradients {gradient / 1e9:.3f}")
    lost = folder.lost()
    # Winograd and FFT convolutions perform other operations than are counted, and may seem to exceed the peak (docs/peaks.md).
    other = sum(row["Algorithm"] in ("Winograd", "FFT") and row["Peak (%)"] == "" for row in folder.rows("conv_sum.csv"))
    if lost.get("impossible_rates", 0) <= other:
        lost.pop("impossible_rates", None)
    report.check(f"{name}: nothing lost", not lost, lost or f"{other} rows of convolutions whose operations are others")
    iterations = [row for row in folder.rows("iteration_sum.csv") if row["Device"] == "all"]
    window = [row for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
    report.check(f"{name}: FLOPs of iterations add up to the window's",
                 sum(int(row["FLOPs"] or 0) for row in iterations) == int(window[0]["FLOPs"] or 0),
                 f"{int(window[0]['FLOPs'] or 0) / 1e9:.2f} GFLOP, {window[0]['TFLOP/s']} TFLOP/s, {window[0]['Peak (%)']} % of the peak")


def test(options, report):
    for name in options.models.split(","):
        report.guarded(name, one_model, options, report, name)


if __name__ == "__main__":
    main("shapes", test, modules=("torch", "torchvision"),
         arguments=lambda parser: parser.add_argument("--models", default=",".join(MODELS)))
