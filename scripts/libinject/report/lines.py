# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Lines of Python, as the tables have them."""

from __future__ import annotations

from libinject.result import Row

# Of the column that the page makes of three.
MEANINGS = {"Place": "File, line and function; in brackets what is no line."}


def is_line(row: Row) -> bool:
    """The rows `[device]`, `[none]` and `[unattributed]` are none."""
    return bool(row.get("File")) and isinstance(row.get("Line"), int) and bool(row.get("Function"))


def place_of(row: Row) -> str:
    """As tracebacks have it, with the file's own name."""
    file = str(row.get("File") or "")
    return f"{file.rpartition('/')[2]}:{row['Line']} {row['Function']}" if file else str(row["Function"])


def path_of(row: Row) -> str:
    """What an editor opens."""
    return f"{row['File']}:{row['Line']}"
