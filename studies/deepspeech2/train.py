# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Trains the network of examples/deepspeech2_rnn.py on synthetic speech of many lengths, padded to the longest of its batch. The unit of work
is a second of sound. Without a GPU it runs on the host, for its own test.

usage: train.py BATCH PRECISION ITERATIONS     (PRECISION: fp32, tf32, bf16, fp16)
"""

import contextlib
import ctypes
import pathlib
import random
import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from deepspeech2_rnn import BINS, SYMBOLS, DeepSpeech2  # noqa: E402

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
FRAMES_A_SECOND = 100
# Seconds: read sentences are seldom longer than this, and most of them are cut near it.
SHORTEST, USUAL, LONGEST = 1.5, 15.0, 16.5
SYMBOLS_A_SECOND = 14


def lengths(batch: int, generator: random.Random) -> list[float]:
    return [generator.triangular(SHORTEST, LONGEST, USUAL) for _ in range(batch)]


def losses(batch: int, precision: str, iterations: int, hidden: int = 800, layers: int = 5, scale: float = 1.0) -> Iterator[torch.Tensor]:
    """`scale`: factor for the lengths."""
    torch.manual_seed(0)
    generator = random.Random(0)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    model = DeepSpeech2(hidden, layers).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    tell = getattr(ctypes.CDLL(None), "inject_units", None)
    if tell is not None:
        tell.argtypes, tell.restype = [ctypes.c_double], None
    for _ in range(iterations):
        seconds = [scale * length for length in lengths(batch, generator)]
        frames = [max(8, int(length * FRAMES_A_SECOND)) for length in seconds]
        sounds = torch.randn(batch, 1, BINS, max(frames), pin_memory=ON_GPU).to(DEVICE, non_blocking=True)
        sizes = torch.tensor([max(1, int(length * SYMBOLS_A_SECOND / 4)) for length in seconds])
        texts = torch.randint(1, SYMBOLS, (batch, int(sizes.max()))).to(DEVICE)
        with torch.autocast(DEVICE.type, half) if half and ON_GPU else contextlib.nullcontext():
            found = model(sounds)
        loss = F.ctc_loss(found.float(), texts, torch.tensor([(count + 1) // 2 for count in frames]), sizes, zero_infinity=True)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 400)
        optimizer.step()
        if tell is not None:
            tell(sum(seconds))
        yield loss.detach()


def main() -> None:
    batch, precision, iterations = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for loss in losses(batch, precision, iterations):
        last = loss
    print(f"batch {batch}, {precision}: loss {last.item():.4g}")


if __name__ == "__main__":
    main()
