#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training script that gets its batches from PyTorch's DataLoader, for test_torch_fetches.py; like torch_training.py, on the host and the
simulated CUDA. It measures each fetch from outside and prints, in JSON, a list for each iteration: the fetches between its beginning and
the next one's, as [nanoseconds, seconds that its samples sleep in the process itself].

usage: torch_loading.py MODULE PATTERN ITERATIONS
"""

import json
import queue
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset
from training_calls import copy, launch

ITERATIONS = int(sys.argv[3])
SLEEP = 0.008
fetched = [[] for _ in range(ITERATIONS + 1)]  # the first one: before the first iteration


class Samples(Dataset):
    def __init__(self, count, sleep=SLEEP):
        self.count, self.sleep = count, sleep

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError
        time.sleep(self.sleep)
        return torch.tensor([float(index)])


class Nested(Samples):
    """A sample is what another loader yields, in the same process."""

    def __getitem__(self, index):
        return torch.cat(list(DataLoader(Samples(2, self.sleep / 2))))


class Measured:
    """Iterates over a loader; its fetch times are recorded for the iteration in progress."""

    def __init__(self, loader, sleep):
        self.loader, self.sleep = loader, sleep

    def __iter__(self):
        batches = iter(self.loader)
        while True:
            begin = time.monotonic_ns()
            try:
                batch = next(batches)
            except StopIteration:
                fetched[Measured.current].append([time.monotonic_ns() - begin, 0.0])
                return
            fetched[Measured.current].append([time.monotonic_ns() - begin, self.sleep])
            yield batch

    current = 0


def step(k, optimizer):
    Measured.current = k + 1
    copy(64, 1)
    launch(f"mark_{k}")
    for _ in range(12):
        for kernel in ("gemm", "norm", "relu", "dropout"):
            launch(kernel)
    if optimizer is not None:
        launch("multi_tensor_apply_update")
        optimizer.step()


def optimizer_of():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones_like(parameter)
    return torch.optim.SGD([parameter], lr=0.1)


def train(loader, sleep, between=None, optimizer=True):
    """Epochs until there are enough iterations."""
    optimizer = optimizer_of() if optimizer else None
    k = 0
    while k < ITERATIONS:
        for _ in Measured(loader, sleep):
            if k == ITERATIONS:
                break
            step(k, optimizer)
            if between is not None:
                between(k)
            k += 1


def single():
    """Epochs of eight: one iteration in the window has the end of one and the beginning of the next."""
    train(DataLoader(Samples(8)), SLEEP)


def one_worker():
    train(DataLoader(Samples(ITERATIONS + 1), num_workers=1), 0.0)


def two_workers():
    train(DataLoader(Samples(ITERATIONS + 1, 2 * SLEEP), num_workers=2), 0.0)


def both():
    """A loader whose dataset gets its samples from another one."""
    train(DataLoader(Nested(ITERATIONS + 1)), SLEEP)


def validation():
    """Batches that are fetched in a phase between two iterations."""
    loader = DataLoader(Samples(5))

    def between(k):
        if k == 31:
            for _ in Measured(loader, SLEEP):
                copy(64, 1)
                for _ in range(12):
                    for kernel in ("gemm", "norm", "relu", "dropout"):
                        launch(kernel)

    train(DataLoader(Samples(ITERATIONS + 1)), SLEEP, between)


def helper_of(samples, work):
    """A thread that prefetches, and does `work` with each batch; returns the queue of batches."""
    batches = queue.Queue(2)
    stop = threading.Event()

    def fetch():
        for batch in DataLoader(samples):
            work()
            while not stop.is_set():
                try:
                    batches.put(batch, timeout=0.01)
                    break
                except queue.Full:
                    pass
            if stop.is_set():
                return

    thread = threading.Thread(target=fetch)
    thread.start()
    return batches, stop, thread


def helper(and_main=False):
    """Another thread fetches the batches, and launches a kernel of its own for each. The training thread waits for that."""
    batches, stop, thread = helper_of(Samples(10 * ITERATIONS), lambda: None if and_main else launch("augment"))
    optimizer = optimizer_of()
    own = iter(Measured(DataLoader(Samples(ITERATIONS + 1, SLEEP / 4)), SLEEP / 4))
    for k in range(ITERATIONS):
        batches.get()
        if and_main:
            next(own)
        step(k, optimizer)
    stop.set()
    thread.join()


def helper_beside():
    """The training thread has a loader as well, and launches everything."""
    helper(and_main=True)


def inference():
    """No optimizer."""
    train(DataLoader(Samples(ITERATIONS + 1)), SLEEP, optimizer=False)


def none():
    """No loader."""
    optimizer = optimizer_of()
    for k in range(ITERATIONS):
        time.sleep(0.002)
        step(k, optimizer)


globals()[sys.argv[2]]()
print(json.dumps(fetched))
