# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of what the truth table is computed with, on streams written here: a comparison that cannot fail proves nothing."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import programs
import recording
import truth_table

EVENTS = 6  # of an iteration


def written(steps=10, boundary_at=lambda k: 0, window=None, phase_after=None, first_different=0):
    """A recording: every iteration is a copy and five kernels, 1.2 µs apart; boundary_at(k) is the event within iteration k
    before which it was found, None if not."""
    lines = ["F 1 void copy(float*)", "F 2 void first<int, 2>(int)"]

    def event(letter, function):
        lines.append(f"{letter} 1200 5 1 {function} {function + 100}")

    for k in range(steps):
        lines.append(f"M 0 5 truth:{k}")
        for i in range(EVENTS):
            if boundary_at(k) == i:
                lines.append(f"B 0 5 {k + 1}")
            event("H" if i == 0 else "K", i + 1 + (50 if k < first_different else 0))
            if i == 0 and window and k in window:
                # Written some time after the boundary that it names.
                lines.append(f"{'OC'[window.index(k)]} {k + 1} 1")
        if phase_after == k:
            lines.append("M 0 5 phase:validation")
            for _ in range(4):
                event("K", 99)
    lines.append("M 0 5 truth:end")
    return [line + "\n" for line in lines]


def verdict(**options):
    stream = recording.read(written(**options))
    steps, phases = recording.iterations(stream.marks)
    return recording.boundary_verdict(stream.boundaries, steps, phases)


class Reading(unittest.TestCase):
    def test_lines(self):
        stream = recording.read(written(steps=2, window=(0, 1)) + ["nonsense\n", "K 12\n"])
        self.assertEqual(len(stream.events), 2 * EVENTS)
        self.assertEqual(stream.events[:2], [(1200, "h2d", 1, 101, 1, 5), (2400, "kernel", 2, 102, 1, 5)])
        self.assertEqual(stream.names[2], "void first<int, 2>(int)")
        self.assertEqual(stream.marks, [(0, "truth:0"), (6, "truth:1"), (12, "truth:end")])
        self.assertEqual(stream.boundaries, [(0, 1), (6, 2)])
        self.assertEqual((stream.opens, stream.closes), ([(0, 1)], [(6, 1)]))
        self.assertEqual(stream.unread, ["nonsense\n", "K 12\n"])

    def test_small_copy(self):
        lines = written(steps=50, window=(20, 25), phase_after=9)
        stream = recording.read(lines)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "copy.stream.xz")
            size = recording.write_compact(lines, path)
            copy = recording.read_file(path)
            self.assertLess(size, 3000)
            self.assertEqual(size, os.path.getsize(path))
            # A framework's own ranges are left out.
            others = [more for line in lines for more in ("M 0 5 XlaModule:#x#\n", line)]
            self.assertEqual(recording.write_compact(others, path), size)
            # Too small a limit costs the times, and nothing else.
            self.assertLessEqual(recording.write_compact(lines, path, 1), size)
            coarse = recording.read_file(path)
        for other, step in ((copy, 1000), (coarse, 1_000_000)):
            self.assertEqual(vars(other) | {"events": None}, vars(stream) | {"events": None})
            self.assertEqual([e[1:] for e in other.events], [e[1:] for e in stream.events])
            # Errors of rounding do not add up.
            for theirs, ours in zip(other.events, stream.events):
                self.assertTrue(0 <= ours[0] - theirs[0] < step)


class Boundaries(unittest.TestCase):
    def test_exact(self):
        result = verdict()
        self.assertEqual((result["exact"], result["expected"], result["extra"], result["missed"], result["offsets"], result["shift"]),
                         (10, 10, 0, [], {}, {1: 10}))

    def test_late_by_an_event(self):
        result = verdict(boundary_at=lambda k: 1 if k == 4 else 0)
        self.assertEqual((result["exact"], result["offsets"], result["extra"], result["missed"]), (9, {1: 1}, 0, []))

    def test_early_by_an_event(self):
        # Before the last event of the iteration before.
        lines = written(steps=4)
        boundary = lines.index("B 0 5 3\n")
        lines.insert(boundary - 2, lines.pop(boundary))
        stream = recording.read(lines)
        result = recording.boundary_verdict(stream.boundaries, *recording.iterations(stream.marks))
        self.assertEqual((result["exact"], result["offsets"], result["extra"]), (3, {-1: 1}, 0))

    def test_missed_and_extra(self):
        result = verdict(boundary_at=lambda k: None if k == 4 else 0)
        self.assertEqual((result["exact"], result["missed"], result["extra"]), (9, [4], 0))
        lines = written(phase_after=4)
        lines.insert(lines.index("M 0 5 phase:validation\n") + 3, "B 0 5 99\n")
        stream = recording.read(lines)
        result = recording.boundary_verdict(stream.boundaries, *recording.iterations(stream.marks))
        self.assertEqual((result["exact"], result["extra"], result["in_phases"]), (10, 1, 1))

    def test_only_from_the_first_on(self):
        stream = recording.read(written(boundary_at=lambda k: 0 if k >= 3 else None))
        result = recording.boundary_verdict(stream.boundaries, *recording.iterations(stream.marks), first=3)
        self.assertEqual((result["exact"], result["expected"], result["missed"]), (7, 7, []))

    def test_steady(self):
        stream = recording.read(written(first_different=3))
        self.assertEqual(recording.steady_from(stream, recording.iterations(stream.marks)[0]), 3)


class Windows(unittest.TestCase):
    def table_row(self, lines, start=4, count=3):
        return truth_table.analyse(recording.read(lines), {}, start, count)

    def test_exact(self):
        row = self.table_row(written(window=(4, 7)))
        self.assertTrue(row["window_exact"])
        self.assertEqual(truth_table.problems(row), [])
        self.assertEqual(recording.covered_text(row["windows"][0]), "4-6")
        self.assertEqual((row["locked_after"], row["steady_from"]), (0, 0))

    def test_another_iteration(self):
        row = self.table_row(written(window=(5, 8)))
        self.assertFalse(row["window_exact"])
        self.assertEqual(recording.covered_text(row["windows"][0]), "5-7")

    def test_one_event_less(self):
        row = self.table_row(written(window=(4, 7), boundary_at=lambda k: 1 if k == 4 else 0))
        self.assertFalse(row["window_exact"])
        self.assertEqual(recording.covered_text(row["windows"][0]), "5-6 +5/6 of 4")

    def test_two_windows(self):
        row = self.table_row(written(window=(4, 7)) + ["O 9 2\n"])
        self.assertFalse(row["window_exact"])
        self.assertEqual([recording.covered_text(w) for w in row["windows"]], ["4-6", "8-9"])

    def test_validation_inside(self):
        row = self.table_row(written(window=(4, 7), phase_after=5))
        self.assertTrue(row["window_exact"])
        self.assertEqual(recording.covered_text(row["windows"][0]), "4-6 +4 of validation")

    def test_domains(self):
        row = self.table_row([line.replace(" truth:", " :truth:") for line in written(window=(4, 7))])
        self.assertTrue(row["window_exact"])

    def test_nothing_found(self):
        row = self.table_row([line for line in written() if not line.startswith("B")])
        self.assertFalse(row["window_exact"])
        self.assertIsNone(row["locked_after"])
        self.assertNotIn("boundaries", row)
        self.assertEqual(len(truth_table.problems(row)), 3)

    def test_late_lock(self):
        self.assertEqual(truth_table.problems(self.table_row(written(steps=20, window=(9, 12), boundary_at=lambda k: 0 if k > 5 else None),
                                                             start=9)),
                         ["locked after iteration 6, steady from 0"])

    def test_table_row(self):
        row = self.table_row(written(window=(4, 7), boundary_at=lambda k: 1 if k == 8 else 0)) | {"program": "name"}
        self.assertEqual(list(map(str, truth_table.text_of(row))), ["name", "60", "6", "0", "0", "9/10", "4-6", "off by +1x1"])
        self.assertEqual(truth_table.text_of({"program": "name", "rc": 3}), ["name", "rc 3"])


class Programs(unittest.TestCase):
    def test_marks(self):
        said = []
        training = programs.Training(3, "cpu", said.append)

        class Loss:
            def item(self):
                return 1.5

        training.loop(lambda k: Loss(), every=2, between=lambda k: training.phase("validation") if k == 1 else None)
        self.assertEqual(said, [b"truth:0", b"truth:1", b"phase:validation", b"truth:2", b"truth:end"])
        self.assertEqual([text.encode() for _, text in training.marks], said)
        self.assertEqual(training.losses, [1.5])

    def test_enough_programs(self):
        self.assertGreaterEqual(len(programs.PROGRAMS), 13)
        self.assertLessEqual(set(truth_table.NOT_JUDGED), set(programs.PROGRAMS))

    def test_help(self):
        script = os.path.join(os.path.dirname(os.path.abspath(programs.__file__)), "programs.py")
        result = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=True)
        self.assertIn("resnet50", result.stdout)

    def test_number_in_json(self):
        value = json.loads('{"a": {"locked_after": true, "b": [{"locked_after": 4}]}}')
        self.assertEqual(truth_table.number_under(value, "absent", "locked_after"), 4)
        self.assertIsNone(truth_table.number_under(value, "absent"))


if __name__ == "__main__":
    unittest.main()
