#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What PyTorch's caching allocator reports of itself: its rows in memory_timeline.csv, and that its profiler still receives all of it.

usage: test_torch_allocator.py LIBRARY PROGRAMS SIMULATION INJECTCTL
"""

import itertools
import json
import pathlib
import random
import signal
import subprocess
import sys

import simulated

CUDA, CPU, HIP = 1, 0, 6
injectctl = pathlib.Path(sys.argv.pop(4)).resolve()


class Allocator(simulated.SimulatedTest):
    def allocate(self, *words, **options):
        program = [sys.executable, str(pathlib.Path(__file__).parent / "torch_allocator.py"), str(simulated.programs), *words]
        return self.script("", command=program, **{"SUMMARY": "stderr", **options})

    def rows(self, out, kind, device="0"):
        return [row for row in out.rows("memory_timeline.csv") if (row["Device"], row["Of"]) == (device, f"PyTorch {kind}")]

    def levels(self, out, kind, device="0"):
        """[(lowest, highest)] at changes; a window's edge divides rows as well."""
        levels = [(float(row["Lowest (MB)"]), float(row["Highest (MB)"])) for row in self.rows(out, kind, device)]
        return [level for level, _ in itertools.groupby(levels)]

    def test_over_time(self):
        words = ["launch"]
        for allocated, reserved in ((5, 20), (12.5, 20), (3, 40), (8, 40)):
            words += [f"{CUDA}:0:{allocated}:{reserved}", "sleep"]
        done = self.allocate(*words, "launch", WINDOW="always")
        self.assertEqual(self.levels(done.out, "allocated"), [(5, 5), (12.5, 12.5), (3, 3), (8, 8)])
        self.assertEqual(self.levels(done.out, "reserved"), [(20, 20), (40, 40)])
        self.assertIn("PyTorch's allocator: peak 12.500MB allocated, 40.000MB reserved", done.stderr)
        for kind in ("allocated", "reserved"):
            rows = self.rows(done.out, kind)
            for row, after in zip(rows, rows[1:]):
                self.assertEqual(int(row["Start (ns)"]) + int(row["Duration (ns)"]), int(after["Start (ns)"]))

    def test_many_at_once(self):
        """Thousands at the same moments: the highest and the lowest are exact, and the rows are few."""
        numbers = random.Random(2)
        levels = [(numbers.randrange(1, 1000), 1000 + 20 * (i // 500)) for i in range(5000)]
        done = self.allocate("launch", *(f"{CUDA}:1:{a}:{r}" for a, r in levels), devices=2, WINDOW="always")
        for kind, at in (("allocated", 0), ("reserved", 1)):
            rows = self.levels(done.out, kind, "1")
            self.assertLess(len(rows), 2049)
            self.assertEqual(min(low for low, _ in rows), min(level[at] for level in levels))
            self.assertEqual(max(high for _, high in rows), max(level[at] for level in levels))
            self.assertEqual(self.levels(done.out, kind, "0"), [])

    def test_all_reports_go_on(self):
        words = ["launch", f"{CUDA}:0:5:20", f"{CUDA}:0:6:20:older", f"{CPU}:0:7:0", f"{HIP}:0:8:8:older", f"{CUDA}:100:9:9", f"{CUDA}:-1:9:9"]
        alone = self.allocate(*words, preload=False)
        self.assertEqual(json.loads(alone.stdout)[0], 6)
        for options in ({}, {"HOOKS": "cudart"}, {"WINDOW": "off"}):
            with self.subTest(options):
                done = self.allocate(*words, **{"WINDOW": "always", **options})
                self.assertEqual(done.stdout, alone.stdout)
                self.assertEqual("PyTorch's allocator" in done.stderr, not options)
                if not options:
                    # Only for GPUs, through either of the function's names, and only those that can be shown.
                    self.assertEqual(max(high for _, high in self.levels(done.out, "allocated")), 6)
                    self.assertEqual({row["Device"] for row in done.out.rows("memory_timeline.csv") if row["Of"].startswith("PyTorch")}, {"0"})

    def test_recovered(self):
        done = self.allocate("launch", f"{CUDA}:0:5:20", "sleep", f"{CUDA}:0:9:30", "launch", "kill", WINDOW="always", check=False)
        self.assertEqual(done.code, -signal.SIGKILL)
        out = done.work / "out"
        told = subprocess.run([str(injectctl), "recover", str(out)], capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertEqual(self.levels(simulated.Folder(out), "allocated"), [(5, 5), (9, 9)])
        self.assertEqual(self.levels(simulated.Folder(out), "reserved"), [(20, 20), (30, 30)])


if __name__ == "__main__":
    simulated.main()
