# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Products captured into CUDA graphs while a window is open, forward and (on a thread of its own) backward, and one graph
captured before; prints what to expect."""

import argparse
import json

import torch

ROWS, INNER, COLUMNS = 256, 512, 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replays", type=int, default=10)
    options = parser.parse_args()
    x = torch.randn(ROWS, INNER, device="cuda", dtype=torch.float16, requires_grad=True)
    w = torch.randn(INNER, COLUMNS, device="cuda", dtype=torch.float16, requires_grad=True)
    left, right = (torch.randn(384, 384, device="cuda", dtype=torch.float16) for _ in range(2))

    def product():
        with torch.no_grad():
            return torch.mm(left, right)

    def step():
        return torch.autograd.grad(torch.relu(torch.mm(x, w)).sum(), [x, w])

    # Handles and workspaces are created outside of captures.
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            product(), step()
    torch.cuda.synchronize()

    def capture(work):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept.append(work())
        return graph

    kept = []
    before = capture(product)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    graphs = [capture(product), capture(step)]
    for _ in range(options.replays):
        for graph in graphs:
            graph.replay()
    torch.cuda.synchronize()
    before.replay()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    # As in cuBLAS, which is column-major.
    shapes = [(384, 384, 384), (COLUMNS, ROWS, INNER), (COLUMNS, INNER, ROWS), (INNER, ROWS, COLUMNS)]
    print(json.dumps({"replays": options.replays, "shapes": sorted(shapes)}))


if __name__ == "__main__":
    main()
