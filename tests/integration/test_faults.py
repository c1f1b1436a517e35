#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Single faults: each call that libinject makes to the C library and to CUPTI fails, once or from then on. In each case the program's
output and status are those without libinject, and everything missing in the tables has been reported.

usage: test_faults.py LIBRARY PROGRAMS SIMULATION [--every[=K/N]]     (--every: all calls, not some of them; of N parts the K-th, from 1)
"""

import collections
import shutil
import sys

import simulated

# Windows with calls, kernels, copies, ranges, allocations and hardware metrics, by two threads, with files of every kind.
TEXT = ("gemm kernel:warm:1 sync loop:2 [ start kernel:a:3 gemm copy:h2d:64 push:r kernel:b:2 pop "
        "threads:2 [ kernel:c:2 ] malloc:x:4096 free:x sync stop kernel:between:1 sync until_closed ] print:done return:3")
OPTIONS = {"WINDOW": "api", "METRICS": "auto", "METRICS_INTERVAL": "200us", "METRICS_TIMELINE": "1", "LOG_FILE": "log.txt",
           "SUMMARY": "summary.txt", "CONTROL": "1", "PROM": "p.prom"}
KERNELS = {"a": 6, "b": 4, "c": 8, "sm90_lt_matmul_128x128": 2}
# Maximum number of messages about a single failure.
MOST_LINES = 6
EVERY = None  # or the part, and the number of parts


class Faults(simulated.SimulatedTest):
    def run_planned(self, plan=None, faults=()):
        env = {"FAULT_COUNTS": "counts", **({"FAULT_PLAN": plan} if plan else {})}
        return self.script(TEXT, before=[simulated.programs.parent / "faults" / "fault_plan.so"], env=env, faults=faults,
                           check=False, timeout=100, **OPTIONS)

    @staticmethod
    def counts(done):
        lines = (done.work / "counts").read_text(encoding="utf-8").split("\n")
        return {name: int(count) for name, count in (line.split() for line in lines if line)}

    def check(self, done, what):
        self.assertEqual((done.code, done.stdout), (3, "done\n"), (what, done.stderr))
        # If a profiler refuses to be shut down, it is still there as CUPTI is detached: this counts as misuse, twice, if no later window
        # shuts it down.
        self.assertIn(done.misuse(), (0, 2) if "cuptiProfilerDeInitialize" in what else (0,), what)
        told = done.warnings()
        log = done.work / "log.txt"
        if log.exists():
            told += [line for line in log.read_text(encoding="utf-8").splitlines() if "] info: " not in line]
        self.assertLessEqual(len(told), MOST_LINES, (what, told))
        # The tables are correct, or it is reported that they are not.
        folders = done.folders()
        if not told and not what.startswith("write:"):  # some messages are lost as well
            self.assertEqual(len(folders), 1, what)
            out = simulated.Folder(folders[0])
            lost = out.lost()
            lost.pop("metric_samples", None)
            if not lost:
                # With CUPTI's clock, times do not match those of the devices to the nanosecond (test_cupti_faults.py). Launches whose calls
                # CUPTI can't name are unattributed, and counted as such.
                exact = "TimestampCallback" not in what and "GetCallbackName" not in what
                if exact and done.simulated_calls()["cuptiActivityRegisterTimestampCallback"]:
                    self.check_folder(out, done)
                self.assertEqual((out.run["state"], out.kernels(), len(out.windows())), ("closed", KERNELS, 2), what)

    @staticmethod
    def chosen(counts):
        """(function, number, all later ones as well)"""
        plans = []
        for function, count in sorted(counts.items()):
            numbers = range(1, count + 1)
            if EVERY is None:
                numbers = sorted({1, 2, 3, count // 2, count - 1, count} & set(numbers))
            plans += [(function, number, later) for number in numbers for later in (False, True)]
        # Only a part of those, too: the first calls of some functions, the last of others.
        if EVERY is None:
            return plans[::7]
        part, parts = EVERY
        return plans[part - 1 :: parts]

    def test_the_c_library(self):
        done = self.run_planned()
        self.check(done, "no fault")
        self.assertEqual(simulated.Folder(done.folders()[0]).kernels(), KERNELS)
        counts = self.counts(done)
        self.assertEqual(counts.pop("failed"), 0)
        self.assertGreater(len(counts), 25, counts)
        reached = collections.Counter()
        for function, number, later in self.chosen(counts):
            plan = f"{function}:{number}{'+' if later else ''}"
            with self.subTest(plan):
                done = self.run_planned(plan)
                self.check(done, plan)
                reached[function] += self.counts(done)["failed"] > 0
                shutil.rmtree(done.work)  # thousands of them would fill the disk
        plans = len(self.chosen(counts))
        print(f"{plans} faults, {sum(reached.values())} of them reached", file=sys.stderr)
        self.assertGreater(sum(reached.values()), 0.5 * plans)

    def test_no_memory_from_the_start(self):
        # Exceptions have reserved memory (entry/exception_memory.cpp).
        done = self.run_planned("malloc:1+")
        self.check(done, "malloc:1+")
        self.assertGreater(self.counts(done)["failed"], 0)

    def test_cupti(self):
        done = self.run_planned()
        calls = collections.Counter()
        for line in done.report.read_text(encoding="utf-8").splitlines():
            fields = line.split(",")
            if fields[0] == "call" and "cupti" in fields[1]:
                calls[fields[2]] += int(fields[3])
        self.assertGreater(len(calls), 15)
        plans = self.chosen(calls)
        print(f"{len(plans)} faults of CUPTI's", file=sys.stderr)
        for function, number, later in plans:
            fault = f"cupti_fail={function}:999:{number}" + ("" if later else ":1")
            with self.subTest(fault):
                done = self.run_planned(faults=fault)
                self.check(done, fault)
                shutil.rmtree(done.work)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if argument.partition("=")[0] == "--every":
            sys.argv.remove(argument)
            EVERY = tuple(int(number) for number in (argument.partition("=")[2] or "1/1").split("/"))
    simulated.main()
