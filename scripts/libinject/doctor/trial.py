# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs a few CUDA calls under libinject and reads its tables: does everything work here?"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from libinject import library
from libinject.doctor.finding import BAD, GOOD, NOTE, WARNING, Finding
from libinject.result import METRIC_LOSSES, BadFile, Result, printable

_PROGRAM = pathlib.Path(__file__).with_name("trial_program.py")
_SECONDS = 60


def _run(python: str, preload: pathlib.Path, folder: pathlib.Path, metrics: bool) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("INJECT_")}
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
            yield Finding(BAD, "trial", f"a small CUDA program has not ended after {_SECONDS} s under libinject",
                          "check whether it ends without libinject: the GPU may be in use")
            return
        except OSError as error:
            yield Finding(BAD, "trial", f"'{printable(python)}' can't be run: {(error.strerror or '').lower()}")
            return
        if done.returncode != 0:
            # What the program says itself: that there is no driver, or no GPU.
            why = next((line for line in done.stdout.splitlines() if line), f"it ended with status {done.returncode}")
            yield Finding(BAD, "CUDA", printable(why, 300), "libinject needs a program that can use CUDA; nothing else was tried")
            return
        yield from _judge(folder, done)


def _judge(folder: pathlib.Path, done: subprocess.CompletedProcess[str]) -> Iterator[Finding]:
    told = list(_messages(done.stderr))
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
