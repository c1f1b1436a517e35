# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The arithmetic of metrics_collection.py, without a GPU."""

import argparse
import json
import os
import tempfile
import unittest
from unittest import mock

import gputest
import metrics_collection as test


def row(start, end, **values):
    return {"Start (ns)": str(start), "End (ns)": str(end), **{key: str(value) for key, value in values.items()}}


class Means(unittest.TestCase):
    def test_of_what_lies_inside(self):
        rows = [row(0, 10, a=100), row(10, 20, a=1, b=""), row(20, 30, a=3, b=7), row(30, 40, a=100)]
        self.assertEqual(test.means(rows, 10, 30, ["a", "b", "c"]), ({"a": 2, "b": 7, "c": None}, 2))
        self.assertEqual(test.means(rows, 50, 60, ["a"]), ({"a": None}, 0))

    def test_the_middle_of_a_span(self):
        self.assertEqual(test.middle((1100, 2100), 100), (1100, 1900))


class Phases(unittest.TestCase):
    def means(self, active, tensor, fma):
        return {"SM Active (%)": active, "Tensor Pipe (%)": tensor, "FMA Pipe (%)": fma}

    def test_right(self):
        self.assertIsNone(test.judge_phase("bf16", self.means(100, 99, 0)))
        self.assertIsNone(test.judge_phase("fp32", self.means(99, 0, 85)))
        self.assertIsNone(test.judge_phase("idle", self.means(0, 0, 0)))

    def test_wrong(self):
        for phase, found in (("bf16", (100, 0, 90)), ("bf16", (20, 99, 0)), ("fp32", (100, 99, 0)), ("fp32", (100, 0, 10)),
                             ("idle", (100, 0, 0)), ("bf16", (None, 99, 0))):
            self.assertIsNotNone(test.judge_phase(phase, self.means(*found)), (phase, found))


class Cost(unittest.TestCase):
    METRICS = {"lost": {"incomplete": 3, "missing": 0, "queue_full": 2}, "decode_cpu_ns": 200_000,
               "decode": {"calls": 4, "samples": 10, "full": 1, "emptied": 2, "image_bytes": 400_000, "image_samples": 10,
                          "data_cpu_ns": 100_000, "times_cpu_ns": 10_000, "evaluate_cpu_ns": 50_000, "empty_cpu_ns": 30_000},
               "first_lost": {"reason": "incomplete", "error": "", "cupti_start_ns": 7}}

    def test_losses(self):
        self.assertEqual(test.loss_reasons(self.METRICS), "; incomplete 3; queue_full 2")

    def test_steps(self):
        self.assertEqual(test.decoding(self.METRICS, 10),
                         "decoding 20.0 us a sample: data 10.0, times 1.0, evaluate 5.0, empty 3.0; 4 calls, 10 complete, "
                         "image full 1, emptied 2, 40.0 kB a sample")

    def test_times(self):
        self.assertEqual(test.first_times(self.METRICS), "first_lost reason incomplete cupti_start_ns 7")
        self.assertEqual(test.first_times({}), "")


ABOUT = {"capability": [9, 0], "sms": 132}


class Values(unittest.TestCase):
    def kind(self, calls, **one):
        return {"calls": calls, "one": one}

    def test_a_product_on_the_tensor_cores(self):
        # 132 SMs do 4096 operations per cycle each.
        flop = 2 * 8192 ** 3
        low, high = test.expectations(self.kind(400, tensor_flop=flop), 1, ABOUT, 1000, None)["Tensor Pipe (%)"]
        share = 100 * flop * 400 / (132 * 4096 * 1e9)
        self.assertAlmostEqual(low, 0.92 * share)
        self.assertEqual(high, 100)
        self.assertAlmostEqual(share, 81.3, places=1)
        self.assertEqual(test.expectations(self.kind(400, tensor_flop=flop), 1, {**ABOUT, "capability": [12, 0]}, 1000, None), {})
        self.assertEqual(test.expectations(self.kind(400, tensor_flop=flop), 1, ABOUT, None, None), {})

    def test_a_product_in_fp32(self):
        # Half of the peak: multiply-adds in 64 lanes per cycle, which are two warp instructions.
        found = test.expectations(self.kind(1, fma_flop=132 * 256 * 1e9 / 2), 1, ABOUT, 1000, None)
        self.assertAlmostEqual(found["FMA Pipe (%)"][0], 46)
        self.assertAlmostEqual(found["FMA Pipe (%)"][1], 63)
        self.assertAlmostEqual(found["IPC"][0], 1.8)
        self.assertAlmostEqual(found["IPC"][1], 3)
        self.assertEqual(found["Tensor Pipe (%)"], (0, 1))

    def test_bytes(self):
        found = test.expectations(self.kind(100, read=2e10, written=1e10), 1, ABOUT, None, 4e12)
        self.assertEqual((found["DRAM Read (%)"], found["DRAM Write (%)"]), ((47, 53), (22, 28)))

    def test_differences(self):
        expected = {"IPC": (1, 2), "L2 (%)": (0, 5)}
        self.assertEqual(test.differences({"IPC": 1.5, "L2 (%)": 5}, expected), [])
        self.assertEqual(len(test.differences({"IPC": 2.1, "L2 (%)": None}, expected)), 2)

    def test_close(self):
        for value, expected, good in ((10, 13, True), (10, 13.1, False), (95, 100, True), (94.9, 100, False)):
            self.assertEqual(test.close(value, expected), good)

    def test_occupancy(self):
        def kernel(achieved, most):
            return {"Name": "k", "Occupancy (%)": achieved, "Theoretical Occupancy (%)": most}
        self.assertEqual(test.judge_occupancy([kernel("50", "50"), kernel("", "50"), kernel("5", "")]), ([], 1))
        self.assertEqual(len(test.judge_occupancy([kernel("54", "50"), kernel("0", "50")])[0]), 2)


class Compute(unittest.TestCase):
    NAMES = ["ID", "Kernel Name", "Grid Size", *test.NCU.values(), *test.MOVED]

    def raw(self, *rows, moved=(100, 100)):
        lines = [self.NAMES, ["", "", ""] + ["%"] * len(test.NCU) + ["byte"] * 2, *([*row, *map(str, moved)] for row in rows)]
        return "==PROF== x\n" + "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)

    def row(self, name, grid, samples=10, **values):
        x, y, z = grid
        return {"Name": name, "GrdX": str(x), "GrdY": str(y), "GrdZ": str(z), "Samples": str(samples), "Instances": "2",
                "Total Time (ns)": "20000", **values}

    def test_comparison(self):
        truth = test.parse_ncu(self.raw(["0", "_Z1kv", "(8, 1, 1)", "1,0.5", *["50"] * 7], ["1", "_Z1kv", "(8, 1, 1)", *["60"] * 8],
                                        ["2", "_Z1kv", "(9, 1, 1)", *["n/a"] * 8]))
        self.assertEqual(truth["k()", (8, 1, 1)]["Tensor Pipe (%)"], 55)
        good = self.row("k()", (8, 1, 1), **{"Tensor Pipe (%)": "57", "L2 (%)": "", "IPC": "56"})
        compared, wrong, table = test.compare_ncu([good], truth, 100)
        self.assertEqual((compared, wrong, len(table)), ({"Tensor Pipe (%)": 1, "IPC": 1}, [], 3))
        self.assertIn("57.00 / 55.00 |", table[2])
        for bad in ({"Tensor Pipe (%)": "59"}, {"IPC": "58"}, {"DRAM Read (%)": "50"}):
            self.assertEqual(len(test.compare_ncu([self.row("k()", (8, 1, 1), **bad)], truth, 100)[1]), 1, bad)
        # Too few samples, another shape, and missing values in ncu's table.
        for other in (self.row("k()", (8, 1, 1), 9, **{"IPC": "9"}), self.row("k()", (7, 1, 1), **{"IPC": "9"}),
                      self.row("k()", (9, 1, 1), **{"IPC": "9"})):
            self.assertEqual(test.compare_ncu([other], truth, 100)[:2], ({}, []))

    def test_what_fits_into_the_cache_is_not_compared_by_memory(self):
        truth = test.parse_ncu(self.raw(["0", "_Z1kv", "(8, 1, 1)", *["50"] * 8]))
        row = self.row("k()", (8, 1, 1), **{"IPC": "9", "DRAM Read (%)": "9", "L2 (%)": "9", "Occupancy (%)": "9"})
        compared, wrong, table = test.compare_ncu([row], truth, 201)
        self.assertEqual((compared, len(wrong)), ({"Occupancy (%)": 1}, 1))
        self.assertIn("9.00 / 50.00 (not compared)", table[2])
        # ncu's L2 differs from ours in any case.
        self.assertEqual(len(test.compare_ncu([row], truth, 200)[1]), 3)
        # A shorter kernel is not comparable at all.
        row["Total Time (ns)"] = "19999"
        self.assertEqual(test.compare_ncu([row], truth, 201)[:2], ({}, []))
        self.assertEqual(len(test.compare_ncu([row], truth, 200)[1]), 3)


class Pooled(unittest.TestCase):
    SHAPE = {column: "1" for column in ("GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ")}
    KEY = ("k", 1, 1, 1, 1, 1, 1)

    def row(self, value, error, **more):
        return {"Name": "k", **self.SHAPE, "IPC": value, "± IPC": error, "Total Time (ns)": "600", "Instances": "3", **more}

    def test_measured(self):
        self.assertEqual(test.measured([self.row("2", "0.5"), self.row("", "", Name="l")], ["IPC", "L2 (%)"]),
                         {self.KEY: {"IPC": (2, 0.5), "mean": (200, 0)}})

    def test_compared(self):
        alone = {self.KEY: {"IPC": (2, 0.3), "FMA Pipe (%)": (10, 0), "mean": (100, 0)}}
        for value, mean, pairs, within in ((2.5, 101, 1, 1), (1.5, 99, 1, 1), (2.51, 100, 1, 0), (2, 103, 0, 0), (2, 97, 0, 0)):
            mixed = {self.KEY: {"IPC": (value, 0.4), "mean": (mean, 0)}, ("other",): {"IPC": (0, 0), "mean": (1, 0)}}
            found, good = test.compare_pooled(alone, mixed)
            self.assertEqual((len(found), good), (pairs, within), (value, mean))


class Clocks(unittest.TestCase):
    def test_changes(self):
        self.assertIsNone(test.clock_changes({"before": 1980, "during": None, "after": 1980}))
        during, after = test.clock_changes({"before": 2000, "during": 1500, "after": 2000})
        self.assertAlmostEqual(during, -0.25)
        self.assertEqual(after, 0)

    def test_readings(self):
        nvml = test.Nvml()
        nvml.readings = [(at, 1000 + at) for at in range(20)]
        self.assertEqual(nvml.between(5, 9), 1007)
        self.assertIsNone(nvml.between(5, 8))


class Threads(unittest.TestCase):
    def told(self, **more):
        edges = [{"open_ns": 10 ** 8, "close_ns": 10 ** 8}] * 4
        return {"counts": [1000] * 8, "longest_ns": [1] * 8, "edges": edges, "failures": [], **more}

    def test_judged(self):
        self.assertEqual(test.judge_threads(self.told(), 8), [])
        for wrong in ({"counts": [1000] * 7}, {"counts": [1000] * 7 + [3]}, {"failures": ["RuntimeError()"]},
                      {"edges": [{"open_ns": 1, "close_ns": 1}] * 3}, {"edges": [{"open_ns": 1, "close_ns": 6 * 10 ** 9}] * 4}):
            self.assertNotEqual(test.judge_threads(self.told(**wrong), 8), [], wrong)


class Cost(unittest.TestCase):
    def test_of_a_step(self):
        # Each block is compared with its neighbours, so drift cancels; the first steps are left out.
        blocks = [("off", [99, 10, 10]), ("auto", [99, 22, 22]), ("off", [99, 12, 12]), ("auto", [1, 13, 13]), ("off", [99, 14, 14])]
        self.assertEqual(test.cost_of(blocks, 0.5), ([2, 1], {"auto": 17.5, "off": 12}))

    def test_the_median_lies_between(self):
        self.assertEqual(test.median_interval([3, 1, 2]), (1, 3))
        # Of ten values, the second and the ninth: 2 · (1 + 10) / 1024 of the cases are outside.
        self.assertEqual(test.median_interval(range(10)), (1, 8))
        self.assertEqual(test.median_interval(range(100)), (39, 60))

    PROGRAM = ("import json, sys; print('ready', flush=True)\n"
               "for line in sys.stdin:\n"
               "  print(json.dumps({'times': [5] * round(10 * float(sys.argv[2])), 'memory': sys.argv[3]}), flush=True)\n")

    def turns(self, program):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(program)
            options = argparse.Namespace(rounds=2, work=folder, library="")
            with mock.patch.object(test, "PROGRAM", path), \
                    mock.patch.object(test, "profiled_environment", lambda *_, **more: dict(os.environ)):
                return test.take_turns(options, "m")

    def test_turns(self):
        blocks, memory, wrong = self.turns(self.PROGRAM)
        self.assertEqual(([kind for kind, _ in blocks], memory, wrong),
                         (["off", "auto", "off", "auto", "off"], {"off": "m", "auto": "m"}, None))
        self.assertEqual(blocks[0][1], [5] * round(10 * test.BLOCK_SECONDS))

    def test_turns_that_fail(self):
        self.assertIn("before its first turn", self.turns("")[2])
        self.assertIn("in turn 0", self.turns("print('ready', flush=True); input()")[2])
        self.assertIn("ends with 3", self.turns(self.PROGRAM + "sys.exit(3)")[2])


class Told:
    """Invented results of a program under the preload: its output and its folder."""

    rc, err, timed_out = 0, "", False

    def __init__(self, words, tables=None, columns=()):
        self.out, self.tables, self.columns = json.dumps(words) + "\n", tables or {}, columns

    def why(self):
        return "made up"

    def rows(self, table):
        return self.tables.get(table, [])

    def run_json(self):
        columns = [{"title": title} for title in self.columns]
        return {"time_zero": {"clock_monotonic_ns": 0}, "metrics": {"columns": columns, "interval_ns": 1000}}


class Parts(unittest.TestCase):
    """Each part, from the program's output to its verdict."""

    def verdicts(self, part, told, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            report = gputest.Report("made_up", folder)
            options = argparse.Namespace(rounds=2, ncu=os.path.join(folder, "missing"), work=folder)

            def profile(_options, name, _arguments, **_more):
                found = told(name)
                return found, found

            with mock.patch.object(test, "profile", profile), mock.patch.object(test, "check_ncu"), \
                    mock.patch.object(test, "check_warps"):
                part(options, report, *arguments)
        return {check["check"]: check["passed"] for check in report.checks}

    def clock(self, during):
        spans = {"before": [0, 100], "during": [200, 300], "after": [400, 500]}
        rows = [{}] * 2000
        mhz = {phase: [(at, during if phase == "during" else 1900) for at in range(*span)] for phase, span in spans.items()}
        readings = sum(mhz.values(), [])
        with mock.patch.object(test.Nvml, "__enter__", lambda self: self.readings.extend(readings) or self), \
                mock.patch.object(test.Nvml, "__exit__", lambda *_: None):
            found = self.verdicts(test.check_clock, lambda name: Told(spans, {test.TABLE: rows}))
        return next(passed for check, passed in found.items() if check.startswith("sampling leaves"))

    def test_the_clock(self):
        self.assertTrue(self.clock(1890))
        self.assertFalse(self.clock(1500))

    def cost(self, slow=1.0, more=0, wrong=None):
        blocks = [("off", [10] * 20), ("auto", [10 * slow] * 20)] * 3 + [("off", [10] * 20)]
        memory = {kind: {"resident": 10 ** 9 + (more if kind == "auto" else 0), "device_own": 0,
                         "mapped": {"[anonymous]": 10 ** 9}} for kind in ("off", "auto")}
        with mock.patch.object(test, "take_turns", lambda *_: (blocks, memory, wrong)):
            return list(self.verdicts(test.check_cost, None, "m").values())

    def test_cost(self):
        self.assertEqual(self.cost(), [True, True, True])
        self.assertEqual(self.cost(1.05), [True, False, True])
        self.assertEqual(self.cost(1, 10 ** 9), [True, True, False])
        self.assertEqual(self.cost(wrong="off: ended"), [False])

    def test_threads(self):
        words = Threads().told()
        windows = [{"Window": str(number), "SM Active (%)": "5"} for number in range(4)]
        told = Told(words, {"window_sum.csv": windows})
        self.assertEqual(list(self.verdicts(test.check_threads, lambda name: told, 8).values()), [True] * 5)
        told = Told(words, {"window_sum.csv": windows[:3]})
        self.assertIn(False, self.verdicts(test.check_threads, lambda name: told, 8).values())

    def values(self, dram, occupancy="50"):
        columns = ["SM Active (%)", "DRAM Read (%)", "DRAM Write (%)", "Tensor Pipe (%)", "L2 (%)"]
        rows = [{"Start (ns)": str(at * 1000), "End (ns)": str(at * 1000 + 1000), "SM Active (%)": "99",
                 "DRAM Read (%)": str(dram) if at < 2000 else "0", "DRAM Write (%)": "25" if at < 2000 else "0",
                 "Tensor Pipe (%)": "0", "L2 (%)": "40"} for at in range(4000)]
        kinds = {"elementwise": {"span": [0, 2_000_000], "calls": 100, "one": {"read": 4 * 10 ** 7, "written": 2 * 10 ** 7}},
                 "resident": {"span": [2_000_000, 4_000_000], "calls": 100, "one": {}}}
        kernels = [{"Name": "k", "Occupancy (%)": occupancy, "Theoretical Occupancy (%)": "50"}] * 5
        told = Told({"kinds": kinds, **ABOUT}, {test.TABLE: rows, "kernel_metrics.csv": kernels}, columns)
        with mock.patch.object(test.Nvml, "bandwidth", lambda self: 4e12), mock.patch.object(test.Nvml, "read", lambda self: None):
            return self.verdicts(test.check_values, lambda name: told)

    def test_values(self):
        self.assertNotIn(False, self.values(50).values())
        self.assertFalse(self.values(60)["values: elementwise"])
        self.assertIn(False, self.values(50, "60").values())


class Refusals(unittest.TestCase):
    def test_known_reasons(self):
        line = "libinject[1] warning: no hardware metrics: ... NVreg_RestrictProfilingToAdminUsers=0 ...\n"
        self.assertEqual(test.refusal("x\n" + line), "no permission to read the counters")
        self.assertIsNone(test.refusal("libinject[1] info: window 1 opened (api)\n"))
        self.assertIsNone(test.refusal("libinject[1] warning: no hardware metrics: cuptiPmSamplingStart failed\n"))


if __name__ == "__main__":
    unittest.main()
