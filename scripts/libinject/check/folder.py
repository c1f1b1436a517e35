# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A folder as seen by the rules: columns of cells as in the file, their numbers, and their places in the file.

Rules request columns. Columns that are missing, from an older version or a run without the feature, are not checked."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterator
from typing import Union

from libinject.result import ESCAPED, LARGEST_TABLE, OTHERS, BadFile, Result, as_number, is_complete, printable, read_cells

Number = Union[int, float]
SAMPLES = "metric_samples"  # an empty file if no sample was taken
_MOST_CELLS = 64 << 20  # of a table, counted as in read_cells(): raw records of that size have fewer, and take ten times the memory


@dataclasses.dataclass(frozen=True)
class Place:
    """A cell, and what is wrong with it. Row: the line in the file, counted from 1."""

    file: str
    row: int
    column: str
    text: str


class Table:
    """A CSV table, by columns."""

    def __init__(self, path: pathlib.Path):
        """Raises BadFile."""
        self.path, self.name = path, path.stem
        rows = read_cells(path, most=_MOST_CELLS)
        before, header = next(rows)
        self.columns = tuple(header)
        self.lines: list[int] = []
        cells: list[list[str]] = []
        shared = {}.setdefault  # most cells occur many times in a table
        for line, row in rows:
            self.lines.append(before + 1)
            cells.append([shared(cell, cell) for cell in row])
            before = line
        self._cells = dict(zip(header, map(list, zip(*cells)))) if cells else {column: [] for column in header}
        self._numbers: dict[str, list[Number | None]] = {}
        self._rows_by: dict[str, dict[str, list[int]]] = {}

    def __len__(self) -> int:
        return len(self.lines)

    def has(self, *columns: str) -> bool:
        return all(column in self._cells for column in columns)

    def cells(self, column: str) -> list[str]:
        return self._cells[column]

    def texts(self, column: str) -> list[str]:
        """The cells without the apostrophe that precedes text which a spreadsheet would take for a formula."""
        return [cell[1:] if ESCAPED.match(cell) else cell for cell in self._cells[column]]

    def numbers(self, column: str) -> list[Number | None]:
        """The cells as numbers. None if a cell is empty, is not a number (reported by the rule 'number'), or is negative where it must not
        be (reported by 'negative'): other rules would derive meaningless values from it, or divide by 0."""
        if column not in self._numbers:
            found = [number_of(cell) for cell in self._cells[column]]
            self._numbers[column] = found if may_be_negative(column) else [None if number is not None and number < 0 else number for number in found]
        return self._numbers[column]

    def each(self, *columns: str) -> Iterator[tuple[int, tuple[Number, ...]]]:
        """The rows that have a number in each of these columns; none if a column is missing."""
        if self.has(*columns):
            for index, row in enumerate(zip(*(self.numbers(column) for column in columns))):
                if None not in row:
                    yield index, row  # type: ignore[misc]

    def rows_by(self, column: str) -> dict[str, list[int]]:
        """The rows with each text of a column."""
        if column not in self._rows_by:
            found = self._rows_by[column] = collections.defaultdict(list)
            for index, cell in enumerate(self._cells[column]):
                found[cell].append(index)
        return self._rows_by[column]

    def sum(self, column: str, rows: list[int] | None = None) -> Number:
        numbers = self.numbers(column)
        return sum(number for number in (numbers if rows is None else [numbers[index] for index in rows]) if number is not None)

    def half(self, index: int, column: str) -> float:
        """Half a unit of the last digit printed, which is the largest rounding error."""
        return half_step(self._cells[column][index])

    def place(self, index: int | None, column: str, text: str) -> Place:
        """`index`: None for the table as a whole, which is reported on its header's line."""
        return Place(self.path.name, 1 if index is None else self.lines[index], column, text)


class Folder:
    """Raises BadFile if libinject did not write this folder, or its run.json is damaged."""

    def __init__(self, path: pathlib.Path | str):
        result = Result(path)
        self.path, self.run, self.written = result.path, result.run, result.written
        self.unreadable: list[BadFile] = []
        self.too_large: list[str] = []
        try:
            self.names = {entry.name for entry in self.path.iterdir()}
        except OSError as error:
            raise BadFile(self.path, (error.strerror or "can't be read").lower()) from None
        self.stale = {text.removesuffix(".csv") for text in result.stale}
        self.asked: set[str] = set()  # names of the tables that rules requested, to find out what a rule reads
        self._tables: dict[str, Table | None] = {}
        self._lines_of_run: dict[str, int] = {}

    def table(self, name: str, *columns: str) -> Table | None:
        """NAME.csv; None if it is not there, can't be read, or lacks one of these columns."""
        self.asked.add(name)
        if name not in self._tables:
            self._tables[name] = None
            if f"{name}.csv" in self.names:
                path = self.path / f"{name}.csv"
                try:
                    size = path.stat().st_size
                    if size > LARGEST_TABLE:
                        self.too_large.append(path.name)
                    elif size or name != SAMPLES or not path.is_file():
                        self._tables[name] = Table(path)
                except OSError as error:
                    self.unreadable.append(BadFile(path, (error.strerror or "can't be read").lower()))
                except BadFile as problem:
                    self.unreadable.append(problem)
        table = self._tables[name]
        return table if table is not None and table.has(*columns) else None

    def tables(self) -> Iterator[Table]:
        for name in sorted(self.names):
            if name.endswith(".csv") and (table := self.table(name.removesuffix(".csv"))) is not None:
                yield table

    @property
    def ended(self) -> bool:
        """False if the program was killed or is still running: tables may then be from different moments."""
        return is_complete(self.run)

    def lost(self, *kinds: str) -> int:
        """How many records of these kinds run.json reports as lost; of all kinds if none is given."""
        lost = self.run["lost"]
        return sum(count for kind, count in lost.items() if isinstance(count, int) and (not kinds or kind in kinds))

    def option(self, name: str) -> str:
        return str(self.run["options"].get(f"INJECT_{name}", ""))

    def device(self, number: str) -> dict[str, int]:
        """The integers that run.json has for a device; rules need nothing else of it."""
        return self._devices.get(number, {})

    @functools.cached_property
    def _devices(self) -> dict[str, dict[str, int]]:
        return {str(device.get("id")): {name: value for name, value in device.items() if isinstance(value, int)}
                for device in reversed(self.run["devices"]) if isinstance(device, dict)}

    def in_run(self, member: str, text: str) -> Place:
        """A place in run.json: the first line on which the member's name appears."""
        if member not in self._lines_of_run:
            self._lines_of_run[member] = next((number for number, read in enumerate(self._run_text, 1) if f'"{member}"' in read), 1)
        return Place("run.json", self._lines_of_run[member], member, text)

    @functools.cached_property
    def _run_text(self) -> list[str]:
        try:
            return (self.path / "run.json").read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []


def may_be_negative(column: str) -> bool:
    """Times count from CUDA's initialisation, and may be before it; percentages have a rule of their own."""
    return column.endswith("(%)") or column in ("Start (ns)", "End (ns)", "Time (ns)")


def number_of(cell: str) -> Number | None:
    try:
        return as_number(cell) if cell else None
    except ValueError:
        return None


def half_step(cell: str) -> float:
    return 0.5 * 10.0 ** -len(cell.partition(".")[2])


def named(text: str) -> str:
    """A name for a message."""
    return f"'{printable(text, 60)}'"


def is_others(text: str) -> bool:
    """Whether the row combines several things that have no row of their own."""
    return text == OTHERS
