# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""One rank of a job under torchrun that ends as --mode says, in a window or after it. What it prints is the same with and
without the preload; what it knows of its window is written to RESULT.RANK.RESTART, JSON.

  train    steps of data-parallel training in a window, and once more under torch.profiler
  fail     rank 1 raises an exception in its window
  restart  likewise, but after torchrun has started the ranks anew they train
  stop     rank 1 tells torchrun to end
"""

import argparse
import ctypes
import faulthandler
import glob
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gputest import normalise  # pylint: disable=wrong-import-position

STEPS = 10
PATIENCE = 60  # s


def launcher():
    """libinject in the process that started this one: (whether it is loaded, its threads)."""
    parent = f"/proc/{os.getppid()}"
    with open(f"{parent}/maps") as file:
        loaded = "libinject" in file.read()
    names = []
    for path in glob.glob(f"{parent}/task/*/comm"):
        try:
            with open(path) as file:
                names.append(file.read().strip())
        except OSError:  # it has just ended
            pass
    return loaded, names.count("libinject")


def window(work):
    """The device is idle when the window begins and ends."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def profiled(work):
    """Kernels by name, as counted by torch.profiler."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        time.sleep(0.02)  # Kineto drops activity close to its own window's edges
        work()
        torch.cuda.synchronize()
        time.sleep(0.02)
    counts = {}
    for event in prof.profiler.kineto_results.events():
        name = event.name()
        if "CUDA" not in str(event.device_type()) or name.startswith(("Memcpy", "Memset")) or name.endswith(" Sync") or \
                getattr(event, "is_user_annotation", lambda: False)():
            continue
        name = normalise(name)
        counts[name] = counts.get(name, 0) + 1
    return counts


def train(_options, rank):
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(64, 256, device="cuda")
    # Each rank has a different number of kernels, so its tables can't be another's.
    extra = torch.zeros(64, device="cuda")

    def steps():
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            for _ in range(rank + 1):
                extra.cos_()

    steps()  # DDP rebuilds its buckets after the first step
    window(steps)
    weights = sum(float(p.detach().double().abs().sum()) for p in model.parameters())
    sys.stdout.write(f"rank {rank} of {dist.get_world_size()}: {weights.hex()}\n")  # a single write, because the ranks share this pipe
    return {"kernels": profiled(steps) if "LD_PRELOAD" in os.environ else {}}


def come_to_the_window(rank):
    """Leaves a second window open, with a known number of kernels in it, once all ranks are there. The first one is on disk: until then, a
    thread's latest records are only in memory."""
    data = torch.zeros(64, device="cuda")
    window(data.cos_)
    flush = getattr(ctypes.CDLL(None), "inject_flush", None)
    if flush is not None:
        flush()
    torch.cuda.profiler.start()
    for _ in range(100 * (rank + 1)):
        data.cos_()
    torch.cuda.synchronize()
    dist.barrier()


def fail(options, rank):
    come_to_the_window(rank)
    write(options, rank, {})
    dist.barrier()  # all have written their results
    if rank == 1:
        time.sleep(0.5)  # the others have left the barrier
        raise RuntimeError("this rank fails in its window")
    time.sleep(PATIENCE)


def restart(options, rank):
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        fail(options, rank)
    return train(options, rank)


def stop(options, rank):
    come_to_the_window(rank)
    write(options, rank, {})
    dist.barrier()
    if rank == 1:
        os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(PATIENCE)


def write(options, rank, result):
    loaded, threads = launcher()
    result.update(pid=os.getpid(), rank=rank, ranks=dist.get_world_size(), launcher_preloaded=loaded, launcher_threads=threads)
    with open(f"{options.result}.{rank}.{os.environ['TORCHELASTIC_RESTART_COUNT']}", "w") as file:
        json.dump(result, file)


@record
def main():
    parser = argparse.ArgumentParser()
    modes = {"train": train, "fail": fail, "restart": restart, "stop": stop}
    parser.add_argument("--mode", choices=sorted(modes), required=True)
    parser.add_argument("--backend", choices=("gloo", "nccl"), required=True)
    parser.add_argument("--result", required=True)
    options = parser.parse_args()
    # A rank that waits for another one ends by itself, because torchrun's ranks are in sessions of their own.
    faulthandler.dump_traceback_later(PATIENCE + 20, exit=True)
    # Ranks that share a GPU: not supported by NCCL.
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group(options.backend, **({"device_id": device} if options.backend == "nccl" else {}))
    rank = dist.get_rank()
    write(options, rank, modes[options.mode](options, rank))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
