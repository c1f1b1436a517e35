# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Trains one of torchvision's networks on a synthetic batch of 224 x 224 images, on one GPU or, as DataParallel or DistributedDataParallel, on
all there are. The batch is that of a GPU. Each iteration copies its batch from pinned memory.

usage: train.py MODEL BATCH PARALLEL ITERATIONS     (PARALLEL: none, dp or ddp, which starts a process for each GPU)
"""

import os
import sys
import time

import torch
import torchvision
from torch import nn

CLASSES = 1000


def main():
    name, batch, parallel, iterations = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    if parallel == "ddp" and "RANK" not in os.environ:
        ranks = f"--nproc-per-node={torch.cuda.device_count()}"
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", "--standalone", ranks, *sys.argv])
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    torch.manual_seed(0)
    # As in the older measurements: fp32, and the fastest algorithm for the shape.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES).to(device)
    if parallel == "ddp":
        torch.distributed.init_process_group("nccl", device_id=device)
        model = nn.parallel.DistributedDataParallel(model, device_ids=[device])
    elif parallel == "dp":
        model = nn.DataParallel(model)
        batch *= torch.cuda.device_count()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    images, labels = torch.randn(batch, 3, 224, 224).pin_memory(), torch.randint(CLASSES, (batch,)).pin_memory()
    begin = time.perf_counter()
    for iteration in range(iterations):
        loss = loss_of(model(images.to(device, non_blocking=True)), labels.to(device, non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if iteration == 9:
            torch.cuda.synchronize()
            begin = time.perf_counter()
    torch.cuda.synchronize()
    print(f"{(time.perf_counter() - begin) / (iterations - 10) * 1e3:.2f} ms an iteration, loss {loss.item():.3f}")
    if parallel == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
