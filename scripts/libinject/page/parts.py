# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The parts of a page: articles of sections with notes, plots, icicles, timelines, histograms and tables. All of it is plain data: numbers
in the tables' units (ns, MB), which plots.js and tables.js write with a unit."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from libinject.page.values import clean
from libinject.result import Cell, Result, Row, is_number_column

MOST_ROWS = 2000
# Shown shortened, with the full text on demand.
_NAMES = frozenset({"Name", "Kernel Name", "Kernel Names", "Call", "Operation", "Range", "NVTX Range", "Thread Name", "Anchor", "Place", "Module"})
_WITH_PREFIX = frozenset({"FLOPs", "Bytes"})
# Numbers that are not quantities: 1779, not 1,779.
_LABELS = frozenset({"Line", "PID", "TID"})
_MOST_DECIMALS = 3
# As in the tables: after a CSV reader, 0.000 and 0.0 are the same.
_DECIMALS = {"(%)": 1, "(MB)": 3, "(GB/s)": 3, "TFLOP/s": 3, "FLOP/Byte": 2, "Waves": 2}
# Rare columns, omitted if 0 in all rows.
_RARE = frozenset({"Failed Calls", "Captured Calls", "Replayed Calls", "Failed", "Failed Size (MB)", "Largest Failed (MB)", "Last Failed (MB)",
                   "Unattributed", "Clipped Ranges"})


@dataclasses.dataclass
class Table:
    """A column is {name, kind, digits, meaning, off}; kind: ns, number, si, name or text; a column that is `off` is only shown on request.
    A cell may be [value, text, mood]: sorted by the value, shown as the text, in the colour of the mood (good, bad or none)."""

    id: str
    title: str
    file: str
    columns: list[dict[str, Any]]
    rows: list[list[Cell]]
    of: int  # rows in the file
    note: str = ""
    first: int = 10  # rows shown before the others are requested


@dataclasses.dataclass
class Plot:
    """kind: `points` (x, y), `bars` (names, values), `columns` (values, colour, pattern: stacked, one for each tick of the x axis) or
    `heat` (x, y, and z in rows). Axes are {title, unit, log, zero, ticks, places}; a series is {name, …, notes}, with `panel`, the index of
    its axis, if there are several."""

    id: str
    title: str
    kind: str
    x: dict[str, Any]
    series: list[dict[str, Any]]
    y: dict[str, Any] = dataclasses.field(default_factory=dict)
    bands: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # from, to, label
    stacked: bool = False
    note: str = ""
    unit: str = ""  # of a heat map
    panels: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # for points: y axes, stacked over one x axis


@dataclasses.dataclass
class Icicle:
    """Nested boxes, the outermost on top, each as wide as its share of the time. A box is [index of its parent or -1, index of its name or
    -1, how many boxes it stands for, its time in each phase]: the first box contains all others, and each box precedes those inside it. A
    name is [text, label], with the label "" for a kernel, which icicle.js shortens. A box without a name stands for others within the same
    parent for which there was no room. A phase is {name, colour}."""

    id: str
    title: str
    file: str
    phases: list[dict[str, str]]
    names: list[list[str]]
    boxes: list[list[int]]
    note: str = ""


@dataclasses.dataclass
class Timeline:
    """A row is {name, lanes}; a lane has seven numbers for each event, sorted by start: start (ns, from the left edge), duration, index of
    its name, index of its kind, whether it belongs to the step itself, how many events it stands for, and their total duration. If it
    stands for several, name and kind are those of the longest. A kind is {name, colour}. The left edge is the step's start; `step` is the
    step's duration on the host, `duration` that of the whole timeline."""

    id: str
    title: str
    file: str
    duration: int
    step: int
    kinds: list[dict[str, str]]
    names: list[str]
    rows: list[dict[str, Any]]


@dataclasses.dataclass
class Histograms:
    """A kernel is {name, count, total, mean, median, min, max, first, bins}: `bins` has the number of durations in each bin, from bin
    `first` on; bin b is from 2^(b / per_octave) ns to 2^((b + 1) / per_octave). There are no bins if they are unknown."""

    id: str
    title: str
    file: str
    per_octave: int
    kernels: list[dict[str, Any]]


@dataclasses.dataclass
class Section:
    id: str
    title: str
    says: str  # what it shows, in a sentence
    notes: list[str] = dataclasses.field(default_factory=list)
    plots: list[Plot] = dataclasses.field(default_factory=list)
    icicles: list[Icicle] = dataclasses.field(default_factory=list)
    timelines: list[Timeline] = dataclasses.field(default_factory=list)
    histograms: list[Histograms] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    side_by_side: bool = False  # its plots, if there is room

    def add(self, *parts: Plot | Icicle | Timeline | Histograms | Table | None) -> Section:
        for part in parts:
            if isinstance(part, Plot):
                self.plots.append(part)
            elif isinstance(part, Icicle):
                self.icicles.append(part)
            elif isinstance(part, Timeline):
                self.timelines.append(part)
            elif isinstance(part, Histograms):
                self.histograms.append(part)
            elif part is not None:
                self.tables.append(part)
        return self

    @property
    def empty(self) -> bool:
        return not (self.plots or self.icicles or self.timelines or self.histograms or self.tables or self.notes)


@dataclasses.dataclass
class Article:
    """`headline`: the answer in one line, in the colour of `mood`; `facts` are (what, text)."""

    name: str
    facts: list[tuple[str, str]]
    sections: list[Section]
    headline: str = ""
    mood: str = ""
    alerts: list[str] = dataclasses.field(default_factory=list)


def as_data(part: Any) -> Any:
    """An article, section, table or plot as data, without copying its rows."""
    if dataclasses.is_dataclass(part):
        return {field.name: as_data(getattr(part, field.name)) for field in dataclasses.fields(part)}
    if isinstance(part, list) and part and dataclasses.is_dataclass(part[0]):
        return [as_data(item) for item in part]
    return part


def as_column(name: str, kind: str = "number", digits: int = 0, meaning: str = "", off: bool = False) -> dict[str, Any]:
    return {"name": name, "kind": kind, "digits": digits, "meaning": meaning, "off": off}


@functools.cache
def _meanings() -> dict[str, dict[str, str]]:
    """Meanings from docs/columns.md: {table: {column: meaning}}."""
    return json.loads((pathlib.Path(__file__).resolve().parent / "columns.json").read_text(encoding="utf-8"))


def meaning_of(table: str, name: str) -> str:
    """What the column of TABLE.csv means; metrics share one text. Empty for other tables."""
    columns = _meanings().get(table, {})
    return columns.get(name) or columns.get("± metric" if name.startswith("± ") else "metric", "")


def column(name: str, cells: Iterable[Cell] = ()) -> dict[str, Any]:
    if name.endswith("(ns)"):
        kind = "ns"
    elif name in _WITH_PREFIX:
        kind = "si"
    elif is_number_column(name) and name not in _LABELS:
        kind = "number"
    else:
        kind = "name" if name in _NAMES else "text"
    digits = 0
    if kind == "number":
        decimals = (len(str(cell).partition(".")[2]) for cell in cells if isinstance(cell, float) and "e" not in str(cell))
        usual = next((digits for end, digits in _DECIMALS.items() if name.endswith(end)), 0)
        digits = min(max(decimals, default=0), _MOST_DECIMALS)
        digits = max(digits, usual) if digits else 0
    return as_column(name, kind, digits)


def plain_table(id_: str, title: str, file: str, columns: Sequence[dict[str, Any]], rows: Sequence[Sequence[Any]], of: int | None = None,
                note: str = "", first: int = 10) -> Table:
    """A table of columns made by as_column(), without those that have no cell."""
    full = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)]
    return Table(id_, title, file, [columns[at] for at in full], [[row[at] for at in full] for row in rows], len(rows) if of is None else of, note, first)


def _is_off(name: str, values: Iterable[Cell]) -> bool:
    """Columns hidden at first: half of an interval, and the device if there is only one."""
    return name.startswith("± ") or name == "Device" and len(set(values)) < 2


def made_table(id_: str, title: str, file: str, names: Sequence[str], rows: Sequence[Sequence[Cell]], of: int | None = None,
               on: Sequence[str] | None = None, meanings: Mapping[str, str] | None = None, note: str = "") -> Table:
    """Omits columns that are empty in all rows. Columns in `on`, if given, are shown at first, all others on request. `meanings`: for
    columns that FILE does not have."""
    nothing = {name: (None, "", 0) if name in _RARE else (None, "") for name in names}
    full = [at for at, name in enumerate(names) if any(row[at] not in nothing[name] for row in rows)]
    shown = rows[:MOST_ROWS]
    source = file.removesuffix(".csv")
    columns = [column(names[at], (row[at] for row in shown)) for at in full]
    for at, each in zip(full, columns):
        each["meaning"] = (meanings or {}).get(each["name"]) or meaning_of(source, each["name"])
        each["off"] = _is_off(each["name"], (row[at] for row in rows)) if on is None else each["name"] not in on or _is_off(each["name"], (row[at] for row in rows))
    labels = {at for at in full if names[at] in _LABELS}
    cells = [[clean(row[at]) if isinstance(row[at], str) else str(row[at]) if at in labels and row[at] is not None else row[at] for at in full] for row in shown]
    return Table(id_, title, file, columns, cells, len(rows) if of is None else of, note)


def table(result: Result, name: str, title: str, first: Sequence[str] = (), on: Sequence[str] = (), where: Callable[[Row], bool] | None = None) -> Table | None:
    """NAME.csv as a table of the page, with the columns `first` first; or with those in `on` first, and all others on request. None if it
    has no rows."""
    source = result.table(name)
    if source is None:
        return None
    rows = [row for row in source if where is None or where(row)]
    if not rows:
        return None
    names = [each for each in dict.fromkeys((*first, *on, *source.columns)) if each in source.columns]
    return made_table(name, title, f"{name}.csv", names, [[row[each] for each in names] for row in rows], on=on or None)


def numbers(rows: Iterable[Row], name: str) -> list[int | float]:
    """The values of a column, without its empty cells."""
    return [value for row in rows if isinstance(value := row.get(name), (int, float))]
