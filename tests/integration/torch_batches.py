#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training script whose batches a DataLoader collates, for test_units.py with INJECT_BATCH=auto; like torch_training.py, on the host and the
simulated CUDA. It prints, in JSON, how many samples each step had, null where its batches have no tensor with a dimension.

With the pattern `cost` it prints what a fetch takes of a processor, in nanoseconds, the median of ITERATIONS epochs of 3,000 batches each.

usage: torch_batches.py MODULE PATTERN ITERATIONS
"""

import collections
import ctypes
import json
import queue
import statistics
import sys
import threading
import time

import looks
import torch
from torch.utils.data import DataLoader

cuda = ctypes.CDLL(sys.argv[1])
PATTERN, ITERATIONS = sys.argv[2], int(sys.argv[3])
BATCH, DATA = 5, 17  # the last batch of an epoch has two


class Encoding(collections.UserDict):
    """As returned by tokenizers."""


def collate(samples):
    found = torch.stack(samples)
    labels = torch.zeros(len(samples), dtype=torch.long)
    return {
        "tensor": lambda: found,
        "pair": lambda: (found, labels),
        "named": lambda: {"name": [str(sample) for sample in samples], "loss": torch.tensor(1.0), "input": found},
        "encoding": lambda: Encoding(input_ids=found, mask=labels),
        "nested": lambda: [{"images": [found, labels]}, "text"],
        "arrays": lambda: [1, None, found.numpy()],
        "unknown": lambda: {"text": "none", "loss": torch.tensor(1.0), "more": [object()]},
        "deep": lambda: [[[[[[found]]]]]],
    }.get(PATTERN, lambda: (found, labels))()


def call(done):
    if done != 0:
        sys.exit("a call failed")


def step(k, optimizer):
    call(cuda.training_copy(ctypes.c_size_t(64), 1))
    call(cuda.training_launch(f"mark_{k}".encode(), 1))
    for _ in range(8):
        for kernel in ("gemm", "norm", "relu", "dropout"):
            call(cuda.training_launch(kernel.encode(), 1))
    time.sleep(0.002)
    call(cuda.training_launch(b"multi_tensor_apply_update", 1))
    optimizer.step()


def epochs(loader):
    while True:
        yield from loader


def ahead(loader):
    """One thread fetches, and the one that trains gets it later."""
    waiting = queue.Queue(2)

    def fetch():
        for batch in epochs(loader):
            waiting.put(batch)
    threading.Thread(target=fetch, daemon=True).start()
    while True:
        yield waiting.get()


def run():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    data = [torch.ones(3) * i for i in range(DATA)]
    loader = DataLoader(data, batch_size=BATCH, collate_fn=collate, num_workers=2 if PATTERN == "workers" else 0)
    batches = ahead(loader) if PATTERN == "thread" else epochs(loader)
    # By the rule of collation alone: five, five, five, two.
    sizes = [min(BATCH, DATA - first) for first in range(0, DATA, BATCH)]
    told, fetched = [], 0
    for k in range(ITERATIONS):
        samples = 0
        for _ in range(1 + k % 2 if PATTERN == "accumulated" else 1):
            next(batches)
            samples += sizes[fetched % len(sizes)]
            fetched += 1
        step(k, optimizer)
        if k % 10 == 9:  # otherwise all may be over before the first are processed
            looks.wait()
        told.append(None if PATTERN in ("unknown", "deep", "thread") else samples)
    print(json.dumps(told))


def cost():
    call(cuda.training_launch(b"first", 1))
    time.sleep(0.5)  # libinject finds PyTorch
    loader = DataLoader([(torch.ones(4, 3), torch.ones(4))] * 3000, batch_size=None)
    took = []
    for _ in range(ITERATIONS):
        begin = time.thread_time_ns()
        for _ in loader:
            pass
        took.append((time.thread_time_ns() - begin) / 3000)
    print(round(statistics.median(took)))


if __name__ == "__main__":  # workers of a fork server read this file again
    cost() if PATTERN == "cost" else run()
