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
    """A recording: every iteration is a copy and five kernels, 1 µs apart; boundary_at(k) is the event within iteration k
    before which it was found, None if not."""
    lines, time = ["# launch stream 1", "# name a0 void copy(float*)", "# name b1 void first<int, 2>(int)"], 10**12

    def event(kind, function):
        nonlocal time
        time += 1000
        lines.append(f"{time},{kind},{function:x},{function + 0x1000:x},7,1")

    for k in range(steps):
        lines.append(f"# mark {time + 1} 1 truth:{k}")
        if window and k == window[0]:
            lines.append(f"# open {time + 2} 1")
        if window and k == window[1]:
            lines.append(f"# close {time + 2} 1")
        for i in range(EVENTS):
            if boundary_at(k) == i:
                lines.append(f"# boundary {time + 1000} {k}")
            event("h2d" if i == 0 else "kernel", 0xa0 + 0x11 * i + (0x500 if k < first_different else 0))
        if phase_after == k:
            lines.append(f"# mark {time + 1} 1 phase:validation")
            for _ in range(4):
                event("kernel", 0xfff)
    lines.append(f"# mark {time + 1} 1 truth:end")
    return [line + "\n" for line in lines]


def verdict(**options):
    stream = recording.read(written(**options))
    steps, phases = recording.iterations(stream.marks)
    return recording.boundary_verdict(stream.boundaries, steps, phases)


class Reading(unittest.TestCase):
    def test_lines(self):
        stream = recording.read(written(steps=2, window=(0, 1)))
        self.assertEqual(len(stream.events), 2 * EVENTS)
        self.assertEqual(stream.events[0], (10**12 + 1000, "h2d", 0xa0, 0x10a0, "7", "1"))
        self.assertEqual(stream.names[0xb1], "void first<int, 2>(int)")
        self.assertEqual(stream.marks, [(0, "truth:0"), (6, "truth:1"), (12, "truth:end")])
        self.assertEqual(stream.boundaries, [(0, 0), (6, 1)])
        self.assertEqual((stream.opens, stream.closes), ([(0, 1)], [(6, 1)]))
        self.assertEqual(stream.notes, ["# launch stream 1"])

    def test_order_of_threads(self):
        lines = written(steps=2)
        events = [line for line in lines if line[0].isdigit()]
        shuffled = [line for line in lines if not line[0].isdigit()] + events[::2] + events[1::2]
        self.assertEqual(recording.read(shuffled).events, recording.read(lines).events)
        self.assertEqual(recording.read(shuffled).marks, recording.read(lines).marks)

    def test_small_copy(self):
        stream = recording.read(written(steps=50, window=(20, 25), phase_after=9))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "copy.stream.xz")
            size = recording.write_compact(stream, path, "title")
            copy = recording.read_file(path)
        self.assertLess(size, 3000)
        self.assertEqual(copy.marks, stream.marks)
        self.assertEqual(copy.boundaries, stream.boundaries)
        self.assertEqual((copy.opens, copy.closes), (stream.opens, stream.closes))
        self.assertEqual([e[1] for e in copy.events], [e[1] for e in stream.events])
        # The same are the same: functions and shapes, within and across.
        for which in (2, 3):
            pairs = {(a[which], b[which]) for a, b in zip(stream.events, copy.events)}
            self.assertEqual(len(pairs), len({a for a, _ in pairs}))
            self.assertEqual(len(pairs), len({b for _, b in pairs}))
        self.assertFalse({e[2] for e in copy.events} & {e[3] for e in copy.events})
        self.assertEqual(sorted(copy.names.values()), sorted(n for f, n in stream.names.items() if any(e[2] == f for e in stream.events)))
        for a, b, next_a, next_b in zip(stream.events, copy.events, stream.events[1:], copy.events[1:]):
            self.assertEqual(next_a[0] - a[0], next_b[0] - b[0])


class Boundaries(unittest.TestCase):
    def test_exact(self):
        result = verdict()
        self.assertEqual((result["exact"], result["expected"], result["extra"], result["missed"], result["offsets"], result["shift"]),
                         (10, 10, 0, [], {}, {0: 10}))

    def test_late_by_an_event(self):
        result = verdict(boundary_at=lambda k: 1 if k == 4 else 0)
        self.assertEqual((result["exact"], result["offsets"], result["extra"], result["missed"]), (9, {1: 1}, 0, []))

    def test_early_by_an_event(self):
        # Before the last event of the iteration before.
        lines = written(steps=4)
        boundary = next(i for i, line in enumerate(lines) if line.startswith("# boundary") and line.endswith(" 2\n"))
        time = int(lines[boundary].split()[2])
        lines[boundary] = f"# boundary {time - 1000} 2\n"
        stream = recording.read(lines)
        result = recording.boundary_verdict(stream.boundaries, *recording.iterations(stream.marks))
        self.assertEqual((result["exact"], result["offsets"], result["extra"]), (3, {-1: 1}, 0))

    def test_missed_and_extra(self):
        result = verdict(boundary_at=lambda k: None if k == 4 else 0)
        self.assertEqual((result["exact"], result["missed"], result["extra"]), (9, [4], 0))
        lines = written(phase_after=4)
        phase = next(i for i, line in enumerate(lines) if "phase:" in line)
        time = int(lines[phase + 2].split(",")[0])
        lines.append(f"# boundary {time} 99\n")
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
    def table_row(self, lines, run_json=None, truth=None, start=4, count=3):
        return truth_table.analyse(recording.read(lines), truth or {"marks": []}, run_json or {}, start, count)

    def test_exact(self):
        row = self.table_row(written(window=(4, 7)))
        self.assertTrue(row["window_exact"])
        self.assertEqual(recording.covered_text(row["windows"][0]), "4-6")
        self.assertEqual((row["locked_after"], row["steady_from"]), (0, 0))

    def test_another_iteration(self):
        row = self.table_row(written(window=(5, 8)))
        self.assertFalse(row["window_exact"])
        self.assertEqual(recording.covered_text(row["windows"][0]), "5-7")

    def test_one_event_less(self):
        lines = written(window=(4, 7))
        at = next(i for i, line in enumerate(lines) if line.startswith("# open"))
        lines[at] = f"# open {int(lines[at].split()[2]) + 1500} 1\n"
        row = self.table_row(lines)
        self.assertFalse(row["window_exact"])
        self.assertEqual(recording.covered_text(row["windows"][0]), "5-6 +5/6 of 4")

    def test_validation_inside(self):
        row = self.table_row(written(window=(4, 7), phase_after=5))
        self.assertTrue(row["window_exact"])
        self.assertEqual(recording.covered_text(row["windows"][0]), "4-6 +4 of validation")

    def test_from_times(self):
        lines = [line for line in written(window=(4, 7)) if not line.startswith(("# mark", "# open", "# close"))]
        marks = [[10**12 + 1 + 1000 * EVENTS * k, f"truth:{k}"] for k in range(10)] + [[10**12 + 1 + 1000 * EVENTS * 10, "truth:end"]]
        begin, end = (1 + 1000 * EVENTS * k for k in (4, 7))
        run_json = {"time_zero": {"clock_monotonic_ns": 10**12}, "windows": [{"start_ns": begin, "end_ns": end}]}
        row = self.table_row(lines, run_json, {"marks": marks})
        self.assertEqual(row["truth"], "times")
        self.assertTrue(row["window_exact"])
        self.assertEqual((row["boundaries"]["exact"], row["boundaries"]["expected"]), (10, 10))

    def test_nothing_found(self):
        lines = [line for line in written() if not line.startswith("# boundary")]
        row = self.table_row(lines)
        self.assertFalse(row["window_exact"])
        self.assertIsNone(row["locked_after"])
        self.assertNotIn("boundaries", row)


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
