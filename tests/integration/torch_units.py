#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training script that reports how many tokens its batches have, for test_units.py; like torch_training.py, on the host and the simulated
CUDA. Batches have any number of sequences of any length, and a step has one to three of them, as given by PATTERN. It prints, in JSON, how
many tokens each step had.

usage: torch_units.py MODULE PATTERN ITERATIONS
"""

import json
import random
import sys
import time

import looks
import torch
from torch.utils.data import DataLoader
from training_calls import copy, launch

import libinject

PATTERN, ITERATIONS = sys.argv[2], int(sys.argv[3])
numbers = random.Random(PATTERN)


def layers(length):
    for _ in range(length if PATTERN != "fixed" else 6):
        for kernel in ("gemm", "norm", "relu", "dropout"):
            launch(kernel, length)


def run():
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    # A batch: the lengths of its sequences.
    data = [torch.tensor([numbers.randrange(2, 12) for _ in range(numbers.randrange(1, 9))]) for _ in range(3 * ITERATIONS)]
    batches = iter(DataLoader(data, batch_size=None))
    told = []
    for k in range(ITERATIONS):
        tokens = 0
        for part in range(numbers.choice((1, 1, 2, 3)) if PATTERN == "accumulated" else 1):
            lengths = next(batches)
            libinject.units(lengths.sum().item())
            tokens += int(lengths.sum())
            time.sleep(0.002)
            copy(8 * len(lengths), 1)
            if part == 0:
                launch(f"mark_{k}")
            layers(int(lengths.max()))
        launch("multi_tensor_apply_update")
        optimizer.step()
        if PATTERN == "logged" and k % 3 == 0:
            copy(4, 0)  # loss.item()
        if k % 10 == 9:  # otherwise all may be over before the first are processed
            looks.wait()
        told.append(tokens)
    return told


print(json.dumps(run()))
