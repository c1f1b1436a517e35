# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The merged tables as Parquet files, and back."""

from __future__ import annotations

import pathlib

from libinject.merge.schema import RUNS, TABLES
from libinject.merge.store import Store, quoted
from libinject.result import BadFile, printable

RUNS_FILE = "runs.parquet"


def write(store: Store, folder: pathlib.Path) -> None:
    """Raises BadFile. The folder is a new one, or empty."""
    import duckdb

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadFile(folder, "not empty: Parquet copies go into a new folder")
        # `runs` comes last: a folder without it is not taken for a whole one.
        for table in (*TABLES, "runs"):
            store.connection.table(table).order("run").write_parquet(str(folder / f"{table}.parquet"), compression="zstd")
    except OSError as error:
        raise BadFile(folder, (error.strerror or "can't be written").lower()) from None
    except duckdb.Error as error:
        raise BadFile(folder, printable(str(error).partition("\n")[0], 200)) from None


def read(store: Store, folder: pathlib.Path, first: int, problems: list[str]) -> int:
    """Adds the runs of a folder that `write` has made, numbered from `first` on; how many they are."""
    runs = _read_table(store, folder, "runs", list(RUNS), list(RUNS), first, problems)
    if runs is None:
        return 0
    for name, kept in TABLES.items():
        _read_table(store, folder, name, ["run", *kept.needed], ["run", *kept.columns], first, problems)
    count, least, most, distinct = store.connection.execute(
        "SELECT count(*), min(run), max(run), count(DISTINCT run) FROM runs WHERE run >= ?", [first]).fetchone() or (0, 0, 0, 0)
    if count and (least != first or most != first + count - 1 or distinct != count):
        problems.append(str(BadFile(folder / RUNS_FILE, "its runs are not numbered from 0 on")))
        for name in ("runs", *TABLES):
            store.run(f"DELETE FROM {name} WHERE run >= ?", [first])
        return 0
    return count


def _read_table(store: Store, folder: pathlib.Path, table: str, needed: list[str], columns: list[str], first: int,
                problems: list[str]) -> bool | None:
    import duckdb

    path = folder / f"{table}.parquet"
    # In a name of ours: DuckDB takes brackets and asterisks for a pattern.
    link = store.folder / "copy.parquet"
    link.unlink(missing_ok=True)
    try:
        if not path.is_file():
            raise BadFile(path, "missing" if not path.exists() else "not a regular file")
        link.symlink_to(path.resolve())
        store.flush()
        there = [row[0] for row in store.connection.execute("SELECT * FROM (DESCRIBE SELECT * FROM read_parquet($1))", [str(link)]).fetchall()]
        missing = [name for name in needed if name not in there]
        if missing:
            raise BadFile(path, f"no column '{missing[0]}'")
        types = {**RUNS, **(TABLES[table].columns if table in TABLES else {})}
        cells = ", ".join(_cell(name, types[name], first) if name in there else "NULL" for name in columns)
        store.run(f"INSERT INTO {table} SELECT {cells} FROM read_parquet(?)", [str(link)])
        return True
    except BadFile as problem:
        problems.append(str(problem))
    except (duckdb.Error, OSError) as error:
        problems.append(str(BadFile(path, f"not Parquet of this kind: {printable(str(error).partition(chr(10))[0].replace(str(link), path.name), 200)}")))
    return None


def _cell(name: str, kind: str, first: int) -> str:
    cell = f"CAST({quoted(name)} AS {kind})"
    if name == "run":
        return f"{cell} + {first}"
    # As the reader of CSV refuses them.
    return f"CASE WHEN isfinite({cell}) THEN {cell} END" if kind == "DOUBLE" else cell
