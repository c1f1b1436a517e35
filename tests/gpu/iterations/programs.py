# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Small training programs whose iterations are known from inside: python programs.py NAME [--steps N] [--truth FILE].

At the top of every iteration K a program leaves an NVTX range `truth:K` that ends at once, at the beginning of what is no
iteration `phase:NAME`, and `truth:end` after the last iteration; FILE gets the same with CLOCK_MONOTONIC times. Each
program does in small what training scripts do: it builds the model, moves it to the device, copies a batch in every step,
looks at the loss now and then, and rests after each step for as long as a data loader may take: these models are so small
that a step takes less than a millisecond, and hundreds of them pass while a profiler is attached. Whoever looks for
iterations in what they launch must not look at the marks.
"""

import argparse
import ctypes
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time

PROGRAMS = {}


def program(*modules, steps=80, gpus=1):
    """Registers a training program that needs the modules and that many GPUs."""

    def register(function):
        function.modules, function.steps, function.gpus = modules, steps, gpus
        PROGRAMS[function.__name__] = function
        return function

    return register


class Training:
    """Parameters of a program's run: the number of steps, the device, the pause after a step in seconds, and the marks that it leaves."""

    def __init__(self, steps, device="cuda", mark=None, pause=0):
        self.steps, self.device, self.pause = steps, device, pause
        self.marks, self.losses, self.notes = [], [], {}
        self._mark = mark or (lambda message: None)

    def mark(self, message):
        self.marks.append((time.clock_gettime_ns(time.CLOCK_MONOTONIC), message))
        self._mark(message.encode())

    def phase(self, name):
        """Work from here on is not an iteration, up to the next one."""
        self.mark("phase:" + name)

    def loop(self, step, every=10, between=None):
        """The training loop: step(k) returns the loss, which is read on the host after every `every` steps; between(k) is called between
        iteration k and the next."""
        for k in range(self.steps):
            self.mark(f"truth:{k}")
            loss = step(k)
            if (k + 1) % every == 0:
                self.losses.append(loss.item())
            if between:
                between(k)
            if self.pause:
                time.sleep(self.pause)
        self.mark("truth:end")


# --- PyTorch ---------------------------------------------------------------------------------------------------------

def host_batches(training, make, pinned=False, count=8):
    """make(i) for `count` batches of host tensors; a step takes the next one, as from a data loader."""
    batches = [make(i) for i in range(count)]
    if pinned and training.device == "cuda":
        batches = [tuple(tensor.pin_memory() for tensor in batch) for batch in batches]
    return lambda k: batches[k % count]


def image_batches(training, batch, size, classes, pinned=False):
    import torch
    return host_batches(training, lambda i: (torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,))), pinned)


def perceptron(sizes, activation=None):
    from torch import nn
    layers = []
    for n, m in zip(sizes, sizes[1:]):
        layers += [nn.Linear(n, m), (activation or nn.ReLU)()]
    return nn.Sequential(*layers[:-1])


def gpt(layers, width, heads, vocabulary, length):
    """A GPT-like language model: tokens -> logits."""
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens):
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Model()


def token_batches(training, vocabulary, shape_of, pinned=False, count=8):
    """Batches of tokens and of the tokens that follow them; shape_of(i) is (batch, length)."""
    import torch

    def make(i):
        batch, length = shape_of(i)
        tokens = torch.randint(0, vocabulary, (batch, length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return host_batches(training, make, pinned, count)


def language_loss(logits, targets):
    import torch.nn.functional as F
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@program("torch")
def mlp(training):
    """Pageable copies, SGD with momentum, gradients set to zero."""
    import torch
    import torch.nn.functional as F
    model = perceptron([784, 512, 512, 10]).to(training.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batch = host_batches(training, lambda i: (torch.randn(128, 784), torch.randint(0, 10, (128,))))

    def step(k):
        x, y = (tensor.to(training.device) for tensor in batch(k))
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step)


@program("torch", "torchvision")
def resnet50(training):
    """cudnn.benchmark: the first steps benchmark the convolution algorithms; the loss is read in every step."""
    import torch
    import torch.nn.functional as F
    import torchvision
    torch.backends.cudnn.benchmark = True
    model = torchvision.models.resnet50(weights=None).to(training.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    batch = image_batches(training, 8, 64, 1000, pinned=True)

    def step(k):
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in batch(k))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step, every=1)


@program("torch")
def transformer(training):
    """Twelve layers that repeat within the step, bf16 autocast, AdamW, clipped gradients, a learning-rate schedule."""
    import torch
    model = gpt(layers=12, width=256, heads=8, vocabulary=4096, length=128).to(training.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 20))
    batch = token_batches(training, 4096, lambda i: (8, 128), pinned=True)

    def step(k):
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in batch(k))
        with torch.autocast(training.device, dtype=torch.bfloat16):
            loss = language_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return loss

    training.loop(step)


def lstm(training, length_of):
    """An LSTM cell in a loop over length_of(k) time steps."""
    import torch
    from torch import nn
    import torch.nn.functional as F

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.head = nn.LSTMCell(64, 256), nn.Linear(256, 10)

        def forward(self, x):
            h = x.new_zeros(x.shape[1], 256)
            c = torch.zeros_like(h)
            for at in range(x.shape[0]):
                h, c = self.cell(x[at], (h, c))
            return self.head(h)

    model = Model().to(training.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    count = max(training.steps, 1)
    batch = host_batches(training, lambda i: (torch.randn(length_of(i), 32, 64), torch.randint(0, 10, (32,))), count=count)

    def step(k):
        x, y = (tensor.to(training.device) for tensor in batch(k))
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    training.loop(step)


@program("torch")
def lstm_fixed(training):
    """Sequences of one length: the same few kernels twenty times per step."""
    lstm(training, lambda i: 20)


@program("torch")
def lstm_variable(training):
    """Sequences of 8 to 40 time steps, with a different length in each step."""
    lengths = random.Random(1)
    lstm(training, lambda i: lengths.randint(8, 40))


@program("torch")
def grad_accum(training):
    """Four micro-batches per optimizer step; the loss is read after each optimizer step."""
    import torch
    model = gpt(layers=4, width=256, heads=4, vocabulary=2048, length=64).to(training.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = token_batches(training, 2048, lambda i: (8, 64))

    def step(k):
        total = torch.zeros((), device=training.device)
        for micro in range(4):
            x, y = (tensor.to(training.device) for tensor in batch(4 * k + micro))
            loss = language_loss(model(x), y) / 4
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    training.loop(step, every=1)


def validated(training, validate_every, save_every):
    """A convolution network that is validated and saved now and then."""
    import torch
    from torch import nn
    import torch.nn.functional as F
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.1), nn.Linear(64 * 8 * 8, 10)).to(training.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, nesterov=True)
    batch = image_batches(training, 64, 32, 10, pinned=True)
    held_out = image_batches(training, 64, 32, 10, pinned=True)

    def step(k):
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in batch(k))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def between(k):
        if (k + 1) % validate_every == 0:
            training.phase("validation")
            model.eval()
            correct = torch.zeros((), dtype=torch.long, device=training.device)
            with torch.no_grad():
                for i in range(6):
                    x, y = (tensor.to(training.device, non_blocking=True) for tensor in held_out(i))
                    correct += (model(x).argmax(1) == y).sum()
            training.notes["accuracy"] = correct.item() / (6 * 64)
            model.train()
        if (k + 1) % save_every == 0:
            training.phase("checkpoint")
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, os.path.join(folder, "checkpoint.pt"))

    training.loop(step, between=between)


@program("torch")
def validation(training):
    """Validation after every 20 steps, a checkpoint after every 40."""
    validated(training, 20, 40)


@program("torch")
def validation_often(training):
    """Validation after every 13 steps, hence also within the window iter:50+5, after step 51."""
    validated(training, 13, 26)


@program("torch")
def amp(training):
    """fp16 with a loss scale that is too high at first: no optimizer step until it is right, and again at steps 30 and 52, where the batch
    overflows."""
    import torch
    model = gpt(layers=3, width=256, heads=4, vocabulary=2048, length=64).to(training.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler(training.device, init_scale=2.0**26, growth_interval=1000)
    batch = token_batches(training, 2048, lambda i: (8, 64), pinned=True)
    skipped = []

    def step(k):
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in batch(k))
        with torch.autocast(training.device, dtype=torch.float16):
            loss = language_loss(model(x), y)
        # A Python number, so the kernels are the same whether it overflows or not.
        weight = float("inf") if k in (30, 52) else 1.0
        scaler.scale(loss * weight).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < before:
            skipped.append(k)
        optimizer.zero_grad()
        return loss

    training.loop(step)
    training.notes["skipped"] = skipped


@program("torch")
def gan(training):
    """Two models and two optimizers; the discriminator's and the generator's turn make one iteration."""
    import torch
    import torch.nn.functional as F
    generator = perceptron([64, 256, 512, 784]).to(training.device)
    discriminator = perceptron([784, 512, 256, 1]).to(training.device)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    batch = host_batches(training, lambda i: (torch.randn(64, 784),))
    ones, zeros = torch.ones(64, 1, device=training.device), torch.zeros(64, 1, device=training.device)

    def step(k):
        real, = (tensor.to(training.device) for tensor in batch(k))
        discriminator_optimizer.zero_grad()
        fake = generator(torch.randn(64, 64, device=training.device))
        loss = (F.binary_cross_entropy_with_logits(discriminator(real), ones) +
                F.binary_cross_entropy_with_logits(discriminator(fake.detach()), zeros))
        loss.backward()
        discriminator_optimizer.step()
        generator_optimizer.zero_grad()
        loss_of_generator = F.binary_cross_entropy_with_logits(discriminator(fake), ones)
        loss_of_generator.backward()
        generator_optimizer.step()
        return loss

    training.loop(step)


@program("torch")
def compile(training):
    """torch.compile with its defaults (Inductor, Triton kernels): the first step compiles."""
    import torch
    model = torch.compile(gpt(layers=2, width=256, heads=4, vocabulary=2048, length=64).to(training.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = token_batches(training, 2048, lambda i: (8, 64), pinned=True)

    def step(k):
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in batch(k))
        loss = language_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    training.loop(step)


@program("torch")
def cudagraph(training):
    """A whole step captured after three warm-up steps on a side stream, which do not count as iterations here; from then on, a step
    consists of the inputs' copies and one graph launch."""
    import torch
    import torch.nn.functional as F
    training.phase("warm-up")
    model = perceptron([784, 512, 512, 10]).to(training.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batch = host_batches(training, lambda i: (torch.randn(128, 784), torch.randint(0, 10, (128,))), pinned=True)
    x, y = (tensor.to(training.device) for tensor in batch(0))

    def work():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = work()

    def step(k):
        for static, new in zip((x, y), batch(k)):
            static.copy_(new, non_blocking=True)
        graph.replay()
        return loss

    training.loop(step)


@program("torch")
def multistream(training):
    """Two halves of a model on two streams that are joined by events, forward and backward."""
    import torch
    import torch.nn.functional as F
    left, right = (perceptron([256, 512, 512, 64]).to(training.device) for _ in range(2))
    head = torch.nn.Linear(128, 10).to(training.device)
    optimizer = torch.optim.SGD([p for m in (left, right, head) for p in m.parameters()], lr=0.05, momentum=0.9)
    batch = host_batches(training, lambda i: (torch.randn(64, 512), torch.randint(0, 10, (64,))), pinned=True)
    side = torch.cuda.Stream()
    copied, done = torch.cuda.Event(), torch.cuda.Event()

    def step(k):
        main = torch.cuda.current_stream()
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in batch(k))
        copied.record(main)
        with torch.cuda.stream(side):
            side.wait_event(copied)
            x.record_stream(side)
            b = right(x[:, 256:])
            done.record(side)
        a = left(x[:, :256])
        main.wait_event(done)
        b.record_stream(main)
        loss = F.cross_entropy(head(torch.cat((a, b), 1)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step)


@program("torch")
def dynamic_shapes(training):
    """A transformer whose batch and sequence length differ in each step."""
    import torch
    shapes = random.Random(2)
    model = gpt(layers=4, width=256, heads=4, vocabulary=2048, length=128).to(training.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    batch = token_batches(training, 2048, lambda i: (shapes.choice((2, 4, 6, 8)), shapes.randint(16, 128)), count=training.steps)

    def step(k):
        x, y = (tensor.to(training.device) for tensor in batch(k))
        loss = language_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    training.loop(step)


@program("torch")
def dataloader(training):
    """Epochs of 25 steps from a DataLoader with workers and pinned memory; the last batch of each is smaller."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    import torch.nn.functional as F
    model = perceptron([784, 512, 256, 10]).to(training.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    data = TensorDataset(torch.randn(24 * 64 + 40, 784), torch.randint(0, 10, (24 * 64 + 40,)))
    loader = DataLoader(data, batch_size=64, shuffle=True, num_workers=2, pin_memory=training.device == "cuda",
                        persistent_workers=True)
    state = {"batches": iter(loader)}

    def step(k):
        # Like the body of a script's `for batch in loader`: the batch is ready when the iteration begins.
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in state["next"])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def fetch(k=None):
        state["next"] = next(state["batches"], None)
        if state["next"] is None:
            state["batches"] = iter(loader)
            state["next"] = next(state["batches"])

    fetch()
    training.loop(step, between=fetch)


def two_ranks(training, name, work):
    """Runs work(rank, store) as rank 0 here, and as rank 1 in a process of the program `name` without a profiler; store is a file."""
    rank = int(os.environ.get("TRUTH_RANK", "0"))
    with tempfile.TemporaryDirectory() as folder:
        store = os.environ.setdefault("TRUTH_STORE", os.path.join(folder, "store"))
        other = None
        if rank == 0:
            environment = {n: v for n, v in os.environ.items()
                           if not n.startswith("INJECT_") and n not in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")}
            other = subprocess.Popen([sys.executable, os.path.abspath(__file__), name, "--steps", str(training.steps),
                                      "--pause", str(training.pause * 1000), "--device", training.device],
                                     env=environment | {"TRUTH_RANK": "1", "TRUTH_STORE": store}, stdout=subprocess.DEVNULL)
        try:
            work(rank, store)
        finally:
            if other:
                try:
                    other.wait(60)
                finally:
                    other.kill()


@program("torch")
def ddp(training):
    """Rank 0 of two data-parallel ranks that share the device, with gloo; rank 1 is a process without a profiler."""
    two_ranks(training, "ddp", lambda rank, store: ddp_rank(training, rank, store))


def ddp_rank(training, rank, store):
    import datetime
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    model = torch.nn.parallel.DistributedDataParallel(perceptron([784, 512, 512, 10]).to(training.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batch = host_batches(training, lambda i: (torch.randn(64, 784), torch.randint(0, 10, (64,))), pinned=True)

    def step(k):
        x, y = (tensor.to(training.device, non_blocking=True) for tensor in batch(k))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    training.loop(step)
    dist.destroy_process_group()


# --- others ----------------------------------------------------------------------------------------------------------

def jax_training(training, every):
    """A jit-compiled step (forward, backward, SGD) of a residual network; XLA makes CUDA graphs of it at its discretion."""
    import jax
    import jax.numpy as jnp
    import numpy
    if training.device == "cuda" and jax.default_backend() != "gpu":
        sys.exit(f"JAX runs on {jax.default_backend()}, not on a GPU")
    generator = numpy.random.default_rng(0)

    def weights(n, m):
        return jnp.asarray(generator.standard_normal((n, m), dtype=numpy.float32) * n**-0.5)

    params = {"in": weights(256, 512), "blocks": [(weights(512, 512), weights(512, 512)) for _ in range(4)], "out": weights(512, 10)}

    def loss_of(params, x, y):
        h = x @ params["in"]
        for up, down in params["blocks"]:
            h = h + jax.nn.gelu(h @ up) @ down
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(h @ params["out"]) * y, axis=-1))

    @jax.jit
    def train(params, x, y):
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        return jax.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, grads), loss

    batches = [(generator.standard_normal((128, 256), dtype=numpy.float32),
                numpy.eye(10, dtype=numpy.float32)[generator.integers(0, 10, 128)]) for _ in range(8)]

    def step(k):
        nonlocal params
        x, y = (jax.device_put(array) for array in batches[k % 8])
        params, loss = train(params, x, y)
        return loss

    training.loop(step, every)
    jax.block_until_ready(params)


@program("jax")
def jax(training):
    """The loss is read in every step, so everything that a step launches has been launched when it ends."""
    jax_training(training, every=1)


@program("jax")
def jax_async(training):
    """The loss is read after every ten steps. JAX may launch later than requested by the step, so the marks are not exact here."""
    jax_training(training, every=10)


@program("cupy")
def cupy(training):
    """A two-layer network with an explicit backward pass."""
    import cupy
    import numpy
    generator = numpy.random.default_rng(0)
    host = [(generator.standard_normal((128, 256), dtype=numpy.float32), generator.standard_normal((128, 16), dtype=numpy.float32))
            for _ in range(8)]
    w1 = cupy.asarray(generator.standard_normal((256, 512), dtype=numpy.float32) / 16)
    w2 = cupy.asarray(generator.standard_normal((512, 16), dtype=numpy.float32) / 22)

    def step(k):
        x, y = (cupy.asarray(array) for array in host[k % 8])
        hidden = cupy.maximum(x @ w1, 0)
        error = hidden @ w2 - y
        loss = (error * error).mean()
        down = error * numpy.float32(2 / error.size)
        gradient2 = hidden.T @ down
        gradient1 = x.T @ ((down @ w2.T) * (hidden > 0))
        w1.__isub__(numpy.float32(0.05) * gradient1)
        w2.__isub__(numpy.float32(0.05) * gradient2)
        return loss

    training.loop(step)


@program("numba")
def numba(training):
    """Logistic regression: a copy and four kernels per step."""
    import numpy
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # removed in NumPy 2.5, but Numba 0.6x needs it when imported
    from numba import cuda

    @cuda.jit
    def truth_forward(x, w, y, error):
        i = cuda.grid(1)
        if i < x.shape[0]:
            total = numpy.float32(0)
            for j in range(x.shape[1]):
                total += x[i, j] * w[j]
            error[i] = total - y[i]

    @cuda.jit
    def truth_backward(x, error, gradient):
        j = cuda.grid(1)
        if j < x.shape[1]:
            total = numpy.float32(0)
            for i in range(x.shape[0]):
                total += x[i, j] * error[i]
            gradient[j] = total / x.shape[0]

    @cuda.jit
    def truth_loss(error, loss):
        if cuda.grid(1) == 0:
            total = numpy.float32(0)
            for i in range(error.size):
                total += error[i] * error[i]
            loss[0] = total / error.size

    @cuda.jit
    def truth_update(rate, gradient, w):
        j = cuda.grid(1)
        if j < w.size:
            w[j] -= rate * gradient[j]

    generator = numpy.random.default_rng(0)
    batches = [(generator.standard_normal((256, 128), dtype=numpy.float32), generator.standard_normal(256, dtype=numpy.float32))
               for _ in range(8)]
    x, y = (cuda.to_device(array) for array in batches[0])
    w, gradient, error, loss = (cuda.to_device(numpy.zeros(n, numpy.float32)) for n in (128, 128, 256, 1))

    def step(k):
        for static, new in zip((x, y), batches[k % 8]):
            static.copy_to_device(new)
        truth_forward[2, 128](x, w, y, error)
        truth_loss[1, 32](error, loss)
        truth_backward[1, 128](x, error, gradient)
        truth_update[1, 128](numpy.float32(0.1), gradient, w)
        return Loss()

    class Loss:
        def item(self):
            return float(loss.copy_to_host()[0])

    training.loop(step)
    cuda.synchronize()


# ---------------------------------------------------------------------------------------------------------------------

def load_mark(path):
    """truth_mark of the library next to the tests, or None: then there are only the times in the truth file."""
    if not path:
        return None
    function = ctypes.CDLL(path).truth_mark
    function.argtypes, function.restype = [ctypes.c_char_p], None
    return function


def main():
    import recipes  # noqa: F401  further programs
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(PROGRAMS))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--truth", help="JSON file for the marks and their CLOCK_MONOTONIC times")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to try the programs without a GPU")
    parser.add_argument("--pause", type=float, default=5, help="milliseconds of rest after each step (default: 5)")
    parser.add_argument("--mark", default=os.environ.get("TRUTH_MARK"), help="libtruth_mark.so (default: $TRUTH_MARK)")
    options = parser.parse_args()
    function = PROGRAMS[options.name]
    training = Training(options.steps or function.steps, options.device, load_mark(options.mark), options.pause / 1000)
    if "torch" in function.modules:
        import torch
        torch.manual_seed(0)
        training.notes["torch"] = torch.__version__
    random.seed(0)
    begin = time.monotonic()
    function(training)
    if "torch" in function.modules and options.device == "cuda":
        torch.cuda.synchronize()
    if not training.losses or not all(math.isfinite(loss) for loss in training.losses):
        sys.exit(f"{options.name}: no finite loss: {training.losses}")
    result = {"program": options.name, "steps": training.steps, "seconds": round(time.monotonic() - begin, 3),
              "pause_ms": options.pause, "marked": options.mark is not None, "losses": training.losses[:3] + training.losses[-1:], "notes": training.notes}
    if options.truth:
        with open(options.truth, "w") as file:
            json.dump(result | {"marks": training.marks}, file)
    print(json.dumps(result))


if __name__ == "__main__":
    # By the module name under which recipes.py imports it, so that there is only one PROGRAMS.
    import programs
    programs.main()
