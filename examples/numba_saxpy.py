# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Linear regression by gradient descent in Numba kernels; cuda.profile_start and profile_stop bracket 100 iterations."""

import math

import numpy

if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack  # gone since NumPy 2.5, and Numba 0.6x asks for it as it is imported

import numba  # noqa: E402
from numba import cuda  # noqa: E402


@cuda.jit
def gradient(x, y, weight, partial):
    """Each block sums its samples' gradients."""
    shared = cuda.shared.array(256, numba.float32)
    total = numpy.float32(0)
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += (weight[0] * x[i] - y[i]) * x[i]
    shared[cuda.threadIdx.x] = total
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if cuda.threadIdx.x < half:
            shared[cuda.threadIdx.x] += shared[cuda.threadIdx.x + half]
        cuda.syncthreads()
        half //= 2
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = shared[0]


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


samples = 1 << 22
generator = numpy.random.default_rng(0)
x = generator.random(samples, dtype=numpy.float32)
y = numpy.float32(3) * x
device_x, device_y = cuda.to_device(x), cuda.to_device(y)
weight = cuda.to_device(numpy.zeros(1, numpy.float32))
partial = cuda.device_array(256, numpy.float32)

for iteration in range(200):
    if iteration == 50:
        cuda.profile_start()
    if iteration == 150:
        cuda.profile_stop()
    gradient[256, 256](device_x, device_y, weight, partial)
    slope = numpy.full(1, partial.copy_to_host().sum() / samples, numpy.float32)
    saxpy[1, 32](numpy.float32(-1), cuda.to_device(slope), weight)
cuda.synchronize()
found = float(weight.copy_to_host()[0])
print(f"weight {found:.4f} after 200 iterations, 3 was to be found")
assert math.isclose(found, 3, rel_tol=1e-2)
