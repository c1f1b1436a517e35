# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Numba: two jit-compiled kernels and copies, a known number of each between profile_start and profile_stop."""

import argparse
import json

import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # removed in NumPy 2.5, but Numba 0.6x needs it when imported

from numba import cuda  # noqa: E402


@cuda.jit
def inject_saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def inject_scale(a, x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= a


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=25)
    count = parser.parse_args().count
    host = numpy.ones(1 << 16, numpy.float32)
    x, y = cuda.to_device(host), cuda.to_device(host)
    a = numpy.float32(0.5)

    def work():
        inject_saxpy[256, 256](a, x, y)
        inject_saxpy[256, 256](a, x, y)
        inject_scale[256, 256](a, x)
        x.copy_to_device(host)
        y.copy_to_host(host)

    work()
    cuda.synchronize()
    cuda.profile_start()
    for _ in range(count):
        work()
    cuda.synchronize()
    cuda.profile_stop()
    work()
    cuda.synchronize()
    print(json.dumps({"count": count}))


if __name__ == "__main__":
    main()
