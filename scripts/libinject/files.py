# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes the files that `inject` makes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import sys
import tempfile

from libinject import console

_NO_FILES_NAME = re.compile("/(dev(?!/shm/)|proc)/")  # names of devices and descriptors, whose file may no longer have a name


def write_whole(path: pathlib.Path, text: str) -> None:
    """Writes atomically: a reader sees either the old file or the new one. Only the user can read it, since it contains command lines.
    Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def remove_unfinished(path: pathlib.Path) -> None:
    """Removes what write_whole() left of `path` in processes that were killed. Only where no other process writes it. Raises OSError."""
    name = re.compile(re.escape(f".{path.name}.") + "[a-z0-9_]{8}")  # as tempfile has them
    for each in path.parent.iterdir():
        if name.fullmatch(each.name) and each.is_file() and not each.is_symlink():
            each.unlink(missing_ok=True)


def write_named(path: pathlib.Path, text: str) -> None:
    """Writes a file that the user named: follows links, and writes into things that are not files (a pipe, /dev/stdout). Raises OSError."""
    target = path
    if path.is_symlink() and path.lstat().st_uid in (0, os.geteuid()):  # other users' links, in /tmp, may lead elsewhere
        target = pathlib.Path(os.path.realpath(path))
    stream = _stream(path)
    if stream is None and not (path.exists() and (not path.is_file() or _NO_FILES_NAME.match(os.path.abspath(path)))):
        write_whole(target, text)
        return
    with open(path if stream is None else os.dup(stream), "w", encoding="utf-8", newline="") as file:
        file.write(text)


def _stream(path: pathlib.Path) -> int | None:
    """The descriptor, stdout or stderr, that `path` leads to. If it were opened again, other output would overwrite the file."""
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            if os.path.samefile(path, descriptor):
                stream.flush()
                return descriptor
    return None


def write_or_fail(path: pathlib.Path, text: str) -> None:
    """Writes a file that the user named; - is stdout. Exits on errors."""
    if str(path) == "-":
        console.print_bytes(text.encode())
        return
    try:
        write_named(path, text)
    except OSError as error:
        console.fail(f"can't write '{path}': {(error.strerror or str(error)).lower()}")
