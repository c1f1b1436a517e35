# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of the functions behind the truth table, on streams written here: a comparison that can't fail proves nothing."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

import programs
import recording
import truth_table

EVENTS = 6  # per iteration


def written(steps=10, boundary_at=lambda k: 0, window=None, phase_after=None, first_different=0, lock_after=None, span_at=lambda k: 0,
            number_of=lambda k: k):
    """A recording: every iteration is a copy and five kernels, 1.2 µs apart; boundary_at(k) is the event within iteration k before which it
    was seen to begin, None if it was not. Iterations are found as iteration lock_after begins: span_at(k) is the event of iteration k with
    which the lock lets it begin, None if it does not, and number_of(k) the number."""
    lines = ["F 1 void copy(float*)", "F 2 void first<int, 2>(int)"]
    waiting = []

    def event(letter, function):
        lines.append(f"{letter} 1200 5 1 {function} {function + 100}")

    for k in range(steps):
        lines.append(f"M 0 5 truth:{k}")
        begin = k * EVENTS + (4 if phase_after is not None and k > phase_after else 0)
        if k == lock_after:
            lines.append(f"X {begin} {k} 1 0 0 {EVENTS} void copy(float*) | a copy to the device")
        if lock_after is not None and span_at(k) is not None:
            waiting.append(f"I {number_of(k)} {begin + span_at(k)} 0")
        if lock_after is not None and k >= lock_after:
            lines += waiting
            waiting = []
        for i in range(EVENTS):
            if boundary_at(k) == i:
                lines.append(f"B 0 5 {k + 1}")
            event("H" if i == 0 else "K", i + 1 + (50 if k < first_different else 0))
            if i == 0 and window and k in window:
                # Recorded some time after the boundary that it names.
                lines.append(f"{'OC'[window.index(k)]} {k + 1} 1")
        if phase_after == k:
            lines.append("M 0 5 phase:validation")
            for _ in range(4):
                event("K", 99)
            if lock_after is not None:
                waiting.append(f"I {k + 1} {begin + EVENTS} 1")
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
            # A limit that is too small only costs time resolution.
            self.assertLessEqual(recording.write_compact(lines, path, 1), size)
            coarse = recording.read_file(path)
        for other, step in ((copy, 1000), (coarse, 1_000_000)):
            self.assertEqual(vars(other) | {"events": None}, vars(stream) | {"events": None})
            self.assertEqual([e[1:] for e in other.events], [e[1:] for e in stream.events])
            # Rounding errors do not accumulate.
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
        # Before the last event of the preceding iteration.
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


class Spans(unittest.TestCase):
    def stream(self, **options):
        stream = recording.read(written(lock_after=3, **options))
        self.assertEqual(stream.unread, [])
        return stream

    def verdict(self, first=0, **options):
        stream = self.stream(**options)
        return recording.span_verdict(stream.lock().spans, recording.iterations(stream.marks)[0], first)

    def test_lines(self):
        stream = self.stream(steps=4, phase_after=2)
        lock, = stream.locks
        self.assertEqual((lock.position, lock.before, lock.optimizer, lock.by_shape, lock.rough, lock.events, lock.begin, lock.anchor),
                         (22, 3, True, False, False, 6, "void copy(float*)", "a copy to the device"))
        self.assertEqual(sorted(lock.spans), [(0, 0, False), (1, 6, False), (2, 12, False), (3, 18, True), (3, 22, False)])

    def test_restart(self):
        lines = written(steps=2, lock_after=1)
        stream = recording.read(lines + ["R\n"])
        self.assertEqual(stream.restarts, [2 * EVENTS])
        self.assertIsNone(stream.lock())
        # Positions count from there.
        again = recording.read(lines + ["R\n"] + lines)
        self.assertEqual(again.lock().position, 3 * EVENTS)
        self.assertEqual([position for _, position, _ in again.lock().spans], [2 * EVENTS, 3 * EVENTS])
        self.assertEqual(again.unread, [])
        # An iteration without a lock.
        self.assertEqual(recording.read(["I 0 0 0\n"]).unread, ["I 0 0 0\n"])

    def test_exact(self):
        self.assertEqual(self.verdict(), {"expected": 10, "exact": 10, "wrong": [], "elsewhere": []})
        self.assertEqual(self.verdict(phase_after=5)["exact"], 10)

    def test_another_event(self):
        verdict = self.verdict(span_at=lambda k: 1 if k == 4 else 0)
        self.assertEqual((verdict["exact"], verdict["wrong"], verdict["elsewhere"]), (9, [4], [(4, 4 * EVENTS + 1)]))

    def test_another_number(self):
        verdict = self.verdict(number_of=lambda k: k + 1)
        self.assertEqual((verdict["exact"], len(verdict["wrong"]), verdict["elsewhere"]), (0, 10, []))

    def test_missed(self):
        self.assertEqual(self.verdict(span_at=lambda k: None if k == 4 else 0)["wrong"], [4])

    def test_only_from_the_first_on(self):
        verdict = self.verdict(first=3, span_at=lambda k: 0 if k > 2 else 2)
        self.assertEqual(verdict, {"expected": 7, "exact": 7, "wrong": [], "elsewhere": []})

    def test_the_last_lock_counts(self):
        lines = written(lock_after=3, span_at=lambda k: 2)
        lines += ["X 60 10 1 0 0 6 a | b\n"] + [f"I {k} {k * EVENTS} 0\n" for k in range(10)]
        stream = recording.read(lines)
        self.assertEqual(len(stream.locks), 2)
        self.assertEqual(recording.span_verdict(stream.lock().spans, recording.iterations(stream.marks)[0])["exact"], 10)


class Windows(unittest.TestCase):
    def table_row(self, lines, start=4, count=3):
        return truth_table.analyse(recording.read(lines), {}, start, count)

    def test_exact(self):
        row = self.table_row(written(window=(4, 7), lock_after=2))
        self.assertTrue(row["window_exact"])
        self.assertEqual(truth_table.problems(row), [])
        self.assertEqual(recording.covered_text(row["windows"][0]), "4-6")
        self.assertEqual((row["locked_after"], row["steady_from"]), (2, 0))

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
        self.assertEqual(truth_table.problems(row), ["no iterations were found", "window: none"])
        self.assertEqual(truth_table.text_of(row | {"program": "name"})[5:9], ["-", "-", "-", "no window"])

    def test_late_lock(self):
        self.assertEqual(truth_table.problems(self.table_row(written(steps=20, window=(9, 12), lock_after=6), start=9)),
                         ["locked after iteration 6, steady from 0"])

    def test_wrong_in_the_past(self):
        # In steady iterations it counts, before them it does not.
        row = self.table_row(written(window=(4, 7), lock_after=3, span_at=lambda k: 1 if k == 1 else 0))
        self.assertEqual(truth_table.problems(row), ["8 of 9 exact from iteration 1 on, when the stream was steady; 1 where there is none"])
        row = self.table_row(written(window=(4, 7), lock_after=3, span_at=lambda k: 0 if k > 1 else None, first_different=2))
        self.assertEqual((row["steady_from"], row["all"]["wrong"], truth_table.problems(row)), (2, [0, 1], []))
        # The very first one does not count either.
        row = self.table_row(written(window=(4, 7), lock_after=3, span_at=lambda k: 0 if k else 3))
        self.assertEqual((row["steady_from"], row["all"]["wrong"], truth_table.problems(row)), (0, [0], []))

    def test_wrong_since_the_lock(self):
        row = self.table_row(written(window=(4, 7), lock_after=2, number_of=lambda k: k - (k > 5)))
        self.assertEqual(truth_table.problems(row), ["4 of 8 exact from iteration 2 on, when they were found; 0 where there is none"])

    def test_table_row(self):
        row = self.table_row(written(window=(4, 7), boundary_at=lambda k: 1 if k == 8 else 0, lock_after=2,
                                     span_at=lambda k: 3 if k == 1 else 0)) | {"program": "name"}
        self.assertEqual(list(map(str, truth_table.text_of(row))),
                         ["name", "60", "6", "0", "2", "8/8", "9/10", "9/10", "4-6", "not 1; 1 where there is none; live off by +1x1"])
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

    def test_pause(self):
        training = programs.Training(3, "cpu", pause=0.02)
        begin = time.monotonic()
        training.loop(lambda k: None)
        self.assertGreaterEqual(time.monotonic() - begin, 0.06)

    def test_enough_programs(self):
        self.assertGreaterEqual(len(programs.PROGRAMS), 13)
        self.assertLessEqual(set(truth_table.NOT_JUDGED), set(programs.PROGRAMS))

    def test_help(self):
        script = os.path.join(os.path.dirname(os.path.abspath(programs.__file__)), "programs.py")
        result = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=True)
        self.assertIn("resnet50", result.stdout)


if __name__ == "__main__":
    unittest.main()
