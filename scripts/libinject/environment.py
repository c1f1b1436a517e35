# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The variables that put a command under libinject."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from libinject import console, library


def preload(library_path: str, before: str | None) -> str:
    """LD_PRELOAD with `library_path` in front of its present value, unless it is already in it."""
    others = [part for part in (before or "").replace(" ", ":").split(":") if part and part != library_path]
    return ":".join([library_path, *others])


def library_to_preload() -> str:
    """libinject.so in a form that LD_PRELOAD accepts. Exits if there is none."""
    found = library.find_library()
    if found is None:
        console.fail("libinject.so was not found in this package, in the source tree's build folder, or installed: build it or install the package")
    if ":" in str(found) or " " in str(found):
        console.fail(f"the dynamic loader cannot preload '{found}': its path has a space or a colon")
    return str(found)


def variables(chosen: Mapping[str, str | None], settings: Sequence[str]) -> dict[str, str]:
    """`chosen`: values by name without INJECT_, None if not given, each from the option of that name. If OUT is missing, the caller sets
    the folder and the batch later. `settings`: NAME=VALUE. Exits if the library would refuse a value."""
    found = library_to_preload()
    set_by_name: set[str] = set()
    result = {f"INJECT_{name}": value for name, value in chosen.items() if value is not None}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.upper().removeprefix("INJECT_")
        if not equals or not (name.isidentifier() and name.isascii()):
            console.fail(f"'{text}' is not NAME=VALUE, such as RING=64M")
        if chosen.get(name) is not None:
            console.fail(f"INJECT_{name} is set twice: by --{name.lower()} and by --set")
        if f"INJECT_{name}" in set_by_name:
            console.fail(f"INJECT_{name} is set twice by --set")
        result[f"INJECT_{name}"] = value
        set_by_name.add(f"INJECT_{name}")
    _check(result, set_by_name, "OUT" in chosen)
    result["LD_PRELOAD"] = preload(found, os.environ.get("LD_PRELOAD"))
    return result


def given() -> dict[str, str]:
    """The environment with which this process was started: in the C locale, Python sets LC_CTYPE at its start (PEP 538)."""
    env = dict(os.environ)
    with contextlib.suppress(OSError):
        before = re.search(rb"(?:^|\0)LC_CTYPE=([^\0]*)", pathlib.Path("/proc/self/environ").read_bytes())
        env.pop("LC_CTYPE", None)
        if before is not None:
            env["LC_CTYPE"] = os.fsdecode(before[1])
    return env


def by_shell(command: Sequence[str], problem: OSError) -> list[str] | None:
    """The command that runs a script without #!, which the kernel does not start, as shells, env and nohup do. None if that is not the
    problem."""
    path = shutil.which(command[0])
    if problem.errno != errno.ENOEXEC or path is None:
        return None
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if b"\0" in file.read(256):  # a binary for another machine
            return None
    return ["/bin/sh", path, *command[1:]]


def checked(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """What `injectctl check` says of the variables in `env`, as pairs of error or warning and text."""
    program = library.find_injectctl()
    if program is None:
        return []
    try:
        done = subprocess.run([program, "check"], env={name: value for name, value in env.items() if name != "LD_PRELOAD"}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [(kind, text) for kind, _, text in (line.partition(": ") for line in done.stdout.splitlines())]


def _check(result: Mapping[str, str], set_by_name: set[str], with_folder: bool) -> None:
    """Checks the program's environment with the library's own parser, through `injectctl check`. Without injectctl nothing is checked; the
    library then reports problems when the program first uses CUDA."""
    env = {**os.environ, **result}
    if not with_folder:
        for name in ("INJECT_OUT", "INJECT_BATCH"):
            if name not in result:
                env.pop(name, None)
    for kind, text in checked(env):
        unknown = re.match(r"'(INJECT_\w+)' is not an option", text)
        variable = re.match(r"(INJECT_\w+)='", text)
        if variable and variable[1] in result and variable[1] not in set_by_name:
            text = f"--{variable[1].removeprefix('INJECT_').lower()} {text[variable.end() - 1:]}"
        # The library itself warns about variables that were set before.
        if kind == "error" or (unknown and unknown[1] in set_by_name):
            console.fail(text)
        if variable and with_folder:
            console.warn(text)
