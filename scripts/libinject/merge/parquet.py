# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Writes the merged tables as Parquet files, and reads them."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterable

from libinject.merge.schema import LARGEST, LARGEST_RANK, REAL, RUNS, RUNS_OTHERS, TABLES, TEXT, WHOLE
from libinject.merge.store import Store, quoted
from libinject.result import BadFile, printable

RUNS_FILE = "runs.parquet"


def write(store: Store, folder: pathlib.Path) -> None:
    """Raises BadFile. The folder is new or empty."""
    import duckdb

    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise BadFile(folder, "not UTF-8: Parquet files can't be written there") from None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadFile(folder, "not empty: Parquet copies need a new folder")
        # `runs` is written last: a folder without it is incomplete.
        for table in (*TABLES, "runs"):
            store.connection.table(table).order("run").write_parquet(str(folder / f"{table}.parquet"), compression="zstd")
    except OSError as error:
        raise BadFile(folder, (error.strerror or "can't be written").lower()) from None
    except duckdb.Error as error:
        number = re.search(r'"errno":"(\d{1,4})"', str(error))
        raise BadFile(folder, os.strerror(int(number[1])).lower() if number else printable(str(error).partition("\n")[0], 200)) from None


def read(store: Store, folder: pathlib.Path, first: int, problems: list[str]) -> int:
    """Adds the runs of a folder made by `write`, numbered from `first` on; returns their number."""
    store.flush()
    try:
        count = _read_table(store, folder, "runs", [name for name in RUNS if name not in RUNS_OTHERS], RUNS, {}, first, None)
    except BadFile as problem:
        problems.append(str(problem))
        return 0
    for name, kept in TABLES.items():
        try:
            if kept.is_new and not os.path.lexists(folder / f"{name}.parquet"):
                continue
            _read_table(store, folder, name, {"run": WHOLE, **kept.needed}, {"run": WHOLE, **kept.columns}, kept.instead, first, count)
        except BadFile as problem:
            problems.append(str(problem))
    return count


def _read_table(store: Store, folder: pathlib.Path, table: str, needed: Iterable[str], columns: dict[str, str], instead: dict[str, str],
                first: int, runs: int | None) -> int:
    """`runs`: the number of runs, or None when reading the table `runs` itself. Returns the number of runs. Raises
    BadFile."""
    import duckdb

    path = folder / f"{table}.parquet"
    # Under a name of our own, because DuckDB treats brackets and asterisks as a pattern.
    link = store.folder / "copy.parquet"
    try:
        if not path.is_file():
            raise BadFile(path, "missing" if not path.exists() else "not a regular file")
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())
        described = store.connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(link)]).fetchall()
        there = {row[0] for row in described}
        missing = [name for name in needed if name not in there]
        if missing:
            raise BadFile(path, f"no column '{missing[0]}'")
        cells = ", ".join(_cell(source, kind) if source in there else "''" if kind == TEXT else "NULL" for source, kind in (
            (name if name in there else instead.get(name, name), kind) for name, kind in columns.items() if name != "run"))
        if runs is None:
            runs, least, most, distinct = store.connection.execute(
                "SELECT count(*), min(run), max(run), count(DISTINCT run) FROM read_parquet(?)", [str(link)]).fetchall()[0]
            if runs and (least, most, distinct) != (0, runs - 1, runs):
                raise BadFile(path, "its runs are not numbered from 0")
        store.run(f"INSERT INTO {table} SELECT number + {first}, * EXCLUDE (number) "
                  f"FROM (SELECT {_cell('run', WHOLE)} AS number, {cells} FROM read_parquet(?)) WHERE number >= 0 AND number < ?",
                  [str(link), runs])
        return runs
    except (duckdb.Error, OSError) as error:
        why = printable(str(error).partition("\n")[0].replace(str(link), path.name), 200)
        raise BadFile(path, f"not Parquet of this kind: {why}") from None


def _cell(name: str, kind: str) -> str:
    """Values that the CSV reader refuses become NULL here."""
    cell = f"CAST({quoted(name)} AS {kind})"
    if kind == TEXT:
        return f"coalesce({cell}, '')"
    if kind == REAL:
        return f"CASE WHEN isfinite({cell}) THEN {cell} END"
    most, least = (LARGEST_RANK + (name == "world_size"), 0) if name in ("rank", "world_size") else (1 << 62, -1 << 62) if name == "time_zero" else (LARGEST, -LARGEST)
    return f"CASE WHEN {cell} BETWEEN {least} AND {most} THEN {cell} END"
