#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Damaged and made-up result folders for the commands that read them: none may end in a traceback, hang, take more memory than it
may, write anywhere but where it was told to, or fill the terminal.

A case follows from target, seed and number, and from the folders it begins with. Those of the simulated CUDA differ in their times
from run to run: what a finding was read from is kept as a folder, with the command line in `command`."""

import argparse
import base64
import collections
import contextlib
import copy
import csv
import functools
import gzip
import io
import json
import math
import os
import pathlib
import random
import re
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import types

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "data" / "result_folders.tar.xz"
BUILD = pathlib.Path(os.environ.get("INJECT_TEST_BUILD", ROOT / "build"))
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "scripts"), str(ROOT / "build" / "deps" / "python")]
os.environ.update({"NO_COLOR": "1", "COLUMNS": "120"})

import ranks
import typer.main
from libinject.cli import app
from libinject.page import render
from libinject.result import is_number_column

TARGETS = ("report", "check", "compare", "merge", "sweep")
STATUSES = {"report": {0, 2}, "check": {0, 1, 2}, "compare": {0, 1, 2, 3}, "merge": {0, 2}, "sweep": {0, 2}}
SECONDS = 10  # of a case
MEMORY = 1 << 30  # beyond what the process has before its first case
CASES_OF_A_PROCESS = 200
EVERYTHING = ("conv:forward comm:A:2 comm:B:2 start loop:6 [ push:step malloc:d:4000000 gemm gemm:3 sgemm conv:forward:4 conv:data:4 use:attention:2 "
              "rnn:forward norm:training nccl:AllReduce:A:1000000 nccl:AllGather:B:2000000 nccl:Send:A:1000:0:1 kernel:k:5 copy:h2d:4000000 "
              "memset:d pop device:1 kernel:other:2 device:0 sync ] stop sync")
# Long enough for the energy to be known.
BUSY = "malloc:d:4000000 kernel:k:1 sync start duration:k:50000000 loop:40 [ push:step kernel:k:1 sync sleep:20 pop ] stop sleep:150"


# --- what the cases begin with -------------------------------------------------------------------------------------------


def profiled(folder, program, *words, **options):
    env = {**{name: value for name, value in os.environ.items() if not name.startswith(("INJECT_", "LD_"))},
           "LD_LIBRARY_PATH": str(BUILD / "sim"), "LD_PRELOAD": str(BUILD / "libinject.so"),
           **{f"INJECT_{name}": value for name, value in {"OUT": str(folder), "SUMMARY": "off", **options}.items()}}
    subprocess.run([program, *words], env=env, cwd=folder.parent, capture_output=True, timeout=100, check=False)


def profile(root):
    """Real folders: several windows and iterations, every table, metrics, raw records, the lines of a program in Python, a run that was
    killed, energy."""
    script = BUILD / "tests/integration/script/script_cuda"
    profiled(root / "windows", BUILD / "examples/inject-train", "--steps", "400", "--no-profiler-api", WINDOW="iter:10+8/20x3", BATCH="64")
    profiled(root / "everything", script, *EVERYTHING.split(), WINDOW="api", TRACE="csv", METRICS="auto", METRICS_INTERVAL="1ms", METRICS_TIMELINE="1",
             BATCH="8")
    profiled(root / "code", sys.executable, ROOT / "tests/packages/train.py", WINDOW="auto")
    profiled(root / "usage", "env", "CUDASIM_POWER=step_us=20000,busy_mw=300000,limit_mw=160000", script, *BUSY.split(), WINDOW="api", BATCH="8")
    profiled(root / "recovered", script, *EVERYTHING.split(), "until_delivered", "crash:KILL", WINDOW="always", TRACE="csv", RECOVER="1")
    subprocess.run([BUILD / "injectctl" / "injectctl", "recover", root / "recovered"], capture_output=True, timeout=100, check=True)


def renew_kept():
    """Without what says on which machine they were made."""
    with tempfile.TemporaryDirectory(prefix="inject-fuzz-") as name, tarfile.open(KEPT, "w:xz") as archive:
        root = pathlib.Path(name).resolve()
        profile(root)
        for path in sorted(root.glob("*/*.*")):
            data = path.read_bytes()
            for place, name in ((BUILD, b"/build"), (ROOT, b"/source"), (root, b"/out"), (sys.prefix, b"/usr")):
                data = data.replace(os.fsencode(place), name)
            data = data.replace(b'"host": "%b"' % os.fsencode(os.uname().nodename), b'"host": "node"')
            entry = tarfile.TarInfo(str(path.relative_to(root)))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def folders_to_begin_with(kept):
    """{name: {file: bytes}}; besides those of `profile`, ranks of a job, and copies of them."""
    found = collections.defaultdict(dict)
    with tempfile.TemporaryDirectory(prefix="inject-fuzz-") as name:
        root = pathlib.Path(name).resolve()
        if kept:
            with tarfile.open(KEPT) as archive:
                for entry in archive:
                    (root / entry.name).parent.mkdir(exist_ok=True)
                    (root / entry.name).write_bytes(archive.extractfile(entry).read())
        else:
            profile(root)
        group = "0x0000000000000001"
        ranks.write_job(root / "job", 4, iterations=8, slow={2: 1.2}, batch=8, hosts=2, job=lambda rank: ranks.place(rank, 4),
                        nccl=[ranks.collective(8, ranks.MS, [5000] * 8, world=4, Communicator=group),
                              ranks.collective(8, ranks.MS, [9000] * 8, world=4, bytes=4096, operation="Broadcast", Communicator=group)])
        command(["merge", root / "job", "--parquet", root / "copies", "-o", root / "job.html"])
        for path in sorted(root.rglob("*")):
            if path.suffix in (".csv", ".folded", ".json", ".parquet"):
                found[str(path.parent.relative_to(root))][path.name] = path.read_bytes()
    short = [name for name in ("windows", "everything", "code", "usage", "recovered", "job/rank-0", "copies") if len(found[name]) < 6]
    if short:
        raise SystemExit(f"result_folders.py: no tables in {', '.join(short)}: are library, programs and simulation in {BUILD}?")
    # PyTorch's part of these tables, and stacks that differ.
    code = found["code"]
    for table, names in (("op_sum.csv", ("aten::mm", "aten::add_", "Own")), ("module_sum.csv", ("Net", "Net.first", "Net.layers.0"))):
        header, *rows = csv.reader(io.StringIO(code[table].decode()))
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([header, *rows, *({**dict(zip(header, rows[0], strict=True)), **changed}.values() for changed in (
            {header[1]: name, **({"Class": "Linear", "Depth": name.count("."), "Parent": name.rpartition(".")[0]} if table == "module_sum.csv" else {})} for name in names))])
        code[table] = out.getvalue().encode()
    found["usage"]["memory_purpose.csv"] = (
        b"Device,Purpose,Total,Memory (B),Tensors,Largest (B),Largest Tensor,Peak Allocated (B),Peak Reserved (B),Activations at Peak (B)\n"
        b"0,parameters,no,1000,3,600,\"Linear.weight (10, 15) torch.float32\",,,\n0,[cached],no,300,,,,,,\n0,[all],yes,1300,,,,900,1000,10\n")
    code["gpu_stacks.folded"] = found["everything"]["gpu_stacks.folded"] = "".join(
        f"{phase};train (/me/train.py:72);Net.forward (/me/model.py:{line});void gemm<float, {line}>(int) {line * 1000}\n"
        for phase in ("forward", "backward", "[unattributed]") for line in range(9)).encode()
    return dict(found)


# --- how they are damaged ------------------------------------------------------------------------------------------------

NUMBERS = ["0", "1", "-1", "2", "3", "10", "99.9", "100", "100.1", "0.5", "-0.0", "-0.1", "0.000001", "0." + "0" * 40 + "1", "9007199254740992", "9007199254740993",
           "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551615", "18446744073709500000.0",
           "340282366920938463463374607431768211455"]
NO_NUMBERS = ["nan", "NaN", "inf", "-inf", "1e400", "1e300", "1e-320", "340282366920938463463374607431768211456", "9" * 400, "9" * 5000, "0." + "3" * 400, "1_000", " 7 ",
              "+5", "5.", ".5", "--5", "0x10", "1e5", "1,5", "٣", "１２", "1-2", ".", "-"]
TEXTS = ["", "x", "all", "host", "[all]", "[other]", "iteration", "outside", "=1+1", "'=1+1", "@sum", "-", "a" * 100_000, "\x1b[31m", "\u202etxt", "\x00", "\n",
         "\r\n", '"', "a,b", "</script><script>", "<b>", "{{7*7}}", "[bold]x", "%s%n", "../../x", "\ufeff", "e\u0301" * 50, "\ud83d\ude00", "\ud800", "0", "1",
         "nccl", "AllReduce", "None", "0x1", "GPU 0"]
VALUES = [None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e300, math.nan, math.inf, -math.inf, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**40, -10**40, 10**400, [],
          {}, [[]], [None], {"": None}, [1, "x", None, {}, []], {"id": 0}, {"lost": {}}, [{"number": 1}], [{"id": {}}], ["x"] * 1000,
          [{"device": 0, "verdict": "x" * 1000}] * 50]
NAMES = ["plain", "with space", "vs", "a:b", "[x]*?", "{}", "%s", "tab\there", "line\nbreak", "\x1b[31m", "\u202e", "é", "\udcff\udcfe", "n" * 255, "=1+1", "'", '"', "$HOME",
         "-o", "a.csv", "run.json", "0", "<b>"]


def encoded(text):
    return text.encode("utf-8", "surrogatepass")


class Damage:
    """Everything that may be done to a folder, by one random sequence."""

    def __init__(self, chance, folders):
        self.chance = chance
        self.folders = folders

    def number(self):
        if self.chance.random() < 0.3:
            return str(self.chance.choice((1, -1)) * self.chance.getrandbits(self.chance.choice((4, 16, 32, 53, 62, 64, 127))))
        return self.chance.choice(NUMBERS)

    def cell(self, column=""):
        """Mostly what the column can have: a table whose cells are none is not looked at any further."""
        other = self.chance.random() < 0.06
        if is_number_column(column) != other:
            return self.chance.choice(("", *NO_NUMBERS)) if other else self.number()
        return self.chance.choice(TEXTS)

    def value(self):
        kind = self.chance.randrange(10)
        if kind < 6:
            return copy.deepcopy(self.chance.choice(VALUES))
        return self.chance.choice(TEXTS) if kind < 8 else self.number()

    def made_up(self, rows):
        """Other rows, of what the columns have and of small numbers: each by itself might be right."""
        header, *before = rows
        known = [sorted({row[at] for row in before if at < len(row)}) for at in range(len(header))]

        def cell(at):
            if self.chance.random() < 0.1:
                return self.cell(header[at])[:200]
            if is_number_column(header[at]):
                return self.chance.choice(("", "0", "0", "1", "2", "5", "100", "1000000", "0.001", "-1"))
            return self.chance.choice(known[at] or [""])

        rows[1:] = [[cell(at) for at in range(len(header))] for _ in range(self.chance.randrange(1, 10))]

    # run.json

    def json(self, data):
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return self.bytes(data)
        kind = self.chance.randrange(20)
        if kind == 0:
            return encoded(self.chance.choice(("", "null", "[]", "{}", "1", '"x"', "{" * 100_000, "[" * 100_000, '{"libinject": "1"}', "nul", '{"a":' * 5000,
                                               '{"libinject": 1}', "9" * 5000, '{"libinject": "x", "lost": {"a": ' + "9" * 4000 + "}}", "\ufeff{}")))
        for _ in range(self.chance.choice((1, 1, 1, 2, 5, 30))):
            self.change(tree)
        text = json.dumps(tree, ensure_ascii=self.chance.random() < 0.5, indent=self.chance.choice((None, 2)))
        if kind == 1:  # one of its lines twice: a member, or half of one
            lines = text.split("\n")
            lines.insert(self.chance.randrange(len(lines) + 1), self.chance.choice(lines))
            text = "\n".join(lines)
        elif kind == 2:  # a member twice, with another value
            name = self.chance.choice([name for name in tree] or ["x"]) if isinstance(tree, dict) else "x"
            text = text.rstrip().rstrip("}") + f", {json.dumps(name)}: {json.dumps(self.value())}}}"
        return encoded(text)

    def change(self, tree):
        """One member or element, at any depth."""
        places = []
        size = 0

        def walk(node):
            nonlocal size
            for key in node if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                size += sum(len(text) for text in (key, node[key]) if isinstance(text, str))
                if isinstance(node[key], dict | list):
                    walk(node[key])

        if not isinstance(tree, dict | list):
            return
        walk(tree)
        if not 0 < len(places) < 5000 or size > 200_000:  # several times as many, several times
            return
        # At the top as often as in the lists that are longest.
        node, key = self.chance.choice([place for place in places if place[0] is tree] if self.chance.random() < 0.2 else places)
        kind = self.chance.randrange(8)
        if kind == 0:
            del node[key]
        elif kind == 1:
            node[key] = [node[key]] * self.chance.choice((1, 2, 100))
        elif kind == 2:
            node[key] = {self.chance.choice(TEXTS): node[key]}
        elif kind == 3 and isinstance(node, list):
            node.extend(copy.deepcopy(self.chance.choice(node)) for _ in range(self.chance.choice((1, 10, 300))))
        elif kind == 4 and isinstance(node, dict):
            node[self.chance.choice(TEXTS)] = node.pop(key)
        else:
            node[key] = self.value()

    # Tables

    def csv(self, data):
        try:
            rows = list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error):
            return self.bytes(data)
        if not rows or not rows[0]:
            return self.bytes(data)
        if self.chance.random() < 0.2:
            self.made_up(rows)
        else:
            for _ in range(self.chance.choice((1, 1, 2, 4, 20))):
                self.change_table(rows)
        out = io.StringIO(newline="")
        writer = csv.writer(out, lineterminator=self.chance.choice(("\n", "\n", "\n", "\r\n", "\r")),
                            quoting=self.chance.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
        writer.writerows(rows)
        text = encoded(out.getvalue())
        return text.replace(b"\xed\xa0\x80", self.chance.choice((b"\xff", b"\xc3", b"\xed\xa0\x80")))

    def change_table(self, rows):
        header, chance = rows[0], self.chance
        if not header:
            return
        at = chance.randrange(len(header))
        kind = chance.randrange(24)
        if kind < 9 and len(rows) > 1:
            row = chance.choice(rows[1:])
            if at < len(row):
                row[at] = self.cell(header[at])
        elif kind < 13:  # a column: one value, or one for each row
            value = self.cell(header[at])
            each = chance.random() < 0.5
            for row in rows[1:]:
                if at < len(row):
                    row[at] = (self.cell(header[at]) if each else value)[:200]
        elif kind == 13 and len(rows) > 1:
            row = chance.choice(rows[1:])
            row[:] = [self.cell(column)[:200] for column in header]
        elif kind == 14:
            for row in rows:
                del row[at:at + 1]
        elif kind == 15:
            header[at:at + 1] = [chance.choice((self.cell(), chance.choice(header), header[at].lower(), "Window", "Total Time (ns)"))]
        elif kind == 16:  # other columns' cells under this header
            other = chance.randrange(len(header))
            for row in rows[1:]:
                if max(at, other) < len(row):
                    row[at], row[other] = row[other], row[at]
        elif kind == 17:
            name = chance.choice((self.cell()[:200], *header, "Idle: x (ns)", "± Occupancy (%)", "Duration (ns)"))
            for row in rows:
                row.insert(at, name if row is header else self.cell(name)[:200])
        elif kind == 18 and 1 < len(rows) < 1000:
            row = [cell[:1000] for cell in chance.choice(rows[1:])[:100]]
            rows.extend(list(row) for _ in range(chance.choice((1, 1, 5, 200, 5000))))
        elif kind == 19:
            del rows[chance.randrange(len(rows)):]
            rows[:] = rows or [header]
        elif kind == 20 and len(rows) > 1:
            del rows[chance.randrange(1, len(rows))]
        elif kind == 21:
            tail = rows[1:]
            chance.shuffle(tail)
            rows[1:] = tail
        elif kind == 22 and len(rows) > 1:
            row = chance.choice(rows[1:])
            row[:] = row[:at] if chance.random() < 0.5 else row + [self.cell()] * chance.choice((1, 1000))
        elif kind == 23 and chance.random() < 0.05 and len(rows) > 1:
            row = chance.choice(rows[1:])
            if at < len(row):
                row[at] = "a" * (17 << 20)

    # Any file

    def bytes(self, data):
        kind = self.chance.randrange(9)
        at = self.chance.randrange(len(data) + 1)
        if kind == 0:
            return b""
        if kind == 1:
            return data[:at]
        if kind == 2:
            return data[:at] + self.chance.choice((b"\0", b"\xff", b"\xc3\x28", b"\xef\xbb\xbf", b'"', b"\n", b"\r", b",", b"'", b"\x1b[2J")) + data[at:]
        if kind == 3:
            return data[:at] + bytes(self.chance.randrange(256) for _ in range(self.chance.choice((1, 8, 200)))) + data[at:]
        if kind == 4 and data:
            changed = bytearray(data)
            for _ in range(self.chance.choice((1, 4, 50))):
                changed[self.chance.randrange(len(changed))] ^= 1 << self.chance.randrange(8)
            return bytes(changed)
        if kind == 5:
            to = self.chance.randrange(len(data) + 1)
            return data[: max(at, to)] + data[min(at, to):]
        if kind == 6:
            return data.decode("utf-8", "replace").encode("utf-16")
        if kind == 7:
            return bytes(self.chance.randrange(256) for _ in range(self.chance.choice((10, 1000))))
        return self.chance.choice([files[name] for files in self.folders.values() for name in sorted(files)])

    def file(self, path):
        """Something else in the file's place."""
        kind = self.chance.randrange(14)
        if kind == 0:
            path.unlink()
        elif kind == 1:
            path.unlink()
            path.mkdir()
        elif kind == 2:
            path.unlink()
            os.mkfifo(path)
        elif kind < 9:
            path.unlink()
            path.symlink_to(("none", path.name, "/dev/zero", "/dev/null", "..", path.parent / "window_sum.csv")[kind - 3])
        elif kind == 9:
            path.chmod(0)
        elif kind < 12:  # with something before the hole, or nothing
            if kind == 11:
                path.write_bytes(b"")
            os.truncate(path, self.chance.choice((1 << 20, 200 << 20, 1 << 40)))
        elif kind == 12:
            data = path.read_bytes()
            path.write_bytes(data + data[data.find(b"\n") + 1:] * min(2000, (1 << 20) // (len(data) + 1)))
        else:
            path.write_bytes((b"a" * 199 + b"\n") * (1 << 13) if self.chance.random() < 0.5 else b"," * (1 << 20))


class Case:
    def __init__(self, target, seed, number, folders):
        self.chance = random.Random(f"{target} {seed} {number}")
        self.damage = Damage(self.chance, folders)
        self.folders = folders
        self.target = target
        self.damages = 0

    def make(self, root):
        """The folders under `root / "in"`; what to say to `inject`, whose output goes to `root / "out"`."""
        (root / "in").mkdir(parents=True)
        (root / "out").mkdir()
        return getattr(self, self.target)(root / "in", root / "out")

    def likely(self, share):
        return self.chance.random() < share

    def folder(self, parent, source, name=None, damaged=True):
        name = name or (self.chance.choice(NAMES) if self.likely(0.15) else f"run{len(os.listdir(parent))}")
        path = parent / name
        while path.exists():
            path = parent / f"{len(os.listdir(parent))}"
        path.mkdir()
        for each, data in self.folders[source].items():
            (path / each).write_bytes(data)
        if damaged:
            for _ in range(self.chance.choice((1, 1, 2, 3, 6))):
                self.hit(path, source)
        return path

    def hit(self, path, source):
        self.damages += 1
        names = sorted(self.folders[source])
        # What holds the others together is hit as often as a third of them.
        name = self.chance.choice(names) if self.likely(0.7) or "run.json" not in names else "run.json"
        file = path / name
        if file.is_symlink() or not file.is_file() or file.stat().st_size > 1 << 24 or not file.stat().st_mode & 0o400:
            return  # what is there is no table already, or nothing that a user other than root can read
        kind = self.chance.randrange(20)
        if kind == 0:
            self.damage.file(file)
        elif kind < 3:
            file.write_bytes(self.damage.bytes(file.read_bytes()))
        elif name.endswith(".json"):
            file.write_bytes(self.damage.json(file.read_bytes()))
        elif name.endswith(".csv"):
            file.write_bytes(self.damage.csv(file.read_bytes()))
        else:
            file.write_bytes(self.damage.bytes(file.read_bytes()))

    def single(self):
        return self.chance.choice(("windows", "everything", "everything", "code", "code", "usage", "usage", "recovered", "job/rank-1"))

    def oddity(self, parent):
        """What is no result folder."""
        self.damages += 1
        path = parent / "odd"
        kind = self.chance.randrange(6)
        if kind == 0:
            path.write_text("x")
        elif kind == 1:
            path.mkdir()
        elif kind == 2:
            path.symlink_to("odd")
        elif kind == 3:
            os.mkfifo(path)
        elif kind == 4:
            path = parent / ("n" * 300)
        return path

    def some(self, parent, counts):
        found = [self.folder(parent, self.single(), damaged=number == 0 or self.likely(0.5)) for number in range(self.chance.choice(counts))]
        if self.likely(0.05):
            found.append(self.oddity(parent))
        return found

    def report(self, into, out):
        how = self.chance.choice((["--json"], ["-o", out / "report.html"], ["-o", out / "report.html"], ["-o", "-"]))
        return ["report", *self.some(into, (1, 1, 1, 2)), *how]

    def check(self, into, out):
        del out
        return ["check", *self.some(into, (1, 1, 2)), *(["--json"] if self.likely(0.3) else [])]

    def compare(self, into, out):
        source = self.single()
        runs = [self.folder(into, source if self.likely(0.7) else self.single(), damaged=number == 1 or self.likely(0.3))
                for number in range(self.chance.choice((2, 2, 2, 3, 4)))]
        if self.likely(0.05):
            runs.append(self.oddity(into))
        if len(runs) == 4:
            runs.insert(2, "vs")
        how = [*(["--json"] if self.likely(0.4) else []), *(["-o", out / "compare.html"] if self.likely(0.4) else []), *(["--strict"] if self.likely(0.1) else [])]
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            how += ["--fail-if", self.chance.choice(("step_time > +5%", "kernel:*gemm* > +1us", "utilization < 80%", "peak_memory > 1GB", "idle_time > +0%",
                                                     "gemm:* > +1%", "throughput < -5%", "occupancy < -3pp", "memory:* > +1MB"))]
        return ["compare", *runs, *how]

    def merge(self, into, out):
        kind = self.chance.randrange(8)
        job = into / "job"
        job.mkdir()
        given = [job]
        if kind == 0:
            given = [self.folder(into, "copies", "copies")]
        elif kind < 3:
            for _ in range(self.chance.choice((1, 2, 3))):
                self.folder(job, self.single(), damaged=self.likely(0.6))
        else:
            hit = self.chance.randrange(4)
            for rank in range(self.chance.choice((1, 2, 4, 4))):
                self.folder(job, f"job/rank-{rank}", damaged=rank == hit or self.likely(0.3))
        if self.likely(0.1):
            other = into / "other"
            other.mkdir()
            given.append(other)
            for rank in range(2):
                self.folder(other, f"job/rank-{rank}", f"r{rank}", damaged=self.likely(0.5))
        if self.likely(0.05):
            given.append(self.oddity(into))
        how = [*(["--json"] if self.likely(0.5) else []), *(["-o", out / "job.html"] if self.likely(0.4) else []),
               *(["--parquet", out / "copies"] if self.likely(0.15) else []), *(["--force"] if self.likely(0.4) else []),
               *(["--jobs", self.chance.choice(("one", "folders"))] if self.likely(0.2) else [])]
        return ["merge", *given, *how]

    def sweep(self, into, out):
        """Its points' folders; the table and the page go into the sweep's own folder, which is therefore its output."""
        del into
        out /= self.chance.choice(NAMES)
        out.mkdir()
        points = []
        for number in range(self.chance.choice((1, 2, 3))):
            (out / f"{number}").mkdir()
            self.folder(out / f"{number}", self.single(), "run", damaged=self.likely(0.7))
            points.append({"values": {"BATCH": str(number)}, "folder": f"{number}", "status": self.chance.choice(("done", "done", "failed", "out of memory")),
                           "why": "", "exit_status": 0, "seconds": 1.5})
        data = encoded(json.dumps({"inject_sweep": 1, "command": ["train"], "variables": {"BATCH": [point["values"]["BATCH"] for point in points]},
                                   "batch_variable": "BATCH", "settings": {}, "points": points}, indent=2))
        (out / "points.json").write_bytes(self.damage.json(data) if self.likely(0.3) else self.damage.bytes(data) if self.likely(0.1) else data)
        return ["sweep", "--report", out, *(["--json"] if self.likely(0.5) else [])]


# --- what comes of it ----------------------------------------------------------------------------------------------------


class Slow(BaseException):
    """The alarm; no `except Exception` takes it."""


# Which arguments are paths; as many at the end are the folders that they are relative to.
_WRITES = {"os.mkdir": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.symlink": (1,), "os.chmod": (0,), "os.chown": (0,)}
_NEVER = {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "socket.connect", "socket.bind", "webbrowser.open"}
watched = None  # of the case that runs: where it may write, and what else it has done


def watch(event, arguments):
    if watched is None:
        return
    allowed, broken = watched
    if event in _NEVER:
        broken.append(event)
    elif event == "open" or event in _WRITES:
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)):
            return
        paths = _WRITES.get(event, (0,))
        for index in paths:
            if isinstance(arguments[index], str | bytes | os.PathLike):
                path = os.fsdecode(arguments[index])
                folder = arguments[index - len(paths)] if event in _WRITES else -1
                if isinstance(folder, int) and folder >= 0:
                    path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
                if not os.path.abspath(path).startswith(allowed):
                    broken.append(f"{event} {path}")


@functools.cache
def inject():
    # Packing the page's scripts takes longer than all the rest, and they are always the same.
    render.gzip = types.SimpleNamespace(compress=functools.lru_cache(4)(gzip.compress))
    return typer.main.get_command(app)


def command(arguments):
    """(status, stdout, stderr, traceback) of `inject` in this process, as a user sees them."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True) for errors in ("strict", "backslashreplace"))
    status, trace = 0, ""
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            inject()([os.fspath(argument) for argument in arguments], prog_name="inject")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except Slow:
        trace = "too slow:\n" + traceback.format_exc()
    except BaseException:  # what the interpreter would print
        trace = traceback.format_exc()
    return status, out.buffer.getvalue(), err.buffer.getvalue(), trace


_NO_FIGURE = re.compile(rb"(?<![\w'\".])[-+]?(?:nan|inf) ?(?:%|ns|us|ms|s|pp|MB|GB|GB/s|TFLOP/s|steps)(?![\w])")


def refuse(text):
    raise ValueError(f"{text} is not JSON")


def judge(case, arguments, status, out, err, trace):
    """What is wrong with a case, or nothing."""
    if trace:
        last = [line.strip() for line in trace.splitlines() if "/libinject/" in line]
        return f"{trace.strip().splitlines()[-1][:150]} @ {last[-1].partition('/libinject/')[2] if last else '?'}", trace
    gate = "--fail-if" in arguments
    lines = err.decode("utf-8", "replace").splitlines()
    if b"Traceback" in err:
        return "a traceback on stderr", err.decode("utf-8", "replace")
    if status not in STATUSES[case.target] or (case.target == "compare" and status in (1, 3) and not gate):
        return f"status {status}", "\n".join(lines)
    if len(lines) > 12 + 4 * case.damages:
        return "many lines on stderr", "\n".join(lines)
    if status == 2 and not lines:
        return "status 2 without a reason", ""
    for line in lines:
        if not line.startswith("inject: "):
            return "a line that is not inject's", line
        if len(line) > 2200 or not line.isprintable():
            return "a line that is no line", line[:3000]
    if "--json" in arguments and out:
        try:
            json.loads(out, parse_constant=refuse)
        except ValueError as error:
            return f"stdout is not JSON: {str(error)[:40]}", out.decode("utf-8", "replace")[:2000]
    if arguments[-2:] != ["-o", "-"]:
        bad = [line for line in out.decode("utf-8", "replace").split("\n") if not line.isprintable()]
        if bad:
            return "control characters on stdout", bad[0][:300]
    if found := _NO_FIGURE.search(out):
        return "a figure that is none", out[max(0, found.start() - 100):found.end() + 100].decode("utf-8", "replace")
    for page in [argument for argument in arguments if str(argument).endswith(".html")]:
        if page.exists() and (wrong := judge_page(page.read_text(encoding="utf-8"))):
            return wrong
    return None


def judge_page(text):
    data = re.search(r'<script type="text/plain" id="model">(.*?)</script>', text, re.DOTALL)
    try:
        json.loads(gzip.decompress(base64.b64decode(data.group(1))), parse_constant=refuse)
    except (AttributeError, OSError, ValueError) as error:
        return f"the page's data is not JSON: {str(error)[:40]}", ""
    if found := _NO_FIGURE.search(re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL).encode()):
        return "a figure on the page that is none", found.group().decode()
    return None


def run_case(target, seed, number, folders, root):
    """One case in this process; (kind, detail) of what it found, or None."""
    global watched
    case = Case(target, seed, number, folders)
    arguments = case.make(root)
    allowed = (str(root / "out"), str(root / "tmp"), "/dev/null")
    (root / "tmp").mkdir()
    tempfile.tempdir = str(root / "tmp")
    broken = []
    watched = (allowed, broken)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        status, out, err, trace = command(arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        watched = None
    found = judge(case, arguments, status, out, err, trace)
    if found is None and broken:
        found = f"wrote or ran what it should not: {broken[0].split()[0]}", "\n".join(broken)
    if found is None and os.listdir(root / "tmp"):
        found = "temporary files are left", str(os.listdir(root / "tmp"))
    tempfile.tempdir = None
    return found


def rise(*_):
    raise Slow


def serve(pipe, target, seed, numbers, folders, root):
    """In a child: case by case, each with a line before and after it."""
    sys.addaudithook(watch)
    signal.signal(signal.SIGALRM, rise)
    used = int(re.search(r"VmSize:\s*(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    (root / "cwd").mkdir(exist_ok=True)
    os.chdir(root / "cwd")
    for number in numbers:
        place = root / "case"
        os.write(pipe, f"begin {number}\n".encode())
        found = run_case(target, seed, number, folders, place)
        shutil.rmtree(place)
        os.write(pipe, (json.dumps(found) + "\n").encode())


def run_cases(target, seed, first, last, folders, until=math.inf):
    """Yields (number, found) of each case; children do the work, and are begun anew after some cases, and after one that ended them."""
    number = first
    with tempfile.TemporaryDirectory(prefix="inject-fuzz-") as name:
        root = pathlib.Path(name).resolve()
        while number < last and time.monotonic() < until:
            shutil.rmtree(root / "case", ignore_errors=True)
            end, begin = os.pipe()
            child = os.fork()
            if not child:
                try:
                    os.close(end)
                    serve(begin, target, seed, range(number, min(last, number + CASES_OF_A_PROCESS)), folders, root)
                except BaseException:  # of ours, or no memory is left
                    traceback.print_exc()
                finally:
                    os._exit(0)
            os.close(begin)
            try:
                for number, found in replies(end, number):
                    yield number, found
                    if time.monotonic() >= until:
                        break
            finally:
                os.close(end)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            number += 1


def replies(pipe, number):
    waiting, busy = b"", True
    while True:
        if not select.select([pipe], [], [], 3 * SECONDS)[0]:
            yield number, ["does not end, whatever signal comes", ""]
            return
        data = os.read(pipe, 1 << 16)
        if not data:
            if busy:
                yield number, ["ended the process", ""]
            return
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            busy = line.startswith(b"begin ")
            if busy:
                number = int(line[6:])
            else:
                yield number, json.loads(line)


def keep(folder, target, seed, number, folders, kind, detail):
    """What a finding was read from, and what was said of it."""
    place = folder / f"{target}-{seed}-{number}"
    shutil.rmtree(place, ignore_errors=True)
    arguments = Case(target, seed, number, folders).make(place)
    (place / "command").write_text(shlex.join(["inject", *map(os.fspath, arguments)]) + "\n", encoding="utf-8", errors="surrogateescape")
    (place / "finding").write_text(f"{kind}\n\n{detail}\n", encoding="utf-8", errors="replace")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", action="append", choices=TARGETS, help="a command whose folders are damaged; all by default")
    parser.add_argument("--seconds", type=float, default=60, help="for each target (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--cases", type=int, default=1 << 60, help="at most so many")
    parser.add_argument("--kept", action="store_true", help="begin with the folders in tests/data, as the tests do, not with new ones")
    parser.add_argument("--renew", action="store_true", help="make those anew")
    parser.add_argument("--verbose", action="store_true", help="what each case takes")
    parser.add_argument("--findings", type=pathlib.Path, default=ROOT / "build-fuzz" / "findings", help="where findings are kept")
    options = parser.parse_args()
    if options.renew:
        renew_kept()
    failed = False
    folders = folders_to_begin_with(options.kept)
    for target in options.target or TARGETS:
        kinds = collections.defaultdict(list)
        begin, done, used = time.monotonic(), 0, resource.getrusage(resource.RUSAGE_CHILDREN)
        for number, found in run_cases(target, options.seed, options.first, options.first + options.cases, folders, begin + options.seconds):
            done += 1
            if options.verbose:
                print(f"{number}: {time.monotonic() - begin:.3f} s", flush=True)
            if found:
                kinds[found[0]].append(number)
                if len(kinds[found[0]]) == 1:
                    keep(options.findings.resolve(), target, options.seed, number, folders, *found)
                    print(f"{target}: case {number}: {found[0]}", flush=True)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
        print(f"{target}: seed {options.seed}: {done} cases in {time.monotonic() - begin:.0f} s ({seconds:.0f} s of a processor), "
              f"{sum(map(len, kinds.values()))} findings of {len(kinds)} kinds", flush=True)
        for kind, numbers in sorted(kinds.items(), key=lambda item: -len(item[1])):
            print(f"  {len(numbers):6} {kind}  (case {numbers[0]})")
        failed = failed or bool(kinds)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
