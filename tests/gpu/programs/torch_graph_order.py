# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Graphs of different kernels, replayed in a random order that is the same each time, in one window after another; prints the
order of each window. The first windows have none of them, so CUPTI is finalized in between."""

import argparse
import json
import random
import time

import torch

GRAPHS = {"sigmoid": 3, "tanh": 5, "erf": 7}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--count", type=int, default=40)
    options = parser.parse_args()
    choose = random.Random(1)
    x = torch.randn(1 << 14, device="cuda")
    graphs = {}
    orders = []
    for number in range(2 + options.windows):
        if number == 2:
            for name, kernels in GRAPHS.items():
                operation = getattr(torch, name)
                operation(x)
                torch.cuda.synchronize()
                graphs[name] = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graphs[name]):
                    y = x
                    for _ in range(kernels):
                        y = operation(y)
        torch.cuda.profiler.start()
        order = choose.choices(list(GRAPHS), k=options.count) if graphs else []
        for name in order:
            graphs[name].replay()
        torch.exp(x)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
        orders.append(order)
        time.sleep(1.3)
    print(json.dumps({"orders": orders, "kernels": GRAPHS}))


if __name__ == "__main__":
    main()
