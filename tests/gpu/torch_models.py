# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Training steps on synthetic data that submit the same device work every time, so that two profilers can be compared.

Each builder returns a function that runs one training step (forward, backward, optimizer, input copy, loss to host).
"""

import torch
from torch import nn
import torch.nn.functional as F


class _Range:
    """An NVTX range if there is a CUDA device."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        if torch.cuda.is_available():
            torch.cuda.nvtx.range_push(self.name)

    def __exit__(self, *unused):
        if torch.cuda.is_available():
            torch.cuda.nvtx.range_pop()


def _host(tensor):
    return tensor.pin_memory() if torch.cuda.is_available() else tensor


def _step(model, optimizer, inputs, loss_of, device):
    """One step; `inputs` are host tensors that are copied to the device, loss_of(model, *inputs) gives the loss."""

    def step():
        with _Range("input"):
            batch = [x.to(device, non_blocking=True) for x in inputs]
        with _Range("forward"):
            loss = loss_of(model, *batch)
        with _Range("backward"):
            loss.backward()
        with _Range("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def resnet50(device, batch=32, size=224):
    import torchvision
    model = torchvision.models.resnet50(weights=None).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    inputs = [_host(torch.randn(batch, 3, size, size)), _host(torch.randint(0, 1000, (batch,)))]
    return _step(model, optimizer, inputs, lambda m, x, y: F.cross_entropy(m(x), y), device)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class _Transformer(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def transformer(device, batch=8, length=512, vocabulary=8192, width=768, heads=12, layers=6):
    model = _Transformer(vocabulary, length, width, heads, layers).to(device=device, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.randint(0, vocabulary, (batch, length + 1))
    inputs = [_host(tokens[:, :-1].contiguous()), _host(tokens[:, 1:].contiguous())]
    return _step(model, optimizer, inputs,
                 lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1).float(), y.flatten()), device)


class _DeepSpeech2(nn.Module):
    def __init__(self, bins, hidden, layers, symbols):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        rows = ((bins + 1) // 2 + 1) // 2
        self.rnn = nn.GRU(32 * rows, hidden, layers, bidirectional=True)
        self.head = nn.Linear(2 * hidden, symbols)

    def forward(self, spectrogram):
        x = self.conv(spectrogram)  # batch, channel, frequency, time
        x = x.flatten(1, 2).permute(2, 0, 1).contiguous()
        x, _ = self.rnn(x)
        return self.head(x).log_softmax(-1)  # time, batch, symbol


def deepspeech2(device, batch=16, bins=161, frames=400, hidden=512, layers=3, symbols=29):
    model = _DeepSpeech2(bins, hidden, layers, symbols).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    frames_out = (frames + 1) // 2
    lengths, target_lengths = [frames_out] * batch, [40] * batch  # as tensors, a dispatch mode would have to keep them off the GPU
    inputs = [_host(torch.randn(batch, 1, bins, frames)), _host(torch.randint(1, symbols, (batch, 40)))]

    def loss_of(m, x, targets):
        loss = F.ctc_loss(m(x), targets, lengths, target_lengths, zero_infinity=True)
        return loss

    return _step(model, optimizer, inputs, loss_of, device)


MODELS = {"resnet50": resnet50, "transformer": transformer, "deepspeech2": deepspeech2}
