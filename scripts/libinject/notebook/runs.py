# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs as users of notebooks see them."""

from __future__ import annotations

import dataclasses
import glob
import os
import pathlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, cast, overload

from libinject import figures
from libinject.console import duration
from libinject.merge import collect
from libinject.merge.schema import RUNS
from libinject.notebook import frames as dataframes
from libinject.notebook import plots, summary
from libinject.notebook.tables import REAL, TABLES, TEXT, WHOLE, Column, Frame, Frames, NotInRun, Table, Totals, find, joined, read
from libinject.page.values import clean
from libinject.report import overview
from libinject.result import BadFile, Result

if TYPE_CHECKING:
    import pandas
    import polars

Source = Union[str, os.PathLike[str]]
_RAW = "with INJECT_TRACE"


@dataclasses.dataclass(frozen=True)
class Steps:
    """Step times of iterations in ns (docs/iterations.md). The step time is the median. `unprofiled`: iterations without the profiler, the
    latest 1,000; otherwise the complete ones in windows, which the profiler lengthens. `stdev_ns` is the sample standard deviation."""

    count: int
    median_ns: float
    mean_ns: float
    min_ns: float
    max_ns: float
    stdev_ns: float
    unprofiled: bool


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a GPU was bound by, over all windows (docs/diagnosis.md). `utilization` and `gain` are percent of its time in windows: with a
    kernel running, and what fixing the bottleneck could save at most (None if there is no such bound). `evidence` has a line for each part
    of the time, `advice` what to do, the largest gain first."""

    device: str
    verdict: str
    meaning: str
    utilization: float
    gain: float | None
    device_time_ns: int
    evidence: tuple[str, ...]
    advice: tuple[str, ...]


def _plot(name: str) -> Callable[[Run[Any]], plots.Figure]:
    def draw(self: Run[Any]) -> plots.Figure:
        return plots.figure(self._result, name)

    draw.__name__ = draw.__qualname__ = f"plot_{name}"
    draw.__doc__ = f"{plots.SOURCES[name].about} Raises NotInRun where there is nothing to draw."
    return draw


class Run(Frames[Frame]):
    """One folder. See load().

    There is a DataFrame for each table, which Frames explains; `plot_…()` have the plots of the report's page. Both raise NotInRun for what
    the run does not have."""

    def __init__(self, path: Source, frames: str = "pandas", totals: Totals = False) -> None:
        """Raises BadFile if libinject did not write this folder, or its run.json is damaged."""
        self._result = Result(pathlib.Path(path))
        self._library, self._totals = frames, totals
        self._frames: dict[tuple[str, Totals], Frame] = {}
        self._problems: list[str] = []
        row = dict(zip(RUNS, collect.run_row(0, self._result, self._problems)))
        self.path = self._result.path
        self.name = clean(self._result.name)  # the folder's
        self.rank: int | None = row["rank"]  # None outside of distributed jobs
        self.host: str = clean(row["host"])

    @property
    def run(self) -> dict[str, Any]:
        """run.json: command, devices, versions, options, windows, diagnosis, losses. Names of times in it end with their unit."""
        return self._result.run

    @property
    def complete(self) -> bool:
        """False if the program was killed or is still running."""
        return self._result.complete

    @property
    def lost(self) -> dict[str, int]:
        """How many records of each kind were lost; empty if none were."""
        return self._result.lost()

    @property
    def problems(self) -> list[str]:
        """A line for each thing in the folder that could not be read or is older than the rest. Reads all tables except raw records each
        time. `inject check` checks whether they are right."""
        for table in TABLES.values():
            if not table.needs.startswith(_RAW):
                try:
                    read(self._result, table, True)
                except NotInRun:
                    pass
                except BadFile as problem:
                    self._note(str(problem))
        stale = [f"{clean(str(self.path))}: {clean(name, 60)} is older than run.json" for name in self._result.stale]
        return list(dict.fromkeys([*self._problems, *self._result.problems, *stale]))

    def _note(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    @property
    def verdicts(self) -> list[Verdict]:
        """For each GPU that worked in windows."""
        return [Verdict(found["device"], found["verdict"], found["meaning"], found["utilization"], found["gain"], found["device_ns"],
                        tuple(f"{part['label']}: {part['share']}%" + f", {part['text']}" * bool(part["text"])
                              for part in found["remedies"]),
                        tuple(part["advice"] for part in found["remedies"] if part["advice"]))
                for found in overview.verdicts(self._result)]

    @property
    def verdict(self) -> str | None:
        """`GPU-bound (memory)`, `launch-bound`, …: of the GPU with the longest time in windows. `too short` if the windows are too short
        for a verdict, None if nothing ran in one."""
        longest = max(self.verdicts, key=lambda verdict: verdict.device_time_ns, default=None)
        return longest.verdict if longest else None

    @property
    def steps(self) -> Steps | None:
        """None if no complete iteration is known."""
        return self._steps(False)

    @property
    def steps_in_windows(self) -> Steps | None:
        """Those of the complete iterations in windows, including the profiler's overhead."""
        return self._steps(True)

    def _steps(self, in_windows: bool) -> Steps | None:
        found = overview.step_times(self._result, in_windows)
        if found is None:
            return None
        return Steps(int(found["count"]), found["median"], found["mean"], found["min"], found["max"], found["stdev"],
                     not in_windows and bool(figures.unprofiled_steps(self._result)))

    @property
    def utilization(self) -> float | None:
        """Percent of the GPUs' time in windows with at least one kernel running."""
        return figures.utilization(self._result)

    @property
    def samples_per_second(self) -> float | None:
        """With INJECT_BATCH."""
        return figures.samples_per_second(self._result)

    @property
    def units_per_second(self) -> float | None:
        """Units of work: INJECT_BATCH, inject_units() or NVTX payloads."""
        return figures.units_per_second(self._result)

    @property
    def tables(self) -> list[str]:
        """The names of the attributes for the tables that this run has."""
        return [name for name, table in TABLES.items() if os.path.lexists(self.path / f"{table.file}.csv")]

    def table(self, name: str, totals: Totals | None = None) -> Frame:
        """A table by the name of its attribute or of its file (`op_sum`). `totals`: overrides that of load(). Raises the same errors as
        Frames, and ValueError if there is no table of that name."""
        table, totals = find(name), _checked(self._totals if totals is None else totals)
        key = table.file, totals
        if key not in self._frames:
            self._frames[key] = dataframes.make(self.columns(table, totals), self._library)
        return self._frames[key]

    def columns(self, table: Table[Any], totals: Totals) -> list[Column]:
        """The columns of a DataFrame. Raises BadFile, or NotInRun."""
        try:
            return read(self._result, table, totals)
        except NotInRun:
            raise
        except BadFile as problem:
            self._note(str(problem))
            raise

    plot_steps = _plot("steps")
    plot_over_time = _plot("over_time")
    plot_iterations = _plot("iterations")
    plot_windows = _plot("windows")
    plot_idle = _plot("idle")
    plot_idle_lines = _plot("idle_lines")
    plot_kernels = _plot("kernels")
    plot_kernel_share = _plot("kernel_share")
    plot_families = _plot("families")
    plot_lost_time = _plot("lost_time")
    plot_unused_time = _plot("unused_time")
    plot_modules = _plot("modules")
    plot_lines = _plot("lines")
    plot_roofline = _plot("roofline")
    plot_gemms = _plot("gemms")
    plot_copies = _plot("copies")
    plot_metrics = _plot("metrics")
    plot_phases = _plot("phases")
    plot_collectives = _plot("collectives")

    def _repr_html_(self) -> str:
        return summary.of_run(self._result, self.rank, self.host, self._problems)

    def __repr__(self) -> str:
        return f"<libinject.Run {self.name!r}: {self.verdict or 'no verdict'}{_step_text(self.steps)}>"


class Runs(Frames[Frame], Sequence[Run[Frame]]):
    """Several folders, in the given order; within one folder, rank-2 before rank-10. See load().

    Each table is one DataFrame of all runs that have it, with the columns `run` (the folder's name, or its path if names are not unique),
    `rank` and `host` in front; columns that one run's table lacks are missing in its rows. A run whose table can't be read is left out,
    with a warning, and a line in `problems`. Single runs are items: `runs[0].plot_steps()`."""

    def __init__(self, runs: Sequence[Run[Frame]], problems: Sequence[str] = (), frames: str = "pandas", totals: Totals = False) -> None:
        self._runs = list(runs)
        self._left_out = list(problems)
        self._library, self._totals = frames, totals
        self._frames: dict[tuple[str, Totals] | str, Frame] = {}
        names = [run.name for run in self._runs]
        distinct = len(set(names)) == len(names)
        self.names = names if distinct else [clean(str(run.path)) for run in self._runs]

    @overload
    def __getitem__(self, index: int) -> Run[Frame]: ...
    @overload
    def __getitem__(self, index: slice) -> Runs[Frame]: ...
    def __getitem__(self, index: int | slice) -> Run[Frame] | Runs[Frame]:
        if isinstance(index, slice):
            return Runs(self._runs[index], (), self._library, self._totals)
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run[Frame]]:
        return iter(self._runs)

    @property
    def problems(self) -> list[str]:
        """A line for each folder that was left out, then those of each run."""
        return list(dict.fromkeys([*self._left_out, *(problem for run in self._runs for problem in run.problems)]))

    @property
    def tables(self) -> list[str]:
        """The names of the attributes for the tables that any of the runs has."""
        there = {name for run in self._runs for name in run.tables}
        return [name for name in TABLES if name in there]

    def table(self, name: str, totals: Totals | None = None) -> Frame:
        """Like Run.table(), for all runs."""
        table, totals = find(name), _checked(self._totals if totals is None else totals)
        key = table.file, totals
        if key not in self._frames:
            parts, bad = [], []
            absent: NotInRun | None = None
            for of_run, run in zip(self.names, self._runs):
                try:
                    columns = [column for column in run.columns(table, totals) if column.name not in ("run", "rank", "host")]
                    parts.append((_front(of_run, run), columns))
                except NotInRun as problem:
                    absent = absent or problem
                except BadFile as problem:
                    bad.append(problem)
            if not parts and (bad or absent):
                raise (bad[0] if bad else cast(NotInRun, absent)) from None
            if bad:
                warnings.warn(f"{table.file}.csv of {len(bad)} of {len(self)} runs is left out: {bad[0]}", stacklevel=2)
            self._frames[key] = dataframes.make(joined(parts), self._library)
        return self._frames[key]

    @property
    def verdicts(self) -> Frame:
        """A row for each GPU of each run: `Device`, `Verdict`, `GPU Utilization (%)`, `Potential Gain (%)`, `Device Time (ns)`."""
        return self._made("verdicts", [(_front(name, run), [
            Column("Device", TEXT, [verdict.device for verdict in found]), Column("Verdict", TEXT, [verdict.verdict for verdict in found]),
            Column("GPU Utilization (%)", REAL, [verdict.utilization for verdict in found]),
            Column("Potential Gain (%)", REAL, [verdict.gain for verdict in found]),
            Column("Device Time (ns)", WHOLE, [verdict.device_time_ns for verdict in found])])
            for name, run in zip(self.names, self._runs) for found in (run.verdicts,)])

    @property
    def steps(self) -> Frame:
        """A row for each run: `Steps` (their number), `Step Time (ns)` (their median), `Mean (ns)`, `Min (ns)`, `Max (ns)`, `StdDev (ns)`,
        and `Unprofiled`, 1 or 0, as in Steps; `Samples/s` and `Units/s`."""
        times = {"Step Time (ns)": "median_ns", "Mean (ns)": "mean_ns", "Min (ns)": "min_ns", "Max (ns)": "max_ns",
                 "StdDev (ns)": "stdev_ns"}
        return self._made("steps", [(_front(name, run), [
            Column("Steps", WHOLE, [steps.count if steps else 0]),
            *(Column(column, REAL, [getattr(steps, field, None)]) for column, field in times.items()),
            Column("Unprofiled", WHOLE, [int(steps.unprofiled) if steps else None]), Column("Samples/s", REAL, [run.samples_per_second]),
            Column("Units/s", REAL, [run.units_per_second])])
            for name, run in zip(self.names, self._runs) for steps in (run.steps,)])

    def _made(self, name: str, parts: list[tuple[list[Column], list[Column]]]) -> Frame:
        if name not in self._frames:
            self._frames[name] = dataframes.make(joined(parts), self._library)
        return self._frames[name]

    def _repr_html_(self) -> str:
        runs = [(name, run._result, run.rank, run.host) for name, run in zip(self.names, self._runs)]
        return summary.of_runs(runs, self._left_out)

    def __repr__(self) -> str:
        return f"<libinject.Runs: {len(self)} run{'s' if len(self) != 1 else ''}>"


def _front(name: str, run: Run[Any]) -> list[Column]:
    return [Column("run", TEXT, [name]), Column("rank", WHOLE, [run.rank]), Column("host", TEXT, [run.host or None])]


def _step_text(steps: Steps | None) -> str:
    return f", step time {duration(steps.median_ns)}" if steps else ""


def _checked(totals: Totals) -> Totals:
    if totals not in (True, False, "only"):
        raise ValueError(f"totals is True, False or \"only\", not {totals!r}")
    return "only" if totals == "only" else bool(totals)


# For a text, only the file system can tell whether it is a single folder. Any: callers who know need not check again.
@overload
def load(source: Source, frames: Literal["pandas"] = "pandas",  # type: ignore[overload-overlap]
         totals: Totals = False) -> Run[pandas.DataFrame] | Any: ...
@overload
def load(source: Source, frames: Literal["polars"],  # type: ignore[overload-overlap]
         totals: Totals = False) -> Run[polars.DataFrame] | Any: ...
@overload
def load(source: Iterable[Source], frames: Literal["pandas"] = "pandas", totals: Totals = False) -> Runs[pandas.DataFrame]: ...
@overload
def load(source: Iterable[Source], frames: Literal["polars"], totals: Totals = False) -> Runs[polars.DataFrame]: ...
def load(source: Source | Iterable[Source], frames: str = "pandas", totals: Totals = False) -> Any:
    """Runs for a notebook or script (docs/notebook.md): a Run for one folder, Runs for anything else.

        run = libinject.load("inject-node-28228")
        run.verdict, run.steps.median_ns, run.kernels.head()
        ranks = libinject.load("out/rank-*")
        ranks.iterations.groupby("rank")["Duration (ns)"].median()

    `source`: a folder written by libinject gives a Run. A pattern (`*`, `?`, `[…]`, `**`), a folder that contains such folders, or a list
    of all of these gives Runs, even if there is only one. Folders that can't be read are left out of Runs, with a warning, and are listed
    in `problems`.

    `frames`: the library of the DataFrames, `pandas` or `polars`. It is imported with the first one; everything else works without it.

    `totals`: rows that are sums of others, which a plain sum would count twice: `Device` = `all` in `windows` and `iterations`, `API` =
    `[all]` in `memory`. False leaves them out, True includes them, "only" leaves out all others. Columns of the host are only in the rows
    `all`, such as `API Calls`, `Launches`, `Step Time (ns)` and `Samples/s`: run.table("windows", totals="only").

    Raises BadFile, whose text is one line, if there is no folder that can be read."""
    if frames not in dataframes.LIBRARIES:
        raise ValueError(f"frames is \"pandas\" or \"polars\", not {frames!r}")
    _checked(totals)
    single = isinstance(source, (str, os.PathLike))
    paths: list[pathlib.Path] = []
    problems: list[str] = []
    pattern = False
    for each in [source] if single else source:  # type: ignore[union-attr]
        text = os.path.expanduser(os.fsdecode(each))  # type: ignore[arg-type]
        if not text:  # it would be the current folder
            raise BadFile(pathlib.Path("''"), "no folder has an empty name")
        if "\0" in text:
            raise BadFile(pathlib.Path(text), "no path has a NUL in it")
        if glob.has_magic(text) and not os.path.lexists(text):
            pattern = True
            matches = [path for path in map(pathlib.Path, glob.glob(text, recursive=True)) if path.is_dir()]
            if not matches:
                problems.append(str(BadFile(pathlib.Path(text), "no folder's name is like this")))
            paths += sorted(matches, key=lambda path: [collect.natural(pathlib.Path(part)) for part in path.parts])
        else:
            paths.append(pathlib.Path(text))
    if single and not pattern and not _holds_runs(paths[0]):
        return Run(paths[0], frames, totals)
    runs = []
    for folder in collect.find(paths, problems):
        try:
            runs.append(Run[Any](folder, frames, totals))
        except BadFile as problem:
            problems.append(str(problem))
    if not runs:
        raise BadFile(paths[0] if paths else pathlib.Path("."), f"nothing to load: {problems[0] if problems else 'no folder is named'}")
    if problems:
        more = f", and {len(problems) - 1} more, see problems" if len(problems) > 1 else ""
        warnings.warn(f"left out: {problems[0]}{more}", stacklevel=2)
    return Runs(runs, problems, frames, totals)


def _holds_runs(path: pathlib.Path) -> bool:
    """Whether this is a folder of runs, and not a run itself. Read errors are reported by the code that reads it later."""
    try:
        return not os.path.lexists(path / "run.json") and any((inside / "run.json").exists() for inside in path.iterdir())
    except OSError:
        return False
