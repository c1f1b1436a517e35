#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training script with PyTorch's own modules and optimizer on the host, with a simulated GPU allocator that claims the tensors' memory,
and launches on the simulated CUDA: for test_torch_memory.py. Its last line lists the purposes of its memory, as JSON.

usage: torch_memory.py MODULE PATTERN ITERATIONS
"""

import _thread
import contextlib
import ctypes
import gc
import json
import signal
import sys
import threading
import time
import warnings

import torch
from training_calls import copy, launch

warnings.simplefilter("ignore")
PATTERN = sys.argv[2]
SLACK = 512


class Libraries:
    """cuBLAS and NCCL, which are given memory for which Python has no tensor."""

    def __init__(self):
        self.parts = [ctypes.CDLL(name, ctypes.RTLD_GLOBAL) for name in ("libcublas.so.13", "libnccl.so.2")]
        self.calls = ctypes.CDLL(None)
        self.handle, self.communicator = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.calls.cublasCreate_v2(ctypes.byref(self.handle)))
        self.check(self.calls.ncclCommInitAll(ctypes.byref(self.communicator), 1, None))

    def check(self, status):
        if status != 0:
            sys.exit("a library's call failed")

    def use(self):
        self.check(self.calls.cublasSetWorkspace_v2(self.handle, workspace, ctypes.c_size_t(ctypes.sizeof(workspace))))
        float32, sum_up = 7, 0
        self.check(self.calls.ncclAllReduce(bucket, bucket, ctypes.c_size_t(len(bucket)), float32, sum_up, self.communicator, None))
        # A part of an allocation without a tensor: its purpose can't be determined.
        self.check(self.calls.ncclBroadcast(hidden, hidden, ctypes.c_size_t(10), float32, 0, self.communicator, None))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(48, 48) for _ in range(3)])
        self.norm = torch.nn.BatchNorm1d(48)
        self.tied = torch.nn.Linear(48, 48)
        self.tied.weight = self.layers[0].weight
        # Both are views of one allocation, like flattened parameters.
        flat = torch.zeros(100)
        self.one, self.two = torch.nn.Parameter(flat[:30]), torch.nn.Parameter(flat[40:100])
        self.frozen = torch.nn.Linear(48, 10).requires_grad_(False)

    def forward(self, batch):
        return self.tied(self.norm(self.layers(batch))).sum() + self.one.sum() + self.two.sum()


class Answering(torch.Tensor):
    """Its class answers queries about it, with something wrong or nothing."""

    @classmethod
    def __torch_function__(cls, *_):
        raise ValueError("nothing may be asked of this one")

    def numel(self):
        raise ValueError("nothing may be asked of this one")


class Unhashable(type):
    __hash__ = None

    def __eq__(cls, other):
        raise ValueError("nothing may be compared with this one")


class Odd(metaclass=Unhashable):
    __class__ = property(lambda self: sys.exit("nothing may be asked of this one"))

    def __init__(self):
        self.cycle = [self]


def storage_of(tensor):
    """Address and bytes."""
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr(), storage.nbytes()


# Older than the module whose parameter it keeps as a buffer: the parameter and its gradient count as such.
decoder = torch.nn.Module()
net = Net()
decoder.register_buffer("tied", net.layers[1].weight, persistent=False)
optimizer = torch.optim.AdamW(net.parameters())
hidden = (ctypes.c_char * 5000)()
workspace = (ctypes.c_char * 3000)()
bucket = (ctypes.c_float * 700)()
batch = torch.ones(16, 48)
answering = torch.ones(77).as_subclass(Answering)
odd = Odd()
interrupts = 0


def segments():
    """What PyTorch's allocator would report: an allocation for each storage, with some rounding, one without a tensor, and one in cache."""
    sizes = {}
    for tensor in everything():
        address, size = storage_of(tensor)
        if size:
            sizes[address] = size
    sizes[ctypes.addressof(hidden)] = 5000
    for handed in (workspace, bucket):
        sizes[ctypes.addressof(handed)] = ctypes.sizeof(handed) + 3
    found = [{"device": 0, "address": address, "total_size": size, "blocks": [{"size": size, "requested_size": size - 3, "state": "active_allocated"}]}
             for address, size in sizes.items()]
    # Memory that a CUDA graph has used and will use again.
    found.append({"device": 0, "address": 1 << 20, "total_size": 640, "segment_pool_id": (0, 1), "blocks": [{"size": 640, "state": "inactive"}]})
    return [*found, {"device": 0, "address": 4096, "total_size": SLACK, "blocks": [{"size": SLACK, "state": "inactive"}]}]


def everything():
    yield from net.parameters()
    yield from net.buffers()
    for parameter in net.parameters():
        if parameter.grad is not None:
            yield parameter.grad
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))
    yield batch
    with torch._C.DisableTorchFunction():
        yield torch.Tensor.as_subclass(answering, torch.Tensor)


def snapshot():
    if PATTERN == "failing" or (PATTERN == "failing_later" and failures == 1):
        raise RuntimeError("no snapshot today")
    if PATTERN == "slow":
        time.sleep(1.1)
    if PATTERN == "interrupted" and interrupts == 0:
        signal.raise_signal(signal.SIGALRM)
        time.sleep(0)  # the handler runs here
    return segments()


class Mode(torch.overrides.TorchFunctionMode):
    """Like the mode that torch.device() is in a `with`."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))


def refuse(_):
    raise RuntimeError("this allocator has no observers")


def interrupt(*_):
    global interrupts
    interrupts += 1
    raise TimeoutError("the program's own")


libraries = Libraries()
observers = []
torch.cuda.memory_snapshot = snapshot
torch.cuda.is_initialized = lambda: True
torch.cuda.memory_stats = lambda device: {"allocated_bytes.all.peak": 1_000_000, "reserved_bytes.all.peak": 2_000_000}
torch.cuda.mem_get_info = lambda device: (10_000_000, 30_000_000)
torch._C._cuda_isCurrentStreamCapturing = lambda: False
torch._C._cuda_attach_out_of_memory_observer = refuse if PATTERN == "refusing" else observers.append
torch.__version__ = "2.4.0"
signal.signal(signal.SIGALRM, interrupt)
caught = failures = 0


def iteration(k):
    time.sleep(0.002)
    copy(64, to_device=1)
    optimizer.zero_grad(set_to_none=True)
    for kernel in ("gemm", "norm", "relu", "dropout", "gemm", "norm"):
        launch(kernel, 3)
    net(batch).backward()
    libraries.use()
    launch("multi_tensor_apply_update")
    optimizer.step()


def fail(request):
    """Does what PyTorch's allocator does before it raises."""
    for observer in observers:
        observer(0, request, 25_000_000, 100)
    raise MemoryError(f"{request} bytes")


ended = threading.Event()
broken = []


def build():
    """A tuple under construction has a single reference, otherwise it can't grow."""
    while not ended.is_set():
        try:
            tuple(number for number in range(2000))
        except SystemError as error:
            broken.append(str(error))


builder = threading.Thread(target=build)
if PATTERN == "threads":
    sys.setswitchinterval(0.0002)  # each of a step's many operators releases the interpreter
    builder.start()
if PATTERN == "frozen_objects":
    gc.freeze()
sparse = torch.eye(3).to_sparse()
told_in_window, window_seconds = 0, 0.0
with Mode() if PATTERN == "mode" else contextlib.nullcontext():
    for k in range(int(sys.argv[3])):
        if PATTERN == "short_window" and k == 30:
            libraries.calls.cudaProfilerStart()
            window_seconds = -time.monotonic()
        if PATTERN == "short_window" and k == 60:
            told_in_window, window_seconds = len(observers), window_seconds + time.monotonic()
            libraries.calls.cudaProfilerStop()
        try:
            iteration(k)
        except (TimeoutError, RuntimeError):
            caught += 1
ended.set()
wanted = {"out_of_memory": 10, "short_window": 1, "many_failures": 40, "own_thread": 1, "failing_later": 2}.get(PATTERN, 0)
if wanted:
    until = time.monotonic() + 30
    while not observers and time.monotonic() < until:
        time.sleep(0.01)
    for request in range(1, wanted + 1):
        if PATTERN == "own_thread":
            _thread.start_new_thread(observers[0], (0, request * 1000, 25_000_000, 100))
            time.sleep(2)
        else:
            with contextlib.suppress(MemoryError):
                fail(request * 1000)
        failures += 1


def size_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


print(json.dumps({
    "parameters": size_of(net.parameters()), "gradients": size_of(parameter.grad for parameter in net.parameters() if parameter.grad is not None),
    "optimizer state": size_of(value for state in optimizer.state.values() for value in state.values()), "buffers": size_of(net.buffers()),
    "other tensors": size_of([batch]) + 77 * 4, "[no tensor]": 4997, "workspaces": 3000, "communication buffers": 2800, "pools": 640, "broken": len(broken), "cached": SLACK, "reserved": sum(part["total_size"] for part in segments()),
    "interrupts": interrupts, "caught": caught, "failures": failures, "observers": len(observers), "told_in_window": told_in_window, "window_seconds": window_seconds, "garbage": len(gc.garbage)}))
