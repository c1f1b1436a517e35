#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""However a program ends: its status and output are its own, and its launches are in the tables or known to be cut
off."""

import signal

import harness


class OrderlyEnds(harness.Case):
    """Exit handlers run: everything is written, including the queued work."""

    def check(self, scenario, status, more_kernels=None, **options):
        done = self.run_both(harness.victim("exit", scenario), **options)
        self.assertEqual(done.status, status)
        self.assert_complete(done.output, {"quick": 100, "slow": 50, **(more_kernels or {})})
        self.assertEqual(done.output.windows(), ["closed", "closed"])
        self.assertEqual(done.problems(), [])
        return done

    def test_return_from_main(self):
        self.check("return", 0)

    def test_exit(self):
        self.check("exit", 3)

    def test_quick_exit(self):
        self.check("quick_exit", 4)

    def test_exit_of_another_thread(self):
        self.check("exit_of_a_thread", 5)

    def test_exit_while_threads_launch(self):
        done = self.run_both(harness.victim("exit", "threads_launch"), env={"CUDASIM_REPORT": "report"},
                             expected_files=["report"])
        self.assertEqual(done.status, 6)
        output = done.output
        self.assertEqual(output.state, "closed")
        # A thread that is preempted inside its launch may reach CUPTI when activity is off: one launch each.
        lost = output.lost()
        self.assertLessEqual(lost.pop("missing_activity_records", 0), 8)
        self.assertEqual(lost, {})
        kernels = output.kernels()
        # At least what was launched before exit was called, at most everything that was launched.
        before = int(done.notes.split()[1])
        launched = (done.folder / "report").read_text().count("\nwork,kernel,busy,")
        busy = kernels.pop("busy")
        self.assertGreaterEqual(busy, before)
        self.assertLessEqual(busy, launched)
        self.assertEqual(kernels, {"quick": 100, "slow": 50})
        self.assertEqual(len(output.threads()), 9)
        self.assertEqual(sum(count for _, _, count in output.threads()), sum(output.kernels().values()))

    def test_static_destructors_call_cuda_after_the_exit_handlers(self):
        done = self.check("late_destructor", 0)
        self.assertIn("static destructor: synchronize 0", done.stdout)

    def test_exit_inside_an_exit_handler(self):
        done = self.check("in_exit_handler", 8)
        self.assertIn("exit handler", done.stdout)

    def test_exit_inside_an_exit_handler_that_runs_after_ours(self):
        self.check("in_early_exit_handler", 8)

    def test_launches_of_an_exit_handler(self):
        self.check("launch_in_exit_handler", 0, {"handlers": 10})

    def test_cuda_is_first_used_in_an_exit_handler(self):
        self.check("first_cuda_in_exit_handler", 0)

    def test_exit_in_a_signal_handler_inside_a_hooked_call(self):
        self.check("in_signal_handler", 9)

    def test_exit_in_a_signal_handler_while_a_window_is_opened(self):
        done = self.run_both(harness.victim("exit", "in_signal_handler_while_opening"), most_added=6 + harness.MOST_ADDED_SECONDS)
        self.assertEqual(done.status, 10)

    def test_exit_while_another_thread_opens_a_window(self):
        done = self.run_both(harness.victim("exit", "while_a_thread_opens"))
        self.assertEqual(done.status, 11)

    def test_no_window(self):
        done = self.run_both(harness.victim("exit", "no_window"))
        self.assertEqual(done.outputs, [])
        self.assertEqual(len(done.problems()), 1)
        self.assertIn("ended before a window opened", done.problems()[0])


class AbruptEnds(harness.Case):
    """No exit handler runs: run.json reports that a window was cut off; the previous one is complete."""

    def check(self, scenario, status, **options):
        done = self.run_both(harness.victim("exit", scenario), **options)
        self.assertEqual(done.status, status)
        self.assertEqual(done.output.state, "open")
        self.assertEqual(done.output.windows(), ["closed", "open"])
        self.assertEqual(done.output.kernels()["quick"], 100)
        return done

    def test_uncaught_exception(self):
        done = self.check("exception", -signal.SIGABRT)
        self.assertIn("nobody catches this", done.stderr)

    def test_uncaught_exception_of_a_thread(self):
        self.check("exception_of_a_thread", -signal.SIGABRT)

    def test_sigterm(self):
        self.check("sigterm", -signal.SIGTERM)

    def test_sigkill(self):
        self.check("sigkill", -signal.SIGKILL)

    def test_abort(self):
        self.check("abort", -signal.SIGABRT)

    def test_underscore_exit(self):
        self.check("underscore_exit", 12)

    def test_exec(self):
        done = self.check("exec", 0)
        self.assertIn("another program", done.stdout)

    def test_cut_first_window(self):
        done = self.run_both(harness.victim("exit", "cut_first_window"))
        self.assertEqual(done.status, 12)
        self.assertEqual(done.output.state, "open")
        self.assertEqual(done.output.windows(), ["open"])


if __name__ == "__main__":
    harness.main()
