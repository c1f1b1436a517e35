#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A program that captures graphs as determined by a seed, for test_torch_code.py. Kernels of graphs are launched by lines of sites.py,
several of which have equal kernels. Graphs are chains, or fork; some contain others; before some iterations they are captured again or
updated, with kernels of other lines. It records what each iteration k, which begins with the kernel `mark` of k + 1 blocks, has run for
each line.

usage: torch_graphs.py MODULE SEED ITERATIONS TRUTH.json
"""

import collections
import ctypes
import json
import pathlib
import random
import sys
import time

import torch

cuda = ctypes.CDLL(sys.argv[1])
choice = random.Random(int(sys.argv[2]))
ITERATIONS = int(sys.argv[3])
SITES = 16
FILE = str(pathlib.Path("sites.py").resolve())
KERNELS = [(choice.choice(["gemm", "copy"]), choice.choice([1, 2])) for _ in range(SITES)]
exec(compile("".join(f"def site_{line}(): cuda.training_launch(b'{name}', {blocks})\n" for line, (name, blocks) in enumerate(KERNELS, 1)),
             FILE, "exec"))


class Graph:
    def __init__(self):
        self.capture(self.plan())

    def plan(self):
        """Lines, 0 for a kernel that no hook sees; lists are concurrent branches; a Graph is nested."""
        plan = []
        others = [graph for graph in graphs if graph is not self]
        for _ in range(choice.randint(1, 5)):
            kind = choice.random()
            if kind < 0.12:
                plan.append([[choice.randint(1, SITES) for _ in range(choice.randint(1, 3))] for _ in range(2)])
            elif kind < 0.22 and others:
                plan.append(choice.choice(others))
            else:
                plan.append(choice.choice([0, *range(1, SITES + 1)]))
        return plan

    def run(self, plan):
        """Launches the kernels of each line."""
        lines = collections.Counter()
        for item in plan:
            if isinstance(item, Graph):
                cuda.training_launch_graph(item.number)  # within
                lines += item.lines if item.is_known else collections.Counter({None: item.lines.total()})
            elif isinstance(item, list):
                for branch, sites in enumerate(item):
                    if branch != 0:
                        cuda.training_fork(branch)
                    lines += self.run(sites)
                    if branch != 0:
                        cuda.training_join(branch)
            elif item == 0:
                cuda.training_launch_unseen(b"_Z6unseenv", 1)
                lines[0] += 1
            else:
                globals()[f"site_{item}"]()
                lines[item] += 1
        return lines

    def forks(self, plan):
        return any(isinstance(item, list) or (isinstance(item, Graph) and item.has_forks) for item in plan)

    def capture(self, plan, update=False):
        cuda.training_begin_capture()
        self.lines = self.run(plan)
        if not update:
            self.number = cuda.training_end_capture()
        elif cuda.training_update_graph(self.number) != 0:
            sys.exit("an update failed")
        self.plan_now = plan
        self.has_forks = self.forks(plan)
        # Kernels of a graph with branches and nested graphs can't be told apart.
        self.is_known = not (self.has_forks and any(isinstance(item, Graph) for item in plan))

    def capture_again(self):
        cuda.training_destroy_graph(self.number)
        self.capture(self.plan())

    def update(self):
        """The same kernels, launched by other lines."""
        def alike(item):
            if isinstance(item, list):
                return [alike(one) for one in item]
            if isinstance(item, Graph) or item == 0:
                return item
            return choice.choice([line for line in range(1, SITES + 1) if KERNELS[line - 1] == KERNELS[item - 1]])
        if not any(isinstance(item, Graph) for item in self.plan_now):
            self.capture(alike(self.plan_now), update=True)


graphs = []
for _ in range(4):
    graphs.append(Graph())
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.01)
truth = []
for k in range(ITERATIONS):
    time.sleep(0.002)
    cuda.training_copy(ctypes.c_size_t(64), 1)
    cuda.training_launch(b"mark", k + 1)
    if k < 5 or choice.random() < 0.2:
        graph = choice.choice(graphs)
        choice.choice([graph.capture_again, graph.update])()
    lines = collections.Counter()
    for graph in graphs:
        cuda.training_launch_graph(graph.number)  # replay
        lines += graph.lines if graph.is_known else collections.Counter({None: graph.lines.total()})
    optimizer.step()
    truth.append([[line, count] for line, count in lines.items()])
pathlib.Path(sys.argv[4]).write_text(json.dumps(truth))
