# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Matrix products of many shapes, each behind a kernel that keeps the GPU busy while they are launched, between two CUDA
events. Prints a JSON line: what was multiplied, how often, and seconds a call by the events.

usage: gemm_sweep.py [--quick]
"""

import json
import sys

import torch

SIZES = [512, 1024, 2048, 4096, 8192]
COLUMNS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def configurations(quick):
    sizes, columns = (SIZES[1::2], COLUMNS[::4]) if quick else (SIZES, COLUMNS)
    found = [(kind, ops, size, n) for kind in TYPES for ops in ("NN", "NT", "TN") for size in sizes for n in columns]
    return found + [("fp8", "TN", size, n) for size in sizes for n in columns if n >= 16]


def product(kind, ops, size, n):
    """In PyTorch's row-major terms: X (N x K) times W (K x M) is what cuBLAS calls M x K times K x N."""
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    if kind == "fp8":
        x = torch.randn(n, size, device="cuda").to(torch.float8_e4m3fn)
        w = torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn).t()
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(x, w, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    w = torch.randn(size, size, device="cuda", dtype=TYPES[kind])
    x = torch.randn((size, n) if ops[1] == "T" else (n, size), device="cuda", dtype=TYPES[kind])
    w, x = w.t() if ops[0] == "T" else w, x.t() if ops[1] == "T" else x
    out = torch.empty(n, size, device="cuda", dtype=TYPES[kind])
    return lambda: torch.mm(x, w, out=out)


def timed(multiply, calls):
    """Seconds per call, measured with events, with the GPU kept busy while the calls are launched."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(60_000 * calls)  # clocks: about 30 us per launch, otherwise the GPU would wait for the host in between
    begin.record()
    for _ in range(calls):
        multiply()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3 / calls


def main():
    cases = configurations("--quick" in sys.argv)
    results = []
    # Before the window, and in it: kernels are further apart there, but the clocks are those of the table.
    for kind, ops, size, n in cases:
        multiply = product(kind, ops, size, n)
        for _ in range(3):
            multiply()
        calls = max(3, min(300, int(2e-3 / max(timed(multiply, 3), 1e-6))))
        results.append({"type": kind, "ops": ops, "size": size, "n": n, "calls": calls, "seconds": timed(multiply, calls)})
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for result in results:
        result["seconds in window"] = timed(product(result["type"], result["ops"], result["size"], result["n"]), result["calls"])
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(json.dumps(results))


main()
