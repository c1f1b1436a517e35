# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The tables by the names that they have in Python, and their columns with types. pandas is not needed here."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, TypeVar, Union, overload

from libinject.check.folder import SAMPLES
from libinject.check.folder import Table as Cells
from libinject.check.formats import is_whole
from libinject.result import ESCAPED, LARGEST_TABLE, OTHERS, BadFile, Cell, Result, as_number, is_number_column, printable

Frame = TypeVar("Frame")
Totals = Union[bool, Literal["only"]]
WHOLE, REAL, TEXT = "whole", "real", "text"
_MOST_COLUMNS = 1000
_LARGEST_WHOLE = 2**63  # of DataFrames' integers
# Integers that result.py, which the pages' tables use, treats as text: counts, and sizes in shapes.
_SIZES = frozenset({"C", "D", "H", "W", "T", "R", "S", "B", "KV Heads", "S Query", "S Key", "D Value", "Engine", "Causal", "Bias",
                    "Dropout", "Varying Lengths"})
_NAMED = "where launches are named"  # docs/code.md
_CALL = frozenset({"Result", "Pid", "Tid"})


class NotInRun(BadFile):
    """The run does not have this table, or nothing to plot. `str()` is one line that says what would have made libinject write it."""


@dataclasses.dataclass
class Column:
    """Cells of WHOLE are int, of REAL float, of TEXT str; empty cells are None."""

    name: str
    kind: str
    cells: list[Cell]


@dataclasses.dataclass(frozen=True)
class Table(Generic[Frame]):
    """FILE.csv as an attribute of a run. `whole`: integer columns in addition to those known to result.py; `texts`: text columns, in tables
    whose unknown columns are hardware metrics; `total`: the column and the cell that mark a row as the sum of others."""

    file: str
    about: str
    needs: str = ""
    whole: frozenset[str] = frozenset()
    texts: frozenset[str] | None = None
    total: tuple[str, str] | None = None

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return f"{self.file}.csv: {self.about}" + (f" Written {self.needs}." if self.needs else "")

    @overload
    def __get__(self, run: None, owner: type) -> Table[Frame]: ...
    @overload
    def __get__(self, run: Frames[Frame], owner: type) -> Frame: ...
    def __get__(self, run: Frames[Frame] | None, owner: type) -> Table[Frame] | Frame:
        return self if run is None else run.table(self.file)

    def __set__(self, run: object, value: object) -> None:
        raise AttributeError("a run's tables can't be replaced")

    def kind_of(self, column: str) -> str | None:
        """None: a hardware metric, if its cells are numbers."""
        if column in self.whole or column.endswith("(B)"):
            return WHOLE
        if is_number_column(column):
            return WHOLE if is_whole(column) else REAL
        return TEXT if self.texts is None or column in self.texts else None


class Frames(Generic[Frame]):
    """Each table as an attribute. They are DataFrames of pandas, or of polars if load() was asked for these:

    - integers are nullable (Int64), other numbers float64, text strings. An empty cell is missing (NA, NaN; null in polars). A
      column with an integer of more than 64 bits is float64.
    - `Window` is an integer, missing in the row `[other]` of the windows that have no row of their own. `Device` is text in all tables.
    - Columns are named as in the file, units included: times are ns, sizes MB (10^6 bytes). docs/columns.md explains each.
    - Rows that are sums of others are left out, see load(totals=…).

    The frame is made on first use and is the same object from then on: what you change in it stays changed.

    Raises NotInRun if the run doesn't have the table, BadFile if it can't be read, ImportError without pandas or polars."""

    kernels: Table[Frame] = Table("cuda_gpu_kern_sum", "a kernel, by name.")
    kernels_by_grid: Table[Frame] = Table("cuda_gpu_kern_gb_sum", "a kernel with one launch shape.")
    kernel_details: Table[Frame] = Table("kernel_detail", "a kernel with one launch shape and its resources.")
    kernel_metrics: Table[Frame] = Table("kernel_metrics", "hardware metrics of a kernel with one launch shape.", "with INJECT_METRICS",
                                         texts=frozenset({"Device", "Reliable", "Busiest Unit", "Bound", "Name"}))
    families: Table[Frame] = Table("family_sum", "a family of kernels.", whole=frozenset({"Kernel Names"}))
    api: Table[Frame] = Table("cuda_api_sum", "a CUDA runtime or driver function.")
    library_calls: Table[Frame] = Table("library_sum", "a cuBLAS, cuBLASLt, cuDNN or NCCL call, by its enclosing calls.")
    gemms: Table[Frame] = Table("gemm_sum", "matrix products of one shape.", whole=frozenset({"Lda", "Ldb", "Ldc"}))
    convolutions: Table[Frame] = Table("conv_sum", "convolutions of one shape.", whole=_SIZES)
    attention: Table[Frame] = Table("attention_sum", "attention of one shape.", whole=_SIZES)
    rnns: Table[Frame] = Table("rnn_sum", "recurrent layers of one shape.", whole=_SIZES | {
        "Layers", "Directions", "Input Size", "Hidden Size", "Projection Size", "Steps"})
    norms: Table[Frame] = Table("norm_sum", "normalizations of one shape.")
    collectives: Table[Frame] = Table("nccl_sum", "NCCL's operations of one kind and size.", whole=frozenset({"Peer/Root"}))
    copies: Table[Frame] = Table("copy_sum", "copies on one device, by direction and kinds of memory.")
    copy_times: Table[Frame] = Table("cuda_gpu_mem_time_sum", "copies of one kind, or memsets: durations.")
    copy_sizes: Table[Frame] = Table("cuda_gpu_mem_size_sum", "copies of one kind, or memsets: sizes.")
    memory: Table[Frame] = Table("memory_sum", "allocations by function and device.", total=("API", "[all]"))
    memory_over_time: Table[Frame] = Table("memory_timeline", "a stretch of time: memory allocated, or in use on a device.",
                                           texts=frozenset({"Device", "Of", "Label"}))
    memory_purposes: Table[Frame] = Table("memory_purpose", "PyTorch's memory on a device for one purpose.", _NAMED, total=("Purpose", "[all]"))
    energy: Table[Frame] = Table("energy_sum", "energy and clocks of a device, in a window or an iteration.", "if NVML reports it")
    processors: Table[Frame] = Table("host_sum", "a role of the process's threads or its children in a window.", total=("Role", "process"))
    windows: Table[Frame] = Table("window_sum", "a window on a device.", texts=frozenset({"Reason", "State", "Device", "Total", "Units From", "Verdict"}),
                                  total=("Device", "all"))
    iterations: Table[Frame] = Table("iteration_sum", "an iteration on a device, or what ran outside of any.",
                                     texts=frozenset({"Label", "Device", "Total", "Units From"}), total=("Device", "all"))
    step_times: Table[Frame] = Table("step_times", "an iteration that ran without the profiler.")
    phases: Table[Frame] = Table("phase_sum", "a phase of the training step, by window and device.")
    operators: Table[Frame] = Table("op_sum", "a PyTorch operator, or a node of the backward pass.", _NAMED)
    modules: Table[Frame] = Table("module_sum", "a PyTorch module.", _NAMED)
    lines: Table[Frame] = Table("line_sum", "a line of Python.", _NAMED)
    gap_lines: Table[Frame] = Table("gap_line_sum", "a line of Python that the GPU waited for.", _NAMED)
    threads: Table[Frame] = Table("thread_kern_sum", "the kernels that a thread launched on a device.")
    ranges: Table[Frame] = Table("nvtx_sum", "an NVTX range, by name.")
    range_kernels: Table[Frame] = Table("nvtx_kern_sum",
                                        "a kernel, by NVTX range and launching thread; it is counted in every range around it.")
    gpu_trace: Table[Frame] = Table("cuda_gpu_trace", "a kernel, copy or memset.", "with INJECT_TRACE=csv",
                                    whole=frozenset({"CorrId", "Ctx", "Strm"}))
    api_trace: Table[Frame] = Table("cuda_api_trace", "a CUDA runtime or driver call.", "with INJECT_TRACE=csv",
                                    whole=_CALL | {"CorrID"})
    library_trace: Table[Frame] = Table("library_trace", "a cuBLAS, cuBLASLt, cuDNN or NCCL call.", "with INJECT_TRACE=csv", whole=_CALL)
    thread_cpu_trace: Table[Frame] = Table("thread_cpu_trace", "a reading of a thread's processor time.", "with INJECT_TRACE=csv",
                                           whole=frozenset({"Tid", "Voluntary Switches"}))
    metric_samples: Table[Frame] = Table("metric_samples", "a sample of a device's counters.", "with INJECT_METRICS_TIMELINE=1",
                                         texts=frozenset({"Device"}))

    def table(self, name: str, totals: Totals | None = None) -> Frame:
        raise NotImplementedError


TABLES: dict[str, Table[Any]] = {name: table for name, table in vars(Frames).items() if isinstance(table, Table)}
_BY_FILE = {table.file: table for table in TABLES.values()}


def find(name: str) -> Table[Any]:
    """Finds a table by its attribute's name or its file's. Raises ValueError."""
    found = TABLES.get(name) or _BY_FILE.get(name.removesuffix(".csv")) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"'{printable(str(name), 60)}' is not one of libinject's tables: {', '.join(TABLES)}")
    return found


def read(result: Result, table: Table[Any], totals: Totals) -> list[Column]:
    """`totals`: True to include the rows that are sums of others, "only" to leave out all others. Raises BadFile, or NotInRun."""
    path = result.path / f"{table.file}.csv"
    try:
        size = os.stat(path).st_size
        if table.file == SAMPLES and not size:
            raise NotInRun(path, "empty: no sample was taken")
        if size > LARGEST_TABLE:  # cells take about ten times as much memory
            raise BadFile(path, f"too large for a DataFrame: {size} bytes, at most {LARGEST_TABLE} are read")
        cells = Cells(path)
    except FileNotFoundError:
        if path.name in result.run["files"]:
            raise BadFile(path, "missing, though run.json lists it") from None
        why = f"it is written {table.needs}" if table.needs else "it is of a version of libinject that does not write it"
        raise NotInRun(path, f"the run has no such table: {why}") from None
    except OSError as error:
        raise BadFile(path, (error.strerror or "can't be read").lower()) from None
    if len(cells.columns) > _MOST_COLUMNS:
        raise BadFile(path, f"far too many columns: {len(cells.columns)}", 1)
    kept: Sequence[int] = range(len(cells))
    if table.total is not None and totals is not True:
        column, mark = table.total
        if not cells.has(column):
            raise BadFile(path, f"no column '{column}'", 1)
        kept = [index for index, cell in enumerate(cells.cells(column)) if (cell == mark) == (totals == "only")]
    return [_column(path, cells, table, name, kept) for name in cells.columns]


def _column(path: pathlib.Path, source: Cells, table: Table[Any], name: str, kept: Sequence[int]) -> Column:
    texts, kind = source.cells(name), table.kind_of(name)
    if kind == TEXT:
        return _texts(name, texts, kept)
    others = OTHERS if name == "Window" else ""
    numbers: list[Cell] = []
    for index in kept:
        text = texts[index]
        try:
            numbers.append(as_number(text) if text and text != others else None)
        except ValueError:
            if kind is None:
                return _texts(name, texts, kept)
            why = f"'{printable(text, 40)}' in column '{printable(name, 40)}' is not a number"
            raise BadFile(path, why, source.lines[index]) from None
    if kind == WHOLE and all(number is None or isinstance(number, int) and -_LARGEST_WHOLE <= number < _LARGEST_WHOLE
                             for number in numbers):
        return Column(name, WHOLE, numbers)
    return Column(name, REAL, [None if number is None else float(number) for number in numbers])


def _texts(name: str, texts: list[str], kept: Sequence[int]) -> Column:
    return Column(name, TEXT, [(text[1:] if ESCAPED.match(text) else text) or None for text in (texts[index] for index in kept)])


def joined(parts: Sequence[tuple[Sequence[Column], Sequence[Column]]]) -> list[Column]:
    """The rows of several runs. Each part has leading columns, with one cell for all its rows, and its own columns. Columns that one of
    them lacks are empty there."""
    kinds: dict[str, str] = {}
    for front, columns in parts:
        for column in (*front, *columns):
            known = kinds.setdefault(column.name, column.kind)
            if known != column.kind:  # one has a number beyond 64 bits, or a metric's cell that is not a number
                kinds[column.name] = TEXT if TEXT in (known, column.kind) else REAL
    made = {name: Column(name, kind, []) for name, kind in kinds.items()}
    for front, columns in parts:
        rows = len(columns[0].cells) if columns else 0
        cells = {column.name: column.cells for column in columns} | {column.name: column.cells * rows for column in front}
        for name, column in made.items():
            column.cells += map(_AS[column.kind], cells[name]) if name in cells else [None] * rows
    return list(made.values())


def _or_none(convert: Callable[[Any], Cell]) -> Callable[[Cell], Cell]:
    return lambda cell: None if cell is None else convert(cell)


_AS: dict[str, Callable[[Cell], Cell]] = {WHOLE: lambda cell: cell, REAL: _or_none(float), TEXT: _or_none(str)}
