# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject compare`: what changed from one run to another, and which changes exceed the noise."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

import typer

from libinject import console, files
from libinject.result import BadFile, Result, printable

if TYPE_CHECKING:
    from libinject.compare.conditions import Condition, Outcome
    from libinject.compare.measures import Run

_FAILED, _UNDECIDED = 1, 3  # exit status: a condition of --fail-if holds; none does, but one cannot be decided


def groups(arguments: list[str]) -> list[list[str]]:
    """A B C: each a group of one folder. A1 A2 vs B1 B2: two groups. Raises ValueError."""
    if "vs" not in arguments:
        found = [[argument] for argument in arguments]
    else:
        found = [[]]
        for argument in arguments:
            if argument == "vs":
                found.append([])
            else:
                found[-1].append(argument)
    if len(found) < 2 or not all(found):
        raise ValueError("compare at least two folders: A B, A B C (each with the first), or with repeated runs A1 A2 vs B1 B2")
    return found


def compare(
    folders: list[str] = typer.Argument(..., metavar="FOLDER…", help="A B: what changed from A to B. A B C: from A to B, and from A to C. "
                                        "A1 A2 vs B1 B2: runs repeated on either side.", callback=console.named),
    fail_if: list[str] = typer.Option([], "--fail-if", metavar="CONDITION", help="Exit with status 1 if this holds, 3 if there are too few "
                                      "samples to tell: 'step_time > +5%', 'kernel:*softmax* > +200us', 'utilization < 80%'. Repeatable."),
    strict: bool = typer.Option(False, "--strict", help="Judge conditions by the figures alone, ignoring the interval."),
    least: str = typer.Option("1", "--least", metavar="PERCENT", help="Do not report smaller changes."),
    top: str = typer.Option("10", "--top", metavar="COUNT", help="Rows to show of each table on the terminal."),
    out: pathlib.Path = typer.Option(None, "--out", "-o", metavar="FILE", parser=console.path,
                                     help="Write an HTML page: compare.html; - for stdout, instead of the tables."),
    as_json: bool = console.Json,
) -> None:
    """Step time, utilization, kernels, shapes, phases, calls, copies and memory of runs, and which of them changed by more than noise."""
    from libinject.compare import changes, conditions, describe

    to_stdout = str(out) == "-"
    if to_stdout and as_json:
        console.fail("-o - and --json both write to stdout")
    least_change = console.number("--least", least, 0) / 100
    rows = int(console.number("--top", top, 1, whole=True))
    try:
        parsed = [conditions.parse(text) for text in fail_if]
        wanted = groups(folders)
    except (conditions.BadCondition, ValueError) as problem:
        console.fail(str(problem))
    read = [_read(paths) for paths in wanted]
    sides = [found for found, _ in read]
    skipped = not all(all_read for _, all_read in read)
    if not sides[0] or not any(sides[1:]):
        console.fail("nothing to compare")
    sides = [side for side in sides if side]
    runs = [run for side in sides for run in side]
    basis = changes.measure(runs)
    comparisons = [changes.compare(sides[0], side, basis, least_change) for side in sides[1:]]
    for problem in dict.fromkeys(problem for run in runs for problem in run.result.problems):
        console.warn(printable(problem, 500))

    outcomes = [_check(parsed, comparison, strict, least_change) for comparison in comparisons]
    if as_json:
        from libinject.compare.as_json import comparison_as_dict
        console.print_json({"basis": basis.value, "least": least_change,
                            "comparisons": [comparison_as_dict(*pair) for pair in zip(comparisons, outcomes)]})
    elif not to_stdout:
        from libinject.compare.terminal import print_comparison
        for number, (comparison, of_it) in enumerate(zip(comparisons, outcomes)):
            if number:
                console.out.print()
            print_comparison(comparison, rows, of_it)
    if out is not None:
        from libinject.compare.page import page
        files.write_or_fail(out, page(comparisons, outcomes))
        if not to_stdout:
            console.err.print(f"inject: wrote {printable(str(out), 500)}")
    results = [outcome.result for of_it in outcomes for outcome in of_it]
    for outcome in (outcome for of_it in outcomes for outcome in of_it):
        console.err.print(f"inject: {describe.gate(outcome)}")
    if conditions.FAILED in results:
        raise typer.Exit(_FAILED)
    if parsed and skipped:
        console.fail("a folder could not be read: the gate is not judged without it")
    if conditions.UNDECIDED in results:
        raise typer.Exit(_UNDECIDED)


def _read(paths: list[str]) -> tuple[list[Run], bool]:
    """One side's runs, and whether all of them could be read."""
    from libinject.compare.measures import Run
    from libinject.merge.collect import run_row
    from libinject.merge.schema import RUNS

    found: list[Run] = []
    all_read = True
    seen: set[str] = set()
    first_of: dict[tuple[object, ...], str] = {}
    for path in paths:
        try:
            folder = os.path.realpath(path)
        except OSError as error:  # of a working directory that is gone
            console.warn(f"{printable(path, 500)}: {(error.strerror or str(error)).lower()}")
            all_read = False
            continue
        if folder in seen:  # it would look like a repetition with the same result
            console.warn(f"'{printable(path, 500)}' is given twice on one side: it counts once")
            continue
        seen.add(folder)
        try:
            result = Result(path)
        except BadFile as problem:
            console.warn(printable(str(problem), 500))
            all_read = False
            continue
        row = dict(zip(RUNS, run_row(0, result, [])))
        process = tuple(row[name] for name in ("host", "pid", "time_zero"))
        if "" not in process and None not in process and (other := first_of.setdefault(process, path)) is not path:
            console.warn(f"'{printable(path, 400)}' and '{printable(other, 400)}' on one side are the same run: it counts once")
            continue
        found.append(Run(result))
    return found, all_read


def _check(parsed: list[Condition], comparison, strict: bool, least: float) -> list[Outcome]:
    from libinject.compare import conditions

    try:
        return [conditions.check(condition, comparison, strict, least) for condition in parsed]
    except conditions.BadCondition as problem:
        console.fail(str(problem))


def add_to(app: typer.Typer) -> None:
    app.command(name="compare", short_help="Show what changed from one run to another.")(compare)
