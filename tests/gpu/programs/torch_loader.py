# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A small training script whose samples take far longer than its steps. Writes what it measures of its fetches, in JSON: a list for each
iteration, of the nanoseconds of each fetch between the iteration's first work and the next one's."""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SAMPLE = 0.03  # seconds


class Slow(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        end = time.monotonic() + SAMPLE
        image = torch.randn(784)
        while time.monotonic() < end:
            image = image.roll(1)
        return image, index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--epoch", type=int, default=36, help="steps in it")
    parser.add_argument("--measured", required=True, help="is written")
    options = parser.parse_args()
    model = torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Slow(options.epoch), batch_size=1, num_workers=options.workers, persistent_workers=options.workers > 0)
    fetched = []
    taken = []  # before the first iteration
    while len(fetched) < options.steps:
        batches = iter(loader)
        while len(fetched) < options.steps:
            begin = time.monotonic_ns()
            batch = next(batches, None)
            taken.append(time.monotonic_ns() - begin)
            if batch is None:
                break
            taken = []
            fetched.append(taken)
            x, y = (part.to("cuda") for part in batch)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    torch.cuda.synchronize()
    with open(options.measured, "w") as file:
        json.dump(fetched, file)


if __name__ == "__main__":
    main()
