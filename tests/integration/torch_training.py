#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training script with PyTorch's own optimizers, for test_torch_steps.py: their parameters are on the host, and a GPU's work is launched
on the simulated CUDA. Each iteration k begins with a copy and the kernel `mark_k`.

usage: torch_training.py MODULE PATTERN ITERATIONS
"""

import contextlib
import ctypes
import itertools
import os
import pathlib
import random
import sys
import threading
import time

import torch
from training_calls import copy, launch

ITERATIONS = int(sys.argv[3])


def optimizer_of(base, sizes):
    """An optimizer of that class, which launches a kernel for each parameter's size, and one more for its state at first."""
    class Launching(base):
        def step(self, closure=None):
            if not self.state:
                launch("make_state")
            for size in sizes:
                launch("multi_tensor_apply_update", size)
            return super().step(closure)

    Launching.__name__ = base.__name__
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return Launching(parameters, lr=0.1)


def begin(k, size=64):
    time.sleep(0.002)
    copy(size, 1)
    launch(f"mark_{k}")


def layers(count=6, length=1):
    for _ in range(count):
        launch("multi_tensor_apply_gather", length)
        for kernel in ("gemm", "norm", "relu", "dropout"):
            launch(kernel, length)


def report(k):
    if k % 5 == 2:
        copy(4, 0)


def plain(iterations=ITERATIONS):
    optimizer = optimizer_of(torch.optim.Adam, (3, 5))
    for k in range(iterations):
        begin(k)
        layers()
        optimizer.step()
        report(k)


def accumulation():
    optimizer = optimizer_of(torch.optim.SGD, (3, 5))
    for k in range(ITERATIONS):
        begin(k)
        for _ in range(4):
            layers(3)
        optimizer.step()


def alike():
    """Optimizers that launch the same, one right after the other."""
    optimizers = [optimizer_of(torch.optim.Adam, (3, 5)) for _ in range(3)]
    for k in range(ITERATIONS):
        begin(k)
        layers()
        for optimizer in optimizers:
            optimizer.step()
        report(k)


def until_a_window_is_written():
    """Counts up to it, and gives up after a time that no machine should need."""
    inject = ctypes.CDLL(None)
    until, opened = time.monotonic() + 60, False
    for k in itertools.count():
        now = bool(inject.inject_is_open())
        if (opened and not now) or time.monotonic() > until:
            inject.inject_flush()
            return
        opened = opened or now
        yield k


def gan(alone=()):
    """`alone`: how often the critic trains by itself at first."""
    critic, generator = optimizer_of(torch.optim.Adam, (3, 5)), optimizer_of(torch.optim.Adam, (2, 7, 9))
    for _ in alone:
        time.sleep(0.002)
        layers(4)
        critic.step()
    for k in range(ITERATIONS):
        begin(k)
        for _ in range(2):
            layers(4)
            critic.step()
        layers(5)
        generator.step()
        report(k)


def critic_first():
    gan(until_a_window_is_written())


def lengths():
    """Only the steps repeat."""
    numbers = random.Random(1)
    optimizer = optimizer_of(torch.optim.Adam, (3, 5))
    for k in range(ITERATIONS):
        begin(k, numbers.randrange(4, 4096))
        layers(numbers.randrange(2, 30), numbers.randrange(1, 1000))
        optimizer.step()
        report(k)


def nested():
    """A wrapper that is an optimizer itself, and steps the one inside."""
    inner = optimizer_of(torch.optim.SGD, (3, 5))

    class Wrapper(torch.optim.Optimizer):
        def step(self, closure=None):
            inner.step()
            launch("multi_tensor_apply_average", 2)
            inner.step()

    wrapper = Wrapper([torch.nn.Parameter(torch.ones(2))], {})
    for k in range(ITERATIONS):
        begin(k)
        layers()
        wrapper.step()


def parameters():
    """An optimizer for each parameter, as used in backward hooks."""
    numbers = random.Random(2)
    optimizers = [optimizer_of(torch.optim.SGD, (numbers.randrange(1, 12),)) for _ in range(40)]
    for k in range(ITERATIONS):
        begin(k)
        layers(8)
        for i, optimizer in enumerate(optimizers):
            launch("gradient", 1 + i % 3)
            optimizer.step()


def closure():
    """Forward and backward run inside the step, several times."""
    weight = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = torch.optim.LBFGS([weight], max_iter=4, tolerance_grad=0, tolerance_change=0)
    for k in range(ITERATIONS):
        begin(k)

        def evaluate():
            optimizer.zero_grad()
            layers(2)
            loss = ((weight - torch.rand(2)) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(evaluate)


def whole():
    """The whole iteration is inside the step, as with L-BFGS on all of the data."""
    weight = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
    copy(64, 1)  # the model
    optimizer = torch.optim.LBFGS([weight], max_iter=3, tolerance_grad=0, tolerance_change=0)
    for k in range(ITERATIONS):
        time.sleep(0.002)
        first = [True]

        def evaluate():
            optimizer.zero_grad()
            layers(2)
            # A step is identified by what it launches, which stays the same except for those under test.
            if first and 29 <= k <= 34:
                launch(f"mark_{k}")
            first.clear()
            loss = ((weight - torch.rand(2)) ** 2).sum()
            loss.backward()
            return loss

        optimizer.step(evaluate)


def raises():
    """A step that sometimes fails, and is repeated."""
    optimizer = optimizer_of(torch.optim.Adam, (3, 5))

    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise ValueError

    failing = Failing([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    for k in range(ITERATIONS):
        begin(k)
        layers()
        with contextlib.suppress(ValueError):
            failing.step()
        optimizer.step()


def skips():
    """Gradients that are not finite, and hence no step."""
    optimizer = optimizer_of(torch.optim.Adam, (3, 5))
    for k in range(ITERATIONS):
        begin(k)
        layers()
        launch("multi_tensor_apply_unscale")
        copy(4, 0)
        if k not in (0, 1, 17, 18, 31):
            optimizer.step()


def threads():
    """A thread beside the training one that steps nothing, and gradients on another thread."""
    stop = threading.Event()

    def other():
        while not stop.wait(0.001):
            with torch.autograd.profiler.record_function("Optimizer.zero_grad#Adam.zero_grad"):
                pass

    thread = threading.Thread(target=other)
    thread.start()
    plain()
    stop.set()
    thread.join()


def forks():
    """Children that step on their own."""
    optimizer = optimizer_of(torch.optim.Adam, (3, 5))
    for k in range(ITERATIONS):
        begin(k)
        layers()
        optimizer.step()
        if k % 10 == 5:
            child = os.fork()
            if child == 0:
                torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1).step()
                with torch.autograd.profiler.record_function("user"):
                    os._exit(7)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7:
                sys.exit("a child was harmed")


def profiled():
    """PyTorch's profiler beside us; it only clears its own callbacks."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        plain()
    steps = [event for event in profiler.key_averages() if event.key == "Optimizer.step#Adam.step"]
    if [event.count for event in steps] != [ITERATIONS]:
        sys.exit("the profiler has other steps")


def varying():
    """Two optimizers of one class, and no step launches the same as another."""
    numbers = random.Random(3)
    sizes = [3, 5], [2, 7, 9]
    critic, generator = (optimizer_of(torch.optim.Adam, own) for own in sizes)
    for k in range(ITERATIONS):
        begin(k)
        for optimizer in (critic, critic, generator):
            layers(4)
            for own in sizes:
                own[0] = numbers.randrange(1, 10_000)
            optimizer.step()
        report(k)


def ensemble():
    """Two models of one kind, trained in alternating iterations."""
    optimizers = [optimizer_of(torch.optim.Adam, (3, 5)) for _ in range(2)]
    for k in range(ITERATIONS):
        begin(k)
        layers()
        optimizers[k % 2].step()
        report(k)


def cleared(at):
    """The program clears everybody's callbacks at iteration `at`, and continues until ours has long been missed."""
    library = pathlib.Path(torch.__file__).parent / "lib/libtorch_cpu.so"
    clear = ctypes.CDLL(str(library))._ZN2at14clearCallbacksEv
    optimizer = optimizer_of(torch.optim.Adam, (3, 5))
    end = None
    for k in itertools.count():
        begin(k)
        layers()
        optimizer.step()
        if k == at:
            clear()
            end = time.monotonic() + 4
        if end is not None and time.monotonic() > end:
            print(k)
            return


def cleared_early():
    cleared(2)


def cleared_in_the_window():
    cleared(31)


def exits():
    """The process ends in a step."""
    class Leaving(torch.optim.SGD):
        def step(self, closure=None):
            sys.exit(3)

    plain()
    Leaving([torch.nn.Parameter(torch.ones(2))], lr=0.1).step()


globals()[sys.argv[2]]()
