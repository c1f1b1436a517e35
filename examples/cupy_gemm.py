# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A two-layer network trained with CuPy: products by cuBLAS, a raw kernel, elementwise kernels. The profiler API
brackets iterations 50 to 59."""

import cupy
import cupyx.profiler

leaky_relu = cupy.RawKernel(r"""
extern "C" __global__ void leaky_relu(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] < 0) x[i] *= 0.01f;
}
""", "leaky_relu")

batch, inputs, hidden, outputs = 4096, 1024, 4096, 1024
RATE = 5e-4
cupy.random.seed(0)
x = cupy.random.standard_normal((batch, inputs), dtype=cupy.float32)
target = x @ cupy.random.standard_normal((inputs, outputs), dtype=cupy.float32) / inputs ** 0.5
w1 = cupy.random.standard_normal((inputs, hidden), dtype=cupy.float32) / inputs ** 0.5
w2 = cupy.random.standard_normal((hidden, outputs), dtype=cupy.float32) / hidden ** 0.5


def step():
    global w1, w2
    h = x @ w1
    leaky_relu((h.size // 256,), (256,), (h, cupy.int32(h.size)))
    error = h @ w2 - target
    slope = error * (2 / batch)
    hidden_slope = slope @ w2.T
    hidden_slope *= cupy.where(h < 0, cupy.float32(0.01), cupy.float32(1))
    w2 -= RATE * (h.T @ slope)
    w1 -= RATE * (x.T @ hidden_slope)
    return error


first = float(cupy.square(step()).mean())
for iteration in range(100):
    if iteration == 50:
        with cupyx.profiler.profile():
            for _ in range(10):
                step()
            cupy.cuda.Device().synchronize()
    error = step()
last = float(cupy.square(error).mean())
print(f"mean squared error {first:.4f} at first, {last:.4f} at last")
assert last < first
