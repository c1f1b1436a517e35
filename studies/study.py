# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Shared by the studies of training programs: sweeps in rounds, with each folder checked by `inject check`, tables, and a text whose values
all come from the tables.

A study is a folder with run.py (the variables and the questions), a program, and text.md, in which {name} stands for a table or value.
Results are OUT/NAME.csv for each table and OUT/README.md. Finished runs are not repeated: the same command continues.
"""

import argparse
import csv
import dataclasses
import datetime
import math
import pathlib
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "build" / "deps" / "python")]

from libinject.check.check import findings  # noqa: E402
from libinject.check.rules import ERROR  # noqa: E402
from libinject.result import Result  # noqa: E402
from libinject.sweep import points  # noqa: E402
from libinject.sweep.measured import measure_all  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Spread:
    """A value in the rounds that have one."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self, digits: int = 1) -> str:
        """`12.1 (11.8 … 12.4)`, without the range if it vanishes at these digits."""
        if not self.values:
            return ""
        low, middle, high = (f"{value:,.{digits}f}" for value in (min(self.values), self.median, max(self.values)))
        return middle if low == high else f"{middle} ({low} … {high})"


def ratio(above: Spread, below: Spread, factor: float = 1.0) -> Spread:
    """Computed round by round, since both were measured shortly after each other."""
    return Spread(tuple(factor * a / b for a, b in zip(above.values, below.values) if b)) if len(above.values) == len(below.values) else Spread(())


class Run:
    """A point of a sweep in one round: the processes that used the GPU, and the sweep's own values."""

    def __init__(self, status: str, results: Sequence[Result], figures: Mapping[str, float | None]):
        self.status, self.results, self.figures = status, results, figures

    def rows(self, table: str) -> list[dict]:
        """Rows of all processes."""
        return [row for result in self.results for row in result.rows(table)]

    def total(self, table: str, column: str, where: Callable[[dict], bool] = lambda row: True) -> float | None:
        """Sum over rows of all processes; None if there is no such table."""
        rows = self.rows(table)
        return math.fsum(row[column] or 0 for row in rows if where(row)) if rows else None

    def share(self, table: str, column: str, where: Callable[[dict], bool]) -> float | None:
        """Percent of the table's total."""
        whole = self.total(table, column)
        return 100 * self.total(table, column, where) / whole if whole else None


@dataclasses.dataclass
class Point:
    values: dict[str, str]
    rounds: list[Run] = dataclasses.field(default_factory=list)

    def spread(self, of: Callable[[Run], float | None]) -> Spread:
        found = [of(run) for run in self.rounds if run.status == points.Status.DONE.value]
        return Spread(tuple(value for value in found if value is not None and math.isfinite(value)))

    def figure(self, name: str, factor: float = 1.0) -> Spread:
        """One of FIGURES in libinject/sweep/measured.py."""
        return self.spread(lambda run: None if run.figures.get(name) is None else factor * run.figures[name])

    @property
    def status(self) -> str:
        """The outcome of the rounds: `done`, or all distinct outcomes."""
        return ", ".join(sorted({run.status for run in self.rounds}))

    @property
    def is_done(self) -> bool:
        """Whether at least one round is done."""
        return any(run.status == points.Status.DONE.value for run in self.rounds)


class Study:
    def __init__(self, folder: pathlib.Path, description: str, arguments: Sequence[str] | None = None):
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(f"study-{folder.name}"), help="where runs and results go; what is there is not run again")
        parser.add_argument("--rounds", type=int, default=3, help="how often each point is run")
        parser.add_argument("--values", action="append", default=[], metavar="NAME=VALUES", help="fewer values of a variable, as `inject sweep --var` takes them")
        parser.add_argument("--gpus", type=int, help="how many GPUs to use at most; all there are by default")
        parser.add_argument("--program", help="what is run instead of the study's program, for tests: variables stand in braces")
        self.options = parser.parse_args(arguments)
        self.folder, self.out = folder, self.options.out
        self.values = dict(text.split("=", 1) for text in self.options.values)
        self.figures: dict[str, str] = {}
        self.problems: list[str] = []
        self.checked = 0

    def gpus(self) -> int:
        if self.options.gpus is not None:
            return self.options.gpus
        try:
            listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return 0
        return len(listed.splitlines())

    def sweep(self, name: str, variables: Mapping[str, str], command: Sequence[str], options: Sequence[str]) -> list[Point]:
        """Runs each combination once per round. `variables`: NAME: VALUES; `command` and `options` as for `inject sweep`."""
        varied = {variable: self.values.get(variable, values) for variable, values in variables.items()}
        command = shlex.split(self.options.program) if self.options.program else command
        # A program for tests need not use them all.
        used = {variable: values for variable, values in varied.items() if any(f"{{{variable}}}" in word for word in command)}
        found: dict[tuple, Point] = {}
        for turn in range(1, self.options.rounds + 1):
            folder = self.out / name / f"round{turn}"
            folder.parent.mkdir(parents=True, exist_ok=True)
            chosen = [word for variable, values in used.items() for word in ("--var", f"{variable}={values}")]
            done = subprocess.run([sys.executable, str(ROOT / "scripts" / "inject"), "sweep", *chosen, "--out", str(folder), *options, "--", *command], check=False)
            if done.returncode == 130:
                sys.exit(130)
            if done.returncode == 2:
                sys.exit(f"{name}: inject sweep refused its options")
            self._read(folder, found)
        return list(found.values())

    def _read(self, folder: pathlib.Path, found: dict[tuple, Point]) -> None:
        sweep = points.read(folder)
        for measured in measure_all(sweep):
            point = measured.point
            results = [Result(path) for path in sweep.tables(point)]
            self._check(results)
            if not point.status.finished:
                self.problems.append(f"{folder}, {point.title}: {point.status.value} {point.why}".rstrip())
            key = tuple(point.values.items())
            found.setdefault(key, Point(point.values)).rounds.append(Run(point.status.value, results, measured.figures))

    def _check(self, results: Iterable[Result]) -> None:
        for result in results:
            self.checked += 1
            self.problems += [f"{result.path}: {finding}" for finding in findings(result.path) if finding.severity == ERROR]

    def table(self, name: str, points: Iterable[Point], cells: Callable[[Point], Mapping[str, str]]) -> None:
        """{name} of the text, and OUT/name.csv: a row for each point, after its variables. A blank cell is a problem if a round is done."""
        rows = []
        for point in points:
            row = {**{variable.capitalize(): value for variable, value in point.values.items()}, **cells(point)}
            blank = [column for column, cell in row.items() if cell == ""]
            if blank and point.is_done:
                self.problems.append(f"table {name}, {' '.join(point.values.values())}: nothing in {', '.join(blank)}")
            rows.append(row)
        self.rows(name, rows)

    def rows(self, name: str, rows: Sequence[Mapping[str, str]]) -> None:
        """Likewise for rows that are not points."""
        columns = list(rows[0]) if rows else []
        with open(self.out / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        lines = [columns, ["---"] * len(columns), *(list(row.values()) for row in rows)]
        self.figures[name] = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) if rows else "(not run)"

    def findings(self, sentences: Iterable[str]) -> None:
        """{findings} of the text: sentences that end with the table from which they are derived. An empty one had too few points."""
        self.figures["findings"] = "\n".join(f"- {sentence}" for sentence in sentences if sentence) or "Too few points for any."

    def conditions(self, swept: Iterable[Point]) -> str:
        """GPUs, driver and libraries, from run.json."""
        for point in swept:
            for run in point.rounds:
                for result in run.results:
                    devices = [device.get("name", "") for device in result.run.get("devices") or []]
                    versions = result.run.get("versions") or {}
                    told = [f"{devices.count(name)} × {name}" for name in dict.fromkeys(devices)]
                    return ", ".join([*told, f"CUDA driver {versions.get('driver', '?')}", f"CUPTI {versions.get('cupti', '?')}",
                                      datetime.datetime.now(datetime.timezone.utc).date().isoformat()])
        return "nothing was run"

    def finish(self) -> int:
        """Writes the text; returns exit status 1 if there are problems, which are printed."""
        self.figures.update(rounds=str(self.options.rounds), checked=str(self.checked))
        text = (self.folder / "text.md").read_text(encoding="utf-8")
        unknown = sorted(set(re.findall(r"\{(\w+)\}", text)) - set(self.figures))
        self.problems += [f"text.md: there is no figure {{{name}}}" for name in unknown]
        text = re.sub(r"\{(\w+)\}", lambda found: self.figures.get(found[1], ""), text)
        (self.out / "README.md").write_text(text, encoding="utf-8")
        for problem in self.problems:
            print(f"study: {problem}", file=sys.stderr)
        print(f"{self.out / 'README.md'}: {self.checked} folders checked, {len(self.problems)} problems")
        return 1 if self.problems else 0
