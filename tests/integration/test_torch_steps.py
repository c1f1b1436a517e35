#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Iterations from the optimizer steps that PyTorch reports: a real PyTorch on the host (Debian's python3-torch), with launches on the
simulated CUDA (torch_training.py); and other libraries with its name."""

import collections
import pathlib
import subprocess
import sys
import re
import unittest

import simulated

HERE = pathlib.Path(__file__).resolve().parent


def with_torch():
    """A Python that has PyTorch; None if there is none."""
    for python in ("/usr/bin/python3", sys.executable):
        found = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
        if found.returncode == 0:
            return python
    return None


PYTHON = with_torch()


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class Steps(simulated.SimulatedTest):
    def train(self, pattern, iterations=60, check=True, **options):
        given = {"WINDOW": "iter:30+4", "LOG": "debug", **options}
        return self.script("", command=[PYTHON, str(HERE / "torch_training.py"), str(simulated.programs / "script_training.so"),
                                        pattern, str(iterations)], check=check, timeout=120, **given)

    def check_exact(self, done, steps, certainty="high", first=30, count=4, status=0):
        """The window has these iterations, from their first kernel to their last, with the reason given."""
        self.assertEqual(done.code, status, done.stderr)
        found = done.out.run["iterations"]
        self.assertEqual((found["recognised_by"], found["optimizer_steps_per_iteration"], found["certainty"]),
                         ("optimizer steps", steps, certainty), found)
        # On a busy machine our thread may be so late that the window opens at a later iteration, which is reported.
        late = re.search(r"the window opens at iteration (\d+)", done.stderr)
        first = int(late[1]) if late else first
        marks = sorted(name for name in done.out.kernels() if name.startswith("mark_"))
        self.assertEqual(marks, sorted(f"mark_{k}" for k in range(first, first + count)))
        rows = [row for row in done.out.rows("iteration_sum.csv") if row["Device"] == "all" and row["Label"] == "iteration"]
        self.assertEqual([(row["Iteration"], row["Complete"]) for row in rows],
                         [(str(k), "1") for k in range(first, first + count)])
        self.assertEqual(done.out.lost(), {})

    def test_one_optimizer(self):
        """Layers also launch kernels by which an optimizer is recognised."""
        done = self.train("plain")
        self.check_exact(done, 1)
        self.assertEqual(done.out.run["iterations"]["anchor"], "Optimizer.step#Adam.step")
        self.assertIn("PyTorch reports its optimizers' steps", done.stderr)
        done = self.train("plain", HOOKS="cudart", ITER_RECORD="stream")
        self.assertNotIn("PyTorch tells", done.stderr)
        self.assertNotIn("\nT ", (done.work / "stream").read_text())

    def test_accumulation(self):
        self.check_exact(self.train("accumulation"), 1)

    def test_two_optimizers_of_one_class(self):
        self.check_exact(self.train("gan"), 3)

    def test_alike_optimizers_that_step_one_after_the_other(self):
        self.check_exact(self.train("alike"), 3)

    def test_a_critic_that_trains_alone_at_first(self):
        """Its window has other iterations, which is reported, and the certainty is low."""
        done = self.train("critic_first", 300, WINDOW="iter:30+4/500x2")
        found = done.out.run["iterations"]
        self.assertEqual((found["optimizer_steps_per_iteration"], found["certainty"]), (3, "low"), found)
        self.assertIn("an iteration turned out to have 3 optimizer steps: earlier windows show iterations of another kind", " ".join(done.warnings()))

    def test_optimizers_of_one_class_whose_steps_vary(self):
        """They are distinguished by the object that steps."""
        done = self.train("varying")
        self.check_exact(done, 3)
        self.assertEqual(done.out.run["iterations"]["told_apart_by"], "function")

    def test_models_of_one_kind_in_turn(self):
        """Whether both together or each of them is an iteration is unknown."""
        self.check_exact(self.train("ensemble"), 1, certainty="medium")

    def test_nothing_repeats_but_the_steps(self):
        done = self.train("lengths")
        # By the kinds of kernels between the steps, or by the steps alone.
        by_steps = done.out.run["iterations"]["begins_with"] == "the first work"
        self.check_exact(done, 1, certainty="medium" if by_steps else "high")

    def test_optimizer_within_an_optimizer(self):
        self.check_exact(self.train("nested"), 1)

    def test_an_optimizer_for_each_parameter(self):
        self.check_exact(self.train("parameters"), 40)

    def test_forward_and_backward_in_the_step(self):
        self.check_exact(self.train("closure"), 1)
        self.check_exact(self.train("whole"), 1)

    def test_a_step_that_raises(self):
        self.check_exact(self.train("raises"), 2)

    def test_steps_that_are_skipped(self):
        self.check_exact(self.train("skips"), 1)

    def test_a_window_by_the_clock(self):
        """Iterations of a window by the clock."""
        done = self.train("plain", iterations=600, WINDOW="time:100ms+600ms")
        found = done.out.run["iterations"]
        # It may begin in the middle of an iteration.
        self.assertEqual((found["source"], found["recognised_by"], found["certainty"]), ("callbacks", "optimizer steps", "low"), found)

    def test_threads(self):
        self.check_exact(self.train("threads"), 1)

    def test_children(self):
        done = self.train("forks")
        self.check_exact(done, 1)
        self.assertEqual(len(done.folders()), 1)

    def test_beside_the_programs_profiler(self):
        self.check_exact(self.train("profiled"), 1)

    def test_callbacks_that_the_program_clears(self):
        """Steps are observed again soon: a window closes. How many were missed is unknown."""
        for pattern in ("cleared_early", "cleared_in_the_window"):
            with self.subTest(pattern=pattern):
                done = self.train(pattern)
                self.assertIn("ours is registered again", done.stderr)
                found = done.out.run["iterations"]
                self.assertEqual((found["recognised_by"], found["certainty"]), ("optimizer steps", "low"), found)
                marks = {int(name.removeprefix("mark_")) for name in done.out.kernels() if name.startswith("mark_")}
                self.assertLess(max(marks), int(done.stdout.split()[-1]) - 10)
                rows = [row for row in done.out.rows("iteration_sum.csv") if row["Device"] == "all" and row["Label"] == "iteration"]
                self.assertEqual([row["Complete"] for row in rows], ["1"] * 4)

    def test_exit_in_a_step(self):
        self.check_exact(self.train("exits"), 1, status=3)

    def test_unharmed(self):
        for pattern in ("plain", "raises", "exits"):
            with self.subTest(pattern=pattern):
                done = self.train(pattern)
                alone = self.script("", preload=False, check=False, command=[
                    PYTHON, str(HERE / "torch_training.py"), str(simulated.programs / "script_training.so"), pattern, "60"])
                self.assertEqual((done.code, done.stdout), (alone.code, alone.stdout))


class Others(simulated.SimulatedTest):
    """Nothing is registered with an unknown PyTorch."""

    def run_with(self, library, version, **env):
        """Runs a program that has such a library; returns the messages about it, and what the library was told."""
        place = self.folder / f"torch{self.runs}"
        (place / "lib").mkdir(parents=True)
        (place / "lib/libtorch_cpu.so").symlink_to(simulated.programs / f"torch_{library}/libtorch_cpu.so")
        if version is not None:
            (place / "version.py").write_text(f"__version__ = '{version}'\ndebug = False\n")
        done = self.script("runtime_kernel:first runtime_kernel:second sync", WINDOW="iter:2+1", LOG="debug",
                           before=[place / "lib/libtorch_cpu.so"], env=env)
        self.assertEqual(done.code, 0)
        return [line for line in done.stderr.splitlines() if "PyTorch" in line or "optimizers' steps" in line], done.stdout

    def test_known_and_others(self):
        says = collections.namedtuple("says", "text removed")
        for library, version, calls, expected in (
                ("other", "2.11.0+cu130", "", says("PyTorch reports", False)),
                ("other", "1.12.1", "", says("PyTorch reports", False)),
                ("other", "2.15.0a0+git1234", "", says("PyTorch reports", False)),
                ("other", "1.11.0", "", says("is PyTorch 1.11: optimizer steps are recorded only for", False)),
                ("other", "2.16.0", "", says("is PyTorch 2.16: optimizer steps are recorded only for", False)),
                ("other", "12.1", "", says("is PyTorch 12.1: optimizer steps are recorded only for", False)),
                ("other", "unknown", "", says("is PyTorch 0.0: optimizer steps are recorded only for", False)),
                ("other", None, "", says("is PyTorch 0.0: optimizer steps are recorded only for", False)),
                ("other", "2.11.0", "none", says("callbacks have an unknown form", True)),
                ("other", "2.11.0", "all", says("callbacks have an unknown form", True)),
                ("other", "2.11.0", "twice", says("callbacks have an unknown form", True)),
                ("incomplete", "2.11.0", "", says("lacks functions", False))):
            with self.subTest(library=library, version=version, calls=calls):
                lines, told = self.run_with(library, version, TORCH_CALLS=calls)
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(expected.text, lines[0])
                self.assertEqual("removed 1\n" in told, expected.removed)

    def test_operators_without_numbers(self):
        """Steps are reported nevertheless."""
        lines, told = self.run_with("other", "2.11.0", TORCH_CALLS="no_sequence")
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("PyTorch reports", lines[0])
        self.assertIn("sequence numbers are not found", lines[1])
        self.assertEqual(told.split()[:4], ["removed", "2", "removed", "3"])

    def test_without_it(self):
        done = self.script("runtime_kernel:first sync", WINDOW="iter:2+1", LOG="debug")
        self.assertNotIn("PyTorch", done.stderr)


if __name__ == "__main__":
    simulated.main()
