# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training loop that lives with other processes and threads, as --mode says. Prints JSON with the known counts."""

import argparse
import json
import subprocess
import sys
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.full((64,), float(index))


def train(batches):
    weight = torch.zeros(64, device="cuda")
    count = 0
    for batch in batches:
        weight += batch.to("cuda", non_blocking=True).mean(0)
        count += 1
    torch.cuda.synchronize()
    return count


def loader(context):
    # Started inside the window: the children inherit its state.
    return train(DataLoader(Squares(), batch_size=16, num_workers=4, multiprocessing_context=context))


def subprocesses():
    x = torch.zeros(16, device="cuda")
    for command in (["true"], ["sh", "-c", "python3 -c 'print(1)' >/dev/null; git --version >/dev/null 2>&1; exit 0"],
                    [sys.executable, "-c", "import json, threading; t = threading.Thread(target=lambda: None); t.start(); t.join()"],
                    ["/nonexistent/program"]):
        x += 1
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            pass
    torch.cuda.synchronize()
    return 4


def threads(number, launches):
    barrier = threading.Barrier(number)

    def work():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.zeros(64, device="cuda")
            barrier.wait()
            for _ in range(launches):
                x.add_(1.0)
            stream.synchronize()
        assert float(x[0]) == launches

    pool = [threading.Thread(target=work) for _ in range(number)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    return number * launches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("fork", "spawn", "subprocess", "threads16", "threads32"), required=True)
    mode = parser.parse_args().mode
    train([torch.ones(16, 64)])  # load all kernels before the window
    warm = torch.zeros(4, device="cuda")
    warm.add_(1.0)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    if mode == "fork" or mode == "spawn":
        count = loader(mode)
    elif mode == "subprocess":
        count = subprocesses()
    else:
        count = threads(int(mode[len("threads"):]), 2000)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(json.dumps({"count": count}))


if __name__ == "__main__":
    main()
