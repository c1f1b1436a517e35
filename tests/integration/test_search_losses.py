#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Missing input of the iteration search: names that can't be requested at first, calls that find no room.

usage: test_search_losses.py LIBRARY PROGRAMS SIMULATION
"""

import simulated

STEP = "kernel:first:1 kernel:middle:2 kernel:adam_step:1 sleep:5"


class Names(simulated.SimulatedTest):
    def test_an_error_while_the_kernels_are_new(self):
        """No name is requested while the program has a pending error to query; all are requested once it has queried it."""
        text = f"sync bad_copy loop:3 [ {STEP} ] last_error loop:37 [ {STEP} ] sync"
        done = self.script(text, WINDOW="iter:25+3")
        found = done.out.run["iterations"]
        self.assertEqual((found["recognised_by"], found["begins_with"], found["anchor"]), ("optimizer", "first()", "adam_step()"))
        self.assertEqual(done.out.kernels(), {"first": 3, "middle": 6, "adam_step": 3})
        self.check_unharmed(done, text)

    def test_an_error_that_is_never_asked_for(self):
        """Iterations are found by repetition."""
        text = f"sync bad_copy loop:30 [ {STEP} ] looks:2 loop:3 [ {STEP} ] looks:2 loop:27 [ {STEP} ] last_error sync"
        done = self.script(text, WINDOW="iter:40+3")
        found = done.out.run["iterations"]
        self.assertEqual(found["recognised_by"], "repetition")
        self.assertEqual(sum(done.out.kernels().values()), 12)
        self.check_unharmed(done, text)


class Signs(simulated.SimulatedTest):
    """INJECT_RING=64K has room for 1,020 signs between two passes of our own thread, which is kept in a flush meanwhile: a window of the
    program's own has a kernel that `free` ends."""

    def test_signs_that_find_no_room(self):
        burst = ("open kernel:held:1:1 close until_calls:cuptiActivityFlushAll:1 kernel:tuned:30000 kernel:free:1 sync looks:2")
        done = self.script(f"kernel:tuned:1:1 sync loop:20 [ {STEP} ] {burst} loop:40 [ {STEP} ] sync", WINDOW="iter:40+3", RING="64K",
                           SUMMARY="stderr", LOG="off", faults="wait_for=held/free")
        lost = done.out.lost()["iteration_signs"]
        self.assertGreater(lost, 0)
        self.assertLess(lost, 30_200)
        self.assertEqual(done.out.run["iterations"]["certainty"], "low")
        self.assertIn(f"incomplete: {lost} calls missed by the iteration search", done.stderr)

    def test_room_for_all(self):
        done = self.script(f"sync loop:40 [ {STEP} ] sync", WINDOW="iter:25+3", SUMMARY="stderr", LOG="off")
        self.assertEqual((done.out.lost(), done.out.run["iterations"]["certainty"]), ({}, "medium"))
        self.assertNotIn("incomplete", done.stderr)


if __name__ == "__main__":
    simulated.main()
