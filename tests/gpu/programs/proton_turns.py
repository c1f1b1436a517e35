# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Steps one after the other in a process, each with the same kernels of PyTorch: prints JSON, what came of each.

usage: proton_turns.py FILE STEP…
  ours: between cudaProfilerStart and cudaProfilerStop; proton: under Proton, which writes FILE and its number; pause;
  client: torch's own copy of CUPTI is subscribed to and finalized
"""

import ctypes
import json
import sys
import time

import torch

KERNELS = 20


def work(x):
    for _ in range(KERNELS):
        torch.relu(x)
    torch.cuda.synchronize()


def client():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        path = next(line.split()[-1] for line in maps if "libcupti.so" in line)
    cupti = ctypes.CDLL(path)
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)(lambda *_: None)
    subscriber = ctypes.c_void_p()
    results = [cupti.cuptiSubscribe(ctypes.byref(subscriber), callback, None), cupti.cuptiUnsubscribe(subscriber),
               cupti.cuptiFinalize()]
    if any(results):
        raise RuntimeError(f"CUPTI returned {results}")


def proton(file, x):
    """The number of kernels that Proton counted."""
    import triton.profiler

    triton.profiler.start(file, context="shadow")
    work(x)
    triton.profiler.finalize()

    def count(nodes):
        return sum(int(node.get("metrics", {}).get("count", 0)) + count(node.get("children", [])) for node in nodes)

    with open(file + ".hatchet", encoding="utf-8") as written:
        return count([node for node in json.load(written) if "metrics" in node or "children" in node])


def main(file, steps):
    x = torch.randn(256, 256, device="cuda")
    work(x)
    found = []
    for number, step in enumerate(steps):
        seen = {"step": step, "error": "", "kernels": 0}
        try:
            if step == "ours":
                torch.cuda.profiler.start()
                work(x)
                torch.cuda.profiler.stop()
            elif step == "proton":
                seen["kernels"] = proton(f"{file}{number}", x)
            elif step == "pause":
                time.sleep(2)
            else:
                client()
        except RuntimeError as error:
            seen["error"] = str(error)
        found.append(seen)
    print(json.dumps(found))


main(sys.argv[1], sys.argv[2:])
