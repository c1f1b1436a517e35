#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""clang-tidy over libinject and injectctl, on all processors: exit status 1 where it finds something.

Most of the time that a file takes is its headers', so files that a build with INJECT_JOIN compiles together are checked
together: copied into one, as the analyzer leaves out what a file includes. Findings are told of the file and line that
they were copied from.

usage: scripts/tidy.py CLANG_TIDY BUILD_DIR     (BUILD_DIR/tidy is configured for it; nothing is built there)
"""

import bisect
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPTIONS = ["--quiet", "--extra-arg=-Wthread-safety", "--extra-arg=-Wno-unknown-warning-option",
           # The analyzer abandons a function at 15,000 states rather than 225,000, which takes less than half the time.
           *(f"--extra-arg={argument}" for argument in ("-Xclang", "-analyzer-config", "-Xclang", "max-nodes=15000"))]
# Files that only contain a table's hooks, one function hundreds of times over, are checked without the analyzer, except for one, and
# without performance-unnecessary-value-param: their signatures are the vendor's, and the check searches the whole file for each.
TABLE_OPTIONS = ["--checks=-clang-analyzer-*,-performance-unnecessary-value-param"]
ANALYZED_TABLE = "cupti.cpp"


class Unit:
    """What one clang-tidy run checks: a file, or several concatenated into one."""

    def __init__(self, path, sources):
        self.path, self.sources = path, sources
        self.size = sum(source.stat().st_size for source in sources)
        first = sources[0]
        self.is_table = first.parent.name == "hooks" and (ROOT / "libinject/model" / first.name).with_suffix(".def").exists()
        self.begins = [1]
        if sources != [path]:
            texts = [source.read_text() for source in sources]
            path.write_text("".join(texts))
            for text in texts:
                self.begins.append(self.begins[-1] + text.count("\n"))

    def told_of_sources(self, output):
        def place(match):
            line = int(match[1])
            i = min(bisect.bisect_right(self.begins, line), len(self.sources)) - 1
            return f"{self.sources[i]}:{line - self.begins[i] + 1}:"

        return re.sub(re.escape(str(self.path)) + r":(\d+):", place, output)


def configure(build):
    # Precompiled headers belong to one compiler, which is not this one.
    subprocess.run(["cmake", "--preset", "dev", "-B", build, "-DINJECT_JOIN=ON", "-DINJECT_BUILD_TESTS=OFF",
                    "-DINJECT_BUILD_EXAMPLES=OFF", "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
                    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def join(build):
    """Returns the units; their compile_commands.json is in build/joined."""
    folder = build / "joined"
    folder.mkdir(exist_ok=True)
    units, commands = [], []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        sources = [path]
        if path.parent.name == "Unity":
            sources = [pathlib.Path(name) for name in re.findall(r'^#include "(.*)"$', path.read_text(), re.MULTILINE)]
            path = folder / f"{path.parent.parent.stem}_{path.stem}.cpp"
        units.append(Unit(path, sources))
        commands.append({**entry, "file": str(path), "command": entry["command"].replace(entry["file"], str(path))})
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    return folder, units


def check(clang_tidy, folder, unit):
    """Returns the findings as text, empty if there are none."""
    options = TABLE_OPTIONS if unit.is_table and unit.path.name != ANALYZED_TABLE else []
    # At low priority: other tests spend much of their time waiting.
    done = subprocess.run(["nice", "-n", "19", clang_tidy, "-p", folder, *OPTIONS, *options, unit.path], capture_output=True,
                          text=True, check=False)
    if done.returncode == 0:
        return ""
    errors = "\n".join(line for line in done.stderr.splitlines() if not line.endswith("generated."))
    return unit.told_of_sources(done.stdout + errors) or f"{unit.path}: clang-tidy ended with {done.returncode}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[2]).resolve() / "tidy"
    configure(build)
    folder, units = join(build)
    # The longest ones first.
    units.sort(key=lambda unit: (not unit.is_table, -unit.size))
    found = False
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in pool.map(lambda unit: check(sys.argv[1], folder, unit), units):
            if text:
                found = True
                print(text, flush=True)
    print(f"{len(units)} compilations of {sum(len(unit.sources) for unit in units)} files")
    sys.exit(found)


if __name__ == "__main__":
    main()
