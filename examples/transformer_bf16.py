# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A small GPT in bf16 on synthetic text. Nothing in here knows of a profiler: INJECT_WINDOW says when."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--length", type=int, default=1024)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--vocabulary", type=int, default=32000)
parser.add_argument("--seconds", type=float, default=20)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, self.head_width).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """Of the sizes that the command line has."""

    def __init__(self, sizes):
        super().__init__()
        self.token = nn.Embedding(sizes.vocabulary, sizes.width)
        self.position = nn.Embedding(sizes.length, sizes.width)
        self.blocks = nn.Sequential(*(Block(sizes.width, sizes.width // 64) for _ in range(sizes.layers)))
        self.head = nn.Sequential(nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.vocabulary, bias=False))
        self.register_buffer("where", torch.arange(sizes.length), persistent=False)

    def forward(self, text):
        return self.head(self.blocks(self.token(text) + self.position(self.where)))


def loss_of(model, sizes):
    text = torch.randint(0, sizes.vocabulary, (sizes.batch, sizes.length + 1), device="cuda")
    logits = model(text[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def main():
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Transformer(options).to(device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < options.seconds:
        loss = loss_of(model, options)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        steps += 1
    seconds = time.perf_counter() - begin
    print(f"{steps} steps, loss {loss.item():.3f}, {steps * options.batch * options.length / seconds:.0f} tokens/s")


if __name__ == "__main__":
    main()
