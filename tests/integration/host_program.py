#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Uses the CPU in every way that host_sum.csv distinguishes, in a window between cudaProfilerStart and cudaProfilerStop, and prints
getrusage()'s results, in JSON: for main thread and process around the window (`outer`) and within it (`inner`), and the CPU time of the
threads and children that worked.

usage: host_program.py MODULE [PROGRAM]     PROGRAM: a child that uses CUDA
"""

import ctypes
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import threading
import time

cuda = ctypes.CDLL(sys.argv[1])
runtime = ctypes.CDLL(None)
QUIET = 0.3  # seconds around the window's edges, in which the readings are taken


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def usage(who):
    found = resource.getrusage(who)
    return {"time": round((found.ru_utime + found.ru_stime) * 1e9), "voluntary": found.ru_nvcsw, "involuntary": found.ru_nivcsw,
            "minor": found.ru_minflt, "major": found.ru_majflt}


def difference(after, before):
    return {name: after[name] - before[name] for name in after}


def both():
    return usage(resource.RUSAGE_THREAD), usage(resource.RUSAGE_SELF)


def worker(seconds, told, stay):
    compute(seconds)
    told.send(usage(resource.RUSAGE_SELF))
    stay.wait()
    told.send(usage(resource.RUSAGE_SELF))  # including the cost of reporting and waiting


def helper(seconds, stay, times):
    compute(seconds)
    times.append(usage(resource.RUSAGE_THREAD)["time"])
    stay.wait()


def child(context, seconds, stay):
    ours, theirs = context.Pipe(False)
    process = context.Process(target=worker, args=(seconds, theirs, stay))
    process.start()
    return process, ours


def main():
    context = multiprocessing.get_context("fork")
    leave, stay = context.Event(), context.Event()
    leave.set()
    ended_before = threading.Event()
    ended_before.set()
    thread_times, stay_thread = [], threading.Event()
    cuda.training_launch(b"first", 1)
    own = {"INJECT_OUT": "child", "INJECT_WINDOW": "always", "INJECT_TRACE": "off", "CUDASIM_REPORT": ""}
    cuda_child = subprocess.Popen(sys.argv[2:], env={**os.environ, **own}) if len(sys.argv) > 2 else None
    # It has worked before, and is idle now.
    old, old_told = child(context, 0.1, stay)
    worked = old_told.recv()
    outer = both()
    runtime.cudaProfilerStart()
    time.sleep(QUIET)
    inner = both()
    waited_for = usage(resource.RUSAGE_CHILDREN)
    threads = [threading.Thread(target=helper, args=(0.2, event, thread_times)) for event in (ended_before, stay_thread)]
    compute(0.4)
    for thread in threads:
        thread.start()
    while len(thread_times) < 2:
        time.sleep(0.01)
    stays, stays_told = child(context, 0.4, stay)
    staying = stays_told.recv()
    for seconds in (0.3, 0.01):
        leaves, told = child(context, seconds, leave)
        for _ in range(2):
            told.recv()
        leaves.join()
    cuda.training_launch(b"second", 1)
    inner = [difference(after, before) for after, before in zip(both(), inner)]
    waited_for = difference(usage(resource.RUSAGE_CHILDREN), waited_for)
    time.sleep(QUIET)
    runtime.cudaProfilerStop()
    time.sleep(QUIET)
    outer = [difference(after, before) for after, before in zip(both(), outer)]
    stay.set()
    stay_thread.set()
    waiting = sum(told.recv()["time"] - before["time"] for told, before in ((old_told, worked), (stays_told, staying)))
    for process in (old, stays):
        process.join()
    if cuda_child is not None:
        cuda_child.wait()
    print(json.dumps({"main": {"inner": inner[0], "outer": outer[0]}, "process": {"inner": inner[1], "outer": outer[1]},
                      "threads": sum(thread_times), "staying": staying, "waiting": waiting, "waited_for": waited_for}))


main()
