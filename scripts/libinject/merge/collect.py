# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Finds the folders and reads them into the store."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Callable, Iterable
from typing import Any

from libinject import figures
from libinject.merge import parquet
from libinject.merge.schema import LARGEST, LARGEST_RANK, REAL, RUNS, TABLES, TEXT, WHOLE
from libinject.merge.store import Store
from libinject.result import OTHERS, BadFile, Result, Table, printable, read_table

_RANK = re.compile(r"[0-9]{1,6}")
_MOST_MESSAGES = 5
_LONGEST_ID = 500


def find(paths: Iterable[pathlib.Path], problems: list[str]) -> list[pathlib.Path]:
    """The result folders and Parquet folders among `paths` and their subfolders, each once."""
    found: dict[pathlib.Path, pathlib.Path] = {}

    def take(folder: pathlib.Path) -> None:
        found.setdefault(folder.resolve(), folder)

    for path in paths:
        try:
            if not path.is_dir():
                problems.append(str(BadFile(path, "not a folder" if path.exists() else "no such folder")))
                continue
            there = [path] if _is_result(path) else sorted((folder for folder in path.iterdir() if folder.is_dir()), key=natural)
            inside = [folder for folder in there if _is_result(folder)]
            lacking = [folder for folder in (there if inside or not _lacks_run(path) else [path]) if not _is_result(folder) and _lacks_run(folder)]
        except OSError as error:
            problems.append(str(BadFile(path, (error.strerror or "can't be read").lower())))
            continue
        for folder in inside:
            take(folder)
        problems += [str(BadFile(folder, "left out: it has no run.json; if its process was killed, 'injectctl recover' makes it")) for folder in lacking]
        if not inside and not lacking:
            problems.append(str(BadFile(path, "neither a libinject folder (it has no run.json) nor one that contains such folders")))
    return list(found.values())


def _is_result(folder: pathlib.Path) -> bool:
    try:
        return (folder / "run.json").exists() or (folder / parquet.RUNS_FILE).exists()
    except OSError:
        return True  # reading it later reports why it can't be read


def _lacks_run(folder: pathlib.Path) -> bool:
    """Whether the folder was left by a process that did not get as far as its run.json."""
    return any((folder / name).exists() for name in ("records", "records.at", *(f"{table}.csv" for table in TABLES)))


def _has_copies(folder: pathlib.Path) -> bool:
    try:
        return (folder / parquet.RUNS_FILE).exists()
    except OSError:
        return False


def natural(path: pathlib.Path) -> list[tuple[int, str]]:
    """Sorts rank-2 before rank-10."""
    return [(int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in re.split(r"([0-9]{1,18})", path.name)]


def read(store: Store, folders: Iterable[pathlib.Path], problems: list[str], progress: Callable[[], None] = lambda: None) -> int:
    """Reads the folders into the store, and returns how many runs it has then."""
    runs = 0
    for folder in folders:
        if _has_copies(folder):
            runs += parquet.read(store, folder, runs, problems)
        else:
            try:
                result = Result(folder)
            except BadFile as problem:
                problems.append(str(problem))
            else:
                store.add("runs", [run_row(runs, result, problems)])
                store.folders[runs] = folder
                if stale := result.stale:
                    problems.append(f"{printable(str(folder), 1000)}: {', '.join(printable(name, 40) for name in stale[:5])}"
                                    f"{' …' if len(stale) > 5 else ''} older than the other tables: could not be rewritten")
                for name in TABLES:
                    store.add(name, _table_rows(runs, folder / f"{name}.csv", f"{name}.csv" in result.run["files"], problems))
                runs += 1
        progress()
    store.flush()
    return runs


def run_row(number: int, result: Result, problems: list[str]) -> tuple[Any, ...]:
    run = result.run
    where = result.path / "run.json"
    rank = run.get("rank")
    if rank is not None and not _RANK.fullmatch(str(rank)):
        problems.append(str(BadFile(where, f"'{printable(str(rank), 40)}' is not a rank: a number is expected")))
        rank = None
    command, job = run.get("command_line"), _dict(run.get("job"))
    world = _whole(job.get("world_size"))
    batch = _text(_dict(run.get("options")).get("INJECT_BATCH"))
    diagnosis = [entry for entry in _list(run.get("diagnosis")) if isinstance(entry, dict)]
    worst = max(diagnosis, key=lambda entry: _whole(entry.get("device_time_ns")) or 0, default={})
    time = _whole(worst.get("device_time_ns")) or 0
    # Under torchrun each process sees all GPUs of its host, and uses one.
    used = [entry.get("device") for entry in diagnosis]
    gpus = [device for device in map(_dict, run["devices"]) if not used or device.get("id") in used]
    gain = _whole(worst.get("potential_gain_ns"))
    judged = _whole(worst.get("judged_time_ns")) or time
    row = {
        "run": number, "folder": _text(str(result.path)), "parent": _text(str(result.path.resolve().parent)),
        "rank": None if rank is None else int(rank), "host": _text(run.get("host")), "pid": _whole(run.get("pid")),
        "time_zero": _whole(_dict(run.get("time_zero")).get("utc_ns")), "state": _text(run.get("state")),
        "command": " ".join(map(_text, command)) if isinstance(command, list) else "",
        "gpu": json.dumps([_text(device.get("name")) for device in gpus]),
        "gpu_uuid": json.dumps([_text(device.get("uuid")) for device in gpus]),
        "verdict": _text(worst.get("verdict")), "gain": gain / judged if gain is not None and judged > 0 else None,
        "lost": json.dumps(result.lost()),
        "messages": json.dumps([printable(_text(text), 200) for text in _list(run.get("messages"))[:_MOST_MESSAGES]]),
        "job_id": _text(job.get("id"))[:_LONGEST_ID], "world_size": world if world is not None and 0 < world <= LARGEST_RANK + 1 else None,
        "unit_ranges": batch[:_LONGEST_ID] if batch.startswith("nvtx:") else "",
        "batch": figures.stated_batch({"INJECT_BATCH": batch}), "gaps": json.dumps(result.gaps())}
    return tuple(row[name] for name in RUNS)


def _table_rows(run: int, path: pathlib.Path, listed: bool, problems: list[str]) -> list[tuple[Any, ...]]:
    kept = TABLES[path.stem]
    try:
        if not path.exists():
            if listed:
                raise BadFile(path, "missing, though run.json lists it")
            return []
        table = read_table(path, frozenset(kept.columns))
        missing = [column for column in kept.needed if column not in table.columns]
        if missing:
            raise BadFile(path, f"no column '{missing[0]}'", 1)
        return _values(run, table)
    except BadFile as problem:
        problems.append(str(problem))
    except OSError as error:
        problems.append(str(BadFile(path, (error.strerror or "can't be read").lower())))
    return []


def _values(run: int, table: Table) -> list[tuple[Any, ...]]:
    kept = TABLES[table.name]
    columns = [(name if name in table.columns else kept.instead.get(name, name), kind) for name, kind in kept.columns.items()]
    rows = []
    for row in table:
        cells: list[Any] = [run]
        for name, kind in columns:
            if kind == TEXT:
                cells.append(row.get(name, ""))
                continue
            value: Any = row.get(name)
            if value is None or kind == WHOLE and value == OTHERS:
                cells.append(None)
            elif kind == REAL:
                cells.append(float(value))
            elif -LARGEST <= value <= LARGEST:
                cells.append(int(value))
            else:
                raise BadFile(table.path, f"{value} in column '{name}' is too large")
        rows.append(tuple(cells))
    return rows


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None


def _text(value: object) -> str:
    # JSON can contain lone surrogates, which DuckDB rejects.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _list(value: object) -> list:
    return value if isinstance(value, list) else []


def _dict(value: object) -> dict:
    return value if isinstance(value, dict) else {}
