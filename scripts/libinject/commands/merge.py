# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject merge`: one report from the folders of a distributed job's ranks."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import typer

from libinject import console, files
from libinject.result import BadFile

if TYPE_CHECKING:
    from libinject.merge.store import Store

_MOST_PROBLEMS = 20
_MANY = 50  # folders; reading more than this takes a while


def merge(
    folders: list[str] = typer.Argument(..., metavar="FOLDER…", help="Result folders of ranks, folders that contain such folders, or "
                                         "Parquet copies.", callback=console.named),
    out: pathlib.Path = typer.Option(None, "--out", "-o", metavar="FILE", parser=console.path,
                                     help="Write the report as an HTML page; - for stdout, instead of the tables."),
    parquet: pathlib.Path = typer.Option(None, metavar="FOLDER", parser=console.path, help="Write the merged tables as Parquet files into a new folder."),
    ranks: str = typer.Option("16", metavar="COUNT", help="Show at most this many ranks on the terminal."),
    jobs: str = typer.Option("auto", metavar="WHICH", help="Which folders belong to one job: one (all), folders (those in the same folder), auto (all, unless a "
                             "rank occurs twice)."),
    force: bool = typer.Option(False, "--force", help="Merge the folders even if they are not ranks of one job."),
    as_json: bool = console.Json,
) -> None:
    """Merge the result folders of a distributed job's ranks: step times, skew, stragglers, waiting, scaling, links."""
    from libinject.merge import terminal
    from libinject.merge.jobs import HOW, NotOneJob
    from libinject.merge.store import Failure, Store

    if str(out) == "-" and as_json:
        console.fail("-o - and --json both write to stdout")
    most_ranks = int(console.number("--ranks", ranks, 1, whole=True))
    if jobs not in HOW:
        console.fail(f"--jobs {jobs}: accepted are {', '.join(HOW)}")
    try:
        with Store() as store:
            built = _merge(store, [pathlib.Path(folder) for folder in folders], out, parquet, jobs, force)
    except (BadFile, Failure, NotOneJob) as problem:
        console.fail(str(problem))
    if as_json:
        console.print_json(built)
    elif str(out) != "-":
        terminal.show(built, most_ranks)


def _merge(store: Store, folders: list[pathlib.Path], out: pathlib.Path | None, parquet: pathlib.Path | None, jobs: str, force: bool) -> dict[str, Any]:
    from libinject.merge import code, page, report
    from libinject.merge import parquet as copies
    from libinject.report.icicles import stack_boxes

    problems: list[str] = []
    if not _read(store, folders, problems):
        _warn(problems)
        console.fail("no result folders to merge")
    built = report.build(store, jobs, problems, force)
    stacks = [stack_boxes(code.stacks(store, number, problems)) for number in range(len(built["jobs"]))] if out is not None else []
    _warn(problems)
    for job in built["jobs"]:
        _warn([f"{job['name']}: {problem}" for problem in job["problems"]])
    if parquet is not None:
        copies.write(store, parquet)
    if out is not None:
        files.write_or_fail(out, page.page(built, [report.heat_map(store, number) for number in range(len(built["jobs"]))], stacks))
    return built


def _read(store: Store, folders: list[pathlib.Path], problems: list[str]) -> int:
    from libinject.merge import collect

    found = collect.find(folders, problems)
    if not console.err.is_terminal or len(found) < _MANY:
        return collect.read(store, found, problems)
    import rich.progress

    with rich.progress.Progress(console=console.err, transient=True) as bar:
        task = bar.add_task("reading folders", total=len(found))
        return collect.read(store, found, problems, lambda: bar.advance(task))


def _warn(problems: list[str]) -> None:
    for problem in problems[:_MOST_PROBLEMS]:
        console.warn(problem)
    if len(problems) > _MOST_PROBLEMS:
        console.warn(f"… and {len(problems) - _MOST_PROBLEMS} more: --json lists them all")


def add_to(app: typer.Typer) -> None:
    app.command(name="merge", short_help="Merge the folders of a distributed job's ranks.")(merge)
