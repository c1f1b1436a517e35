#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The purposes of PyTorch's memory, and the report of a failed allocation: a real PyTorch (Debian's python3-torch) whose GPU allocator is
simulated by torch_memory.py.

usage: test_torch_memory.py LIBRARY PROGRAMS SIMULATION
"""

import json
import pathlib
import re
import unittest

import simulated
from test_torch_steps import PYTHON

HERE = pathlib.Path(__file__).resolve().parent
PURPOSES = ["parameters", "gradients", "optimizer state", "buffers", "other tensors", "workspaces", "communication buffers", "[no tensor]", "[rounding]", "[private pools]", "[cached]", "[outside of the allocator]", "[all]"]


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class Memory(simulated.SimulatedTest):
    def train(self, pattern, **options):
        # On a busy machine iterations are found late, and so the window comes late.
        done = self.script("", command=[PYTHON, str(HERE / "torch_memory.py"), str(simulated.programs / "script_training.so"), pattern, "400"], timeout=120,
                           **{"WINDOW": "iter:30+4", "LOG": "debug", **options})
        self.assertEqual(done.code, 0, done.stderr)
        return done.out, json.loads(done.stdout.splitlines()[-1])

    def rows(self, out):
        rows = out.rows("memory_purpose.csv")
        self.assertEqual([row["Purpose"] for row in rows], PURPOSES)
        return {row["Purpose"]: int(row["Memory (B)"]) for row in rows}, rows

    def test_purposes_are_their_tensors_bytes(self):
        out, truth = self.train("plain", PROM="p.prom")
        found, rows = self.rows(out)
        for purpose in PURPOSES[:4]:
            self.assertEqual(found[purpose], truth[purpose], purpose)
        self.assertEqual((found["[cached]"], found["[private pools]"]), (truth["cached"], truth["pools"]))
        for purpose in PURPOSES[5:8]:
            self.assertEqual(found[purpose], truth[purpose], purpose)
        told = dict(re.findall(r'libinject_memory_purpose_bytes{.*purpose="(.*?)"} (\d+)', (out.path.parent / "p.prom").read_text(encoding="utf-8")))
        self.assertEqual({purpose: int(size) for purpose, size in told.items()}, {purpose: found[purpose] for purpose in PURPOSES[:-1]})
        # The batch and the tensor that answers for itself; the gaps between the views, without the rounding; and temporary tensors.
        self.assertGreaterEqual(found["other tensors"], truth["other tensors"])
        self.assertEqual(found["[all]"], 20_000_000)
        self.assertEqual(sum(found[purpose] for purpose in PURPOSES[:-2]), truth["reserved"])
        self.assertEqual(sum(found[purpose] for purpose in PURPOSES[:-1]), found["[all]"])
        by_purpose = {row["Purpose"]: row for row in rows}
        self.assertEqual(by_purpose["parameters"]["Largest Tensor"], "Linear.weight (48, 48) torch.float32")
        self.assertEqual(by_purpose["parameters"]["Largest (B)"], str(48 * 48 * 4))
        total = by_purpose["[all]"]
        self.assertEqual((total["Total"], total["Peak Allocated (B)"], total["Peak Reserved (B)"]), ("yes", "1000000", "2000000"))
        self.assertEqual(int(total["Activations at Peak (B)"]), 1_000_000 - sum(found[purpose] for purpose in (*PURPOSES[:4], *PURPOSES[5:7])))
        reading = out.run["memory_reading"]
        self.assertEqual((reading["asked_at"], reading["error"], reading["unfinished"]), ("optimizer step", "", False))
        self.assertEqual(reading["tensors_not_placed"], 0)
        self.assertGreater(reading["objects"], 1000)

    def test_without_the_group_nothing_is_asked(self):
        for hooks in ("cudart,torch", "cudart,python"):
            with self.subTest(hooks):
                out, truth = self.train("plain", HOOKS=hooks)
                self.assertFalse((out.path / "memory_purpose.csv").exists())
                self.assertEqual(truth["observers"], 0)

    def test_what_fails_there_stays_there(self):
        out, truth = self.train("failing")
        self.assertFalse((out.path / "memory_purpose.csv").exists())
        self.assertIn("no snapshot today", out.run["memory_reading"]["error"])
        self.assertEqual((truth["caught"], truth["interrupts"]), (0, 0))

    def test_a_reading_that_takes_too_long(self):
        out, _ = self.train("slow")
        self.assertFalse((out.path / "memory_purpose.csv").exists())
        reading = out.run["memory_reading"]
        # The second is over before any object has been looked at.
        self.assertEqual((reading["unfinished"], reading["error"], reading["objects"]), (True, "", 0))

    def test_what_a_handler_raises_is_the_programs(self):
        out, truth = self.train("interrupted")
        self.assertEqual((truth["interrupts"], truth["caught"]), (1, 1))
        self.assertFalse((out.path / "memory_purpose.csv").exists())

    def test_other_threads_do_not_notice(self):
        out, truth = self.train("threads")
        self.assertEqual((truth["broken"], self.rows(out)[0]["parameters"]), (0, truth["parameters"]))

    def test_objects_that_the_collector_hides(self):
        out, _ = self.train("frozen_objects")
        self.assertFalse((out.path / "memory_purpose.csv").exists())
        self.assertIn("gc.freeze", out.run["memory_reading"]["error"])

    def test_under_a_mode(self):
        out, truth = self.train("mode")
        self.assertEqual((truth["caught"], self.rows(out)[0]["parameters"]), (0, truth["parameters"]))

    def test_collectives_that_are_not_recorded(self):
        out, truth = self.train("plain", HOOKS="cudart,cublas,torch,python")
        rows = {row["Purpose"]: row for row in out.rows("memory_purpose.csv")}
        self.assertEqual(rows["communication buffers"]["Memory (B)"], "")
        self.assertEqual(int(rows["[no tensor]"]["Memory (B)"]), truth["[no tensor]"] + truth["communication buffers"])
        self.assertEqual(rows["[all]"]["Activations at Peak (B)"], "")

    def test_an_allocator_without_observers(self):
        out, truth = self.train("refusing")
        self.assertEqual((truth["caught"], truth["observers"]), (0, 0))
        self.assertFalse((out.path / "oom.json").exists())

    def test_a_short_window_is_left_alone(self):
        """The code that watches is compiled on the main thread, which takes a few milliseconds: after the window."""
        out, truth = self.train("short_window", WINDOW="api")
        self.assertEqual((truth["observers"], truth["failures"]), (1, 1))
        # If the window lasts a second or more, it may happen in the window, whose length the program does not know exactly.
        self.assertTrue(truth["told_in_window"] == 0 or truth["window_seconds"] >= 0.5, truth)
        self.assertEqual(json.loads((out.path / "oom.json").read_text())["failures"], 1)

    def test_a_failure_whose_reading_fails(self):
        out, _ = self.train("failing_later")
        told = json.loads((out.path / "oom.json").read_text())
        self.assertEqual((told["failures"], told["requested"], told["stack"][0]["function"]), (2, 2000, "fail"))
        self.assertIn("no snapshot today", told["error"])
        self.assertNotIn("devices", told)

    def test_failures_on_a_thread_without_frames(self):
        out, _ = self.train("own_thread")
        told = json.loads((out.path / "oom.json").read_text())
        self.assertEqual((told["failures"], told["stack"]), (1, []))

    def test_many_failures(self):
        out, truth = self.train("many_failures")
        self.assertEqual(truth["failures"], 40)
        told = json.loads((out.path / "oom.json").read_text())
        self.assertGreaterEqual(told["failures"], 16)
        self.assertLess(told["failures"], 40)

    def test_a_folder_whose_name_is_no_text(self):
        out, _ = self.train("out_of_memory", OUT="out\udce9", LOG="warning", SUMMARY="off")
        self.assertEqual(json.loads((out.path / "oom.json").read_text())["failures"], 10)

    def test_allocations_that_fail(self):
        out, truth = self.train("out_of_memory")
        self.assertEqual((truth["failures"], truth["observers"]), (10, 1))
        told = json.loads((out.path / "oom.json").read_text())
        self.assertEqual((told["failures"], told["requested"], told["device"], told["free"]), (10, 10_000, 0, 100))
        self.assertEqual([frame["function"] for frame in told["stack"][:2]], ["fail", "<module>"])
        self.assertEqual(told["stack"][0]["file"], str(HERE / "torch_memory.py"))
        (device,) = told["devices"]
        self.assertEqual(device["bytes"][:4], [truth[purpose] for purpose in PURPOSES[:4]])
        self.assertEqual(device["bytes"][5:7], [None, None])
        self.assertEqual(device["bytes"][7], sum(truth[purpose] for purpose in PURPOSES[5:8]))
        self.assertIn((9216, "gradients", "Linear.weight (48, 48) torch.float32"),
                      [(holder["bytes"], holder["purpose"], holder["tensor"]) for holder in told["holders"]])
        self.assertEqual([path.name for path in out.path.iterdir() if path.name.endswith(".part")], [])


if __name__ == "__main__":
    simulated.main()
