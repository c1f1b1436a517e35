# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""One rank of a training under torchrun with communicators of its own kind: gradients go over the job's group (DDP, fp32), what a
layer's parts have in common over a second group of all ranks (bf16), and rank 0 has a third one for itself (fp64). Rank
--slow computes more than the others. Writes RESULT.RANK, JSON.

--eager: the job's group is made at once, and the others are split off it (ncclCommSplit); else each is made by itself, when it is
first used (ncclCommInitRankConfig).
"""

import argparse
import faulthandler
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS, BATCH = 2048, 6, 1024
SHARED = 3_000_000  # elements


class Shared(torch.autograd.Function):
    """A sum over all ranks of a group in each forward pass, as in tensor parallelism."""

    @staticmethod
    def forward(_ctx, activations, data, group):
        dist.all_reduce(data, group=group)
        return activations

    @staticmethod
    def backward(_ctx, gradient):
        return gradient, None, None


class Model(torch.nn.Module):
    def __init__(self, group):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        # Not a buffer, because DDP would broadcast it.
        self.data, self.group = torch.zeros(SHARED, device="cuda", dtype=torch.bfloat16), group

    def forward(self, batch):
        for layer in self.layers:
            batch = torch.relu(layer(batch))
        return Shared.apply(batch, self.data, self.group)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", required=True)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--slow", type=int, default=-1, help="the rank that computes more")
    options = parser.parse_args()
    # A rank that waits for another one ends by itself, because the launcher's ranks are in sessions of their own.
    faulthandler.dump_traceback_later(50, exit=True)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", **({"device_id": device} if options.eager else {}))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    # Other ranks make the call as well, but are not in the group: this keeps the numbers of splits of one communicator the same on all
    # ranks.
    alone = dist.new_group([0])
    shared = dist.new_group(list(range(ranks)))

    torch.manual_seed(7)
    model = DistributedDataParallel(Model(shared).cuda(), device_ids=[device], gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    batch = torch.randn(BATCH, WIDTH, device="cuda")
    more, own = torch.randn(4096, 4096, device="cuda"), torch.zeros(1000, device="cuda", dtype=torch.float64)

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            if rank == options.slow:
                for _ in range(4):
                    torch.mm(more, more)
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            if rank == 0:
                dist.all_reduce(own, group=alone)
            loss.item()  # as in programs that print it, so the host does not run ahead

    steps(5)  # DDP rebuilds its buckets after the first one
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.profiler.start()
    dist.barrier()
    steps(options.steps)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    result = {"rank": rank, "ranks": ranks, "steps": options.steps, "pid": os.getpid(),
              "gradient_bytes": 4 * sum(parameter.numel() for parameter in model.parameters()), "shared_bytes": 2 * SHARED,
              "own_bytes": 8000, "device": torch.cuda.get_device_name(), "torch": torch.__version__,
              "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    with open(f"{options.result}.{rank}", "w") as file:
        json.dump(result, file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
