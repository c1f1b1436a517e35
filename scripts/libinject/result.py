# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Reads the folders that libinject writes: run.json and the CSV tables. Nothing in them is trusted: anything missing, truncated or
malformed raises a BadFile that names the file, the line and what was expected."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import pathlib
import re
import stat
from collections.abc import Iterator
from typing import TextIO, Union

Cell = Union[str, int, float, None]
Row = dict[str, Cell]

# Columns without a unit that are numbers; all others without a unit are text.
_COUNTS = frozenset("""
API Calls|Allocations|Batch|BlkX|BlkY|BlkZ|Blocks/SM|Bytes|Calls|Captured Calls|Clipped Ranges|Clock Readings|Complete|Copies|Cores by Affinity|Cores by Quota|Cores Used|
Cores Wanted|Count|Depth|
FLOP/Byte|FLOPs|Failed|Failed Calls|Frees|Gaps|GrdX|GrdY|GrdZ|Groups|IPC|In Library|Instances|Invalid Timestamps|Involuntary Switches|Iteration|Iterations|Iterations with Units|Kern Inst|
Kernel Concurrency|Kernels|Kernels incl. Nested|Launches|Library Calls|Line|Loader Moments|Lost Activity Records|Lost Host Records|
Lost Range Records|M|N|K|Major Faults|Memsets|Minor Faults|Missing Activity Records|NVTX Inst|Num Calls|PID|Ranges|Ranks|Reg/Trd|Replayed Calls|
Samples|Samples/s|Samples/s in Window|Self Instances|Small Copies|Submissions|Synchronizing|Tensors|TFLOP/s|TID|Total Instances|Unattributed|Units|Units in Window|Units/s|Units/s in Window|
Units/s of GPU Busy|Units/s of GPU Busy in Window|Unprofiled Iterations|User Code Copies|Voluntary Switches|Waves|Window|Workers Asleep|Workers Blocked|± IPC
""".replace("\n", "").split("|"))
# Of what `injectctl recover` says in run.json: counts of what is in no table, and what is incomplete without a count.
_RECOVERY_LOSSES = ("calls_not_kept", "submissions_after_full", "records_after_full", "records_refused", "bytes_unread")
RECOVERY_GAPS = {"journal_cut": "the journal is damaged", "journal_full": "the journal was full", "info_damaged": "what run.json says of the process was damaged",
                 "tables_kept": "the tables are those that the process last wrote"}
METRIC_LOSSES = frozenset({"metric_samples", "metric_records", "metric_rows"})  # of run.json's losses
_UNIT = re.compile(r"\((ns|%|MB|GB|B|MB/s|GB/s|MHz|W|C|J)\)$")
# Text that a spreadsheet would take for a formula has a leading apostrophe (docs/security.md).
ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")
OTHERS = "[other]"  # in place of a window's number, for windows without a row of their own
_LONGEST_NUMBER = 48  # characters: 128 bits have 39 digits
_LONGEST_ROW = 16 << 20  # characters
LARGEST_TABLE = 128 << 20  # bytes of a table held in memory: ten times what libinject's limits allow
_MOST_CELLS = 16 << 20  # cells of a table whose rows are dictionaries; a row counts for eight more
_LARGEST_JSON = 32 << 20
SCHEMA_VERSION = 1  # the latest run.json version that is understood (docs/run_json.md)
# The parts of run.json that several commands read.
_KINDS = {dict: "an object", list: "a list", str: "a text"}
_MEMBERS = {"state": str, "command_line": list, "host": str, "versions": dict, "options": dict, "devices": list, "windows": list,
            "metrics": dict, "overhead": dict, "diagnosis": list, "lost": dict, "recovered": dict, "messages": list, "files": list,
            "stale_files": list, "write_errors": list}
_OR_NULL = frozenset(("host", "metrics", "recovered", "diagnosis"))


class BadFile(Exception):
    """A file that libinject did not write like this. `str()` is one line: the file, the line number if known, and why."""

    def __init__(self, path: pathlib.Path, why: str, line: int | None = None):
        self.path, self.why, self.line = path, why, line
        where = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{printable(where, 1000)}: {why}")


def printable(text: str, most: int = 120) -> str:
    """`text` made safe for a message: no control characters, at most `most` characters."""
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def is_number_column(name: str) -> bool:
    return name in _COUNTS or _UNIT.search(name) is not None


def as_number(text: str) -> int | float:
    """Parses numbers as libinject writes them: in fixed notation, at most 64 bits except for integers, as sums of FLOPs have 128. What
    Python accepts beyond that (1_000, 1e-320, digits of other scripts) is refused: dividing by a tiny number overflows."""
    if text.isdigit() and text.isascii() and len(text) < 19:  # most of them
        return int(text)
    if len(text) > _LONGEST_NUMBER or text.strip("-.0123456789"):
        raise ValueError
    if "." in text:
        if -(2**63) <= (number := float(text)) < 2**64:
            return number
    elif -(2**63) <= (whole := int(text)) < 2**128:
        return whole
    raise ValueError


@dataclasses.dataclass(frozen=True)
class Table:
    """A CSV table. Cells of number columns are int or float, empty ones None; all others are text."""

    path: pathlib.Path
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def _open(path: pathlib.Path, largest: int | None, newline: str = "", errors: str = "strict") -> TextIO:
    # Opening a pipe would block. With O_NONBLOCK and the check after opening, none can be put there in between.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    why = "not a regular file" if not stat.S_ISREG(status.st_mode) else ""
    if not why and largest is not None and status.st_size > largest:
        why = f"far too large: {status.st_size} bytes, at most {largest} are read"
    if why:
        os.close(descriptor)
        raise BadFile(path, why)
    return open(descriptor, newline=newline, encoding="utf-8", errors=errors)


def read_cells(path: pathlib.Path, largest: int | None = None, most: float = math.inf) -> Iterator[tuple[int, list[str]]]:
    """The header and then each row, as in the file, with the number of its last line. `largest`: limit in bytes of the file, `most`: of
    cells, with eight more counted per row, as each row takes memory of its own. May raise BadFile after some rows."""
    width = 0
    line = 1
    room = _LONGEST_ROW
    last = ""

    def lines(file: TextIO) -> Iterator[str]:
        """In a file that is not text, or with a missing quote, a line or cell could be as long as the file."""
        nonlocal room, last
        while text := file.readline(room + 1):
            last = text
            room -= len(text)
            if room < 0:
                raise BadFile(path, f"a row of more than {_LONGEST_ROW} characters", line)
            yield text

    try:
        csv.field_size_limit(_LONGEST_ROW)
        # The reader counts lines, as a cell may contain line breaks.
        with _open(path, largest) as file:
            reader = csv.reader(lines(file), strict=True)
            for cells in reader:
                line, room = reader.line_num, _LONGEST_ROW
                most -= len(cells) + 8
                if most < 0:
                    raise BadFile(path, "far too many cells", line)
                if not width:
                    width = len(cells)
                    if not width or len(set(cells)) != width:
                        raise BadFile(path, "the header has duplicate columns, or none", 1)
                elif len(cells) != width:
                    raise BadFile(path, f"{len(cells)} cells, the header has {width}", line)
                yield line, cells
        if width and not last.endswith(("\n", "\r")):
            raise BadFile(path, "cut off: its last line does not end", line)
    except OSError as error:
        raise BadFile(path, (error.strerror or "can't be read").lower()) from None
    except UnicodeDecodeError as error:
        raise BadFile(path, f"not UTF-8 ({error.reason})", line) from None
    except csv.Error as error:
        raise BadFile(path, f"not CSV: {error}", max(line, reader.line_num)) from None
    if not width:
        raise BadFile(path, "empty: not even a header", 1)


def read_rows(path: pathlib.Path, only: frozenset[str] | None = None, largest: int | None = None, most: float = math.inf) -> Iterator[tuple[Cell, ...]]:
    """The header's names, then row by row, for tables that may be too large to hold. `only`: other columns are left out, and their content
    is not checked. `largest`, `most`: as for read_cells(). May raise BadFile after some rows."""
    kept: list[tuple[int, str, bool]] | None = None
    for line, cells in read_cells(path, largest, most):
        if kept is None:
            kept = [(index, column, is_number_column(column)) for index, column in enumerate(cells) if only is None or column in only]
            yield tuple(column for _, column, _ in kept)
            continue
        row: list[Cell] = []
        for index, column, is_number in kept:
            cell = cells[index]
            if is_number and not (column == "Window" and cell == OTHERS):
                try:
                    row.append(as_number(cell) if cell else None)
                except ValueError:
                    raise BadFile(path, f"'{printable(cell, 40)}' in column '{printable(column, 40)}' is not a number", line) from None
            else:
                row.append(cell[1:] if ESCAPED.match(cell) else cell)
        yield tuple(row)


def read_lines(path: pathlib.Path, largest: int | None = None, longest: int = _LONGEST_ROW) -> Iterator[str | None]:
    """The lines of a text file that is not a table, without their ends; None for one of more than `longest` characters. Invalid UTF-8
    becomes U+FFFD, so that only a line has to be left out, not the file. May raise BadFile after some lines."""
    try:
        with _open(path, largest, newline="\n", errors="replace") as file:
            while text := file.readline(longest + 1):
                if len(text) > longest and not text.endswith("\n"):
                    while text and not text.endswith("\n"):
                        text = file.readline(longest)
                    yield None
                else:
                    yield text.removesuffix("\n")
    except OSError as error:
        raise BadFile(path, (error.strerror or "can't be read").lower()) from None


def read_table(path: pathlib.Path, only: frozenset[str] | None = None) -> Table:
    """`only`: as for read_rows(). Raises BadFile."""
    rows = read_rows(path, only, LARGEST_TABLE, _MOST_CELLS)
    columns = tuple(str(column) for column in next(rows))
    return Table(path, columns, tuple(dict(zip(columns, row)) for row in rows))


class Result:
    """A folder. Each table is read once, on first use; `problems` has a line for each thing that could not be read."""

    def __init__(self, path: pathlib.Path | str):
        """Raises BadFile if libinject did not write this folder, or its run.json is damaged."""
        self.path = pathlib.Path(path)
        try:
            if not self.path.is_dir():
                raise BadFile(self.path, "no such folder" if not self.path.exists() else "not a folder")
            self.written = _read_run(self.path / "run.json")
            self.run = _with_members(self.written, self.path / "run.json")
        except OSError as error:  # a folder without read permission
            raise BadFile(self.path, (error.strerror or "can't be read").lower()) from None
        self.problems: list[str] = []
        self._tables: dict[str, Table | None] = {}

    @property
    def name(self) -> str:
        return self.path.name or str(self.path)

    @property
    def complete(self) -> bool:
        """False if the program was killed or is still running."""
        return is_complete(self.run)

    def table(self, name: str) -> Table | None:
        """The table NAME.csv; None if the run does not have it, or it can't be read (see `problems`)."""
        if name not in self._tables:
            self._tables[name] = None
            path = self.path / f"{name}.csv"
            try:
                if path.exists():
                    self._tables[name] = read_table(path)
                elif path.name in (self.run.get("files") or []):
                    self.problems.append(str(BadFile(path, "missing, though run.json lists it")))
            except BadFile as problem:
                self.problems.append(str(problem))
            except OSError as error:
                self.problems.append(str(BadFile(path, (error.strerror or "can't be read").lower())))
        return self._tables[name]

    def rows(self, name: str, *needed: str) -> list[Row]:
        """The rows of a table, none if it does not exist. A table that lacks one of the columns `needed` is also a problem."""
        table = self.table(name)
        if table is None:
            return []
        missing = [column for column in needed if column not in table.columns]
        if missing:
            self.add_problem(BadFile(table.path, f"no column '{missing[0]}'", 1))
            return []
        return list(table.rows)

    def lines(self, name: str, longest: int = _LONGEST_ROW) -> Iterator[str | None]:
        """The lines of the text file NAME, as for read_lines(); none if the run has no such file. Read errors are added to `problems`."""
        path = self.path / name
        try:
            if path.exists():
                yield from read_lines(path, LARGEST_TABLE, longest)
            elif name in (self.run.get("files") or []):
                self.add_problem(BadFile(path, "missing, though run.json lists it"))
        except BadFile as problem:
            self.add_problem(problem)
        except OSError as error:
            self.add_problem(BadFile(path, (error.strerror or "can't be read").lower()))

    def add_problem(self, problem: BadFile) -> None:
        """Adds a problem once, however often it occurs."""
        if str(problem) not in self.problems:
            self.problems.append(str(problem))

    @property
    def stale(self) -> list[str]:
        """Tables that are older than run.json, because they could not be rewritten."""
        return [name for name in self.run.get("stale_files") or [] if isinstance(name, str)]

    def lost(self) -> dict[str, int]:
        """What run.json counts as lost, and what could not be recovered, without zeros."""
        recovered = self.run.get("recovered") or {}
        counts = {**self.run["lost"], **{kind: recovered.get(kind) for kind in _RECOVERY_LOSSES}}
        return {str(kind): count for kind, count in counts.items() if isinstance(count, int) and count > 0}

    def gaps(self) -> list[str]:
        """Which of RECOVERY_GAPS apply: what was lost in them may have no count."""
        recovered = self.run.get("recovered") or {}
        return [kind for kind in RECOVERY_GAPS if recovered.get(kind) is True]


def is_complete(run: dict) -> bool:
    """Of a run.json: false if the program is still running, or was killed and its tables are still of a moment when a window was open."""
    recovered, windows = run.get("recovered"), run.get("windows")
    if isinstance(recovered, dict) and recovered.get("tables_kept") is True and isinstance(windows, list):
        return all(not isinstance(window, dict) or window.get("state") == "closed" for window in windows)
    return run.get("state") in ("closed", "recovered")


def _number_in_run(text: str) -> int | float:
    """Limited so that values derived from it fit a float. JSON itself has neither NaN nor infinity."""
    number = (int(text) if text.lstrip("-").isdigit() else float(text)) if len(text) < _LONGEST_NUMBER else math.inf
    if not -(2**63) <= number < 2**64:
        raise ValueError(f"'{printable(text, 40)}' is not a number of 64 bits")
    return number


def _read_run(path: pathlib.Path) -> dict:
    if not path.exists():
        raise BadFile(path.parent, "not a libinject folder: it has no run.json")
    try:
        with _open(path, _LARGEST_JSON) as file:
            run = json.load(file, parse_int=_number_in_run, parse_float=_number_in_run, parse_constant=_number_in_run)
    except OSError as error:
        raise BadFile(path, (error.strerror or "can't be read").lower()) from None
    except UnicodeDecodeError as error:
        raise BadFile(path, f"not UTF-8 ({error.reason})") from None
    except json.JSONDecodeError as error:
        raise BadFile(path, f"not JSON: {error.msg}", error.lineno) from None
    except RecursionError:
        raise BadFile(path, "not written by libinject: nested too deeply") from None
    except ValueError as error:
        raise BadFile(path, f"not written by libinject: {error}") from None
    if not isinstance(run, dict) or not isinstance(run.get("libinject"), str):
        raise BadFile(path, "not written by libinject: it does not say which version wrote it", 1)
    version = run.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadFile(path, f"'schema_version' is {_kind_of(version)}, but must be a whole number, 1 or more")
    if version > SCHEMA_VERSION:
        raise BadFile(path, f"has schema version {version}, but this inject reads versions up to {SCHEMA_VERSION}: use the inject of libinject "
                            f"{printable(run['libinject'], 40)}")
    return run


def _with_members(written: dict, path: pathlib.Path) -> dict:
    """With all members that several commands read."""
    run = dict(written)
    for name, kind in _MEMBERS.items():
        if not isinstance(run.setdefault(name, None if name in _OR_NULL else kind()), (kind, type(None)) if name in _OR_NULL else kind):
            raise BadFile(path, f"'{name}' is {_kind_of(run[name])}, but must be {_KINDS[kind]}")
    return run


def _kind_of(value: object) -> str:
    return "null" if value is None else "a number" if isinstance(value, (int, float)) and not isinstance(value, bool) else _KINDS.get(type(value), "a truth value")
