# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What a page is made of: articles of sections with notes, plots, icicles, timelines, histograms and tables. All of it is plain data: numbers in the units of the
tables (ns, MB), which plots.js and tables.js write with a unit."""

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
# Shown shortened, with the whole on demand.
_NAMES = frozenset({"Name", "Kernel Name", "Kernel Names", "Call", "Operation", "Range", "NVTX Range", "Thread Name", "Anchor", "Place", "Module"})
_WITH_PREFIX = frozenset({"FLOPs", "Bytes"})
# Numbers that are no quantities: 1779, not 1,779.
_LABELS = frozenset({"Line", "PID", "TID"})
_MOST_DECIMALS = 3
# As the tables write them: a CSV reader does not tell 0.000 from 0.0.
_DECIMALS = {"(%)": 1, "(MB)": 3, "(GB/s)": 3, "TFLOP/s": 3, "FLOP/Byte": 2, "Waves": 2}
# Left out where all rows have 0: what is rare.
_RARE = frozenset({"Failed Calls", "Captured Calls", "Replayed Calls", "Failed", "Failed Size (MB)", "Largest Failed (MB)", "Last Failed (MB)",
                   "Unattributed", "Clipped Ranges"})


@dataclasses.dataclass
class Table:
    """A column is {name, kind, digits, meaning, off}; kind: ns, number, si, name or text; one that is `off` shows once it is asked for. A cell may be [value, text, mood]: sorted by the value, shown
    as the text, in the colour of the mood (good, bad or none)."""

    id: str
    title: str
    file: str
    columns: list[dict[str, Any]]
    rows: list[list[Cell]]
    of: int  # rows in the file
    note: str = ""
    first: int = 10  # rows that show before the others are asked for


@dataclasses.dataclass
class Plot:
    """kind: `points` (x, y), `bars` (names, values), `columns` (values, colour, pattern: stacked, one for each of the x axis' ticks) or `heat`
    (x, y, and z in rows). Axes are {title, unit, log, zero, ticks, places};
    a series is {name, …, notes}, with `panel`, the place of its axis, where there are several."""

    id: str
    title: str
    kind: str
    x: dict[str, Any]
    series: list[dict[str, Any]]
    y: dict[str, Any] = dataclasses.field(default_factory=dict)
    bands: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # from, to, label
    stacked: bool = False
    note: str = ""
    unit: str = ""  # of heat
    panels: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # of points: axes in place of y, one below the other, over one of x


@dataclasses.dataclass
class Icicle:
    """Boxes inside boxes, the outermost on top, each as wide as its share of the time. A box is [the place of the one around it, or -1, its
    name, or -1, how many it stands for, its time in each phase]: the first is around all others, and comes before them, as each does before
    what is inside it. A name is [text, label], the label "" for a kernel, which icicle.js shortens. Without a name a box stands for others
    inside the same one that there was no room for. A phase is {name, colour}."""

    id: str
    title: str
    file: str
    phases: list[dict[str, str]]
    names: list[list[str]]
    boxes: list[list[int]]
    note: str = ""


@dataclasses.dataclass
class Timeline:
    """A row is {name, lanes}; a lane has seven numbers for each event, by start: start (ns, from the left edge), duration, the place of its
    name, that of its kind, whether it is the step's own, how many events it stands for, and how long these took. Name and kind of several are those
    of the longest. A kind is {name, colour}. The left edge is the step's start; `step` is how long
    it took on the host, of `duration` in all."""

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
    """A kernel is {name, count, total, mean, median, min, max, first, bins}: `bins` has how many took how long, from the bin `first` on; bin b is
    from 2^(b / per_octave) ns to 2^((b + 1) / per_octave). None of them where that is not known."""

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
    side_by_side: bool = False  # its plots, where there is room

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
    """`headline`: the answer in a line, in the colour of `mood`; `facts` are (what, text)."""

    name: str
    facts: list[tuple[str, str]]
    sections: list[Section]
    headline: str = ""
    mood: str = ""
    alerts: list[str] = dataclasses.field(default_factory=list)


def as_data(part: Any) -> Any:
    """Of an article, section, table or plot, without copying its rows."""
    if dataclasses.is_dataclass(part):
        return {field.name: as_data(getattr(part, field.name)) for field in dataclasses.fields(part)}
    if isinstance(part, list) and part and dataclasses.is_dataclass(part[0]):
        return [as_data(item) for item in part]
    return part


def as_column(name: str, kind: str = "number", digits: int = 0, meaning: str = "", off: bool = False) -> dict[str, Any]:
    return {"name": name, "kind": kind, "digits": digits, "meaning": meaning, "off": off}


@functools.cache
def _meanings() -> dict[str, dict[str, str]]:
    """Of docs/columns.md: {table: {column: meaning}}."""
    return json.loads((pathlib.Path(__file__).resolve().parent / "columns.json").read_text(encoding="utf-8"))


def meaning_of(table: str, name: str) -> str:
    """What the column of TABLE.csv means; metrics have what stands for all of them. Nothing of other tables."""
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
    """Of columns made by as_column(), those without a cell left out."""
    full = [at for at in range(len(columns)) if any(row[at] not in (None, "") for row in rows)]
    return Table(id_, title, file, [columns[at] for at in full], [[row[at] for at in full] for row in rows], len(rows) if of is None else of, note, first)


def _is_off(name: str, values: Iterable[Cell]) -> bool:
    """Half of an interval, and a device where there is but one."""
    return name.startswith("± ") or name == "Device" and len(set(values)) < 2


def made_table(id_: str, title: str, file: str, names: Sequence[str], rows: Sequence[Sequence[Cell]], of: int | None = None,
               on: Sequence[str] | None = None, meanings: Mapping[str, str] | None = None, note: str = "") -> Table:
    """Without the columns that are empty in all rows. Those `on`, if given, show at first, all others once they are asked for. `meanings`: of
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
    """NAME.csv as a table of the page: the columns `first` first; or those `on` first, and all others once they are asked for. None where it has
    no rows."""
    source = result.table(name)
    if source is None:
        return None
    rows = [row for row in source if where is None or where(row)]
    if not rows:
        return None
    names = [each for each in dict.fromkeys((*first, *on, *source.columns)) if each in source.columns]
    return made_table(name, title, f"{name}.csv", names, [[row[each] for each in names] for row in rows], on=on or None)


def numbers(rows: Iterable[Row], name: str) -> list[int | float]:
    """What a column has, without its empty cells."""
    return [value for row in rows if isinstance(value := row.get(name), (int, float))]
