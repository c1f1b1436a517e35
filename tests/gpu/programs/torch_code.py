# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A training of tests/gpu/code_places.py: by itself, or with torch.profiler's account of its kernels by operator and module, and what
PyTorch's counter says of the FLOPs of a step of GPT-2's. Under torchrun rank 0 writes the account.

usage: torch_code.py MODEL STEPS [TRUTH.json]
"""

import collections
import json
import os
import re
import sys

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
import torch_models  # noqa: E402

PROFILED = 4
BACKWARD, USER = 1, 7  # scopes: a node of the backward pass, a range that launches nothing by itself
CUDA_CALL = re.compile("cuda|cu[A-Z]")
LIBRARY = os.path.dirname(os.__file__)


def gpt2(device, checkpointed=False):
    """GPT-2 from its configuration, in mixed precision, with flash attention if the GPU has it."""
    import transformers
    config = transformers.GPT2Config(n_layer=6, n_embd=512, n_head=8, vocab_size=8192, n_positions=512, attn_implementation="sdpa")
    model = transformers.GPT2LMHeadModel(config).to(device)
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointed == "reentrant"})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 8192, (8, 256), device=device)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss
    return step


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def fsdp2(device):
    """Parameters split over the ranks, block by block, in mixed precision."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    model = nn.Sequential(nn.Linear(64, 512), *[Block(512) for _ in range(6)], nn.Linear(512, 64)).to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model[1:-1]:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.randn(512, 64, device=device), torch.randn(512, 64, device=device)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


def compiled(device):
    """What the compiler makes of three blocks, with the loss outside of it."""
    model = nn.Sequential(*[Block(512) for _ in range(3)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = torch.randn(2048, 512, device=device), torch.randn(2048, 512, device=device)
    run = torch.compile(model)

    def step():
        optimizer.zero_grad()
        out = run(x)  # COMPILED
        loss = nn.functional.mse_loss(out, y)
        loss.backward()
        optimizer.step()
        return loss
    return step


def varying(device):
    """Sequences whose length changes from step to step, cycling through four lengths."""
    import transformers
    config = transformers.BertConfig(num_hidden_layers=4, hidden_size=256, num_attention_heads=4, intermediate_size=1024, vocab_size=2000)
    model = transformers.BertForMaskedLM(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches = [torch.randint(0, 2000, (16, length), device=device) for length in (72, 144, 200, 312)]
    at = 0

    def step():
        nonlocal at
        tokens = batches[at % len(batches)]
        at += 1
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss
    return step


MODELS = {"resnet50": torch_models.resnet50, "transformer": torch_models.transformer, "deepspeech2": torch_models.deepspeech2, "gpt2": gpt2,
          "fsdp2": fsdp2, "compiled": compiled, "varying": varying,
          "gpt2_checkpoint": lambda device: gpt2(device, "reentrant"), "gpt2_recompute": lambda device: gpt2(device, "saved tensors")}


class Marks:
    """Ranges with the modules' paths around their calls."""

    def __init__(self):
        self.paths = {}
        self.open = []
        nn.modules.module.register_module_forward_pre_hook(self.enter)
        nn.modules.module.register_module_forward_hook(self.leave, always_call=True)

    def enter(self, module, _):
        if not self.open and id(module) not in self.paths:
            for path, one in module.named_modules():
                self.paths.setdefault(id(one), f"{type(module).__name__}.{path}" if path else type(module).__name__)
        # A module that is created in each call is not one of the caller's children, so its class is used.
        path = self.paths.get(id(module)) or f"{self.open[-1][1]}.{type(module).__name__}"
        mark = torch.profiler.record_function("MODULE " + path)
        mark.__enter__()
        self.open.append((mark, path))

    def leave(self, *_):
        self.open.pop()[0].__exit__(None, None, None)


# Entering a mark is an operator as well.
OWN = {"lines_truth", "truth", "main", "<module>", "loaded_step", "whole", "enter", "leave"}


class LineMarks(TorchDispatchMode):
    """A range around each operator with the stack of the program's own lines, as reported by Python."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        frame, stack = sys._getframe(1), []
        while frame is not None:
            name = frame.f_code.co_filename
            if os.path.isabs(name) and "-packages" not in name and not name.startswith(LIBRARY) and frame.f_code.co_name not in OWN:
                stack.append(f"{os.path.basename(name)}:{frame.f_lineno}")
            frame = frame.f_back
        with torch.profiler.record_function("LINES " + "|".join(stack)):
            return func(*args, **(kwargs or {}))


def forward_events(events):
    """By thread and sequence number: the latest event that is not a node of the backward pass."""
    forward = {}
    for event in sorted(events, key=lambda event: event.time_range.start):
        if event.sequence_nr >= 0 and event.scope != BACKWARD and not event.name.startswith("autograd::"):
            forward[event.thread, event.sequence_nr] = event
    return forward


def lines_inside(event):
    """The first range of LineMarks below an event."""
    if event.name.startswith("LINES "):
        return event.name[6:]
    return next(filter(None, map(lines_inside, event.cpu_children)), None)


def lines_of(event, forward):
    """The stack around an event, and whether it is that of the operator to which a node of the backward pass belongs. That operator is
    called first, and the operator to which it dispatches has the range. Threads of autograd have no stack."""
    while event is not None:
        if event.name.startswith("LINES ") and event.name != "LINES ":
            return event.name[6:], False
        node = (event.fwd_thread, event.sequence_nr)
        if event.scope == BACKWARD and node in forward:
            before = forward[node]
            return lines_inside(before) or lines_of(before, {})[0], True
        event = event.cpu_parent
    return None, False


def lines_truth(step):
    """Kernel time by line, including calls from that line: of what Python launches, and of the backward pass by its forward pass."""
    with LineMarks(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if str(event.device_type).endswith("CPU")]
    forward = forward_events(events)
    found = {False: collections.defaultdict(float), True: collections.defaultdict(float)}
    for event in events:
        time = sum(kernel.duration for kernel in event.kernels if not kernel.name.startswith(("Memcpy", "Memset"))) * 1e3
        if time == 0:
            continue
        text, is_backward = lines_of(event, forward)
        stack = set(text.split("|")) - {""} if text is not None else ()
        for line in stack:
            found[is_backward][line] += time
        found[is_backward]["step"] += time if stack else 0
    return found[False], found[True]


def truth(step, file):
    # Module hooks or a dispatch mode would make the compiler compile a different program.
    is_compiled = sys.argv[1] == "compiled"
    if not is_compiled:
        marks = Marks()  # noqa: F841 (its hooks stay)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(PROFILED):
            step()
        torch.cuda.synchronize()
    events = [event for event in profile.events() if str(event.device_type).endswith("CPU")]
    forward = forward_events(events)

    def module_of(event):
        """The innermost module around it, or around the operator of the forward pass."""
        while event is not None:
            if event.name.startswith("MODULE "):
                return event.name[7:]
            node = (event.fwd_thread, event.sequence_nr)
            event = forward[node] if event.scope == BACKWARD and node in forward else event.cpu_parent
        return "[none]"

    # Ranges also appear on the device, from their first kernel to their last; a compiled kernel is launched in an event with its name.
    ranges = {event.name for event in events if not event.name.startswith("triton_")}
    operators, modules = collections.defaultdict(lambda: [0, 0.0]), collections.defaultdict(lambda: [0, 0.0])
    for event in events:
        # Kernels belong to operators by the operators' ids. A CUDA call whose id happens to be that of an operator would have them again.
        if event.scope == USER or CUDA_CALL.match(event.name):
            continue
        kernels = [kernel for kernel in event.kernels if kernel.name not in ranges and not kernel.name.startswith(("Memcpy", "Memset"))]
        if not kernels:
            continue
        time = sum(kernel.duration for kernel in kernels) * 1e3
        operator = event
        while operator is not None and operator.name.startswith(("MODULE ", "## Call ", "Activity Buffer Request")):
            operator = operator.cpu_parent
        name = operator.name if operator is not None else "[none]"
        if name.startswith("triton_"):
            name = name.rstrip("0123456789").removesuffix("_")
        for table, key in ((operators, name), (modules, module_of(event))):
            table[key][0] += len(kernels)
            table[key][1] += time
    lines, backward = ({}, {}) if is_compiled else lines_truth(step)
    flops = {}
    if sys.argv[1].startswith("gpt2"):
        with FlopCounterMode(display=False) as counter:
            step()
        flops = {str(name).replace("aten.", "aten::"): count for name, count in counter.get_flop_counts()["Global"].items()}
    with open(file, "w") as out:
        json.dump({"steps": PROFILED, "operators": operators, "modules": modules, "flops": flops, "lines": lines, "backward_lines": backward}, out)


def main():
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    rank = os.environ.get("RANK")
    if rank is not None:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    step = MODELS[sys.argv[1]]("cuda")
    if len(sys.argv) > 3:
        truth(step, sys.argv[3] if rank in (None, "0") else os.devnull)
    else:
        for _ in range(int(sys.argv[2])):
            step()
        torch.cuda.synchronize()
    if rank is not None:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
