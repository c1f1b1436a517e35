# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A DeepSpeech-2-like network (convolutions, bidirectional GRU, CTC) on synthetic spectrograms; the profiler API brackets
iterations 10 to 14, NVTX ranges mark the phases."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--frames", type=int, default=600)
parser.add_argument("--hidden", type=int, default=800)
parser.add_argument("--layers", type=int, default=5)
parser.add_argument("--iterations", type=int, default=30)

BINS, SYMBOLS = 161, 29


class DeepSpeech2(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        rows = ((BINS + 1) // 2 + 1) // 2
        self.rnn = nn.GRU(32 * rows, hidden, layers, bidirectional=True)
        self.head = nn.Linear(2 * hidden, SYMBOLS)

    def forward(self, spectrogram):
        x = self.conv(spectrogram).flatten(1, 2).permute(2, 0, 1).contiguous()  # time, batch, features
        return self.head(self.rnn(x)[0]).log_softmax(-1)


def synthetic(sizes):
    """A batch on the host: sounds, texts, and the lengths of both."""
    sounds = torch.randn(sizes.batch, 1, BINS, sizes.frames).pin_memory()
    texts = torch.randint(1, SYMBOLS, (sizes.batch, 50))
    return sounds, texts, torch.full((sizes.batch,), (sizes.frames + 1) // 2), torch.full((sizes.batch,), 50)


def loss_of(model, x, texts, sound_lengths, text_lengths):
    return F.ctc_loss(model(x), texts.cuda(), sound_lengths, text_lengths, zero_infinity=True)


def main():
    options = parser.parse_args()
    torch.manual_seed(0)
    model = DeepSpeech2(options.hidden, options.layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True)
    sounds, *others = synthetic(options)

    begin = time.perf_counter()
    for iteration in range(options.iterations):
        if iteration == 10:
            torch.cuda.profiler.start()
        if iteration == 15:
            torch.cuda.profiler.stop()
        x = sounds.cuda(non_blocking=True)
        with torch.cuda.nvtx.range("forward"):
            loss = loss_of(model, x, *others)
        with torch.cuda.nvtx.range("backward"):
            loss.backward()
        with torch.cuda.nvtx.range("optimizer"):
            nn.utils.clip_grad_norm_(model.parameters(), 400)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    rate = options.iterations * options.batch / seconds
    print(f"{options.iterations} iterations, loss {loss.item():.3f}, {rate:.0f} utterances/s")


if __name__ == "__main__":
    main()
