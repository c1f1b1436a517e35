# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Library calls by shape: FLOPs that follow from their sizes, their intensity, the link used by copies."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from libinject.check.folder import Folder, Number, Place, Table, is_others
from libinject.check.rows import SHAPES
from libinject.check.rules import ERROR, rule

_GATES = {"RNN": 1, "RNN ReLU": 1, "RNN tanh": 1, "GRU": 3, "LSTM": 4}
# Multiply-adds of the backward pass per multiply-add of the forward pass.
_ATTENTION = {"forward": 1.0, "backward": 2.5}


def _gemm(table: Table) -> Iterator[tuple[int, Number]]:
    types = table.cells("Compute Type") if table.has("Compute Type") else [""] * len(table)
    kinds = table.cells("Type A") if table.has("Type A") else [""] * len(table)
    for index, sizes in table.each("M", "N", "K", "Batch"):
        if "complex" not in types[index] + kinds[index]:
            yield index, 2 * math.prod(sizes)


def _causal_pairs(queries: Number, keys: Number) -> tuple[Number, ...]:
    """Pairs if the mask's diagonal begins in the first row and column, and if it ends in the last row and column."""
    steps = min(queries, keys)
    staircase = steps * (steps + 1) // 2
    rest = queries * keys - keys * keys if queries > keys else queries * (keys - queries)
    return (staircase + (rest if queries > keys else 0), staircase + (rest if queries < keys else 0))


def _attention(table: Table) -> Iterator[tuple[int, Number]]:
    if not table.has("Direction", "Causal", "Varying Lengths"):
        return
    for index, (batch, heads, queries, keys, size, other) in table.each("B", "H", "S Query", "S Key", "D", "D Value"):
        factor = _ATTENTION.get(table.cells("Direction")[index])
        if factor is not None and size == other and table.cells("Varying Lengths")[index] == "0":
            told = table.numbers("FLOPs")[index] if table.has("FLOPs") else None
            # With different numbers of queries and keys, the table does not show which queries see which keys (docs/shapes.md).
            pairs = _causal_pairs(queries, keys) if table.cells("Causal")[index] == "1" else (queries * keys,)
            sums = [int(4 * factor) * batch * heads * count * size for count in pairs]
            yield index, told if told in sums else sums[0]


def _rnn(table: Table) -> Iterator[tuple[int, Number]]:
    if not table.has("Cell"):
        return
    for index, (layers, directions, inputs, hidden, projection, steps) in table.each("Layers", "Directions", "Input Size", "Hidden Size",
                                                                                    "Projection Size", "Steps"):
        gates = _GATES.get(table.cells("Cell")[index])
        if gates is not None and projection == 0:
            widths = inputs + hidden + (layers - 1) * (directions * hidden + hidden)
            yield index, 2 * gates * hidden * widths * steps * directions


def _spatial(text: str) -> list[int]:
    return [int(part) for part in text.split("x") if part.isdigit()]


def _conv(table: Table) -> Iterator[tuple[int, Number]]:
    if not table.has("Stride", "Padding", "Dilation", "D", "H", "W", "T", "R", "S"):
        return
    for index, (batch, channels, filters, groups) in table.each("N", "C", "K", "Groups"):
        sizes = [table.numbers(column)[index] for column in ("D", "H", "W") if table.cells(column)[index]]
        window = [table.numbers(column)[index] for column in ("T", "R", "S") if table.cells(column)[index]]
        strides, padding, dilation = (_spatial(table.cells(column)[index]) for column in ("Stride", "Padding", "Dilation"))
        known = len({len(part) for part in (sizes, window, strides, padding, dilation)}) == 1 and None not in (*sizes, *window)
        if known and groups and all(strides):
            results = [(size + 2 * pad - apart * (width - 1) - 1) // stride + 1
                       for size, width, stride, pad, apart in zip(sizes, window, strides, padding, dilation)]
            yield index, 2 * batch * filters * math.prod(results) * (channels // groups) * math.prod(window)


@rule("flops", ERROR, "The FLOPs of a product, a convolution, attention or a recurrent layer follow from its sizes.")
def flops(folder: Folder) -> Iterator[Place]:
    for name, expected in (("gemm_sum", _gemm), ("conv_sum", _conv), ("attention_sum", _attention), ("rnn_sum", _rnn)):
        if (table := folder.table(name, "FLOPs")) is not None:
            for index, number in expected(table):
                told = table.numbers("FLOPs")[index]
                if told is not None and abs(told - number) > 1:
                    yield table.place(index, "FLOPs", f"{told}, the row's sizes come to {number:.0f}")


@rule("intensity", ERROR, "FLOP/Byte is a call's FLOPs divided by its bytes.")
def intensity(folder: Folder) -> Iterator[Place]:
    for name in SHAPES:
        if (table := folder.table(name)) is not None:
            for index, (work, size, value) in table.each("FLOPs", "Bytes", "FLOP/Byte"):
                if size and abs(value - work / size) > table.half(index, "FLOP/Byte") * 1.01 + 1e-6 * value:
                    yield table.place(index, "FLOP/Byte", f"{value} is not {work} by {size} bytes")


@rule("one-peak", ERROR, "All rates on one GPU that are compared with the peak of one arithmetic are compared with the same value.")
def one_peak(folder: Folder) -> Iterator[Place]:
    if len(folder.run["devices"]) != 1:
        return
    bounds: dict[str, tuple[float, float]] = {}
    for name in SHAPES:
        if (table := folder.table(name, "Peak")) is None:
            continue
        for index, (rate, share) in table.each("TFLOP/s", "Peak (%)"):
            steps = table.half(index, "TFLOP/s") * 1.01, table.half(index, "Peak (%)") * 1.01
            low = 100 * (rate - steps[0]) / (share + steps[1])
            high = 100 * (rate + steps[0]) / (share - steps[1]) if share > steps[1] else math.inf
            least, most = bounds.get(table.cells("Peak")[index], (0.0, math.inf))
            if low > most or high < least:
                yield table.place(index, "Peak (%)",
                                  f"{share} of {rate} TFLOP/s, whose peak is {least:.1f} to {most:.1f} by the rows before")
            else:
                bounds[table.cells("Peak")[index]] = max(low, least), min(high, most)


# Transfers per second and lane, and the share of payload in the encoding (docs/copies.md).
_PCIE = {1: (2.5e9, 0.8), 2: (5e9, 0.8), 3: (8e9, 128 / 130), 4: (16e9, 128 / 130), 5: (32e9, 128 / 130), 6: (64e9, 236 / 256)}


@rule("link", ERROR, "The link of copies is PCIe as run.json has it, or half of the memory's bandwidth within a device.")
def link(folder: Folder) -> Iterator[Place]:
    table = folder.table("copy_sum", "Device", "Direction")
    if table is None:
        return
    for index, (value,) in table.each("Link (GB/s)"):
        device, direction = folder.device(table.cells("Device")[index]), table.cells("Direction")[index]
        generation, width, clock, bits = (device.get(key) for key in ("pcie_generation", "pcie_width", "memory_clock_khz", "memory_bus_bits"))
        if direction in ("Host-to-Device", "Device-to-Host") and generation in _PCIE and width is not None:
            expected = _PCIE[generation][0] * width * _PCIE[generation][1] / 8 / 1e9
        elif direction == "Device-to-Device" and clock is not None and bits is not None:
            expected = 2e3 * clock * bits / 8 / 2 / 1e9
        else:
            continue
        if abs(value - expected) > table.half(index, "Link (GB/s)") * 1.01 + 1e-6 * value:
            yield table.place(index, "Link (GB/s)", f"{value}, its device's way has {expected:.3f}")


_COMMUNICATOR = re.compile(r"(0x[0-9a-f]{16})?")


@rule("communicator", ERROR, "A communicator is 64 bits in hexadecimal, or not known.")
def communicator(folder: Folder) -> Iterator[Place]:
    if (table := folder.table("nccl_sum", "Communicator")) is not None:
        for index, cell in enumerate(table.cells("Communicator")):
            if not _COMMUNICATOR.fullmatch(cell):
                yield table.place(index, "Communicator", f"'{cell[:40]}' is not 0x and 16 digits")


_WORDS = {
    "Complete": {"0", "1", ""},
    "Label": {"iteration", "validation", "checkpoint", "outside"},
    "Phase": {"forward", "backward", "optimizer", "other"},
    "Reliable": {"yes", "no"},
    "Bound": {"memory", "compute", ""},
    "Tensor Cores": {"yes", "no", "unknown", ""},
    "Source": {"library call", "kernel name"},
    "Grouped": {"yes", "no", "group", ""},
    "Derived": {"call", "product", ""},
}
_WORDS_OF = {"attention_sum": {"Source"}, "nccl_sum": {"Grouped"}}


@rule("word", ERROR, "A column with a fixed set of words has one of them.")
def word(folder: Folder) -> Iterator[Place]:
    for table in folder.tables():
        for column, words in _WORDS.items():
            if table.has(column) and (column not in ("Source", "Grouped") or column in _WORDS_OF.get(table.name, ())):
                windows = table.cells("Window") if table.has("Window") else [""] * len(table)
                for index, cell in enumerate(table.cells(column)):
                    # A row that combines the calls without one of their own has no such words.
                    if cell not in words and not cell.startswith("[") and not is_others(windows[index]):
                        yield table.place(index, column, f"'{cell[:40]}' is none of {', '.join(sorted(words - {''}))}")
