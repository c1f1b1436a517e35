# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Output of all `inject` commands: results on stdout, everything else on stderr, one line for each problem."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import pathlib
import re
import sys
import textwrap
from typing import Any, NoReturn

import rich.console
import typer

BAD_USE = 2  # exit status, the same as for wrong options


class _Console(rich.console.Console):
    def on_broken_pipe(self) -> None:
        """Overrides Rich, which would discard stdout even if it is stderr that was closed, and exit with status 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


# Text is printed verbatim: the brackets in kernel names are not markup.
out = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = _Console(highlight=False, markup=False, emoji=False, soft_wrap=True, stderr=True)

Json = typer.Option(False, "--json", help="Print the result as JSON.")


def fail(message: str, status: int = BAD_USE) -> NoReturn:
    warn(message)
    raise typer.Exit(status)


def named(folders: list[str]) -> list[str]:
    """For arguments: an empty one, as from an unset variable of a script, does not mean the current folder."""
    if "" in folders:
        fail("a folder's name is empty")
    return folders


def path(text: str | pathlib.Path) -> pathlib.Path:
    """Parser of an option's value. An empty one would be the current folder as well."""
    if not str(text):
        fail("the name of a file or folder, in an option, is empty")
    return pathlib.Path(text)


def warn(message: str) -> None:
    """File names are untrusted: none of their escape sequences may reach the terminal."""
    with contextlib.suppress(OSError):  # the status reports it as well
        err.print("inject: " + "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message))


def number(option: str, text: str, least: int, whole: bool = False) -> float:
    """The value of an option. Exits unless it is a number of at least `least`."""
    form = r"[+-]?\d+" if whole else r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
    value = float(text) if re.fullmatch(form, text, re.ASCII | re.IGNORECASE) else math.nan
    most = 1_000_000_000
    why = f"not a {'whole ' if whole else ''}number" if math.isnan(value) else "too small" if value < least else "too large" if value > most else ""
    if why:
        fail(f"{option} '{text[:40]}': {why}; accepted: {least} {f'to {most}' if value > most else 'or more'}")
    return value


def width() -> int:
    """Width of the layout in columns: the terminal's or COLUMNS, at least 80; 120 if neither is known."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal():
        return max(80, min(int(columns[:6]), 1000))
    return max(80, out.width) if out.is_terminal else 120


def print_wrapped(text: str, first: str = "", indent: str = "", used: int = 0) -> None:
    """Prints lines of at most width() columns, broken at spaces: the first begins with `first`, all others with `indent`. `used`: columns
    of the first line that are printed already."""
    lines = textwrap.wrap(text, width(), initial_indent=first or " " * used, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
    for line in lines or [first.rstrip()]:
        out.print(line[used:])
        used = 0


def print_json(value: Any) -> None:
    """Prints ASCII, which is valid JSON in any locale even if names are not text, and contains nothing that acts on a terminal."""
    sys.stdout.write(json.dumps(finite(value), indent=2, default=os.fspath) + "\n")


def print_bytes(data: bytes) -> None:
    """Prints bytes unchanged, whatever the locale's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def finite(value: Any) -> Any:
    """Replaces NaN and infinity, which JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def duration(nanoseconds: float) -> str:
    """A time as in the text summary: 1.234ms."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.3f}{unit}"
    return f"{nanoseconds:.0f}ns"


def size(number: float) -> str:
    """Bytes in the same form: 1.234MB, of 10^6."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= each:
            return f"{number / each:.3f}{unit}"
    return f"{number:.0f}B"


def per_second(number: float) -> str:
    """A rate; slow programs have less than one sample in a second."""
    return f"{number:,.{1 if abs(number) >= 100 else 3}f}"
