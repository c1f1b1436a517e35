# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject sweep`: which points there are, how each ends, that finished ones are not rerun, and what is plotted of them."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest
from unittest import mock

import folders
from libinject.cli import app
from libinject.commands.sweep import _Clock, _Stop
from libinject.result import BadFile
from libinject.sweep import measured, page, points, variables
from libinject.sweep.variables import BadVariable
from typer.testing import CliRunner

SIMULATED = {"LD_LIBRARY_PATH": str(folders.BUILD / "sim")}


def runs(pid):
    """Ended processes without a parent are zombies if nothing reaps them."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Variables(unittest.TestCase):
    def test_values(self):
        doubled = ["1", "2", "4", "8", "16", "32", "64"]
        for text, values in (("1,2,4,…,64", doubled), ("1,2,4,...,64", doubled), ("1..64*2", doubled), ("1..100*2", doubled),
                             ("64,32,16,…,1", doubled[::-1]), ("10,20,…,50", ["10", "20", "30", "40", "50"]), ("10..50+20", ["10", "30", "50"]),
                             ("1..3", ["1", "2", "3"]), ("3..1", ["3", "2", "1"]), ("9..1-4", ["9", "5", "1"]), ("7..7", ["7"]),
                             ("0.1,0.2,0.3,…,0.5", ["0.1", "0.2", "0.3", "0.4", "0.5"]), ("fp32, bf16", ["fp32", "bf16"]),
                             ("1e-3,1e-4", ["1e-3", "1e-4"]),
                             ("1e-5..1e-3*10", ["1e-05", "0.0001", "0.001"]), ("1E3..1.5e+3+2.5e2", ["1000", "1250", "1500"]),
                             ("1e-1,1e-2,1e-3,…,1e-5", ["1e-1", "1e-2", "1e-3", "0.0001", "1e-05"]), ("1..4*2,100", ["1", "2", "4", "100"]), ("a..b,../x", ["a..b", "../x"])):
            self.assertEqual(variables.parse(f"X={text}"), ("X", values), text)

    def test_what_is_none(self):
        for text, why in (("X", "is not NAME=VALUES"), ("=1", "is not NAME=VALUES"), ("1X=1", "is not NAME=VALUES"), ("X=", "an empty value"),
                          ("X=1,,2", "an empty value"), ("X=1,1", "1 occurs twice"), ("X=1..2000,7", "7 occurs twice"), ("X=1,2,4,…,63", "does not grow by a constant"), ("X=2,3,9,…,27", "does not grow by a constant"),
                          ("X=8,16,…,64", "by an amount or by a factor"), ("X=1,2,4,…", "the last value is missing"), ("X=…,4", "at least two numbers before"),
                          ("X=a,b,…,z", "at least two numbers before them and one after"), ("X=0..8*2", "never reaches its end"), ("X=1..8*1", "never reaches its end"),
                          ("X=1..8+0", "never reaches its end"), ("X=8..1+1", "never reaches its end"), ("X=1..99999999", "too many values"),
                          ("X=1..2..3", "is not a range"), ("X=1e-999999999..1", "is not a range"), ("X=1e-5..1e-3", "contains only its first value"),
                          ("X=1..8*10", "contains only its first value"), ("X=\x1b[2J", "is not a value"), ("X=4,4,4,…,8", "does not grow by a constant")):
            with self.assertRaises(BadVariable) as caught:
                variables.parse(text)
            self.assertIn(why, str(caught.exception), text)
            self.assertNotRegex(str(caught.exception), r"[\n\x1b]")
        for texts in (["X=1", "X=2"], [], ["X=1..200", "Y=1..200"]):
            with self.assertRaises(BadVariable):
                variables.parse_all(texts)

    def test_combinations_and_placeholders(self):
        found = variables.combinations({"B": ["1", "2"], "P": ["x", "y"]})
        self.assertEqual([(point["B"], point["P"]) for point in found], [("1", "x"), ("1", "y"), ("2", "x"), ("2", "y")])
        self.assertEqual(variables.fill(["-b{B}", "{P}{P}", "{{P}} {{", "plain"], found[1]), ["-b1", "yy", "{P} {", "plain"])
        for argument in ("{Q}", "{", "}", "${X}", "{b}"):
            with self.assertRaisesRegex(BadVariable, r"is not a variable: there are \{B\}, \{P\}"):
                variables.fill([argument], found[0])


class Times(unittest.TestCase):
    def test_elapsed_and_remaining(self):
        with mock.patch("libinject.commands.sweep.time.monotonic") as now:
            now.return_value = 100.0
            clock = _Clock(4)
            clock.start("[1/4] B=1")
            now.return_value = 105.0
            self.assertEqual(clock.__rich__(), "[1/4] B=1 … 5s elapsed")
            now.return_value = 130.0
            clock.end()
            self.assertEqual(clock.times(), "30s elapsed, about 1m30s left")
            clock.start("[2/4] B=2")
            now.return_value = 140.0
            self.assertEqual(clock.__rich__(), "[2/4] B=2 … 40s elapsed, about 1m20s left")
            now.return_value = 10_000.0  # far longer than the previous one: not below the time of the others
            self.assertEqual(clock.__rich__(), "[2/4] B=2 … 2h45m elapsed, about 1m00s left")
            for _ in range(3):
                clock.end()
            self.assertEqual(clock.times(), "2h45m elapsed")


class Command(folders.TemporaryFolder):
    def sweep(self, *arguments, env=None):
        return folders.inject("sweep", "--out", self.folder / "sweep", *arguments, env={**SIMULATED, **(env or {})}, cwd=self.folder)

    def points(self):
        return json.loads((self.folder / "sweep" / "points.json").read_text())["points"]

    def statuses(self):
        return [point["status"] for point in self.points()]

    def test_times_are_told_after_each_point(self):
        done = self.sweep("--var", "A=1,2,3", "--", "true", "{A}")
        told = [line for line in done.stderr.splitlines() if line.startswith("inject: [")]
        self.assertEqual(len(told), 3)
        for line in told[:-1]:
            self.assertRegex(line, r"; \d+s elapsed, about \d+s left$")
        self.assertRegex(told[-1], r"; \d+s elapsed$")

    def test_options_are_checked_before_the_first_point(self):
        for options, line in ((("--window", "iter:x"), "--window 'iter:x': "), (("--set", "RIGN=1"), "'INJECT_RIGN' is not an option"), (("--trace", "x"), "--trace 'x': ")):
            done = self.sweep("--var", "A=1", *options, "--", "true", "{A}", env={"INJECT_OUT": "a%z"})
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertTrue(done.stderr.startswith(f"inject: {line}"), done.stderr)
            self.assertFalse((self.folder / "sweep").exists())

    def test_a_package_that_pages_need_is_missing(self):
        (self.folder / "sitecustomize.py").write_text("import sys\nsys.modules['plotly'] = None\n")
        done = self.sweep("--var", "A=1", "--", "touch", "ran{A}", env={"PYTHONPATH": str(self.folder)})
        self.assertEqual((done.returncode, done.stderr), (2, "inject: the Python package 'plotly' is not installed\n"))
        self.assertFalse((self.folder / "ran1").exists())

    def test_the_example_over_its_kernels_time(self):
        done = self.sweep("--var", "NS=5000,10000,20000", "--batch-var", "NS", "--window", "api", "--set", "summary=off", "--json",
                          "--", "env", "CUDASIM_KERNEL_NS={NS}", folders.BUILD / "examples" / "inject-train")
        self.assertEqual(done.returncode, 0, done.stderr)
        for point, time_ns in zip(json.loads(done.stdout)["points"], (5000, 10000, 20000), strict=True):
            self.assertEqual((point["status"], point["iterations"], point["kernel_time_ns"]), ("done", 5, 14 * time_ns))
            # Five GEMMs, of 79,691,776 FLOPs: the rate is per kernel name, with three decimals.
            self.assertAlmostEqual(point["gemm_tflops"], 79691776 / (5 * time_ns) / 1e3, places=2)
            self.assertAlmostEqual(sum(point["family_time_pct"].values()), 100)
            self.assertAlmostEqual(point["samples_per_s"] * point["step_time_ns"] / 1e9, time_ns, delta=1)
            self.assertGreater(point["peak_memory_mb"], 2)
            self.assertGreater(point["occupancy_pct"], 90)
        run = json.loads((self.folder / "sweep" / "002-NS=10000" / "tables" / "run.json").read_text())
        self.assertEqual((run["options"]["INJECT_BATCH"], run["options"]["INJECT_WINDOW"]), ("10000", "api"))
        with open(self.folder / "sweep" / "sweep.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["NS"], row["status"], float(row["kernel_time_ns"])) for row in rows],
                         [("5000", "done", 70000), ("10000", "done", 140000), ("20000", "done", 280000)])
        self.assertAlmostEqual(float(rows[0]["GEMM (%)"]), 100 * 5 / 14, places=3)
        (sections,) = folders.sections_of(self.folder / "sweep" / "sweep.html")
        plots = {plot["id"]: plot for plot in sections["figures"]["plots"]}
        self.assertLessEqual({"step_time_ns", "samples_per_s", "gpu_utilization_pct", "gemm_tflops", "peak_memory_mb"}, plots.keys())
        self.assertEqual(plots["gemm_tflops"]["note"], "calls in gemm_sum.csv, without products inside recurrent layers")
        (line,) = plots["step_time_ns"]["series"]
        self.assertEqual((line["x"], line["y"]), ([5000, 10000, 20000], [point["step_time_ns"] for point in json.loads(done.stdout)["points"]]))
        for at in range(3):
            self.assertAlmostEqual(sum(series["values"][at] for series in sections["families"]["plots"][0]["series"]), 100, places=1)

    def ends(self, case):
        """How the command of the cases below ends."""
        return {"fail": "exit 3", "said": "echo 'torch.OutOfMemoryError: CUDA out of memory. <b>'; exit 1", "kill": "kill -9 $$", "idle": "exit 0",
                "tables": "cp -r prepared \"$INJECT_OUT\"; exit 1", "tried": "cp -r prepared \"$INJECT_OUT\"; sleep 600 & echo $! > left"}[case]

    def test_how_runs_end_and_what_is_run_again(self):
        prepared = folders.profile_example(self.folder / "prepared")
        with open(prepared / "memory_sum.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            if row["Device"] == "0":
                row["Failed"] = "2"
        folders.write_table(prepared, "memory_sum", rows)
        cases = ("fail", "said", "kill", "idle", "tables", "tried")
        script = "echo {CASE} >> runs; case {CASE} in " + " ".join(f"{case}) {self.ends(case)};;" for case in cases) + " esac"
        arguments = ("--var", "CASE=" + ",".join(cases), "--", "sh", "-c", script)
        done = self.sweep(*arguments)
        self.assertEqual(done.returncode, 1, done.stderr)
        expected = ["failed", "out of memory", "failed", "no tables", "out of memory", "done"]
        self.assertEqual(self.statuses(), expected)
        why = [point["why"] for point in self.points()]
        self.assertEqual(why[0], "exit status 3")
        self.assertEqual(why[1], "torch.OutOfMemoryError: CUDA out of memory. <b>")
        self.assertIn("SIGKILL", why[2])
        self.assertEqual(why[4:], ["2 allocations failed", "2 allocations failed"])
        self.assertIn("[2/6] CASE=said: out of memory: torch.OutOfMemoryError", done.stderr)
        self.assertRegex(done.stdout, r"tried +[\d.]+[um]?s")
        (sections,) = folders.sections_of(self.folder / "sweep" / "sweep.html")
        rows = sections["points"]["tables"][0]["rows"]
        self.assertEqual([row[1][1] for row in rows], expected)
        self.assertIn("torch.OutOfMemoryError: CUDA out of memory. <b>", [row[-1] for row in rows])
        self.assertEqual((self.folder / "runs").read_text().split(), list(cases))
        self.assertFalse(runs(int((self.folder / "left").read_text())), "what a run left behind")

        # Points that are done, or ran out of memory, are not rerun; earlier attempts are kept.
        (self.folder / "runs").unlink()
        self.assertEqual(self.sweep(*arguments).returncode, 1)
        self.assertEqual((self.folder / "runs").read_text().split(), ["fail", "kill", "idle"])
        self.assertEqual(self.statuses(), expected)
        self.assertTrue((self.folder / "sweep" / "001-CASE=fail" / "log.txt").exists())
        self.assertEqual(self.points()[0]["folder"], "001-CASE=fail.2")

        (self.folder / "runs").unlink()
        self.sweep("--again", *arguments)
        self.assertEqual((self.folder / "runs").read_text().split(), [case for case in cases if case != "tried"])

        drawn = folders.invoke("sweep", "--report", self.folder / "sweep", "--json")
        self.assertEqual(drawn.returncode, 0, drawn.stderr)
        self.assertEqual([point["status"] for point in json.loads(drawn.stdout)["points"]], expected)

    def test_a_run_that_takes_too_long(self):
        for attempt in ("", ".2"):
            done = self.sweep("--var", "N=1", "--timeout-each", "700ms", "--", "sh", "-c", "sleep 60{N}")
            (point,) = self.points()
            self.assertEqual((done.returncode, point["status"], point["why"], point["folder"]),
                             (1, "timed out", "took longer than 0.7s", f"001-N=1{attempt}"), done.stderr)

    def test_process_groups_of_a_run(self):
        """If a program puts its child processes into groups of their own, these are ended with it as well, and none is left behind."""
        waits = "trap 'echo > got; exit' INT; echo $$ > left; while true; do sleep 0.1; done"
        program = f"import os, subprocess, time; subprocess.Popen(['sh', '-c', \"{waits}\"], preexec_fn=os.setpgrp); time.sleep({{N}})"
        for seconds, status in ((60, "timed out"), (1, "no tables")):
            (self.folder / "left").unlink(missing_ok=True)
            self.sweep("--var", f"N={seconds}", "--timeout-each", "3s", "--", sys.executable, "-c", program)
            self.assertEqual(self.statuses()[0], status)
            self.assertFalse(runs(int((self.folder / "left").read_text())), status)
            if seconds == 60:
                self.assertTrue((self.folder / "got").exists(), "SIGINT comes first")

    def test_more_values_and_other_commands(self):
        prepared = folders.profile_example(self.folder / "prepared")
        command = ("--", "sh", "-c", f"cp -r {prepared} \"$INJECT_OUT\" && echo {{N}} >> runs")
        for values in ("1,2", "1,2,4", "4"):
            self.assertEqual(self.sweep("--var", f"N={values}", *command).returncode, 0)
        self.assertEqual((self.folder / "runs").read_text().split(), ["1", "2", "4"])
        self.assertEqual(len(self.points()), 3)
        for other in (("--var", "N=1", "--", "true", "{N}"), ("--var", "N=1", "--var", "M=1", *command[:-1], command[-1] + " {M}"),
                      ("--var", "N=1", "--window", "always", *command), ("--var", "N=1", "--batch-var", "N", *command)):
            done = folders.invoke("sweep", "--out", self.folder / "sweep", *other)
            self.assertEqual(done.returncode, 2)
            self.assertIn("choose a different --out", done.stderr)
        # Variables that the points inherit from the environment count like options.
        done = self.sweep("--var", "N=1", *command, env={"INJECT_WINDOW": "always"})
        self.assertEqual(done.returncode, 2)
        self.assertIn("has a sweep with other options", done.stderr)

    def test_points_that_are_not_asked_for_are_not_run(self):
        command = ("--", "sh", "-c", "echo {N} >> runs; exit {N}")
        self.assertEqual(self.sweep("--var", "N=3,4", *command).returncode, 1)
        self.assertEqual(self.sweep("--var", "N=4", *command).returncode, 1)
        self.assertEqual((self.folder / "runs").read_text().split(), ["3", "4", "4"])
        self.assertEqual([point["values"]["N"] for point in self.points()], ["4", "3"])

    def test_interrupted_as_the_options_want_it(self):
        """Whoever sets INJECT_TIMEOUT and no other ending has asked for SIGINT."""
        prepared = folders.profile_example(self.folder / "prepared")
        for number, (options, status) in enumerate(((["--after", "interrupt"], "done"), (["--timeout", "5s"], "done"), (["--timeout", "5s", "--after", "continue"], "done"),
                                                    (["--timeout", "5s", "--after", "exit"], "failed"), (["--timeout", "off"], "failed"), ([], "failed"))):
            out = self.folder / f"sweep{number}"
            done = folders.inject("sweep", "--out", out, "--var", "N=1", *options, "--", "sh", "-c", f'cp -r {prepared} "$INJECT_OUT"; kill -INT $$; : {{N}}', env=SIMULATED)
            (point,) = json.loads((out / "points.json").read_text())["points"]
            self.assertEqual((point["status"], done.returncode), (status, int(status == "failed")), (options, point, done.stderr))

    def test_interrupted(self):
        prepared = folders.profile_example(self.folder / "prepared")
        command = [sys.executable, str(folders.ROOT / "scripts" / "inject"), "sweep", "--out", str(self.folder / "sweep"), "--var", "N=1,2,3", "--",
                   "sh", "-c", f"cp -r {prepared} \"$INJECT_OUT\"; echo $$ > pid{{N}}; test {{N}} = 2 && exec sleep 600; true"]
        for number, after in ((signal.SIGINT, ["done", "interrupted", "not run"]), (signal.SIGTERM, ["done", "interrupted", "not run"]),
                              (signal.SIGQUIT, ["done", "interrupted", "not run"])):
            (self.folder / "pid2").unlink(missing_ok=True)
            process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env={**os.environ, "COLUMNS": "120"})
            until = time.monotonic() + 60
            while not (self.folder / "pid2").exists() or not (self.folder / "pid2").read_text().strip():
                self.assertLess(time.monotonic(), until)
                time.sleep(0.02)
            busy = self.sweep("--var", "N=1", "--", "true", "{N}")
            self.assertIn("another inject sweep runs in", busy.stderr)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, err)
            self.assertEqual(self.statuses(), after)
            self.assertIn("interrupted: run the same command again", err)
            (line,) = (line for line in err.splitlines() if "N=2: interrupted" in line)
            self.assertNotIn(" left", line)
            self.assertRegex(out, r"1 +[\d.]+us")
            self.assertFalse(runs(int((self.folder / "pid2").read_text())))
            self.assertTrue((self.folder / "sweep" / "sweep.csv").exists())

    def test_signals_that_are_ignored(self):
        """As SIGHUP is under nohup."""
        command = [sys.executable, str(folders.ROOT / "scripts" / "inject"), "sweep", "--out", str(self.folder / "sweep"), "--var", "N=1", "--",
                   "sh", "-c", "echo {N} > runs; until test -e go; do sleep 0.02; done; exit 3"]
        process = subprocess.Popen(["nohup", *command], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while not (self.folder / "runs").exists():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.1)
        (self.folder / "go").touch()
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, [(point["status"], point["exit_status"]) for point in self.points()]), (1, [("failed", 3)]), err)

    def test_a_signal_while_the_page_is_drawn(self):
        before = signal.getsignal(signal.SIGTERM)
        for runs in (True, False):  # when the first one comes
            stop = _Stop()
            with stop.installed():
                if runs:
                    with self.assertRaises(KeyboardInterrupt):
                        signal.raise_signal(signal.SIGTERM)
                    stop.waits = True
                else:
                    stop.waits = True
                    signal.raise_signal(signal.SIGTERM)
                    self.assertTrue(stop.came)
                with self.assertRaises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGHUP)
            self.assertIs(signal.getsignal(signal.SIGTERM), before)
        whole = page.page

        def drawn(*arguments):
            signal.raise_signal(signal.SIGTERM)
            return whole(*arguments)

        with mock.patch("libinject.sweep.page.page", drawn):
            done = folders.invoke("sweep", "--out", self.folder / "sweep", "--var", "N=1", "--", "false", "{N}")
        self.assertEqual(done.returncode, 130, done.stderr)
        self.assertTrue((self.folder / "sweep" / "sweep.html").exists())

    def test_killed(self):
        """The run's process ends with the sweep, and its child processes when the sweep is continued."""
        command = [sys.executable, str(folders.ROOT / "scripts" / "inject"), "sweep", "--out", str(self.folder / "sweep"), "--var", "N=1", "--", "sh", "-c",
                   "test -e left && exit {N}; trap '' TERM; sleep 600 & trap - TERM; echo $! > left; echo $$ > run; exec sleep 600"]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 60
        while not (self.folder / "run").exists() or not (self.folder / "run").read_text().strip():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        process.kill()
        process.wait()
        run, left = (int((self.folder / name).read_text()) for name in ("run", "left"))
        while runs(run):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        self.assertTrue(runs(left))
        self.assertEqual(self.statuses(), ["running"])
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("inject: N=1: ended what was still running from its last run, 1 process\n", done.stderr)
        self.assertFalse(runs(left))
        self.assertEqual(self.statuses(), ["failed"])

    def test_killed_while_writing(self):
        """Also where that was its first file: the folder is still a new sweep's."""
        folder = self.folder / "sweep"
        folder.mkdir()
        (folder / ".points.json.ab12_xyz").write_text("{")
        self.assertEqual(folders.invoke("sweep", "--out", folder, "--var", "N=1", "--", "false", "{N}").returncode, 1)
        self.assertEqual(self.statuses(), ["failed"])
        for name in (".sweep.html.01234567", ".points.json.mine", "points.json.01234567"):
            (folder / name).touch()
        folders.invoke("sweep", "--out", folder, "--var", "N=1", "--", "false", "{N}")
        self.assertEqual({path.name for path in folder.iterdir()} & {".sweep.html.01234567", ".points.json.mine", "points.json.01234567"},
                         {".points.json.mine", "points.json.01234567"})

    def test_bad_use(self):
        for arguments, why in (((), "no command"), (("--", "true"), "nothing to vary"), (("--var", "N=1", "--", "true"), "{N} does not occur in the command"),
                               (("--var", "N=1", "--", "true", "{M}"), "'{M}' in the command is not a variable"),
                               (("--var", "N=1,x", "--batch-var", "N", "--", "true", "{N}"), "positive whole numbers"),
                               (("--var", "N=1", "--batch-var", "M", "--", "true", "{N}"), "not a variable of this sweep"),
                               (("--var", "N=1", "--timeout-each", "5", "--", "true", "{N}"), "--timeout-each '5': not a time; accepted: 90s, 10m, 2h and the like"),
                               (("--var", "N=1", "--set", "OUT=x", "--", "true", "{N}"), "INJECT_OUT differs from point to point"),
                               (("--report", self.folder / "none"), "no such folder"), (("--report", self.folder), "it has no points.json")):
            out = [] if "--report" in arguments else ["--out", str(self.folder / "sweep")]
            done = CliRunner().invoke(app, ["sweep", *out, *map(str, arguments)])
            self.assertEqual((done.exit_code, done.stdout), (2, ""), arguments)
            self.assertIn(why, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        (self.folder / "sweep").mkdir()
        (self.folder / "sweep" / "other").touch()
        self.assertIn("neither empty nor the folder of a sweep", self.sweep("--var", "N=1", "--", "true", "{N}").stderr)

    def test_options_that_a_report_does_not_take(self):
        self.assertEqual(self.sweep("--var", "N=1", "--", "false", "{N}").returncode, 1)
        report = ["sweep", "--report", self.folder / "sweep"]
        for option in (["--var", "N=1"], ["--out", "x"], ["--batch-var", "N"], ["--timeout-each", "5m"], ["--again"], ["--window", "api"], ["-s", "RING=1M"]):
            done = folders.invoke(*report, *option)
            name = {"-s": "--set"}.get(option[0], option[0])
            self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", f"inject: --report redraws existing results: it takes no {name}\n"))
        done = folders.invoke(*report, "--", "true")
        self.assertEqual((done.returncode, done.stderr), (2, "inject: --report redraws existing results: it takes no command\n"))
        self.assertEqual(folders.invoke(*report, "--json").returncode, 0)

    def test_a_point_of_a_killed_sweep(self):
        """It is not running any more, which the sweep's lock tells."""
        self.sweep("--var", "N=1", "--", "false", "{N}")
        file = self.folder / "sweep" / "points.json"
        file.write_text(file.read_text().replace('"failed"', '"running"'))
        with points.alone(self.folder / "sweep"):
            (point,) = json.loads(folders.invoke("sweep", "--report", self.folder / "sweep", "--json").stdout)["points"]
            self.assertEqual(point["status"], "running")
        (point,) = json.loads(folders.invoke("sweep", "--report", self.folder / "sweep", "--json").stdout)["points"]
        self.assertEqual((point["status"], point["why"]), ("interrupted", "the sweep was killed"))

    def test_a_command_that_is_not_there(self):
        self.assertEqual(self.sweep("--var", "N=1,2", "--", "no-such-program", "{N}").returncode, 1)
        self.assertEqual([point["why"] for point in self.points()], ["can't run 'no-such-program': no such file or directory"] * 2)

    def test_hostile_points(self):
        folder = self.folder / "sweep"
        folder.mkdir()
        secret = folders.profile_example(self.folder / "secret" / "x")
        good = {"inject_sweep": 1, "command": ["\ud800"], "variables": {"N<b>": ["1"]}, "batch_variable": None, "settings": {},
                "points": [{"values": {"N<b>": "=1<script>\x1b\ud800"}, "folder": "001", "status": "done", "why": "@x", "exit_status": 0, "seconds": 1}]}
        shutil.copytree(secret, folder / "001" / "tables")
        (folder / "points.json").write_text(json.dumps(good))
        done = folders.invoke("sweep", "--report", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b", done.stdout + done.stderr)
        self.assertNotIn("<script>\N{REPLACEMENT CHARACTER}", (folder / "sweep.html").read_text())
        self.assertIn("'=1<script>", (folder / "sweep.csv").read_text())
        (folder / "001" / "tables" / "window_sum.csv").write_text("Window\nx\n")
        done = folders.invoke("sweep", "--report", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("window_sum.csv:2: 'x' in column 'Window' is not a number", done.stderr)

        def changed(**fields):
            return {**good, "points": [{**good["points"][0], **fields}]}
        for content in ("", "[]", "{}", "[" * 100_000, json.dumps({**good, "inject_sweep": 2}), json.dumps(changed(folder="../secret")),
                        json.dumps(changed(folder="..")), json.dumps(changed(status="fine")), json.dumps(changed(values={})),
                        json.dumps(changed(seconds="x")), json.dumps({**good, "variables": 7}), json.dumps({**good, "variables": {}}),
                        json.dumps({**good, "variables": {}, "points": []}), json.dumps({**good, "variables": {"N<b>": []}}),
                        json.dumps(changed(exit_status=1e999)), json.dumps({**good, "points": 1})):
            (folder / "points.json").write_text(content)
            with self.assertRaises(BadFile) as caught:
                points.read(folder)
            self.assertRegex(str(caught.exception), r"points\.json(:\d+)?: [^\n]+$")
        self.assertEqual(folders.invoke("sweep", "--report", folder).returncode, 2)


class Written(unittest.TestCase):
    """The page and the table, of points made here."""

    def sweep(self, *values, verdict="", families=None):
        made = [points.Point(each, str(number), points.Status.DONE, "", 0, 1.0) for number, each in enumerate(values)]
        whole = points.Sweep(folders.pathlib.Path("sweep"), ["train"], {"A": ["1", "2"], "B": ["x", "y"]}, None, {}, made)
        return whole, [measured.Measured(point, families=dict(families or {"GEMM": 100.0}), verdict=verdict) for point in made]

    def test_variables_in_another_order(self):
        """The x axis is the first variable of this time, in whatever order the points were run."""
        whole, found = self.sweep({"B": "x", "A": "1"}, {"B": "x", "A": "2"})
        plot, = page._family_plots(page._lines(whole, found), next(iter(whole.variables)), found)
        self.assertEqual(plot.series[0]["names"], ["A=1", "A=2"])

    def test_no_formulas(self):
        whole, found = self.sweep({"A": "1", "B": "x"}, verdict="=1+1", families={"@x": 60.0, "\t=2": 40.0})
        header, row = csv.reader(measured.as_csv(whole, found).splitlines())
        self.assertEqual(header[-3:], ["verdict", "'@x (%)", "\N{REPLACEMENT CHARACTER}=2 (%)"])
        self.assertEqual(row[-3:], ["'=1+1", "60", "40"])


class StepTimes(folders.TemporaryFolder):
    def write(self, **cases):
        """Points by name: status, milliseconds of the iterations in the window, and of nine without the profiler."""
        same = {"why": "", "exit_status": 0, "seconds": 1}
        (self.folder / "points.json").write_text(json.dumps({
            "inject_sweep": 1, "command": ["train"], "variables": {"N": list(cases)}, "batch_variable": None, "settings": {},
            "points": [{**same, "values": {"N": name}, "folder": name, "status": status} for name, (status, _, _) in cases.items()]}))
        for name, (_, inside, without) in cases.items():
            tables = folders.write_run(self.folder / name / "tables", options={"INJECT_BATCH": "1"})
            folders.write_table(tables, "window_sum", [{"Window": 1, "Device": "all", "Duration (ns)": 10**9, "Kernel Time (ns)": 10**6, "Kernels": 3,
                                                        "Unprofiled Iterations": 5000 if without else 2}])
            if inside:
                folders.write_table(tables, "iteration_sum", [{"Label": "iteration", "Complete": 1, "Device": "all", "Duration (ns)": inside * 10**6,
                                                               "Kernels": 1}] * 3)
            if without:
                folders.write_table(tables, "step_times", [{"Duration (ns)": (without + at) * 10**6} for at in range(-4, 5)])
        done = folders.invoke("sweep", "--report", self.folder, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [tuple(point[name] and point[name] / 10**6 for name in ("step_time_ns", "step_time_q1_ns", "step_time_q3_ns", "window_step_time_ns"))
                 + (point["samples_per_s"], point["unprofiled"]) for point in json.loads(done.stdout)["points"]]
        self.assertEqual([point["unprofiled_iterations"] for point in json.loads(done.stdout)["points"]],
                         [None if status != "done" else 5000 if without else 2 for status, _, without in cases.values()])
        return found, [line for line in done.stderr.splitlines() if "profiler" in line], (self.folder / "sweep.html").read_text()

    def test_of_one_kind(self):
        # A point that did not end well has no valid step time.
        found, said, page = self.write(a=("done", 40, 20), b=("done", None, 25), c=("failed", 50, None))
        self.assertEqual(found, [(20, 18, 22, 40, 50, True), (25, 23, 27, None, 40, True), (None,) * 5 + (True,)])
        self.assertEqual(said, [])
        self.assertIn("median of the iterations without the profiler; error bars are quartiles", page)
        found, said, page = self.write(a=("done", 40, 20), b=("done", None, 25), d=("done", 50, None), e=("done", 80, None))
        self.assertEqual(found, [(40, 40, 40, 40, 25, False), (None,) * 5 + (False,), (50, 50, 50, 50, 20, False), (80, 80, 80, 80, 12.5, False)])
        self.assertEqual(len(said), 1)
        self.assertTrue(said[0].endswith("the step times include the profiler's overhead: there are fewer than seven step times without it in d, e"), said)
        self.assertIn("median of the complete iterations in windows; error bars are quartiles", page)

    def test_failed_allocations_are_blank_where_nothing_says(self):
        self.write(a=("done", 40, None), b=("done", 40, None), c=("done", 40, None))
        row = {"Device": "0", "Kind": "[all]", "API": "[all]", "Peak (MB)": 1.0}
        for name, failed in (("b", {"Failed": 0}), ("c", {"Failed": 2})):
            folders.write_table(self.folder / name / "tables", "memory_sum", [{**row, **failed}])
        points = json.loads(folders.invoke("sweep", "--report", self.folder, "--json").stdout)["points"]
        self.assertEqual([point["failed_allocations"] for point in points], [None, 0, 2])

    def test_iterations_for_which_there_were_no_rows(self):
        """They are in one row, and in the totals that are divided by their number."""
        self.write(a=("done", 40, None))
        tables = self.folder / "a" / "tables"
        row = {"Device": "all", "Kernels": 1}
        folders.write_table(tables, "iteration_sum", [{"Window": 1, "Label": "iteration", "Complete": 1, "Duration (ns)": 40 * 10**6, **row}] * 3
                            + [{"Window": "[other]", "Label": "", "Complete": "", "Duration (ns)": "", **row, "Kernels": 7}])
        folders.write_table(tables, "window_sum", [{"Window": 1, "Device": "all", "Duration (ns)": 10**9, "Kernels": 10, "Iterations": 10}])
        folders.write_table(tables, "gemm_sum", [{"API": "cublasSgemm", "Calls": 10, "GPU Time (ns)": 10**6, "GPU Avg (ns)": 10**5, "GPU Min (ns)": 10**5,
                                                  "GPU Max (ns)": 10**5, "TFLOP/s": 1}])
        done = folders.invoke("sweep", "--report", self.folder, "--json")
        (point,) = json.loads(done.stdout)["points"]
        self.assertEqual((point["iterations"], point["gemm_time_ns"]), (10, 10**5), done.stderr)


if __name__ == "__main__":
    unittest.main()
