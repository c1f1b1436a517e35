# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Result folders for tests: made by the C++ example on the simulated CUDA, or written by hand."""

import base64
import csv
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("INJECT_TEST_BUILD", ROOT / "build"))
CMAKE = os.environ.get("INJECT_TEST_CMAKE", "cmake")
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "build" / "deps" / "python")]
TERMINAL = {"NO_COLOR": "1", "COLUMNS": "120"}
os.environ.update(TERMINAL)  # before the commands are imported, which read it once

from libinject.check.check import findings
from libinject.check.rules import ERROR
from libinject.cli import app
from typer.testing import CliRunner


def inject(*arguments, env=None, cwd=None, timeout=120):
    """Runs the command in a process of its own, as a user starts it."""
    full = {**{name: value for name, value in os.environ.items() if not name.startswith("INJECT_")},
            **TERMINAL, **(env or {})}
    return subprocess.run([sys.executable, ROOT / "scripts" / "inject", *map(str, arguments)], capture_output=True, text=True,
                          env=full, cwd=cwd, timeout=timeout, check=False)


def invoke(*arguments):
    """Runs the command in this process, which has imported its libraries: importing them takes longer than most
    commands."""
    done = CliRunner().invoke(app, [*map(str, arguments)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def profile_example(out, *arguments, **options):
    """A run of the example on the simulated CUDA, with its tables in `out`, which are checked against the
    documentation's promises."""
    env = {**{name: value for name, value in os.environ.items() if not name.startswith("INJECT_")},
           "LD_LIBRARY_PATH": str(BUILD / "sim"), "LD_PRELOAD": str(BUILD / "libinject.so"), "INJECT_OUT": str(out),
           **{f"INJECT_{name}": value for name, value in options.items()}}
    subprocess.run([BUILD / "examples" / "inject-train", *arguments], env=env, capture_output=True, timeout=100, check=True)
    wrong = [str(finding) for finding in findings(out) if finding.severity == ERROR]
    assert not wrong, wrong
    return pathlib.Path(out)


def write_table(folder, name, rows):
    """rows: dictionaries; the first one's keys are the header."""
    with open(pathlib.Path(folder) / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_run(folder, **fields):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = {"libinject": "0.1.0", "state": "closed", "command_line": ["python3", "train.py"], "host": "node", "pid": 1, "rank": None,
           "versions": {}, "options": {}, "devices": [], "windows": [], "lost": {}, "files": [], **fields}
    (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
    return folder


def sections_of(page):
    """The data that a page's scripts get: sections by id, for each article."""
    data = re.search(r'<script type="text/plain" id="model">(.*?)</script>', pathlib.Path(page).read_text(encoding="utf-8"), re.DOTALL).group(1)
    return [{section["id"]: section for section in article} for article in unpacked(data)]


def unpacked(data):
    """Decodes the compressed JSON of libinject.page.render.embedded()."""
    return json.loads(gzip.decompress(base64.b64decode(data, validate=True)))


class TemporaryFolder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="inject-test-")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
