# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training loop whose steps are CUDA graphs, one after the other without a synchronization, so that a window's edge comes while
they run. With --reference torch.profiler sees some of them, and what it saw is printed: {"kernels": {name: [durations in ns]}}."""

import argparse
import json


def jax_step(flax):
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(0), 6)
    # Steps of a few hundred microseconds, and of many milliseconds.
    batch, side, channels = (8192, 32, 3) if flax else (64, 28, 1)
    x = jax.random.normal(keys[0], (batch, side, side, channels))
    y = jax.nn.one_hot(jax.random.randint(keys[1], (batch,), 0, 10), 10)
    if flax:
        import flax.linen as nn

        class Net(nn.Module):
            @nn.compact
            def __call__(self, x):
                for features in (64, 128):
                    x = nn.avg_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
                return nn.Dense(10)(nn.relu(nn.Dense(256)(x.reshape((x.shape[0], -1)))))

        net = Net()
        params, apply = net.init(keys[2], x), net.apply
    else:
        sizes = (784, 1024, 1024, 10)
        params = [jax.random.normal(keys[2 + i], (n, m)) * n ** -0.5 for i, (n, m) in enumerate(zip(sizes, sizes[1:]))]

        def apply(params, x):
            x = x.reshape((x.shape[0], -1))
            for w in params[:-1]:
                x = jax.nn.relu(x @ w)
            return x @ params[-1]

    @jax.jit
    def train(params):
        grads = jax.grad(lambda params: -jnp.mean(jnp.sum(jax.nn.log_softmax(apply(params, x)) * y, axis=-1)))(params)
        return jax.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, grads)

    state = [params]

    def step():
        state[0] = train(state[0])

    return step, lambda: jax.block_until_ready(state[0])


def torch_step(kind):
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(1024, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 1024)).cuda()
    x = torch.randn(256, 1024, device="cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    if kind == "compile":
        net = torch.compile(net, mode="reduce-overhead")

    def loss():
        return net(x).square().mean()

    def step():
        optimizer.zero_grad(set_to_none=kind == "compile")
        loss().backward()
        optimizer.step()

    if kind != "compile":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            optimizer.zero_grad(set_to_none=False)
            loss().backward()
            if kind == "whole":
                optimizer.step()

        def replay():
            graph.replay()
            if kind == "partial":
                optimizer.step()

        return replay, torch.cuda.synchronize
    return step, torch.cuda.synchronize


def reference(step, wait):
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(30):
            step()
        wait()
    kernels = {}
    for event in profiler.events():
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.name.startswith(("Memcpy", "Memset")):
            kernels.setdefault(event.name, []).append(round(1000 * event.time_range.elapsed_us()))
    return kernels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["jax", "flax", "whole", "partial", "compile"])
    parser.add_argument("--steps", type=int, help="default: 600 of Flax's, which take milliseconds, 3000 of others'")
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    if options.kind in ("jax", "flax"):
        step, wait = jax_step(options.kind == "flax")
    else:
        step, wait = torch_step(options.kind)
    for _ in range(10):
        step()
    wait()
    if options.reference:
        print(json.dumps({"kernels": reference(step, wait)}))
        return
    steps = options.steps or (600 if options.kind == "flax" else 3000)
    for number in range(steps):
        step()
        # The host runs ahead by a few steps at most; with Flax, as far as JAX allows.
        if number % 20 == 19 and options.kind != "flax":
            wait()
    wait()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
