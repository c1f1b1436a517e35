#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The search for iterations on launch streams of real training programs, recorded on a GPU (tests/data/iterations).

The programs (tests/gpu/iterations/programs.py) left marks at their true iterations, which the search does not see.

usage: test_streams.py REPLAY DATA RECORDING
"""

import dataclasses
import lzma
import pathlib
import random
import subprocess
import sys
import unittest

replay = data = recording = None  # set by main()

EVENTS = "KGHDPSYLT"  # first letters of lines that are events, see iteration_search.h
LOCK_AFTER = 5  # iterations, once the program does the same in each
LOCK_AFTER_BY_STEPS = 10  # six steps and 200 signs are needed


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is expected of a program; one that is not listed below has the defaults."""
    unseen: int = 0         # first iterations, before the steady ones, whose beginnings may be wrong
    changes: int = 0        # of the lock, once iterations have been found
    optimizer: bool = True  # its kernels are recognised by name
    late: int = 0           # iterations by which LOCK_AFTER is exceeded
    phases: int = 0         # periods between iterations that are not iterations, by the program's marks
    hidden: int = 0         # … that are taken for the end of the iteration before
    passes: int = 1         # of the program's loop per repetition
    ahead: int = 0          # by how much its numbers are too large
    found: bool = True
    # Differences if only launches are seen.
    by_launches: dict = dataclasses.field(default_factory=dict)


PROGRAMS = {
    "accelerate_plain": Expected(),
    "amp": Expected(),
    "compile": Expected(unseen=1),
    "cudagraph": Expected(optimizer=False),
    "cudagraph_300": Expected(optimizer=False),
    "cupy": Expected(optimizer=False),
    "cupy_300": Expected(optimizer=False),
    "dataloader": Expected(),
    "ddp": Expected(unseen=2),
    "ddp_no_sync": Expected(unseen=2, by_launches={"ahead": 1}),
    "diffusion": Expected(hidden=3),
    "dqn": Expected(unseen=1),
    "dynamic_shapes": Expected(),
    "experts": Expected(),
    "flax": Expected(unseen=1, optimizer=False),
    "fsdp2": Expected(),
    "gan": Expected(),
    # Each optimizer's step is taken for an iteration at first.
    "gan_two_one": Expected(by_launches={"changes": 1, "late": 11}),
    "gnn": Expected(),
    "grad_accum": Expected(),
    "hf_trainer": Expected(),
    "hf_trainer_eval": Expected(phases=3),
    "jax": Expected(unseen=1, optimizer=False),
    "jax_300": Expected(unseen=1, optimizer=False),
    "jax_async": Expected(unseen=1, optimizer=False),
    "jax_async_300": Expected(unseen=1, optimizer=False),
    "lbfgs": Expected(by_launches={"found": False}),
    "lightning": Expected(),
    "lora": Expected(),
    "lstm_fixed": Expected(unseen=1),
    "lstm_lm": Expected(),
    "lstm_variable": Expected(),
    "mlp": Expected(unseen=1),
    "multistream": Expected(unseen=2),
    "numba": Expected(unseen=1, optimizer=False, late=1),
    "numba_300": Expected(unseen=1, optimizer=False, late=1),
    "per_parameter": Expected(),
    "pipeline": Expected(unseen=1, by_launches={"ahead": 6}),
    "resnet50": Expected(),
    "scaler_skips": Expected(),
    "speech_ctc": Expected(),
    "timm_lamb": Expected(),
    "transformer": Expected(),
    # One steps in each pass, the other in every third.
    "two_optimizers": Expected(passes=3, by_launches={"passes": 1}),
    "validation": Expected(unseen=1, phases=3),
    "validation_often": Expected(unseen=1, phases=6),
    "zero": Expected(unseen=1, by_launches={"unseen": 2}),
    "wgan_gp": Expected(by_launches={"changes": 1, "late": 1}),
}


# No PyTorch, or its optimizer is in a graph.
WITHOUT_STEPS = ("cupy", "cupy_300", "flax", "jax", "jax_300", "jax_async", "jax_async_300", "numba", "numba_300")


class Found:
    """Output of the replay: locks [(events seen, iterations over, optimizer)], the last one's spans {first event: number} and phases
    [(first event, number)], and where the watch fired."""

    def __init__(self, text):
        self.locks, self.spans, self.phases, self.boundaries, self.events = [], {}, [], [], 0
        self.whole, last = [], None  # [(first event, that of the next one)]
        for line in text.splitlines():
            kind, *fields = line.split(" ")
            if kind == "lock":
                self.locks.append((int(fields[0]), int(fields[1]), fields[2] == "1"))
                self.spans, self.phases, self.whole, last = {}, [], [], None
                continue
            if kind in ("span", "cut") and (kind == "span" or fields[2] != "0"):
                if last is not None:
                    self.whole.append((last, int(fields[1])))
                last = int(fields[1]) if kind == "span" and fields[4] == "0" else None
            elif kind == "cut":
                last = None
            if kind == "span" and fields[4] == "1":
                self.phases.append((int(fields[1]), int(fields[0])))
            elif kind == "span":
                self.spans[int(fields[1])] = int(fields[0])
            elif kind == "boundary":
                self.boundaries.append(int(fields[0]))
            elif kind == "end":
                self.events = int(fields[0])


def cut(text, steps, draw):
    """The stream as seen through clock windows, three to six iterations long and up to two apart; and which events are left."""
    last = min(60, max(steps))
    each = (steps[last][0] - steps[10][0]) / (last - 10)
    left, shown, position, lines, kept = int(12.3 * each), True, 0, [], []
    for line in text.splitlines():
        if line[0] in EVENTS:
            if left == 0:
                shown = not shown
                left = max(1, int(each * (draw.uniform(3, 6.5) if shown else draw.uniform(0.3, 1.7))))
                if shown:
                    lines.append("U 0")
            left -= 1
            if shown:
                kept.append(position)
            position += 1
        if shown or line[0] in "FE":
            lines.append(line)
    return "\n".join(lines) + "\n", kept


def without_steps(text):
    """The stream of a PyTorch that does not report its optimizers' steps."""
    return "".join(line + "\n" for line in text.splitlines() if line[0] not in "ET")


def read(text):
    stream = recording.read(text.splitlines())
    return stream, *recording.iterations([(position, text.lstrip(":")) for position, text in stream.marks])


def between(phases, steps):
    """[(begin, end, next iteration)] of the periods between iterations; adjacent phases are merged."""
    at = {begin: k for k, (begin, _) in steps.items()}
    joined = []
    for _, begin, end in phases:
        if joined and joined[-1][1] == begin:
            begin = joined.pop()[0]
        joined.append((begin, end))
    return [(begin, end, at[end]) for begin, end in joined if end in at]


class Streams(unittest.TestCase):
    maxDiff = None

    def test_enough_of_them(self):
        self.assertGreaterEqual(len(list(data.glob("*.stream.xz"))), 12)
        for path in data.glob("*"):
            self.assertTrue(path.name == "README.md" or path.name.endswith(".stream.xz"), path)
            self.assertLess(path.stat().st_size, 60_000, path)

    def check(self, name):
        text = lzma.decompress((data / f"{name}.stream.xz").read_bytes()).decode(errors="replace")
        expected = PROGRAMS.get(name, Expected())
        told = any(line.startswith("T ") for line in text.splitlines())
        self.assertEqual(told, name not in WITHOUT_STEPS)
        steady = recording.steady_from(*read(without_steps(text))[:2])
        if told:
            with self.subTest("by the steps that it told of"):
                self.check_stream(name, text, dataclasses.replace(expected, late=LOCK_AFTER_BY_STEPS - LOCK_AFTER), steady)
        with self.subTest("by what it launched"):
            self.check_stream(name, without_steps(text), dataclasses.replace(expected, **expected.by_launches), steady)

    def check_stream(self, name, text, expected, steady):
        stream, steps, phases = read(text)
        self.assertEqual(stream.unread, [])
        self.assertGreaterEqual(len(steps), 60, "the recording ends early")
        if expected.passes > 1:
            steps = {k // expected.passes: (begin, steps[k + expected.passes - 1][1]) for k, (begin, _) in steps.items()
                     if k % expected.passes == 0 and k + expected.passes - 1 in steps}
            steady //= expected.passes
        if expected.hidden:
            self.assertEqual(len(between(phases, steps)), expected.hidden)
            phases = []
        found = Found(subprocess.run([replay], input=text, capture_output=True, text=True, check=True, timeout=60).stdout)
        self.assertEqual(found.events, len(stream.events))

        # Found soon, and permanently.
        self.assertIsNotNone(steady)
        if not expected.found:
            self.assertEqual(found.locks, [])
            return
        self.assertNotEqual(found.locks, [], "no iterations were found")
        self.assertEqual(len(found.locks) - 1, expected.changes, found.locks)
        locked, _, optimizer = found.locks[-1]
        self.assertEqual(optimizer, expected.optimizer)
        in_progress = max(k for k, (begin, _) in steps.items() if begin < locked)
        self.assertLessEqual(in_progress, steady + LOCK_AFTER + expected.late)

        # Where they begin, and their numbers: all of them, counted backwards to the first one. The last one may have no end.
        self.assertLessEqual(expected.unseen, steady + 2, "more than those before the steady ones, and the first two")
        last = max(steps)
        true = {begin: k for k, (begin, _) in steps.items() if expected.unseen <= k < last}
        told = {begin: number - expected.ahead for begin, number in found.spans.items()
                if expected.unseen <= number - expected.ahead and begin != steps[last][0]}
        self.assertEqual(told, true)

        self.check_phases(found, steps, phases, expected, locked)
        self.check_watch(found, steps, phases, locked, in_progress)
        self.check_cut(name, text, steps, expected)

    def check_cut(self, name, text, steps, expected):
        """Clock windows show pieces of it: an iteration is complete if all of it was seen, and begins where it does."""
        lines, kept = cut(text, steps, random.Random(name))
        found = Found(subprocess.run([replay], input=lines, capture_output=True, text=True, check=True, timeout=60).stdout)
        self.assertEqual(found.events, len(kept))
        self.assertNotEqual(found.locks, [])
        at = {position: i for i, position in enumerate(kept)}
        whole = {at[begin]: k for k, (begin, end) in steps.items() if begin in at and end in at and at[end] - at[begin] == end - begin}
        true = {at[begin] for k, (begin, _) in steps.items() if begin in at and k >= expected.unseen}
        first = min(true)
        self.assertEqual([begin for begin, _ in found.whole if begin >= first and begin not in true], [])
        self.assertEqual([(begin, end) for begin, end in found.whole if kept[end] - kept[begin] != end - begin], [])
        seen = {begin for begin, _ in found.whole}
        missed = [k for begin, k in whole.items() if k >= expected.unseen and begin not in seen]
        # If several windows show little of it, the first complete one may only be reported with the next.
        self.assertLessEqual(len(missed), len(whole) / 6, missed)

    def check_phases(self, found, steps, phases, expected, locked):
        """Work between two iterations belongs to neither."""
        told = [(begin, number) for begin, number in found.phases if begin >= locked]
        true = between(phases, steps)
        self.assertEqual([number for _, number in told], [following for _, _, following in true])
        self.assertEqual(len(told), expected.phases)
        for (begin, number), (first, end, _) in zip(told, true):
            # It ends where the iteration begins; its first few launches may look like the end of the preceding one.
            self.assertTrue(first <= begin <= first + (end - first) / 20, (number, begin, first, end))

    def check_watch(self, found, steps, phases, locked, in_progress):
        """A window opens and closes where the watch fires: at every iteration, or at the beginning of the work that precedes it."""
        before = {following: (begin, end) for begin, end, following in between(phases, steps)}
        # It is armed in the middle of an iteration, whose end it may not recognise.
        expected = [k for k in sorted(steps) if k > in_progress + 1]
        boundaries = [position for position in found.boundaries if position >= locked]
        fired = [position for position in boundaries if position >= steps[expected[0]][0] or
                 expected[0] in before and position >= before[expected[0]][0]]
        self.assertLessEqual(len(boundaries) - len(fired), 1)
        # The last iteration may be followed by a validation, and nothing else.
        fired = [position for position in fired if position < steps[expected[-1]][1]]
        self.assertEqual(len(fired), len(expected), fired)
        for k, position in zip(expected, fired):
            begin, end = before.get(k, (steps[k][0], steps[k][0]))
            self.assertTrue(begin <= position <= begin + (end - begin) / 20, (k, position, begin))


def main():
    global replay, data, recording
    replay, data, folder = (pathlib.Path(path) for path in sys.argv[1:4])
    sys.path.append(str(folder))
    import recording as module
    recording = module
    for path in sorted(data.glob("*.stream.xz")):
        name = path.name.removesuffix(".stream.xz")
        setattr(Streams, f"test_{name}", lambda self, name=name: self.check(name))
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])


if __name__ == "__main__":
    main()
