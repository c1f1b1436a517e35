# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of occupancy.py's comparison: rows as they should be pass, and every cell that is off is found; and of its program
on the simulated CUDA, whose kernels all have 32 registers and no static shared memory.

usage: test_occupancy.py [PROGRAM LIBRARY SIMULATION]     (without them, the comparison alone)
"""

import json
import os
import sys
import tempfile
import unittest

import occupancy
from gputest import Folder, profiled_environment, run

# An H200. 1,024 threads per block: two blocks, all 64 warps; 255 registers: one block of eight warps.
DEVICE = {"multiprocessors": 132, "threads": 2048, "warp": 32, "launches": [
    {"name": "few", "grid": 265, "block": 1024, "registers": 32, "static": 0, "dynamic": 0, "blocks": 2},
    {"name": "many", "grid": 1, "block": 256, "registers": 255, "static": 1024, "dynamic": 0, "blocks": 1},
    {"name": "few", "grid": 132, "block": 33, "registers": 32, "static": 0, "dynamic": 102400, "blocks": 2}]}
COLUMNS = ["Total Time (ns)", "Name", "GrdX", "BlkX", "DymSMem (B)", "Reg/Trd", "StcSMem (B)", "Occupancy (%)", "Blocks/SM",
           "Limited by", "Waves", "SM Efficiency (%)", "Lost Time (ns)"]
ROWS = [
    # One wave of 264 and one block: (1 + 1/132) / 2.
    ["1000", "few", "265", "1024", "0", "32", "0", "100.0", "2", "registers+block size", "1.00", "50.4", "496"],
    ["132000", "many", "1", "256", "0", "255", "1024", "12.5", "1", "registers", "0.01", "0.8", "131000"],
    ["10", "few", "132", "33", "102400", "32", "0", "6.2", "2", "shared memory", "0.50", "100.0", "0"]]


def rows(changes=()):
    cells = [list(row) for row in ROWS]
    for row, column, value in changes:
        cells[row][COLUMNS.index(column)] = value
    return [dict(zip(COLUMNS, row)) for row in cells]


def differences(*changes):
    return {column: found for column, found in occupancy.compare(DEVICE, rows(changes)).items() if found}


class Compare(unittest.TestCase):
    def test_equal(self):
        found = occupancy.compare(DEVICE, rows())
        self.assertEqual(set(found), {"row", *COLUMNS[5:]})
        self.assertEqual(differences(), {})

    def test_each_cell_is_checked(self):
        for column in COLUMNS[5:]:
            for row in range(len(ROWS)):
                for value in ("", "7"):
                    with self.subTest(column=column, row=row, value=value):
                        self.assertEqual(set(differences((row, column, value))), {column})

    def test_limiters(self):
        self.assertEqual(differences((0, "Limited by", "blocks")), {})
        self.assertEqual(set(differences((0, "Limited by", "registers+registers"))), {"Limited by"})

    def test_lost_time_may_differ_by_rounding(self):
        self.assertEqual(differences((0, "Lost Time (ns)", "497")), {})
        self.assertEqual(set(differences((0, "Lost Time (ns)", "498"))), {"Lost Time (ns)"})

    def test_rows(self):
        self.assertEqual(len(occupancy.compare(DEVICE, rows()[1:])["row"]), 1)
        self.assertEqual(len(occupancy.compare(DEVICE, rows() + rows()[:1])["row"]), 1)
        self.assertEqual(len(differences((1, "BlkX", "255"))["row"]), 2)
        self.assertEqual(len(differences((2, "GrdX", ""))["row"]), 2)


class Program(unittest.TestCase):
    def test_on_the_simulated_cuda(self):
        if not places:
            self.skipTest("no program given")
        program, library, simulation = places
        with tempfile.TemporaryDirectory() as folder:
            environment = profiled_environment(library, os.path.join(folder, "out"), "api", summary="off")
            result = run([program], {**environment, "LD_LIBRARY_PATH": simulation}, cwd=folder)
            self.assertEqual(result.rc, 0, result.why())
            device = json.loads(result.out)
            self.assertGreater(len(device["launches"]), 500)
            for column, differences in occupancy.compare(device, Folder(os.path.join(folder, "out")).rows("kernel_detail.csv")).items():
                with self.subTest(column):
                    self.assertEqual(differences, [])


if __name__ == "__main__":
    places = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
