#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A real PyTorch's operators on the host, for test_torch_code.py: their kernels are this program's own, in Python, and launch a GPU's work
on the simulated CUDA. The counts of torch.utils.flop_counter for an iteration, if this PyTorch has it, are written to a file.

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


def count(step):
    """What PyTorch's counter reports for it, by operator; nothing is launched meanwhile. Empty if there is no counter."""
    global launching
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return {}
    launching = False
    with FlopCounterMode(display=False) as counter:
        step(0)
    launching = True
    return {str(name).replace("aten.", "aten::"): flops for name, flops in counter.get_flop_counts()["Global"].items()}


def repeat(step, counts):
    with open(sys.argv[4], "w", encoding="utf-8") as file:
        json.dump({"torch": [int(part) for part in torch.__version__.split(".")[:2]], "counts": counts}, file)
    for k in range(ITERATIONS):
        time.sleep(0.002)
        cuda.training_launch(b"begin", 1)
        step(k)


def train(attention, sizes, data_type=torch.float32, counted=None):
    """`sizes(k)`: batch and length of iteration k. `counted`: what the counter takes for the model's attention."""
    def stepping(attention):
        model = Net(attention).to(data_type)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step(k):
            optimizer.zero_grad()
            model(torch.ones(*sizes(k), 16, dtype=data_type)).backward()
            optimizer.step()
        return step
    repeat(stepping(attention), count(stepping(counted or attention)))


def plain():
    train([Attention(False, 6), Attention(True, 6), Attention(False, 11, value_size=4)], lambda k: (3, 6))


def bfloat16():
    train([Attention(True, 6)], lambda k: (3, 6), torch.bfloat16)


def grouped():
    """Both query heads share one head of keys and values, which the counter does not support."""
    train([Attention(False, 6, key_heads=1)], lambda k: (3, 6), counted=[Attention(False, 6)])


def growing():
    """The same kernels each time, with sizes that never recur."""
    train([Attention(False, 6)], lambda k: (3, 6 + k))


class Wrapped(torch.Tensor):
    """Stands for a tensor of other sizes, with which the computation is done."""
    @staticmethod
    def __new__(cls, inner, sizes):
        tensor = torch.Tensor._make_wrapper_subclass(cls, sizes, dtype=inner.dtype)
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        launch(b"gather", 3)
        return function(*(arg.inner if isinstance(arg, cls) else arg for arg in args))


def flash_forward(query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, **_):
    launch(b"pytorch_flash::flash_fwd_kernel", 13)
    empty = torch.empty(0)
    return torch.zeros_like(query), empty, empty, empty, empty


def flash_backward(grad_out, query, key, value, *_, **__):
    launch(b"pytorch_flash::flash_bwd_kernel", 14)
    return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)


def sparse_mm(a, b):
    launch(b"sparse", 4)
    return torch.zeros(a.shape[0], b.shape[1])


def nested_bmm(a, b):
    launch(b"nested", 5)
    return torch.zeros(1)


def strange():
    """Tensors whose sizes differ from those of the computation: these operators are unknown, but not those inside and beside them."""
    from torch.fx.experimental.proxy_tensor import make_fx
    library.impl("mm", sparse_mm, "SparseCPU")
    library.impl("bmm", nested_bmm, "NestedTensorCPU")
    library.impl("_flash_attention_forward", flash_forward, "CPU")
    library.impl("_flash_attention_backward", flash_backward, "CPU")
    ops = torch.ops.aten
    matrix = torch.ones(8, 8)
    sparse = torch.eye(8).to_sparse()
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    wrapped = Wrapped(torch.ones(4, 8), (8, 8))
    packed = torch.ones(12, 2, 8)  # sequences one after the other, heads
    heads = torch.ones(3, 4, 2, 8)  # batch, length, heads
    ends = torch.tensor([0, 4, 12], dtype=torch.int32)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.01)

    def step(k):
        torch.mm(sparse, matrix)
        torch.bmm(nested, nested.transpose(1, 2))
        torch.mm(wrapped, matrix)  # 4 of the 8 rows
        torch.vmap(torch.mm)(torch.ones(3, 2, 5), torch.ones(3, 5, 2))
        torch.mm(torch.ones(2, 2, device="meta"), torch.ones(2, 2, device="meta"))
        ops._flash_attention_forward(packed, packed, packed, ends, ends, 8, 8, 0.0, False, False)
        ops._flash_attention_forward(heads, heads, heads, None, None, 4, 4, 0.0, True, False)
        ops._flash_attention_forward(heads, heads, heads, None, None, 4, 4, 0.0, True, False, window_size_left=2)
        ops._flash_attention_backward(heads, heads, heads, heads, heads, heads, None, None, 4, 4, 0.0, True, ends, ends)
        if k % 10 == 5:
            make_fx(torch.matmul, tracing_mode="symbolic")(matrix, matrix)
        optimizer.step()
    one = 2 * 3 * 2 * 4 * 4 * 8  # a product of attention's
    batch = 2 * 3 * 2 * 5 * 2
    # The products of a batch are within the mm that vmap was given.
    repeat(step, {"aten::mm": 2 * 4 * 8 * 8 + batch, "aten::bmm": batch, "aten::_flash_attention_forward": 2 * one,
                  "aten::_flash_attention_backward": 5 * one})


globals()[sys.argv[2]]()
