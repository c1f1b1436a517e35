#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""State of the program's threads is preserved: cancellation, errno, the last error, signals; and times do not follow
the wall clock."""

import re

import harness


@harness.unsanitized("a thread that is cancelled leaves functions by another way than the sanitizer's check of the stack knows")
class Cancellation(harness.Case):
    def test_inside_a_blocking_call(self):
        done = self.run_both(harness.victim("signals", "cancel_in_blocking_call"))
        self.assertEqual((done.status, done.stdout), (0, "clean-up handler\ncancelled\n"))
        self.assert_complete(done.output, {"slow": 1, "quick": 10})
        # The frame of the interrupted call has gone, so the clean-up handler's launch is not inside it.
        self.assertEqual(done.output.calls()["cudaDeviceSynchronize"], 1)
        self.assertEqual(done.output.calls()["__cudaLaunchKernel"], 11)

    def test_destructors_on_the_way(self):
        done = self.run_both(harness.victim("signals", "cancel_through_destructors"))
        self.assertEqual((done.status, done.stdout), (0, "destructor\ncancelled\n"))
        self.assert_complete(done.output, {"slow": 1, "quick": 10})

    def test_is_not_acted_upon_in_our_code(self):
        done = self.run_both(harness.victim("signals", "cancel_while_windows_open"))
        self.assertEqual((done.status, done.stdout), (0, "cancelled after step 4\n"))
        self.assert_complete(done.output, {"quick": 7})


class ThreadState(harness.Case):
    def test_errno(self):
        # The victim waits three times for the files, which are written once a second.
        done = self.run_both(harness.victim("signals", "errno"), most_added=3 + harness.MOST_ADDED_SECONDS)
        self.assertEqual(done.status, 0)
        lines = done.stdout.splitlines()
        if not harness.SANITIZER:  # its run-time library leaves one
            self.assertEqual(lines[0], "errno when main began: 0")
        self.assertEqual([line for line in lines[1:] if not line.endswith("returned 0, errno 77")], [])
        self.assertEqual(len(lines), 1 + 3 * 10)

    def test_last_error(self):
        done = self.run_both(harness.victim("signals", "last_error"), most_added=2 + harness.MOST_ADDED_SECONDS)
        self.assertEqual(done.status, 0)
        self.assertIn("peek 2", done.stdout)

    @harness.unsanitized("the sanitizer's own arithmetic would be trapped")
    def test_floating_point_traps(self):
        for window in ("always", "api"):  # our thread begins before the traps are set, and after
            with self.subTest(window):
                done = self.run_both(harness.victim("signals", "trap_floating_point"),
                                     env={"INJECT_TRACE": "csv,chrome", "INJECT_WINDOW": window})
                self.assertEqual((done.status, done.stdout), (0, "raised: 0, trapped: 1\n"))
                self.assert_complete(done.output, {"short_one": 101 if window == "always" else 100})

    def test_masks_handlers_and_pending_signals(self):
        done = self.run_both(harness.victim("signals", "signal_state"))
        self.assertEqual(done.status, 0)
        self.assertIn("after: signal 13 blocked 1 pending 1 handled 0", done.stdout)
        self.assert_complete(done.output, {"quick": 10})


class Handlers(harness.Case):
    """A signal handler makes hooked calls while the thread that it interrupts is making some."""

    def check(self, scenario):
        done = self.run_both(harness.victim("signals", scenario), env={"INJECT_RING": "256M"})
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        calls, handled = map(int, re.fullmatch(r"calls (\d+) handled (\d+)\n", done.notes).groups())
        self.assertGreater(handled, 100)
        output = done.output
        self.assertEqual(output.state, "closed")
        seen = output.calls()
        # All of the interrupted thread's own calls are there. A handler's call made while the thread publishes a record
        # may be lost, and is then counted as lost.
        self.assertEqual(seen["cudaGetLastError"], calls)
        lost = output.lost()
        self.assertEqual(seen["cudaPeekAtLastError"] + lost.pop("host_records", 0), handled)
        # The same is true of a reading of the thread's CPU time.
        self.assertLessEqual(lost.pop("device_time_records", 0), handled)
        self.assertEqual(lost, {})
        self.assertEqual(set(seen), {"cudaGetLastError", "cudaPeekAtLastError"})

    def test_alarm(self):
        self.check("alarm")

    def test_profiling_signal(self):
        self.check("profiling_signal")


class WallClock(harness.Case):
    def test_steps(self):
        done = self.run_both(harness.victim("signals", "clock_steps"), env={"INJECT_TRACE": "csv"})
        self.assertEqual((done.status, done.stdout), (0, "done\n"))
        output = done.output
        self.assert_complete(output, {"timed": 100})
        self.assertEqual({int(row["Duration (ns)"]) for row in output.table("cuda_gpu_trace")}, {1_000_000})
        windows = output.run["windows"]
        self.assertEqual(len(windows), 5)
        for window in windows:
            self.assertLess(20e6, window["duration_ns"])
            self.assertLess(window["duration_ns"], 300e9)
        for before, after in zip(windows, windows[1:]):
            self.assertLess(before["end_ns"], after["start_ns"])
        for row in output.table("cuda_gpu_trace") + output.table("cuda_api_trace"):
            begin = int(row["Start (ns)"])
            self.assertLess(windows[0]["start_ns"] - 1e6, begin)
            self.assertLess(begin, windows[-1]["end_ns"] + 300e9)
            self.assertLess(int(row["Duration (ns)"]), 300e9)

    def test_a_monotonic_clock_of_its_own(self):
        """As with libfaketime, which until 0.9.10 replaces the clock but not pthread_cond_clockwait()."""
        for victim in ("clock_behind", "clock_ahead"):
            with self.subTest(victim):
                done = self.run_program(harness.victim("signals", victim),
                                        env={"INJECT_WINDOW": "time:100ms+50ms", "INJECT_AFTER": "exit"})
                self.assertEqual(done.status, 0)
                self.assertEqual(done.output.windows(), ["closed"])


if __name__ == "__main__":
    harness.main()
