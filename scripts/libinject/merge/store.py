# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The tables of all folders in DuckDB."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from libinject.merge.schema import RUNS, TABLES, WHOLE
from libinject.result import printable

if TYPE_CHECKING:
    from typing_extensions import Self

_MEMORY = "400MB"  # beyond that it writes into a temporary folder
_ROWS_AT_ONCE = 50_000


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Failure(Exception):
    """DuckDB can't continue: out of memory, or no space for its temporary files."""


class Store:
    """`runs` and the tables of schema.TABLES, each with the column `run`."""

    def __init__(self) -> None:
        import duckdb

        try:
            self._folder = tempfile.TemporaryDirectory(prefix="inject-merge-")
        except OSError as error:
            raise Failure(f"no temporary folder: {error.strerror}") from None
        self.folder = pathlib.Path(self._folder.name)
        self.folders: dict[int, pathlib.Path] = {}  # of runs that are not copies
        # DuckDB downloads nothing, and reads only the files we name.
        self.connection = duckdb.connect(config={
            "memory_limit": _MEMORY, "temp_directory": str(self.folder), "preserve_insertion_order": False,
            "autoinstall_known_extensions": False, "autoload_known_extensions": False})
        self._waiting: dict[str, list[Sequence[Any]]] = {}
        self._types = {"runs": tuple(RUNS.values())}
        self._create("runs", RUNS)
        for name, kept in TABLES.items():
            columns = {"run": WHOLE, **kept.columns}
            self._types[name] = tuple(columns.values())
            self._create(name, columns)

    def _create(self, table: str, columns: dict[str, str]) -> None:
        self.connection.execute(f"CREATE TABLE {table} ({', '.join(f'{quoted(name)} {kind}' for name, kind in columns.items())})")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *_: object) -> None:
        import duckdb

        self.connection.close()
        self._folder.cleanup()
        if isinstance(error, (duckdb.OutOfMemoryException, duckdb.IOException)):
            raise Failure(printable(str(error).partition("\n")[0], 300)) from None

    def add(self, table: str, rows: Iterable[Sequence[Any]]) -> None:
        waiting = self._waiting.setdefault(table, [])
        waiting += rows
        if len(waiting) >= _ROWS_AT_ONCE:
            self._insert(table)

    def flush(self) -> None:
        for table in self._waiting:
            self._insert(table)

    def _insert(self, table: str) -> None:
        rows, self._waiting[table] = self._waiting[table], []
        self.insert(table, self._types[table], rows)

    def insert(self, table: str, types: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Inserts column by column: one statement per row takes a hundred times as long."""
        if rows:
            columns = ", ".join(f"unnest(${index + 1}::{kind}[])" for index, kind in enumerate(types))
            self.connection.execute(f"INSERT INTO {table} SELECT {columns}", [list(column) for column in zip(*rows)])

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        done = self.connection.execute(sql, list(parameters))
        names = [column[0] for column in done.description]
        return [dict(zip(names, row)) for row in done.fetchall()]

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        self.connection.execute(sql, list(parameters))
