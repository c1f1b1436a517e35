#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Counts are exact whatever the program's threads do."""

import collections
import csv
import os
import sys

import harness

REPORTED = {"CUDASIM_REPORT": "report", "INJECT_TRACE": "csv"}


class Windows(harness.Case):
    """32 threads launch while windows open and close."""

    def test_edges_between_launches(self):
        done = self.run_both(harness.victim("threads", "rounds"))
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assert_complete(done.output, {"inside": 30 * 32 * 20})
        self.assertEqual(len(done.output.windows()), 30)
        self.assertEqual([row["Kernels"] for row in done.output.table("window_sum") if row["Device"] == "all"],
                         [str(32 * 20)] * 30)

    def test_edges_anywhere(self):
        done = self.run_both(harness.victim("threads", "without_pause"), env=REPORTED, expected_files=["report"])
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        output = done.output
        self.assertEqual((output.state, output.lost()), ("closed", {}))
        self.assertEqual(output.windows(), ["closed"] * 25)
        self.assertEqual(output.kernels().keys(), {"endless"})
        rows = [row for row in output.table("window_sum") if row["Device"] == "all"]
        self.assertEqual(sum(int(row["Kernels"]) for row in rows), output.kernels()["endless"])
        # Every recorded launch has its kernel. The call may have begun before the window: then the API table only has the part inside,
        # under another name, or, if CUPTI was attached in between, only its kernel is known.
        unattributed = sum(int(row["Unattributed"]) for row in rows)
        # At most one per thread.
        self.assertLessEqual(unattributed, 32 * output.run["overhead"]["attachments"])
        self.assertEqual(sum(int(row["Submissions"]) for row in rows) + unattributed, output.kernels()["endless"])
        # The record of a stream, and so of a thread, has no gaps except between windows.
        recorded = collections.defaultdict(set)
        base = output.run["time_zero"]["clock_monotonic_ns"]
        for row in output.table("cuda_gpu_trace"):
            recorded[int(row["Strm"])].add(int(row["Start (ns)"]) + base)
        ran = collections.defaultdict(list)
        with open(done.folder / "report", newline="", encoding="utf-8") as file:
            for row in csv.reader(file):
                if row[:2] == ["work", "kernel"]:
                    ran[int(row[5])].append(int(row[8]))
        self.assertGreater(len(recorded), 16)
        for stream, starts in recorded.items():
            inside = [start in starts for start in sorted(ran[stream])]
            self.assertEqual(sum(inside), len(starts))
            begins = sum(now and not before for before, now in zip([False, *inside], inside))
            self.assertLessEqual(begins, 25)


    def test_a_crowd(self):
        """64 threads; VICTIM_LAUNCHES is the number of launches of each, VICTIM_PAUSE the pause in milliseconds after every 50 launches,
        VICTIM_GAP the longest gap between two windows, VICTIM_SEED determines when windows open and close."""
        launches = int(os.environ.get("VICTIM_LAUNCHES", "3000"))
        chosen = {name: os.environ[name] for name in ("VICTIM_PAUSE", "VICTIM_GAP", "VICTIM_SEED") if name in os.environ}
        done = self.run_program(harness.victim("threads", "crowd"),
                                env={"VICTIM_LAUNCHES": str(launches), "INJECT_RING": "128M", "INJECT_BUFFERS": "256M", **chosen},
                                timeout=60 + launches / 500)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assertEqual(int(done.notes.split()[1]), 64 * launches + 1)
        output = done.output
        rows = [row for row in output.table("window_sum") if row["Device"] == "all"]
        total = {column: sum(int(row[column]) for row in rows) for column in ("Kernels", "Submissions", "Unattributed")}
        self.assertEqual((output.state, total["Kernels"]), ("closed", output.kernels()["endless"]))
        self.assertEqual(total["Kernels"], total["Submissions"] + total["Unattributed"])
        # All counts are complete. The breakdown of the windows' time may lack what threads' buffers deliver seconds late: a machine with
        # few CPUs gets into that state after many minutes.
        self.assertLessEqual(set(output.lost()), harness.LOST_TO_PACE | {"busy_time_records", "device_time_records"})
        # In progress when CUPTI was attached: at most one per thread.
        self.assertLessEqual(total["Unattributed"], 64 * output.run["overhead"]["attachments"])
        print(f"{64 * launches} launches, {len(rows)} windows, {total}, not in times: {output.lost()}", file=sys.stderr)


class Lives(harness.Case):
    def test_4800_threads_of_three_calls(self):
        done = self.run_both(harness.victim("threads", "short_lived"), env={"INJECT_TRACE": "csv"})
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assertEqual(done.output.lost(), {})
        self.assertEqual(done.output.calls(), {"cudaGetLastError": 3 * 4800})

    def test_the_smallest_stacks(self):
        # Each waits for the files, which are written once a second.
        done = self.run_both(harness.victim("threads", "tiny_stacks"), most_added=3 + harness.MOST_ADDED_SECONDS)
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assert_complete(done.output, {"quick": 15})


@harness.unsanitized("a library is loaded by RTLD_DEEPBIND, which a sanitizer refuses")
class Loading(harness.Case):
    def test_libraries_come_and_go(self):
        done = self.run_both(harness.victim("threads", "loading"))
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        self.assert_complete(done.output, {"steady": 4000})
        self.assertEqual(done.output.calls()["__cudaLaunchKernel"], 4000)


if __name__ == "__main__":
    harness.main()
