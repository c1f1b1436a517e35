#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""INJECT_PROM's file: its values are those of the tables, promtool accepts it and the dashboard's queries, a node exporter and a Prometheus
pass on all of it, and if it can't be written nothing else suffers.

usage: test_prometheus.py LIBRARY PROGRAMS SIMULATION INJECTCTL SOURCE_FOLDER
"""

import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import statistics
import subprocess
import sys
import time
import unittest
import urllib.parse
import urllib.request

import simulated

source = pathlib.Path(sys.argv.pop(5)).resolve()
injectctl = pathlib.Path(sys.argv.pop(4)).resolve()

STEP = "kernel:first:1 kernel:middle:2 gemm copy:h2d:4096 memset:100 kernel:adam_step:1 sleep:2"
# Two windows of iterations; values of the first are in the file before the second begins. The last ten iterations run without CUPTI,
# however late the earlier ones were.
WINDOWS = (f"sync malloc:x:1000000 loop:8 [ {STEP} ] looks:2 loop:4 [ {STEP} ] looks:2 loop:12 [ {STEP} ] until_closed "
           f"until_text:p.prom:libinject_verdict{{ looks:2 loop:20 [ {STEP} ] until_calls:cuptiFinalize:2 loop:10 [ {STEP} ] sync")
TEXT = "kernel:a:3 start kernel:b:2 copy:h2d:64 stop print:done sync return:3"
SAMPLE = re.compile(r'(libinject_[a-z0-9_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\} (-?[0-9.e+-]+)')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')
OWN = ("pid", "rank")


def installed(name):
    """The path of this program of Prometheus; None if it is not installed."""
    own = source / "build" / "deps" / "prometheus" / name
    return str(own) if own.exists() else shutil.which(name)


def promtool():
    return installed("promtool")


class Metrics:
    """A file, parsed by the format's rules and stricter ones: no comment but HELP and TYPE, no timestamp, no blank line."""

    def __init__(self, path):
        self.text = path.read_bytes().decode("utf-8")
        self.types, self.helps, self.samples = {}, {}, {}
        assert self.text.endswith("\n")
        for line in self.text.splitlines():
            if line.startswith("# "):
                _, what, name, rest = line.split(" ", 3)
                table = {"HELP": self.helps, "TYPE": self.types}[what]
                assert name not in table, line
                table[name] = rest
                current = name
                continue
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            assert name == current and name in self.types and name in self.helps, line
            labels = {key: re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)
                      for key, text in LABEL.findall(labels)}
            key = name, *sorted(labels.items())
            assert key not in self.samples, line
            self.samples[key] = value

    def all(self, name, *labels):
        """{label or labels: value}"""
        found = {}
        for (of, *pairs), value in self.samples.items():
            if of == name:
                values = tuple(dict(pairs)[label] for label in labels)
                found[values[0] if len(labels) == 1 else values] = float(value)
        return found

    def one(self, name):
        (value,) = self.all(name).values()
        return value

    def states(self):
        return {state for state, value in self.all("libinject_state", "state").items() if value == 1}


class Prometheus(simulated.SimulatedTest):
    def check_close(self, found, expected, what=""):
        """Numbers of seconds, bytes or shares that are equal up to the digits that a CSV file lacks."""
        self.assertEqual(set(found), set(expected), what)
        for key, value in expected.items():
            self.assertAlmostEqual(found[key], value, delta=1e-9 * abs(value) + 1e-12, msg=f"{what} {key}")

    def training(self, **options):
        return self.script(WINDOWS, **{"WINDOW": "iter:15+4/20x2", "PROM": "p.prom", "BATCH": "32", **options})

    def promtool(self, *arguments, **how):
        """Its output, after checking that it has no complaints."""
        tool = promtool()
        if tool is None:
            self.skipTest("no promtool: scripts/setup.sh fetches it as root, Debian's package prometheus has it")
        done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False, **how)
        self.assertEqual((done.returncode, done.stderr.replace("SUCCESS", "").strip() if how else ""), (0, ""), done.stdout + done.stderr)
        return done.stdout


class Figures(Prometheus):
    def test_they_are_the_tables(self):
        done = self.training()
        metrics = Metrics(done.work / "p.prom")
        self.check_run(metrics, done.out)
        self.check_sums(metrics, done.out)
        self.check_latest(metrics, done.out)
        self.check_memory(metrics, done.out)
        self.assertEqual(done.warnings(), [])
        # No other file is left beside it; it is readable by others, which no other file is.
        self.assertEqual(sorted(path.name for path in done.work.iterdir()), ["out", "p.prom"])
        self.assertEqual(stat.S_IMODE((done.work / "p.prom").stat().st_mode), 0o644)
        if promtool() is not None:
            self.promtool("check", "metrics", input=metrics.text)

    def check_run(self, metrics, out):
        run = out.run
        self.assertEqual({key[1:] for key in metrics.samples if key[0] == "libinject_info"},
                         {(("gpu", "Simulated H200"), ("host", run["host"]), ("pid", str(run["pid"])), ("rank", "0"),
                           ("version", run["libinject"]))})
        self.assertEqual(metrics.all("libinject_gpu_info", "device", "gpu", "uuid"),
                         {("0", "Simulated H200", run["devices"][0]["uuid"]): 1})
        self.assertEqual(metrics.states(), {"closed"})
        self.check_close({"start": metrics.one("libinject_start_timestamp_seconds")}, {"start": run["time_zero"]["utc_ns"] / 1e9})
        self.assertLessEqual(metrics.one("libinject_last_window_end_timestamp_seconds"),
                             metrics.one("libinject_last_update_timestamp_seconds") + 1)
        self.assertLess(abs(metrics.one("libinject_last_update_timestamp_seconds") - time.time()), 600)
        self.assertEqual(metrics.all("libinject_lost_total", "kind"), {kind: count for kind, count in run["lost"].items()})
        overhead = {name.removesuffix("_ns"): value / 1e9 for name, value in run["overhead"].items()
                    if name.endswith("_ns")}
        self.check_close(metrics.all("libinject_overhead_seconds_total", "part"), overhead, "overhead")
        prometheus = run["prometheus"]
        self.assertEqual((prometheus["file"], prometheus["failed"]), (str(out.path.parent / "p.prom"), 0))
        self.assertGreaterEqual(prometheus["written"], 2)
        self.assertEqual(metrics.one("libinject_write_errors_total"), 0)

    def check_sums(self, metrics, out):
        rows = out.rows("window_sum.csv")
        every, device = [row for row in rows if row["Device"] == "all"], [row for row in rows if row["Device"] == "0"]
        self.assertEqual(len(rows), len(every) + len(device))
        self.assertEqual(metrics.one("libinject_windows_total"), len(every))
        seconds = {"libinject_window_time_seconds_total": (every, "Duration (ns)"),
                   "libinject_gpu_time_seconds_total": (device, "Device Time (ns)"),
                   "libinject_gpu_kernel_busy_seconds_total": (device, "Kernel Busy (ns)"),
                   "libinject_gpu_copy_only_seconds_total": (device, "Copy Only (ns)"),
                   "libinject_kernel_time_seconds_total": (device, "Kernel Time (ns)")}
        for name, (of, column) in seconds.items():
            self.check_close({name: metrics.one(name)}, {name: self.sum(of, column) / 1e9})
        self.check_close(metrics.all("libinject_gpu_idle_seconds_total", "cause"), self.idle(device))
        self.assertEqual(metrics.one("libinject_kernels_total"), self.sum(device, "Kernels"))
        self.assertEqual(metrics.one("libinject_flop_total"), self.sum(every, "FLOPs"))
        self.assertGreater(metrics.one("libinject_flop_total"), 0)
        self.assertEqual(metrics.one("libinject_memsets_total"), self.sum(device, "Memsets"))
        self.assertEqual(metrics.one("libinject_memset_bytes_total"), 100 * self.sum(device, "Memsets"))
        (copies,) = out.rows("copy_sum.csv")
        key = copies["Device"], copies["Direction"]
        self.assertEqual(key, ("0", "Host-to-Device"))
        self.assertEqual(metrics.all("libinject_copies_total", "device", "direction"), {key: int(copies["Count"])})
        self.assertEqual(metrics.all("libinject_copy_bytes_total", "device", "direction"), {key: 4096 * int(copies["Count"])})
        self.check_close(metrics.all("libinject_copy_time_seconds_total", "device", "direction"),
                         {key: int(copies["Total Time (ns)"]) / 1e9})
        kernels = {row["Name"]: int(row["Total Time (ns)"]) for row in out.rows("cuda_gpu_kern_sum.csv")}
        self.check_close(metrics.all("libinject_top_kernel_time_ratio", "kernel"),
                         {name: value / sum(kernels.values()) for name, value in kernels.items()})

    def idle(self, rows):
        causes = [name for name in rows[0] if name.startswith("Idle: ")]
        return {name.removeprefix("Idle: ").removesuffix(" (ns)"): self.sum(rows, name) / 1e9 for name in causes}

    def check_latest(self, metrics, out):
        rows = out.rows("window_sum.csv")
        last = rows[-1]["Window"]
        self.assertEqual(metrics.one("libinject_latest_windows"), 1)
        (every,) = [row for row in rows if row["Window"] == last and row["Device"] == "all"]
        (device,) = [row for row in rows if row["Window"] == last and row["Device"] == "0"]
        device_time = int(device["Device Time (ns)"])
        self.check_close(metrics.all("libinject_gpu_utilization_ratio", "device"),
                         {"0": int(device["Kernel Busy (ns)"]) / device_time})
        self.check_close(metrics.all("libinject_gpu_idle_ratio", "cause"),
                         {cause: value * 1e9 / device_time for cause, value in self.idle([device]).items()})
        self.assertEqual(metrics.all("libinject_verdict", "device", "verdict"), {("0", device["Verdict"]): 1})
        self.assertAlmostEqual(metrics.one("libinject_potential_gain_ratio"), float(device["Potential Gain (%)"]) / 100, delta=0.0006)
        self.check_close({"flop": metrics.one("libinject_flop_per_second")}, {"flop": int(every["FLOPs"]) * 1e9 / int(every["Duration (ns)"])})
        # All copies have the same size and duration.
        (copies,) = out.rows("copy_sum.csv")
        self.check_close(metrics.all("libinject_copy_bytes_per_second", "direction"),
                         {"Host-to-Device": 4096 * int(copies["Count"]) * 1e9 / int(copies["Total Time (ns)"])})
        # A window that is too short for a reading has none.
        host = [float(row["Cores Used"]) for row in out.rows("host_sum.csv") if (row["Window"], row["Role"]) == (last, "process") and row["Cores Used"]]
        self.assertEqual([round(used, 3) for used in metrics.all("libinject_processors_used").values()], host)
        steps = [int(row["Duration (ns)"]) for row in out.rows("iteration_sum.csv")
                 if row["Device"] == "all" and row["Label"] == "iteration" and row["Complete"] == "1"]
        self.assertEqual(metrics.one("libinject_steps_total"), len(steps))
        self.check_close({"steps": metrics.one("libinject_step_time_seconds_total")}, {"steps": sum(steps) / 1e9})
        # Once enough of them have run.
        self.assertEqual([round(time * 1e9, 1) for time in metrics.all("libinject_unprofiled_step_time_seconds").values()],
                         [float(row["Step Time (ns)"]) for row in out.windows()[-1:] if row["Step Time (ns)"]])
        latest = sorted(steps[-int(metrics.one("libinject_latest_steps")):])
        self.assertTrue(latest)
        mean = statistics.mean(latest) / 1e9
        self.check_close({name: metrics.one(f"libinject_step_time_{name}_seconds") for name in ("mean", "median", "p95")},
                         {"mean": mean, "median": statistics.median(latest) / 1e9, "p95": latest[-(len(latest) // 20) - 1] / 1e9})
        self.check_close({"rate": metrics.one("libinject_samples_per_second")}, {"rate": 32e9 / statistics.median(latest)})

    def check_memory(self, metrics, out):
        self.assertEqual(metrics.all("libinject_gpu_memory_total_bytes", "device")["0"], out.run["devices"][0]["memory_bytes"])
        for row in out.rows("memory_sum.csv"):
            if row["API"] != "[all]":
                continue
            for name, column in (("allocated", "Live"), ("allocated_peak", "Peak")):
                self.assertAlmostEqual(metrics.all(f"libinject_{name}_bytes", "device")[row["Device"]] / 1e6,
                                       float(row[f"{column} (MB)"]), delta=0.0005001)
            for name, column in (("allocations", "Allocations"), ("failed_allocations", "Failed")):
                self.assertEqual(metrics.all(f"libinject_{name}_total", "device")[row["Device"]], int(row[column]))
        used = {row["Device"]: row["Memory at End (MB)"] for row in out.rows("window_sum.csv") if row["Memory at End (MB)"]}
        for device, megabytes in used.items():
            self.assertAlmostEqual(metrics.all("libinject_gpu_memory_used_bytes", "device")[device] / 1e6, float(megabytes), delta=0.0005001)
        readings = [(row["Device"], row[f"Memory at {edge} (MB)"]) for row in out.rows("window_sum.csv") for edge in ("Start", "End")]
        readings += [(row["Device"], row["Highest (MB)"]) for row in out.rows("memory_timeline.csv") if row["Of"] == "in use"]
        for device in used:
            most = metrics.all("libinject_gpu_memory_used_peak_bytes", "device")[device]
            self.assertAlmostEqual(most / 1e6, max(float(size) for of, size in readings if of == device and size), delta=0.0005001)

    def test_between_windows(self):
        """The file's content while the program runs: complete, and up to the previous window."""
        text = ('start until_text:p.prom:libinject_state kernel:a:1 sync looks:2 kernel:a:1 sync stop until_text:p.prom:libinject_verdict{ '
                'crash:KILL')
        done = self.script(text, WINDOW="api", PROM="p.prom", check=False)
        self.assertEqual(done.code, -signal.SIGKILL)
        metrics = Metrics(done.work / "p.prom")
        self.assertEqual((metrics.states(), metrics.one("libinject_windows_total"), metrics.one("libinject_kernels_total")),
                         ({"waiting"}, 1, 2))
        # A process that was killed: the file stays as it was, whatever happens to the tables.
        before = (done.work / "p.prom").read_bytes(), (done.work / "p.prom").stat().st_mtime_ns
        recovered = subprocess.run([str(injectctl), "recover", str(done.out.path)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(recovered.returncode, 0, recovered.stderr)
        self.assertEqual(done.out.run["state"], "recovered")
        self.assertEqual(((done.work / "p.prom").read_bytes(), (done.work / "p.prom").stat().st_mtime_ns), before)

    def test_recovery_makes_none(self):
        done = self.script("start kernel:a:1 sync until_text:out/run.json:time_zero until_text:p.prom:libinject_state crash:KILL",
                           WINDOW="api", PROM="p.prom", check=False)
        self.assertEqual(done.code, -signal.SIGKILL)
        self.assertEqual(Metrics(done.work / "p.prom").states(), {"open"})
        (done.work / "p.prom").unlink()
        subprocess.run([str(injectctl), "recover", str(done.out.path)], capture_output=True, timeout=60, check=True)
        self.assertEqual(sorted(path.name for path in done.work.iterdir()), ["out"])

    def test_names_are_escaped(self):
        name = 'k"q\\n{}é'
        done = self.script(f"start kernel:{name}:2 stop sync", WINDOW="api", PROM="p.prom")
        metrics = Metrics(done.work / "p.prom")
        self.assertEqual(list(metrics.all("libinject_top_kernel_time_ratio", "kernel")),
                         [row["Name"] for row in done.out.rows("cuda_gpu_kern_sum.csv")])
        self.assertIn('\\"q\\\\n', metrics.text)
        if promtool() is not None:
            self.promtool("check", "metrics", input=metrics.text)


class Files(Prometheus):
    def check_program(self, done):
        self.assertEqual((done.code, done.stdout), (3, "done\n"))

    def test_placeholders_and_ranks(self):
        """The collector's view of two ranks' files: no family has two help texts, and no sample occurs twice."""
        folder = self.folder / "textfile"
        folder.mkdir()
        for rank in ("0", "1"):
            done = self.script(TEXT, WINDOW="api", PROM=f"{folder}/%q{{JOB}}-%r.prom", env={"RANK": rank, "JOB": "7"})
            self.check_program(done)
            self.assertEqual(done.warnings(), [])
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["7-0.prom", "7-1.prom"])
        one, two = Metrics(folder / "7-0.prom"), Metrics(folder / "7-1.prom")
        # A family without samples (such as an unbounded gain) may be in only one of the files.
        shared = one.helps.keys() & two.helps.keys()
        self.assertIn("libinject_kernels_total", shared)
        self.assertEqual([(one.helps[name], one.types[name]) for name in shared],
                         [(two.helps[name], two.types[name]) for name in shared])
        self.assertEqual(set(one.samples) & set(two.samples), set())
        self.assertEqual({dict(key[1:])["rank"] for key in two.samples}, {"1"})
        if promtool() is not None:
            lines = collections.defaultdict(list)
            for metrics in (one, two):
                for line in metrics.text.splitlines():
                    if not line.startswith("#"):
                        lines[line.partition("{")[0]].append(line)
            helps, types = one.helps | two.helps, one.types | two.types
            together = "".join(f"# HELP {name} {helps[name]}\n# TYPE {name} {types[name]}\n" + "\n".join(of) + "\n"
                               for name, of in lines.items())
            self.promtool("check", "metrics", input=together)

    def test_ranks_that_write_one_file(self):
        done = self.script(TEXT, WINDOW="api", PROM="p.prom", env={"RANK": "1"})
        self.check_program(done)
        (warning,) = done.warnings()
        self.assertIn("add %r or %p", warning)
        self.assertEqual(self.script(TEXT, WINDOW="api", PROM="p.prom", env={"RANK": "0"}).warnings(), [])

    def test_an_older_file_is_replaced(self):
        (self.folder / "p.prom").write_text("older")
        done = self.script(TEXT, WINDOW="api", PROM=f"{self.folder}/p.prom")
        self.check_program(done)
        self.assertEqual(Metrics(self.folder / "p.prom").one("libinject_windows_total"), 1)
        self.assertEqual([path.name for path in self.folder.glob(".*")], [])

    def test_without_an_output_folder(self):
        done = self.script(TEXT, WINDOW="api", OUT="/proc/none/out", PROM="p.prom")
        self.check_program(done)
        (warning,) = done.warnings()
        self.assertIn("INJECT_OUT=", warning)
        metrics = Metrics(done.work / "p.prom")
        self.assertEqual((metrics.states(), metrics.one("libinject_kernels_total")), ({"closed"}, 2))

    def test_without_a_window(self):
        done = self.script("kernel:a:3 print:done return:3", WINDOW="api", PROM="p.prom", check=False)
        self.check_program(done)
        self.assertEqual(list(done.work.iterdir()), [])

    def check_unwritten(self, done, where, why):
        self.check_program(done)
        (warning,) = done.warnings()
        self.assertIn(where, warning)
        self.assertIn(why, warning)
        run = done.out.run
        self.assertEqual((run["state"], run["messages"], done.out.kernels()), ("closed", [warning], {"b": 2}))
        self.assertEqual(run["prometheus"]["written"], 0)
        self.assertGreaterEqual(run["prometheus"]["failed"], 1)
        self.assertNotIn("records", done.out.files())

    def test_a_folder_that_is_not_there(self):
        self.check_unwritten(self.script(TEXT, WINDOW="api", PROM="none/p.prom"), "none/", "No such file")
        self.check_unwritten(self.script(TEXT, WINDOW="api", PROM="/proc/none/p.prom"), "/proc/none/", "No such file")

    def test_what_is_no_file(self):
        (self.folder / "p.prom").mkdir()
        self.check_unwritten(self.script(TEXT, WINDOW="api", PROM=f"{self.folder}/p.prom"), "p.prom", "other than a regular file")
        (self.folder / "mine").write_text("mine")
        (self.folder / "q.prom").symlink_to("mine")
        self.check_unwritten(self.script(TEXT, WINDOW="api", PROM=f"{self.folder}/q.prom"), "q.prom", "other than a regular file")
        self.assertEqual((self.folder / "mine").read_text(), "mine")

    @unittest.skipIf(os.geteuid() != 0, "only root can make another user's files")
    def test_what_another_user_has_put_in_the_way(self):
        shared = self.folder / "shared"
        shared.mkdir()
        shared.chmod(0o1777)
        (self.folder / "mine").mkdir()
        (shared / "link").symlink_to(self.folder / "mine")
        os.chown(shared / "link", 65534, 65534, follow_symlinks=False)
        self.check_unwritten(self.script(TEXT, WINDOW="api", PROM=f"{shared}/link/p.prom"), "link", "another user has made")
        self.assertEqual(list((self.folder / "mine").iterdir()), [])

    def test_a_full_disk(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(disk)], capture_output=True, check=False).returncode != 0:
            self.skipTest("no file system can be mounted here")
        try:
            (disk / "p.prom").write_text("older")
            self.check_unwritten(self.script(TEXT, WINDOW="api", PROM=f"{disk}/p.prom"), "disk", "No space left")
            self.assertEqual([(path.name, path.read_text()) for path in disk.iterdir()], [("p.prom", "older")])
        finally:
            subprocess.run(["umount", str(disk)], check=True)


class WithDashboard(Prometheus):
    """Has what is in examples/grafana."""

    @classmethod
    def setUpClass(cls):
        cls.dashboard = json.loads((source / "examples" / "grafana" / "libinject.json").read_text(encoding="utf-8"))
        cls.rules = (source / "examples" / "grafana" / "libinject.rules.yml").read_text(encoding="utf-8")


class Dashboard(WithDashboard):
    """Everything that it queries is written."""

    def expressions(self):
        found = [target["expr"] for panel in self.dashboard["panels"] for target in panel["targets"]]
        return found + [variable["definition"] for variable in self.dashboard["templating"]["list"] if "definition" in variable]

    def test_metrics_and_labels(self):
        done = self.training()
        metrics = Metrics(done.work / "p.prom")
        # A busy machine may leave too few steps without the profiler for this one; tests/unit/test_prometheus.cpp always covers it.
        unprofiled = "libinject_unprofiled_step_time_seconds"
        labels = collections.defaultdict(set, {unprofiled: set(OWN)})
        for name, *pairs in metrics.samples:
            labels[name] |= {label for label, _ in pairs}
        asked = self.expressions() + re.findall(r"expr: (.*)", self.rules)
        self.assertGreater(len(asked), 25)
        for expression in asked:
            names = re.findall(r"libinject_\w+", expression)
            self.assertTrue(names, expression)
            for name in names:
                self.assertIn(name, {*metrics.types, unprofiled}, expression)
            # Labels used to select, group or match; `instance` is Prometheus' own.
            used = {label for labelled in re.findall(r"(?:by|on|group_left) \(([^)]+)\)", expression) for label in labelled.split(", ")}
            used |= set(re.findall(r'(\w+)=~?"', expression))
            self.assertLessEqual(used - {"instance"}, set().union(*(labels[name] for name in names)), expression)
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"])) - {"instance"}
                self.assertLessEqual(shown, set().union(*(labels[name] for name in re.findall(r"libinject_\w+", target["expr"]))), target)
        # Metrics in the guide's examples exist as well.
        guide = (source / "docs" / "prometheus.md").read_text(encoding="utf-8")
        # The simulated device does not report its energy (test_energy.py has one that does), and this is not PyTorch (test_torch_memory.py,
        # test_torch_allocator.py).
        elsewhere = {unprofiled, "libinject_overhead_ratio", "libinject_gpu_energy_joules", "libinject_gpu_power_watts", "libinject_gpu_clocks_held_down_ratio",
                     "libinject_memory_purpose_bytes", "libinject_torch_peak_bytes", "libinject_activations_at_peak_bytes",
                     "libinject_torch_reserved_bytes", "libinject_torch_allocated_bytes",
                     *(f"libinject_processors_{which}" for which in ("used", "wanted", "allowed"))}  # test_they_are_the_tables
        self.assertLessEqual(set(re.findall(r"libinject_\w+", guide)), set(metrics.types) | elsewhere)

    def test_panels(self):
        panels = self.dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
            self.assertFalse(taken & cells, panel["title"])
            taken |= cells
            self.assertEqual(panel["datasource"]["uid"], "${datasource}")
        self.assertEqual([variable["name"] for variable in self.dashboard["templating"]["list"]], ["datasource", "host", "rank"])

    def test_expressions_by_promtool(self):
        plain = [re.sub(r"\$(host|rank)", ".*", target["expr"]) for panel in self.dashboard["panels"] for target in panel["targets"]]
        # JSON is YAML.
        path = self.folder / "rules.yml"
        path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": [
            {"record": f"panel:{i}", "expr": expression} for i, expression in enumerate(plain)]}]}))
        self.assertIn(f"{len(plain)} rules found", self.promtool("check", "rules", path))

    def test_a_verdict_without_a_gain_by_promtool(self):
        """Its row stays in the table of verdicts."""
        (expression,) = [target["expr"] for panel in self.dashboard["panels"] for target in panel["targets"] if "potential_gain" in target["expr"]]
        verdicts = {"0": "launch-bound", "1": "GPU-bound"}
        own = 'instance="node7",pid="7",rank="0"'
        series = [{"series": f'libinject_verdict{{{own},device="{device}",verdict="{verdict}"}}', "values": "1x5"} for device, verdict in verdicts.items()]
        series.append({"series": f'libinject_potential_gain_ratio{{{own},device="0"}}', "values": "0.25x5"})
        # NaN equals nothing, so it is counted.
        asked = re.sub(r"\$(host|rank)", ".*", expression)
        test = self.folder / "test.yml"
        test.write_text(json.dumps({"rule_files": [], "evaluation_interval": "1m", "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [
            {"expr": f"count by (device, verdict) ({asked})", "eval_time": "3m", "exp_samples": [
                {"labels": f'{{device="{device}",verdict="{verdict}"}}', "value": 1} for device, verdict in verdicts.items()]},
            {"expr": f"({asked}) >= 0", "eval_time": "3m", "exp_samples": [{"labels": f'{{{own},device="0",verdict="launch-bound"}}', "value": 0.25}]}]}]}))
        self.promtool("test", "rules", test)

    def test_alerts_by_promtool(self):
        """A killed process raises an alert, one that has ended does not."""
        path = source / "examples" / "grafana" / "libinject.rules.yml"
        self.promtool("check", "rules", path)
        series = []
        for pid, closed in (("7", 0), ("8", 1)):
            own = f'instance="node7",pid="{pid}",rank="0"'
            series += [{"series": f"libinject_last_update_timestamp_seconds{{{own}}}", "values": "0x60"},
                       {"series": f'libinject_state{{{own},state="closed"}}', "values": f"{closed}x60"},
                       {"series": f'libinject_state{{{own},state="waiting"}}', "values": f"{1 - closed}x60"}]
        # Of the two that run, one is slow; the others were faster than both.
        for pid, step in (("7", 0.1), ("8", 0.1), ("9", 0.2), ("10", 0.3)):
            series.append({"series": f'libinject_step_time_mean_seconds{{instance="node7",pid="{pid}",rank="{int(pid) - 7}"}}',
                           "values": f"{step}x80"})
        for pid in ("9", "10"):
            own = f'instance="node7",pid="{pid}",rank="{int(pid) - 7}"'
            series += [{"series": f"libinject_last_update_timestamp_seconds{{{own}}}", "values": "0+60x80"},
                       {"series": f'libinject_state{{{own},state="closed"}}', "values": "0x80"}]
        lags = {"exp_labels": {"instance": "node7", "pid": "10", "rank": "3"},
                "exp_annotations": {"summary": "A step of rank 3 takes 300ms, a fifth longer than that of the fastest on node7"}}
        silent = {"exp_labels": {"instance": "node7", "pid": "7", "rank": "0"},
                  "exp_annotations": {"summary": "Rank 0 on node7 has ended without a word, or hangs"}}
        test = self.folder / "test.yml"
        test.write_text(json.dumps({"rule_files": [str(path)], "evaluation_interval": "1m", "tests": [
            {"interval": "1m", "input_series": series, "alert_rule_test": [
                {"eval_time": "20m", "alertname": "LibinjectProcessSilent", "exp_alerts": []},
                {"eval_time": "40m", "alertname": "LibinjectProcessSilent", "exp_alerts": [silent]},
                {"eval_time": "70m", "alertname": "LibinjectRankLags", "exp_alerts": [lags]}]}]}))
        self.promtool("test", "rules", test)


class Server(WithDashboard):
    """A Prometheus that scrapes a node exporter, which reads the files of three processes."""

    LIMIT = 100

    def setUp(self):
        super().setUp()
        missing = [name for name in ("prometheus", "prometheus-node-exporter") if installed(name) is None]
        if missing:
            self.skipTest(f"no {' and no '.join(missing)}: scripts/setup.sh fetches them as root, Debian has packages of these names")

    def serve(self, name, path, *arguments):
        """Runs it until the test ends; returns its address once it answers."""
        for _ in range(5):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = f"127.0.0.1:{free.getsockname()[1]}"
            log = self.folder / f"{name}.log"
            with log.open("w") as output:
                server = subprocess.Popen([installed(name), f"--web.listen-address={address}", *arguments], stdin=subprocess.DEVNULL,
                                          stdout=output, stderr=output)
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            until = time.monotonic() + self.LIMIT
            while server.poll() is None:
                try:
                    urllib.request.urlopen(f"http://{address}{path}", timeout=self.LIMIT).close()
                    return address
                except OSError:
                    self.assertLess(time.monotonic(), until, f"{name} does not answer")
                    time.sleep(0.05)
            # Another program may have taken the port first.
            self.assertIn("address already in use", log.read_text())
        self.fail(f"no port for {name}")

    def ask(self, what, **parameters):
        with urllib.request.urlopen(f"http://{self.server}/api/v1/{what}?{urllib.parse.urlencode(parameters)}", timeout=self.LIMIT) as answer:
            reply = json.load(answer)
        self.assertEqual(reply["status"], "success")
        return reply["data"]

    def query(self, expression):
        return self.ask("query", query=expression)["result"]

    def until(self, expression):
        """The expression's result, once it has one."""
        until = time.monotonic() + self.LIMIT
        while not (found := self.query(expression)):
            self.assertLess(time.monotonic(), until, expression)
            time.sleep(0.05)
        return found

    def start(self, textfiles):
        exporter = self.serve("prometheus-node-exporter", "/metrics", "--collector.disable-defaults", "--collector.textfile",
                              f"--collector.textfile.directory={textfiles}")
        settings = {"global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
                    "rule_files": [str(source / "examples" / "grafana" / "libinject.rules.yml")],
                    "scrape_configs": [{"job_name": "node", "static_configs": [{"targets": [exporter]}]}]}
        (self.folder / "prometheus.yml").write_text(json.dumps(settings))
        self.server = self.serve("prometheus", "/-/ready", f"--config.file={self.folder}/prometheus.yml",
                                 f"--storage.tsdb.path={self.folder}/data")
        return exporter

    def test_from_the_files_to_the_panels(self):
        textfiles = self.folder / "textfiles"
        textfiles.mkdir()
        # Rank 0 has ended, and so has rank 1; a process without ranks was killed between windows.
        for rank in ("0", "1"):
            self.script(WINDOWS.replace("p.prom", f"{textfiles}/job-{rank}.prom"), WINDOW="iter:15+4/20x2", BATCH="32",
                        PROM=f"{textfiles}/job-%r.prom", env={"RANK": rank})
        self.script(f"start kernel:a:1 copy:h2d:64 sync stop until_text:{textfiles}/killed.prom:libinject_verdict{{ crash:KILL",
                    WINDOW="api", PROM=f"{textfiles}/killed.prom", check=False)
        files = {path.stem: Metrics(path) for path in textfiles.iterdir()}
        self.assertEqual(sorted(files), ["job-0", "job-1", "killed"])
        killed = dict(next(iter(files["killed"].samples))[1:])["pid"]

        exporter = self.start(textfiles)
        self.until("libinject_info")
        self.check_series(files, exporter)
        self.check_dashboard(exporter)
        self.check_rules(exporter, killed)

    def check_series(self, files, exporter):
        """Everything in the files, and nothing else."""
        self.assertEqual([sample["value"][1] for sample in self.query("node_textfile_scrape_error")], ["0"])
        written = {key: float(value) for metrics in files.values() for key, value in metrics.samples.items()}
        read = {}
        for sample in self.query('{__name__=~"libinject_.*"}'):
            labels = sample["metric"]
            self.assertEqual((labels.pop("instance"), labels.pop("job")), (exporter, "node"))
            read[labels.pop("__name__"), *sorted(labels.items())] = float(sample["value"][1])
        self.assertEqual(read, written)

    def check_dashboard(self, exporter):
        for name, label, expected in (("host", "instance", [exporter]), ("rank", "rank", ["0", "1"])):
            (variable,) = [variable for variable in self.dashboard["templating"]["list"] if variable["name"] == name]
            selector, asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            self.assertEqual(asked, label)
            self.assertEqual(self.ask(f"label/{label}/values", **{"match[]": selector.replace("$host", "127[.]0.*")}), expected)
        for panel in self.dashboard["panels"]:
            for target in panel["targets"]:
                for rank in (".*", "1"):
                    expression = target["expr"].replace("$host", "127[.]0.*").replace("$rank", rank)
                    found = self.query(expression)
                    if expression.endswith("> 0") and panel["title"] == "Losses":
                        self.assertEqual(found, [], expression)
                    elif rank == "1" and panel["title"] == "Since the last update":
                        self.assertEqual(found, [], "rank 1 has ended")
                    else:
                        self.assertTrue(found, expression)
                        # Labels in a legend exist.
                        for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                            self.assertTrue(all(sample["metric"].get(label) for sample in found), (expression, label))

    def check_rules(self, exporter, killed):
        self.assertEqual([sample["metric"]["pid"] for sample in self.until("libinject:running")], [killed])
        until = time.monotonic() + self.LIMIT
        while True:
            rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
            if all(rule["health"] != "unknown" for rule in rules):
                break
            self.assertLess(time.monotonic(), until)
        self.assertEqual([(rule["health"], rule.get("lastError")) for rule in rules], [("ok", None)] * len(rules))
        self.assertEqual([rule["name"] for rule in rules if rule.get("alerts")], ["LibinjectGpuWaits"])
        # Half an hour later.
        (silent,) = [rule["query"] for rule in rules if rule["name"] == "LibinjectProcessSilent"]
        self.assertEqual(self.query(silent), [])
        self.assertIn("> 1800", silent)
        self.assertEqual([sample["metric"]["pid"] for sample in self.query(silent.replace("> 1800", "> -1"))], [killed])


if __name__ == "__main__":
    simulated.main()
