# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The matrix products of recurrent layers, or the layers themselves, each some times in one window. Without a GPU it runs on the host, for its own
test.

Products are M of one gate and of four together, N of a batch and K of the state, as cuBLAS has these letters (docs/gemm.md). Layers run forward and
backward, over state, batch and number of layers: PyTorch takes cuDNN's persistent algorithm for one layer in fp16 whose sizes allow it, and
never for two.

usage: program.py KIND     (a type and the operands that are transposed: fp32, tf32, bf16 or fp16 with NN, NT or TN, fp8-TN; or a cell and a type:
                           LSTM or GRU with fp32, tf32 or fp16)
"""

import sys
from collections.abc import Iterator

import torch
from torch import nn

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

STATES = (1760, 2048, 2560, 4096)
GATES = (1, 4)
# Powers of two, multiples of 16 between them, and one that is a multiple of neither.
BATCHES = (16, 32, 33, 48, 64, 96, 128, 256)
REPEATS = 20

LAYER_STATES = (512, 1024, 1760)
LAYER_BATCHES = (16, 32, 33, 64, 96)
LAYERS = (1, 2)
STEPS = 50  # per sequence
LAYER_REPEATS = 5


def products(precision: str, layout: str, states: tuple[int, ...] = STATES) -> Iterator[tuple[int, int, int, torch.Tensor]]:
    """(M, N, K, N × M result). PyTorch is row-major and cuBLAS column-major, so the operands are swapped."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    for k in states:
        for m in (gates * k for gates in GATES):
            for n in BATCHES:
                if precision == "fp8":
                    if n % 16 == 0:  # others are refused
                        yield m, n, k, eight_bits(m, n, k)
                    continue
                a = torch.randn((m, k) if layout[0] == "T" else (k, m), device=DEVICE).to(TYPES[precision])
                b = torch.randn((k, n) if layout[1] == "T" else (n, k), device=DEVICE).to(TYPES[precision])
                yield m, n, k, (b.T if layout[1] == "T" else b) @ (a.T if layout[0] == "T" else a)


def eight_bits(m: int, n: int, k: int) -> torch.Tensor:
    a, b = (torch.randn(size, k, device=DEVICE).to(torch.float8_e4m3fn) for size in (m, n))
    one = torch.ones((), device=DEVICE)
    return torch._scaled_mm(b, a.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def layers(cell: str, precision: str, states: tuple[int, ...] = LAYER_STATES, steps: int = STEPS) -> Iterator[torch.Tensor]:
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = precision != "fp32"
    dtype = torch.float16 if precision == "fp16" and ON_GPU else torch.float32
    for state in states:
        for count in LAYERS:
            model = getattr(nn, cell)(state, state, count).to(DEVICE, dtype)
            for batch in LAYER_BATCHES:
                found, _ = model(torch.randn(steps, batch, state, device=DEVICE, dtype=dtype))
                found.float().square().mean().backward()
                model.zero_grad(set_to_none=True)
                yield found.detach()


def main() -> None:
    kind, variant = sys.argv[1].split("-")
    is_layer = hasattr(nn, kind)
    run, repeats = (layers, LAYER_REPEATS) if is_layer else (products, REPEATS)
    for _ in run(kind, variant):  # loads libraries and kernels
        pass
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(repeats):
        for _ in run(kind, variant):
            pass
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    print(f"{kind}, {variant}: {repeats} times each")


if __name__ == "__main__":
    main()
