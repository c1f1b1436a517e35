# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Makes values from folders safe to show. Names and run.json come from the program: any text, any type."""

from __future__ import annotations

import collections
from typing import Any

from libinject.result import Row

LONGEST = 4096


def clean(text: str, most: int = LONGEST) -> str:
    """`text` without unprintable characters (control characters, bidirectional controls, lone surrogates), and with its middle removed if
    it is longer than `most`."""
    shown = text if len(text) <= most else text[: most * 2 // 3] + " … " + text[-(most // 3) + 3 :]
    return shown if shown.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)


def text_of(value: Any) -> str:
    """A text, or a number as text; empty for anything else."""
    if isinstance(value, str):
        return clean(value)
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**64 else ""


def described(form: str, row: Row, grouped: bool = False) -> str:
    """`form` with column names replaced by the row's cells, and a question mark for empty ones. `grouped`: 1,000."""
    cells = collections.defaultdict(lambda: "?", ((name, f"{cell:,}" if grouped and isinstance(cell, (int, float)) else cell)
                                                  for name, cell in row.items() if cell not in (None, "")))
    return form.format_map(cells)


def texts(value: Any) -> list[str]:
    return [text for item in value if (text := text_of(item))] if isinstance(value, list) else []


def objects(value: Any) -> list[dict]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def object_of(value: Any) -> dict:
    return value if isinstance(value, dict) else {}


def whole(value: Any) -> int | None:
    """An integer of at most 64 bits."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def share(part: float, of: float) -> float:
    """In percent, with one decimal, as in the tables."""
    return round(100 * part / of, 1) if of else 0.0
