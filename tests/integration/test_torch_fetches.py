#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Time in DataLoader.__next__, for a real PyTorch (Debian's python3-torch) on the simulated CUDA: compared with the program's own
measurements around each fetch (torch_loading.py)."""

import json
import pathlib
import unittest

import simulated
from test_torch_steps import PYTHON

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("Fetch: Waiting (ns)", "Fetch: Processing (ns)")
WAITING, PROCESSING = range(2)
FIRST, COUNT = 30, 6


def fetch_times(row):
    """[waiting, processing], None if the table does not say."""
    return [int(row[column]) if row[column] else None for column in KINDS]


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class Fetches(simulated.SimulatedTest):
    def train(self, pattern, iterations=60, **options):
        given = {"WINDOW": f"iter:{FIRST}+{COUNT}", **options}
        done = self.script("", command=[PYTHON, str(HERE / "torch_loading.py"), str(simulated.programs / "script_training.so"), pattern,
                                        str(iterations)], timeout=120, **given)
        self.assertEqual(done.code, 0, done.stderr)
        self.assertEqual(done.out.lost(), {})
        self.measured = json.loads(done.stdout)
        return done.out

    def of_iteration(self, k):
        """(nanoseconds, seconds slept) in all fetches between iteration k's first work and the next one's."""
        took = self.measured[k + 1]
        return sum(time for time, _ in took), sum(slept for _, slept in took)

    def rows(self, out, label="iteration"):
        rows = [row for row in out.rows("iteration_sum.csv") if row["Device"] == "all" and row["Label"] == label]
        if label == "iteration":
            self.assertEqual([(row["Iteration"], row["Complete"]) for row in rows],
                             [(str(k), "1") for k in range(FIRST, FIRST + COUNT)])
        return rows

    def check(self, out, kind):
        """Each iteration has what the program measured, except for the short time around it."""
        rows = self.rows(out)
        for row in rows:
            times = fetch_times(row)
            took, slept = self.of_iteration(int(row["Iteration"]))
            self.assertEqual(times[1 - kind], 0)
            self.assertLessEqual(times[kind], took)
            self.assertGreaterEqual(times[kind], slept * 1e9)
        found = sum(fetch_times(row)[kind] for row in rows)
        # The window ends with the last iteration.
        (window,) = out.windows()
        self.assertEqual(fetch_times(window)[1 - kind], 0)
        self.assertGreaterEqual(fetch_times(window)[kind], found)
        for row in out.rows("iteration_sum.csv") + out.rows("window_sum.csv"):
            if row["Device"] != "all":
                self.assertEqual(fetch_times(row), [None, None])

    def evidence(self, out):
        (diagnosis,) = out.run["diagnosis"]
        self.assertEqual(diagnosis["verdict"], "input-bound")
        return diagnosis["evidence"][0]["text"]

    def test_without_workers(self):
        out = self.train("single")
        self.check(out, PROCESSING)
        # An epoch ends in one of these iterations: two fetches, the first of which yields nothing.
        self.assertIn(2, [len(self.measured[k + 1]) for k in range(FIRST, FIRST + COUNT)])
        self.assertRegex(self.evidence(out), r"^in DataLoader.__next__, \S+% of it processing without workers; ")

    def test_workers(self):
        for pattern in ("one_worker", "two_workers"):
            with self.subTest(pattern=pattern):
                out = self.train(pattern)
                self.check(out, WAITING)
                self.assertRegex(self.evidence(out), r"^in DataLoader.__next__, \S+% of it waiting for the workers; ")
                (row,) = [row for row in out.rows("window_sum.csv") if row["Device"] == "0"]
                idle = int(row["Input in Fetch: Waiting (ns)"])
                self.assertEqual(row["Input in Fetch: Processing (ns)"], "0")
                self.assertLessEqual(idle, fetch_times(out.windows()[0])[WAITING])
                self.assertGreater(idle, 0.5 * int(row["Idle (ns)"]))

    def test_a_loader_within_a_loader(self):
        self.check(self.train("both"), PROCESSING)

    def test_in_a_phase(self):
        """The first batch of a validation is fetched before its first work; the fetches after its last work are the one that finds no more,
        and that of the next iteration's batch."""
        out = self.train("validation")
        self.rows(out)
        (phase,) = self.rows(out, "validation")
        took = self.measured[32]
        self.assertEqual(len(took), 7)
        (before,) = [row for row in self.rows(out) if row["Iteration"] == "31"]
        for row, own in ((before, took[:1]), (phase, took[1:])):
            times = fetch_times(row)
            self.assertEqual(times[WAITING], 0)
            self.assertLessEqual(times[PROCESSING], sum(time for time, _ in own))
            self.assertGreaterEqual(times[PROCESSING], sum(slept for _, slept in own) * 1e9)

    def test_another_thread_fetches(self):
        """A thread's prefetching is not time of the thread that trains, whose fetches are unknown."""
        out = self.train("helper")
        self.assertEqual({tuple(fetch_times(row)) for row in self.rows(out) + out.windows()}, {(None, None)})

    def test_another_thread_fetches_as_well(self):
        self.check(self.train("helper_beside"), PROCESSING)

    def test_a_window_by_the_clock(self):
        """If no thread steps, the launching thread counts. A fetch in progress as the window closes counts up to that point."""
        out = self.train("inference", iterations=120, WINDOW="time:100ms+200ms")
        (window,) = out.windows()
        waiting, processing = fetch_times(window)
        self.assertEqual(waiting, 0)
        self.assertLess(processing, int(window["Duration (ns)"]))
        # Everything but the launches, and the fetch in progress as it opened.
        self.assertGreater(processing, 0.5 * int(window["Duration (ns)"]))

    def test_none(self):
        for pattern, options in (("none", {}), ("single", {"HOOKS": "cudart", "WINDOW": "time:100ms+200ms"})):
            with self.subTest(pattern=pattern):
                out = self.train(pattern, iterations=120, **options)
                rows = out.rows("iteration_sum.csv") + out.rows("window_sum.csv")
                self.assertEqual({tuple(fetch_times(row)) for row in rows}, {(None, None)})
                self.assertEqual({row["Input in Fetch: Waiting (ns)"] for row in out.rows("window_sum.csv")}, {""})
                self.assertNotIn("DataLoader", json.dumps(out.run["diagnosis"]))


class WithoutTorch(simulated.SimulatedTest):
    def test_blank(self):
        done = self.script("runtime_kernel:first runtime_kernel:second sync", WINDOW="always")
        (window,) = done.out.windows()
        self.assertEqual(fetch_times(window), [None, None])


if __name__ == "__main__":
    simulated.main()
