# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Kernel time as nested boxes: by module, and by Python stack."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Container, Iterable, Iterator, Sequence

from libinject.page.parts import Icicle
from libinject.page.values import LONGEST, clean
from libinject.result import Row
from libinject.stacks import PHASES, UNATTRIBUTED, Stack

# The colours of the plot of phases when it has three.
COLOURS = dict(zip(PHASES, ("compute", "launch", "sync", "copy", "input", "rest")))
MOST_BOXES = 3000  # on the page, before the rest is summed up
MOST_LEVELS = 160  # libinject reads 128 frames of a stack
_MOST_HELD = 200_000  # boxes while stacks are added up
_MOST_TEXT = 2 << 20  # characters of all names on the page
_LONGEST_LABEL = 160
_NO_STACK = "[none]"
_DEEPER = "(more frames)"
_ALL = "All kernels"
_LAST = len(PHASES) - 1


class Box:
    """`more`: how many are inside that have no box of their own."""

    __slots__ = ("inside", "label", "more", "text", "times")

    def __init__(self, text: str, label: str = ""):
        self.text, self.label = text, label
        self.times = [0] * len(PHASES)
        self.inside: dict[str, Box] = {}
        self.more = 0

    @property
    def time(self) -> int:
        return sum(self.times)


def _frame_label(text: str) -> str:
    """`file.py:72 Block.forward` from `Block.forward (/path/to/file.py:72)`; other text stays as it is."""
    function, _, place = text.rpartition(" (")
    file, _, line = place.removesuffix(")").rpartition(":")
    return f"{file.rpartition('/')[2]}:{line} {function}" if function and file and place.endswith(")") and line.isdigit() else text


def stack_boxes(stacks: Iterable[Stack], most: int = _MOST_HELD) -> Box:
    """All phases in one tree: the same frames are one box. Kernels without frames are in a box of their own, as in the tables. After `most`
    boxes, time that would need another one stays in its parent."""
    root = Box(_ALL, _ALL)
    for phase, names, time in stacks:
        if len(names) == 1:
            names = [UNATTRIBUTED if phase == _LAST else _NO_STACK, *names]
        elif len(names) > MOST_LEVELS:
            names = [*names[: MOST_LEVELS - 2], _DEEPER, names[-1]]
        box = root
        box.times[phase] += time
        last = len(names) - 1
        for place, name in enumerate(names):
            inner = box.inside.get(name)
            if inner is None:
                if not most:
                    box.more += 1
                    break
                most -= 1
                # A kernel's label is made when it is drawn.
                inner = box.inside[name] = Box(name, "" if place == last else _frame_label(name))
            inner.times[phase] += time
            box = inner
    return root


def _whole(row: Row, column: str) -> int:
    """0 if the value is missing or negative."""
    value = row.get(column)
    return max(0, int(value)) if isinstance(value, (int, float)) else 0


def _module_times(row: Row) -> list[int]:
    """The total time by phase; the phase of the rest is unknown."""
    total = _whole(row, "Total Time (ns)")
    if row["Module"] == UNATTRIBUTED:
        return [*[0] * _LAST, total]
    times = [_whole(row, f"{phase.capitalize()} (ns)") for phase in PHASES[:_LAST]]
    return [*times, max(0, total - sum(times))]


def _nearest(path: str, paths: Container[str]) -> str:
    """The parent of a module that several others call: the nearest one in its path that has a row."""
    while "." in path:
        path = path.rpartition(".")[0]
        if path in paths:
            return path
    return ""


def _in_order(rows: Sequence[Row]) -> Iterator[tuple[Row, str, int]]:
    """Each module after the one that calls it, with that one's path and its own level. Modules that call each other in a cycle, which only
    a damaged table has, are omitted."""
    paths = {str(row["Module"]) for row in rows}
    inside: dict[str, list[Row]] = collections.defaultdict(list)
    for row in rows:
        parent = str(row.get("Parent") or "") or _nearest(str(row["Module"]), paths)
        inside[parent if parent in paths else ""].append(row)
    waiting = [(row, "", 1) for row in reversed(inside.pop("", []))]
    while waiting:
        row, parent, level = waiting.pop()
        yield row, parent, level
        path = str(row["Module"])
        waiting += [(inner, path, level + 1) for inner in reversed(inside.pop(path, []))]


def module_boxes(rows: Iterable[Row]) -> Box:
    """Below MOST_LEVELS, time belongs to the last level. A box never has less time than its contents."""
    by_path = {str(row["Module"]): row for row in rows if row.get("Module")}
    root = Box(_ALL, _ALL)
    boxes: dict[str, Box] = {"": root}
    found: list[tuple[Box, Box, list[int]]] = []
    for row, parent, level in _in_order(list(by_path.values())):
        if level > MOST_LEVELS or parent not in boxes:
            continue
        path, kind = str(row["Module"]), str(row.get("Class") or "")
        name = path.removeprefix(f"{parent}.") if parent else path
        box = Box(f"{path} ({kind})" if kind else path, f"{name} {kind}" if kind and kind != name else name)
        boxes[path] = boxes[parent].inside[path] = box
        found.append((box, boxes[parent], _module_times(row)))
    # From the innermost outwards, so that a box has at least the time of its contents.
    for box, around, times in reversed(found):
        box.times = [max(own, inner) for own, inner in zip(times, box.times)]
        around.times = [whole + part for whole, part in zip(around.times, box.times)]
    return root


def icicle(root: Box, id_: str, title: str, file: str, most: int = MOST_BOXES) -> Icicle | None:
    """The largest boxes, each with its parents; what is left in a box is combined into one. None if there is no time."""
    if not root.inside or not root.time:
        return None
    numbers: dict[tuple[str, str], int] = {}
    boxes: list[list[int]] = []
    rests: dict[int, list[int]] = {}

    def leave_out(around: int, count: int, times: Iterable[int]) -> None:
        rest = rests.setdefault(around, [0] * (1 + len(PHASES)))
        rests[around] = [whole + part for whole, part in zip(rest, (count, *times))]

    # A box is never larger than its parent, so in order of size each follows its parent.
    order = 0
    waiting = [(-root.time, order, -1, root)]
    while waiting and len(boxes) < most:
        _, _, around, box = heapq.heappop(waiting)
        at = len(boxes)
        boxes.append([around, numbers.setdefault((box.text, box.label), len(numbers)), 1, *box.times])
        for inner in box.inside.values():
            if time := inner.time:
                order += 1
                heapq.heappush(waiting, (-time, order, at, inner))
        if box.more:
            own = [whole - sum(inner.times[phase] for inner in box.inside.values()) for phase, whole in enumerate(box.times)]
            if any(own):
                leave_out(at, box.more, own)
    for _, _, around, box in waiting:
        leave_out(around, 1, box.times)
    boxes += [[around, -1, *rest] for around, rest in rests.items()]
    longest = LONGEST if sum(min(len(text), LONGEST) for text, _ in numbers) <= _MOST_TEXT else max(_LONGEST_LABEL, _MOST_TEXT // len(numbers))
    names = [[clean(text, longest), clean(label, _LONGEST_LABEL)] for text, label in numbers]
    return Icicle(id_, title, file, [{"name": phase, "colour": colour} for phase, colour in COLOURS.items()], names, boxes)
