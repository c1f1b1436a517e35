# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The profiled program of the PyTorch comparisons: windows of ours and of torch.profiler, alternating in one process.

Both windows run the same steps between synchronised edges. After each, what it saw is written to --dump at once, so
that a crash in a later window loses nothing: theirs.N.json (kernel and copy durations by name), ours.N/ (our tables
as they stood after window N; they are cumulative).
"""

import argparse
import ctypes
import json
import os
import shutil
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

import gputest
import torch_models


def settle(step, seconds=0.3):
    """Runs steps outside any window until the device's clocks have risen again after a pause."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()
    torch.cuda.synchronize()


def wait_written(out, since, shortest, longest=12.0):
    """Waits until run.json, in a version written after `since` (time.time()), reports every window as closed: then the
    records of the last one are in the tables and CUPTI has been released."""
    begin = time.monotonic()
    run_json = os.path.join(out, "run.json")
    while time.monotonic() - begin < longest:
        try:
            if os.path.getmtime(run_json) >= since and time.monotonic() - begin >= shortest:
                with open(run_json) as file:
                    if json.load(file)["state"] == "closed":
                        return True
        except OSError:
            pass  # not there yet
        time.sleep(0.05)
    return False


def ours(step, steps, out, shortest):
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    stopped = time.time()
    torch.cuda.profiler.stop()
    return wait_written(out, stopped, shortest)


def theirs(step, steps, activities, export=None):
    torch.cuda.synchronize()
    with profile(activities=activities) as prof:
        # Kineto drops activity close to its own window's edges, so these are kept apart.
        time.sleep(0.02)
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        time.sleep(0.02)
    if export:
        prof.export_chrome_trace(export)
    kernels, operations, other = {}, {}, {}
    for event in prof.profiler.kineto_results.events():
        if "CUDA" not in str(event.device_type()):
            continue
        name = event.name()
        if getattr(event, "is_user_annotation", lambda: False)():
            continue
        if name.startswith("Memset"):
            operations.setdefault(gputest.MEMSET, []).append(event.duration_ns())
        elif name.startswith("Memcpy"):
            kind = gputest.COPY_KINDS.get(name.split()[1], name)
            operations.setdefault(kind, []).append(event.duration_ns())
        elif name.endswith(" Sync"):
            other[name] = other.get(name, 0) + 1
        else:
            kernels.setdefault(gputest.normalise(name), []).append(event.duration_ns())
    return {"kernels": kernels, "operations": operations, "other": other}


def loaded_cupti():
    """The process's own libcupti, which must be loaded by now."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split()[-1]
            if os.path.basename(path).startswith("libcupti.so"):
                return ctypes.CDLL(path)
    return None


def slot_is_free(cupti):
    handle = ctypes.c_void_p()
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: None)
    if cupti.cuptiSubscribe(ctypes.byref(handle), callback, None) != 0:
        return False
    cupti.cuptiUnsubscribe(handle)
    return True


def give_up_cupti(how):
    """torch.profiler keeps CUPTI's only subscriber slot after its window. TEARDOWN_CUPTI=1 in the environment makes
    Kineto finalize CUPTI at the exit of the next runtime call; `finalize` does that from outside."""
    cupti = loaded_cupti()
    if cupti is None:
        return "no libcupti"
    if how == "finalize":
        torch.cuda.synchronize()
        return f"cuptiFinalize {cupti.cuptiFinalize()}"
    begin = time.monotonic()
    while time.monotonic() - begin < 3:
        torch.cuda.synchronize()
        time.sleep(0.1)
        if slot_is_free(cupti):
            return f"free after {time.monotonic() - begin:.1f} s"
    torch.cuda.synchronize()
    return f"still taken, cuptiFinalize {cupti.cuptiFinalize()}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(torch_models.MODELS), required=True)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--shortest", type=float, default=0.5, help="least seconds between our window and theirs")
    parser.add_argument("--release", choices=("teardown", "finalize"), default="teardown")
    parser.add_argument("--dump", required=True)
    parser.add_argument("--export", action="store_true", help="keep torch.profiler's traces: theirs.N.trace.json.gz")
    options = parser.parse_args()
    out = os.environ["INJECT_OUT"]
    if options.release == "teardown":
        os.environ["TEARDOWN_CUPTI"] = "1"

    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    step = torch_models.MODELS[options.model]("cuda")
    for _ in range(options.warm):
        step()
    torch.cuda.synchronize()

    state = {"torch": torch.__version__, "device": torch.cuda.get_device_name(), "rounds": []}

    def save():
        with open(os.path.join(options.dump, "state.json"), "w") as file:
            json.dump(state, file)

    for number in range(options.rounds):
        this = {}
        state["rounds"].append(this)
        settle(step)
        begin = time.monotonic()
        this["written"] = ours(step, options.steps, out, options.shortest)
        this["ours_s"] = time.monotonic() - begin
        if os.path.isdir(out):
            shutil.copytree(out, os.path.join(options.dump, f"ours.{number}"))
        save()
        settle(step)
        begin = time.monotonic()
        export = os.path.join(options.dump, f"theirs.{number}.trace.json.gz") if options.export else None
        seen = theirs(step, options.steps, [ProfilerActivity.CUDA], export)
        this["theirs_s"] = time.monotonic() - begin
        with open(os.path.join(options.dump, f"theirs.{number}.json"), "w") as file:
            json.dump(seen, file)
        save()
        if number + 1 < options.rounds:
            this["release"] = give_up_cupti(options.release)
            save()
    state["done"] = True
    save()
    print(json.dumps(state), file=sys.stderr)


if __name__ == "__main__":
    main()
