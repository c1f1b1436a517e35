#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A real PyTorch's operators on the host, for test_torch_code.py: their kernels are this program's own, in Python, and launch on the
simulated CUDA what a GPU would. What torch.utils.flop_counter counts of an iteration, where this PyTorch has it, goes to a file.

usage: torch_operators.py MODULE PATTERN ITERATIONS FILE
"""

import ctypes
import json
import sys
import time

import torch

cuda = ctypes.CDLL(sys.argv[1])
ITERATIONS = int(sys.argv[3])
ATTENTION = "_scaled_dot_product_flash_attention"
HAS_ATTENTION = hasattr(torch.ops.aten, ATTENTION) and hasattr(torch.ops.aten, f"{ATTENTION}_backward")
launching = True


def launch(name, blocks):
    if launching:
        cuda.training_launch(name, blocks)


def product(a, b):
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def mm(a, b):
    launch(b"template_mm", 7)
    launch(b"template_mm_reduce", 2)
    return product(a, b)


def addmm(bias, a, b, *, beta=1, alpha=1):
    launch(b"template_addmm", 8)
    return bias + product(a, b)


def bmm(a, b):
    launch(b"template_bmm", 9)
    return product(a, b)


def attention(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    launch(b"pytorch_flash::flash_fwd_kernel", 10)
    empty = torch.empty(0)
    out = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=query.dtype)
    return out, torch.zeros(query.shape[:-1]), empty, empty, query.shape[2], key.shape[2], empty, empty, empty


def attention_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, *,
                       scale=None):
    launch(b"pytorch_flash::flash_bwd_dot_do_o_kernel", 11)
    launch(b"pytorch_flash::flash_bwd_kernel", 12)
    return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)


library = torch.library.Library("aten", "IMPL")
for operator in (mm, addmm, bmm):
    library.impl(operator.__name__, operator, "CPU")
if HAS_ATTENTION:
    library.impl(ATTENTION, attention, "CPU")
    library.impl(f"{ATTENTION}_backward", attention_backward, "CPU")


class Attention(torch.nn.Module):
    def __init__(self, causal, keys, value_size=8, key_heads=2):
        super().__init__()
        self.causal, self.keys, self.value_size, self.key_heads = causal, keys, value_size, key_heads

    def forward(self, x):
        query = x.view(x.shape[0], -1, 2, 8).transpose(1, 2)
        key = query[:, : self.key_heads, :1].expand(-1, -1, self.keys, -1)
        value = query[:, : self.key_heads, :1, : self.value_size].expand(-1, -1, self.keys, -1)
        if not HAS_ATTENTION:
            return query.sum(-1, keepdim=True)
        return getattr(torch.ops.aten, ATTENTION)(query, key, value, 0.1 if self.causal else 0.0, self.causal)[0]


class Net(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.linear = torch.nn.Linear(16, 16)
        self.attention = torch.nn.ModuleList(attention)

    def forward(self, x):
        rows = self.linear(x.flatten(0, 1)).view(x.shape)  # addmm, in the backward pass mm
        batch = torch.bmm(rows, rows.transpose(1, 2)).sum()
        return sum((module(rows).sum() for module in self.attention), batch)


def train(attention, sizes, data_type=torch.float32, optimizer_type=torch.optim.SGD):
    """`sizes(k)`: batch and length of iteration k."""
    global launching
    model = Net(attention).to(data_type)
    optimizer = optimizer_type(model.parameters(), lr=0.01)

    def step(k):
        optimizer.zero_grad()
        model(torch.ones(*sizes(k), 16, dtype=data_type)).backward()
        optimizer.step()

    counts = {}
    try:
        from torch.utils.flop_counter import FlopCounterMode
        launching = False
        with FlopCounterMode(display=False) as counter:
            step(0)
        counts = {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}
        launching = True
    except ImportError:
        pass
    with open(sys.argv[4], "w", encoding="utf-8") as file:
        json.dump({"torch": torch.__version__, "counts": counts}, file)
    for k in range(ITERATIONS):
        time.sleep(0.002)
        cuda.training_launch(b"begin", 1)
        step(k)


def plain():
    train([Attention(False, 6), Attention(True, 6), Attention(False, 11, value_size=4)], lambda k: (3, 6))


def bfloat16():
    train([Attention(True, 6)], lambda k: (3, 6), torch.bfloat16)


def growing():
    """The same kernels each time, of sizes that are never the same."""
    train([Attention(False, 6)], lambda k: (3, 6 + k))


globals()[sys.argv[2]]()
