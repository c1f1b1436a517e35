# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A jit-compiled MLP in JAX on synthetic data. JAX has no call for the profiler API: INJECT_WINDOW says when."""

import argparse
import time

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4096)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--seconds", type=float, default=12)
options = parser.parse_args()


def forward(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss_of(params, x, y):
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(forward(params, x)) * y, axis=-1))


@jax.jit
def train(params, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, gradients), loss


sizes = [784, options.width, options.width, options.width, 10]
keys = jax.random.split(jax.random.PRNGKey(0), len(sizes) + 2)
params = [(jax.random.normal(key, (rows, columns)) * rows ** -0.5, jnp.zeros(columns))
          for key, rows, columns in zip(keys, sizes, sizes[1:])]
x = jax.random.normal(keys[-2], (options.batch, 784))
y = jax.nn.one_hot(jax.random.randint(keys[-1], (options.batch,), 0, 10), 10)

steps, begin = 0, time.perf_counter()
while time.perf_counter() - begin < options.seconds:
    for _ in range(10):
        params, loss = train(params, x, y)
    jax.block_until_ready(loss)
    steps += 10
seconds = time.perf_counter() - begin
print(f"{steps} steps on {jax.devices()[0]}, loss {float(loss):.3f}, {steps * options.batch / seconds:.0f} samples/s")
