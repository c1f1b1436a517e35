# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Layers that get a hint, as they are and as the hint would have them: hinted_layers.py PART before|after

Prints one JSON line: the time (ms) of a forward and backward pass of both, without a profiler, timed in turns so that the GPU's
clock is the same for both, and which rows of the tables are the layer's. Then one of the two runs, a window for each layer: not
both, as whether a process uses tf32 decides which hints it gets. With `after`, nothing is timed.
"""

import json
import statistics
import sys

import torch
from torch import nn

ROUNDS, CALLS, WARM = 15, 8, 4


class Case:
    """`make` and `changed` return a layer and its input; without `changed` it is the same layer, with tf32 allowed."""

    def __init__(self, name, hint, row, make, changed=None, units=(1, 1)):
        self.name, self.hint, self.row, self.make, self.changed, self.units = name, hint, row, make, changed, units


def convolution(n, c, k, size, kernel, stride=1, dtype=torch.bfloat16, last=True):
    def make():
        torch.manual_seed(0)
        layer = nn.Conv2d(c, k, kernel, stride, kernel // 2, bias=False).cuda().to(dtype)
        x = torch.randn(n, c, size, size, device="cuda", dtype=dtype, requires_grad=c > 8)
        if last:
            layer = layer.to(memory_format=torch.channels_last)
            x = x.detach().to(memory_format=torch.channels_last).requires_grad_(c > 8)
        return layer, x
    return make


def recurrent(batch, inputs, hidden, steps=50, layers=2, dtype=torch.float16):
    def make():
        torch.manual_seed(0)
        layer = nn.LSTM(inputs, hidden, layers).cuda().to(dtype)
        return layer, torch.randn(steps, batch, inputs, device="cuda", dtype=dtype, requires_grad=True)
    return make


def conv_row(n, c, k, size, last):
    return {"N": n, "C": c, "K": k, "H": size, "Layout": "NHWC" if last else "NCHW"}


def rnn_row(batch, inputs, hidden):
    return {"B": batch, "Input Size": inputs, "Hidden Size": hidden}


def tf32(allowed):
    torch.backends.cudnn.allow_tf32 = allowed


def cases(part):
    fp32 = torch.float32
    if part == "convolution":
        for n, c, k, size, kernel, stride in ((64, 3, 64, 224, 7, 2), (64, 64, 64, 56, 3, 1), (64, 256, 64, 56, 1, 1), (64, 256, 256, 14, 3, 1),
                                              (64, 512, 512, 7, 3, 1), (8, 64, 64, 56, 3, 1)):
            yield Case(f"{c} to {k} channels, {size} x {size}, {kernel} x {kernel}, N={n}: channels last", "changing the layout", conv_row(n, c, k, size, False),
                       convolution(n, c, k, size, kernel, stride, last=False), convolution(n, c, k, size, kernel, stride))
        for c, k, to_c, to_k, size, kernel, stride in (
                (3, 64, 4, 64, 224, 7, 2), (3, 64, 8, 64, 224, 7, 2), (5, 64, 8, 64, 112, 3, 1), (60, 60, 64, 64, 56, 3, 1), (100, 100, 104, 104, 28, 3, 1),
                (250, 250, 256, 256, 14, 3, 1), (36, 36, 40, 40, 56, 1, 1), (2048, 1001, 2048, 1008, 7, 1, 1)):
            yield Case(f"{c} to {k} channels, {size} x {size}, {kernel} x {kernel}, N=64: {to_c} to {to_k}", "multiple", conv_row(64, c, k, size, True),
                       convolution(64, c, k, size, kernel, stride), convolution(64, to_c, to_k, size, kernel, stride))
    elif part == "convolution_tf32":
        for last in (False, True):
            for c, k, size, kernel, stride in ((3, 64, 224, 7, 2), (64, 64, 56, 3, 1), (256, 64, 56, 1, 1), (256, 256, 14, 3, 1)):
                yield Case(f"{c} to {k} channels, {size} x {size}, {kernel} x {kernel}, N=64, channels {'last' if last else 'first'}: tf32", "tf32",
                           conv_row(64, c, k, size, last), convolution(64, c, k, size, kernel, stride, fp32, last))
    elif part == "recurrent":
        for batch, other in ((1, 32), (4, 32), (8, 32), (16, 32), (24, 32), (16, 64)):
            yield Case(f"LSTM, hidden 1024, B={batch}: {other}", "is below 32", rnn_row(batch, 1024, 1024), recurrent(batch, 1024, 1024),
                       recurrent(other, 1024, 1024), (batch, other))
        for inputs, hidden, to_inputs, to_hidden in ((161, 1024, 168, 1024), (1001, 1001, 1008, 1008), (510, 510, 512, 512), (1022, 1022, 1024, 1024)):
            yield Case(f"LSTM, input {inputs}, hidden {hidden}, B=64: {to_inputs} and {to_hidden}", "multiple", rnn_row(64, inputs, hidden),
                       recurrent(64, inputs, hidden), recurrent(64, to_inputs, to_hidden))
    elif part == "recurrent_tf32":
        for batch, hidden in ((32, 512), (64, 1024), (128, 2048)):
            yield Case(f"LSTM, hidden {hidden}, B={batch}, fp32: tf32", "tf32", rnn_row(batch, hidden, hidden), recurrent(batch, hidden, hidden, dtype=fp32))
    else:
        raise SystemExit(f"unknown part: {part}")


def once(layer, x):
    out = layer(x)
    out = out[0] if isinstance(out, tuple) else out
    out.backward(out.detach())
    x.grad = None
    layer.zero_grad(set_to_none=True)


def timed(layer, x):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        once(layer, x)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / CALLS


def in_a_window(layer, x):
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(CALLS):
        once(layer, x)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def arms_of(case):
    """(layer, input, whether tf32 is allowed) before and after."""
    return [(*case.make(), False), (*(case.changed or case.make)(), case.changed is None)]


def compare(case):
    arms = arms_of(case)
    for layer, x, allowed in arms:
        tf32(allowed)
        for _ in range(WARM):
            once(layer, x)
    times = ([], [])
    for _ in range(ROUNDS):
        for (layer, x, allowed), one in zip(arms, times):
            tf32(allowed)
            one.append(timed(layer, x))
    gains = sorted(before / after * case.units[1] / case.units[0] for before, after in zip(*times))
    return {"ms": [statistics.median(one) for one in times], "gain": statistics.median(gains), "least": gains[1], "most": gains[-2]}


def main():
    part, arm = sys.argv[1:]
    torch.backends.cudnn.benchmark = True  # the algorithm is benchmarked, not guessed
    found = []
    for case in cases(part):
        found.append({"name": case.name, "hint": case.hint, "row": case.row, "units": case.units, **(compare(case) if arm == "before" else {})})
        layer, x, allowed = arms_of(case)[arm == "after"]
        tf32(allowed)
        for _ in range(WARM):
            once(layer, x)
        in_a_window(layer, x)
    print(json.dumps({"calls": CALLS, "cases": found}), flush=True)


if __name__ == "__main__":
    main()
