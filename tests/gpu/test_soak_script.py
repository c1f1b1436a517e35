# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The arithmetic of soak.py, without a GPU."""

import os
import tempfile
import unittest

import gputest
import soak as test

MS = 1_000_000


def steps(begin, count, length):
    return [(begin + i * length, begin + (i + 1) * length) for i in range(count)]


class Ratios(unittest.TestCase):
    def test_a_turn_is_compared_with_its_neighbours(self):
        turns = [("bare", steps(0, 100, 10 * MS)), ("ours", steps(10_000 * MS, 1000, 11 * MS)), ("bare", steps(30_000 * MS, 100, 10 * MS)),
                 ("ours", steps(40_000 * MS, 1000, 10 * MS)), ("bare", steps(60_000 * MS, 100, 10 * MS))]
        found = test.ratios_of(turns, [(12_000 * MS, 12_200 * MS)])
        self.assertEqual([round(one["mean"], 6) for one in found], [1.1, 1.0])
        self.assertEqual([round(one["median"], 6) for one in found], [1.1, 1.0])
        self.assertEqual(found[0]["bare_ns"], 10 * MS)

    def test_steps_in_windows_do_not_count_as_outside(self):
        window = (3000 * MS, 3200 * MS)
        slow = [(b, e) for b, e in steps(1000 * MS, 300, 10 * MS) if not test.overlaps((b, e), [window])]
        turns = [("bare", steps(0, 50, 10 * MS)), ("ours", sorted(slow + [(3000 * MS, 3200 * MS)])), ("bare", steps(5000 * MS, 50, 10 * MS))]
        found, = test.ratios_of(turns, [window])
        self.assertEqual(found["mean"], 1.0)
        self.assertEqual(found["in"], 20.0)
        self.assertEqual(found["near"], 1.0)

    def test_places(self):
        found = test.by_place([(0, 1)] * 3 + steps(0, 20, 100 * MS), [(1000 * MS, 1050 * MS)])
        self.assertEqual(sum(map(len, found.values())), 23 - int(test.WARM * 23))
        self.assertEqual(len(found["in"]), 1)


class Growth(unittest.TestCase):
    def test_of_the_last_quarter(self):
        self.assertEqual(test.growth([1, 5, 9, 9, 9, 9, 9, 9]), 0)
        self.assertEqual(test.growth(list(range(40))), 10)

    def verdicts(self, **columns):
        held = [{"VmRSS": 1, "device": 1, "disk": 1, "descriptors": 5, "threads": 3} for _ in range(16)]
        for name, values in columns.items():
            for sample, value in zip(held, values, strict=True):
                sample[name] = value
        report = gputest.Report("growth", tempfile.gettempdir())
        test.check_growth(report, held)
        return [check["check"] for check in report.checks if not check["passed"]]

    def test_what_grows_is_seen(self):
        self.assertEqual(self.verdicts(), [])
        self.assertEqual(self.verdicts(VmRSS=[i * 1000 for i in range(16)]), ["VmRSS does not grow"])
        self.assertEqual(self.verdicts(threads=[3, 4] * 8), [])
        self.assertEqual(self.verdicts(threads=[3] * 15 + [4]), ["no more threads at the end than before"])
        self.assertEqual(self.verdicts(device=[1] * 10 + [2] * 6), ["device does not grow"])


class Windows(unittest.TestCase):
    def test_complete(self):
        trained = steps(0, 10, 10)
        self.assertEqual(test.incomplete([(15, 45, 20)], trained, 10), [])
        self.assertEqual(test.incomplete([(15, 45, 19), (15, 45, 40), (200, 300, 0)], trained, 10),
                         ["window 1: 19 kernels, 2 to 4 steps of 10"])
        self.assertEqual(len(test.incomplete([(15, 45, 41), (200, 300, 1)], trained, 10)), 2)

    def test_interval_holds_the_mean(self):
        low, high = test.interval([1.0, 1.1, 0.9, 1.05, 0.95])
        self.assertLess(low, 1.0)
        self.assertGreater(high, 1.0)


class Disk(unittest.TestCase):
    def test_of_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "a"), "wb") as file:
                file.write(b"x" * 10_000)
                file.flush()
                os.fsync(file.fileno())
            self.assertGreaterEqual(test.disk(folder), 10_000)


if __name__ == "__main__":
    unittest.main()
