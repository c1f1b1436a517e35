# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A program that uses CUPTI itself, by ctypes: three times 20 memsets between cudaProfilerStart and Stop, and in the middle of
the first time its own use of CUPTI, as --mode names it. Prints what its calls returned and what it recorded, as JSON: the same
with and without the preload.

  none        nothing
  subscribe   subscribes in the first window, unsubscribes before the last
  buffers     registers buffers in the first window and records memsets, switches off and flushes before the last
  finalize    finalizes CUPTI in the first window
  --hidden    has the functions from dlsym on CUPTI's own handle, as Proton and XLA do: no hook sees them
"""

import argparse
import ctypes
import glob
import json
import os
import sys

COUNT = 20
KIND_MEMSET = 2  # CUPTI_ACTIVITY_KIND_MEMSET


def load(stem):
    """Loads the newest major version that can be loaded, globally: from the linker's own path, from other wheels, from the toolkit."""
    folders = [""] + [os.path.join(path, "nvidia", *rest) + "/" for path in sys.path
                      for rest in (("cu13", "lib"), ("cuda_runtime", "lib"), ("cuda_cupti", "lib"))]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    folders += [f"{home}/lib64/", f"{home}/extras/CUPTI/lib64/"]
    for major in (13, 12):
        for folder in folders:
            for file in ([f"{stem}.so.{major}"] if not folder else glob.glob(f"{folder}{stem}.so.{major}")):
                try:
                    return ctypes.CDLL(file, mode=ctypes.RTLD_GLOBAL)
                except OSError:
                    continue
    sys.exit(f"no {stem}")


class Buffers:
    """Buffer callbacks that count memset records; a buffer of another client is counted, but not touched."""
    SIZE = 1 << 20

    def __init__(self, cupti):
        self.cupti, self.own, self.memsets, self.strays = cupti, {}, 0, 0
        request = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t),
                                   ctypes.POINTER(ctypes.c_size_t))
        complete = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
        self.requested, self.completed = request(self.request), complete(self.complete)

    def request(self, buffer, size, most):
        memory = (ctypes.c_uint64 * (self.SIZE // 8))()
        self.own[ctypes.addressof(memory)] = memory
        buffer[0], size[0], most[0] = ctypes.addressof(memory), self.SIZE, 0

    def complete(self, _context, _stream, buffer, _size, valid):
        if buffer not in self.own:
            self.strays += 1
            return
        record = ctypes.c_void_p()
        while self.cupti.cuptiActivityGetNextRecord(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)) == 0:
            self.memsets += ctypes.cast(record, ctypes.POINTER(ctypes.c_uint32))[0] == KIND_MEMSET
        del self.own[buffer]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("none", "subscribe", "buffers", "finalize"), required=True)
    parser.add_argument("--hidden", action="store_true")
    options = parser.parse_args()
    load("libcudart")
    handle = load("libcupti")
    # The functions to which the dynamic linker would bind a program's calls.
    cuda = ctypes.CDLL(None)
    cupti = handle if options.hidden else cuda
    returned = {}

    def call(name, *arguments):
        returned[f"{len(returned)} {name}"] = getattr(cupti, name)(*arguments)

    memory = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0

    def work():
        for _ in range(COUNT):
            assert cuda.cudaMemsetAsync(memory, 0, ctypes.c_size_t(4096), None) == 0
        assert cuda.cudaDeviceSynchronize() == 0

    subscriber = ctypes.c_void_p()
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: None)
    buffers = Buffers(handle)
    work()
    assert cuda.cudaProfilerStart() == 0
    work()
    if options.mode == "subscribe":
        call("cuptiSubscribe", ctypes.byref(subscriber), callback, None)
    elif options.mode == "buffers":
        call("cuptiActivityRegisterCallbacks", buffers.requested, buffers.completed)
        call("cuptiActivityEnable", KIND_MEMSET)
    elif options.mode == "finalize":
        call("cuptiFinalize")
    work()
    assert cuda.cudaProfilerStop() == 0
    assert cuda.cudaProfilerStart() == 0
    work()
    assert cuda.cudaProfilerStop() == 0
    if options.mode == "subscribe":
        call("cuptiUnsubscribe", subscriber)
    elif options.mode == "buffers":
        call("cuptiActivityDisable", KIND_MEMSET)
        call("cuptiActivityFlushAll", 0)
    assert cuda.cudaProfilerStart() == 0
    work()
    assert cuda.cudaProfilerStop() == 0
    print(json.dumps({"returned": returned, "memsets": buffers.memsets, "strays": buffers.strays, "count": COUNT}))


if __name__ == "__main__":
    main()
