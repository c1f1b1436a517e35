# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A jit-compiled MLP training loop. Without --reference the profiler API brackets the steps; with it JAX's own profiler
does, and what that saw is printed as JSON: {"kernels": {name: count}, "operations": count}."""

import argparse
import ctypes
import glob
import gzip
import json
import os
import sys
import tempfile

import jax
import jax.numpy as jnp


def device_events(folder):
    """(line name, event name) of everything that JAX's profiler saw on a GPU's streams."""
    spaces = glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True)
    if spaces and hasattr(jax.profiler, "ProfileData"):
        for plane in jax.profiler.ProfileData.from_file(spaces[0]).planes:
            if "GPU" in plane.name:
                for line in plane.lines:
                    if line.name.startswith("Stream"):
                        for event in line.events:
                            yield line.name, event.name
        return
    trace = glob.glob(os.path.join(folder, "**", "*.trace.json.gz"), recursive=True)[0]
    events = json.load(gzip.open(trace))["traceEvents"]
    devices = {e["pid"] for e in events if e.get("name") == "process_name" and "GPU" in e["args"]["name"]}
    lines = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    for event in events:
        line = lines.get((event.get("pid"), event.get("tid")), "")
        if event.get("ph") == "X" and event["pid"] in devices and line.startswith("Stream"):
            yield line, event["name"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        sys.exit(f"JAX runs on {jax.default_backend()}, not on a GPU")

    def loss_of(params, x, y):
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ w + b) * y, axis=-1))

    @jax.jit
    def train(params, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        return [(w - 0.1 * gw, b - 0.1 * gb) for (w, b), (gw, gb) in zip(params, grads)], loss

    keys = jax.random.split(jax.random.PRNGKey(0), 8)
    sizes = [784, 1024, 1024, 10]
    params = [(jax.random.normal(keys[i], (n, m)) * n ** -0.5, jnp.zeros(m)) for i, (n, m) in enumerate(zip(sizes, sizes[1:]))]
    x = jax.random.normal(keys[6], (256, 784))
    y = jax.nn.one_hot(jax.random.randint(keys[7], (256,), 0, 10), 10)
    for _ in range(5):
        params, loss = train(params, x, y)
    jax.block_until_ready((params, loss))

    def steps():
        nonlocal params, loss
        for _ in range(options.steps):
            params, loss = train(params, x, y)
        jax.block_until_ready((params, loss))

    if options.reference:
        folder = tempfile.mkdtemp()
        with jax.profiler.trace(folder):
            steps()
        kernels, operations, lines = {}, 0, set()
        for line, name in device_events(folder):
            lines.add(line)
            if name.lower().startswith(("memcpy", "memset")):
                operations += 1
            else:
                kernels[name] = kernels.get(name, 0) + 1
        print(json.dumps({"kernels": kernels, "operations": operations, "lines": sorted(lines), "loss": float(loss)}))
    else:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuProfilerStart()
        steps()
        driver.cuProfilerStop()
        print(json.dumps({"loss": float(loss)}))


if __name__ == "__main__":
    main()
