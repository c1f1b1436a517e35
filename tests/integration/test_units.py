#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Units of work: what a program reports for its iterations, by calls and by payloads of NVTX ranges and marks, is in the rows of the
corresponding iterations, and nowhere else.

usage: test_units.py LIBRARY PROGRAMS SIMULATION INJECTCTL
"""

import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import unittest

import simulated
from test_torch_steps import PYTHON

HERE = pathlib.Path(__file__).resolve().parent
injectctl = pathlib.Path(sys.argv.pop(4)).resolve()

START, COUNT = 20, 6
STEPS = 60
STEP = "copy:h2d:64 kernel:forward:3 {} kernel:backward:2 kernel:adam:1 sync"
# As in test_iterations: until our own thread has looked, however late on a busy machine.
PAUSE = "sleep:40 looks:2"
PAUSES = (11, 13, 18, 24)
TYPES = ("u64", "i64", "double", "u32", "i32", "float")


class UnitsTest(simulated.SimulatedTest):
    def train(self, before, within=None, after=None, setup="sync", step=STEP, tail="sync", **options):
        """Words before, within and after the work of each step, by its number."""
        words = [setup]
        for i in range(STEPS):
            if i in PAUSES:
                words.append(PAUSE)
            words += [before.get(i, ""), step.format((within or {}).get(i, "")), (after or {}).get(i, "")]
        return self.script(" ".join([*words, tail]), **{"WINDOW": f"iter:{START}+{COUNT}", **options})

    def rows(self, out, name="iteration_sum.csv"):
        return [row for row in out.rows(name) if row.get("Device", "all") == "all"]

    def check(self, out, truth, source):
        """`truth`: by iteration; those that are missing in it have no units."""
        rows = [row for row in self.rows(out) if row["Label"] == "iteration"]
        # On a busy machine the window may come later.
        first = int(rows[0]["Iteration"])
        self.assertGreaterEqual(first, START)
        self.assertEqual([int(row["Iteration"]) for row in rows], list(range(first, first + COUNT)))
        steps = self.rows(out, "step_times.csv")
        self.assertGreater(len(steps), 0)
        for row in rows + steps:
            said = truth.get(int(row["Iteration"]))
            if said is None:
                self.assertEqual({row[name] for name in ("Units", "Units From", "Units/s")}, {""}, row)
                continue
            self.assertAlmostEqual(float(row["Units"]), said, delta=1e-6, msg=row)
            self.assertEqual(row["Units From"], source)
            self.assertAlmostEqual(float(row["Units/s"]), said * 1e9 / int(row["Duration (ns)"]), delta=0.001, msg=row)
        for row in out.rows("iteration_sum.csv"):
            if row["Device"] != "all":
                self.assertEqual({row[name] for name in ("Units", "Units From", "Units/s", "Units/s of GPU Busy")}, {""})
        (window,) = out.windows()
        known = [row for row in rows if row["Units"]]
        self.assertEqual(int(window["Iterations with Units"]), len(known))
        total = sum(float(row["Units"]) for row in known)
        if known:
            self.assertAlmostEqual(float(window["Units in Window"]), total, delta=1e-6 * len(known))
            for column, time in (("Units/s in Window", "Duration (ns)"), ("Units/s of GPU Busy in Window", "GPU Busy (ns)")):
                self.assertAlmostEqual(float(window[column]) / (total * 1e9 / sum(int(row[time]) for row in known)), 1, delta=1e-6)
        else:
            self.assertEqual({window[name] for name in ("Units in Window", "Units/s in Window", "Units/s of GPU Busy in Window")}, {""})
        self.assertEqual(window["Units From"], source if truth else "")
        steps = [row for row in steps if row["Units"]]
        if len(steps) >= 7:
            rate = sum(float(row["Units"]) for row in steps) * 1e9 / sum(int(row["Duration (ns)"]) for row in steps)
            self.assertAlmostEqual(float(window["Units/s"]) / rate, 1, delta=1e-6)
        else:
            self.assertEqual(window["Units/s"], "")

    def said(self, seed):
        """(reports before, within and after the work of steps, the units of each step): some have no report, some several. A report after a
        step's last work belongs to the next one."""
        numbers = random.Random(seed)
        before, within, after, truth = {}, {}, {}, {}
        for i in range(STEPS):
            for place, of in ((before, i), (within, i), (after, i + 1)):
                amounts = [numbers.choice((numbers.randrange(1, 5000), round(numbers.uniform(0, 30), 3), 0))
                           for _ in range(numbers.choice((0, 0, 1, 2)) if place is not before else numbers.choice((0, 1, 1, 2)))]
                place[i] = amounts
                if amounts:
                    truth[of] = truth.get(of, 0) + sum(amounts)
        return before, within, after, truth


class Called(UnitsTest):
    @staticmethod
    def words(amounts):
        return {step: " ".join(f"units:{amount}" for amount in of) for step, of in amounts.items()}

    def test_add_up_in_the_iteration_whose_work_follows(self):
        for seed in range(4):
            with self.subTest(seed):
                *places, truth = self.said(seed)
                done = self.train(*map(self.words, places))
                self.check(done.out, truth, "called")
                self.assertEqual(set(done.stdout.split("\n")) - {""}, {"units: 0"})

    def test_from_a_thread_that_launches_nothing(self):
        truth = {i: 10 + i for i in range(STEPS) if i % 3}
        speaker = " ".join(f"wait:ask{i} units:{truth[i]} signal:said{i}" for i in truth)
        done = self.train({i: f"signal:ask{i} wait:said{i}" for i in truth}, setup=f"sync background [ {speaker} ]", tail="join sync")
        self.check(done.out, truth, "called")

    def test_from_several_threads_in_one_iteration(self):
        threads = " ".join("background [ " + " ".join(f"wait:ask{i} units:{thread + i} meet:said{i}:4" for i in range(STEPS)) + " ]"
                           for thread in (100, 2000, 30000))
        done = self.train({}, {i: f"signal:ask{i} meet:said{i}:4" for i in range(STEPS)}, setup="sync " + threads, tail="join sync")
        self.check(done.out, {i: 32100 + 3 * i for i in range(STEPS)}, "called")

    def test_outside_of_any_iteration(self):
        """Before the first step, and after the last: in no row."""
        done = self.train({}, setup="units:5 sync units:7 sync", tail="units:9 sync units:11")
        self.check(done.out, {}, "called")
        without = self.train({})
        self.check(without.out, {}, "called")

    def test_what_is_no_number_of_units_leaves_its_iteration_empty(self):
        truth = {i: 8 for i in range(STEPS)}
        before = {i: "units:8" for i in truth}
        bad = {21: "-1", 22: "nan", 23: "inf", 25: "-0.001", 29: "-inf", 5: "nan"}
        for step, number in bad.items():
            before[step] += f" units:{number}"
            del truth[step]
        done = self.train(before)
        self.check(done.out, truth, "called")
        self.assertEqual(done.stdout.split("\n").count("units: -1"), len(bad))

    def test_summary(self):
        done = self.train({i: f"units:{i + 1}" for i in range(STEPS)}, SUMMARY="summary")
        (window,) = done.out.windows()
        text = (done.work / "summary").read_text(encoding="utf-8")
        # Each is rounded from the rate itself.
        (said,) = re.findall(r"; ([0-9.]+) units/s\n", text)
        self.assertAlmostEqual(float(said), float(window["Units/s"]), delta=0.051)
        self.assertNotIn("samples/s", text)

    def test_windows_that_the_program_opens(self):
        """Iterations are only followed in windows, or differently from then on: a report before one opens may belong to its first
        iteration, and is ignored."""
        steps, told = f"{STEP.format('')} " * 8, f"units:7 {STEP.format('')} " * 8
        for name, window, steps_before, before, first in (
                ("a part of them before", "api", steps, "units:10 start units:20", ""), ("all before", "api", steps, "units:30 start", ""),
                ("none before", "api", steps, "start units:20 units:10", "30"),
                ("a part of them before", "auto", steps, "units:10 start units:20", ""), ("all before", "auto", told, "units:30 start", ""),
                ("a part of them before, and heard", "auto", told, "units:10 sleep:60 looks:2 start units:20", ""),
                ("none of the first one before", "auto", told, "start units:20 units:10", "30"),
                ("none of the first one before, and heard", "auto", told, "sleep:60 looks:2 start units:20 units:10", "30")):
            with self.subTest(name, window=window):
                words = ["sync", steps_before, before, STEP.format("")]
                words += [f"units:20 units:10 {STEP.format('')}"] * 30
                done = self.script(" ".join([*words, "sync", "stop"]), WINDOW=window)
                rows = [row for row in self.rows(done.out) if row["Label"] == "iteration" and row["Complete"] == "1"]
                self.assertGreater(len(rows), 10)
                self.assertEqual([row["Units"] for row in rows], [first] + ["30"] * (len(rows) - 1))

    def test_more_than_there_is_room_for(self):
        """An iteration that lost some of its reports is emitted before the next report."""
        step = "copy:h2d:64 kernel:forward:3 sleep:15 {} kernel:backward:2 kernel:adam:1 sync sleep:15"
        burst = range(START, START + COUNT + 4)
        done = self.train({}, {i: "loop:6000 [ units:1 ] sleep:100" if i in burst else "units:10" for i in range(STEPS)}, step=step, RING="64K")
        self.assertGreater(done.out.run["lost"]["iteration_signs"], 0)
        rows = self.rows(done.out) + self.rows(done.out, "step_times.csv")
        self.assertGreater(len(rows), COUNT)
        for row in rows:
            self.assertIn(row["Units"], ("", "6000" if row["Iteration"] and int(row["Iteration"]) in burst else "10"), row)

    def test_numbers_of_any_size(self):
        """Known values are not shown as 0, and no value is infinite."""
        for number, said, units in (("0.0000001", 0, 1e-7), ("1e-12", 0, 1e-12), ("1e12", 0, 1e12), ("1e308", -1, None), ("1e-13", -1, None),
                                    ("1e-300", -1, None), ("-0.0", 0, 0)):
            with self.subTest(number):
                done = self.train({i: f"units:{number}" for i in range(STEPS)}, SUMMARY="summary")
                self.assertEqual(set(done.stdout.split("\n")) - {""}, {f"units: {said}"})
                rows = [row for row in self.rows(done.out) if row["Label"] == "iteration"]
                self.assertEqual(len(rows), COUNT)
                (window,) = done.out.windows()
                text = (done.work / "summary").read_text(encoding="utf-8")
                rates = re.findall(r";\s+(\S+)\s+units/s", text)
                if units is None:
                    self.assertEqual([row[name] for row in rows for name in ("Units", "Units/s", "Units/s of GPU Busy")], [""] * 3 * COUNT)
                    self.assertEqual((window["Units in Window"], window["Units/s"], rates), ("", "", []))
                    continue
                for row in rows:
                    self.assertEqual(float(row["Units"]), units)
                    for column, time in (("Units/s", "Duration (ns)"), ("Units/s of GPU Busy", "GPU Busy (ns)")):
                        self.assertAlmostEqual(float(row[column]) if units == 0 else float(row[column]) / units * int(row[time]) / 1e9, units and 1, delta=1e-5)
                self.assertAlmostEqual(float(window["Units in Window"]), COUNT * units, delta=1e-6 * units)
                self.assertEqual(len(rates), 1)
                self.assertAlmostEqual(float(rates[0]), float(window["Units/s"]), delta=0.01 * float(window["Units/s"]))

    def test_of_several_gpus_by_the_busiest(self):
        """The rate that the GPUs would reach without waiting is not below the one that was reached."""
        setup = "sync duration:forward:3000000 duration:backward:2000000 device:1 sync device:0"
        step = "copy:h2d:64 kernel:forward:3 {} device:1 kernel:backward:3 device:0 sync kernel:adam:1 sync"
        done = self.script(" ".join([setup, *(f"{PAUSE if i in PAUSES else ''} units:100 {step.format('')}" for i in range(STEPS)), "sync"]),
                           WINDOW=f"iter:{START}+{COUNT}", devices=2)
        rows = [row for row in done.out.rows("iteration_sum.csv") if row["Label"] == "iteration"]
        busy = {"0": 0, "1": 0}
        for number in {row["Iteration"] for row in rows}:
            of = {row["Device"]: row for row in rows if row["Iteration"] == number}
            for device in busy:
                busy[device] += int(of[device]["GPU Busy (ns)"])
            longest = max(int(of[device]["GPU Busy (ns)"]) for device in busy)
            self.assertGreater(int(of["all"]["GPU Busy (ns)"]), longest)
            self.assertAlmostEqual(float(of["all"]["Units/s of GPU Busy"]), 100e9 / longest, delta=0.01)
            self.assertGreaterEqual(float(of["all"]["Units/s of GPU Busy"]), float(of["all"]["Units/s"]))
        (window,) = done.out.windows()
        self.assertAlmostEqual(float(window["Units/s of GPU Busy in Window"]), 100e9 * COUNT / max(busy.values()), delta=0.01)

    def test_stated_is_not_said(self):
        done = self.train({i: f"units:{i + 1}" for i in range(STEPS)}, BATCH="64")
        self.assertEqual(set(done.stdout.split("\n")) - {""}, {"units: -1"})
        self.check(done.out, dict.fromkeys(range(STEPS), 64), "stated")
        for row in self.rows(done.out):
            self.assertAlmostEqual(float(row["Samples/s"]), float(row["Units/s"]), delta=0.06)

    def test_validation_has_its_own(self):
        """A report during the work between two iterations is in its row, but not in the window's sum."""
        validation = "units:500 kernel:forward:3 units:500 kernel:forward:3 kernel:metric:9 copy:d2h:64 sync"
        done = self.train({i: "units:8" for i in range(STEPS)}, after={i: validation for i in (9, 14, 22)})
        rows = self.rows(done.out)
        labels = {row["Label"]: row["Units"] for row in rows}
        whole = {int(row["Iteration"]): row["Units"] for row in rows if row["Iteration"]}
        # If the validation is recognised, it has its own units; otherwise all of them belong to the iteration that contains it.
        if "validation" in labels:
            self.assertEqual(labels["validation"], "1000")
            self.assertEqual(set(whole.values()), {"8"})
        else:
            self.assertEqual(sorted(whole.values()), ["1008", *["8"] * (COUNT - 1)])

    def test_killed(self):
        """What is recovered after a kill has the same units for each iteration."""
        truth = {i: 100 + i for i in range(STEPS)}
        words = ["sync"]
        for i in range(STEPS):
            words += [PAUSE if i in PAUSES else "", f"units:{truth[i]}", STEP.format("")]
        done = self.script(" ".join([*words, "sync flush looks:4 crash:KILL"]), WINDOW=f"iter:{START}+{COUNT}", check=False)
        self.assertEqual(done.code, -signal.SIGKILL)
        out = done.work / "out"
        written = {row["Iteration"]: (row["Units"], row["Units From"], row["Units/s"]) for row in self.rows(simulated.Folder(out))}
        self.assertEqual({number: units for number, (units, *_) in written.items()},
                         {number: str(truth[int(number)]) for number in written})
        self.assertEqual(len(written), COUNT)
        told = subprocess.run([str(injectctl), "recover", str(out)], capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.check(simulated.Folder(out), truth, "called")


class Payloads(UnitsTest):
    @staticmethod
    def word(how, name, amount, numbers, domain=""):
        fitting = [kind for kind in TYPES if isinstance(amount, int) or kind == "double"]
        return f"payload:{how}:{name}:{numbers.choice(fitting)}:{amount}" + (f":{domain}" if domain else "")

    def test_of_ranges_and_marks(self):
        for seed in range(4):
            with self.subTest(seed):
                *places, truth = self.said(seed)
                numbers = random.Random(seed)
                words = [{step: " ".join(self.word(numbers.choice(("push", "start", "mark", "registered")), "batch", amount, numbers) for amount in of)
                          for step, of in place.items()} for place in places]
                self.check(self.train(*words, BATCH="nvtx:batch").out, truth, "payload")

    def test_of_that_name_and_domain_alone(self):
        numbers = random.Random(5)
        before = {i: " ".join((self.word("mark", "batch", 1000, numbers), self.word("push", "tokens", 100, numbers, "other"),
                               self.word("push", "tokens", 10 + i, numbers, "data"), "payload:push:tokens:none:0:data",
                               self.word("mark", "tokens", 7, numbers), "units:5", "push:tokens pop"))
                  for i in range(STEPS)}
        done = self.train(before, BATCH="nvtx:tok*@data")
        self.check(done.out, {i: 10 + i for i in range(STEPS)}, "payload")
        self.assertIn("units: -1", done.stdout)

    def test_nothing_without_being_asked_for(self):
        numbers = random.Random(6)
        before = {i: self.word("push", "batch", 8, numbers) for i in range(STEPS)}
        self.check(self.train(before).out, {}, "called")

    def test_calls_before_it_is_known_that_they_count_for_nothing(self):
        steps = f"payload:mark:batch:u64:7 {STEP.format('')} " * 30
        for before in ("", "units:5"):
            with self.subTest(before):
                done = self.script(f"{before} start {steps} sync stop", WINDOW="api", BATCH="nvtx:batch")
                self.assertEqual(done.stdout.split(), ["units:", "0"] if before else [])
                rows = [row for row in self.rows(done.out) if row["Label"] == "iteration" and row["Complete"] == "1"]
                self.assertGreater(len(rows), 10)
                self.assertEqual({row["Units"] for row in rows}, {"7"})

    def test_of_a_range_that_opens_the_window(self):
        words = ["sync", f"{STEP.format('')} " * 8, "payload:open:outer:u64:100"]
        words += [f"payload:push:outer:i32:{i} {STEP.format('')}" for i in range(30)]
        done = self.script(" ".join([*words, "sync pop"]), WINDOW="nvtx:outerx1", BATCH="nvtx:outer")
        rows = [row for row in self.rows(done.out) if row["Label"] == "iteration" and row["Complete"] == "1"]
        self.assertGreater(len(rows), 10)
        self.assertEqual([int(row["Units"]) for row in rows], [100, *range(1, len(rows))])


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class WithPyTorch(UnitsTest):
    """Sequences of any length, reported by libinject.units() before the batch is copied. If nothing repeats, only PyTorch's steps separate
    iterations."""

    def test_steps_of_batches_of_any_length(self):
        for pattern in ("fixed", "varied", "accumulated", "logged"):
            with self.subTest(pattern):
                done = self.script("", command=[PYTHON, str(HERE / "torch_units.py"), str(simulated.programs / "script_training.so"), pattern, "90"],
                                   timeout=120, env={"PYTHONPATH": str(HERE.parents[1] / "scripts")}, WINDOW="iter:30+6")
                self.assertEqual(done.code, 0, done.stderr)
                told = json.loads(done.stdout)
                rows = [row for row in self.rows(done.out) if row["Label"] == "iteration" and row["Complete"] == "1"]
                self.assertEqual(len(rows), 6)
                self.assertGreaterEqual(int(rows[0]["Iteration"]), 30)
                for row in [*rows, *self.rows(done.out, "step_times.csv")]:
                    self.assertEqual((row["Units"], row["Units From"]), (str(told[int(row["Iteration"])]), "called"), row)

    def test_batches_of_a_loader(self):
        """INJECT_BATCH=auto: the first dimension of a batch's first tensor, however it is packed, or nothing."""
        for pattern in ("tensor", "pair", "named", "encoding", "nested", "arrays", "workers", "accumulated", "unknown", "deep", "thread"):
            with self.subTest(pattern):
                done = self.script("", command=[PYTHON, str(HERE / "torch_batches.py"), str(simulated.programs / "script_training.so"), pattern, "90"],
                                   timeout=120, WINDOW="iter:30+6", BATCH="auto")
                # On a busy machine a thread may be preempted inside CUPTI for long, and iterations are found late.
                warnings = [line for line in done.warnings() if not re.search("one of the program's threads is still inside it|"
                                                                              "too late for iteration", line)]
                self.assertEqual((done.code, warnings), (0, []), done.stderr)
                told = json.loads(done.stdout)
                rows = [row for row in self.rows(done.out) if row["Label"] == "iteration" and row["Complete"] == "1"]
                self.assertEqual(len(rows), 6)
                for row in [*rows, *self.rows(done.out, "step_times.csv")]:
                    samples = told[int(row["Iteration"])]
                    self.assertEqual((row["Units"], row["Units From"]), ("", "") if samples is None else (str(samples), "loader"), row)


if __name__ == "__main__":
    simulated.main()
