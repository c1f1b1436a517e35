# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A program of tests/gpu/code_places.py that launches CUDA graphs which it captured before: `whole` a training step, of which another
process gives torch.profiler's account without a graph; `lines` graphs of kernels that all look the same, and last as long as their line
says: one after the other, beside each other on two streams, of a module's forward and backward pass, captured again and again;
`compiled` what torch.compile makes of a model with mode="reduce-overhead".

usage: torch_graph_code.py PATTERN STEPS [TRUTH.json]
"""

import functools
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_code  # noqa: E402
from torch_models import Block  # noqa: E402


class Stack(nn.Module):
    def __init__(self, width=512, heads=8, layers=4, classes=1000):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).mean(1)


def training():
    """(its step, a function that provides a batch)."""
    model = Stack().to(device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    host = torch.randn(8, 256, 512, dtype=torch.bfloat16).pin_memory()
    x, y = torch.empty_like(host, device="cuda"), torch.zeros(8, dtype=torch.long, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
    return step, lambda: x.copy_(host, non_blocking=True)


def warm_up(work):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


def captured(work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def whole(steps, account):
    step, load = training()
    if account:
        def loaded_step():
            load()
            step()
        torch_code.truth(loaded_step, account)
        return
    warm_up(step)
    graph = captured(step)
    for _ in range(steps):
        load()
        graph.replay()
    torch.cuda.synchronize()


cycles = {}  # cycles per step, by line


def sleep(count):
    """One kernel of that duration; they all have the same name and grid."""
    line = str(sys._getframe(1).f_lineno)
    cycles[line] = cycles.get(line, 0) + count
    torch.cuda._sleep(count)


def one_after_the_other(longer=0):
    sleep(20_000)
    for _ in range(3):
        sleep(50_000 + longer)
        sleep(110_000)
    sleep(230_000)


def another(longer):
    sleep(10_000 + longer)
    sleep(15_000)


def beside_each_other():
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    sleep(20_000)
    side.wait_stream(main)
    for _ in range(3):
        with torch.cuda.stream(side):
            sleep(130_000)
        sleep(60_000)
        sleep(90_000)
    main.wait_stream(side)
    sleep(30_000)


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        sleep(70_000)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        sleep(140_000)
        return gradient * 1


class SlowLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16, device="cuda"))

    def forward(self, x):
        return Slow.apply(x * self.weight)


def lines(steps, account):
    for longer in (1_000, 2_000, 3_000):
        captured(functools.partial(another, longer))  # destroyed at once
    torch.cuda.synchronize()
    cycles.clear()
    graphs = [captured(one_after_the_other), captured(beside_each_other)]
    x = torch.ones(16, device="cuda", requires_grad=True)
    kept = dict(cycles)
    callable_ = torch.cuda.make_graphed_callables(SlowLayer(), (x,))
    own = {line: count for line, count in cycles.items() if line not in kept}
    # It warms up before it captures.
    times = min(own.values()) // 70_000
    cycles.update({line: count // times for line, count in own.items()})
    weight = nn.Parameter(torch.ones(16, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    host = torch.ones(16).pin_memory()
    for _ in range(steps):
        batch = host.to("cuda", non_blocking=True)
        for graph in graphs:
            graph.replay()
        callable_(batch * weight).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    torch.cuda.synchronize()
    with open(account, "w") as file:
        json.dump(cycles, file)


def compiled(steps, account):
    model = torch.compile(Stack(layers=2).cuda(), mode="reduce-overhead")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    host = torch.randn(8, 128, 512).pin_memory()
    for _ in range(steps):
        x = host.to("cuda", non_blocking=True)
        torch.compiler.cudagraph_mark_step_begin()
        loss = model(x).square().mean()  # COMPILED
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    torch.manual_seed(1)
    {"whole": whole, "lines": lines, "compiled": compiled}[sys.argv[1]](int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
