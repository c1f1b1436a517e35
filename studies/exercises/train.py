# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Training loops with one fault each, and the same without it. Without a GPU they run on the host, for their own test.

usage: train.py EXERCISE VERSION ITERATIONS     (EXERCISE of EXERCISES; VERSION: wrong or mended)
"""

import contextlib
import ctypes
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
Step = Callable[[], torch.Tensor]


def size(on_gpu: int, on_host: int) -> int:
    return on_gpu if ON_GPU else on_host


def perceptron(width: int, layers: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    return nn.Sequential(*[part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]).to(DEVICE, dtype)


def trained(model: nn.Module, batch: Step, optimizer: torch.optim.Optimizer | None = None, autocast: bool = False) -> Step:
    """`batch`: makes or fetches the next one."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> torch.Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16) if autocast else contextlib.nullcontext():
            loss = model(batch()).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def always(*sizes: int, dtype: torch.dtype = torch.float32) -> Step:
    """The same batch each time, which is on the GPU already."""
    batch = torch.randn(*sizes, device=DEVICE, dtype=dtype)
    return lambda: batch


def tensor_cores(mended: bool) -> Step:
    """Products in fp32 do not use tensor cores; enabling TF32 takes one line."""
    torch.backends.cuda.matmul.allow_tf32 = mended
    width = size(4096, 64)
    return trained(perceptron(width, 6), always(width, width))


def precision(mended: bool) -> Step:
    """Activations and products in fp32, or in bf16 by autocast: time and memory."""
    torch.backends.cuda.matmul.allow_tf32 = True
    width = size(4096, 64)
    return trained(perceptron(width, 6), always(2 * width, width), autocast=mended)


def padding(mended: bool) -> Step:
    """Sizes of products that are not multiples of eight."""
    width = size(4096 if mended else 4095, 64)
    dtype = torch.bfloat16 if ON_GPU else torch.float32
    return trained(perceptron(width, 6, dtype), always(width, width, dtype=dtype))


def logging(mended: bool) -> Step:
    """The loss is read in each step, and the GPU waits until the next step's kernels have been launched."""
    model = perceptron(size(512, 32), 12)
    losses: list[torch.Tensor] = []
    plain = trained(model, always(size(512, 8), size(512, 32)))

    def step() -> torch.Tensor:
        loss = plain()
        losses.append(loss)
        if not mended or len(losses) == 100:
            print(torch.stack(losses).mean().item(), file=sys.stderr)
            losses.clear()
        return loss

    return step


def copies(mended: bool) -> Step:
    """Batches from pageable memory, serialized with the kernels."""
    width = size(4096, 64)
    model, host = perceptron(width, 2), torch.randn(width, width)
    if not (mended and ON_GPU):
        return trained(model, lambda: host.to(DEVICE))
    host, stream = host.pin_memory(), torch.cuda.Stream()

    def copy() -> torch.Tensor:
        with torch.cuda.stream(stream):
            return host.to(DEVICE, non_blocking=True)

    coming = [copy()]

    def ahead() -> torch.Tensor:
        """Waits for this batch's copy; the next one's runs concurrently with this one's kernels."""
        torch.cuda.current_stream().wait_stream(stream)
        batch = coming.pop()
        batch.record_stream(torch.cuda.current_stream())
        coming.append(copy())
        return batch

    return trained(model, ahead)


class Decoded(torch.utils.data.Dataset):
    """Each sample takes some CPU time, as image decoding does."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        until = time.perf_counter() + 0.0005
        while time.perf_counter() < until:
            pass
        return torch.full((512,), float(index % 7))


def loading(mended: bool) -> Step:
    """Samples are decoded by the main process, or by workers ahead of it."""
    loader = torch.utils.data.DataLoader(Decoded(), batch_size=size(64, 4), num_workers=8 if mended and ON_GPU else 0)
    batches = iter(loader)
    return trained(perceptron(512, 24), lambda: next(batches).to(DEVICE))


def optimizer(mended: bool) -> Step:
    """AdamW launches about ten kernels for each parameter, or a few for all."""
    model = perceptron(size(256, 16), 60)
    way = {"fused": True} if mended and ON_GPU else {"foreach": False}
    return trained(model, always(size(256, 8), size(256, 16)), torch.optim.AdamW(model.parameters(), **way))


class Elementwise(nn.Module):
    """Many passes over memory where a compiler needs one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.rand(size(4096, 16), device=DEVICE)) for _ in range(2))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            batch = torch.tanh(batch * self.scale + self.shift) * torch.sigmoid(batch) + batch
        return batch


def fusion(mended: bool) -> Step:
    """A chain of elementwise operators, with or without torch.compile."""
    model = Elementwise()
    compiled = torch.compile(model) if mended and ON_GPU else model
    return trained(compiled, always(size(8192, 16), size(4096, 16)))


def bucketing(mended: bool) -> Step:
    """Sequences of many lengths, all padded to the longest one overall, or to the longest of their batch after sorting. The unit of work is
    a token, excluding padding."""
    torch.manual_seed(0)
    batch, longest = size(32, 2), size(512, 16)
    lengths = torch.randint(longest // 16, longest + 1, (64 * batch,))
    if mended:
        lengths = lengths.sort().values
    groups = lengths.split(batch)
    order = torch.randperm(len(groups)).tolist()
    model = nn.TransformerEncoderLayer(size(512, 32), 8, batch_first=True).to(DEVICE)
    tell = getattr(ctypes.CDLL(None), "inject_units", None)
    if tell is not None:
        tell.argtypes, tell.restype = [ctypes.c_double], None
    turn = iter(range(1 << 30))

    def padded() -> torch.Tensor:
        group = groups[order[next(turn) % len(order)]]
        if tell is not None:
            tell(float(group.sum()))
        return torch.randn(len(group), int(group.max()) if mended else longest, size(512, 32), device=DEVICE)

    return trained(model, padded)


EXERCISES = {function.__name__: function for function in (tensor_cores, precision, padding, logging, copies, loading, optimizer, fusion, bucketing)}


def steps(name: str, version: str, iterations: int) -> Iterator[torch.Tensor]:
    step = EXERCISES[name](version == "mended")
    for _ in range(iterations):
        yield step()


def main() -> None:
    name, version, iterations = sys.argv[1:4]
    loss = torch.zeros(())
    for loss in steps(name, version, int(iterations)):
        pass
    print(f"{name}, {version}: loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
