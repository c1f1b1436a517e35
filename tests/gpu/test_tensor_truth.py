#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of tensor_truth.py's own part: which counters, parsing of ncu's table, contradictions. No GPU."""

import sys
import unittest

import tensor_truth

QUERY = """
Device NVIDIA H200 (GH100)
-------------------------------------------------- --------------- ---------------------------------
Metric Name                                        Metric Type     Metric Description
-------------------------------------------------- --------------- ---------------------------------
sm__cycles_active                                  Counter         # of cycles with at least one warp
sm__inst_executed                                  Counter         # of warp instructions executed
sm__inst_executed_pipe_fp64_op_dmma                Counter         …
sm__inst_executed_pipe_tensor_op_gmma              Counter         …
sm__inst_executed_pipe_tensor_op_hmma              Counter         …
sm__inst_executed_pipe_tensor_op_hmma_type_sparsity_on Counter     …
sm__inst_executed_pipe_alu                         Counter         …
sm__pipe_tensor_cycles_active                      Counter         …
sm__pipe_tensor_op_hmma_cycles_active              Counter         …
smsp__inst_executed_pipe_tensor_op_hmma            Counter         …
"""

RAW = """==PROF== Connected to process 7 (/usr/bin/python3)
"ID","Process ID","Process Name","Kernel Name","Context","Stream","sm__inst_executed_pipe_tensor_op_hmma.sum","sm__pipe_tensor_cycles_active.sum"
"","","","","","","inst","cycle"
"0","7","python3","nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TNT","1","7","1,024","2,048"
"1","7","python3","_Z4reluPf","1","7","0","0"
"2","7","python3","nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TNT","1","7","512.00","0"
==PROF== Disconnected
"""
METRICS = ["sm__inst_executed_pipe_tensor_op_hmma", "sm__pipe_tensor_cycles_active"]


class Metrics(unittest.TestCase):
    def test_by_operation(self):
        self.assertEqual(tensor_truth.tensor_metrics(QUERY),
                         ["sm__inst_executed_pipe_fp64_op_dmma", "sm__inst_executed_pipe_tensor_op_gmma",
                          "sm__inst_executed_pipe_tensor_op_hmma"])

    def test_the_instructions_rather_than_the_pipe(self):
        pipe = "sm__inst_executed_pipe_tensor  Counter  …\n"
        self.assertEqual(tensor_truth.tensor_metrics(pipe + "sm__inst_executed_pipe_tensor_op_hmma  Counter  …\n"),
                         ["sm__inst_executed_pipe_tensor_op_hmma"])
        self.assertEqual(tensor_truth.tensor_metrics(pipe), ["sm__inst_executed_pipe_tensor"])

    def test_cycles_alone(self):
        self.assertEqual(tensor_truth.tensor_metrics("sm__pipe_tensor_subpipe_hmma_cycles_active Counter …\n"),
                         ["sm__pipe_tensor_subpipe_hmma_cycles_active"])
        self.assertEqual(tensor_truth.tensor_metrics("sm__cycles_active Counter …\n"), [])


class Table(unittest.TestCase):
    def test_sums(self):
        kernels = tensor_truth.parse_raw(RAW, METRICS)
        self.assertEqual(dict(kernels), {"nvjet_sm90_hsh_128x64_64x8_1x2_h_bz_TNT": [2, 3584.0], "_Z4reluPf": [1, 0.0]})

    def test_a_missing_counter_is_no_zero(self):
        with self.assertRaises(ValueError):
            tensor_truth.parse_raw(RAW, ["sm__inst_executed_pipe_tensor"])
        with self.assertRaises(ValueError):
            tensor_truth.parse_raw(RAW.replace('"512.00"', '"n/a"'), METRICS)

    def test_nothing(self):
        self.assertEqual(len(tensor_truth.parse_raw("==ERROR== The profiler could not start", METRICS)), 0)

    def test_why_not(self):
        self.assertIn("permission", tensor_truth.why_not("==ERROR== ERR_NVGPUCTRPERM - The user does not …"))
        self.assertEqual(tensor_truth.why_not("a\n==ERROR== Unknown device"), "Unknown device")
        self.assertIsNone(tensor_truth.why_not(RAW))


class Names(unittest.TestCase):
    def test_contradictions(self):
        kernels = {"a": [1, 5.0], "b": [1, 0.0], "c": [1, 0.0], "d": [1, 9.0], "e": [1, 9.0]}
        known = {"a": "yes", "b": "yes", "c": "no", "d": "no", "e": "unknown"}
        self.assertEqual(tensor_truth.contradictions(kernels, known), [("b", "yes", "no"), ("d", "no", "yes")])

    def test_known_names(self):
        known = tensor_truth.known_names()
        self.assertGreater(len(known), 200)
        self.assertEqual(known["gemm_fusion_dot"], "unknown")

    def test_skips(self):
        with self.assertRaises(tensor_truth.Skip):
            options = type("Options", (), {"ncu": sys.executable, "out": "."})
            # A Python interpreter in place of Nsight Compute: missing PyTorch or a missing GPU is found first.
            tensor_truth.collect(options)

    def test_limit(self):
        status, output = tensor_truth.run_limited([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], 1)
        self.assertIsNone(status)
        self.assertEqual(output, "1\n")


if __name__ == "__main__":
    unittest.main()
