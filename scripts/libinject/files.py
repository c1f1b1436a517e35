# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes the files that `inject` makes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile

from libinject import console


def write_whole(path: pathlib.Path, text: str) -> None:
    """Atomically: a reader sees either the old file or the new one. Readable by the user only, as it has command lines. Raises OSError."""
    if path.exists() and not path.is_file():  # /dev/stdout, a pipe
        path.write_text(text, encoding="utf-8")
        return
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


def write_or_fail(path: pathlib.Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        console.fail(f"can't write '{path}': {(error.strerror or str(error)).lower()}")
