# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What the simulation says it ran of `inject-train --steps N` is what the program's text says it does."""
import collections
import sys

path, steps = sys.argv[1], int(sys.argv[2])
calls, work, times = {}, collections.Counter(), []
for line in open(path):
    kind, rest = line.rstrip("\n").split(",", 1)
    if kind == "call":
        library, function, count = rest.split(",")
        calls[library, function] = int(count)
    elif kind in ("calls_in_callbacks", "cupti_misuse", "sampling_misuse"):
        assert int(rest) == 0, line
    else:
        # Names are mangled: no commas in them.
        what, name, device, context, stream, correlation, host, start, end, size = rest.split(",")
        work[what] += 1
        times.append((int(host), int(start), int(end)))
        if what == "kernel":
            work["kernel", "gemm" if "matmul" in name else "own"] += 1
            assert int(end) - int(start) == 10000, line

want = {
    ("kernel", "gemm"): 5 * steps,
    ("kernel", "own"): 9 * steps,
    # Four parameters' three arrays and five buffers are cleared once, the loss in each step.
    "memset": 17 + steps,
    # Points and labels each step, four parameters at the start, the loss every fifth step and at the end.
    "memcpy": 2 * steps + 4 + len([i for i in range(steps) if i % 5 == 4 or i + 1 == steps]),
}
for key, count in want.items():
    assert work[key] == count, (key, work[key], count)
assert calls["libcudart.so.13", "__cudaLaunchKernel"] == 9 * steps
assert calls["libcublas.so.13", "cublasGemmEx"] == 5 * steps
assert calls["libcublasLt.so.13", "cublasLtMatmul"] == 5 * steps
assert calls["libcuda.so.1", "cuLaunchKernel"] == 14 * steps
assert all(host <= start <= end for host, start, end in times)
