#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Child processes of a profiled program: they behave as without the library, the program's own records are complete, and only a process
that uses CUDA itself has an output folder."""

import signal

import harness

NO_THREADS_IN_CHILDREN = ("a forked child starts a thread, which gets the id of one of its parent's: its run-time library has that one "
                          "still on its list, and ends the child")


class Forks(harness.Case):
    """CUDA does not work in the child of a process that has initialised it, and neither does libinject."""

    CHILD = "{0}: malloc 3, synchronize 3, start 3, stop 3\n"
    TRIED = "{0}: open 0, start -1, stop -1, flush -1\n"

    def check(self, scenario, printed, kernels=None, notes="", **options):
        done = self.run_both(harness.victim("forks", scenario), **options)
        self.assertEqual((done.status, done.stdout), (0, printed), done.stderr)
        self.assert_complete(done.output, kernels or {"quick": 200})
        self.assertEqual(done.problems(), [])
        self.assertEqual(done.notes, notes)
        # Its children have not printed or written anything that should come from the parent.
        self.assertEqual(done.stderr.count("\n  tables: "), 1)
        return done

    def family(self, status):
        who = ("child", "child's thread", "grandchild")
        printed = "".join([self.CHILD.format(who[0]), self.CHILD.format(who[1]), "child has 1 thread(s)\n",
                           self.CHILD.format(who[2]), "grandchild: 6\n", f"child: {status}\n"])
        return printed, "".join(map(self.TRIED.format, who))

    @harness.unsanitized(NO_THREADS_IN_CHILDREN, alone="thread")
    def test_a_child_that_calls_exit(self):
        printed, tried = self.family(3)
        self.check("fork_and_exit", printed, notes=tried)

    @harness.unsanitized(NO_THREADS_IN_CHILDREN, alone="thread")
    def test_a_child_that_calls_underscore_exit(self):
        printed, tried = self.family(4)
        self.check("fork_and_underscore_exit", printed, notes=tried)

    def test_a_child_that_aborts(self):
        self.check("fork_and_abort", f"child: {-signal.SIGABRT}\n")

    def test_a_child_that_outlives_its_parent(self):
        self.check("fork_and_outlive", self.CHILD.format("orphan"), notes=self.TRIED.format("orphan"))

    @harness.unsanitized(harness.LOCKED_IN_CHILDREN, alone="thread")
    def test_while_another_thread_opens_a_window(self):
        self.check("fork_while_opening", self.CHILD.format("child") + "child: 5\n", {"quick": 100},
                   notes=self.TRIED.format("child"))

    @harness.unsanitized(harness.LOCKED_IN_CHILDREN, alone="thread")
    def test_while_threads_launch(self):
        self.check("fork_while_threads_launch", "children: 80\n", {"steady": 8000, "quick": 100})

    @harness.unsanitized(harness.LOCKED_IN_CHILDREN, alone="thread")
    def test_while_windows_come_and_go(self):
        # It waits once for the files, which are written once a second.
        done = self.check("fork_while_windows_come_and_go", "statuses: 0\n", {"quick": 300},
                          most_added=1 + harness.MOST_ADDED_SECONDS)
        self.assertEqual(len(done.output.windows()), 30)


class OtherPrograms(harness.Case):
    def check(self, scenario, printed):
        done = self.run_both(harness.victim("forks", scenario))
        self.assertEqual((done.status, done.stdout), (0, printed), done.stderr)
        self.assertEqual(done.problems(), [])
        return done

    def test_vfork_and_an_exec_that_fails(self):
        done = self.check("vfork_with_failing_exec", "failed: 40\n")
        self.assert_complete(done.output, {"quick": 200})

    def test_a_vfork_child_does_not_close_its_parents_window(self):
        done = self.check("vfork_with_hooked_calls", "child: 1\nstill open: 1\n")
        self.assert_complete(done.output, {"quick": 200})

    def test_programs_without_cuda(self):
        done = self.check("spawn_in_a_window", "another program\necho: 0\nno program: 2\nsystem: 7\npopen: piped\n0\n")
        self.assert_complete(done.output, {"quick": 200})

    def test_programs_with_windows_of_their_own(self):
        done = self.check("spawn_cuda_in_a_window", "spawned: 0\nexecuted: 0\n")
        self.assertEqual(len(done.outputs), 3)
        for output in done.outputs:
            self.assert_complete(output, {"quick": 200} if "quick" in output.kernels() else {"other": 7})
        self.assertEqual(sorted(sum(output.kernels().values()) for output in done.outputs), [7, 7, 200])

    def test_another_program_in_the_same_process(self):
        done = self.check("exec_cuda_in_a_window", "")
        first, second = done.outputs
        self.assertEqual((first.state, first.windows()), ("open", ["open"]))
        # The same process id, so the same name: the first one's folder is left alone.
        self.assertEqual(second.path.name, first.path.name + ".1")
        self.assert_complete(second, {"other": 7})


class CudaAfterTheFork(harness.Case):
    def test_in_children_only(self):
        done = self.run_both(harness.victim("forks", "cuda_in_children_only"))
        self.assertEqual((done.status, done.stdout), (0, "child: 0\n" * 4))
        self.assertEqual(len(done.outputs), 4)
        for output in done.outputs:
            self.assert_complete(output, {"other": 7})
            self.assertEqual(output.path.name, f"out-{output.run['pid']}")

    def test_in_parent_and_child(self):
        done = self.run_both(harness.victim("forks", "cuda_in_parent_and_child"))
        self.assertEqual((done.status, done.stdout), (0, "child: 0\n"))
        self.assertEqual(len(done.outputs), 2)
        for output in done.outputs:
            self.assert_complete(output, {"quick": 200} if "quick" in output.kernels() else {"other": 7})


if __name__ == "__main__":
    harness.main()
