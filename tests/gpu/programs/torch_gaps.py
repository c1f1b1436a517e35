# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training of tests/gpu/code_places.py in which lines of the program keep the GPU waiting, each for another reason. Writes how long each
of them took in each step, by its own clock; the lines are known by the comment WAITS at their end.

usage: torch_gaps.py STEPS TIMES.json
"""

import json
import queue
import sys
import threading
import time

import torch
from torch import nn

times = {name: [] for name in ("load", "tokens", "hand over", "log", "refresh")}
ready = queue.Queue(1)
asked = queue.Queue(1)


class Timed:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.begin = time.perf_counter_ns()

    def __exit__(self, *_):
        times[self.name].append(time.perf_counter_ns() - self.begin)


def prepare():
    while asked.get():
        time.sleep(0.005)
        ready.put(1)


def load():
    with Timed("load"):
        time.sleep(0.008)  # WAITS load


def tokens():
    with Timed("tokens"):
        return sum(i * i % 7 for i in range(90_000))  # WAITS tokens


def hand_over():
    asked.put(True)
    with Timed("hand over"):
        ready.get()  # WAITS hand over


def log(value):
    with Timed("log"):
        return json.dumps([{"value": value, "n": n, "text": str(n)} for n in range(6000)])  # WAITS log


def refresh(state):
    with Timed("refresh"):
        sorted(state, key=lambda name: state[name][::-1])  # WAITS refresh


def main():
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(4))).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)
    state = {f"{n * 7919 % 20011:08d}": str(n * 7919 % 100003) for n in range(20_000)}
    x = torch.randn(4096, 2048, device="cuda")
    threading.Thread(target=prepare, daemon=True).start()
    for _ in range(int(sys.argv[1])):
        load()
        tokens()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        value = loss.item()  # WAITS item
        log(value)
        hand_over()
        refresh(state)
    asked.put(False)
    torch.cuda.synchronize()
    with open(sys.argv[2], "w") as file:
        json.dump(times, file)


main()
