# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""A folder's raw records, row by row: from the tables of INJECT_TRACE=csv, otherwise from the timeline of INJECT_TRACE=chrome. Their size
is proportional to the run's length."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from libinject.page.values import clean, objects, text_of
from libinject.result import BadFile, Cell, Result, read_rows

WORK, CALLS, LIBRARY, TIMELINE = "cuda_gpu_trace.csv", "cuda_api_trace.csv", "library_trace.csv", "trace.json.gz"
LARGEST = 512 << 20  # bytes of a file, uncompressed: about 5 million records
_LONGEST_LINE = 1 << 20
_DEVICE = re.compile(r".*\((\d+)\)$", re.DOTALL)


class Work(NamedTuple):
    """Work on a GPU. Times are ns since `time_zero`."""

    start: int
    duration: int
    correlation: str
    device: str
    stream: str
    name: str
    is_kernel: bool


class Call(NamedTuple):
    start: int
    duration: int
    correlation: str  # "" if it submitted nothing
    thread: str
    name: str
    is_library: bool


def _whole(value: Cell) -> int:
    """-1 if the cell is not a time."""
    return int(value) if isinstance(value, (int, float)) and abs(value) < 2**62 else -1


class Records:
    def __init__(self, result: Result):
        self._result = result
        self._threads = {str(thread.get("tid")): clean(text_of(thread.get("name")), 60) for thread in objects(result.run.get("threads"))}
        self._csv = (result.path / WORK).exists()
        self.file = WORK if self._csv else TIMELINE
        self.there = self._csv or (result.path / TIMELINE).exists()

    def thread_name(self, thread: str) -> str:
        return f"{self._threads.get(thread) or 'thread'} ({clean(thread, 20)})"

    def work(self) -> Iterator[Work]:
        """May raise BadFile, also after yielding some of it."""
        if self._csv:
            for row in self._rows(WORK, ("Start (ns)", "Duration (ns)", "CorrId", "Device", "Strm", "Name", "GrdX")):
                start, duration, correlation, device, stream, name, grid = row
                if _whole(duration) >= 0 and isinstance(start, (int, float)):
                    found = _DEVICE.match(str(device))
                    yield Work(_whole(start), _whole(duration), str(correlation), found[1] if found else str(device), str(stream),
                               str(name), grid is not None)
            return
        for event in self._events(("kernel", "gpu_memcpy", "gpu_memset")):
            more = event["args"]
            yield Work(event["ts"], event["dur"], str(more.get("correlation")), text_of(more.get("device")), text_of(more.get("stream")),
                       event["name"], event["cat"] == "kernel")

    def calls(self) -> Iterator[Call]:
        """Calls of the CUDA runtime, the driver, and libraries; none if these were not recorded. May raise BadFile."""
        if self._csv:
            columns = ("Start (ns)", "Duration (ns)", "Tid", "Name", "CorrID")
            for file in (CALLS, LIBRARY):
                if (self._result.path / file).exists():
                    for start, duration, thread, name, *correlation in self._rows(file, columns[:4] if file == LIBRARY else columns):
                        if _whole(duration) >= 0 and isinstance(start, (int, float)):
                            submitted = str(correlation[0]) if correlation and correlation[0] != "0" else ""
                            yield Call(_whole(start), _whole(duration), submitted, str(thread), str(name), file == LIBRARY)
            return
        for event in self._events(("cuda_runtime", "cuda_driver", "cpu_op")):
            correlation = event["args"].get("correlation")
            yield Call(event["ts"], event["dur"], "" if correlation is None else str(correlation), text_of(event.get("tid")), event["name"],
                       event["cat"] == "cpu_op")

    def _rows(self, file: str, columns: tuple[str, ...]) -> Iterator[tuple[Cell, ...]]:
        """Cells in the order of `columns`, whatever the order in the file."""
        path = self._result.path / file
        rows = read_rows(path, frozenset(columns), LARGEST)
        header = next(rows)
        if missing := [column for column in columns if column not in header]:
            raise BadFile(path, f"no column '{missing[0]}'", 1)
        places = [header.index(column) for column in columns]
        for row in rows:
            yield tuple(row[place] for place in places)

    def _events(self, kinds: tuple[str, ...]) -> Iterator[dict]:
        """libinject writes one event per line. Times in ns."""
        path = self._result.path / TIMELINE
        room = LARGEST
        marks = tuple(f'"cat":"{kind}"' for kind in kinds)
        try:
            with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as held:
                if not stat.S_ISREG(os.fstat(held.fileno()).st_mode):
                    raise BadFile(path, "not a regular file")
                with gzip.GzipFile(fileobj=held) as file:
                    while line := file.readline(_LONGEST_LINE):
                        room -= len(line)
                        if room < 0:
                            raise BadFile(path, f"far too large: more than {LARGEST} bytes")
                        text = line.decode(errors="replace")
                        if any(mark in text[:200] for mark in marks) and (event := _event(text)) is not None:
                            yield event
        except (OSError, EOFError, zlib.error) as error:
            raise BadFile(path, f"can't be read: {getattr(error, 'strerror', None) or error}") from None


def _event(line: str) -> dict | None:
    try:
        event = json.loads(line.rstrip().rstrip(","))
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not all(isinstance(event.get(key), (int, float)) and abs(event[key]) < 2**52 for key in ("ts", "dur")) \
            or event["dur"] < 0 or not isinstance(event.get("name"), str):
        return None
    more = event.get("args")
    # Microseconds with three decimals.
    return {**event, "ts": round(event["ts"] * 1000), "dur": round(event["dur"] * 1000), "name": event["name"],
            "args": more if isinstance(more, dict) else {}}
