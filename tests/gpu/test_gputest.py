# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of the GPU tests' own arithmetic, on folders written here: a comparison that can't fail proves nothing."""

import csv
import json
import os
import random
import statistics
import sys
import tempfile
import unittest

import gputest
from gputest import promises

SUMMARY = "Time (%),Total Time (ns),{},Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
TRACE = ("Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
         "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name")
H2D = gputest.COPY_KINDS["HtoD"]


def write(folder, table, header, rows):
    with open(os.path.join(folder, table), "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)


def summary(groups):
    total = sum(sum(values) for values in groups.values())
    return [[f"{100 * sum(v) / total:.1f}", sum(v), len(v), f"{statistics.fmean(v):.1f}", f"{statistics.median(v):.1f}", min(v), max(v),
             f"{statistics.stdev(v) if len(v) > 1 else 0:.1f}", *(name if isinstance(name, tuple) else (name,))]
            for name, v in groups.items()]


class Promises(unittest.TestCase):
    def found(self, share):
        with tempfile.TemporaryDirectory() as path:
            folder = os.path.join(path, "rank", "out")
            os.makedirs(folder)
            with open(os.path.join(folder, "run.json"), "w") as file:
                json.dump({"libinject": "0.1.0", "state": "closed", "files": [gputest.KERN_SUM]}, file)
            write(folder, gputest.KERN_SUM, SUMMARY.format("Instances") + "Name", [[share, 10, 1, "10.0", "10.0", 10, 10, "0.0", "k"]])
            report = gputest.Report("test", path)
            gputest.check_promises(path, report)
            gputest.check_promises(os.path.join(path, "rank", "none"), report)
            return report.checks

    def test_each_folder_is_checked(self):
        (check,) = self.found("100.0")
        self.assertTrue(check["passed"], check)

    def test_a_test_of_a_program_fails(self):
        with tempfile.TemporaryDirectory() as path:
            with open(os.path.join(path, "run.json"), "w") as file:
                json.dump({"libinject": "0.1.0", "state": "closed", "files": ["absent.csv"]}, file)
            with self.assertRaisesRegex(self.failureException, "lists absent.csv, which is not there"):
                promises.hold(self, path)
            promises.hold(self, path, {"files": "a reason"})

    def test_what_is_broken_fails(self):
        (check,) = self.found("170.0")
        self.assertFalse(check["passed"])
        self.assertIn("rank/out: cuda_gpu_kern_sum.csv:2: Time (%): share-range: 170.0", check["detail"])


class Sums(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = self.temporary.name
        generator = random.Random(1)
        kernels = {name: [generator.randint(1000, 90000) for _ in range(n)]
                   for name, n in (("void foo<int, std::vector<int> >(int)", 30), ("bar", 7), ("once", 1))}
        copies = {H2D: [generator.randint(100, 999) for _ in range(20)]}
        rows = [[i, d, i, 8, 1, 1, 128, 1, 1, 32, 0, 0, "", "", "", "", "GPU", 1, "", 7, name]
                for i, (name, d) in enumerate((n, d) for n, ds in kernels.items() for d in ds)]
        rows += [[i, d, i, *[""] * 9, "1.235", "", "", "", "GPU", 1, "", 7, name] for name, ds in copies.items() for i, d in enumerate(ds)]
        write(self.path, gputest.GPU_TRACE, TRACE, rows)
        self.kernel_rows = summary(kernels)
        write(self.path, gputest.KERN_SUM, SUMMARY.format("Instances") + "Name", self.kernel_rows)
        write(self.path, gputest.KERN_GB_SUM, SUMMARY.format("Instances") + "GridXYZ,BlockXYZ,Name",
              summary({("   8    1    1", " 128    1    1", n): d for n, d in kernels.items()}))
        write(self.path, gputest.MEM_TIME_SUM, SUMMARY.format("Count") + "Operation", summary(copies))
        write(self.path, gputest.MEM_SIZE_SUM, "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation",
              [["24.692", 20, "1.235", "1.235", "1.235", "1.235", "0.000", H2D]])
        self.copy_time = sum(copies[H2D])
        self.write_copies(20, self.copy_time)
        self.time = sum(sum(d) for d in kernels.values())
        self.own_tables(self.time)
        self.folder = gputest.Folder(self.path)

    def write_copies(self, count, time):
        write(self.path, "copy_sum.csv", "Direction,Count,Total Time (ns)",
              [["Host-to-Device", 5, 100], ["Host-to-Device", count - 5, time - 100]])

    def own_tables(self, time):
        for table in ("kernel_detail.csv", "thread_kern_sum.csv"):
            write(self.path, table, "Total Time (ns),Instances", [[time, 38]])
        write(self.path, "library_sum.csv", "GPU Time (ns),Kernels,GPU Time incl. Nested (ns),Kernels incl. Nested,Depth",
              [[time - 10, 37, time, 38, 0], [10, 1, 10, 1, 1]])
        write(self.path, "window_sum.csv", "Window,Device,GPU Busy (%),Kernels,Kernel Time (ns),Copies",
              [[1, "all", "99.5", 38, time, 20], [1, "0", "100.0", 38, time, 20]])
        write(self.path, "iteration_sum.csv", "Device,Kernels,Kernel Time (ns)",
              [["all", 30, time - 8], ["0", 30, time - 8], ["all", 8, 8], ["0", 8, 8]])

    def tearDown(self):
        self.temporary.cleanup()

    def rewrite(self, row, column, value):
        rows = [list(r) for r in self.kernel_rows]
        rows[row][column] = value
        write(self.path, gputest.KERN_SUM, SUMMARY.format("Instances") + "Name", rows)
        return gputest.check_sums(self.folder)[1]

    def test_equal(self):
        self.assertEqual(gputest.check_sums(self.folder), (20, []))

    def test_each_column_is_checked(self):
        for column in range(1, 8):
            value = float(self.kernel_rows[0][column])
            self.assertTrue(self.rewrite(0, column, value * 1.1 + 1), f"column {column}")

    def test_own_tables(self):
        self.own_tables(self.time + 1)
        self.assertEqual(len(gputest.check_sums(self.folder)[1]), 7)

    def test_copies(self):
        for count, time in ((20, self.copy_time + 1), (21, self.copy_time)):
            self.write_copies(count, time)
            self.assertEqual(len(gputest.check_sums(self.folder)[1]), 1)
        os.remove(os.path.join(self.path, "copy_sum.csv"))
        self.assertEqual(len(gputest.check_sums(self.folder)[1]), 1)

    def test_busier_than_possible(self):
        write(self.path, "window_sum.csv", "Window,Device,GPU Busy (%),Kernels,Kernel Time (ns),Copies",
              [[1, "all", "100.1", 38, self.time, 20], [1, "0", "", 38, self.time, 20]])
        self.assertEqual(len(gputest.check_sums(self.folder)[1]), 1)

    def test_missing_row(self):
        self.kernel_rows.pop()
        self.assertTrue(self.rewrite(0, 0, self.kernel_rows[0][0]))

    def test_counts(self):
        self.assertEqual(self.folder.kernel_counts(), {"voidfoo<int,std::vector<int>>(int)": 30, "bar": 7, "once": 1})
        self.assertEqual(self.folder.operation_counts(), {H2D: 20})
        kernels, operations = self.folder.trace()
        self.assertEqual({n: len(d) for n, d in kernels.items()}, self.folder.kernel_counts())
        self.assertEqual(len(operations[H2D]), 20)


class Comparison(unittest.TestCase):
    def test_names(self):
        self.assertEqual(gputest.normalise("void f<a<b> >(int)"), gputest.normalise("void f<a<b>>(int)"))
        self.assertEqual(gputest.normalise("_Z3fooi"), "foo(int)")
        self.assertEqual(gputest.normalise("_Znonsense"), "_Znonsense")

    def test_subtract(self):
        self.assertEqual(gputest.subtract({"a": 3, "b": 2, "c": 1}, {"a": 1, "b": 2}), {"a": 2, "c": 1})

    def test_count_differences(self):
        self.assertEqual(gputest.count_differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 1}), [("b", 2, 3), ("c", 0, 1)])

    def test_medians(self):
        result = gputest.compare_medians({"long": [100_000], "short": [1000]}, {"long": [101_900], "short": [1064]})
        self.assertEqual(result["outside"], [])
        result = gputest.compare_medians({"long": [100_000], "short": [1000]}, {"long": [103_000], "short": [1065]})
        self.assertEqual({row["name"] for row in result["outside"]}, {"long", "short"})
        self.assertLess(result["total_ratio"], 0.98)


class Reports(unittest.TestCase):
    def finish(self, *verdicts):
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as null:
            report = gputest.Report("report", folder)
            for verdict in verdicts:
                report.check("check", verdict)
            report.guarded("nothing", lambda: None)
            self.assertEqual(report.guarded("named", lambda one, two: one - two, 5, two=3), 2)
            stdout, sys.stdout = sys.stdout, null
            try:
                return report.finish()
            finally:
                sys.stdout = stdout

    def test_status(self):
        self.assertEqual(self.finish(True), 0)
        self.assertEqual(self.finish(True, False), 1)
        self.assertEqual(self.finish(), 1, "a test that checked nothing has not passed")

    def test_exception_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            report = gputest.Report("report", folder)
            report.guarded("part", lambda: 1 // 0)
            self.assertEqual([c["passed"] for c in report.checks], [False])


class Running(unittest.TestCase):
    def test_run(self):
        result = gputest.run([sys.executable, "-c", "import sys; print(1); sys.exit(3)"])
        self.assertEqual((result.rc, result.out, result.timed_out), (3, "1\n", False))

    def test_timeout(self):
        self.assertTrue(gputest.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.5).timed_out)


if __name__ == "__main__":
    unittest.main()
