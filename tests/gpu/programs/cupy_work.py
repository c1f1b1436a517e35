# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""CuPy: products, an elementwise kernel, a raw kernel and copies, a known number of each inside the window."""

import argparse
import json

import cupy
import numpy

RAW = r"""
extern "C" __global__ void inject_raw_saxpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=25)
    count = parser.parse_args().count
    n = 1 << 16
    raw = cupy.RawKernel(RAW, "inject_raw_saxpy")
    elementwise = cupy.ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x * y + 1", "inject_elementwise")
    host = numpy.ones(n, numpy.float32)
    x, y = cupy.asarray(host), cupy.zeros(n, cupy.float32)
    a = cupy.asarray(numpy.random.default_rng(0).random((512, 512), dtype=numpy.float32))
    b = cupy.empty_like(a)
    z = cupy.empty_like(x)

    def work():
        raw((n // 256,), (256,), (numpy.float32(0.5), x, y, numpy.int32(n)))
        elementwise(x, y, z)
        cupy.matmul(a, a, out=b)
        x.set(host)
        z.get()

    work()
    cupy.cuda.Device().synchronize()
    cupy.cuda.runtime.profilerStart()
    for _ in range(count):
        work()
    cupy.cuda.Device().synchronize()
    cupy.cuda.runtime.profilerStop()
    work()
    cupy.cuda.Device().synchronize()
    print(json.dumps({"count": count}))


if __name__ == "__main__":
    main()
