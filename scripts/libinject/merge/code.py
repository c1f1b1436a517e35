# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What in the program launches the kernels, and what the GPUs waited for: sums over the ranks (docs/code.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from libinject.merge.jobs import Job, spans
from libinject.merge.schema import SUMS
from libinject.merge.store import Store, quoted
from libinject.result import BadFile, Result
from libinject.stacks import Stack, read_stacks

MOST_ROWS = 10_000  # per table, those with the most time
_LINE = ("File", "Line", "Function")
# For each table: its name in the report, its key, and the time of which its rows have shares.
_TABLES = {
    "op_sum": ("operators", ("Operator",), "Self Time (ns)"),
    "module_sum": ("modules", ("Module",), "Self Time (ns)"),
    "line_sum": ("lines", _LINE, "User Code Time (ns)"),
    "gap_line_sum": ("gap_lines", _LINE, "Idle Time (ns)"),
}
# Modules with the same path may differ between ranks if each rank has a part of the model.
_TOLD = {
    "module_sum": "string_agg(DISTINCT Class, ', ' ORDER BY Class) AS class, min(Parent) AS parent, ",
    "line_sum": """max("In Library") AS in_library, """,
}


def _name(column: str) -> str:
    """`Self Time (ns)` becomes `self_time_ns`."""
    return column.removeprefix("Idle: ").replace(" (ns)", "_ns").replace(" ", "_").replace("-", "_").lower()


def _sum(column: str) -> str:
    """A sum that is NULL if the value is missing for one of the ranks."""
    return f"CASE WHEN count({quoted(column)}) = count(*) THEN sum({quoted(column)}) END AS {_name(column)}"


def of_job(store: Store, number: int, job: Job) -> dict[str, Any] | None:
    """None if no rank has such a table."""
    found: dict[str, Any] = {}
    having: set[int] = set()
    for table, (name, keys, time) in _TABLES.items():
        of_this = f"FROM {table} JOIN member USING (run) WHERE job = ?"
        having |= (ranks := {row["rank"] for row in store.rows(f"SELECT DISTINCT rank {of_this}", [number])})
        key = ", ".join(map(quoted, keys))
        (all_,) = store.rows(f"SELECT coalesce(sum({quoted(time)}), 0) AS time, count(DISTINCT ({key})) AS rows {of_this}", [number])
        rows = store.rows(f"""
            SELECT {', '.join(f'{quoted(column)} AS {_name(column)}' for column in keys)}, {_TOLD.get(table, '')}{', '.join(map(_sum, SUMS[table]))},
                   count(DISTINCT rank) AS ranks, max({quoted(time)}) AS most_ns, arg_max(rank, {quoted(time)}) AS most_rank
            {of_this} GROUP BY {key} ORDER BY {_name(time)} DESC NULLS LAST, {key} LIMIT ?""", [number, MOST_ROWS])
        for row in rows:
            row["share"] = row[_name(time)] / all_["time"] if all_["time"] > 0 and row[_name(time)] is not None else None
        found[name] = {"ranks": len(ranks), "time_ns": all_["time"], "of": all_["rows"], "rows": rows}
    if not having:
        return None
    if without := sorted(set(job.ranks) - having):
        job.problems.append(f"no operators, modules and lines: rank {spans(without)}")
    return found


def stacks(store: Store, number: int, problems: list[str]) -> Iterator[Stack]:
    """The stacks of all ranks, read from the folders themselves, since copies do not have them."""
    for row in store.rows("SELECT run FROM member WHERE job = ? ORDER BY rank", [number]):
        folder = store.folders.get(row["run"])
        if folder is None:
            continue
        try:
            result = Result(folder)
        except BadFile as problem:
            problems.append(str(problem))
            continue
        yield from read_stacks(result)
        problems += result.problems
