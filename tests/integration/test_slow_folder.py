#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""An output folder on a slow disk, or on a server that no longer answers: the program continues and ends in time, and what could not be
written is reported with the reason.

usage: test_slow_folder.py LIBRARY PROGRAMS SIMULATION
"""

import time

import simulated
import timeline

TEXT = "kernel:warm:1 start kernel:a:3 sync stop sync print:done return:3"
# The exit's deadline is 5 s. The rest is for a busy machine.
MOST_SECONDS = 5 + 1 + 4
HANGS = 60_000  # ms


class SlowFolder(simulated.SimulatedTest):
    def held_up(self, waits, text=TEXT, asleep=0, **options):
        begin = time.monotonic()
        done = self.script(text, before=[simulated.programs.parent / "faults" / "fault_plan.so"], env={"FAULT_WAIT": waits}, check=False,
                           **{"WINDOW": "api", "TRACE": "off", "SUMMARY": "stderr", **options})
        seconds = time.monotonic() - begin
        self.assertEqual((done.code, done.stdout), (3, "done\n"), done.stderr)
        self.assertLess(seconds - asleep, MOST_SECONDS * simulated.PACE, done.stderr)
        return done

    def test_a_slow_disk(self):
        done = self.held_up("fsync:1:400,rename:1:400")
        self.assertEqual(len(done.warnings()), 1, done.stderr)
        self.assertRegex(done.warnings()[0],
                         r"^the output folder is slow: (?:\d+ of \d\d|no) files are written after 5 s; injectctl recover /.*/out makes them$")
        self.assertTrue((done.work / "out" / "records").exists())

    def test_without_records_no_recovery_is_promised(self):
        done = self.held_up("fsync:2:400", RECOVER="0")
        self.assertRegex(done.warnings()[0], r"^the output folder is slow: .*; the others in /.*/out are out of date or missing$")

    def test_a_disk_that_stops_answering(self):
        for waits in (f"fsync:1:{HANGS}", f"rename:3:{HANGS}", f"mkdirat:1:{HANGS}"):
            with self.subTest(waits):
                done = self.held_up(waits)
                self.assertEqual(len(done.warnings()), 1, done.stderr)
                self.assertRegex(done.warnings()[0], "^the output folder (is slow: |does not respond: no files are written)")

    def test_after_the_thread_has_gone(self):
        """A thread of ours writes the last files even if there was none any more. The summary does not wait for them."""
        done = self.held_up(f"fsync:40:{HANGS}", text=TEXT.replace("print", "until_closed sleep:6000 print"), asleep=6, WINDOW="api")
        self.assertEqual(len(done.warnings()), 1, done.stderr)
        self.assertIn("Calls       Avg       Min       Max  Kernel", done.stderr)

    def test_behind_a_thread_that_is_stuck(self):
        """Our thread has not returned from CUPTI: another one writes the last files, and is waited for for a second."""
        # Once the window is open, run.json, which is the first file, says so.
        text = ("kernel:warm:1 start kernel:a:3 until_text:out/run.json:open sync stop until_calls:cuptiActivityDisable:1 "
                "print:done return:3")
        stuck = "cupti_hang=cuptiActivityDisable"
        with self.subTest("a folder that answers"):
            done = self.held_up("rename:1000:1", text=text, faults=stuck)
            self.assertEqual(len(done.warnings()), 1, done.stderr)
            self.assertEqual(sum(count for name, count in done.out.calls().items() if "LaunchKernel" in name), 3)
            self.assertEqual(done.out.run["state"], "closed")
        for waits, files in ((f"fsync:2:{HANGS}", "0"), (f"rename:5:{HANGS}", "3")):
            with self.subTest(waits):
                done = self.held_up(waits, text=text, faults=stuck)
                self.assertEqual(len(done.warnings()), 2, done.stderr)
                self.assertRegex(done.warnings()[1], rf"^the output folder is slow: {files} of \d\d files are written after \d+ s; "
                                 "injectctl recover /.*/out makes them$")
                self.assertIn("Calls       Avg       Min       Max  API call", done.stderr)

    def test_behind_a_thread_that_is_stuck_in_the_detachment(self):
        """That one holds the session's lock. All records have arrived before."""
        text = "kernel:warm:1 start kernel:a:3 until_text:out/run.json:open sync stop until_calls:cuptiFinalize:1 print:done return:3"
        stuck = "cupti_hang=cuptiFinalize"
        with self.subTest("a folder that answers"):
            done = self.held_up("rename:1000:1", text=text, faults=stuck)
            self.assertEqual(len(done.warnings()), 1, done.stderr)
            self.assertIn("CUPTI does not return from a call: the last files are written without it", done.warnings()[0])
            self.assertEqual(done.out.kernels(), {"a": 3})
            self.assertEqual(done.out.run["state"], "closed")
        with self.subTest("one that does not"):
            done = self.held_up(f"fsync:2:{HANGS}", text=text, faults=stuck)
            self.assertEqual(len(done.warnings()), 2, done.stderr)
            self.assertRegex(done.warnings()[1], "^the output folder is slow: 0 of .*; injectctl recover /.*/out makes them$")

    def test_a_full_disk_is_not_passed_over(self):
        done = self.script(TEXT.replace("print", "until_closed print"), before=[simulated.programs.parent / "faults" / "fault_plan.so"], env={"FAULT_PLAN": "fsync:5+"}, check=False,
                           WINDOW="api", SUMMARY="off", TRACE="off")
        self.assertEqual((done.code, done.stdout), (3, "done\n"), done.stderr)
        told = [text for level, text in done.messages() if level == "info"]
        self.assertTrue(any("not all files could be written; those written are in /" in text for text in told), done.stderr)
        self.assertFalse(any("files are in" in text for text in told), done.stderr)

    def test_windows_do_not_wait_for_it(self):
        """A separate thread writes the files: every window opens, and has its kernels."""
        text = "kernel:warm:1 loop:10 [ start kernel:a:1 sync stop kernel:b:1 sync sleep:50 ] print:done return:3"
        for trace in ("off", "csv,chrome"):
            with self.subTest("slow", trace=trace):
                # About 60 ms per file, of which there are two dozen.
                done = self.held_up("fsync:1:30,rename:1:30", text=text, BATCH="1", TRACE=trace)
                self.assertEqual([window["reason"] for window in done.out.run["windows"]], ["api"] * 10)
                self.assertEqual(done.out.kernels(), {"a": 10})
                self.assertEqual(done.warnings(), [])
                if trace != "off":
                    self.assertEqual(len([row for row in done.out.rows("cuda_gpu_trace.csv") if row["Name"] == "a()"]), 10)
                    found = timeline.Timeline.read(done.out.path / timeline.NAME)
                    self.assertEqual([event["name"] for event in found.spans("kernel")], ["a()"] * 10)
            with self.subTest("stops answering", trace=trace):
                # With a timeline the exit may take longer.
                done = self.held_up(f"fsync:1:{HANGS}", text=text, TRACE=trace.partition(",")[0])
                self.assertEqual(len(done.warnings()), 1, done.stderr)
                self.assertRegex(done.warnings()[0], "^the output folder is slow: no files are written .*; injectctl recover /.*/out makes them$")
                self.assertIn("10 windows (api)", done.stderr)
                self.assertIn(" 10  10.000us  10.000us  10.000us  a()", done.stderr)

    def test_windows_do_not_wait_for_the_folder_to_be_made(self):
        """Once our thread is known to be blocked, no further window is waited for."""
        done = self.held_up(f"mkdirat:1:{HANGS}", text="kernel:warm:1 loop:6 [ start kernel:a:1 sync stop sleep:50 ] print:done return:3")
        told = done.warnings()
        self.assertLessEqual(len(told), 2, done.stderr)


if __name__ == "__main__":
    simulated.main()
