#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Hours of a training program, with a window of 200 ms every two seconds: nothing grows, and every kernel is counted.

On the simulated CUDA, with a clock that skips the time for which all threads wait (skipping_clock.cpp): six minutes of the program's time
take a few seconds. The long run, with values by the hour; best with a /dev/shm, where files are cheap:

    test_soak.py LIBRARY PROGRAMS SIMULATION --hours 12 SoakTest.test_the_program_s_windows
    test_soak.py LIBRARY PROGRAMS SIMULATION --hours 12 SoakTest.test_windows_by_time

The contents of a run's tables grow up to their limits, which a long run reaches: 10,000 windows are listed. Memory in use after that is
compared to the kilobyte; before, each window may take the memory of its rows.

usage: test_soak.py LIBRARY PROGRAMS SIMULATION [--hours HOURS] [TEST...]
"""

import argparse
import csv
import os
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "process"))
import harness  # pylint: disable=wrong-import-position

CYCLE_SECONDS = 2
KERNELS = {"forward": 30, "backward": 60, "optimizer": 10, "sm90_gemm_f32_nt_128x128": 10, "log": 1}  # per window
MOST_WINDOWS = 10_000  # with rows of their own; run.json has the latest ones as well
LATEST_WINDOWS = 100
# Rows of a window in the tables, while they grow: 11 KB on the heap were seen.
ROWS_KB = 24
# The amount of free heap memory varies, and there are as many arenas as threads: the tables' rows are rebuilt, and sorted, for each write
# of the files.
HEAP_KB = 1024
# A thread's name and numbers are kept, for 65,536 threads at most; the simulation keeps some data permanently.
THREAD_KB = 0.5
RESIDENT_KB = 32 * 1024
# CUPTI keeps some device memory each time that it is finalized.
KEPT_KB = 600_000 / 1024
MOST_FINALIZATIONS = 50  # plus one per hour, and the last
# Threads and descriptors come and go with windows and files.
TRANSIENT = 2

hours = 1 / 10


class Sample:
    def __init__(self, row):
        self.__dict__ = {name: float(value) for name, value in row.items()}


def median(samples, name):
    return statistics.median(getattr(sample, name) for sample in samples)


@harness.unsanitized("a sanitizer has condition variables and a memory of its own")
class SoakTest(harness.Case):
    def soak(self, how, window):
        self.cycles = round(hours * 3600 / CYCLE_SECONDS)
        begin = time.monotonic()
        done = self.run_program(harness.victim("soak", how, self.cycles, "samples"),
                                preloads=[harness.programs / "skipping_clock.so", harness.library],
                                env={"INJECT_WINDOW": window, "INJECT_SUMMARY": "summary", "LD_LIBRARY_PATH": str(harness.simulation)},
                                expected_files=("samples", "summary"), timeout=60 + 600 * hours)
        ended = time.monotonic()
        self.assertEqual(done.status, 0, done.stdout + done.stderr[-2000:])
        finalizations = done.output.run["overhead"]["finalizations"]
        self.assertLessEqual(finalizations, MOST_FINALIZATIONS + hours + 1)
        # On a busy machine a thread is sometimes delayed inside CUPTI as a window ends, which is reported once.
        problems = [line for line in done.problems() if "not finalized because one of the program's threads is still inside it" not in line]
        self.assertLessEqual(len(done.problems()) - len(problems), 1)
        kept = [line for line in problems if f"finalized {MOST_FINALIZATIONS} times" in line]
        self.assertEqual(problems, kept)
        self.assertEqual(len(kept), int(finalizations >= MOST_FINALIZATIONS))
        said = dict(line.split(": ") for line in done.stdout.splitlines())
        self.assertEqual(said["flush"], "0")
        # The whole time, except for the rest of the last step.
        self.assertGreaterEqual(float(said["seconds"]), self.cycles * CYCLE_SECONDS - 0.02)
        with open(done.folder / "samples", newline="", encoding="utf-8") as file:
            samples = [Sample(row) for row in csv.DictReader(file)]
        self.assertEqual(len(samples), self.cycles // 10)
        if hours >= 1:
            self.tell(samples, ended - begin, ended - int(said["end"]) / 1e9, done)
        self.check_growth(samples)
        self.assertLessEqual(samples[-1].device_kb - samples[0].device_kb, KEPT_KB * finalizations)
        # The thread stays for the next window, so it reuses the memory that it has freed; unless the machine stands still.
        self.assertLess(len({sample.own_thread for sample in samples}), len(samples) / 2)
        self.assertEqual(done.output.state, "closed")
        return done.output, list(map(int, re.findall(r"\d+", said["launches in windows"])))

    def tell(self, samples, seconds, at_exit, done):
        kernels = sum(done.output.kernels().values())
        print(f"{hours} hours in {seconds:.0f} s: {done.output.run['windows'][-1]['number']} windows, {kernels} kernels; at exit "
              f"{at_exit:.2f} s")
        for hour in range(1, int(hours) + 1):
            last = [sample for sample in samples if hour - 0.1 < sample.seconds / 3600 <= hour]
            print(f"  hour {hour:2}: " + ", ".join(f"{name} {median(last, name):.0f}" for name in (
                "rss_kb", "anonymous_kb", "heap_kb", "descriptors", "threads", "files", "output_bytes", "processor_ms")))

    def check_growth(self, samples):
        full = [sample for sample in samples if sample.cycles > 1.05 * MOST_WINDOWS]
        quarter = len(samples) // 4
        if len(full) > quarter:
            # The tables are full: nothing more is added.
            early, late = full[:len(full) // 4], full[-len(full) // 4:]
            rows_kb = THREAD_KB * (median(late, "cycles") - median(early, "cycles"))
        else:
            early, late = samples[quarter:2 * quarter], samples[-quarter:]
            rows_kb = ROWS_KB * (median(late, "cycles") - median(early, "cycles"))
        grown = {name: median(late, name) - median(early, name) for name in ("heap_kb", "rss_kb", "output_bytes")}
        self.assertLess(grown["heap_kb"], HEAP_KB + rows_kb)
        self.assertLess(grown["rss_kb"], RESIDENT_KB + rows_kb)
        self.assertLess(grown["output_bytes"] / 1000, HEAP_KB + rows_kb)
        for name in ("descriptors", "threads", "files"):
            self.assertLessEqual(min(getattr(sample, name) for sample in late),
                                 min(getattr(sample, name) for sample in early) + TRANSIENT, name)

    def windows_of(self, output):
        """The number of windows, those with rows of their own, and the row for the others if there are any."""
        rows = [row for row in output.table("window_sum") if row["Device"] == "all"]
        listed, others = rows[:MOST_WINDOWS], rows[MOST_WINDOWS:]
        run = output.run
        opened = len(run["windows"]) + run["windows_not_listed"]
        self.assertEqual({window["state"] for window in run["windows"]}, {"closed"})
        self.assertEqual(run["windows"][-1]["number"], opened)
        self.assertEqual(run["windows_not_listed"], max(0, opened - MOST_WINDOWS - LATEST_WINDOWS))
        self.assertNotIn("", {row["Start (ns)"] for row in listed})
        self.assertEqual((len(listed), len(others)), (min(opened, MOST_WINDOWS), int(opened > MOST_WINDOWS)))
        return opened, listed, others

    def test_the_program_s_windows(self):
        output, launches = self.soak("api", "api")
        # Two seconds are enough to release CUPTI.
        self.assertGreaterEqual(output.run["overhead"]["finalizations"], MOST_FINALIZATIONS)
        kernels = {name: count * self.cycles for name, count in KERNELS.items()}
        self.assertEqual(output.kernels(), kernels)
        self.assertEqual(launches, [sum(kernels.values()) - kernels["sm90_gemm_f32_nt_128x128"]] * 2)
        opened, listed, others = self.windows_of(output)
        self.assertEqual(opened, self.cycles)
        one = sum(KERNELS.values())
        self.assertEqual({int(row["Kernels"]) for row in listed}, {one})
        self.assertEqual([int(row["Kernels"]) for row in others], [one * (self.cycles - MOST_WINDOWS)] * len(others))
        self.assertEqual(output.lost(), {})

    def test_windows_by_time(self):
        output, (surely, perhaps) = self.soak("time", "time:1s+200ms/2s")
        kernels = output.kernels()
        launched = sum(kernels.values()) - kernels.pop("sm90_gemm_f32_nt_128x128")
        self.assertGreaterEqual(launched, surely)
        self.assertLessEqual(launched, perhaps)
        opened, listed, others = self.windows_of(output)
        # If the machine stands still for two seconds, a window is skipped, and the program ends later.
        self.assertAlmostEqual(opened, self.cycles, delta=0.1 * self.cycles)
        self.assertEqual(sum(int(row["Kernels"]) for row in listed + others), sum(output.kernels().values()))
        for row in listed:
            self.assertEqual(int(row["Kernels"]) + int(row["Copies"]), int(row["Submissions"]))
        # A call that ends long after its window, on a machine with too few CPUs, is not considered for the causes of idle time.
        self.assertLessEqual(set(output.lost()), {"device_time_records"})


def main():
    global hours
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--hours", type=float, default=hours)
    arguments, sys.argv[1:] = parser.parse_known_args()
    hours = arguments.hours
    # Files are created thousands of times.
    if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 1 << 30:
        tempfile.tempdir = "/dev/shm"
    harness.main()


if __name__ == "__main__":
    main()
