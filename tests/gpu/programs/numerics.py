# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The same computation each time, by one framework: prints a digest of every result, in order.

usage: numerics.py torch|torch_graph|jax|cupy|numba|triton
"""

import hashlib
import sys


def show(name, array):
    print(name, hashlib.sha256(array.tobytes()).hexdigest(), flush=True)


def torch_steps(graph):
    import torch
    import torch.nn.functional as F

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Flatten(),
                                torch.nn.Linear(16 * 30 * 30, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x, y = torch.randn(64, 3, 32, 32, device="cuda"), torch.randint(10, (64,), device="cuda")

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        return loss

    if graph:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            loss = step()
    for i in range(60):
        if graph:
            captured.replay()
        else:
            loss = step()
        if i % 20 == 19:
            show(f"loss {i}", loss.detach().float().cpu().numpy())
    for name, value in model.state_dict().items():
        show(name, value.cpu().numpy())


def jax_steps():
    import jax
    import jax.numpy as jnp
    import numpy

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    weights = [jax.random.normal(keys[0], (64, 128)) * 0.1, jax.random.normal(keys[1], (128, 10)) * 0.1]
    x, y = jax.random.normal(keys[2], (32, 64)), jax.random.randint(keys[3], (32,), 0, 10)

    def loss(weights):
        logits = jnp.tanh(x @ weights[0]) @ weights[1]
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(32), y])

    @jax.jit
    def step(weights):
        value, gradients = jax.value_and_grad(loss)(weights)
        return value, [w - 0.1 * g for w, g in zip(weights, gradients)]

    for _ in range(50):
        value, weights = step(weights)
    show("loss", numpy.asarray(value))
    for i, weight in enumerate(weights):
        show(f"weight {i}", numpy.asarray(weight))


def cupy_steps():
    import cupy

    generator = cupy.random.RandomState(1)
    a, b = generator.standard_normal((256, 256)), generator.standard_normal((256, 256))
    scale = cupy.RawKernel("extern \"C\" __global__ void scale(double* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x;"
                           " if (i < n) x[i] = x[i] * 1.5 + i; }", "scale")
    scale((256,), (256,), (a, 256 * 256))
    show("product", cupy.asnumpy(a @ b))
    show("fft", cupy.asnumpy(cupy.abs(cupy.fft.fft2(a))))
    show("sorted", cupy.asnumpy(cupy.sort(b, axis=None)))


def numba_steps():
    import numpy

    if not hasattr(numpy, "row_stack"):  # removed in NumPy 2.5, but numba-cuda overloads it when imported
        numpy.row_stack = numpy.vstack
    from numba import cuda

    @cuda.jit
    def saxpy(out, x, y):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = 2.5 * x[i] + y[i]

    x = numpy.linspace(0, 1, 100_000)
    out = cuda.device_array_like(x)
    for _ in range(20):
        saxpy[400, 256](out, cuda.to_device(x), cuda.to_device(x[::-1].copy()))
    show("out", out.copy_to_host())


def triton_steps():
    import torch
    import triton_work

    torch.manual_seed(1)
    x = torch.randn(512, 1000, device="cuda")
    out = torch.empty_like(x)
    triton_work.inject_softmax[(512,)](out, x, 1000, BLOCK=1024)
    show("softmax", out.cpu().numpy())


STEPS = {"torch": lambda: torch_steps(False), "torch_graph": lambda: torch_steps(True), "jax": jax_steps, "cupy": cupy_steps,
         "numba": numba_steps, "triton": triton_steps}
STEPS[sys.argv[1]]()
