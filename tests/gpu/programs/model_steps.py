# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Training steps of one model, a few of them between torch.cuda.profiler.start and stop, and on stdout a JSON line: steps,
and the multiply-adds of all convolutions and linear layers of one forward pass, counted by PyTorch's own hooks.

usage: model_steps.py resnet50|unet|deepspeech2|transformer-cudnn|transformer-flash|transformer-efficient [--steps N]
"""

import json
import os
import sys

import torch
from torch import nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import torch_models


class UNet(nn.Module):
    """Three levels, with transposed convolutions on the way up."""

    def __init__(self, width=32, classes=4):
        super().__init__()
        def block(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())
        self.down = nn.ModuleList([block(3, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.middle = block(4 * width, 8 * width)
        self.up = nn.ModuleList([nn.ConvTranspose2d(2 ** (i + 1) * width, 2 ** i * width, 2, stride=2) for i in (2, 1, 0)])
        self.join = nn.ModuleList([block(2 ** (i + 1) * width, 2 ** i * width) for i in (2, 1, 0)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for stage in self.down:
            kept.append(stage(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept)):
            x = join(torch.cat([up(x), skip], 1))
        return self.head(x)


def unet(device, batch=8, size=256):
    model = UNet().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    inputs = [torch.randn(batch, 3, size, size).pin_memory(), torch.randint(0, 4, (batch, size, size)).pin_memory()]
    return torch_models._step(model, optimizer, inputs, lambda m, x, y: F.cross_entropy(m(x), y), device)


def main():
    name = sys.argv[1]
    steps = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 3
    device = torch.device("cuda")
    multiply_adds = {"conv": 0, "linear": 0}

    def count(module, inputs, output):
        if isinstance(module, (nn.Conv1d, nn.Conv2d)):
            multiply_adds["conv"] += output.numel() * module.weight[0].numel()
        elif isinstance(module, nn.ConvTranspose2d):
            multiply_adds["conv"] += inputs[0].numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            multiply_adds["linear"] += output.numel() * module.in_features

    backend = None
    if name.startswith("transformer"):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        backend = sdpa_kernel({"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
                               "efficient": SDPBackend.EFFICIENT_ATTENTION}[name.split("-")[1]])
        backend.__enter__()
    step = unet(device) if name == "unet" else torch_models.MODELS[name.split("-")[0]](device)
    for _ in range(3):
        step()
    hook = nn.modules.module.register_module_forward_hook(count)
    step()
    hook.remove()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(json.dumps({"steps": steps, "multiply_adds": multiply_adds}))


main()
