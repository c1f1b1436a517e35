# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Copies of known sizes in PyTorch; prints what to expect of copy_sum.csv.

blocking      between host and device, pageable and pinned, and on the device
non_blocking  pinned, behind a kernel on the same stream, and timed by CUDA events
overlap       pinned, on a stream of their own beside a kernel
reads         single values
"""

import argparse
import json
import time

import torch

BYTES = 64 << 20
SMALL = 4096
KERNEL_CYCLES = 800_000_000  # about 0.4 s: longer than the copies over any link


def host(pinned, size=BYTES):
    # Writing to it allocates its pages.
    return torch.ones(size, dtype=torch.uint8, pin_memory=pinned)


def entry(direction, source, target, count, size, waited, small=0):
    """`size`: total bytes; `waited`: how many of `count` the host waits for."""
    return {"direction": direction, "source": source, "target": target, "count": count, "bytes": size, "small": small,
            "waited": waited}


class Copies:
    def __init__(self, repeats):
        self.repeats = repeats
        self.device = [torch.zeros(BYTES, dtype=torch.uint8, device="cuda") for _ in range(2)]
        self.pinned, self.pageable = host(True), host(False)
        self.few = host(True, SMALL)
        self.counter = torch.zeros(1, device="cuda")
        self.stream = torch.cuda.Stream()

    def warm_up(self):
        for memory in (self.pinned, self.pageable):
            self.device[0].copy_(memory)
            memory.copy_(self.device[0])
        self.device[1].copy_(self.device[0])
        self.device[0][:SMALL].copy_(self.few)
        self.kernel()
        self.long_kernel(1000)
        with torch.cuda.stream(self.stream):
            self.kernel()
        for _ in range(3):
            self.counter[0].item()
        self.timed(lambda: None)
        torch.cuda.synchronize()

    def kernel(self):
        self.counter.add_(1)

    @staticmethod
    def long_kernel(cycles=KERNEL_CYCLES):
        torch.cuda._sleep(cycles)

    @staticmethod
    def timed(work):
        """CUDA events around what `work` submits, to be read later."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        return begin, end

    def upload(self, memory, non_blocking):
        for _ in range(self.repeats):
            self.device[0].copy_(memory, non_blocking=non_blocking)

    def download(self, memory, non_blocking):
        for _ in range(self.repeats):
            memory.copy_(self.device[1], non_blocking=non_blocking)

    def blocking(self):
        for memory in (self.pinned, self.pageable):
            self.upload(memory, False)
            self.download(memory, False)
        self.long_kernel(20_000_000)
        for _ in range(self.repeats):
            self.device[1].copy_(self.device[0])
        self.kernel()
        count, size = self.repeats, self.repeats * BYTES
        return {"rows": [entry("Host-to-Device", "Pinned", "Device", count, size, count),
                         entry("Host-to-Device", "Pageable", "Device", count, size, count),
                         entry("Device-to-Host", "Device", "Pinned", count, size, count),
                         entry("Device-to-Host", "Device", "Pageable", count, size, count),
                         entry("Device-to-Device", "Device", "Device", count, size, 0)],
                "hints": [["Host-to-Device", "Pageable", "pin_memory=True"], ["Device-to-Host", "Pageable", "into pinned memory"],
                          ["Host-to-Device", "Pinned", "the host waits"], ["Device-to-Device", "Device", None]]}

    def non_blocking(self):
        self.long_kernel(KERNEL_CYCLES // 4)
        up = self.timed(lambda: self.upload(self.pinned, True))
        down = self.timed(lambda: self.download(self.pinned, True))
        for _ in range(self.repeats):
            self.device[0][:SMALL].copy_(self.few, non_blocking=True)
        self.kernel()
        torch.cuda.synchronize()
        rates = [self.repeats * BYTES / (begin.elapsed_time(end) * 1e6) for begin, end in (up, down)]
        # The small ones are in the same row: they add next to nothing to its bytes and its time.
        return {"rows": [entry("Host-to-Device", "Pinned", "Device", 2 * self.repeats, self.repeats * (BYTES + SMALL), 0,
                               small=self.repeats),
                         entry("Device-to-Host", "Device", "Pinned", self.repeats, self.repeats * BYTES, 0)],
                "rates": {"Host-to-Device": rates[0], "Device-to-Host": rates[1]}, "overlap": [0, 10],
                "hints": [["Host-to-Device", "Pinned", "no kernel runs meanwhile"]]}

    def overlap(self):
        self.long_kernel()
        time.sleep(0.02)  # the kernel is running
        with torch.cuda.stream(self.stream):
            up = self.timed(lambda: self.upload(self.pinned, True))
            down = self.timed(lambda: self.download(self.pinned, True))
            self.kernel()
        torch.cuda.synchronize()
        rates = [self.repeats * BYTES / (begin.elapsed_time(end) * 1e6) for begin, end in (up, down)]
        return {"rows": [entry("Host-to-Device", "Pinned", "Device", self.repeats, self.repeats * BYTES, 0),
                         entry("Device-to-Host", "Device", "Pinned", self.repeats, self.repeats * BYTES, 0)],
                "rates": {"Host-to-Device": rates[0], "Device-to-Host": rates[1]}, "overlap": [80, 100], "hints": []}

    def reads(self):
        count = 30 * self.repeats
        for _ in range(count):
            self.kernel()
            self.counter[0].item()
        # PyTorch chooses the kind of memory.
        return {"rows": [entry("Device-to-Host", "Device", None, count, 4 * count, count, small=count)],
                "hints": [["Device-to-Host", None, "values read one by one"]]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=("blocking", "non_blocking", "overlap", "reads"))
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    copies = Copies(options.repeats)
    copies.warm_up()
    torch.cuda.profiler.start()
    expected = getattr(copies, options.mode)()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(json.dumps(expected))


if __name__ == "__main__":
    main()
