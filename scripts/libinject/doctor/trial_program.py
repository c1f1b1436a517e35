# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Run by `inject doctor` under libinject: some memsets by the driver API, between cuProfilerStart and cuProfilerStop. Needs
nothing but Python and CUDA's driver; loads a CUDA runtime where one can be found, as CUPTI is looked for beside it."""

import ctypes
import glob
import os
import sys

MEMSETS = 20
BYTES = 1 << 20


def load_runtime():
    """As PyTorch does it: the one of Python's packages, else the system's."""
    names = ("libcudart.so.13", "libcudart.so.12")
    places = [path for folder in sys.path for name in names
              for path in sorted(glob.glob(os.path.join(glob.escape(folder or "."), "nvidia", "*", "lib", name)))]
    places += [*names, *(f"/usr/local/cuda/lib64/{name}" for name in names)]
    for place in places:
        try:
            return ctypes.CDLL(place, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return None


def main():
    runtime = load_runtime()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        print(f"CUDA's driver can't be loaded: {error}")
        return 1

    def call(name, *arguments):
        status = getattr(cuda, name)(*arguments)
        if status != 0:
            text = ctypes.c_char_p()
            cuda.cuGetErrorString(status, ctypes.byref(text))
            print(f"{name}: {(text.value or b'').decode(errors='replace') or 'error'} ({status})")
            sys.exit(1)

    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BYTES))
    call("cuProfilerStart")
    for _ in range(MEMSETS):
        call("cuMemsetD8Async", memory, ctypes.c_ubyte(0), ctypes.c_size_t(BYTES), None)
    call("cuStreamSynchronize", None)
    call("cuProfilerStop")
    print("memsets", MEMSETS)
    print("runtime", "none" if runtime is None else runtime._name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
