# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs a few CUDA calls under libinject and reads its tables: does everything work here?"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from libinject import library
from libinject.doctor.finding import BAD, GOOD, NOTE, WARNING, Finding
from libinject.result import METRIC_LOSSES, BadFile, Result, printable

_PROGRAM = pathlib.Path(__file__).with_name("trial_program.py")
_SECONDS = 60


def _run(python: str, preload: pathlib.Path | None, folder: pathlib.Path, metrics: bool) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("INJECT_") and name != "LD_PRELOAD"}
    if preload is not None:
        env.update(LD_PRELOAD=str(preload), INJECT_OUT=str(folder), INJECT_WINDOW="api", INJECT_SUMMARY="off", INJECT_LOG="info",
                   INJECT_METRICS="auto" if metrics else "off")
    return subprocess.run([python, str(_PROGRAM)], env=env, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)


def _messages(stderr: str) -> Iterator[str]:
    """libinject's warnings and errors, without their prefix."""
    for line in stderr.splitlines():
        if line.startswith("libinject["):
            level, _, text = line.partition("] ")[2].partition(": ")
            if level in ("warning", "error", "critical"):
                yield printable(text, 400)


def look(python: str = sys.executable) -> Iterator[Finding]:
    """`python`: the interpreter whose packages (PyTorch's, JAX's) bring CUDA's libraries."""
    preload = library.find_library()
    if preload is None:
        return
    with tempfile.TemporaryDirectory(prefix="inject-doctor-") as scratch:
        folder = pathlib.Path(scratch) / "out"
        try:
            done = _run(python, preload, folder, metrics=True)
        except subprocess.TimeoutExpired:
            done = None
        except OSError as error:
            yield Finding(BAD, "trial", f"'{printable(python)}' can't be run: {(error.strerror or '').lower()}")
            return
        if done is not None and done.returncode == 0 and "memsets " not in done.stdout:
            yield Finding(BAD, "trial", f"'{printable(python)}' is not a Python interpreter", "inject doctor --python PROGRAM")
        elif done is not None and done.returncode == 0:
            yield from _judge(folder, done)
        # What the program says itself: that there is no driver, or no GPU.
        elif done is not None and done.returncode == 1 and (why := done.stdout.strip()):
            yield Finding(BAD, "CUDA", printable(why.splitlines()[0], 300), "libinject needs a program that can use CUDA; nothing else was tried")
        else:
            yield _whose_fault(python, folder, done)


def _whose_fault(python: str, folder: pathlib.Path, done: subprocess.CompletedProcess[str] | None) -> Finding:
    """Of a trial without an answer, or that a signal has ended: by the same without libinject."""
    try:
        alone = _run(python, None, folder, metrics=False)
    except subprocess.TimeoutExpired:
        alone = None
    said = f"under libinject, a small CUDA program {_end(done)}"
    if alone is not None and alone.returncode == 0:
        return Finding(BAD, "trial", f"{said}; without libinject it ends as it should")
    return Finding(BAD, "trial", f"{said}; without libinject it {_end(alone)}", "make it work without libinject first" if alone is not None else "the GPU may be in use")


def _end(done: subprocess.CompletedProcess[str] | None) -> str:
    if done is None:
        return f"has not ended after {_SECONDS} s"
    code = -done.returncode
    how = f"ended with status {-code}" if code <= 0 else f"was ended by {signal.Signals(code).name if code in set(signal.Signals) else f'signal {code}'}"
    words = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("libinject[")]
    return how + (f" ({printable(words[-1].strip(), 200)})" if words else "")


def _judge(folder: pathlib.Path, done: subprocess.CompletedProcess[str]) -> Iterator[Finding]:
    # Where records can't outlive a process, everything else works, and the folder for temporary files is not the one that runs write to.
    unsafe, told = [], []
    for text in _messages(done.stderr):
        (unsafe if "if the process is killed" in text else told).append(text)
    for text in unsafe:
        yield Finding(WARNING, "records", text)
    for text in told:
        state = WARNING if "metric" in text or "counter" in text else BAD
        yield Finding(state, "trial", text)
    try:
        result = Result(folder)
    except BadFile as problem:
        if not told:
            yield Finding(BAD, "trial", f"libinject wrote no tables: {problem.why}")
        return
    versions = result.run.get("versions") or {}
    cupti = [f"{path} (version {versions.get('cupti', 'unknown')})" for name, path in versions.items() if name.startswith("libcupti")]
    if cupti:
        yield Finding(GOOD, "CUPTI", printable(", ".join(cupti), 300))
    memsets = sum(row["Memsets"] or 0 for row in result.rows("window_sum", "Memsets", "Device") if row["Device"] == "all")
    expected = int(next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("memsets ")), 0))
    # A machine that is busy loses samples of the counters, and no work.
    lost = {kind: count for kind, count in result.lost().items() if kind not in METRIC_LOSSES}
    if memsets == expected and expected > 0 and not lost:
        yield Finding(GOOD, "trial", f"a window opened and closed, and the GPU's work in it ({memsets} memsets) is in the tables")
    elif not told:
        missing = ", ".join(f"{count} {kind}" for kind, count in lost.items()) or "no losses are counted"
        yield Finding(BAD, "trial", f"{memsets} of {expected} memsets are in the tables ({missing})")
    metrics = result.run.get("metrics") or {}
    if not told and not metrics:
        yield Finding(NOTE, "counters", "no hardware metrics were sampled in the trial")
    elif metrics and not told:
        few = ", ".join(f"{count} {kind} lost" for kind, count in result.lost().items() if kind in METRIC_LOSSES)
        yield Finding(NOTE if few else GOOD, "counters", "hardware metrics can be sampled (INJECT_METRICS)" + (f": {few}" if few else ""))
