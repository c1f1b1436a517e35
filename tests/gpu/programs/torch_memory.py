# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Allocates before, in and after a window, and once more than there is; prints what PyTorch and the driver say of it."""

import json
import time

import torch

MB = 1 << 20
TOO_MUCH = 1 << 43  # bytes


def in_use():
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def filled(megabytes):
    return torch.zeros(megabytes * MB, dtype=torch.uint8, device="cuda")


def main():
    kept = [filled(512)]
    # The peak is before the window.
    torch.relu(torch.randn(64, device="cuda"))
    large = filled(4096)
    del large
    torch.cuda.empty_cache()
    pinned = torch.empty(64 * MB, dtype=torch.uint8, pin_memory=True)

    torch.cuda.profiler.start()
    at_start = in_use()
    time.sleep(1.5)  # the driver's library is loaded as the first window opens
    kept.append(filled(1024))
    for _ in range(10):
        torch.relu(torch.randn(1 << 20, device="cuda"))
    at_end = in_use()
    torch.cuda.profiler.stop()
    time.sleep(1.5)

    kept.append(filled(256))
    failed = False
    try:
        torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        failed = True
    stats = torch.cuda.memory_stats()
    print(json.dumps({"max_allocated": torch.cuda.max_memory_allocated(), "allocated": torch.cuda.memory_allocated(),
                      "max_reserved": torch.cuda.max_memory_reserved(), "reserved": torch.cuda.memory_reserved(),
                      "allocations": stats.get("num_device_alloc"), "frees": stats.get("num_device_free"),
                      "at_start": at_start, "at_end": at_end, "failed": failed, "too_much": TOO_MUCH,
                      "pinned": pinned.numel(), "kept": len(kept)}), flush=True)


if __name__ == "__main__":
    main()
