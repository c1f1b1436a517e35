# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The command `inject`. Each subcommand is a module of its own; slow imports happen where they are needed."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from typing import Any

import typer
import typer.core

import libinject
from libinject import console, near
from libinject.commands import check, compare, doctor, lib, merge, report, run, sweep
from libinject.result import printable

# Typer's name for this class differs between versions.
_WrongUse = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


class _Group(typer.core.TyperGroup):
    """Reports wrong usage and operating system errors on one line."""

    def main(self, *arguments: Any, standalone_mode: bool = True, **more: Any) -> Any:
        if not standalone_mode:
            return super().main(*arguments, standalone_mode=False, **more)
        for stream in (sys.stdout, sys.stderr):  # encodings other than UTF-8 lack some of our characters
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            status = super().main(*arguments, standalone_mode=False, **more)
            sys.stdout.flush()
        except SystemExit as left:  # stdout's reader has gone: status 1 would be taken for a command's result
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
        except BrokenPipeError:
            status = console.BAD_USE
        except OSError as error:
            where = error.filename or ("stdout" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) else "")
            console.warn("stdout is closed" if error.errno == errno.EBADF else
                         ": ".join(part for part in (str(where), (error.strerror or str(error)).lower()) if part))
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
    """Help in the form used in the documentation."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        for parameter in self.params:
            if parameter.param_type_name == "argument":  # Typer would add the Python type
                setattr(parameter, "display_type_rich", lambda ctx: None)  # noqa: B010

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


def _open_missing_streams() -> None:
    """Opens closed standard streams. Otherwise the next opened file would take the place of one, and receive what is printed. Printing to a
    closed stdout is still an error, and a command started by `inject run` has the streams closed again."""
    for name, mode in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:  # the lowest free descriptor
            setattr(sys, name, open(os.open(os.devnull, mode), "r" if name == "stdin" else "w"))  # noqa: SIM115


def main() -> None:
    _open_missing_streams()
    try:
        status = app()
    except SystemExit as end:
        status = end.code
    except Exception as error:  # noqa: BLE001 - the interpreter's status would be 1, which says what a command has found
        place = traceback.extract_tb(error.__traceback__)[-1]
        console.warn(f"the Python package '{error.name}' is not installed" if isinstance(error, ModuleNotFoundError) else
                     f"the Python package '{error.name}' does not fit: {printable(str(error), 500)}" if isinstance(error, ImportError) else
                     f"{type(error).__name__}: {printable(str(error), 500)} ({os.path.basename(place.filename)}:{place.lineno})")
        status = console.BAD_USE
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # otherwise the interpreter tries again at exit, and sets its own status
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(status)
