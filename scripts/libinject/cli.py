# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The command `inject`. Each subcommand is a module of its own; slow imports happen where they are needed."""

from __future__ import annotations

import typer

import libinject
from libinject import console
from libinject.commands import check, compare, doctor, merge, report, run, sweep

app = typer.Typer(name="inject", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
                  context_settings={"help_option_names": ["-h", "--help"]},
                  help="Find out where a training program spends the GPU's time, and why: run programs under libinject and read "
                       "its results.")


def _version(wanted: bool) -> None:
    if wanted:
        console.out.print(f"inject {libinject.__version__}")
        raise typer.Exit


@app.callback()
def _options(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version.")) -> None:
    del version


for command in (run, doctor, report, check, compare, merge, sweep):
    command.add_to(app)


def main() -> None:
    app()
