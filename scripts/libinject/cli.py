# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The command `inject`. Each subcommand is a module of its own; slow imports happen where they are needed."""

from __future__ import annotations

import io
import sys
from typing import Any

import typer
import typer.core

import libinject
from libinject import console, near
from libinject.commands import check, compare, doctor, lib, merge, report, run, sweep

# Typer's own name for it differs from version to version.
_WrongUse = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


class _Group(typer.core.TyperGroup):
    """Wrong use is one line, as is what the system refuses."""

    def main(self, *arguments: Any, standalone_mode: bool = True, **more: Any) -> Any:
        if not standalone_mode:
            return super().main(*arguments, standalone_mode=False, **more)
        for stream in (sys.stdout, sys.stderr):  # another encoding than UTF-8 lacks some of our characters
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            status = super().main(*arguments, standalone_mode=False, **more)
        except SystemExit as left:  # nobody reads the output any more: 1 would say what the command has found
            status = console.BAD_USE if left.code == 1 else left.code
        except typer.Abort:
            console.warn("interrupted")
            status = 130
        except _WrongUse as error:
            if "NoArgsIsHelp" in type(error).__name__:
                error.show()
            else:
                console.warn(_wrong_use(error))
            status = console.BAD_USE
        except OSError as error:
            console.warn(": ".join(part for part in (str(error.filename or ""), (error.strerror or str(error)).lower()) if part))
            status = console.BAD_USE
        sys.exit(status if isinstance(status, int) else 0)


def _wrong_use(error: Any) -> str:
    text = error.format_message()
    name = getattr(error, "option_name", None)
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoSuchOption" and context is not None:
        options = [option for parameter in context.command.params for option in (*parameter.opts, *parameter.secondary_opts) if option[:2] == "--"]
        meant = near.nearest(name, [*options, "--help"])
        text = f"there is no option {name}" + (f"; did you mean {meant}?" if meant else "")
    command = context.command_path if context is not None else "inject"
    return f"{' '.join(text.split()).rstrip('.')} ({command} --help)"


class _Command(typer.core.TyperCommand):
    """Its usage is written as in the documentation."""

    def collect_usage_pieces(self, context: Any) -> list[str]:
        return ["[OPTIONS]", *(str(parameter.metavar) for parameter in self.params if parameter.param_type_name == "argument")]


app = typer.Typer(name="inject", cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
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


for command in (run, doctor, report, check, compare, merge, sweep, lib):
    command.add_to(app)
for added in app.registered_commands:
    added.cls = _Command


def main() -> None:
    app()
