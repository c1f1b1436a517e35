# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Under libinject with INJECT_METRICS: samples the whole device, and so what other processes do on it, from the line `start` on stdin
until `stop`."""

import sys

import torch


def main():
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    print("ready", flush=True)
    for line in sys.stdin:
        getattr(torch.cuda.profiler, line.strip())()
        print(line.strip(), flush=True)


if __name__ == "__main__":
    main()
