# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject report`: one HTML page, which opens offline, from the folders of one or more runs."""

from __future__ import annotations

import contextlib
import pathlib
import webbrowser

import typer

from libinject import console, files
from libinject.result import BadFile, Result

_MOST_FOLDERS = 32  # each takes a few hundred kB


def report(
    folders: list[str] = typer.Argument(..., metavar="FOLDER…", help="Folders written by libinject.", callback=console.named),
    out: pathlib.Path = typer.Option(pathlib.Path("report.html"), "--out", "-o", metavar="FILE", parser=console.path,
                                     help="The file to write; - for stdout."),
    open_it: bool = typer.Option(False, "--open", help="Open the page in a browser."),
    as_json: bool = console.Json,
) -> None:
    """Make one HTML page of one or more folders: verdict, plots and tables. It opens offline; --json prints what it shows."""
    from libinject.report.model import page_model

    if len(set(folders)) > _MOST_FOLDERS:
        console.fail(f"{len(set(folders))} folders are too many for one page: it shows at most {_MOST_FOLDERS}")
    results, problems = [], []
    for folder in dict.fromkeys(folders):
        try:
            results.append(Result(folder))
        except BadFile as problem:
            problems.append(str(problem))
            console.warn(str(problem))
    if not results:
        console.fail("nothing to report: no folder could be read")
    with console.err.status("reading") if console.err.is_terminal else contextlib.nullcontext():
        model = page_model(results, problems)
    for result in results:
        if not result.complete:
            console.warn(f"{result.path}: the process was killed, and its last window is not complete" if result.run.get("state") == "recovered" else
                         f"{result.path}: the run has not ended, or was killed: 'injectctl recover {result.path}' makes its tables")
        for problem in result.problems:
            console.warn(problem)
    if as_json:
        console.print_json(model)
        return

    from libinject.page.values import clean
    from libinject.report.page import render

    text = render(model)
    files.write_or_fail(out, text)
    if str(out) == "-":
        return
    console.out.print(f"{clean(str(out))}: {len(results)} run{'s' if len(results) > 1 else ''}, {len(text.encode()) / 1e6:.1f} MB")
    if open_it and not webbrowser.open(out.resolve().as_uri()):
        console.warn("no browser could be started")


def add_to(app: typer.Typer) -> None:
    app.command(name="report", short_help="Make an HTML page of one or more runs.")(report)
