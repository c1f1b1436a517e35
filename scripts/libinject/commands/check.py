# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject check`: whether folders keep what the documentation promises of their columns."""

from __future__ import annotations

import collections

import typer

from libinject import console
from libinject.result import BadFile, printable

_MOST = 20  # findings printed for each rule and folder


def check(
    folders: list[str] = typer.Argument(..., metavar="FOLDER…", help="Folders written by libinject.", callback=console.named),
    as_json: bool = console.Json,
) -> None:
    """Check that the tables of one or more folders keep what their documentation promises. Prints a line for each cell that does
    not; status 1 if any of them is an error."""
    from libinject.check.check import findings
    from libinject.check.rules import ERROR

    unread, failed = False, False
    told = {}
    for folder in dict.fromkeys(folders):
        try:
            found = findings(folder)
        except BadFile as problem:
            console.warn(str(problem))
            unread = True
            continue
        failed = failed or any(finding.severity == ERROR for finding in found)
        told[folder] = [{"rule": finding.rule, "severity": finding.severity, "file": finding.place.file, "row": finding.place.row,
                         "column": finding.place.column, "text": finding.place.text} for finding in found]
        if not as_json:
            _print(folder, found)
    if as_json:
        console.print_json(told)
    if unread or failed:
        raise typer.Exit(console.BAD_USE if unread else 1)


def _print(folder: str, found: list) -> None:
    numbers: collections.Counter[str] = collections.Counter(finding.rule for finding in found)
    shown: collections.Counter[str] = collections.Counter()
    where = printable(folder, 1000).rstrip("/") or "/"
    for finding in found:
        shown[finding.rule] += 1
        if shown[finding.rule] <= _MOST:
            warning = "" if finding.severity == "error" else f" ({finding.severity})"
            text = printable(f"{where}/{finding}{warning}", 4000)
            # If not on a terminal, each finding is a single line, so that it can be searched.
            console.print_wrapped(text, "", "    ") if console.out.is_terminal else console.out.print(text)
        elif shown[finding.rule] == _MOST + 1:
            console.out.print(f"{where}: {finding.rule}: … and {numbers[finding.rule] - _MOST} more")


def add_to(app: typer.Typer) -> None:
    app.command(name="check", short_help="Check the tables against their documentation.")(check)
