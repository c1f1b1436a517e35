#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A model of PyTorch's modules on the host, for test_torch_code.py: a GPU's work is launched on the simulated CUDA, by functions with a
forward and a backward pass. All blocks launch the same kernels.

usage: torch_model.py MODULE PATTERN ITERATIONS
"""

import ctypes
import os
import pathlib
import signal
import sys
import time

import torch
import torch.utils.checkpoint

cuda = ctypes.CDLL(sys.argv[1])
ITERATIONS = int(sys.argv[3])


class Work(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, blocks):
        ctx.blocks = blocks
        cuda.training_launch(b"gemm", blocks)  # forward
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        cuda.training_launch(b"gemm_gradient", ctx.blocks)  # backward
        return gradient, None


class Layer(torch.nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return Work.apply(x * self.weight, self.blocks)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Layer(2), Layer(3)

    def forward(self, x):
        return self.b(self.a(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Sequential(Layer(4), Layer(5))
        self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])
        self.heads = torch.nn.ModuleDict({"one": Layer(6)})

    def body(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x, checkpointed=False):
        x = self.stem(x)
        if checkpointed:
            x = torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=True)
        else:
            x = self.body(x)
        return self.heads["one"](self.heads["one"](x))  # twice


class Stepping(torch.optim.SGD):
    def step(self, closure=None):
        cuda.training_launch(b"multi_tensor_apply_update", 7)  # optimizer
        return super().step(closure)


class Alternating(torch.nn.Module):
    """Two equal layers alternate: the launches do not tell which of them it was."""

    def __init__(self):
        super().__init__()
        self.stem, self.tasks, self.calls = Layer(4), torch.nn.ModuleList([Layer(5), Layer(5)]), 0

    def forward(self, x, _):
        self.calls += 1
        return self.tasks[self.calls % 2](self.stem(x))


class Caller(torch.nn.Module):
    """Calls its argument."""

    def forward(self, function, *inputs):
        return function(*inputs)


class Functional(torch.nn.Module):
    """Checkpoints a function that calls no module."""

    def function(self, x):
        return Work.apply(Work.apply(x * 1, 5), 6)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.function, x, use_reentrant=True)


def reentrant(x):
    return Work.apply(x * x, 5)  # reentrant


def saved(x):
    return Work.apply(x * x, 6)  # saved tensors


def enabled(x):
    return Work.apply(x, 7)  # enabled


class Enabling(torch.autograd.Function):
    """Computes its forward pass again, to differentiate it."""
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return enabled(x)

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            result = enabled(x)
        return torch.autograd.grad(result, x, gradient)


class Calling(torch.autograd.Function):
    """Its backward pass is another function's forward pass."""
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return Work.apply(gradient * 1, 8)  # called


class Again(torch.nn.Module):
    """Parts of its forward pass that call no module are run again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.stem = Layer(4)

    def forward(self, x, _):
        x = torch.utils.checkpoint.checkpoint(reentrant, self.stem(x), use_reentrant=True)
        x = torch.utils.checkpoint.checkpoint(saved, x, use_reentrant=False)
        return Calling.apply(Enabling.apply(x))


class Student(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Layer(7)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=True)


class Shared(torch.nn.Module):
    """Calls a child's child directly, and lends children to another module."""

    def __init__(self):
        super().__init__()
        self.stem, self.caller, self.query = Layer(4), Caller(), Layer(5)
        self.block, self.functional = Block(), Functional()

    def forward(self, x, _):
        x = self.block.b(self.block(self.stem(x)))
        return self.functional(self.caller(self.query, x))


def deeper(levels, function, x):
    return function(x) if levels == 0 else deeper(levels - 1, function, x)


class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.inner = Layer(4), Layer(5)

    def forward(self, x, _):
        return deeper(150, self.inner, self.stem(x))


class Twins(torch.nn.Module):
    """Two models of one class, called one after the other by another module: their layers have the same path."""

    def __init__(self):
        super().__init__()
        self.models = [Student(), Student()]
        self.student, self.teacher = (torch.nn.Sequential(model) for model in self.models)

    def forward(self, x, _):
        return self.teacher(self.student(x))


class Nest(torch.autograd.Function):
    """Its backward pass runs another one, nested more deeply."""
    @staticmethod
    def forward(ctx, x, levels, run):
        ctx.levels, ctx.run = levels, run
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        with torch.enable_grad():
            nested(ctx.levels - 1, ctx.run)
        return gradient, None, None


def nested(levels, run):
    if levels == 0:
        run()
    else:
        Nest.apply(torch.ones(1, requires_grad=True), levels, run).sum().backward()


def train(checkpointed=False, extra=None, before_backward=None, model=None):
    model = model or Net()
    optimizer = Stepping(model.parameters(), lr=0.01)
    x = torch.ones(2, requires_grad=True)
    for k in range(ITERATIONS):
        time.sleep(0.002)
        cuda.training_copy(ctypes.c_size_t(64), 1)
        cuda.training_launch(b"zero", 1)  # zero
        if extra is not None:
            extra(k)
        optimizer.zero_grad()
        loss = model(x, checkpointed).sum()
        if before_backward is not None:
            before_backward()
        loss.backward()
        optimizer.step()


def plain():
    train()


def captured(work):
    """The number of the graph into which the work is captured."""
    cuda.training_begin_capture()
    work()
    return cuda.training_end_capture()


def graphed():
    """A whole iteration is captured once, before the first one."""
    model = Net()
    optimizer = Stepping(model.parameters(), lr=0.01)
    x = torch.ones(2, requires_grad=True)

    def iteration():
        model(x).sum().backward()
        optimizer.step()
    iteration()
    graph = captured(iteration)
    mark = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.01)
    for _ in range(ITERATIONS):
        time.sleep(0.002)
        cuda.training_copy(ctypes.c_size_t(64), 1)
        cuda.training_launch(b"zero", 1)  # graphed zero
        cuda.training_launch_graph(graph)  # replay
        mark.step()


class Replay(torch.autograd.Function):
    """As in torch.cuda.make_graphed_callables(): the passes are two graphs."""
    @staticmethod
    def forward(ctx, x, graphs):
        ctx.graphs = graphs
        cuda.training_launch_graph(graphs[0])
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        cuda.training_launch_graph(ctx.graphs[1])  # replay backward
        return gradient, None


class Replaying(torch.nn.Module):
    def __init__(self, graphs):
        super().__init__()
        self.graphs = graphs

    def forward(self, x):
        return Replay.apply(x, self.graphs)  # replaying


def callables():
    """The forward and the backward pass of one block are captured; an unseen kernel is in the latter, and in a third graph, which is the
    whole compiled function."""
    block = Block()
    x = torch.ones(2, requires_grad=True)
    outputs = []
    forward = captured(lambda: outputs.append(block(x)))

    def backward():
        cuda.training_launch_unseen(b"unseen", 1)
        outputs[0].sum().backward()
    graphs = forward, captured(backward)
    compiled = captured(lambda: cuda.training_launch_unseen(b"compiled", 1))
    model = torch.nn.Sequential(Layer(4), Replaying(graphs), Layer(6))
    optimizer = Stepping(model.parameters(), lr=0.01)
    for _ in range(ITERATIONS):
        time.sleep(0.002)
        cuda.training_copy(ctypes.c_size_t(64), 1)
        cuda.training_launch(b"zero", 1)  # callables zero
        cuda.training_launch_graph(compiled)  # compiled
        model(x).sum().backward()
        optimizer.step()


def compiled_backward():
    """As compiled autograd has it: the backward pass is a function that PyTorch's file calls, without nodes."""
    names = {}
    exec(compile("def runtime_wrapper(function):\n    function()\n", "/usr/lib/torch/_dynamo/compiled_autograd.py", "exec"), names)

    def backward():
        cuda.training_launch(b"fused_gradient", 9)  # compiled backward
    train(before_backward=lambda: names["runtime_wrapper"](backward))


def alternating():
    train(model=Alternating())


def shared():
    train(model=Shared())


def again():
    train(model=Again())


def deep():
    train(model=Deep())


def twins():
    train(model=Twins())


def steps_in_backward():
    """As done to save memory: each gradient is used as soon as it is ready."""
    model = Net()
    for parameter in model.parameters():
        stepping = Stepping([parameter], lr=0.01)
        parameter.register_hook(lambda gradient, stepping=stepping: stepping.step())
    train(model=model)


def closure():
    """The optimizer calls the training code, as in Lightning."""
    model = Net()
    optimizer = Stepping(model.parameters(), lr=0.01)
    x = torch.ones(2, requires_grad=True)

    def passes():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss

    for _ in range(ITERATIONS):
        time.sleep(0.002)
        cuda.training_copy(ctypes.c_size_t(64), 1)
        optimizer.step(passes)


def inside():
    """An iteration begins in an operator of the forward pass, and the backward pass has a thread of its own: autograd starts one for a pass
    that is nested in sixty others."""
    model = Net()
    optimizer = Stepping(model.parameters(), lr=0.01)
    x = torch.ones(2, requires_grad=True)
    for _ in range(ITERATIONS):
        time.sleep(0.002)
        optimizer.zero_grad()
        loss = model(x).sum()  # inside forward
        nested(61, loss.backward)
        optimizer.step()


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, count):
        for number in range(count):
            cuda.training_launch(b"part", number + 1)  # several
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def varying():
    """An iteration begins in an operator of the forward pass, and every other one has more of them."""
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = Stepping([parameter], lr=0.01)
    for k in range(ITERATIONS):
        time.sleep(0.002)
        optimizer.zero_grad()
        Several.apply(parameter * 1, 3 + 4 * (k % 2)).sum().backward()
        optimizer.step()


def checkpoint():
    train(checkpointed=True)


def report():
    """Every tenth iteration has additional work, but none of the named ones."""
    def extra(k):
        if k % 10 == 1:
            for _ in range(3):
                cuda.training_launch(b"gemm", 9)  # report
    train(extra=extra)


def compute(seconds):  # function that computes
    """Keeps Python busy with short calls."""
    end = time.perf_counter() + seconds
    value = 0
    while time.perf_counter() < end:
        value = sum(range(value % 7))  # computes
    return value


def gaps():
    """Lines for which the device waits: one that sleeps, one that computes, one that reads a value."""
    def extra(k):
        time.sleep(0.015)  # sleeps
        cuda.training_launch(b"gemm", 9)

    def before_backward():
        cuda.training_copy(ctypes.c_size_t(8), 0)  # reads
        cuda.training_synchronize()  # waits
        cuda.training_launch(b"gemm", 8)  # late
        compute(0.012)  # caller of what computes
    train(extra=extra, before_backward=before_backward)


def ends():
    """During the named iterations."""
    train(extra=lambda k: sys.exit(3) if k == 35 else None)


def killed():
    """Likewise, after the records of the window have been taken."""
    def extra(k):
        if k == 35:
            while not list(pathlib.Path().rglob("run.json")):
                time.sleep(0.01)
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
    train(extra=extra)


def forks():
    """A child forked in these iterations, in which we are not active."""
    def extra(k):
        if k != 35:
            return
        child = os.fork()
        if child == 0:
            model = Net()
            for _ in range(20):
                (torch.ones(2, requires_grad=True) * model.stem[0].weight).sum().backward()
            os._exit(7)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7:
            sys.exit("a child was harmed")
    train(extra=extra)


def stops():
    """The rest of the program launches nothing."""
    train(extra=lambda k: (time.sleep(8), sys.exit(0)) if k == 35 else None)


globals()[sys.argv[2]]()
