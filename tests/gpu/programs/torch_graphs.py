# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""CUDA graphs captured before, inside and between windows, replayed in and out of them; prints what to expect."""

import argparse
import json
import time

import torch

KERNELS = 10


def capture(x):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(KERNELS):
            torch.relu_(x)
    return graph


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    x = torch.randn(1 << 16, device="cuda")
    torch.relu_(x)
    torch.cuda.synchronize()
    graphs = [capture(x)]
    launches = 0
    for _ in range(options.windows):
        torch.cuda.profiler.start()
        for graph in graphs:
            for _ in range(options.count):
                graph.replay()
        launches += options.count * len(graphs)
        torch.cuda.synchronize()
        inside = capture(x)  # its launches are captured, and have not run yet
        torch.cuda.profiler.stop()
        # Replays continue while the window is closed and CUPTI is released, with graphs of every age.
        end = time.monotonic() + 1.3
        while time.monotonic() < end:
            for graph in graphs:
                graph.replay()
            torch.cuda.synchronize()
        graphs += [inside, capture(x)]
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    print(json.dumps({"kernels": launches * KERNELS, "windows": options.windows}))


if __name__ == "__main__":
    main()
