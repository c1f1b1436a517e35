# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""One rank of a job under torchrun: data-parallel training, or single collectives, with one window around steps whose
collectives are known. Writes RESULT.RANK, JSON."""

import argparse
import faulthandler
import json
import os
import statistics

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def bus_bandwidth(elements, batches=6, calls=10):
    """GB/s of an all_reduce of that many floats, measured with CUDA events around batches of calls: [one per batch]"""
    data = torch.zeros(elements, device="cuda")
    for _ in range(5):
        dist.all_reduce(data)
    torch.cuda.synchronize()
    dist.barrier()
    found = []
    ranks = dist.get_world_size()
    for _ in range(batches):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            dist.all_reduce(data)
        end.record()
        end.synchronize()
        seconds = begin.elapsed_time(end) / 1e3 / calls
        found.append(4 * elements / seconds / 1e9 * 2 * (ranks - 1) / ranks)
    return found


def window(work):
    """A window with everything that `work` launches, after a barrier: attaching the profiler takes a different time on each rank, which
    would otherwise be added to the first collective."""
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.profiler.start()
    dist.barrier()
    work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def train(options):
    torch.manual_seed(7)
    layers = []
    for _ in range(options.layers):
        layers += [torch.nn.Linear(options.width, options.width, device="cuda"), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers)
    elements = sum(parameter.numel() for parameter in model.parameters())
    more = {"bucket_cap_mb": options.bucket_mb} if options.bucket_mb else {}
    model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], gradient_as_bucket_view=True, **more)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(options.batch, options.width, device="cuda")

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    own = bus_bandwidth(elements) if options.measure else []
    steps(5)  # DDP rebuilds its buckets after the first one
    window(lambda: steps(options.steps))
    own += bus_bandwidth(elements) if options.measure else []
    return {"gradient_bytes": 4 * elements, "steps": options.steps, "own_bus_bandwidths": own,
            "own_bus_bandwidth": statistics.median(own) if own else None,
            "buckets": model._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")}


def operations(options):
    """Each operation, five times: the expected contents of nccl_sum.csv."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    part, whole = torch.zeros(100_000, device="cuda"), torch.zeros(100_000 * ranks, device="cuda")
    half = torch.zeros(77_777, device="cuda", dtype=torch.bfloat16)
    small = [torch.zeros(1000, device="cuda") for _ in range(4)]

    def coalesced():
        with dist._coalescing_manager():
            for tensor in small:
                dist.all_reduce(tensor)

    def ring():
        for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, part, (rank + 1) % ranks),
                                               dist.P2POp(dist.irecv, whole[:100_000], (rank - 1) % ranks)]):
            request.wait()

    all_of_them = [
        (lambda: dist.all_reduce(half, op=dist.ReduceOp.MAX), "AllReduce", "bf16", "max", 2 * 77_777, 5),
        (lambda: dist.broadcast(part, 1), "Broadcast", "fp32", "", 400_000, 5),
        (lambda: dist.reduce(part, 0), "Reduce", "fp32", "sum", 400_000, 5),
        (lambda: dist.all_gather_into_tensor(whole, part), "AllGather", "fp32", "", 400_000 * ranks, 5),
        (lambda: dist.reduce_scatter_tensor(part, whole), "ReduceScatter", "fp32", "sum", 400_000 * ranks, 5),
        (coalesced, "AllReduce", "fp32", "sum", 4000, 20),
        (ring, "Send", "fp32", "", 400_000, 5),
        (ring, "Recv", "fp32", "", 400_000, 5),
    ]
    exchanged = torch.zeros_like(whole)
    dist.all_to_all_single(exchanged, whole)
    for function, *_ in all_of_them:
        function()

    def work():
        for function in dict.fromkeys(entry[0] for entry in all_of_them):
            for _ in range(5):
                function()
        for _ in range(5):
            dist.all_to_all_single(exchanged, whole)

    window(work)
    return {"operations": [entry[1:] for entry in all_of_them], "all_to_all_bytes": 400_000 * ranks}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("train", "operations"))
    parser.add_argument("--result", required=True)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--bucket-mb", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--measure", action="store_true")
    options = parser.parse_args()
    # A rank that waits for another one ends by itself, because the launcher's ranks are in sessions of their own.
    faulthandler.dump_traceback_later(100, exit=True)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    result = train(options) if options.what == "train" else operations(options)
    result.update(rank=dist.get_rank(), ranks=dist.get_world_size(), device=torch.cuda.get_device_name(),
                  nccl=".".join(map(str, torch.cuda.nccl.version())), torch=torch.__version__)
    with open(f"{options.result}.{result['rank']}", "w") as file:
        json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
