# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Training steps of an example's model over precision and batch size, each configuration in a window of its own.

usage: torch_study.py resnet50|transformer|deepspeech2 [--batches 1,2,…] [--precisions fp32,tf32,bf16] [--seconds S]

Precisions:
  fp32     no tensor cores: no TF32 in products nor in cuDNN, and attention made of products and a softmax, since the fused
           kernels for fp32 use them all the same
  tf32     fp32 on tensor cores, in products and in cuDNN
  bf16     weights in bf16 (transformer), or fp32 under autocast (resnet50, deepspeech2; PyTorch's autocast runs cuDNN's RNNs in
           fp16, whatever type is asked for)
  default  fp32 as PyTorch has it: TF32 in cuDNN, not in products

cudnn.benchmark is off, as in the examples. So 5 steps warm up, and more until they took 0.2 s, for the clocks. In the window the
host is at most two steps ahead of the device.

On stdout JSON: first versions and the device, then a line for each configuration, with the number of its window. `step_ns` is
the median time on the device from a step's end to the next one's. One that failed has `failed` instead, "out of memory" where it
was that.
"""

import argparse
import contextlib
import functools
import gc
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))

WARM_STEPS, WARM_SECONDS = 5, 0.2
FEWEST_STEPS = 10
AHEAD = 2


# Each builds a model: (the trained module, its optimizer, a function that computes a step's loss, the gradient norm limit or None, the unit
# that is counted, and how many of it a step takes).

def resnet50(batch, precision):
    import torchvision
    with torch.device("cuda"):
        model = torchvision.models.resnet50(weights=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(batch, 3, 224, 224).pin_memory(), torch.randint(0, 1000, (batch,)).pin_memory()

    def loss():
        with autocast(precision):
            return F.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda(non_blocking=True))

    return model, optimizer, loss, None, "images", batch


def transformer(batch, precision):
    import transformer_bf16 as example
    sizes = example.parser.parse_args(["--batch", str(batch)])
    with torch.device("cuda"):
        model = example.Transformer(sizes).to(torch.bfloat16 if precision == "bf16" else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss():
        with attention(precision):
            return example.loss_of(model, sizes)

    return model, optimizer, loss, None, "tokens", batch * sizes.length


def deepspeech2(batch, precision):
    import deepspeech2_rnn as example
    sizes = example.parser.parse_args(["--batch", str(batch)])
    with torch.device("cuda"):
        model = example.DeepSpeech2(sizes.hidden, sizes.layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True)
    sounds, *others = example.synthetic(sizes)

    def loss():
        with autocast(precision):
            return example.loss_of(model, sounds.cuda(non_blocking=True), *others)

    return model, optimizer, loss, 400, "utterances", batch


MODELS = {"resnet50": resnet50, "transformer": transformer, "deepspeech2": deepspeech2}
# TF32 in products, in cuDNN.
TF32 = {"fp32": (False, False), "tf32": (True, True), "bf16": (False, True), "default": (False, True)}


def autocast(precision):
    return torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16")


def attention(precision):
    if precision != "fp32":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel
    return sdpa_kernel(SDPBackend.MATH)


def training_step(model, optimizer, loss, most_norm):
    loss().backward()
    if most_norm:
        torch.nn.utils.clip_grad_norm_(model.parameters(), most_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def warm_up(step):
    begin, steps = time.perf_counter(), 0
    while steps < WARM_STEPS or time.perf_counter() - begin < WARM_SECONDS:
        step()
        steps += 1
        torch.cuda.synchronize()


def window(step, seconds):
    """Steps between profiler.start and stop: the duration of each on the device, in ns."""
    def reached():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    torch.cuda.profiler.start()
    try:
        begin, ends = time.perf_counter(), [reached()]
        while len(ends) <= FEWEST_STEPS or time.perf_counter() - begin < seconds:
            step()
            ends.append(reached())
            if len(ends) > AHEAD:
                ends[-1 - AHEAD].synchronize()
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()
    return [1e6 * before.elapsed_time(after) for before, after in zip(ends, ends[1:])]


class Study:
    def __init__(self, name, seconds):
        self.name, self.seconds, self.windows = name, seconds, 0

    def steps(self, precision, batch):
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = TF32[precision]
        model, optimizer, loss, most_norm, unit, count = MODELS[self.name](batch, precision)
        step = functools.partial(training_step, model, optimizer, loss, most_norm)
        warm_up(step)
        self.windows += 1
        times = window(step, self.seconds)
        median = statistics.median(times)
        return {"steps": len(times), "step_ns": round(median), "unit": unit, "rate": round(count / (median * 1e-9), 3),
                "window": self.windows}

    def configuration(self, precision, batch):
        found = {"model": self.name, "precision": precision, "batch": batch}
        try:
            found.update(self.steps(precision, batch))
        except torch.cuda.OutOfMemoryError:
            found["failed"] = "out of memory"
        except RuntimeError as error:
            found["failed"] = str(error)[:300]
        # After the exception is released, which holds the tensors of the frames where it was raised.
        gc.collect()
        torch.cuda.empty_cache()
        return found


def words(text):
    return text.split(",")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batches", type=lambda text: [int(word) for word in words(text)], default=[1, 4, 16, 64])
    parser.add_argument("--precisions", type=words, default=["fp32", "tf32", "bf16"])
    parser.add_argument("--seconds", type=float, default=0.6)
    options = parser.parse_args()
    unknown = set(options.precisions) - set(TF32)
    if unknown:
        parser.error(f"no such precision: {', '.join(sorted(unknown))}")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = False
    versions = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name()}
    print(json.dumps(versions), flush=True)
    study = Study(options.model, options.seconds)
    for precision in options.precisions:
        for batch in options.batches:
            print(json.dumps(study.configuration(precision, batch)), flush=True)


if __name__ == "__main__":
    main()
