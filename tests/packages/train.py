# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training loop in Python and CUDA's runtime alone, for where neither a compiler nor a framework is: scripts/test_fresh.sh runs
it on the simulated CUDA."""

import ctypes

STEPS = 10_000
FORWARD = ("embedding(float*, int)", "void gemm<float, 128, 64>(float*, float*, int)", "softmax(float*, int)")
BACKWARD = ("softmax_backward(float*, int)", "void gemm<float, 64, 128>(float*, float*, int)", "embedding_backward(float*, int)")
OPTIMIZER = ("adam(float*, float*, int)",)
BYTES = 1 << 20


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


cuda = ctypes.CDLL("libcudart.so.13")
getattr(cuda, "__cudaRegisterFatBinary").restype = ctypes.c_void_p


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        raise SystemExit(f"{name}: error {status}")


def register(names):
    """What a compiled program does before main(): by the address of a function on the host, the kernel's name."""
    binary = ctypes.create_string_buffer(64)
    handle = ctypes.c_void_p(getattr(cuda, "__cudaRegisterFatBinary")(binary))
    kernels = []
    for name in names:
        stub, text = ctypes.create_string_buffer(1), ctypes.c_char_p(name.encode())
        getattr(cuda, "__cudaRegisterFunction")(handle, stub, text, text, -1, None, None, None, None, None)
        kernels.append(stub)
    getattr(cuda, "__cudaRegisterFatBinaryEnd")(handle)
    return binary, kernels


def main():
    binary, kernels = register((*FORWARD, *BACKWARD, *OPTIMIZER))
    device, host = ctypes.c_void_p(), ctypes.c_void_p()
    call("cudaMalloc", ctypes.byref(device), ctypes.c_size_t(BYTES))
    call("cudaMallocHost", ctypes.byref(host), ctypes.c_size_t(BYTES))
    count = ctypes.c_int(BYTES // 4)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(device), ctypes.addressof(count))
    for _ in range(STEPS):
        call("cudaMemcpyAsync", device, host, ctypes.c_size_t(BYTES), 1, None)
        for kernel in kernels:
            call("cudaLaunchKernel", kernel, Dim3(BYTES // 1024, 1, 1), Dim3(256, 1, 1), arguments, ctypes.c_size_t(0), None)
        call("cudaMemcpy", host, device, ctypes.c_size_t(4), 2)
    call("cudaDeviceSynchronize")
    del binary
    print(f"{STEPS} steps")


if __name__ == "__main__":
    main()
