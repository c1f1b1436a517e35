# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Small PyTorch programs that are each slow for one reason, which is known; with --fixed the same work with the remedy.

usage: bottlenecks.py NAME [--fixed] [--profiler]    (an all_reduce under torchrun, a process for each GPU)

Each warms up, measures how long a step takes, and brackets some steps by torch.cuda.profiler.start and stop. A line of JSON
on stdout says: name, fixed, seconds a step, steps in the window, and of a study one entry for each window.

The device is waited for before a round of steps and after it, never between: the median of the rounds' means is a step's
time. The window opens on an idle device, and closes when the last step is submitted: what the device then still does for
it is the window's.

--profiler: windows of torch.profiler over the same steps follow ours, in turn. Their GPU utilization, the time in which a
kernel ran by that from the first kernel's start to the last one's end, is in the JSON as well.
"""

import argparse
import contextlib
import functools
import json
import os
import statistics
import sys
import time

import torch
from torch import nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

STEPS = 10       # per window
ROUND = 30       # steps measured together
BUDGET = 1.5     # seconds, after which no further round begins
WORKERS = 8


# --- measuring -------------------------------------------------------------------------------------------------------

def seconds_a_step(step, steps=ROUND, budget=BUDGET):
    """Median over up to three rounds of steps."""
    means, begin = [], time.perf_counter()
    while len(means) < 3 and (not means or time.perf_counter() - begin + steps * means[-1] < budget):
        torch.cuda.synchronize()
        round_begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        means.append((time.perf_counter() - round_begin) / steps)
    return statistics.median(means)


def window(step, steps=STEPS, ready=None):
    """`ready` is called once the window is open: attaching a profiler takes a different time on each rank."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    if ready is not None:
        ready()
    for _ in range(steps):
        step()
    torch.cuda.profiler.stop()
    # Everything that the window submitted ends before anything else starts, so that several windows' values do not mix.
    torch.cuda.synchronize()


def their_utilization(step, steps=STEPS):
    from torch.profiler import ProfilerActivity, profile
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        # Kineto drops activity close to its own window's edges, so these are kept apart.
        time.sleep(0.02)
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        time.sleep(0.02)
    spans = []
    for event in prof.profiler.kineto_results.events():
        name = event.name()
        if "CUDA" not in str(event.device_type()) or name.startswith(("Memcpy", "Memset")) or name.endswith(" Sync") or \
                getattr(event, "is_user_annotation", lambda: False)():
            continue
        spans.append((event.start_ns(), event.start_ns() + event.duration_ns()))
    from idle_truth import length
    return 100 * length(spans) / (max(end for _, end in spans) - min(begin for begin, _ in spans))


def in_turn(step, rounds=2):
    """[their utilization], with a window of ours before each."""
    import torch_child
    found = []
    for _ in range(rounds):
        torch_child.settle(step)
        since = time.time()
        window(step)
        torch_child.wait_written(os.environ["INJECT_OUT"], since, 0.5)
        torch_child.settle(step)
        found.append(their_utilization(step))
        # After the last round as well: Kineto's thread waits on a condition variable for the next runtime call, at which it finalizes
        # CUPTI, and that variable's destructor waits for the thread as the process exits (PyTorch 2.11).
        torch_child.give_up_cupti("teardown")
    return found


# --- models and data -------------------------------------------------------------------------------------------------

def perceptron(width, layers, device="cuda"):
    return nn.Sequential(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU()))).to(device)


def captured(work):
    """(its graph, the value it returned during capture)"""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()
    return graph, kept


class Training:
    """Steps of a small network: a few hundred kernels of a few microseconds each."""

    def __init__(self, width=128, layers=24, batch=64, graph=False):
        self.model = perceptron(width, layers)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)
        self.inputs = torch.randn(batch, width, device="cuda")
        self.graph = captured(self.compute)[0] if graph else None

    def compute(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()

    def step(self, batch=None):
        if batch is not None:
            self.inputs.copy_(batch)
        if self.graph is not None:
            self.graph.replay()
        else:
            self.compute()


class Samples(torch.utils.data.Dataset):
    """Each takes some time to make: asleep, as if waiting for a disk, or computing."""

    def __init__(self, shape, seconds, compute):
        self.shape, self.seconds, self.compute = shape, seconds, compute

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if self.compute:
            end = time.thread_time() + self.seconds
            while time.thread_time() < end:
                pass
        else:
            time.sleep(self.seconds)
        return torch.full(self.shape, float(index % 7))


def batches(samples, batch, workers):
    """Practically endless. The workers are forked, and do not use CUDA."""
    options = {"multiprocessing_context": "fork", "timeout": 60} if workers else {}
    return iter(torch.utils.data.DataLoader(samples, batch_size=batch, num_workers=workers, **options))


def gemms(size, count, dtype):
    a = torch.randn(size, size, device="cuda", dtype=dtype)
    weights = [torch.randn(size, size, device="cuda", dtype=dtype) / size ** 0.5 for _ in range(count)]

    def step():
        x = a
        for w in weights:
            x = x @ w
        return x

    return step


# --- the programs ----------------------------------------------------------------------------------------------------
# Each returns its step.

def tiny_kernels(fixed):
    """Kernels of a few microseconds, each of which takes the host longer to launch. A CUDA graph launches all of them at once. The backward
    pass is on the program's own thread: otherwise a graph would also avoid the two threads' waiting for each other, which is not a launch
    cost."""
    torch.autograd.set_multithreading_enabled(False)
    return Training(graph=fixed).step


def item_every_step(fixed):
    """The host reads the loss after each update, so the device waits for the next one's launch: twenty updates are a step here, each with
    more work than its launches take. Remedy: reading every fiftieth loss."""
    x, weight = (torch.randn(3584, 3584, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    updates = 0
    read = []

    @torch.no_grad()
    def step():
        nonlocal updates
        for _ in range(20):
            loss = (x @ weight).mean()
            updates += 1
            if not fixed or updates % 50 == 0:
                read.append(loss.item())

    return step


def loading(workers, compute):
    """Products that take the device 5 ms, of a batch that takes one worker 16 ms."""
    data = batches(Samples((1024,), 0.001, compute), 16, workers)
    products = gemms(4096, 24, torch.bfloat16)

    def step():
        next(data).to("cuda")
        products()

    return step


def slow_loader(fixed):
    """One worker that waits for each sample. Remedy: more workers."""
    return loading(WORKERS if fixed else 1, compute=False)


def host_loader(fixed):
    """The training process computes samples itself, alternating with the steps. Remedy: workers compute them concurrently."""
    return loading(WORKERS if fixed else 0, compute=True)


def pageable_copies(fixed):
    """64 MB from pageable memory before each step. Remedy: pinned memory, and a stream that copies during the preceding step."""
    host = [torch.randn(16, 1024, 1024) for _ in range(2)]
    compute = gemms(4096, 16, torch.bfloat16)
    if not fixed:
        def step():
            x = host[0].to("cuda")
            compute()
            return x

        return step

    host = [tensor.pin_memory() for tensor in host]
    device = [torch.empty_like(tensor, device="cuda") for tensor in host]
    copies = torch.cuda.Stream()
    copied, used = ([torch.cuda.Event() for _ in host] for _ in range(2))
    number = 0

    def fetch(slot):
        copies.wait_event(used[slot])
        with torch.cuda.stream(copies):
            device[slot].copy_(host[slot], non_blocking=True)
            copied[slot].record()

    fetch(0)

    def step():
        nonlocal number
        slot = number % 2
        number += 1
        fetch(1 - slot)
        torch.cuda.current_stream().wait_event(copied[slot])
        compute()
        used[slot].record()
        return device[slot]

    return step


def gemm_fp32(fixed):
    """Products in single precision, without tensor cores. Remedy: half the bytes, and tensor cores, by autocast."""
    torch.set_float32_matmul_precision("highest")
    compute = gemms(4096, 4, torch.float32)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16) if fixed else contextlib.nullcontext():
            compute()

    return step


def elementwise(fixed):
    """Sixteen passes over 256 MB. Remedy: one pass that computes the same."""
    x = torch.randn(64 << 20, device="cuda")
    shift = torch.randn(64 << 20, device="cuda")
    out = torch.empty_like(x)

    def step():
        if fixed:
            return torch.add(shift, x, alpha=1.0001 ** 16, out=out)
        torch.mul(x, 1.0001, out=out)
        for _ in range(14):
            torch.mul(out, 1.0001, out=out)
        return torch.add(out, shift, out=out)

    return step


def mixed(fixed):
    """Waits for its data about as long as the device waits for launches. Remedies: a graph, and workers."""
    if fixed:
        training = Training(graph=True)
        data = batches(Samples((64, 128), 0.001, compute=False), None, WORKERS)
        return lambda: training.step(next(data))
    training = Training()
    for _ in range(5):
        training.step()
    launching = seconds_a_step(training.step)
    data = batches(Samples((64, 128), 0.8 * launching, compute=False), None, 0)
    return lambda: training.step(next(data))


def lstm_cell(batch, hidden, graph=False, times=100):
    """A recurrent network, time step by time step."""
    cell = nn.LSTMCell(hidden, hidden).to("cuda")
    inputs = torch.randn(times, batch, hidden, device="cuda")
    zero = torch.zeros(batch, hidden, device="cuda")

    @torch.no_grad()
    def forward():
        state = zero, zero
        for x in inputs:
            state = cell(x, state)
        return state[0]

    if not graph:
        return forward
    captured_forward, kept = captured(forward)

    def step():
        captured_forward.replay()
        return kept

    return step


def rnn_small(fixed):
    """Batch 1: each product ends before the next is launched. Remedy: a CUDA graph."""
    return lstm_cell(1, 256, graph=fixed)


def rnn_large(_):
    """The same with large products."""
    return lstm_cell(512, 1024)


def all_reduce(fixed):
    """Data-parallel training whose gradients take longer to send than to compute. Remedy: sending them every fiftieth step. NCCL itself
    computes the mean, as the division would disappear together with the communication."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    rank = int(os.environ["LOCAL_RANK"])
    model = DistributedDataParallel(perceptron(8192, 4), device_ids=[rank], gradient_as_bucket_view=True)

    def send(_, bucket):
        future = dist.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    model.register_comm_hook(None, send)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    inputs = torch.randn(32, 8192, device="cuda")
    count = 0
    dist.barrier()

    def step():
        nonlocal count
        count += 1
        sends = not fixed or count % 50 == 0
        with contextlib.nullcontext() if sends else model.no_sync():
            model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


# --- ResNet-50 over the batch size -----------------------------------------------------------------------------------

class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50_model():
    parts, inputs = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            width = 64 << stage
            parts.append(Bottleneck(inputs, width, 2 if stage and not block else 1))
            inputs = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


RESNET_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def resnet50_study():
    """[(batch, step)]: training in bfloat16, with all data on the device."""
    model = resnet50_model().to(device="cuda", dtype=torch.bfloat16, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(max(RESNET_BATCHES), 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (max(RESNET_BATCHES),), device="cuda")

    def step_of(batch):
        def step():
            F.cross_entropy(model(images[:batch]).float(), labels[:batch]).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return step

    return [(batch, step_of(batch)) for batch in RESNET_BATCHES]


def study(result):
    """Measures all times first, because CUPTI stays attached for about a second after a window."""
    steps = resnet50_study()
    result["windows"] = []
    for batch, step in steps:
        for _ in range(3):
            step()
        # 30 steps for short ones; for long ones as many as the time allows, at least 5.
        first = seconds_a_step(step, 2, budget=0)
        seconds = seconds_a_step(step, max(5, min(ROUND, int(0.3 / first))), budget=0)
        result["windows"].append({"batch": batch, "seconds": seconds})
    for _, step in steps:
        step()
        window(step)


PROGRAMS = {"tiny_kernels": tiny_kernels, "item_every_step": item_every_step, "slow_loader": slow_loader,
            "host_loader": host_loader, "pageable_copies": pageable_copies, "gemm_fp32": gemm_fp32, "elementwise": elementwise,
            "mixed": mixed, "rnn_small": rnn_small, "rnn_large": rnn_large, "all_reduce": all_reduce}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=[*PROGRAMS, "resnet50"])
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--profiler", action="store_true")
    options = parser.parse_args()
    if options.profiler:
        os.environ["TEARDOWN_CUPTI"] = "1"
    torch.manual_seed(0)
    ranks = together = None
    if "LOCAL_RANK" in os.environ:
        import torch.distributed as ranks
        local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local)
        ranks.init_process_group("nccl", device_id=torch.device("cuda", local))
        hosts = ranks.new_group(backend="gloo")  # its barrier gives the devices no work
        together = functools.partial(ranks.barrier, group=hosts)
    result = {"name": options.name, "fixed": options.fixed, "steps": STEPS, "torch": torch.__version__,
              "device": torch.cuda.get_device_name()}
    if options.name == "resnet50":
        study(result)
    else:
        step = PROGRAMS[options.name](options.fixed)
        for _ in range(5):
            step()
        # All ranks must take the same number of steps.
        result["seconds"] = seconds_a_step(step, budget=0 if ranks else BUDGET)
        if options.profiler:
            result["their_utilization"] = in_turn(step)
        else:
            window(step, ready=together)
    if ranks is None or ranks.get_rank() == 0:
        print(json.dumps(result), flush=True)
    if ranks is not None:
        ranks.barrier()
        ranks.destroy_process_group()


if __name__ == "__main__":
    main()
