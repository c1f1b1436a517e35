# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject run`: replaces this process with a command under libinject, so that status, signals and process id stay the same. The final
message is therefore the library's: which command to type next, or that CUDA was never used."""

from __future__ import annotations

import os
import resource
import shlex
import signal
import time

import typer

from libinject import console, environment


def _help(variable: str, text: str) -> str:
    return f"{text} ({variable})"


def run(
    command: list[str] = typer.Argument(..., metavar="-- COMMAND [ARGUMENT]…", help="What to run."),
    window: str = typer.Option(None, metavar="WHEN", help=_help("INJECT_WINDOW", "When to profile: auto, api, iter:100+10, time:2m+10s, …")),
    after: str = typer.Option(None, metavar="ACTION", help=_help("INJECT_AFTER", "What happens after the last window: continue, interrupt, exit.")),
    timeout: str = typer.Option(None, metavar="TIME", help=_help("INJECT_TIMEOUT", "End the last window after this time: 10m.")),
    out: str = typer.Option(None, "--out", "-o", metavar="FOLDER", help=_help("INJECT_OUT", "Folder for the tables; %p is the process id, %r the rank.")),
    metrics: str = typer.Option(None, metavar="METRICS", help=_help("INJECT_METRICS", "Hardware metrics: off, auto, or a list.")),
    trace: str = typer.Option(None, metavar="FORMATS", help=_help("INJECT_TRACE", "Also write raw records: off, csv, chrome.")),
    batch: str = typer.Option(None, metavar="BATCH", help=_help("INJECT_BATCH", "Samples per iteration: a number, auto, nvtx:NAME.")),
    summary: str = typer.Option(None, metavar="PLACE", help=_help("INJECT_SUMMARY", "Where the text summary goes: stderr, off, a file.")),
    setting: list[str] = typer.Option([], "--set", "-s", metavar="NAME=VALUE", help="Any other libinject variable: RING=64M."),
    show: bool = typer.Option(False, "--show", help="Print the command line with its variables instead of running it."),
    as_json: bool = typer.Option(False, "--json", help="Like --show, as JSON."),
) -> None:
    """Run a command under libinject. The tables go to inject-HOST-PID in the working directory, or to --out."""
    variables = environment.variables({"WINDOW": window, "AFTER": after, "TIMEOUT": timeout, "OUT": out, "METRICS": metrics, "TRACE": trace,
                                       "BATCH": batch, "SUMMARY": summary}, setting)
    if as_json:
        console.print_json({"environment": variables, "command": command})
        return
    if show:
        line = " ".join([*(f"{name}={_quoted(value)}" for name, value in variables.items()), *map(_quoted, command)])
        console.print_bytes(os.fsencode(line + "\n"))
        return
    if not command[0]:
        console.fail("can't run '': the command is empty", 127)
    # For libinject/entry/command_end.cpp: the state of this process before it became the command.
    before = f"{os.getpid()}:{int(time.time())}:{resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt}"
    env = {**environment.given(), **variables, "_INJECT_RUN": before}
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these from its start on
        signal.signal(number, signal.SIG_DFL)
    problem = _become(command, env)
    if (script := environment.by_shell(command, problem)) is not None:
        problem = _become(script, env)
    console.fail(f"can't run '{command[0]}': {(problem.strerror or str(problem)).lower()}",
                 127 if isinstance(problem, FileNotFoundError) else 126)


def _quoted(text: str) -> str:
    """Quoted for a shell, so that it can be displayed and copied; unprintable characters are escaped byte by byte."""
    if text.isprintable():
        return shlex.quote(text)
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\{byte:03o}" for byte in os.fsencode(text))
    return f"$'{''.join(plain)}'"


def _become(command: list[str], env: dict[str, str]) -> OSError:
    """Returns only on failure."""
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        return error


def add_to(app: typer.Typer) -> None:
    app.command(name="run", short_help="Run a command under libinject.", context_settings={"allow_interspersed_args": False})(run)
