# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A small training script, to be ended from outside: a perceptron fed by a DataLoader, some 10 ms a step.

Lines on stdout: "step K" after the first steps, then "done" at its own end, "unwound" however it ends but by an exit at once.
"""

import argparse
import contextlib
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WARM_STEPS = 20  # until everything that a step needs is loaded


class Digits(Dataset):
    def __init__(self, length):
        self.length = length
        self.image = torch.randn(784)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.image, index % 10


def bracket(kind, step):
    """What marks a step: an NVTX range with its name, or the profiler API at the same calls."""
    if kind == "nvtx":
        return torch.cuda.nvtx.range(f"step{step}")
    if kind == "api":
        return torch.cuda.profiler.profile()
    return contextlib.nullcontext()


def batches(options):
    length = 64 * options.epoch
    loader = DataLoader(Digits(length), batch_size=64, num_workers=options.workers, pin_memory=options.device == "cuda",
                        persistent_workers=options.persistent)
    while True:
        yield from loader


def model_of(options):
    model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 10)).to(options.device)
    if not options.ddp:
        return model
    import torch.distributed as dist
    # Ranks that share a GPU: not supported by NCCL.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    return torch.nn.parallel.DistributedDataParallel(model)


def train(options):
    torch.manual_seed(0)
    model = model_of(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    end = time.monotonic() + options.seconds
    for step, (x, y) in enumerate(batches(options)):
        if step == options.steps or time.monotonic() > end:
            break
        if options.until and os.path.exists(options.until):
            break
        # The same steps whichever way they are marked.
        with bracket(options.bracket if step >= WARM_STEPS else None, step):
            x, y = x.to(options.device, non_blocking=True), y.to(options.device, non_blocking=True)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            loss.item()
        if step == WARM_STEPS:
            print(f"step {step}", flush=True)
        time.sleep(0.008)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="tells its processes from others")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--until", help="ends once this file exists")
    parser.add_argument("--status", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epoch", type=int, default=100, help="steps in it")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--bracket", choices=("nvtx", "api"))
    parser.add_argument("--ddp", action="store_true", help="under torchrun")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    try:
        train(options)
        print("done", flush=True)
    finally:
        print("unwound", flush=True)
    sys.exit(options.status)


if __name__ == "__main__":
    main()
