# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Lines of Python, as in the tables."""

from __future__ import annotations

from libinject.result import Row

# For the column that the page makes from three.
MEANINGS = {"Place": "File, line and function; in brackets what is no line."}


def is_line(row: Row) -> bool:
    """False for the rows `[device]`, `[none]` and `[unattributed]`."""
    return bool(row.get("File")) and isinstance(row.get("Line"), int) and bool(row.get("Function"))


def place_of(row: Row) -> str:
    """As in tracebacks, with the file's base name."""
    file = str(row.get("File") or "")
    return f"{file.rpartition('/')[2]}:{row['Line']} {row['Function']}" if file else str(row["Function"])


def path_of(row: Row) -> str:
    """A path that an editor opens."""
    return f"{row['File']}:{row['Line']}"
