#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training script for tests of how processes end: kernels on the simulated CUDA, workers as data loaders have them.

usage: training.py SECONDS [WORKERS...]

NO_HANDLER in the environment: SIGINT ends the script at once. WINDOW_STEPS: so many steps, once the workers are there, are a
window of libinject's. WORKERS: fork, spawn, forkserver (daemonic processes of multiprocessing); pool, executor (that restart or report dead
workers); nested (a worker with a child of its own); plain (not daemonic: joined at exit); deaf (takes no SIGTERM);
watched (the script ends with 1 as soon as a worker dies); detached (in a session of its own).
"""

import concurrent.futures
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time


class Device:
    """The driver API by names found at run time: launches pass no hook."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        context, module, self.function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.check("cuCtxSetCurrent", context)
        self.check("cuModuleLoadData", ctypes.byref(module), b"")
        self.check("cuModuleGetFunction", ctypes.byref(self.function), module, b"_Z4stepv")

    def check(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status != 0:
            sys.exit(f"{name}: {status}")

    def step(self):
        self.check("cuLaunchKernel", self.function, 1, 1, 1, 32, 1, 1, 0, None, None, None)
        self.check("cuCtxSynchronize")


def work():
    """Runs until the test ends it."""
    time.sleep(60)


def work_deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)


def work_nested():
    child = subprocess.Popen(["sleep", "60"])
    say(f"child {child.pid}")
    time.sleep(60)


def pid_of_worker(_):
    time.sleep(0.2)
    return os.getpid()


def end_with_error(*_):
    os._exit(1)


def say(line):
    os.write(1, (line + "\n").encode())


def start_workers(kind):
    """Starts two of them; returns references that must be kept."""
    if kind in ("pool", "executor"):
        workers = (multiprocessing.get_context("fork").Pool(2) if kind == "pool" else
                   concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")))
        for pid in set(workers.map(pid_of_worker, range(4))):
            say(f"child {pid}")
        return workers
    if kind == "detached":
        child = subprocess.Popen(["sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        say(f"detached {child.pid}")
        return child
    if kind == "watched":
        signal.signal(signal.SIGCHLD, end_with_error)
    context = multiprocessing.get_context(kind if kind in ("fork", "spawn", "forkserver") else "fork")
    target = {"deaf": work_deaf, "nested": work_nested}.get(kind, work)
    workers = [context.Process(target=target, daemon=kind != "plain") for _ in range(2)]
    for worker in workers:
        worker.start()
        say(f"child {worker.pid}")
    return workers


def one_window(device, steps):
    libinject = ctypes.CDLL(None)
    if libinject.inject_start() != 0:
        sys.exit("inject_start")
    for _ in range(steps):
        device.step()
    libinject.inject_stop()


def main():
    if "NO_HANDLER" in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    device = Device()
    kept = [start_workers(kind) for kind in sys.argv[2:]]
    end = time.monotonic() + float(sys.argv[1])
    say("training")
    try:
        if "WINDOW_STEPS" in os.environ:
            one_window(device, int(os.environ["WINDOW_STEPS"]))
        while time.monotonic() < end:
            device.step()
            time.sleep(0.002)
    finally:
        say("unwound")
        del kept


if __name__ == "__main__":
    main()
