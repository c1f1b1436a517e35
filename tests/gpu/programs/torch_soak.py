# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Training in turns, for the soak test: for each line "SECONDS" on stdin, steps for that long; then one line of JSON.

usage: torch_soak.py MODEL [BATCH] [count]
The answer: "steps", [begin, end] of each on CLOCK_MONOTONIC in ns; "processor", what each took of the thread's time, in ns; "process", what the process holds (memory in kB as in
/proc/self/status, descriptors, threads); "device", bytes in use on the device, whoever uses them. With
"count" just the kernels of a step, as torch.profiler counts them.
"""

import json
import os
import sys
import tempfile
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))


def holds():
    found = {"descriptors": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task"))}
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSize"):
                found[name] = int(value.split()[0])
    return found


def kernels(step):
    """Kernels of one step, if each of three steps has the same number."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            count = sum(event.get("cat") == "kernel" for event in json.load(file)["traceEvents"])
    if count == 0 or count % 3 != 0:
        sys.exit(f"{count} kernels in three steps")
    return count // 3


def main():
    from torch_models import MODELS
    torch.manual_seed(1)
    torch.set_num_threads(1)
    words = sys.argv[1:]
    count = words[-1] == "count" and bool(words.pop())
    step = MODELS[words[0]](torch.device("cuda"), **({"batch": int(words[1])} if len(words) > 1 else {}))
    for _ in range(30):
        step()
    torch.cuda.synchronize()
    if count:
        print(kernels(step))
        return
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        until = time.monotonic_ns() + int(float(line) * 1e9)
        steps, processor = [], []
        while (begin := time.monotonic_ns()) < until:
            before = time.thread_time_ns()
            step()
            processor.append(time.thread_time_ns() - before)
            steps.append((begin, time.monotonic_ns()))
        free, total = torch.cuda.mem_get_info()
        print(json.dumps({"steps": steps, "processor": processor, "process": holds(), "device": total - free}), flush=True)


main()
