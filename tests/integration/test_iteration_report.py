#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What a run reports of the iterations that it found: run.json, the recording, and nothing if none were found.

usage: test_iteration_report.py LIBRARY PROGRAMS SIMULATION FOLDER_OF_RECORDING_PY
"""

import sys
import unittest

import simulated

sys.path.append(sys.argv.pop(4))
import recording  # noqa: E402  (its folder is known only now)

STEP = "kernel:first:1 kernel:middle:2 kernel:adam_step:1 sleep:5"
# Steps by which iterations are recognised, and those that locate the program within them.
KNOWN = f"loop:8 [ {STEP} ] looks:2 loop:4 [ {STEP} ] looks:2"


class Training(simulated.SimulatedTest):
    def training(self, steps=40, between="", **options):
        return self.script(f"sync {KNOWN} loop:{steps - 12} [ {STEP} ] {between} sync", **options)


class Report(Training):
    def test_found(self):
        done = self.training(WINDOW="iter:15+3", ITER_RECORD="stream")
        found = done.out.run["iterations"]
        # On a busy machine our thread may look late, and during an iteration.
        self.assertLessEqual(found.pop("locked_after"), 12)
        self.assertLessEqual(found.pop("changes"), 1)
        self.assertEqual(found, {
            "source": "hooks", "found": True, "recognised_by": "optimizer", "told_apart_by": "function and launch shape",
            "certainty": "medium", "events_per_iteration": 4, "begins_with": "first()", "anchor": "adam_step()",
            "iterations_run": 40})
        self.assertEqual(done.out.kernels(), {"first": 3, "middle": 6, "adam_step": 3})

    def test_recording(self):
        done = self.training(WINDOW="iter:15+3", ITER_RECORD="stream")
        stream = recording.read_file(str(done.work / "stream"))
        self.assertEqual(stream.unread, [])
        self.assertIn(len(stream.locks), (1, 2))
        self.assertEqual(stream.restarts, [])
        lock = stream.lock()
        self.assertEqual((lock.optimizer, lock.by_shape, lock.rough, lock.events), (True, True, False, 4))
        self.assertEqual((lock.begin, lock.anchor), ("_Z5firstv", "_Z9adam_stepv"))
        self.assertEqual([number for number, _, _ in lock.spans], list(range(40)))
        self.assertFalse(any(phase for _, _, phase in lock.spans))
        for number, position, _ in lock.spans:
            self.assertEqual(stream.names[stream.events[position][2]], "_Z5firstv", number)
        # Those whose beginnings were seen as they happened, including the window's.
        begins = {position: number for number, position, _ in lock.spans}
        live = [begins[position] for position, _ in stream.boundaries]
        self.assertEqual(live, list(range(live[0], 40)))
        self.assertEqual([begins[position] for position, _ in stream.opens + stream.closes], [15, 18])

    def test_validation(self):
        """Work between two iterations begins with the same kernels: the recording distinguishes them in the end."""
        done = self.script(f"sync loop:2 [ loop:20 [ {STEP} ] loop:3 [ kernel:first:1 kernel:middle:2 ] sync ]",
                           WINDOW="iter:1000+1", ITER_RECORD="stream", check=False)
        stream = recording.read_file(str(done.work / "stream"))
        spans = stream.lock().spans
        self.assertEqual([number for number, _, phase in spans if not phase], list(range(40)))
        (phase,) = [(number, position) for number, position, phase in spans if phase]
        self.assertEqual(phase[0], 20)
        (begin,) = [position for number, position, phase in spans if number == 20 and not phase]
        self.assertEqual(begin - phase[1], 10)

    def test_another_source(self):
        """In windows of another trigger iterations are searched for as well: each window sees its own launches."""
        done = self.script(f"sync start loop:12 [ {STEP} ] stop sleep:20 kernel:other sync", WINDOW="api", API="off")
        found = done.out.run["iterations"]
        self.assertEqual((found["source"], found["found"], found["recognised_by"]), ("callbacks", True, "optimizer"))

    def test_layers_before_the_first_optimizer(self):
        """They repeat, too, and are taken for iterations at first: nothing of that remains in the table."""
        layer = "kernel:a kernel:b kernel:c sleep:1"
        done = self.script(f"sync start loop:8 [ kernel:in loop:20 [ {layer} ] kernel:adam_step sleep:2 ] stop sync", WINDOW="api",
                           API="off")
        self.assertGreaterEqual(done.out.run["iterations"]["changes"], 1)
        rows = [row for row in done.out.rows("iteration_sum.csv") if row["Label"] == "iteration" and row["Device"] == "all"]
        self.assertEqual([row["Iteration"] for row in rows], [str(k) for k in range(8)])
        self.assertEqual([row["Kernels"] for row in rows], ["62"] * 8)

    def test_not_found(self):
        done = self.script("kernel:lonely:3 sync", WINDOW="always")
        found = done.out.run["iterations"]
        self.assertEqual((found["source"], found["found"]), ("callbacks", False))
        self.assertIn("3 launches", found["report"])

    def test_not_searched(self):
        done = self.script("start stop kernel:a:3 sync", WINDOW="api")
        self.assertFalse(done.out.run.get("iterations", {}).get("found"))

    def test_auto_ends_its_search(self):
        """After its window, and as soon as the program itself controls when windows open."""
        done = self.training(400, WINDOW="auto")
        self.assertEqual(len(done.out.windows()), 1)
        self.assertLess(done.out.run["iterations"]["iterations_run"], 390)
        done = self.script(f"sync loop:40 [ {STEP} ] open kernel:asked_for close loop:300 [ {STEP} ] sync", WINDOW="auto")
        self.assertEqual(done.out.kernels(), {"asked_for": 1})
        self.assertLess(done.out.run["iterations"].get("iterations_run", 0), 45)

    def test_no_window(self):
        """A program that ends before its window, and takes its time to, leaves nothing behind."""
        done = self.training(20, WINDOW="iter:1000+1", SUMMARY="stderr", before=(), check=False)
        self.assertEqual(done.folders(), [])
        for _ in range(3):
            done = self.script(f"linger:100 sync loop:20 [ {STEP} ]", WINDOW="iter:1000+1", SUMMARY="stderr", check=False)
            self.assertEqual(done.folders(), [])
            self.assertNotIn("0 windows", done.stderr)
            self.assertIn("20 training iterations ran", "".join(done.warnings()))


class OtherWindows(Training):
    """Windows requested in addition to those of iterations, and windows that are closed early."""

    def reasons(self, done):
        return [row["Reason"].split(" (")[0] for row in done.out.windows()]

    def test_one_after_the_other(self):
        done = self.training(40, WINDOW="iter:20+2/2x3")
        self.assertEqual(self.reasons(done), ["iterations 20-21", "iterations 22-23", "iterations 24-25"])
        self.assertEqual(done.out.window_kernels(), [8, 8, 8])

    def test_across_a_boundary(self):
        """A window is open when one of iterations would begin: that one is skipped, those after it are not."""
        done = self.script(f"sync {KNOWN} loop:6 [ {STEP} ] open loop:4 [ {STEP} ] close until_text:messages:closed; loop:60 [ {STEP} ] sync",
                           WINDOW="iter:20+1/10x3", LOG_FILE="messages")
        first, second, third = self.reasons(done)
        self.assertEqual((first, second), ("inject_start", "iterations 30-30"))
        # On a busy machine a window's end may take ten steps.
        self.assertIn(third, [f"iterations {number}-{number}" for number in (40, 50, 60, 70)])
        self.assertEqual(done.out.window_kernels()[1:], [4, 4])

    def test_before_the_only_one(self):
        done = self.script(f"sync open kernel:mine close loop:90 [ {STEP} ] sync", WINDOW="iter:80+2")
        self.assertEqual(self.reasons(done), ["inject_start", "iterations 80-81"])
        self.assertEqual(done.out.window_kernels(), [1, 8])

    def test_closed_early(self):
        done = self.script(f"sync {KNOWN} loop:6 [ {STEP} ] sleep:50 looks:2 loop:4 [ {STEP} ] close sleep:20 open kernel:mine loop:30 [ {STEP} ] close sync",
                           WINDOW="iter:20+10/1000")
        self.assertEqual(self.reasons(done), ["iterations 20-29", "inject_start"])
        self.assertEqual(done.out.window_kernels(), [8, 121])

    def test_endings(self):
        """The last of several windows, and one that is closed early, end the program if that was requested."""
        done = self.training(4000, WINDOW="iter:20+2/10x2", AFTER="exit")
        self.assertEqual(done.out.window_kernels(), [8, 8])
        done = self.script(f"sync {KNOWN} loop:10 [ {STEP} ] close loop:60000 [ {STEP} ] print:over", WINDOW="iter:20+10", AFTER="exit")
        self.assertNotIn("over", done.stdout)
        self.assertEqual(done.out.window_kernels(), [8])
        # Once the following steps have been timed.
        self.assertGreaterEqual(sum(int(row["Iteration"]) > 22 for row in done.out.rows("step_times.csv")), 30)

    def test_schedule_and_a_window_that_was_asked_for(self):
        """A schedule only closes its own windows."""
        done = self.script("sync open sleep:300 kernel:mine close sleep:100 sync", WINDOW="time:5000ms+50ms")
        self.assertEqual(done.out.window_kernels(), [1])


if __name__ == "__main__":
    simulated.main()
