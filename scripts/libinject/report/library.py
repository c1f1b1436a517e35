# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Library calls: by name, by shape on a roofline, and the rate of matrix products over their size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from libinject.page.parts import Plot, Section, numbers, table
from libinject.page.values import clean, described, objects, whole
from libinject.result import Result, Row

_MOST_POINTS = 1000


def _gemm(row: Row) -> str:
    text = described("{API} {M}×{N}×{K} ", row) + f"{row.get('Op A') or ''}{row.get('Op B') or ''}"
    return text + (f" ×{row['Batch']}" if row.get("Batch") not in (None, 1) else "") + f", {row.get('Type A') or ''}"


def _conv(row: Row) -> str:
    size, taps = ("×".join(str(row[name]) for name in names if row.get(name) not in (None, "")) for names in (("N", "C", "D", "H", "W"), ("T", "R", "S")))
    return described("{Direction} {size}, {K} filters of {taps}, stride {Stride}, {Type X}", {**row, "size": size, "taps": taps})


def _attention(row: Row) -> str:
    return described("{API} {Direction} B {B}, H {H}, S {S Query}×{S Key}, D {D}, {Type}", row)


def _rnn(row: Row) -> str:
    return described("{Cell} {Direction} {Layers} layers, {Input Size}→{Hidden Size}, T {T}, B {B}, {Type}", row)


_SHAPED: tuple[tuple[str, str, Callable[[Row], str]], ...] = (
    ("gemm_sum", "matrix products", _gemm), ("conv_sum", "convolutions", _conv), ("attention_sum", "attention", _attention),
    ("rnn_sum", "recurrent layers", _rnn))
# What a reader looks for first, after the shape.
_RATES = ("Calls", "GPU Time (%)", "GPU Time (ns)", "TFLOP/s", "Peak (%)", "Bound", "Tensor Cores")
_NEEDED = ("Calls", "GPU Time (ns)", "FLOPs", "TFLOP/s", "Peak", "Peak (%)", "FLOP/Byte", "Bound")


def _rows(result: Result, name: str) -> list[Row]:
    """Calls with a rate, without derived rows."""
    return [row for row in result.rows(name, *_NEEDED) if numbers([row], "TFLOP/s") and row["TFLOP/s"] > 0 and not row.get("Derived")]


def peaks(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """By the names in the column Peak: TFLOP/s, and how far that may be off. The rounded rate and percentage of a row give an interval for
    the peak; it is in the intersection of all rows' intervals, unless devices of several kinds share the name: then the row closest to its
    peak gives the best value."""
    found: dict[str, tuple[float, float]] = {}
    best: dict[str, tuple[float, float]] = {}
    for row in sorted(rows, key=lambda row: -(row["Peak (%)"] or 0)):
        percent, rate, name = row["Peak (%)"], row["TFLOP/s"], str(row["Peak"] or "")
        if not name or not percent or percent <= 0.1:
            continue
        low, high = (rate - 0.0005) / (percent + 0.05) * 100, (rate + 0.0005) / (percent - 0.05) * 100
        best.setdefault(name, (low, high))
        before = found.setdefault(name, (low, high))
        found[name] = (max(before[0], low), min(before[1], high))
    sure = {name: (low, high) if low <= high else best[name] for name, (low, high) in found.items()}
    return {name: ((low + high) / 2, (high - low) / 2) for name, (low, high) in sure.items()}


def bandwidth(result: Result) -> float | None:
    """Maximum bytes per second, as in docs/peaks.md; None if the devices differ."""
    rates = set()
    for device in objects(result.run["devices"]):
        clock, bits = whole(device.get("memory_clock_khz")), whole(device.get("memory_bus_bits"))
        rates.add(2 * clock * 1000 * bits / 8 if clock and bits and clock > 0 and bits > 0 else None)
    return rates.pop() if len(rates) == 1 else None


def _roofs(peak: dict[str, tuple[float, float]], bytes_per_second: float | None, points: list[float]) -> list[dict[str, Any]]:
    left, right = min(points) / 2, max(points) * 5  # space for the names of the roofs
    roofs = []
    for name, (rate, _) in sorted(peak.items(), key=lambda item: -item[1][0]):
        ridge = rate * 1e12 / bytes_per_second if bytes_per_second else 0.0
        start = max(left, ridge)
        roofs.append({"name": f"peak {clean(name)}: {rate:,.4g} TFLOP/s", "x": [start, max(right, start * 2)], "y": [rate, rate], "roof": True})
    if bytes_per_second:
        most = max((rate for rate, _ in peak.values()), default=None)
        end = most * 1e12 / bytes_per_second if most else right
        roofs.append({"name": f"memory: {bytes_per_second / 1e12:.3g} TB/s", "x": [left, max(end, left)], "roof": True, "dash": True,
                      "y": [x * bytes_per_second / 1e12 for x in (left, max(end, left))]})
    return roofs


def roofline(result: Result) -> Section:
    part = Section("roofline", "Library calls and their roofline", "How fast the calls of cuBLAS, cuBLASLt and cuDNN ran for the bytes "
                                                                   "that they must move at least: under the slope they are limited by "
                                                                   "memory bandwidth, under a flat roof by arithmetic.")
    series, everything = [], []
    for name, label, describe in _SHAPED:
        rows = [row for row in _rows(result, name) if numbers([row], "FLOP/Byte") and row["FLOP/Byte"] > 0]
        everything += rows
        shown = sorted(rows, key=lambda row: -(row["GPU Time (ns)"] or 0))[:_MOST_POINTS]
        if shown:
            series.append({"name": label, "x": [row["FLOP/Byte"] for row in shown], "y": [row["TFLOP/s"] for row in shown],
                           "sizes": [row["GPU Time (ns)"] for row in shown], "labels": [clean(describe(row)) for row in shown],
                           "notes": [described("{Peak (%)}% of the peak {Peak}, bound by {Bound}", row) for row in shown]})
    if series:
        found = peaks(everything)
        roofs = _roofs(found, bandwidth(result), [row["FLOP/Byte"] for row in everything])
        part.add(Plot("roofline", "Roofline", "points", {"title": "FLOP/Byte", "log": True}, series + roofs,
                      {"title": "TFLOP/s", "log": True}, note="The size of a point shows the GPU time of its calls."))
        if found:
            part.notes.append("Peaks are derived from the tables' TFLOP/s and Peak (%), to the precision of their rounding: " + "; ".join(
                f"{clean(name)} {rate:,.4g} TFLOP/s ± {100 * error / rate:.1g} %" for name, (rate, error) in found.items()) + ".")
    part.add(table(result, "library_sum", "Library calls", on=("Call", "GPU Time (%)", "GPU Time (ns)", "Kernels", "Calls", "Host Time (ns)", "Host Avg (ns)", "Failed Calls",
                                                             "GPU Time incl. Nested (ns)", "Library")))
    for name, title, shape in (
            ("conv_sum", "Convolutions", ("Direction", "N", "C", "D", "H", "W", "K", "T", "R", "S", "Stride", "Type X")),
            ("attention_sum", "Attention", ("API", "Direction", "B", "H", "S Query", "S Key", "D", "Type")),
            ("rnn_sum", "Recurrent layers", ("Direction", "Cell", "Layers", "Input Size", "Hidden Size", "T", "B", "Type", "Algorithm")),
            ("norm_sum", "Normalizations", ("API", "Direction", "Mode", "Size", "Type"))):
        part.add(table(result, name, title, on=(*shape, *_RATES, "Hint")))
    return part


def gemm(result: Result) -> Section:
    part = Section("gemm", "Matrix products by shape", "The rate of each matrix product over its size, as passed to cuBLAS "
                                                       "(column-major), with hints where a product could be faster.")
    by_peak: dict[str, list[Row]] = {}
    for row in sorted(_rows(result, "gemm_sum"), key=lambda row: -(row["GPU Time (ns)"] or 0))[:_MOST_POINTS]:
        if numbers([row], "FLOPs") and row["FLOPs"] > 0:
            by_peak.setdefault(str(row["Peak"] or "arithmetic not known"), []).append(row)
    series = [{"name": clean(name), "x": [row["FLOPs"] for row in rows], "y": [row["TFLOP/s"] for row in rows],
               "sizes": [row["GPU Time (ns)"] for row in rows], "labels": [clean(_gemm(row)) for row in rows],
               "notes": [described("{Calls} calls, tensor cores: ", row) + str(row.get("Tensor Cores") or "unknown")
                         + (f", {row['Peak (%)']}% of the peak" if row["Peak (%)"] is not None else "") for row in rows]}
              for name, rows in by_peak.items()]
    if series:
        part.add(Plot("gemm", "Rate over size", "points", {"title": "operations of a call (2·M·N·K·batch)", "unit": "si", "log": True}, series,
                      {"title": "TFLOP/s", "log": True}, note="The size of a point shows the GPU time of its calls."))
    return part.add(table(result, "gemm_sum", "Matrix products", on=("API", "Derived", "M", "N", "K", "Op A", "Op B", "Type A", "Batch", *_RATES, "Hint")))
