# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs one point of a sweep until it ends or is interrupted."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from typing import BinaryIO

from libinject import environment
from libinject.result import BadFile, Result
from libinject.sweep.points import Point, Status, Sweep
from libinject.sweep.variables import fill

# What is said by PyTorch, the CUDA runtime and driver, JAX, cuBLAS, cuDNN and TensorFlow, C++ and Python.
_OUT_OF_MEMORY = re.compile(rb"out of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|RESOURCE_EXHAUSTED|"
                            rb"CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|std::bad_alloc|MemoryError\b", re.IGNORECASE)
_TAIL = 1 << 20  # of the log, which is looked at
GRACE = 10.0  # seconds from one signal to the next
LEFT_BEHIND = 2.0  # likewise, for what a program has left running
_PR_SET_PDEATHSIG = 1


def run_point(sweep: Sweep, point: Point, limit: float | None) -> None:
    """Raises OSError if the folder cannot be made, KeyboardInterrupt once the program has ended because of it."""
    folder = sweep.new_folder(point)
    command = fill(sweep.command, point.values)
    variables = {**sweep.settings, "INJECT_OUT": _output(folder)}
    if sweep.batch_variable is not None:
        variables["INJECT_BATCH"] = point.values[sweep.batch_variable]
    point.status, point.why, point.exit_status, point.seconds = Status.RUNNING, "", None, None
    sweep.write()
    began = time.monotonic()
    interrupted = False
    timed_out = False
    with open(sweep.log(point), "xb") as log:
        try:
            process = _start(command, {**environment.given(), **variables}, log)
        except (OSError, ValueError) as error:
            point.status = Status.FAILED
            reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
            point.why = f"can't run '{command[0]}': {reason}"
            return
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        except KeyboardInterrupt:
            interrupted = True
        finally:
            _end(process)
    point.seconds = round(time.monotonic() - began, 3)
    if interrupted:
        point.status, point.why, point.exit_status = Status.INTERRUPTED, "", process.returncode
        raise KeyboardInterrupt
    _judge(sweep, point, process.returncode, limit if timed_out else None)


def end_earlier(sweep: Sweep, point: Point) -> int:
    """Ends what still runs of the point's last run, whose sweep was killed. How many processes there were."""
    own = b"\0" + os.fsencode(f"INJECT_OUT={_output(sweep.folder / point.folder)}") + b"\0"

    def processes() -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdecimal() and own in b"\0" + pathlib.Path("/proc", name, "environ").read_bytes():
                    found.append(int(name))
        return found

    return _end_left(processes)


def _output(folder: pathlib.Path) -> str:
    return str(folder.resolve() / "tables").replace("%", "%%")


def _ending_with(parent: int) -> Callable[[], None]:
    """For the process of a run: it gets SIGTERM if we are killed. What it has started does not: see end_earlier()."""
    prctl = ctypes.CDLL(None).prctl  # here, as a forked process should do as little as possible

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return set_signal


def _start(command: list[str], env: dict[str, str], log: BinaryIO) -> subprocess.Popen:
    try:
        # A session of its own: everything it starts can be ended with it, and Ctrl+C goes through us.
        return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                                preexec_fn=_ending_with(os.getpid()))  # noqa: PLW1509 - needs no lock that a thread may hold
    except OSError as error:
        script = environment.by_shell(command, error)
        if script is None:
            raise
        return _start(script, env, log)


def _end(process: subprocess.Popen) -> None:
    """Ends the process and its descendants: first SIGINT, which lets tables be written, then harder signals."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        _signal(process.pid, number)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:  # pressed twice: do not wait
            _signal(process.pid, signal.SIGKILL)
    process.wait()
    # Workers that it left behind would take the GPU from the next point.
    _end_left(lambda: _in_session(process.pid).keys())


def _signal(session: int, number: int) -> None:
    """To its leader's process group at once, then to its other groups: shells with job control and some launchers make such."""
    _to_group(session, number)
    for group in {*_in_session(session).values()} - {session}:
        _to_group(group, number)


def _to_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _end_left(find: Callable[[], Iterable[int]]) -> int:
    """Ends the processes that `find` finds. How many there were."""
    found: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        signalled: set[int] = set()
        until = time.monotonic() + LEFT_BEHIND
        while time.monotonic() < until and (left := {*find()}):
            for process in left - signalled:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            signalled |= left
            time.sleep(0.02)
        found |= signalled
    return len(found)


def _in_session(session: int) -> dict[int, int]:
    """The processes of a session, and the groups that they are in. Zombies have ended."""
    found = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            state, _, group, of = pathlib.Path("/proc", str(int(name)), "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(of) == session and state != "Z":
                found[int(name)] = int(group)
    return found


def _judge(sweep: Sweep, point: Point, code: int, limit: float | None) -> None:
    point.exit_status = code
    tables = sweep.tables(point)
    if limit is not None:
        point.status, point.why = Status.TIMEOUT, f"took longer than {limit:g}s"
        return
    wanted = _interrupts(sweep.settings) and code in (-signal.SIGINT, 128 + signal.SIGINT)
    if code != 0 and not wanted:
        said = _said_out_of_memory(sweep.log(point))
        failed = sum(failed_allocations(table) for table in tables)
        if said or failed:
            point.status = Status.MEMORY
            point.why = said or f"{failed} allocations failed"
        elif code < 0:
            point.status = Status.FAILED
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            point.why = f"ended by {name}" + (": the host's memory may have run out" if code == -signal.SIGKILL else "")
        else:
            point.status, point.why = Status.FAILED, f"exit status {code}"
        return
    if not any(has_window(table) for table in tables):
        point.status, point.why = Status.NO_TABLES, "no window was profiled: see the log"
        return
    failed = sum(failed_allocations(table) for table in tables)
    point.status, point.why = Status.DONE, f"{failed} allocations failed" if failed else ""


def _interrupts(settings: dict[str, str]) -> bool:
    """Whether programs are to end by SIGINT: after the last window, or at a time."""
    after = settings.get("INJECT_AFTER") or "continue"
    return after == "interrupt" or (after == "continue" and (settings.get("INJECT_TIMEOUT") or "off") != "off")


def _said_out_of_memory(log: pathlib.Path) -> str:
    """The line that says so."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).splitlines()
    except OSError:
        return ""
    # libinject's own messages are about allocations that may have been retried.
    return next((line.decode(errors="replace").strip()[:300] for line in lines
                 if _OUT_OF_MEMORY.search(line) and not line.startswith(b"libinject")), "")


def has_window(table: pathlib.Path) -> bool:
    try:
        run = Result(table).run
        return bool(run["windows"] or run.get("windows_not_listed"))
    except BadFile:
        return False


def failed_allocations(table: pathlib.Path) -> int:
    """On GPUs, all in all."""
    try:
        rows = Result(table).rows("memory_sum", "Device", "API", "Failed")
    except BadFile:
        return 0
    return sum(int(row["Failed"]) for row in rows
               if row["API"] == "[all]" and row["Device"] != "host" and isinstance(row["Failed"], (int, float)))
