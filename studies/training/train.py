# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Training loops of the kinds that benchmarks of training have, on synthetic data that the host makes or copies in each step. The unit of work is
said with each step. Without a GPU they run on the host, for their own test.

usage: train.py WORKLOAD SIZE ITERATIONS     (WORKLOAD: one of WORKLOADS; SIZE: small, large)

Weights are fp32, products and convolutions as PyTorch has them by default, but for the translation transformer, which is in bf16 by autocast.
"""

import collections
import contextlib
import ctypes
import pathlib
import random
import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
SYMBOLS = 8192  # per language

Step = Callable[[], torch.Tensor]
# A training step, and its number of units.
Work = tuple[Step, int]


def there(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.pin_memory() if ON_GPU else tensor).to(DEVICE, non_blocking=True)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Step, half: bool = False) -> Step:
    def step() -> torch.Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16) if half else contextlib.nullcontext():
            loss = loss_of()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def image_classification(batch: int, scale: int) -> Work:
    import torchvision
    model = torchvision.models.resnet50(weights=None).to(DEVICE)
    side = 224 // scale
    images, labels = torch.randn(batch, 3, side, side), torch.randint(0, 1000, (batch,))
    return trained(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), lambda: F.cross_entropy(model(there(images)), there(labels))), batch


def object_detection(batch: int, scale: int) -> Work:
    import torchvision
    model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91).to(DEVICE)
    height, width = 800 // scale, 1088 // scale

    def loss() -> torch.Tensor:
        images = [there(torch.rand(3, height, width)) for _ in range(batch)]
        corners = torch.rand(batch, 8, 2) * 0.5
        boxes = torch.cat([corners, corners + 0.1 + 0.4 * torch.rand(batch, 8, 2)], 2) * torch.tensor([width, height, width, height])
        targets = [{"boxes": there(box), "labels": there(torch.randint(1, 91, (8,)))} for box in boxes]
        return sum(model(images, targets).values())
    return trained(model, torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9), loss), batch


def translation_transformer(batch: int, scale: int) -> Work:
    width, length = 512 // scale, 64
    embed = nn.Embedding(SYMBOLS // scale, width)
    core = nn.Transformer(width, 8, 6 // min(scale, 6), 6 // min(scale, 6), 4 * width, batch_first=True)
    head = nn.Linear(width, SYMBOLS // scale)
    model = nn.ModuleList([embed, core, head]).to(DEVICE)
    mask = nn.Transformer.generate_square_subsequent_mask(length).to(DEVICE)

    def loss() -> torch.Tensor:
        source, target = (there(torch.randint(0, SYMBOLS // scale, (batch, length + extra))) for extra in (0, 1))
        found = head(core(embed(source), embed(target[:, :-1]), tgt_mask=mask))
        return F.cross_entropy(found.flatten(0, 1).float(), target[:, 1:].flatten())
    return trained(model, torch.optim.AdamW(model.parameters(), 1e-4), loss, half=True), batch * length


class Seq2Seq(nn.Module):
    """Two layers of LSTM on each side, with attention over the source."""

    def __init__(self, symbols: int, width: int):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.encoder, self.decoder = (nn.LSTM(width, width, 2, batch_first=True) for _ in range(2))
        self.mix, self.head = nn.Linear(2 * width, width), nn.Linear(width, symbols)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, state = self.encoder(self.embed(source))
        found, _ = self.decoder(self.embed(target), state)
        context = (found @ memory.transpose(1, 2)).softmax(-1) @ memory
        return self.head(torch.tanh(self.mix(torch.cat([found, context], 2))))


def translation_lstm(batch: int, scale: int) -> Work:
    length, symbols = 32, SYMBOLS // scale
    model = Seq2Seq(symbols, 512 // scale).to(DEVICE)

    def loss() -> torch.Tensor:
        source, target = (there(torch.randint(0, symbols, (batch, length + extra))) for extra in (0, 1))
        return F.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
    return trained(model, torch.optim.Adam(model.parameters(), 1e-3), loss), batch * length


def speech(batch: int, scale: int) -> Work:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
    from deepspeech2_rnn import BINS, SYMBOLS as LETTERS, DeepSpeech2
    frames = 800 // scale
    model = DeepSpeech2(800 // scale, 5).to(DEVICE)

    def loss() -> torch.Tensor:
        found = model(there(torch.randn(batch, 1, BINS, frames)))
        texts = there(torch.randint(1, LETTERS, (batch, frames // 16)))
        return F.ctc_loss(found.float(), texts, torch.full((batch,), found.shape[0]), torch.full((batch,), frames // 16), zero_infinity=True)
    return trained(model, torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9), loss), batch


def gan(batch: int, scale: int) -> Work:
    """DCGAN's generator and discriminator, for 64 × 64."""
    channels, noise = 64 // scale, 100
    up = [layer for a, b in ((noise, 8), (8, 4), (4, 2), (2, 1)) for layer in (
        nn.ConvTranspose2d(a if a == noise else a * channels, b * channels, 4, 1 if a == noise else 2, 0 if a == noise else 1, bias=False),
        nn.BatchNorm2d(b * channels), nn.ReLU(True))]
    down = [layer for a, b in ((1, 2), (2, 4), (4, 8)) for layer in (
        nn.Conv2d(a * channels, b * channels, 4, 2, 1, bias=False), nn.BatchNorm2d(b * channels), nn.LeakyReLU(0.2, True))]
    make = nn.Sequential(*up, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh()).to(DEVICE)
    judge = nn.Sequential(nn.Conv2d(3, channels, 4, 2, 1), nn.LeakyReLU(0.2, True), *down, nn.Conv2d(8 * channels, 1, 4), nn.Flatten(0)).to(DEVICE)
    makes, judges = (torch.optim.Adam(model.parameters(), 2e-4, betas=(0.5, 0.999)) for model in (make, judge))
    real = torch.rand(batch, 3, 64, 64)
    ones, zeros = (torch.full((batch,), value, device=DEVICE) for value in (1.0, 0.0))

    def step() -> torch.Tensor:
        made = make(torch.randn(batch, noise, 1, 1, device=DEVICE))
        judges.zero_grad(set_to_none=True)
        loss = F.binary_cross_entropy_with_logits(judge(there(real)), ones) + F.binary_cross_entropy_with_logits(judge(made.detach()), zeros)
        loss.backward()
        judges.step()
        makes.zero_grad(set_to_none=True)
        F.binary_cross_entropy_with_logits(judge(made), ones).backward()
        makes.step()
        return loss.detach()
    return step, batch


def reinforcement_learning(batch: int, scale: int) -> Work:
    """Q learning on frames: the host plays a step of each of `batch` games, and learns from the same number of remembered ones."""
    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(),
                             nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)).to(DEVICE)
    online, target = network(), network()
    optimizer = torch.optim.RMSprop(online.parameters(), 1e-4)
    memory: collections.deque = collections.deque(maxlen=32 * batch // scale)
    generator = random.Random(0)
    frames = torch.randint(0, 256, (batch, 4, 84, 84), dtype=torch.uint8)

    def learn() -> torch.Tensor:
        nonlocal frames
        with torch.no_grad():
            actions = online(there(frames).float() / 255).argmax(1).cpu()
        after = torch.roll(frames, 1, 1)
        after[:, 0] = torch.randint(0, 256, (batch, 84, 84), dtype=torch.uint8)
        memory.extend(zip(frames, actions, torch.rand(batch), after))
        frames = after
        before, done, reward, following = (there(torch.stack(column)) for column in zip(*generator.choices(memory, k=batch)))
        with torch.no_grad():
            wanted = reward + 0.99 * target(following.float() / 255).max(1).values
        return F.smooth_l1_loss(online(before.float() / 255).gather(1, done[:, None]).squeeze(1), wanted)
    return trained(online, optimizer, learn), batch


# By name: the unit, and the batch of either size.
WORKLOADS: dict[str, tuple[Callable[[int, int], Work], str, dict[str, int]]] = {
    "image_classification": (image_classification, "images", {"small": 16, "large": 128}),
    "object_detection": (object_detection, "images", {"small": 1, "large": 8}),
    "translation_transformer": (translation_transformer, "tokens", {"small": 16, "large": 256}),
    "translation_lstm": (translation_lstm, "tokens", {"small": 32, "large": 512}),
    "speech": (speech, "sounds", {"small": 4, "large": 32}),
    "gan": (gan, "images", {"small": 64, "large": 1024}),
    "reinforcement_learning": (reinforcement_learning, "games' steps", {"small": 32, "large": 512}),
}


def losses(workload: str, size: str, iterations: int, scale: int = 1) -> Iterator[torch.Tensor]:
    """`scale`: the reduction factor, for a test; the batch is then two."""
    torch.manual_seed(0)
    make, _, batches = WORKLOADS[workload]
    step, units = make(batches[size] if scale == 1 else 2, scale)
    tell = getattr(ctypes.CDLL(None), "inject_units", None)
    if tell is not None:
        tell.argtypes, tell.restype = [ctypes.c_double], ctypes.c_int
    for _ in range(iterations):
        if tell is not None:
            tell(units)
        yield step()


def main() -> None:
    workload, size, iterations = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for loss in losses(workload, size, iterations):
        last = loss
    print(f"{workload}, {size}: loss {last.item():.4g}")


if __name__ == "__main__":
    main()
