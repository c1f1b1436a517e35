# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""torch.profiler and our window in one process, in the order that --mode names. Prints how many kernels
torch.profiler saw, as JSON: {"theirs": N, "count": products in each window}."""

import argparse
import json
import time

import torch
from torch.profiler import ProfilerActivity, profile


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("after", "inside", "before", "only", "turns"), required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--pause", type=float, default=2.0)
    options = parser.parse_args()
    x = torch.randn(256, 256, device="cuda")

    def work():
        for _ in range(options.count):
            torch.relu(x)
        torch.cuda.synchronize()

    def ours():
        torch.cuda.profiler.start()
        work()
        torch.cuda.profiler.stop()

    def theirs():
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            time.sleep(0.02)
            work()
            time.sleep(0.02)
        return sum("CUDA" in str(e.device_type()) and ("relu" in e.name() or "clamp" in e.name())
                   for e in prof.profiler.kineto_results.events())

    work()
    seen = 0
    if options.mode == "after":
        ours()
        time.sleep(options.pause)
        seen = theirs()
    elif options.mode == "inside":
        torch.cuda.profiler.start()
        work()
        seen = theirs()
        work()
        torch.cuda.profiler.stop()
    elif options.mode == "before":
        seen = theirs()
        ours()
    elif options.mode == "turns":
        # Of our three windows, torch.profiler runs after the first, in the second, and before the third.
        ours()
        time.sleep(options.pause)
        seen = [theirs()]
        torch.cuda.profiler.start()
        work()
        seen.append(theirs())
        work()
        torch.cuda.profiler.stop()
        ours()
    else:
        seen = theirs()
    work()
    assert float(torch.relu(x).min()) >= 0
    print(json.dumps({"theirs": seen, "count": options.count}))


if __name__ == "__main__":
    main()
