# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What to do first: each remedy of a diagnosis with its maximum gain, and the places that the tables name for it. A place is only shown if
a table has it; unknown values are omitted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from libinject.console import duration
from libinject.page.parts import numbers
from libinject.page.values import LONGEST, clean, described, object_of, objects, share, text_of, whole
from libinject.report.lines import is_line, path_of, place_of
from libinject.result import Result, Row

MOST_PLACES = 3
_WORTH_DOING = 1.0  # percent of the time
_WORTH_NAMING = 0.05  # of the time that a remedy addresses
_LONGEST_PLACE = 200
# Idle time that a remedy addresses (docs/diagnosis.md): columns, with their names in a line's note. Host Compute includes Own Work.
_IDLE = {
    "launch-bound": {"Idle: Launch Call (ns)": "launch call", "Idle: Other Call (ns)": "other call", "Idle: Host Compute (ns)": "host compute"},
    "synchronization-bound": {"Idle: Synchronization (ns)": "synchronization"},
    "input-bound": {"Idle: Host Wait (ns)": "host wait", "Own Work (ns)": "own work"},
    "copy-bound": {"Idle: Copy Call (ns)": "copy call"},
}
_LIMITS = {"GPU-bound (compute)": "Compute-bound (ns)", "GPU-bound (memory)": "Memory-bound (ns)", "GPU-bound (latency)": "Latency-bound (ns)"}
# Kernels that move data, unless a measurement shows otherwise (docs/diagnosis.md).
_MOVING = ("pooling", "normalization", "softmax", "loss", "elementwise", "reduction", "embedding", "optimizer", "layout change", "copy")


@dataclasses.dataclass
class Gains:
    """Maximum gains of the remedies of one entry of `diagnosis`, in nanoseconds of `of`: without the profiler's overhead, if run.json
    states it. None if unknown."""

    of: int
    by_kind: dict[str, float | None]

    def percent(self, kind: str) -> float | None:
        gain = self.by_kind.get(kind)
        return None if gain is None else min(100.0, share(gain, self.of))


def gains(entry: dict) -> Gains:
    """As in docs/diagnosis.md under `Potential Gain (%)` and `Figures without the profiler`."""
    span = whole(entry.get("device_time_ns")) or 0
    judged = whole(entry.get("judged_time_ns")) or span
    times = {text_of(part.get("kind")): time for part in objects(entry.get("evidence"))
             if (time := whole(part.get("time_ns"))) is not None and time >= 0}
    idle = {cause: time for cause, value in object_of(entry.get("idle_ns")).items() if (time := whole(value)) is not None and time >= 0}
    found: dict[str, float | None] = dict.fromkeys(times)
    taken = span - judged
    host = times.get("launch-bound", 0) - idle.get("Queue", 0)
    elsewhere = sum(idle.values()) - host
    # The profiler's overhead is subtracted from the host's work at launches, and only the rest of it from other idle time.
    known = taken == 0 or (taken > 0 and host >= 0 and 0 <= elsewhere and taken <= host + elsewhere)
    if known:
        from_host = min(taken, max(host, 0))
        left = 1 - (taken - from_host) / elsewhere if elsewhere > 0 else 1.0
        for kind, time in times.items():
            if kind == "launch-bound":
                found[kind] = time - from_host - (1 - left) * idle.get("Queue", 0)
            elif kind in ("synchronization-bound", "input-bound"):
                found[kind] = time * left
            elif kind in ("copy-bound", "communication-bound"):
                cause = idle.get("Copy Call" if kind == "copy-bound" else "Collective", 0)
                found[kind] = time - (1 - left) * cause + (0 if kind == "copy-bound" else whole(entry.get("taken_by_collectives_ns")) or 0)
    # What run.json itself states.
    verdict, gain = text_of(entry.get("verdict")), whole(entry.get("potential_gain_ns"))
    if verdict in times and gain is not None and gain >= 0:
        found[verdict] = gain
    return Gains(judged, found)


def _cells(row: Row, *columns: str) -> float:
    return sum(float(value) for column in columns for value in numbers([row], column))


def _place(name: str, note: str, path: str = "") -> dict[str, str]:
    """`path` is what an editor opens: complete, or empty."""
    return {"name": clean(name, _LONGEST_PLACE), "note": clean(note), "path": path if path.isprintable() and len(path) <= LONGEST else ""}


def _group(title: str, section: str, places: list[dict[str, str]]) -> list[dict[str, Any]]:
    """`section`: where the page has all of them."""
    return [{"title": title, "section": section, "places": places[:MOST_PLACES]}] if places else []


def _idle_of(row: Row, column: str) -> float:
    """Without the host's own work; 0 if the table does not separate it."""
    if column != "Idle: Host Compute (ns)":
        return _cells(row, column)
    own = numbers([row], "Own Work (ns)")
    return max(0.0, _cells(row, column) - own[0]) if own else 0.0


def _waiting_lines(result: Result, kind: str, total: float) -> list[dict[str, Any]]:
    causes = _IDLE.get(kind, {})
    found: list[tuple[float, Row, list[str]]] = []
    for row in result.rows("gap_line_sum", "File", "Line", "Function", "Idle Time (ns)") if causes else ():
        if not is_line(row):
            continue
        parts = {cause: _idle_of(row, column) for column, cause in causes.items()}
        time = sum(parts.values())
        if time > 0 and time >= _WORTH_NAMING * total:
            found.append((time, row, [f"{cause} {duration(part)}" for cause, part in sorted(parts.items(), key=lambda part: -part[1]) if part > 0]))
    found.sort(key=lambda each: -each[0])
    places = [_place(place_of(row), f"the GPU waited {duration(time)}: {', '.join(causes)}" if len(causes) > 1 else f"the GPU waited {duration(time)}: {causes[0].rpartition(' ')[0]}",
                     path_of(row)) for time, row, causes in found]
    return _group("Lines that the GPU waited for", "idle", places)


def _largest(rows: Iterable[Row], column: str, total: float | None = None) -> list[Row]:
    """The rows with a significant value, by time."""
    rows = list(rows)
    least = _WORTH_NAMING * (sum(_cells(row, column) for row in rows) if total is None else total)
    return sorted((row for row in rows if _cells(row, column) > 0 and _cells(row, column) >= least), key=lambda row: -_cells(row, column))


def _copying(result: Result, device: str) -> list[dict[str, Any]]:
    lines = [row for row in result.rows("line_sum", "File", "Line", "Function") if row.get("In Library") == 0 and is_line(row)]
    columns = "User Code Copy Time (ns)", "User Code Copies"
    groups = _group("Lines that copy", "code", [
        _place(place_of(row), f"{_cells(row, columns[1]):,.0f} copies and memsets, {duration(_cells(row, columns[0]))}", path_of(row))
        for row in _largest(lines, columns[0])])
    copies = [row for row in result.rows("copy_sum", "Direction", "Source", "Target", "Count", "Total Time (ns)")
              if text_of(row.get("Device")) == device and _cells(row, "Overlap with Kernels (%)") < 100]
    return groups + _group("Copies", "copies", [
        _place(described("{Direction}, {Source} → {Target}", row), described("{Count} copies, ", row, grouped=True) + duration(_cells(row, "Total Time (ns)"))
               + (f": {hint}" if (hint := text_of(row.get("Hint"))) else "")) for row in _largest(copies, "Total Time (ns)")])


def _launching(result: Result, kind: str) -> list[dict[str, Any]]:
    """What launches the kernels; if the tables have the kernels' limits, only what launches kernels with that limit. The limit is of the
    total time: for a module or line in which nothing else is called, it is that of its own time."""
    limit = _LIMITS.get(kind, "")
    total = sum(_cells(row, "Self Time (ns)") for row in result.rows("op_sum", "Self Time (ns)"))
    modules = result.rows("module_sum", "Module", "Self Time (ns)")
    total = total or sum(_cells(row, "Self Time (ns)") for row in modules)
    named = [row for row in modules if not str(row["Module"] or "[").startswith("[")]
    lines = [row for row in result.rows("line_sum", "File", "Line", "Function", "User Code Time (ns)") if row.get("In Library") == 0 and is_line(row)]

    def most(rows: list[Row], column: str) -> list[Row]:
        if limit and any(limit in row for row in rows):
            rows = [row for row in rows if _cells(row, limit) > 0 and min(_cells(row, limit), _cells(row, column)) >= _WORTH_NAMING * total]
        return _largest(rows, column, total)

    def note(row: Row, column: str) -> str:
        of = f"; {share(_cells(row, limit), _cells(row, 'Total Time (ns)'))}% of what runs in it is {limit.partition(' ')[0].lower()}" if limit and numbers([row], limit) else ""
        return f"{share(_cells(row, column), total)}% of the kernels' time, {duration(_cells(row, column))}{of}"

    return [*_group("Modules that launch the most", "code", [_place(str(row["Module"]), note(row, "Self Time (ns)")) for row in most(named, "Self Time (ns)")]),
            *_group("Lines that launch the most", "code", [_place(place_of(row), note(row, "User Code Time (ns)"), path_of(row)) for row in most(lines, "User Code Time (ns)")])]


def _families(result: Result) -> list[dict[str, Any]]:
    rows = [row for row in result.rows("family_sum", "Family", "Time (%)", "Total Time (ns)") if row["Family"] in _MOVING and _cells(row, "Time (%)") >= 100 * _WORTH_NAMING]
    return _group("Kernels of kinds that move data", "kernels", [
        _place(str(row["Family"]), f"{_cells(row, 'Time (%)')}% of the kernels' time, {duration(_cells(row, 'Total Time (ns)'))}") for row in _largest(rows, "Total Time (ns)", 0)])


# Tables of library calls with hints: title, section, and the values shown for a row.
_HINTED = {
    "gemm_sum": ("Matrix products with a hint", "gemm", "{API} {M}×{N}×{K} {Type A}"),
    "conv_sum": ("Convolutions with a hint", "roofline", "{Direction}: N {N}, C {C}, W {W}, K {K}, S {S}, {Type X}"),
    "rnn_sum": ("Recurrent layers with a hint", "roofline", "{Cell} {Direction}: {Layers} layers of {Hidden Size}, B {B}, {Type}"),
}


def _hinted_calls(result: Result) -> list[dict[str, Any]]:
    """Library calls for which their table has a hint."""
    groups = []
    for name, (title, section, text) in _HINTED.items():
        rows = [row for row in result.rows(name, "GPU Time (ns)") if row.get("Hint")]
        groups += _group(title, section, [_place(described(text, row), f"{duration(_cells(row, 'GPU Time (ns)'))}: {row['Hint']}")
                                          for row in _largest(rows, "GPU Time (ns)", 0)])
    return groups


def _collectives(result: Result) -> list[dict[str, Any]]:
    rows = [row for row in result.rows("nccl_sum", "Operation", "Bytes", "Calls", "GPU Time (ns)") if row["Operation"] != "[unknown]"]
    return _group("Collectives", "collectives", [
        _place(described("{Operation} of {Bytes} bytes" if numbers([row], "Bytes") else "{Operation}", row, grouped=True), described("{Calls} calls, ", row, grouped=True) + duration(_cells(row, "GPU Time (ns)"))
               + (described(", {Overlap with Compute (%)}% of it beside other kernels", row) if numbers([row], "Overlap with Compute (%)") else ""))
        for row in _largest(rows, "GPU Time (ns)")])


def where(result: Result, kind: str, device: str) -> list[dict[str, Any]]:
    """Groups {title, section, places} for a remedy: lines and modules over all devices, since the tables do not divide them."""
    diagnosis = objects(result.run.get("diagnosis"))
    total = sum(time for entry in diagnosis for part in objects(entry.get("evidence")) if part.get("kind") == kind
                and (time := whole(part.get("time_ns"))) is not None and time > 0)
    groups = _waiting_lines(result, kind, total)
    if kind == "copy-bound":
        groups += _copying(result, device)
    elif kind == "communication-bound":
        groups += _collectives(result)
    elif kind.startswith("GPU-bound"):
        groups += _launching(result, kind)
        groups += _families(result) if kind == "GPU-bound (memory)" else _hinted_calls(result) if kind == "GPU-bound (compute)" else []
    return groups


def worth_doing(part: dict[str, Any]) -> bool:
    return bool(part["advice"]) and (part["gain"] is None or part["gain"] >= _WORTH_DOING)


def in_order(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remedies worth doing, the largest gain first; then the rest, with those without a known remedy last."""
    return sorted(parts, key=lambda part: (not worth_doing(part), not part["advice"], part["gain"] is None, -(part["gain"] or 0), -part["ns"]))
