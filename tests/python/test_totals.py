# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Columns can be added up: rows that are sums of other rows are marked, and the others have each thing once."""

import csv
import importlib.util
import os
import pathlib
import subprocess
import unittest

import folders
from libinject.result import is_number_column

import libinject

SCRIPT = folders.BUILD / "tests" / "integration" / "script" / "script_cuda"
# Work of all kinds on both devices, in two windows; allocations on both as well.
PROGRAM = ("start loop:3 [ push:step device:0 malloc:a:4096 kernel:alpha:3 copy:h2d:4096 memset:100 device:1 malloc:b:8192 malloc:c:100:managed kernel:beta:4 "
           "kernel:alpha:1 copy:d2h:1000 pop ] sync stop start device:1 kernel:beta:2 sync device:0 kernel:gamma:7 sync stop sync")
# For each table with kernels, the column that counts them; each kernel is in one row.
KERNELS = {"cuda_gpu_kern_sum": "Instances", "cuda_gpu_kern_gb_sum": "Instances", "kernel_detail": "Instances", "family_sum": "Instances",
           "thread_kern_sum": "Instances", "window_sum": "Kernels", "iteration_sum": "Kernels", "phase_sum": "Kernels"}
# Columns that are not sums over rows: places, statistics, spans, sizes of one thing.
NO_SUMS = ("(%)", "Avg", "Med", "Min", "Max", "StdDev", "Start", "End", "Span", "Largest", "Peak", "Last Failed")


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def unmarked(rows):
    return [row for row in rows if row.get("Total") != "yes"]


def added(rows, column):
    return sum(float(row[column]) for row in rows if row[column])


class Totals(folders.TemporaryFolder):
    @classmethod
    def setUpClass(cls):
        holder = folders.tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(holder.cleanup)
        cls.out = pathlib.Path(holder.name) / "two-devices"
        environment = {**{name: value for name, value in os.environ.items() if not name.startswith("INJECT_")}, "CUDASIM_DEVICES": "2",
                       "LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "LD_PRELOAD": str(folders.BUILD / "libinject.so"),
                       "INJECT_OUT": str(cls.out), "INJECT_TRACE": "csv", "INJECT_SUMMARY": "off"}
        subprocess.run([SCRIPT, *PROGRAM.split()], env=environment, capture_output=True, timeout=60, check=True)
        cls.example = folders.profile_example(pathlib.Path(holder.name) / "example", TRACE="csv", METRICS="auto", SUMMARY="off")

    def tables(self):
        for folder in (self.out, self.example):
            for path in sorted(folder.glob("*.csv")):
                if path.stat().st_size and (rows := rows_of(path)):
                    yield folder, path.stem, rows

    def test_each_kernel_counts_once(self):
        for folder, name, rows in self.tables():
            if name in KERNELS:
                ran = [row for row in rows_of(folder / "cuda_gpu_trace.csv") if row["GrdX"]]
                with self.subTest(folder=folder.name, table=name):
                    self.assertEqual(added(unmarked(rows), KERNELS[name]), len(ran))
        self.assertGreater(len({row["Device"] for row in rows_of(self.out / "window_sum.csv")}), 2)

    def test_marked_rows_are_the_sums_of_the_others(self):
        """If a row without the mark has a value at all: the host's values are only in marked rows."""
        compared = 0
        for folder, name, rows in self.tables():
            # CPU use is read thread by thread, and then for the process: `inject check` compares them with the corresponding tolerance.
            if "Total" not in rows[0] or name == "host_sum":
                continue
            marked = [row for row in rows if row["Total"] == "yes"]
            for column in rows[0]:
                if is_number_column(column) and not any(word in column for word in NO_SUMS) and any(row[column] for row in unmarked(rows)) \
                        and column not in ("Window", "Iteration", "Complete", "Duration (ns)", "Samples/s", "Kernel Concurrency", "IPC"):
                    with self.subTest(folder=folder.name, table=name, column=column):
                        self.assertAlmostEqual(added(unmarked(rows), column), added(marked, column), delta=0.001 * len(rows))
                        compared += 1
        self.assertGreater(compared, 50)

    def test_no_other_row_is_a_sum(self):
        """By its values: no row without the mark equals, in all columns that can be added up, the sum of all others."""
        for folder, name, rows in self.tables():
            rows = unmarked(rows)
            columns = [column for column in rows[0] if is_number_column(column) and not any(word in column for word in NO_SUMS)] if rows else []
            columns = [column for column in columns if added(rows, column)]
            for row in rows if len(rows) > 2 and len(columns) > 1 else ():
                with self.subTest(folder=folder.name, table=name, row=row):
                    self.assertTrue(any(abs(2 * float(row[column] or 0) - added(rows, column)) > 0.001 * len(rows) for column in columns))
            for row in rows:
                self.assertFalse({"all", "[all]", "total"} & {str(cell).lower() for cell in row.values()}, (folder.name, name, row))

    def test_merged_copies_have_the_mark(self):
        import duckdb

        done = folders.invoke("merge", self.out, "--parquet", self.folder / "copies")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, column in (("iteration_sum", "Kernels"), ("window_sum", "Idle (ns)"), ("memory_sum", "Live (MB)")):
            with self.subTest(name):
                sums = dict(duckdb.sql(f"SELECT Total, sum(\"{column}\") FROM '{self.folder}/copies/{name}.parquet' GROUP BY Total").fetchall())
                self.assertEqual({mark: round(sums[mark], 3) for mark in sums},
                                 {mark: round(added([row for row in rows_of(self.out / f"{name}.csv") if row["Total"] == mark], column), 3) for mark in ("yes", "no")})

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "there is no pandas, which scripts/setup.sh installs")
    def test_frames_have_each_thing_once(self):
        run = libinject.load(self.out)
        for name, column in (("windows", "Kernels"), ("iterations", "Kernel Time (ns)"), ("memory", "Allocated (MB)")):
            with self.subTest(name):
                rows = run.table(name)
                self.assertEqual(set(rows["Total"]), {"no"})
                self.assertAlmostEqual(float(rows[column].sum()), float(run.table(name, totals="only")[column].sum()), delta=0.01)


if __name__ == "__main__":
    unittest.main()
