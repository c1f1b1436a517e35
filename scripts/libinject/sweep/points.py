# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The folder of a sweep: points.json, which says what has been run, and a folder for each point."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import fcntl
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from libinject import files
from libinject.result import BadFile, printable

FILE = "points.json"
_VERSION = 1
_LARGEST = 64 << 20


class Status(enum.Enum):
    WAITING = "not run"
    RUNNING = "running"
    DONE = "done"
    MEMORY = "out of memory"
    FAILED = "failed"
    TIMEOUT = "timed out"
    INTERRUPTED = "interrupted"
    NO_TABLES = "no tables"

    @property
    def finished(self) -> bool:
        """The result would be the same: do not run it again."""
        return self in (Status.DONE, Status.MEMORY)


@dataclasses.dataclass
class Point:
    values: dict[str, str]
    folder: str = ""
    status: Status = Status.WAITING
    why: str = ""
    exit_status: int | None = None
    seconds: float | None = None

    @property
    def title(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())


@dataclasses.dataclass
class Sweep:
    folder: pathlib.Path
    command: list[str]
    variables: dict[str, list[str]]
    batch_variable: str | None
    settings: dict[str, str]
    points: list[Point]

    def write(self) -> None:
        text = json.dumps({"inject_sweep": _VERSION, "command": self.command, "variables": self.variables,
                           "batch_variable": self.batch_variable, "settings": self.settings,
                           "points": [{**dataclasses.asdict(point), "status": point.status.value} for point in self.points]}, indent=2)
        files.write_whole(self.folder / FILE, text + "\n")

    def log(self, point: Point) -> pathlib.Path:
        return self.folder / point.folder / "log.txt"

    def new_folder(self, point: Point) -> pathlib.Path:
        """A new folder: that of an earlier attempt stays."""
        plain = "-".join(f"{name}={value}" for name, value in point.values.items())
        name = re.sub(r"[^A-Za-z0-9._=+-]", "_", plain)[:100].lstrip(".-")
        number = self.points.index(point) + 1
        for attempt in range(1, 10_000):
            folder = self.folder / (f"{number:03d}-{name}" + ("" if attempt == 1 else f".{attempt}"))
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                continue
            point.folder = folder.name
            return folder
        raise FileExistsError(str(self.folder / name))

    def tables(self, point: Point) -> list[pathlib.Path]:
        """Result folders of a point, one for each process that used the GPU."""
        if not point.folder:
            return []
        return sorted(path.parent for path in (self.folder / point.folder).glob("*/run.json"))


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> Iterator[bool]:
    """False where another process runs this sweep."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def with_points(sweep: Sweep, combinations: Sequence[Mapping[str, str]]) -> Sweep:
    """In the order of `combinations`; points that were run before are kept with their results."""
    known = {tuple(sorted(point.values.items())): point for point in sweep.points}
    wanted = [known.pop(tuple(sorted(values.items())), None) or Point(dict(values)) for values in combinations]
    sweep.points = [*wanted, *known.values()]
    return sweep


def read(folder: pathlib.Path) -> Sweep:
    """Raises BadFile."""
    path = folder / FILE
    if not folder.is_dir():
        raise BadFile(folder, "no such folder" if not folder.exists() else "not a folder")
    if not path.is_file():
        raise BadFile(folder, f"not the folder of a sweep: it has no {FILE}")
    try:
        if path.stat().st_size > _LARGEST:
            raise BadFile(path, "far too large")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(path, (error.strerror or "can't be read").lower()) from None
    except json.JSONDecodeError as error:
        raise BadFile(path, f"not JSON: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError):
        raise BadFile(path, "not a sweep's") from None
    if not isinstance(content, dict) or content.get("inject_sweep") != _VERSION:
        raise BadFile(path, "not written by a sweep, or by another version")
    try:
        return _sweep(folder, content)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadFile(path, f"not as a sweep writes it: {printable(str(error), 80)}") from None


def _sweep(folder: pathlib.Path, content: dict[str, Any]) -> Sweep:
    variables = {_text(name): _texts(values) for name, values in content["variables"].items()}
    if not variables or not all(variables.values()):
        raise ValueError("a variable without values, or none")
    batch = content["batch_variable"]
    points: list[Point] = []
    for item in content["points"]:
        name = _text(item["folder"])
        # Nothing outside the sweep's folder is looked at.
        if name != os.path.basename(name) or name in (".", ".."):
            raise ValueError(f"folder {name}")
        seconds, exit_status = item["seconds"], item["exit_status"]
        points.append(Point({_text(key): _text(value) for key, value in item["values"].items()}, name, Status(item["status"]),
                            _text(item["why"]), None if exit_status is None else int(exit_status), None if seconds is None else float(seconds)))
        if set(points[-1].values) != set(variables):
            raise ValueError("a point with other variables")
    return Sweep(folder, _texts(content["command"]), variables, None if batch is None else _text(batch),
                 {_text(name): _text(value) for name, value in content["settings"].items()}, points)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("text expected")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("a list expected")
    return [_text(item) for item in value]
