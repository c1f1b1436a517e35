# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The machine and the environment: everything that can be told without starting CUDA."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from libinject import environment, library, near
from libinject.doctor.finding import BAD, GOOD, NOTE, WARNING, Finding
from libinject.result import printable

PROC = pathlib.Path("/proc")
# Tools whose processes use the counters, or may (docs/metrics_collection.md).
COUNTER_TOOLS = {
    "nv-hostengine": "pause its profiling metrics while using INJECT_METRICS: dcgmi profile --pause, then --resume",
    "dcgm-exporter": "stop it while using INJECT_METRICS, or disable its profiling metrics (DCGM_FI_PROF_…)",
    "nsys": "wait for it to end",
    "ncu": "wait for it to end",
}
CAP_SYS_ADMIN = 21
RECORDS = 101_646_336  # bytes of their file, by default (docs/recovery.md)


def libinject_itself() -> Iterator[Finding]:
    found = library.find_library()
    if found is None:
        yield Finding(BAD, "libinject.so", "not in this package, not in the source tree's build folder, and not installed",
                      "build it, or install the package")
        return
    env = {name: value for name, value in os.environ.items() if not name.startswith("INJECT_")}
    env.update(LD_PRELOAD=str(found), INJECT_HELP="1")
    try:
        done = subprocess.run(["/bin/sh", "-c", ":"], env=env, capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(BAD, "libinject.so", f"{found}: a shell can't be started with it preloaded: {error}")
        return
    known = re.findall(r"^(INJECT_\w+)", done.stderr, re.MULTILINE)
    if not known:
        why = printable(next(iter(done.stderr.splitlines()), "it says nothing"), 300)
        yield Finding(BAD, "libinject.so", f"{found} cannot be preloaded: {why}",
                      f"build it for this machine ({platform.machine()}, {' '.join(platform.libc_ver())}); glibc 2.28 or newer")
        return
    yield Finding(GOOD, "libinject.so", str(found))
    yield from variables(known, found)


def variables(known: list[str], found: pathlib.Path) -> Iterator[Finding]:
    """What is set for libinject, and for the loader."""
    for name in sorted(name for name in os.environ if name.startswith("INJECT_")):
        if name not in known:
            meant = near.nearest(name, known)
            yield Finding(WARNING, name, "is set, but is not a libinject variable", f"did you mean {meant}?" if meant else "unset it")
        else:
            yield Finding(NOTE, name, f"is set to '{printable(os.environ[name], 80)}': every program started from here gets it")
    for kind, text in environment.checked(os.environ):
        if kind == "error":
            yield Finding(BAD, "variables", f"profiling would be off: {printable(text, 400)}", "correct or unset it")
    for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"):
        value = os.environ.get(name)
        # A preloaded shell has set it to libinject itself.
        if value and not (os.path.exists(value) and os.path.samefile(value, found)):
            yield Finding(WARNING, name, f"is set to '{printable(value, 120)}': CUDA loads that tool instead of libinject",
                          "unset it, unless this run is for that tool")
    for preloaded in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        if preloaded and not os.path.exists(preloaded) and "/" in preloaded:
            yield Finding(WARNING, "LD_PRELOAD", f"names '{printable(preloaded, 120)}', which does not exist", "remove it from LD_PRELOAD")


def driver() -> Iterator[Finding]:
    version = PROC / "driver" / "nvidia" / "version"
    try:
        text = version.read_text(errors="replace")
        number = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
        yield Finding(GOOD, "driver", f"NVIDIA {number[1] if number else printable(text, 80)}")
    except OSError:
        yield Finding(NOTE, "driver", "no NVIDIA driver is loaded here",
                      "load it, or give the container access to the GPU (docker run --gpus all)")


def devices() -> Iterator[Finding]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return
    query = "name,driver_version,mig.mode.current,compute_mode,memory.total"
    try:
        done = subprocess.run([program, f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, errors="replace",
                              timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(WARNING, "GPU", f"nvidia-smi does not answer: {printable(str(error))}")
        return
    if done.returncode != 0:
        why = printable(next(iter((done.stdout + done.stderr).strip().splitlines()), ""), 200)
        yield Finding(WARNING, "GPU", f"nvidia-smi: {why}")
        return
    for number, line in enumerate(done.stdout.splitlines()):
        name, _, mig, mode, memory, *_ = [*(part.strip() for part in line.split(",")), "", "", "", ""]
        yield Finding(GOOD, f"GPU {number}", printable(f"{name}, {memory}"))
        if mig == "Enabled":
            yield Finding(NOTE, f"GPU {number}", "is partitioned (MIG): hardware metrics of a partition have not been tested")
        if mode == "Exclusive_Process":
            yield Finding(NOTE, f"GPU {number}", "serves one process at a time (compute mode): the trial below may find it in use")


def is_administrator(status: str) -> bool:
    """CAP_SYS_ADMIN, by a process's /proc/…/status."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> CAP_SYS_ADMIN & 1)


def counters() -> Iterator[Finding]:
    """Whether the driver lets this user read hardware counters (INJECT_METRICS)."""
    try:
        parameters = (PROC / "driver" / "nvidia" / "params").read_text(errors="replace")
        status = (PROC / "self" / "status").read_text(errors="replace")
    except OSError:
        return
    restricted = re.search(r"^RmProfilingAdminOnly:\s*1", parameters, re.MULTILINE) is not None
    if not restricted:
        yield Finding(GOOD, "counters", "all users may read them")
    elif is_administrator(status):
        yield Finding(GOOD, "counters", "only administrators may read them, and you are one")
    else:
        yield Finding(WARNING, "counters", "only administrators may read them: INJECT_METRICS will not work, everything else will",
                      "load the driver with NVreg_RestrictProfilingToAdminUsers=0, or give the process CAP_SYS_ADMIN "
                      "(docker run --cap-add=SYS_ADMIN)")


def _processes() -> Iterator[tuple[int, str]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                # Names are cut off at 15 characters there: the longest of ours has 13.
                yield int(entry.name), (entry / "comm").read_text(errors="replace").strip()
            except OSError:
                continue


def holders() -> Iterator[Finding]:
    for pid, name in sorted(_processes()):
        if name in COUNTER_TOOLS:
            yield Finding(WARNING, name, f"runs as process {pid}: it may hold the GPU's counters, which only one client can use at a time",
                          COUNTER_TOOLS[name])


def output_folder(folder: pathlib.Path | None) -> Iterator[Finding]:
    if folder is None:
        yield Finding(WARNING, "output", "the working directory no longer exists", "change to one that does, or choose a folder: inject run --out FOLDER")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield Finding(WARNING, "output", f"cannot write to {folder}", "choose a folder: inject run --out FOLDER")
        return
    free = shutil.disk_usage(folder).free
    if free < 2 * RECORDS:
        yield Finding(WARNING, "output", f"{free / 1e6:.0f} MB free in {folder}: while a program runs, records take {RECORDS / 1e6:.0f} MB, and where less than "
                      "twice that is free they stay in memory, and are lost if the program is killed",
                      "choose a folder: inject run --out FOLDER")
    else:
        yield Finding(GOOD, "output", f"{folder}: {free / 1e9:.1f} GB free")


def process() -> Iterator[Finding]:
    if platform.system() != "Linux" or platform.machine() not in ("x86_64", "aarch64"):
        yield Finding(BAD, "system", f"{platform.system()} on {platform.machine()}: libinject needs Linux on x86-64 or aarch64")
    if sys.maxsize < 1 << 32:
        yield Finding(BAD, "system", "libinject cannot be preloaded into 32-bit programs")


def look(folder: pathlib.Path | None) -> Iterator[Finding]:
    """All of it. `folder`: the working directory, None if it no longer exists."""
    for part in (process(), libinject_itself(), driver(), devices(), counters(), holders(), output_folder(folder)):
        yield from part
