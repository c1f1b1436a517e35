# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""ResNet-50 in fp32 on synthetic images; the profiler API brackets iterations 20 to 29."""

import argparse
import time

import torch
import torch.nn.functional as F
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--iterations", type=int, default=50)
parser.add_argument("--start", type=int, default=20)
parser.add_argument("--stop", type=int, default=30)
options = parser.parse_args()

torch.manual_seed(0)
torch.backends.cudnn.benchmark = False
model = torchvision.models.resnet50(weights=None).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
images = torch.randn(4, options.batch, 3, 224, 224).pin_memory()
labels = torch.randint(0, 1000, (4, options.batch)).pin_memory()

begin = time.perf_counter()
for iteration in range(options.iterations):
    if iteration == options.start:
        torch.cuda.profiler.start()
    if iteration == options.stop:
        torch.cuda.profiler.stop()
    x = images[iteration % 4].cuda(non_blocking=True)
    y = labels[iteration % 4].cuda(non_blocking=True)
    with torch.cuda.nvtx.range("forward"):
        loss = F.cross_entropy(model(x), y)
    with torch.cuda.nvtx.range("backward"):
        loss.backward()
    with torch.cuda.nvtx.range("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
torch.cuda.synchronize()
seconds = time.perf_counter() - begin
print(f"{options.iterations} iterations, loss {loss.item():.3f}, {options.iterations * options.batch / seconds:.0f} images/s")
