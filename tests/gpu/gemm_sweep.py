# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Matrix products of known shapes against gemm_sum.csv: shapes, calls, FLOPs and rates.

programs/gemm_products.py multiplies M x K by K x N matrices (as cuBLAS, column-major, has them) for M = K in 512 ... 8192
and N in 1 ... 256, NN, NT and TN, in fp32, tf32, fp16, bf16, and TN in fp8, each for two milliseconds of GPU time. Then
gemm_sum.csv must have a row with that many calls, 2*M*N*K FLOPs a call, and a time a call that agrees with CUDA events', of
the same calls in the window or before it (clocks change from one to the other). An event pair also sees what lies
between two kernels: a microsecond or two, taken from the shapes that take less than LONG, and then deducted from the
others' for each kernel. The rates are left in gemm_curve.csv.
"""

import csv
import json
import os
import statistics
import sys

from gputest import Folder, folders, main, profiled_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = 50e-6
WITHIN = 0.03
NAMES = {"fp32": ("fp32", "fp32"), "tf32": ("fp32", "fp32 (tf32)"), "fp16": ("fp16", "fp32"), "bf16": ("bf16", "fp32"),
         "fp8": ("fp8 e4m3", "fp32")}
CURVE = ["type", "operations", "M = K", "N", "calls", "us a call", "us by events", "TFLOP/s", "share of peak (%)",
         "tensor cores", "API"]


def same_calls(truth, case):
    """A matrix-vector product is the same call whichever operand is the vector."""
    return [other for other in truth if (other["type"], other["size"], other["n"]) == (case["type"], case["size"], case["n"])
            and (other["ops"] == case["ops"] or case["n"] == 1 and other["ops"][0] == case["ops"][0])]


def judge(report, truth, rows, curve):
    found = {}
    for row in rows:
        key = (row["Type A"], row["Compute Type"], row["Op A"], row["Op B"] if row["N"] != "1" else "", row["M"], row["N"],
               row["K"])
        found.setdefault(key, []).append(row)
    missing, calls_off, flops_off, time_off, gaps, long = [], [], [], [], [], []
    for case in truth:
        kind, size, n = case["type"], case["size"], case["n"]
        label = f"{kind} {case['ops']} {size} x {n}"
        key = (*NAMES[kind], case["ops"][0], case["ops"][1] if n > 1 else "", str(size), str(n), str(size))
        same = found.get(key)
        if not same:
            missing.append(label)
            continue
        calls = sum(int(row["Calls"]) for row in same)
        together = same_calls(truth, case)
        if calls != sum(other["calls"] for other in together):
            calls_off.append(f"{label}: {calls}")
        if any(int(row["FLOPs"]) != 2 * size * n * size for row in same):
            flops_off.append(label)
        ours = sum(int(row["GPU Time (ns)"]) for row in same) * 1e-9 / calls
        events, inside = (sum(other[key] * other["calls"] for other in together) / calls
                          for key in ("seconds", "seconds in window"))
        curve.append([kind, case["ops"], size, n, calls, f"{ours * 1e6:.3f}", f"{events * 1e6:.3f}",
                      f"{2 * size * n * size / ours / 1e12:.3f}", same[0]["Peak (%)"], same[0]["Tensor Cores"], same[0]["API"]])
        kernels = sum(int(row["Kernels"]) for row in same) / calls
        if ours < LONG:
            gaps.append(((events - ours) / kernels, (inside - ours) / kernels))
        else:
            long.append((label, (events, inside), ours, kernels))
    between = [statistics.median(gap) for gap in zip(*gaps)] if gaps else [0, 0]
    for label, events, ours, kernels in long:
        off = min(((seen - gap * kernels - ours) / seen for seen, gap in zip(events, between)), key=abs)
        if abs(off) > WITHIN:
            time_off.append(f"{label}: {off:+.1%}")
    report.check("every shape has its row", not missing, f"{len(truth) - len(missing)} of {len(truth)} {missing[:6] or ''}")
    report.check("calls", not calls_off, f"{len(calls_off)} differ {calls_off[:6] or ''}")
    report.check("FLOPs are 2*M*N*K", not flops_off, f"{len(flops_off)} differ {flops_off[:6] or ''}")
    report.check(f"time within {WITHIN:.0%} of CUDA events', calls of {LONG * 1e6:.0f} us and more", not time_off,
                 f"{len(long) - len(time_off)} of {len(long)} {time_off[:6] or ''}")
    report.check("between two kernels the events see at most 2 us more", all(-0.2e-6 < gap < 2e-6 for gap in between),
                 f"medians {between[0] * 1e6:.2f} us before, {between[1] * 1e6:.2f} us in the window, of {len(gaps)} shorter shapes")


def test(options, report):
    out = os.path.join(options.work, "out")
    environment = profiled_environment(options.library, out, "api", summary="off")
    command = [sys.executable, os.path.join(HERE, "programs", "gemm_products.py")] + (["--quick"] if options.quick else [])
    result = run(command, environment, timeout=200, cwd=options.work, log=os.path.join(options.work, "child.log"))
    found = folders(out)
    if not report.check("the program ends well, one output folder", result.rc == 0 and len(found) == 1,
                        result.why() if result.rc else found):
        return
    folder, curve = Folder(found[0]), []
    truth = json.loads(result.out.strip().splitlines()[-1])
    report.check("nothing lost", not folder.lost(), folder.lost() or "")
    rows = [row for row in folder.rows("gemm_sum.csv") if not row["API"].startswith("[")]
    judge(report, truth, rows, curve)
    total = sum(int(row["FLOPs"]) * (int(row["Calls"]) - int(row["Captured Calls"]) + int(row["Replayed Calls"]))
                for row in rows)
    window = [row for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
    report.check("FLOPs of the window are those of its rows", sum(int(row["FLOPs"] or 0) for row in window) == total, total)
    with open(os.path.join(options.work, "gemm_curve.csv"), "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([CURVE] + curve)


if __name__ == "__main__":
    main("gemm_sweep", test, modules=("torch",),
         arguments=lambda parser: parser.add_argument("--quick", action="store_true", help="a few shapes"))
