# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Training programs with host-bound steps, for studies/first_window.py.

PROGRAMS has a function for each: it builds the program on a device ("cuda", or "cpu" to inspect the program itself) and returns a function
that takes a step. They only wait for the device if their algorithm requires it.
"""

import functools
import time

import torch
import torch.nn.functional as F
from torch import nn


def stepper(model, optimizer, loss):
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()
    return step


def mlp(device, batch=64):
    """A deep, narrow perceptron."""
    layers = []
    for _ in range(24):
        layers += [nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x, y = torch.randn(batch, 256, device=device), torch.randint(0, 10, (batch,), device=device)
    return stepper(model, optimizer, lambda: F.cross_entropy(model(x), y))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


def language(device, batch=4):
    """A small language model in mixed precision; gradients are clipped."""
    embed, blocks, head = nn.Embedding(1000, 256), nn.Sequential(*[Block(256, 4) for _ in range(8)]), nn.Linear(256, 1000)
    model = nn.Sequential(embed, blocks, head).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, 1000, (batch, 65), device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step


def convolutions(device, batch=16):
    """Residual convolutions on small images, with a batch copied from the host in every step."""
    class Residual(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
            self.c, self.d = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

        def forward(self, x):
            return F.relu(x + self.d(self.b(F.relu(self.c(self.a(x))))))

    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *[Residual(32) for _ in range(12)], nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    if device == "cuda":
        images, labels = images.pin_memory(), labels.pin_memory()
    return stepper(model, optimizer, lambda: F.cross_entropy(model(images.to(device, non_blocking=True)), labels.to(device, non_blocking=True)))


def recurrent(device, batch=32, width=128):
    """An LSTM written as a loop over time."""
    cell, head = nn.LSTMCell(64, width).to(device), nn.Linear(width, 10).to(device)
    optimizer = torch.optim.RMSprop([*cell.parameters(), *head.parameters()], lr=1e-3)
    x, y = torch.randn(40, batch, 64, device=device), torch.randint(0, 10, (batch,), device=device)

    def loss():
        h = c = torch.zeros(batch, width, device=device)
        for at in range(40):
            h, c = cell(x[at], (h, c))
        return F.cross_entropy(head(h), y)
    return stepper(nn.ModuleList([cell, head]), optimizer, loss)


def actor(device):
    """Actor and critic in an environment on the host, whose results are copied in every move."""
    body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()).to(device)
    policy, value = nn.Linear(64, 4).to(device), nn.Linear(64, 1).to(device)
    optimizer = torch.optim.Adam([*body.parameters(), *policy.parameters(), *value.parameters()], lr=1e-3)
    state = torch.zeros(8)

    def step():
        nonlocal state
        terms = []
        for _ in range(8):
            features = body(state.to(device))
            choice = torch.distributions.Categorical(logits=policy(features))
            action = choice.sample()
            state = (state * 0.9).roll(int(action.item()))
            state[0] += 0.1
            terms.append(-choice.log_prob(action) * (state.sum().item() - value(features).detach()).squeeze()
                         + (value(features).squeeze() - state.sum().item()) ** 2)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(terms).mean().backward()
        optimizer.step()
    return step


def unet(device, batch=4):
    """A small U-net in half precision with loss scaling, with noise drawn in every step."""
    def part(i, o):
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(4, o), nn.SiLU())

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [8, 16, 32, 64]
            self.into = nn.Conv2d(1, 8, 3, padding=1)
            self.down = nn.ModuleList([part(a, b) for a, b in zip(widths, widths[1:])])
            self.up = nn.ModuleList([part(b + a, a) for a, b in reversed(list(zip(widths, widths[1:])))])
            self.out = nn.Conv2d(8, 1, 3, padding=1)

        def forward(self, x):
            kept, x = [], self.into(x)
            for one in self.down:
                kept.append(x)
                x = F.avg_pool2d(one(x), 2)
            for one in self.up:
                x = one(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1))
            return self.out(x)

    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.cuda.amp.GradScaler(enabled=device == "cuda")
    images = torch.randn(batch, 1, 32, 32, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        noise = torch.randn_like(images)
        with torch.autocast("cuda", dtype=torch.float16, enabled=device == "cuda"):
            loss = F.mse_loss(model(images + noise).float(), noise)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return step


def critic(device, batch=64):
    """A Wasserstein critic with a gradient penalty: a backward pass through a backward pass."""
    def net(i, o):
        return nn.Sequential(nn.Linear(i, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128),
                             nn.LeakyReLU(0.2), nn.Linear(128, o)).to(device)
    critic, generator = net(64, 1), net(16, 64)
    first, second = (torch.optim.Adam(one.parameters(), lr=1e-4, betas=(0.0, 0.9)) for one in (critic, generator))
    real = torch.randn(batch, 64, device=device)

    def step():
        fake = generator(torch.randn(batch, 16, device=device))
        between = torch.lerp(real, fake.detach(), torch.rand(batch, 1, device=device)).requires_grad_(True)
        gradient, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        first.zero_grad(set_to_none=True)
        (critic(fake.detach()).mean() - critic(real).mean() + 10 * ((gradient.norm(2, 1) - 1) ** 2).mean()).backward()
        first.step()
        second.zero_grad(set_to_none=True)
        (-critic(fake).mean()).backward()
        second.step()
    return step


def mixer(device, batch=4):
    """An MLP-mixer with smoothed labels; its optimizer updates one parameter at a time."""
    class Mix(nn.Module):
        def __init__(self, patches, width):
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(patches, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, patches))
            self.channels = nn.Sequential(nn.Linear(width, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, width))

        def forward(self, x):
            x = x + self.tokens(self.before(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.between(x))

    stem = nn.Conv2d(3, 128, 4, stride=4)
    model = nn.Sequential(stem, nn.Flatten(2), *[Mix(128, 64) for _ in range(8)], nn.Flatten(), nn.Linear(128 * 64, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    images, labels = torch.randn(batch, 3, 32, 32, device=device), torch.randint(0, 10, (batch,), device=device)
    return stepper(model, optimizer, lambda: F.cross_entropy(model(images), labels, label_smoothing=0.1))


def adapters(device, batch=4):
    """Low-rank adapters beside the frozen weights of a small transformer, with the gradients of two batches accumulated."""
    class Adapted(nn.Module):
        def __init__(self, into, out):
            super().__init__()
            self.frozen = nn.Linear(into, out).requires_grad_(False)
            self.down, self.up = nn.Linear(into, 8, bias=False), nn.Linear(8, out, bias=False)

        def forward(self, x):
            return self.frozen(x) + 2 * self.up(F.dropout(self.down(x), 0.05, self.training))

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.q, self.v, self.mlp = nn.LayerNorm(width), Adapted(width, width), Adapted(width, width), Adapted(width, width)

        def forward(self, x):
            y = self.norm(x)
            return x + self.mlp(F.scaled_dot_product_attention(self.q(y), y, self.v(y)))

    model = nn.Sequential(*[Layer(256) for _ in range(8)], nn.Linear(256, 16)).to(device)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4)
    x, y = torch.randn(2, batch, 64, 256, device=device), torch.randn(2, batch, 64, 16, device=device)

    def step():
        for part, wanted in zip(x, y):
            (F.mse_loss(model(part), wanted) / 2).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step


def graph(device):
    """The perceptron's forward and backward pass as a CUDA graph. 32 of its gradients are accumulated; the optimizer is outside of it."""
    layers = []
    for _ in range(12):
        layers += [nn.Linear(128, 128), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(64, 128, device=device), torch.randint(0, 10, (64,), device=device)

    def pass_once():
        F.cross_entropy(model(x), y).backward()
    if device != "cuda":
        pass_once()
        return lambda: (pass_once(), optimizer.step())
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            pass_once()
    torch.cuda.current_stream().wait_stream(beside)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        pass_once()

    def step():
        optimizer.zero_grad(set_to_none=False)
        for _ in range(32):
            captured.replay()
        optimizer.step()
    return step


def paced(microseconds):
    """Kernels that spin for a given time and are launched at given times, whatever the profiler does: 100 per step, 200 us apart. Adam ends
    the step."""
    def build(device):
        cycles = microseconds * 1700 if device == "cuda" else 0
        weight = torch.nn.Parameter(torch.zeros(64, device=device))
        weight.grad = torch.zeros_like(weight)
        optimizer = torch.optim.Adam([weight], fused=device == "cuda")

        def step():
            due = time.monotonic_ns()
            for _ in range(100):
                while time.monotonic_ns() < due:
                    pass
                due += 200_000
                if cycles:
                    torch.cuda._sleep(cycles)
            optimizer.step()
        return step
    build.__name__ = f"paced_{microseconds}"
    return build


def half(program, **sizes):
    """The same launches on more data, so that the GPU works for at least half of the step: sizes for an H100."""
    build = functools.partial(program, **sizes)
    build.__name__ = program.__name__ + "_half"
    return build


HALF = (half(mlp, batch=12288), half(language, batch=512), half(convolutions, batch=80), half(recurrent, batch=320, width=1024),
        half(unet, batch=640), half(critic, batch=73728), half(mixer, batch=448), half(adapters, batch=320))
PROGRAMS = {f.__name__: f for f in (mlp, language, convolutions, recurrent, actor, unet, critic, mixer, adapters, graph, paced(2), paced(10), paced(50),
                                    *HALF)}
