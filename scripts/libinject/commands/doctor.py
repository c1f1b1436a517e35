# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject doctor`: whether libinject will work here, and what to do if not."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import typer

from libinject import console

_MARKS = {"good": ("ok", "green"), "note": ("note", "cyan"), "warning": ("warning", "yellow"), "bad": ("bad", "bold red")}


def doctor(
    python: str = typer.Option(sys.executable, metavar="PROGRAM", help="The Python whose packages include the CUDA libraries (PyTorch's, JAX's)."),
    trial: bool = typer.Option(True, help="Run a few CUDA calls under libinject and check what it writes."),
    as_json: bool = console.Json,
) -> None:
    """Show what libinject finds on this machine: library, driver, GPUs, CUPTI, permission to read counters, and other users of them.
    Exit status 1 if something keeps it from working."""
    from libinject.doctor import machine
    from libinject.doctor import trial as trial_run

    findings = []
    try:
        folder = pathlib.Path.cwd()
    except FileNotFoundError:  # it has been removed
        folder = None
    parts = [machine.look(folder)] + ([trial_run.look(python)] if trial else [])
    for part in parts:
        for finding in part:
            findings.append(finding)
            if not as_json:
                mark, colour = _MARKS[finding.state]
                console.out.print(f"{mark:>7}", style=colour, end="  ")
                console.print_wrapped(f"{finding.subject}: {finding.text}", indent=" " * 9, used=9)
                if finding.remedy:
                    console.print_wrapped(finding.remedy, " " * 9 + "-> ", " " * 12)
    if as_json:
        console.print_json([dataclasses.asdict(finding) for finding in findings])
    raise typer.Exit(1 if any(finding.state == "bad" for finding in findings) else 0)


def add_to(app: typer.Typer) -> None:
    app.command(name="doctor", short_help="Check whether libinject works on this machine.")(doctor)
