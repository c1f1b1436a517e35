#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Python programs with a window open: subprocesses, workers by each start method, and the ways to end."""

import pathlib
import signal
import sys

import harness

PROGRAM = pathlib.Path(__file__).resolve().parent / "python_victim.py"
PARENT = {"before": 10, "after": 10}


class PythonCase(harness.Case):
    def check(self, scenario, status=0, **options):
        command = [sys.executable, "-B", PROGRAM, harness.programs / "libprocess_python.so", scenario]
        done = self.run_both(command, **options)
        self.assertEqual(done.status, status, done.stderr)
        return done

    def check_family(self, scenario, children, **options):
        """The parent's own output folder, and one for each child's windows."""
        done = self.check(scenario, **options)
        found = sorted((output.kernels() for output in done.outputs), key=str)
        self.assertEqual(found, sorted(children, key=str))
        for output in done.outputs:
            self.assert_complete(output, output.kernels())
        self.assertEqual(done.problems(), [])


class Subprocesses(PythonCase):
    def test_every_way(self):
        self.check_family("processes", [PARENT])


class Workers(PythonCase):
    """Workers of a data loader, which don't use CUDA."""

    def test_by_fork(self):
        self.check_family("workers_without_cuda:fork", [PARENT])

    def test_by_spawn(self):
        self.check_family("workers_without_cuda:spawn", [PARENT])

    def test_by_a_fork_server(self):
        self.check_family("workers_without_cuda:forkserver", [PARENT])

    def test_forked_ones_that_try_cuda(self):
        done = self.check("forked_workers_try_cuda")
        self.assertEqual(done.stdout, f"fork {['CUDA error 3'] * 4}\n")
        self.assert_complete(done.output, PARENT)

    @harness.unsanitized(harness.LOCKED_IN_CHILDREN, alone="thread")
    def test_forked_again_and_again_while_a_thread_launches(self):
        done = self.check("loader_threads_and_forks")
        kernels = done.output.kernels()
        self.assertGreater(kernels.pop("steady"), 0)
        self.assertEqual(kernels, PARENT)
        self.assertEqual(done.output.lost(), {})


class WorkersWithCuda(PythonCase):
    """Forked workers exit by os._exit, without exit handlers: they have called inject_flush."""

    def test_by_spawn(self):
        self.check_family("workers_with_cuda:spawn", [PARENT, {"child": 3}, {"child": 4}])

    def test_by_a_fork_server(self):
        self.check_family("workers_with_cuda:forkserver", [PARENT, {"child": 3}, {"child": 4}])

    def test_by_fork_where_the_parent_does_not_use_cuda(self):
        self.check_family("cuda_in_workers_alone:fork", [{"child": 3}, {"child": 4}])

    def test_by_spawn_where_the_parent_does_not_use_cuda(self):
        self.check_family("cuda_in_workers_alone:spawn", [{"child": 3}, {"child": 4}])


class Ends(PythonCase):
    def test_an_uncaught_exception(self):
        done = self.check("exception", 1)
        self.assertIn("nobody catches this", done.stderr)
        self.assert_complete(done.output, {"cut": 7})

    def test_sys_exit(self):
        done = self.check("system_exit", 5)
        self.assert_complete(done.output, {"cut": 7})

    def test_a_caught_interrupt(self):
        done = self.check("interrupt_caught")
        self.assert_complete(done.output, {"before": 20, "after": 20})

    def test_an_interrupt_after_the_window(self):
        done = self.check("interrupted:closed", -signal.SIGINT)
        self.assertIn("\n  tables: ", done.stderr)
        self.assert_complete(done.output, PARENT)

    def test_an_interrupt_in_a_window(self):
        done = self.check("interrupted:open", -signal.SIGINT)
        self.assertIn("KeyboardInterrupt", done.stderr)
        self.assertIn("\n  tables: ", done.stderr)
        self.assert_complete(done.output, {**PARENT, "cut": 7})


if __name__ == "__main__":
    harness.main()
