# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of copies.py's comparison: correct rows pass, and every wrong cell is found."""

import unittest

import copies

COLUMNS = ["Direction", "Source", "Target", "Count", "Total Time (ns)", "Total (MB)", "Throughput (GB/s)", "Link (GB/s)", "Link (%)",
           "Small Copies", "Overlap with Kernels (%)", "Synchronizing", "Hint"]
ROWS = [["Host-to-Device", "Pinned", "Device", "40", "20000000", "1000.041", "50.002", "63.015", "79.3", "10", "90.0", "0", ""],
        ["Device-to-Host", "Device", "Pageable", "30", "60000", "0.000", "0.002", "", "", "30", "0.0", "29", "values read one by one: x"],
        ["Device-to-Host", "Device", "Pinned", "10", "20000", "0.000", "0.002", "", "", "10", "0.0", "10", "values read one by one: x"]]
EXPECTED = {"rows": [{"direction": "Host-to-Device", "source": "Pinned", "target": "Device", "count": 40, "bytes": 1000040960,
                      "small": 10, "waited": 0},
                     {"direction": "Device-to-Host", "source": "Device", "target": None, "count": 40, "bytes": 160, "small": 40,
                      "waited": 40}],
            "rates": {"Host-to-Device": 50.0}, "hints": [["Device-to-Host", None, "values"], ["Host-to-Device", "Pinned", None]]}


def differences(*changes, **more):
    rows = [dict(zip(COLUMNS, row)) for row in ROWS]
    for row, column, value in changes:
        rows[row][column] = value
    return {what: found for what, found in copies.compare({**EXPECTED, **more}, rows).items() if found}


class Compare(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(differences(), {})
        # One in forty may be wrong, but none of those that must not wait.
        self.assertEqual(differences((1, "Synchronizing", "28")), {})

    def test_each_cell_is_checked(self):
        for row, column, value, what in ((0, "Count", "41", "counts"), (0, "Total (MB)", "1000.043", "bytes"),
                                         (0, "Small Copies", "9", "small copies"),
                                         (0, "Synchronizing", "1", "synchronizing"), (1, "Synchronizing", "27", "synchronizing"),
                                         (0, "Throughput (GB/s)", "50.009", "arithmetic"), (0, "Link (%)", "79.0", "arithmetic"),
                                         (2, "Count", "9", "counts"), (2, "Hint", "", "hints"), (0, "Hint", "slow", "hints")):
            with self.subTest(column=column, row=row):
                self.assertIn(what, differences((row, column, value)))

    def test_rows(self):
        self.assertEqual(set(differences((0, "Source", "Pageable"))), {"rows", "hints"})
        self.assertEqual(len(differences((0, "Source", "Pageable"))["rows"]), 2)
        self.assertIn("rows", differences((1, "Direction", "Device-to-Device")))

    def test_throughput(self):
        self.assertEqual(set(differences(rates={"Host-to-Device": 45.0})), {"throughput"})
        self.assertEqual(differences(rates={"Host-to-Device": 46.0}), {})
        self.assertEqual(set(differences(rates={"Host-to-Device": 56.0})), {"throughput"})

    def test_overlap(self):
        expected = {"rows": EXPECTED["rows"][:1], "hints": [], "overlap": [80, 100]}
        rows = [dict(zip(COLUMNS, ROWS[0]))]
        self.assertEqual(copies.compare(expected, rows)["overlap with kernels"], [])
        rows[0]["Overlap with Kernels (%)"] = "79.9"
        self.assertEqual(len(copies.compare(expected, rows)["overlap with kernels"]), 1)


if __name__ == "__main__":
    unittest.main()
