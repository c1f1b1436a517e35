# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Two windows: a thousand training steps of some 15 ms, and then a few of them around a pause of four seconds."""

import argparse
import time

import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--milliseconds", type=float, default=15)
    options = parser.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(layer for _ in range(4) for layer in (torch.nn.Linear(4096, 4096), torch.nn.ReLU()))).cuda().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step(batch):
        optimizer.zero_grad()
        model(batch).float().square().mean().backward()
        optimizer.step()

    def seconds(batch, count):
        torch.cuda.synchronize()
        begin = time.monotonic()
        for _ in range(count):
            step(batch)
        torch.cuda.synchronize()
        return (time.monotonic() - begin) / count

    # The batch size that such a step needs.
    batch = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    seconds(batch, 10)
    rows = int(min(65536, max(1024, 4096 * options.milliseconds / 1e3 / seconds(batch, 20))))
    batch = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)
    print(f"step of {seconds(batch, 20) * 1e3:.1f} ms with {rows} rows", flush=True)
    time.sleep(0.5)

    torch.cuda.profiler.start()
    for _ in range(options.steps):
        step(batch)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    time.sleep(2)

    torch.cuda.profiler.start()
    seconds(batch, 10)
    time.sleep(4)
    seconds(batch, 10)
    torch.cuda.profiler.stop()
    time.sleep(0.5)


if __name__ == "__main__":
    main()
