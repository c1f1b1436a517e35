#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Host resources used by threads and child processes (host_sum.csv): compared with getrusage() of a program that uses them
(host_program.py), and the causes of waiting for input of a real PyTorch (Debian's python3-torch; torch_input.py)."""

import json
import pathlib
import sys
import unittest

import simulated
from test_torch_steps import PYTHON

HERE = pathlib.Path(__file__).resolve().parent
TICK = 10_000_000  # ns
AMOUNTS = {"voluntary": "Voluntary Switches", "involuntary": "Involuntary Switches", "minor": "Minor Faults", "major": "Major Faults"}
TIME = "Processor Time (ns)"
THREADS = ("main", "autograd", "NCCL", "pin memory", "libinject", "CUDA driver", "other thread")


def by_role(out):
    return {row["Role"]: row for row in out.rows("host_sum.csv")}


class Used(simulated.SimulatedTest):
    urgent = True

    def run_program(self, *more):
        done = self.script("", command=[sys.executable, str(HERE / "host_program.py"), str(simulated.programs / "script_training.so"), *more],
                           WINDOW="api", timeout=120)
        self.assertEqual(done.code, 0, done.stderr)
        (folder,) = [path for path in done.folders() if path.name == "out"]
        out = simulated.Folder(folder)
        self.assertEqual(out.run["host_readings"]["windows_not_read"], 0)
        return json.loads(done.stdout), by_role(out), out

    def near(self, found, expected, what, around=0):
        """`around`: what was used between the program's marks and the readings, which come late on a busy machine."""
        self.assertLessEqual(abs(found - expected), 0.01 * expected + TICK + around, what)

    def test_as_getrusage_has_it(self):
        told, roles, out = self.run_program()
        for role in ("main", "process"):
            row, inner, outer = roles[role], told[role]["inner"], told[role]["outer"]
            self.assertLessEqual(inner["time"], int(row[TIME]) + int(row["Reading (ns)"]), role)
            self.assertLessEqual(int(row[TIME]), outer["time"] + int(row["Reading (ns)"]), role)
            for name, column in AMOUNTS.items():
                self.assertLessEqual(inner[name], int(row[column]), (role, column))
                self.assertLessEqual(int(row[column]), outer[name], (role, column))
        around = told["main"]["outer"]["time"] - told["main"]["inner"]["time"]
        self.near(int(roles["main"][TIME]), told["main"]["inner"]["time"], "main", around)
        # libinject's threads have work around the window as well.
        self.near(int(roles["process"][TIME]) - int(roles["libinject"][TIME]), told["main"]["inner"]["time"] + told["threads"], "process", around)
        # One of the threads has ended: the part that no reading has seen is in the rest.
        self.near(int(roles["other thread"][TIME]) + int(roles["[rest]"][TIME]), told["threads"], "threads")
        workers, ended = roles["loader worker"], roles["[ended children]"]
        # A thread that is seen before it has its name counts in two roles.
        self.assertLessEqual(int(roles["process"]["Count"]), sum(int(roles[role]["Count"]) for role in THREADS if role in roles))
        self.assertEqual((roles["[rest]"]["Count"], ended["Count"]), ("", ""))
        self.near(int(workers[TIME]) + int(ended[TIME]), told["staying"]["time"] + told["waited_for"]["time"], "children", told["waiting"])
        faults = int(workers["Minor Faults"]) + int(ended["Minor Faults"])
        self.assertLessEqual(told["staying"]["minor"], faults)
        self.assertGreaterEqual(int(workers["Count"]), 2)
        (window,) = out.windows()
        process = roles["process"]
        # Over the readings' own span, which is the window's except for the time between an edge and its reading.
        self.assertLess(abs(int(process["Span (ns)"]) - int(window["Duration (ns)"])), 0.1 * int(window["Duration (ns)"]))
        self.assertGreaterEqual(int(process["Start (ns)"]), int(window["Start (ns)"]))
        used = sum(int(row[TIME]) for role, row in roles.items() if role == "process" or role in ("loader worker", "other child", "[ended children]"))
        self.assertAlmostEqual(float(process["Cores Used"]), used / int(process["Span (ns)"]), delta=0.0006)
        self.assertEqual(process["Loader Moments"], "0")
        self.assertNotIn("child with CUDA", roles)

    def test_a_child_with_cuda(self):
        _, roles, _ = self.run_program(str(simulated.programs / "script_cuda"), "runtime_kernel:in_the_child", "sleep:3000")
        self.assertEqual(roles["child with CUDA"]["Count"], "1")

    def test_many_short_windows_are_counted(self):
        """Each costs two readings: if these exceed a thousandth of a CPU, rows are missing, and counted."""
        done = self.script(" ".join(60 * ["start runtime_kernel:k sync stop"]), WINDOW="api")
        out = done.out
        readings = out.run["host_readings"]
        read = {row["Window"] for row in out.rows("host_sum.csv")}
        self.assertEqual(len(read) + readings["windows_not_read"], len(out.run["windows"]))


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class Inputs(simulated.SimulatedTest):
    urgent = True

    def cause(self, pattern, iterations=70, quiet=False):
        """`quiet`: the program must have had the CPUs that it wanted; otherwise the run is repeated."""
        for _ in range(4):
            done = self.script("", command=[PYTHON, str(HERE / "torch_input.py"), str(simulated.programs / "script_training.so"), pattern,
                                            str(iterations)], timeout=180, WINDOW="iter:20+40")
            self.assertEqual(done.code, 0, done.stderr)
            out = done.out
            # On a busy machine readings may come too late for the window, which is counted: then the run is repeated.
            if out.run["host_readings"]["windows_not_read"]:
                continue
            waited, used = (int(by_role(out)["process"][column] or 0) for column in ("Run Queue Wait (ns)", "Processor Time (ns)"))
            if not quiet or 5 * waited < used:
                break
        (diagnosis,) = out.run["diagnosis"]
        self.assertEqual(diagnosis["verdict"], "input-bound")
        self.process = by_role(out)["process"]
        self.workers = by_role(out).get("loader worker")
        return diagnosis["evidence"][0].get("cause"), diagnosis["evidence"][0]["text"]

    def share(self, column):
        return float(self.process[column] or 0)

    def test_slow_decoding_in_workers(self):
        cause, text = self.cause("decode")
        # If other processes take the CPUs, that is what the worker waits for.
        self.assertEqual(cause, "workers" if self.share("Workers Computing (%)") >= self.share("Workers Queued (%)") else "processors", text)
        self.assertGreater(self.share("Workers Computing (%)") + self.share("Workers Queued (%)"), 70)
        # It sleeps for a moment as it hands over a batch.
        self.assertLess(4 * int(self.process["Workers Asleep"]), int(self.process["Loader Moments"]))
        self.assertEqual(self.workers["Count"], "1")

    def test_a_fork_server_is_no_worker(self):
        self.cause("fork_server")
        self.assertEqual(self.workers["Count"], "1")
        self.assertGreater(self.share("Workers Computing (%)") + self.share("Workers Queued (%)"), 70)

    def test_too_few_processors(self):
        cause, text = self.cause("cores")
        self.assertEqual(cause, "processors", text)
        self.assertEqual(self.process["Cores by Affinity"], "1")
        self.assertGreater(float(self.process["Cores Wanted"]), 2)
        self.assertLess(float(self.process["Cores Used"]), 1.05)
        self.assertRegex(text, r"4 loader workers waited \S+% of their time for one .* of 1\.00 processors and wanted ")

    def test_slow_storage(self):
        for pattern in ("storage", "sleep"):
            with self.subTest(pattern=pattern):
                cause, text = self.cause(pattern)
                self.assertEqual(cause, "storage", text)
                self.assertLess(self.share("Workers Computing (%)"), 50)
                self.assertGreater(2 * int(self.process["Workers Asleep"]), int(self.process["Loader Moments"]))

    def test_the_main_process_makes_the_batches(self):
        for pattern in ("collate", "unpickle", "no_workers"):
            with self.subTest(pattern=pattern):
                cause, text = self.cause(pattern, quiet=True)
                self.assertEqual(cause, "main thread", text)
                self.assertLess(self.share("Workers Computing (%)"), 50)

    def test_a_thread_of_the_program_makes_the_batches(self):
        cause, text = self.cause("in_a_thread", quiet=True)
        self.assertEqual(cause, "main thread", text)
        # The process's first thread only waits for it.
        self.assertIn("by the launching thread's own work: process and children used", text)

    def test_a_worker_computes_in_a_thread_of_its_own(self):
        cause, text = self.cause("threaded")
        self.assertNotEqual(cause, "storage", text)
        self.assertLess(2 * int(self.process["Workers Asleep"]), int(self.process["Loader Moments"]))

    def test_not_told_where_another_thread_may_be_waited_for(self):
        """Workers are asleep, and so is the main thread: it waits for a thread of its own that pins the batches, or as here for one that
        serves the workers from the process itself; or for a program that a worker has started."""
        for pattern in ("served", "converted"):
            with self.subTest(pattern=pattern):
                cause, text = self.cause(pattern)
                self.assertIsNone(cause, text)
                # CPU use in the meantime is counted, including that of a program that comes and goes between two readings.
                self.assertGreater(float(self.process["Cores Used"]), 0.3)


if __name__ == "__main__":
    simulated.main()
