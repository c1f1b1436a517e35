#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Trains a model, says what its tensors take, and asks for more memory than there is, ten times. The last line is JSON.

usage: torch_purposes.py MODEL STEPS
"""

import ctypes
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch_models  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


def amp_bert(device):
    """A Hugging Face model with AdamW and automatic mixed precision."""
    from transformers import BertConfig, BertForSequenceClassification
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=6)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cuda")
    words, labels = torch.randint(0, 30000, (16, 128), device=device), torch.randint(0, 2, (16,), device=device)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(input_ids=words, labels=labels).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return step


def fsdp2(device):
    import torch_code
    step = torch_code.fsdp2(device)
    return lambda: step().item()


def frozen(device):
    """Most parameters are frozen, and some are shared."""
    import torch.nn as nn
    base = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)]).to(device).requires_grad_(False)
    base[3].weight = base[0].weight
    head = nn.Linear(1024, 10).to(device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
    batch = torch.randn(64, 1024, device=device)

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = head(torch.relu(base(batch))).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    step.keeps = base, head, optimizer
    return step


def ddp(device):
    """Its buckets are copies of the gradients, for which Python has no tensor."""
    import torch.nn as nn
    model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)], nn.Linear(1024, 10)).to(device)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[device])
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(64, 1024, device=device)

    def step():
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


MODELS = {"resnet50": torch_models.resnet50, "transformer": torch_models.transformer, "amp_bert": amp_bert, "fsdp2": fsdp2, "frozen": frozen,
          "ddp": ddp}


def nvml_used(index):
    """Bytes of the GPU that are in use, by NVML, as the driver numbers GPUs."""
    class Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    nvml, handle, memory = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), Memory()
    for status in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)),
                   nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory))):
        if status != 0:
            raise RuntimeError(f"NVML's status is {status}")
    return memory.used


name, steps = sys.argv[1], int(sys.argv[2])
rank = int(os.environ.get("LOCAL_RANK", "0"))
used_before = nvml_used(rank)
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
if name in ("fsdp2", "ddp"):
    if "RANK" not in os.environ:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("nccl", device_id=device)
step = MODELS[name](device)

# Memory as the optimizer steps: after zero_grad(), gradients no longer exist.
truth = {}


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def size_of(tensors):
    """By address, as parameters may be shared."""
    return sum({(part.data_ptr(), part.numel()): part.numel() * part.element_size() for part in map(local, tensors) if part.is_cuda}.values())


def before_step(optimizer, *_):
    """Called when libinject's reading is due, in the same step."""
    import gc
    models = [found for found in gc.get_objects() if type.__subclasscheck__(torch.nn.Module, type(found))]
    parameters = [tensor for model in models for tensor in model._parameters.values() if tensor is not None]
    truth["parameters"] = size_of(parameters)
    truth["gradients"] = size_of(tensor.grad for tensor in parameters if tensor.grad is not None)
    truth["optimizer state"] = size_of(value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor))
    truth["buffers"] = size_of(tensor for model in models for tensor in model._buffers.values() if tensor is not None)


def stepped(optimizer, *_):
    if not truth:
        before_step(optimizer)


for k in range(steps):
    if k == steps - 1:
        from torch.optim.optimizer import register_optimizer_step_pre_hook
        register_optimizer_step_pre_hook(stepped)
    step()
torch.cuda.synchronize()
truth["peak_allocated"] = torch.cuda.max_memory_allocated(device)
truth["peak_reserved"] = torch.cuda.max_memory_reserved(device)
truth["process"] = nvml_used(rank) - used_before  # unless others use the GPU

errors = []
free, total = torch.cuda.mem_get_info(device)
for times in range(10):
    try:
        torch.empty(total + times * (1 << 20), dtype=torch.uint8, device=device)
    except Exception as error:  # noqa: BLE001
        errors.append(f"{type(error).__module__}.{type(error).__name__}: {str(error).splitlines()[0][:60]}")
truth.update(errors=errors, last_request=total + 9 * (1 << 20))
print(json.dumps(truth))
if dist.is_initialized():
    dist.destroy_process_group()
