# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Programs for the test of hardware metrics; prints JSON, times on CLOCK_MONOTONIC.

usage: torch_metrics.py phases [WINDOWS [PAUSE_SECONDS]] | turns SECONDS MODEL [BATCH] | exit | kernels SECONDS [NAME,…] |
       pooled alone|mixed | memory | devices | clock | threads NUMBER
  phases: in each window a large product in bfloat16, one in fp32 without tensor cores, and a pause
  turns: for each line that comes, training steps in a window, about that long: how long each took
  exit: ends in an open window, with kernels under way
  kernels: in one window each kind of kernel for that long, with what it computes and moves; at 0 s twice each, for ncu
  pooled: in one window kernels of 20 to 100 us, each by itself for a while or in a random order
  devices: in one window large products on the first two devices at once, then on the second alone
  memory: what the process has in memory amid a window
  clock: the same light work before a window, in it and after it
  threads: that many threads launch while windows open and close: launches a second, and what they took at most
"""

import collections
import json
import os
import random
import resource
import sys
import threading
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

SIZE = 8192


def work(seconds, left, right):
    """Products for that time; returns when they began and ended."""
    begin = time.monotonic_ns()
    while time.monotonic_ns() - begin < seconds * 1e9:
        left @ right
        torch.cuda.synchronize()
    return begin, time.monotonic_ns()


def phases(windows, pause):
    torch.backends.cuda.matmul.allow_tf32 = False
    pairs = {"bf16": [torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2)],
             "fp32": [torch.randn(SIZE // 2, SIZE // 2, device="cuda") for _ in range(2)]}
    for pair in pairs.values():
        work(0.2, *pair)  # warm-up
    found = []
    for _ in range(windows):
        torch.cuda.profiler.start()
        spans = {name: work(0.3, *pair) for name, pair in pairs.items()}
        begin = time.monotonic_ns()
        time.sleep(0.1)
        spans["idle"] = begin, time.monotonic_ns()
        torch.cuda.profiler.stop()
        found.append(spans)
        time.sleep(pause)
    print(json.dumps(found), flush=True)


def mapped():
    """{file or [anonymous]: its resident bytes}."""
    found, name = collections.Counter(), ""
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as file:
        for line in file:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                name = os.path.basename(words[5]) if len(words) > 5 else "[anonymous]"
            elif words[0] == "Rss:":
                found[name] += int(words[1]) * 1024
    return found


def turns(seconds, model, batch=None):
    """Prints one line first, and one for each line that it reads: steps in a window, and the duration of each."""
    from torch_models import MODELS
    step = MODELS[model](torch.device("cuda"), **({"batch": batch} if batch else {}))
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    count = max(10, round(seconds * 1e10 / (time.perf_counter_ns() - begin)))
    free_before = None
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        if free_before is None:
            free_before, _ = torch.cuda.mem_get_info()
        torch.cuda.profiler.start()
        times = []
        for _ in range(count):
            begin = time.perf_counter_ns()
            step()
            times.append(time.perf_counter_ns() - begin)
        torch.cuda.synchronize()
        free, _ = torch.cuda.mem_get_info()
        torch.cuda.profiler.stop()
        # Device memory taken by the window; the other process keeps its own all the time.
        memory = {"resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "device_own": free_before - free,
                  "mapped": mapped()}
        time.sleep(1.2)  # CUPTI is released before the other process's turn
        print(json.dumps({"times": times, "memory": memory}), flush=True)


def kinds():
    """{name: (function, work per call)}: FLOPs, bytes that must be read from memory and written to it."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    on = {"device": "cuda"}
    half = {"device": "cuda", "dtype": torch.bfloat16}
    n, elements, rows = 8192, 1 << 28, 1 << 16
    a, b, half_out = torch.randn(n, n, **half), torch.randn(n, n, **half), torch.empty(n, n, **half)
    c, d, out = (torch.randn(n // 2, n // 2, **on) for _ in range(3))
    x, y, z = (torch.zeros(elements, **on) for _ in range(3))
    table, table_out = torch.randn(rows, 4096, **on), torch.empty(rows, 4096, **on)
    total = torch.empty((), **on)
    image = torch.randn(128, 256, 56, 56, **half).to(memory_format=torch.channels_last)
    filters = torch.randn(256, 256, 3, 3, **half).to(memory_format=torch.channels_last)
    cell, state = torch.nn.LSTMCell(1024, 1024).cuda(), torch.randn(512, 1024, **on)
    resident = [torch.zeros(1 << 20, **on) for _ in range(3)]  # 12 MB: stays in the L2 cache of all GPUs that are sampled here

    def step_cell():
        with torch.no_grad():
            cell(state)

    return {
        "gemm_bf16": (lambda: torch.mm(a, b, out=half_out), {"tensor_flop": 2 * n ** 3}),
        "gemm_fp32": (lambda: torch.mm(c, d, out=out), {"fma_flop": 2 * (n // 2) ** 3}),
        "elementwise": (lambda: torch.add(x, y, out=z), {"read": 8 * elements, "written": 4 * elements}),
        "reduction": (lambda: torch.sum(x, 0, out=total), {"read": 4 * elements, "written": 0}),
        "softmax": (lambda: torch.softmax(table, 1, out=table_out), {"read": 4 * table.numel(), "written": 4 * table.numel()}),
        "convolution": (lambda: torch.nn.functional.conv2d(image, filters, padding=1),
                        {"tensor_flop": 2 * 128 * 56 * 56 * 256 * 256 * 9}),
        "rnn_cell": (step_cell, {}),
        "resident": (lambda: torch.add(resident[0], resident[1], out=resident[2]), {"read": 0, "written": 0}),
    }


def kernels(seconds, names):
    found = {}
    all_kinds = kinds()
    wanted = {name: all_kinds[name] for name in names or all_kinds}
    for call, _ in wanted.values():
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for name, (call, one) in wanted.items():
        calls, begin = 0, time.monotonic_ns()
        # Queued in batches, so that the device does not wait for us, and is never far behind.
        done = [torch.cuda.Event(), torch.cuda.Event()]
        while calls < 2 or time.monotonic_ns() - begin < seconds * 1e9:
            for _ in range(20 if seconds else 1):
                call()
                calls += 1
            done[0].record()
            done.reverse()
            done[0].synchronize()
        torch.cuda.synchronize()
        found[name] = {"span": [begin, time.monotonic_ns()], "calls": calls, "one": one}
        time.sleep(0.05)
    torch.cuda.profiler.stop()
    about = torch.cuda.get_device_properties(0)
    print(json.dumps({"kinds": found, "capability": [about.major, about.minor], "sms": about.multi_processor_count,
                      "l2": about.L2_cache_size}), flush=True)


def pooled(how, seconds=0.7, sets=8):
    """There are so many operands and results that they are read from and written to memory whatever ran before. The device rests in
    between, so that its clock is not lowered if one kind alone would take too much power."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    on = {"device": "cuda"}
    half = {"device": "cuda", "dtype": torch.bfloat16}

    def many(make):
        return [make() for _ in range(sets)]

    square = many(lambda: [torch.randn(2048, 2048, **half) for _ in range(3)])
    single = many(lambda: [torch.randn(32, 384, 384, **on) for _ in range(3)])
    vectors = many(lambda: [torch.zeros(12 << 20, **on) for _ in range(3)])
    rows = many(lambda: [torch.randn(4096, 4096, **on) for _ in range(2)])
    thin = many(lambda: [torch.randn(16 << 20, **half) for _ in range(2)])
    total = torch.empty((), **on)
    images = many(lambda: torch.randn(32, 128, 28, 28, **half).to(memory_format=torch.channels_last))
    filters = torch.randn(128, 128, 3, 3, **half).to(memory_format=torch.channels_last)
    wide = many(lambda: torch.randn(8192, 2048, **on))
    kept = [None] * (2 * sets)
    calls = [
        lambda at: torch.mm(square[at][0], square[at][1], out=square[at][2]),
        lambda at: torch.bmm(single[at][0], single[at][1], out=single[at][2]),  # one kernel, because no sum is split
        lambda at: torch.add(vectors[at][0], vectors[at][1], out=vectors[at][2]),
        lambda at: torch.softmax(rows[at][0], 1, out=rows[at][1]),
        lambda at: torch.sum(rows[at][0].view(-1), 0, out=total),
        lambda at: torch.erfinv(thin[at][0], out=thin[at][1]),
        lambda at: kept.__setitem__(at, torch.nn.functional.conv2d(images[at], filters, padding=1)),
        lambda at: kept.__setitem__(sets + at, torch.nn.functional.layer_norm(wide[at], (2048,))),
        lambda at: rows[at][1].copy_(rows[at][0].t()),
        lambda at: torch.sin(vectors[at][0], out=vectors[at][2]),
    ]
    order = [kind for kind in range(len(calls)) for _ in range(40)]
    chance = random.Random(1)
    with torch.no_grad():
        for number, kind in enumerate(order):
            calls[kind](number % sets)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        made, at = 0, 0
        parts = [[kind] * 400 for kind in range(len(calls))] if how == "alone" else [None]
        for part in parts:
            begin = time.monotonic_ns()
            while time.monotonic_ns() - begin < (seconds if part else seconds * len(calls)) * 1e9:
                if part is None:
                    chance.shuffle(order)
                for kind in part or order:
                    calls[kind](at)
                    at = (at + 1) % sets
                    made += 1
                torch.cuda.synchronize()
                time.sleep(0.02)
            torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    print(json.dumps({"kinds": len(calls), "calls": made}), flush=True)


def memory():
    """Products for a second in a window; then the resident part of each mapping."""
    left = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    torch.cuda.profiler.start()
    work(1, left, left)
    found = mapped()
    torch.cuda.profiler.stop()
    print(json.dumps(found), flush=True)


def devices(seconds=0.8):
    pairs = [[torch.randn(SIZE, SIZE, device=f"cuda:{index}", dtype=torch.bfloat16) for _ in range(2)] for index in range(2)]
    spans = {}
    for warm in (True, False):
        if not warm:
            torch.cuda.profiler.start()
        for phase, busy in (("both", pairs), ("second", pairs[1:])):
            begin = time.monotonic_ns()
            while time.monotonic_ns() - begin < (0.2 if warm else seconds) * 1e9:
                for left, right in busy * 4:
                    left @ right
                for index in range(2):
                    torch.cuda.synchronize(index)
            spans[phase] = begin, time.monotonic_ns()
    torch.cuda.profiler.stop()
    print(json.dumps(spans), flush=True)


def clock(seconds=1.5):
    x = torch.zeros(1 << 22, device="cuda")

    def light():
        begin = time.monotonic_ns()
        while time.monotonic_ns() - begin < seconds * 1e9:
            for _ in range(50):
                x.add_(1)
            torch.cuda.synchronize()
        return begin, time.monotonic_ns()

    light()
    spans = {"before": light()}
    torch.cuda.profiler.start()
    spans["during"] = light()
    torch.cuda.profiler.stop()
    time.sleep(1.5)
    light()
    spans["after"] = light()
    print(json.dumps(spans), flush=True)


def launch_from(number, windows=4):
    """Every thread launches small kernels continuously; returns each thread's longest launch, and the window's edges."""
    ends, longest, counts, failures = threading.Event(), [0] * number, [0] * number, []

    def work_on(index):
        try:
            x = torch.zeros(256, device="cuda")
            with torch.cuda.stream(torch.cuda.Stream()):
                while not ends.is_set():
                    begin = time.monotonic_ns()
                    x.add_(1)
                    longest[index] = max(longest[index], time.monotonic_ns() - begin)
                    counts[index] += 1
                    if counts[index] % 500 == 0:
                        torch.cuda.current_stream().synchronize()
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work_on, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    edges = []
    for _ in range(windows):
        time.sleep(0.3)
        begin = time.monotonic_ns()
        torch.cuda.profiler.start()
        opened = time.monotonic_ns()
        time.sleep(0.4)
        closing = time.monotonic_ns()
        torch.cuda.profiler.stop()
        edges.append({"open_ns": opened - begin, "close_ns": time.monotonic_ns() - closing})
        time.sleep(1.2)  # detached in between
    ends.set()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    print(json.dumps({"counts": counts, "longest_ns": longest, "edges": edges, "failures": failures}), flush=True)


def end_inside():
    left = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    torch.cuda.profiler.start()
    for _ in range(50):
        left @ left
    print(json.dumps("ends"), flush=True)


if __name__ == "__main__":
    what, rest = sys.argv[1], sys.argv[2:]
    if what == "phases":
        phases(int(rest[0]) if rest else 3, float(rest[1]) if len(rest) > 1 else 1.5)
    elif what == "turns":
        turns(float(rest[0]), rest[1], int(rest[2]) if len(rest) > 2 else None)
    elif what == "kernels":
        kernels(float(rest[0]), rest[1].split(",") if len(rest) > 1 else [])
    elif what == "pooled":
        pooled(rest[0])
    elif what == "devices":
        devices()
    elif what == "memory":
        memory()
    elif what == "clock":
        clock()
    elif what == "threads":
        launch_from(int(rest[0]))
    else:
        end_inside()
