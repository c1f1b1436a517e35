# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The arithmetic of utilization.py, of kernel_names.py and of programs/torch_study.py, without a GPU."""

import argparse
import csv
import importlib
import itertools
import json
import os
import sys
import tempfile
import unittest
from unittest import mock

import utilization as test  # first, because it adds the folder of gputest
import gputest
import kernel_names

DEVICE = {"compute_capability": "9.0", "multiprocessors": 132, "clock_khz": 1980000}
MILLISECOND = 1_000_000
WINDOW = 600 * MILLISECOND  # each begins a second after the previous one
INTERVAL = MILLISECOND // 2


def point(precision="bf16", batch=64, tensor=30.0, **more):
    """A correct configuration; `tensor` is the value on which samples and kernels agree."""
    means = {"SM Active (%)": 90.0, "FMA Pipe (%)": 5.0, "Tensor Pipe (%)": tensor, "Occupancy (%)": 40.0, "DRAM Read (%)": 20.0,
             "DRAM Write (%)": 10.0}
    return {"model": "resnet50", "precision": precision, "batch": batch, "unit": "images", "steps": 20, "step_ns": 30 * MILLISECOND,
            "rate": batch / 0.03, "window": 1, "window_ns": WINDOW, "samples": 1200, **means, "FP32 Utilization (%)": 5.0,
            "Tensor Utilization (%)": tensor, "GPU Utilization (%)": 95.0, "Kernel Concurrency": 1.0, "DRAM (%)": 30.0,
            "of_samples": dict(means), **more}


class Reading(unittest.TestCase):
    def test_lines(self):
        lines = ['{"torch": "2.11", "device": "H200"}', "a warning", '{"precision": "fp32", "batch": 1}']
        self.assertEqual(test.told_lines("\n".join(lines)), ({"torch": "2.11", "device": "H200"}, [{"precision": "fp32", "batch": 1}]))
        self.assertEqual(test.told_lines(""), ({}, []))

    def sample(self, start, end, active, occupancy, device="0"):
        return {"Device": device, "Start (ns)": str(start), "End (ns)": str(end), "SM Active (%)": active, "Occupancy (%)": occupancy}

    def test_means(self):
        samples = [self.sample(0, 10, "100", "60"), self.sample(10, 40, "20", "20"), self.sample(40, 50, "", ""), self.sample(50, 60, "0", "")]
        self.assertEqual(test.mean_of(samples, "SM Active (%)"), (10 * 100 + 30 * 20) / 50)
        # Relative to the cycles in which the SMs were active.
        self.assertEqual(test.mean_of(samples, "Occupancy (%)"), (10 * 100 * 60 + 30 * 20 * 20) / (10 * 100 + 30 * 20))
        self.assertIsNone(test.mean_of(samples, "Tensor Pipe (%)"))

    def test_point(self):
        rows = {2: {"Device": "0", "Start (ns)": "100", "Duration (ns)": "50", "DRAM Read (%)": "3", "DRAM Write (%)": "4.5",
                    "Tensor Pipe (%)": ""}}
        samples = [self.sample(at, at + 10, "50", "5", device) for at in range(90, 170, 10) for device in "01"]
        found = test.point_of({"window": 2}, rows, samples)
        self.assertEqual((found["samples"], found["window_ns"], found["DRAM (%)"]), (5, 50, 7.5))
        self.assertIsNone(found["Tensor Pipe (%)"])
        self.assertEqual(found["of_samples"]["SM Active (%)"], 50)
        self.assertEqual(test.point_of({"window": 3}, rows, samples), {"window": 3, "samples": 0})


class Judging(unittest.TestCase):
    ABOUT = {"interval_ns": INTERVAL, "columns": [{"title": title} for title in test.MEANS]}

    def test_samples(self):
        self.assertEqual(test.judge_samples([point()], self.ABOUT), [])
        without = {"precision": "fp32", "batch": 1, "window": 9, "samples": 0}
        for bad in (without, point(samples=590), point(**{"Occupancy (%)": None})):
            self.assertEqual(len(test.judge_samples([point(), bad], self.ABOUT)), 1, bad)
        # Metrics that the chip can't measure are not missing.
        fewer = {**self.ABOUT, "columns": [column for column in self.ABOUT["columns"] if column["title"] != "Occupancy (%)"]}
        self.assertEqual(test.judge_samples([point(**{"Occupancy (%)": None})], fewer), [])

    def test_means_of_samples(self):
        self.assertEqual(test.judge_means([point()]), [])
        self.assertEqual(len(test.judge_means([point(**{"SM Active (%)": 90.6, "FMA Pipe (%)": None, "DRAM Read (%)": 20.4})])), 2)

    def test_percentages(self):
        self.assertEqual(test.judge_percentages([point(**{"DRAM (%)": 100.4, "Occupancy (%)": None})]), [])
        bad = point(**{"DRAM (%)": 101.5, "Tensor Utilization (%)": 100.2, "SM Active (%)": -0.1})
        self.assertEqual(len(test.judge_percentages([point(), bad])), 3)

    def points(self, **changed):
        tensor = {"fp32 1": 0.0, "fp32 64": 0.1, "tf32 1": 3.0, "tf32 64": 20.0, "bf16 1": 2.0, "bf16 64": 30.0,
                  **{key.replace("_", " "): value for key, value in changed.items()}}
        return [point(key.split()[0], int(key.split()[1]), value) for key, value in tensor.items()]

    def test_precisions(self):
        self.assertEqual(test.judge_precisions(self.points()), (6, []))
        for changed in ({"fp32_1": 1.0}, {"tf32_1": 21.0}, {"bf16_64": 1.0}, {"tf32_64": 0.1, "tf32_1": 0.0}):
            self.assertEqual(len(test.judge_precisions(self.points(**changed))[1]), 1, changed)
        # The mean alone shows the use of tensor cores in fp32, too.
        used = self.points()
        used[0]["Tensor Pipe (%)"] = 4
        self.assertEqual(len(test.judge_precisions(used)[1]), 1)
        self.assertEqual(test.judge_precisions([point("bf16", 64)]), (0, []))

    def test_precisions_where_the_largest_batch_had_no_memory(self):
        points = [one for one in self.points(fp32_16=0.1, bf16_16=0.05) if (one["precision"], one["batch"]) != ("fp32", 64)]
        self.assertIn("batch 16", test.judge_precisions(points)[1][0])

    def test_the_mean_stands_for_a_sum_that_is_not_known(self):
        self.assertEqual(test.tensor_of(point(tensor=7.0, **{"Tensor Utilization (%)": None})), 7)
        self.assertEqual(test.tensor_of(point(tensor=7.0, **{"Tensor Utilization (%)": 0.0})), 0)

    def test_sums(self):
        self.assertEqual(test.judge_sums([point()]), (2, []))
        self.assertEqual(test.judge_sums([point(**{"Tensor Utilization (%)": 32.9, "FP32 Utilization (%)": None})]), (1, []))
        self.assertEqual(len(test.judge_sums([point(**{"Tensor Utilization (%)": 33.1})])[1]), 1)
        self.assertEqual(test.judge_sums([point(tensor=60.0, **{"Tensor Utilization (%)": 65.9})])[1], [])
        self.assertEqual(len(test.judge_sums([point(tensor=60.0, **{"Tensor Utilization (%)": 53.9})])[1]), 1)
        # Kernels that overlap are counted twice.
        self.assertEqual(test.judge_sums([point(**{"Tensor Utilization (%)": 60.0, "Kernel Concurrency": 1.3})]), (0, []))

    def test_work(self):
        # 20 steps of 64 images in 0.6 s: 52.4 TFLOP/s of 1070.6 (132 SMs, 4096 per cycle, 1.98 GHz).
        self.assertAlmostEqual(test.least_tensor(point(), DEVICE), 100 * 6 * 4.09e9 * 64 * 20 / 0.6 / (132 * 4096 * 1.98e9))
        self.assertAlmostEqual(test.least_tensor(point(), DEVICE), 4.89, places=2)
        self.assertEqual(test.judge_work([point(), point("fp32", tensor=0.0)], DEVICE), (2, []))
        self.assertEqual(test.judge_work([point(tensor=4.5)], DEVICE), (2, []))
        self.assertEqual(len(test.judge_work([point(tensor=4.4)], DEVICE)[1]), 2)
        self.assertEqual(test.judge_work([point()], {**DEVICE, "compute_capability": "12.0"}), (0, []))

    def test_kernels(self):
        def kernel(achieved, error="1", **more):
            return {"Name": "k", "Occupancy (%)": achieved, "± Occupancy (%)": error, "Theoretical Occupancy (%)": "50.0", **more}
        self.assertEqual(test.judge_kernels([kernel("54"), kernel(""), kernel("48", **{"FMA Pipe (%)": ""})]), (2, []))
        for bad in (kernel("54.1"), kernel("50", ""), kernel("-1"), kernel("5", **{"FMA Pipe (%)": "100.5", "± FMA Pipe (%)": "9"})):
            self.assertEqual(len(test.judge_kernels([bad])[1]), 1, bad)


class Names(unittest.TestCase):
    def test_what_says_which_it_is(self):
        native = "void at::native::"
        for name, short in (
                ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(float, cudnnTensorStruct)", "bn_bw_1C11_kernel_new"),
                ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sgemm_128x64_8x5_nn_align1::Params)",
                 "cutlass_80_simt_sgemm_128x64_8x5_nn_align1"),
                (native + "vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::"
                 "MulFunctor<float> >, std::array<char*, 3ul> >(int)", "vectorized_elementwise_kernel<MulFunctor>"),
                (native + "elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase"
                 "&)::{lambda()#3}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)", "elementwise_kernel<direct_copy_kernel_cuda>"),
                (native + "(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, "
                 "at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, at::native::Sqrt<float> >(int)",
                 "multi_tensor_apply_kernel<Sqrt>"),
                ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(int)", "gemvx::kernel"),
                ("sm90_xmma_wgrad_indexed_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32_warpgroupsize1x1x1_g1_execute"
                 "_split_k_kernel__5x_cudnn", "sm90_xmma_wgrad_indexed_f32f32_tf32f32_f32_nhw...nhwc_tilesize128x128x32"),
                ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT",) * 2, ("[other]",) * 2):
            self.assertEqual(kernel_names.short_name(name), short)

    def test_all_that_are_known(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "data", "kernels", "names.csv")
        with open(path, newline="", encoding="utf-8") as file:
            names = [row["Name"] for row in csv.DictReader(file)]
        self.assertGreater(len(names), 200)
        for name in names:
            short = kernel_names.short_name(name)
            self.assertTrue(2 < len(short) <= kernel_names.COLUMNS and not short.startswith("_Z"), (short, name))
            self.assertEqual(short.count("<"), short.count(">"), (short, name))
            self.assertFalse(set(short.replace(" Conv", "")) & set("(), &*"), (short, name))


class Markdown(unittest.TestCase):
    def test_study(self):
        failed = {"model": "m", "precision": "fp32", "batch": 64, "failed": "out of memory"}
        lines = test.study_table([point(**{"FP32 Utilization (%)": None}), failed]).splitlines()
        self.assertEqual(lines[0], "| precision | batch | step (ms) | images/s | SM Active (%) | FP32 Utilization (%) | FMA Pipe (%) "
                         "| Tensor Utilization (%) | Tensor Pipe (%) | Occupancy (%) | DRAM (%) | samples |")
        self.assertEqual(lines[2], "| bf16 | 64 | 30.00 | 2133 | 90.0 | - | 5.0 | 30.0 | 30.0 | 40.0 | 30.0 | 1200 |")
        self.assertIn("| fp32 | 64 | out of memory | - |", lines[3])
        self.assertEqual({line.count(" | ") for line in (lines[0], *lines[2:])}, {11})

    def kernel(self, time, **more):
        return {"Name": f"k{time}|", "GrdX": "8", "GrdY": "1", "GrdZ": "", "Instances": "3", "Total Time (ns)": str(time), **more}

    def test_kernels(self):
        values = {"Occupancy (%)": "40", "± Occupancy (%)": "2", "Theoretical Occupancy (%)": "50", "FMA Pipe (%)": "", "± FMA Pipe (%)": "",
                  "Tensor Pipe (%)": "60.04", "± Tensor Pipe (%)": "0.5", "DRAM Read (%)": "10", "± DRAM Read (%)": "1",
                  "DRAM Write (%)": "5", "± DRAM Write (%)": "0.5"}
        top = test.top_kernels([self.kernel(time, **(values if time == 12 else {})) for time in range(1, 13)])
        self.assertEqual([int(row["Total Time (ns)"]) for row, _ in top], list(range(12, 2, -1)))
        self.assertAlmostEqual(top[0][1], 100 * 12 / 78)
        text = test.markdown(test.KERNEL_HEADER, [test.kernel_cells(*one) for one in top]).splitlines()
        self.assertEqual(text[2], "| k12\\| | 8 x 1 x - | 15.4 | 3 | 40.0 ± 2.0 / 50.0 | - | 60.0 ± 0.5 | 15.0 ± 1.5 |")
        self.assertIn("| - / - | - | - | - |", text[3])
        self.assertEqual(test.top_kernels([]), [])


class Told:
    """Invented results of a program under the preload: its output and its folder."""

    rc, err, timed_out, seconds = 0, "", False, 1.0

    def __init__(self, lines, tables, lost=0):
        self.out = "\n".join(json.dumps(line) for line in lines)
        self.tables, self.lost_samples = tables, lost

    def why(self):
        return "made up"

    def rows(self, table):
        return self.tables.get(table, [])

    def run_json(self):
        return {"devices": [DEVICE], "metrics": {"interval_ns": INTERVAL, "samples": 10000, "lost": {"missing": self.lost_samples},
                                                 "columns": [{"title": title} for title in test.MEANS]}}

    def lost(self):
        return {"metric_samples": self.lost_samples} if self.lost_samples else {}


class Parts(unittest.TestCase):
    """From the program's output to the verdicts and the tables."""

    COLUMNS = {"SM Active (%)": 90, "FMA Pipe (%)": 5, "Occupancy (%)": 40, "DRAM Read (%)": 20, "DRAM Write (%)": 10}

    def told(self, name, given):
        """The program's output for the requested configurations, in the order of their windows."""
        precisions, batches = (given[given.index(f"--{option}") + 1].split(",") for option in ("precisions", "batches"))
        lines, windows, samples = [{"torch": "2.11", "device": "H200"}], [], []
        for number, (precision, batch) in enumerate(itertools.product(precisions, map(int, batches)), 1):
            line = {"model": given[0], "precision": precision, "batch": batch, "window": number, "steps": 20,
                    "step_ns": 30 * MILLISECOND, "unit": "images", "rate": 1.0}
            if (precision, batch) in self.failures:
                lines.append({"model": given[0], "precision": precision, "batch": batch, "failed": self.failures[precision, batch]})
                continue
            lines.append(line)
            tensor = {"fp32": self.fp32, "tf32": 20, "bf16": 30, "default": 10}[precision] * (1 if batch > 1 else 0.5)
            sampled = {**self.COLUMNS, "Tensor Pipe (%)": tensor}
            sums = {"FP32 Utilization (%)": 5, "Tensor Utilization (%)": tensor + self.sum_off}
            windows.append({"Window": str(number), "Device": "0", "Start (ns)": str(number * 10 ** 9), "Duration (ns)": str(WINDOW),
                            "GPU Busy (ns)": "5", "Kernel Concurrency": "1.000", "GPU Utilization (%)": "95.0",
                            **{key: f"{value:.2f}" for key, value in {**sampled, **sums}.items()}})
            samples += [{"Device": "0", "Start (ns)": str(number * 10 ** 9 + at), "End (ns)": str(number * 10 ** 9 + at + INTERVAL),
                         **{key: f"{value:.3f}" for key, value in sampled.items()}} for at in range(0, WINDOW, INTERVAL)]
        kernels = [{"Name": "k", "GrdX": "8", "GrdY": "1", "GrdZ": "1", "Total Time (ns)": "100", "Instances": "3",
                    "Theoretical Occupancy (%)": self.theoretical,
                    **{key: str(value) for key, value in {**self.COLUMNS, "Tensor Pipe (%)": 30}.items()},
                    **{f"± {key}": "1" for key in (*self.COLUMNS, "Tensor Pipe (%)")}}]
        if self.cut:
            windows.pop()
        return Told(lines, {"window_sum.csv": windows, test.TABLE: samples, "kernel_metrics.csv": kernels}, self.lost)

    def run_parts(self, model="resnet50", failures=None, fp32=0, sum_off=0, theoretical="50", cut=False, lost=0, err="", apart=False):
        self.failures, self.fp32, self.sum_off, self.theoretical = failures or {}, fp32, sum_off, theoretical
        self.cut, self.lost, self.started = cut, lost, []
        options = argparse.Namespace(models=model, batches="1,64", precisions=test.PRECISIONS, seconds=0.6, parts="study,kernels",
                                     apart=apart)

        def profile(_options, name, arguments):
            self.started.append(name)
            found = self.told(name, arguments)
            found.err = err
            return found, found

        with tempfile.TemporaryDirectory() as folder:
            options.work = folder
            report = gputest.Report("made_up", folder)
            with mock.patch.object(test, "profile", profile), mock.patch("builtins.print"):
                test.test(options, report)
            self.files = {}
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    self.files[name] = file.read()
        self.skipped = [check["check"] for check in report.checks if check["passed"] is None]
        self.failed = [check["check"] for check in report.checks if check["passed"] is False]
        return self.failed

    def test_good(self):
        for model in test.MODELS:
            self.assertEqual(self.run_parts(model), [])
            self.assertEqual(self.started, [model, f"{model}-kernels"])
        self.assertIn("| bf16 | 64 | 30.00 |", self.files["utilization.md"])
        self.assertIn("| k | 8 x 1 x 1 | 100.0 | 3 | 40.0 ± 1.0 / 50.0 |", self.files["utilization.md"])
        self.assertEqual(len(self.files["utilization.csv"].splitlines()), 7)
        self.assertEqual(len(self.files["kernels.csv"].splitlines()), 2)

    def test_what_is_wrong_is_found(self):
        for given, text in (({"lost": 102}, "samples lost"), ({"cut": True}, "has its window"), ({"fp32": 3}, "by precision"),
                            ({"sum_off": 6}, "as the samples have it"), ({"theoretical": "30"}, "no kernel's value"),
                            ({"failures": {("tf32", 1): "CUDNN_STATUS_NOT_SUPPORTED"}}, "every configuration ran")):
            self.assertTrue(any(text in check for check in self.run_parts(**given)), (given, self.failed))
        self.assertEqual(self.run_parts(lost=100), [])

    def test_apart(self):
        self.assertEqual(self.run_parts(apart=True), [])
        self.assertEqual(self.started[:3] + self.started[-1:],
                         ["resnet50-fp32-1", "resnet50-fp32-64", "resnet50-tf32-1", "resnet50-kernels"])
        self.assertEqual(len(self.files["utilization.csv"].splitlines()), 7)
        # Each process has losses of its own.
        self.assertEqual(len([check for check in self.run_parts(apart=True, lost=102) if "samples lost" in check]), 7)

    def test_out_of_memory(self):
        self.assertEqual(self.run_parts("transformer", failures={("fp32", 64): "out of memory"}), [])
        self.assertIn("transformer: fp32, batch 64", self.skipped)
        self.assertIn("| fp32 | 64 | out of memory |", self.files["utilization.md"])

    def test_refused(self):
        line = "libinject[1] warning: no hardware metrics: ... NVreg_RestrictProfilingToAdminUsers=0 ...\n"
        self.assertEqual(self.run_parts(err=line), [])
        self.assertEqual((self.started, self.skipped), (["resnet50"], ["resnet50: everything else"]))

    def test_unknown(self):
        self.assertEqual(self.run_parts("vgg"), ["parts and models are known"])


class Study(unittest.TestCase):
    """The program's loops, with a simulated device and clock."""

    def setUp(self):
        self.torch = mock.MagicMock()
        self.torch.cuda.OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
        self.torch.cuda.Event.return_value.elapsed_time.return_value = 4.0
        programs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
        modules = {"torch": self.torch, "torch.nn": self.torch.nn, "torch.nn.functional": self.torch.nn.functional}
        self.patch(mock.patch.dict(sys.modules, modules))
        self.patch(mock.patch.object(sys, "path", [programs, *sys.path]))
        self.program = importlib.import_module("torch_study")
        self.clock = 0.0
        self.patch(mock.patch.object(self.program.time, "perf_counter", lambda: self.clock))
        self.steps = []

    def patch(self, patcher):
        patcher.start()
        self.addCleanup(patcher.stop)

    def study(self, fails_at=None, error=None):
        def build(batch, precision):
            def loss():
                self.clock += 0.1
                self.steps.append((precision, batch))
                if fails_at == len(self.steps):
                    raise error
                return mock.MagicMock()
            return mock.MagicMock(), mock.MagicMock(), loss, None, "images", batch
        self.patch(mock.patch.dict(self.program.MODELS, {"made up": build}))
        return self.program.Study("made up", 2.0)

    def test_steps(self):
        study = self.study()
        found = study.configuration("fp32", 8)
        self.assertEqual(found, {"model": "made up", "precision": "fp32", "batch": 8, "steps": 20, "step_ns": 4_000_000, "unit": "images",
                                 "rate": 2000, "window": 1})
        self.assertEqual(len(self.steps), 5 + 20)
        self.assertEqual((self.torch.backends.cuda.matmul.allow_tf32, self.torch.backends.cudnn.allow_tf32), (False, False))
        study.seconds = 0
        self.assertEqual(study.configuration("tf32", 8)["steps"], 10)
        self.assertEqual((self.torch.backends.cuda.matmul.allow_tf32, self.torch.backends.cudnn.allow_tf32), (True, True))
        self.assertEqual(self.torch.cuda.empty_cache.call_count, 2)

    def test_what_fails_is_told_and_the_rest_goes_on(self):
        # During warm-up there is no window yet; within the window, it is closed.
        for at, windows, error, text in ((3, 0, self.torch.cuda.OutOfMemoryError("x"), "out of memory"),
                                         (8, 1, self.torch.cuda.OutOfMemoryError("x"), "out of memory"),
                                         (8, 1, RuntimeError("cuDNN error"), "cuDNN error")):
            self.torch.cuda.profiler.reset_mock()
            self.steps.clear()
            study = self.study(at, error)
            self.assertEqual(study.configuration("bf16", 64), {"model": "made up", "precision": "bf16", "batch": 64, "failed": text})
            self.assertEqual((self.torch.cuda.profiler.start.call_count, self.torch.cuda.profiler.stop.call_count), (windows, windows))
            self.assertEqual(study.configuration("bf16", 1)["window"], windows + 1)


if __name__ == "__main__":
    unittest.main()
