# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Small versions of the studies, on the simulated CUDA: tables without blanks, texts without missing values, and runs that are not
repeated."""

import csv
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import folders

sys.path.insert(0, str(folders.ROOT / "studies"))
from study import Spread, ratio

SCRIPT = folders.BUILD / "tests" / "integration" / "script" / "script_cuda"
# A step like a network's: a batch copy, convolutions by two algorithms, a product, pooling, an optimizer.
STEP = ("copy:h2d:{BATCH}00000 kernel:implicit_convolve_sgemm:2 kernel:maxwell_winograd_fprop:1 kernel:{MODEL}:1 loop:200 [ sgemm ] kernel:max_pool_backward_nchw:1 "
        "all_reduce kernel:multi_tensor_apply_kernel:1 sync sleep:3")


class Studies(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def study(self, name, step, *arguments):
        out = self.folder / "results"
        env = {**os.environ, "LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "INJECT_LIBRARY": str(folders.BUILD / "libinject.so")}
        done = subprocess.run([sys.executable, folders.ROOT / "studies" / name / "run.py", "--out", out, "--program", f"{SCRIPT} loop:120 [ {step} ]", *arguments],
                              env=env, capture_output=True, text=True, check=False, timeout=250)
        return done, out

    def table(self, out, name):
        with open(out / f"{name}.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_convnets(self):
        arguments = ("--rounds", "2", "--gpus", "2", "--values", "BATCH=4,8", "--values", "MODEL=relu")
        done, out = self.study("convnets", STEP, *arguments)
        self.assertEqual((done.returncode, done.stderr.count("study:")), (0, 0), done.stdout + done.stderr)
        for name in ("speed", "kernels", "host", "scaling"):
            rows = self.table(out, name)
            self.assertEqual([(row["Batch"], row["Model"]) for row in rows], [("4", "relu"), ("8", "relu")], name)
            self.assertNotIn("", [cell for row in rows for cell in row.values()], name)
            self.assertIn("| " + " | ".join(rows[0].values()) + " |", (out / "README.md").read_text())
        kernels = self.table(out, "kernels")[0]
        self.assertEqual(kernels["Convolutions by algorithm"], "implicit GEMM 67 %, Winograd 33 %")
        self.assertEqual(self.table(out, "host")[0]["Copy to the GPU (MB)"], "0.40")
        text = (out / "README.md").read_text()
        self.assertRegex(text, r"Of the convolutions' time at most: 33 % Winograd \(relu at batch [48]\) \(\*Kernels\*\)\.\n")
        self.assertRegex(text, r"Throughput grows with the batch: relu \d+\.\d times \(batch 4 to 8\) \(\*Speed\*\)\.\n")
        runs = sorted(out.glob("*/round*/*/*/run.json"))
        self.assertEqual(len(runs), 8)
        self.assertNotRegex((out / "README.md").read_text(), r"\{\w+\}")
        before = [path.stat().st_mtime_ns for path in runs]
        done, out = self.study("convnets", STEP, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([path.stat().st_mtime_ns for path in sorted(out.glob("*/round*/*/*/run.json"))], before)

    def test_deepspeech2(self):
        step = "copy:h2d:{BATCH}000 kernel:{PREC}:1 rnn:forward loop:20 [ sgemm ] kernel:multi_tensor_apply_kernel:1 sync sleep:3 units:3"
        done, out = self.study("deepspeech2", step, "--rounds", "1", "--values", "BATCH=4,8", "--values", "PREC=bf16")
        self.assertEqual((done.returncode, done.stderr.count("study:")), (0, 0), done.stdout + done.stderr)
        for name in ("speed", "kernels"):
            rows = self.table(out, name)
            self.assertEqual([(row["Batch"], row["Prec"]) for row in rows], [("4", "bf16"), ("8", "bf16")], name)
        self.assertEqual(rows[0]["Kernels a step"], "23")
        self.assertIn("cudnnRNNForward", rows[0]["Host time in library calls"])
        self.assertEqual({row["Batch"] for row in self.table(out, "longest")}, {"8"})
        self.assertRegex((out / "README.md").read_text(), r"Throughput grows with the batch: bf16 \d+\.\d times \(batch 4 to 8\) \(\*Speed\*\)\.\n")

    def test_gemm_rnn(self):
        step = "start kernel:{KIND}:1 rnn:forward loop:20 [ sgemm ] sync stop"
        done, out = self.study("gemm_rnn", step, "--rounds", "2", "--values", "KIND=bf16-NT,LSTM-fp16")
        self.assertEqual((done.returncode, done.stderr.count("study:")), (0, 0), done.stdout + done.stderr)
        (rates,), (rule,), (layers,) = (self.table(out, name) for name in ("rates", "rule", "layers"))
        self.assertEqual([rates[column] for column in ("Type", "Op", "M", "K")], ["bf16", "NT", "64", "64"])
        self.assertGreater(float(rates["N = 64"].split()[0]), 0)
        self.assertEqual((rule["M = K"], rule["N"]), ("64", "64"))
        self.assertEqual((layers["Cell"], layers["State"], layers["Layers"]), ("LSTM", "512", "2"))
        self.assertNotIn("", [cell for row in (rates, rule, layers) for cell in row.values()])

    def test_findings_of_gemm_rnn(self):
        spec = importlib.util.spec_from_file_location("gemm_rnn", folders.ROOT / "studies" / "gemm_rnn" / "run.py")
        gemm_rnn = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(gemm_rnn)
        rates = {("bf16", "NT"): {(8, 32, 8): 10.0, (8, 33, 8): 4.0, (32, 32, 8): 15.0, (32, 33, 8): 3.0}, ("fp32", "TN"): {(8, 32, 8): 5.0},
                 ("tf32", "TN"): {(8, 32, 8): 20.0}}
        self.assertIn("is 1.12 (0.75 … 1.50) times as fast as four products of one gate: faster in 1 of 2 cases", gemm_rnn.of_gates(rates))
        self.assertIn("NT 0.30 (0.20 … 0.40) times (`Eligible` says `misaligned` for 2 of 2)", gemm_rnn.of_alignment(rates, {("bf16", "NT"): 2}))
        self.assertIn("tf32 is 4.00 times as fast as fp32 (8 × 32 × 8)", gemm_rnn.of_types(rates))
        self.assertEqual((gemm_rnn.of_gates({}), gemm_rnn.of_alignment({}, {}), gemm_rnn.of_types({})), ("", "", ""))

    def test_training(self):
        step = "copy:h2d:4000 kernel:{WORKLOAD}:1 kernel:of_{SIZE}:1 loop:60 [ sgemm ] kernel:multi_tensor_apply_kernel:1 sync sleep:3 units:5"
        done, out = self.study("training", step, "--rounds", "1", "--values", "WORKLOAD=gan,speech", "--values", "SIZE=small,large")
        self.assertEqual((done.returncode, done.stderr.count("study:")), (0, 0), done.stdout + done.stderr)
        rows = self.table(out, "speed")
        self.assertEqual([(row["Workload"], row["Unit"]) for row in rows[::2]], [("gan", "images"), ("speech", "sounds")])
        text = (out / "README.md").read_text()
        self.assertRegex(text, r"- Bound by, at each size: small: \d .*; large: \d ")
        self.assertIn("- With the larger batch, throughput is ", text)
        self.assertTrue(all(row["Bound by"] for row in rows), rows)
        self.assertEqual({row["Workload"] for row in self.table(out, "unused")}, {"gan", "speech"})
        self.assertEqual({row["Parameters (MB)"] for row in self.table(out, "memory")}, {"–"})

    def test_exercises(self):
        # The wrong version waits for the host, the corrected one less; the gain promised for waiting for input is larger than the actual
        # one.
        step = "copy:h2d:4000 kernel:{EXERCISE}:1 kernel:of_{VERSION}:1 sync sleep:4 units:7"
        done, out = self.study("exercises", step, "--rounds", "2", "--values", "EXERCISE=loading,bucketing")
        self.assertEqual((done.returncode, done.stderr.count("study:")), (0, 0), done.stdout + done.stderr)
        loading, bucketing = self.table(out, "exercises")
        self.assertEqual((loading["Exercise"], loading["Version"], loading["Verdict"], bucketing["Exercise"]), ("loading", "wrong", "input-bound", "bucketing"))
        self.assertGreater(float(loading["Promised at most (%)"].split()[0]), 50)
        self.assertEqual(bucketing["Promised at most (%)"], "–")
        self.assertIn("by more than a point: none.", (out / "README.md").read_text())

    def test_what_is_missing_is_told(self):
        few = ("--rounds", "1", "--gpus", "1", "--values", "MODEL=relu", "--values", "BATCH=4")
        done, out = self.study("convnets", "copy:h2d:{BATCH}000 kernel:{MODEL}:3 sync sleep:3", *few)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("study: table kernels, 4 relu: nothing in Convolutions by algorithm", done.stderr)
        self.assertIn("(not run)", (out / "README.md").read_text())

    def test_a_run_that_fails_is_told(self):
        done, out = self.study("convnets", "copy:h2d:{BATCH}00 kernel:{MODEL}:3 exit:3", "--rounds", "1", "--gpus", "1", "--values", "MODEL=relu", "--values", "BATCH=4")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"study: .*round1, BATCH=4 MODEL=relu: failed")
        self.assertEqual([row["Runs"] for row in self.table(out, "speed")], ["failed"])

    def test_a_study_that_cannot_be_swept(self):
        done, _ = self.study("convnets", "kernel:{MODEL}:3", "--gpus", "1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("one_gpu: inject sweep refused its options", done.stderr)


def python_with_torch():
    """Debian's python3-torch is for Debian's Python."""
    return next((python for python in (sys.executable, "/usr/bin/python3") if subprocess.run(
        [python, "-c", "import torch"], capture_output=True, check=False).returncode == 0), None)


class Programs(unittest.TestCase):
    def run_there(self, name, code):
        """Its output, with PyTorch, in the study's folder."""
        python = python_with_torch()
        if python is None:
            self.skipTest("no PyTorch for any Python here (python3-torch)")
        done = subprocess.run([python, "-c", code], cwd=folders.ROOT / "studies" / name, capture_output=True, text=True, check=False, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_deepspeech2_trains(self):
        code = ("import math, train\n"
                "print(all(math.isfinite(loss.item()) for loss in train.losses(2, 'bf16', 2, hidden=8, layers=1, scale=0.05)))")
        self.assertEqual(self.run_there("deepspeech2", code), "True\n")

    def test_gemm_rnn_computes(self):
        code = ("import program, torch\n"
                "for layout in ('NN', 'NT', 'TN'):\n"
                "    for m, n, k, result in program.products('bf16', layout, states=(32,)):\n"
                "        assert result.shape == (n, m) and torch.isfinite(result).all(), (layout, m, n, k)\n"
                "print(sum(torch.isfinite(found).all().item() for found in program.layers('GRU', 'fp16', states=(16,), steps=3)))")
        self.assertEqual(self.run_there("gemm_rnn", code), "10\n")

    def test_workloads_train(self):
        code = ("import importlib.util, math, train\n"
                "vision = importlib.util.find_spec('torchvision') is not None\n"
                "names = [name for name in train.WORKLOADS if vision or name not in ('image_classification', 'object_detection')]\n"
                "for name in names:\n"
                "    assert all(math.isfinite(loss.item()) for loss in train.losses(name, 'small', 2, scale=8)), name\n"
                "print(len(names), vision)")
        self.assertIn(self.run_there("training", code), ("7 True\n", "5 False\n"))

    def test_units_are_of_the_workloads(self):
        code = ("import sys, train\n"
                "sys.path.insert(0, '..')\n"
                "import run\n"
                "print({name: unit for name, (_, unit, _) in train.WORKLOADS.items()} == run.UNITS)")
        self.assertEqual(self.run_there("training", code), "True\n")

    def test_exercises_train(self):
        code = ("import math, train\n"
                "for name in train.EXERCISES:\n"
                "    for version in ('wrong', 'mended'):\n"
                "        assert all(math.isfinite(loss.item()) for loss in train.steps(name, version, 2)), (name, version)\n"
                "print(len(train.EXERCISES))")
        self.assertEqual(self.run_there("exercises", code), "9\n")


class Arithmetic(unittest.TestCase):
    def test_spread(self):
        self.assertEqual(Spread((3.0, 1.0, 2.0)).text(), "2.0 (1.0 … 3.0)")
        self.assertEqual(Spread((1.01, 1.02)).text(), "1.0")
        self.assertEqual(Spread(()).text(), "")
        self.assertEqual(ratio(Spread((2.0, 6.0)), Spread((1.0, 2.0)), 10).values, (20.0, 30.0))
        self.assertEqual(ratio(Spread((2.0, 6.0)), Spread((1.0,))).values, ())


if __name__ == "__main__":
    unittest.main()
