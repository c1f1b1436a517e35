#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training script whose input is the bottleneck, each time for a different reason, for test_host_use.py; like torch_loading.py, on the
host and the simulated CUDA.

usage: torch_input.py MODULE PATTERN ITERATIONS
"""

import ctypes
import os
import subprocess
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

cuda = ctypes.CDLL(sys.argv[1])
ITERATIONS = int(sys.argv[3])
WORK = 0.03  # seconds of CPU time, or of waiting


def compute(seconds=WORK):
    """Uses that much of the thread's CPU time, however long it has to wait for it."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


class Decoded(Dataset):
    """Samples that take a worker's CPU time."""

    def __len__(self):
        return 2 * ITERATIONS

    def __getitem__(self, index):
        compute()
        return torch.tensor([float(index)])


class Stored(Decoded):
    """Samples that come from a slow server, byte by byte."""

    def __init__(self):
        self.pipe, server = os.pipe()

        def serve():
            while True:
                time.sleep(WORK)
                os.write(server, b"x")

        threading.Thread(target=serve, daemon=True).start()

    def __getitem__(self, index):
        os.read(self.pipe, 1)
        return torch.tensor([float(index)])


class Served(Decoded):
    """Samples made by a thread of the main process."""

    def __init__(self):
        self.pipe, server = os.pipe()

        def serve():
            while True:
                compute()
                os.write(server, b"x")

        threading.Thread(target=serve, daemon=True).start()

    def __getitem__(self, index):
        os.read(self.pipe, 1)
        return torch.tensor([float(index)])


class Converted(Decoded):
    """Samples made by a program that the worker starts and waits for."""

    def __getitem__(self, index):
        subprocess.run(["sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"], check=True)
        return torch.tensor([float(index)])


class Threaded(Decoded):
    """Samples that the worker waits for, and then computes in a thread of its own, as video decoders do."""

    def __getitem__(self, index):
        time.sleep(0.4 * WORK)
        thread = threading.Thread(target=compute, args=(0.6 * WORK,))
        thread.start()
        thread.join()
        return torch.tensor([float(index)])


class Slept(Decoded):
    """Samples for which a worker waits, as for a disk."""

    def __getitem__(self, index):
        time.sleep(WORK)
        return torch.tensor([float(index)])


class Plain(Decoded):
    def __getitem__(self, index):
        return torch.tensor([float(index)])


class Packed:
    """Takes long to unpickle, in the process that receives it."""

    def __reduce__(self):
        return unpack, ()


def unpack():
    compute()
    return torch.tensor([1.0])


class Objects(Decoded):
    def __getitem__(self, index):
        return Packed()


def first(samples):
    return samples[0]


def step(k, optimizer):
    cuda.training_copy(ctypes.c_size_t(64), 1)
    for name in [f"mark_{k}"] + 12 * ["gemm", "norm", "relu", "dropout"] + ["multi_tensor_apply_update"]:
        if cuda.training_launch(name.encode(), 1) != 0:
            sys.exit("a launch failed")
    optimizer.step()


def train(loader, after=lambda: None):
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    batches = iter(loader)
    for k in range(ITERATIONS):
        next(batches)
        after()
        step(k, optimizer)


def decode():
    train(DataLoader(Decoded(), num_workers=1))


def fork_server():
    train(DataLoader(Decoded(), num_workers=1, multiprocessing_context="forkserver"))


def cores():
    """Four workers, and one CPU for all."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    train(DataLoader(Decoded(), num_workers=4))


def storage():
    train(DataLoader(Stored(), num_workers=2))


def served():
    train(DataLoader(Served(), num_workers=2))


def converted():
    train(DataLoader(Converted(), num_workers=1))


def threaded():
    train(DataLoader(Threaded(), num_workers=1))


def sleep():
    train(DataLoader(Slept(), num_workers=1))


def collate():
    train(DataLoader(Plain(), num_workers=2), compute)


def unpickle():
    train(DataLoader(Objects(), num_workers=2, collate_fn=first))


def no_workers():
    train(DataLoader(Decoded()))


def in_a_thread():
    thread = threading.Thread(target=no_workers)
    thread.start()
    thread.join()


if __name__ == "__main__":  # workers of a fork server read this file again
    globals()[sys.argv[2]]()
