# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Kernel time as nested boxes: the page's data for modules and for Python stacks, with complete files and damaged ones."""

import os
import random
import time
import unittest

import folders
from libinject.page.parts import as_data
from libinject.page.render import embedded
from libinject.report.icicles import MOST_BOXES, MOST_LEVELS, icicle, module_boxes, stack_boxes
from libinject.report.model import page_model
from libinject.result import Result
from libinject.stacks import FILE, PHASES, Stack, read_stacks, stack_of

TRAIN, STEP = "train (/me/train.py:72)", "AdamW.step (/lib/adamw.py:20)"
GEMM, ADD = "void gemm<float, 4>(int, char*)", "add"
ALL = "All kernels"


def tree_of(made):
    """{path of texts: non-zero times by phase} of an icicle, after checking that each box follows its parent, which contains it."""
    paths, times, inside = [], {}, {}
    for at, (around, name, count, *parts) in enumerate(made.boxes):
        text = made.names[name][0] if name >= 0 else f"({count} smaller)"
        assert around < at and (around >= 0) == (at > 0) and len(parts) == len(PHASES) and min(parts) >= 0 < sum(parts), made.boxes[at]
        paths.append((*(paths[around] if at else ()), text))
        assert paths[-1] not in times, paths[-1]
        times[paths[-1]] = {phase: part for phase, part in zip(PHASES, parts, strict=True) if part}
        if at:
            inside[around] = [whole + part for whole, part in zip(inside.get(around, [0] * len(PHASES)), parts, strict=True)]
    for around, parts in inside.items():
        assert all(part <= whole for part, whole in zip(parts, made.boxes[around][3:], strict=True)), made.boxes[around]
    return times


def of_stacks(*stacks, **bounds):
    return icicle(stack_boxes([Stack(PHASES.index(phase), names, time) for phase, names, time in stacks], **bounds), "i", "I", FILE)


def module(path, parent, total, kind="", **phases):
    row = {"Time (%)": 1.0, "Module": path, "Class": kind, "Depth": 0, "Parent": parent, "Self Time (ns)": 0, "Self Instances": 1, "Total Time (ns)": total,
           "Total Instances": 1, **{f"{phase.capitalize()} (ns)": phases.get(phase, 0) for phase in PHASES[:-1]}}
    return row if phases else {**row, "Forward (ns)": total}


class Stacks(unittest.TestCase):
    def test_lines(self):
        self.assertEqual(stack_of(f"backward;{TRAIN};{GEMM} 17"), (1, [TRAIN, GEMM], 17))
        self.assertEqual(stack_of("[unattributed];k 0"), (5, ["k"], 0))
        self.assertEqual(stack_of("other;a  1"), (4, ["a "], 1))
        for line in ("", " ", "7", "forward 7", "forward; 7", "forward;;k 7", "forward;k", "forward;k ", "forward;k -7", "forward;k +7", "forward;k 7.0", "forward;k nan",
                     "forward;k 1e3", "forward;k 1_0", "forward;k ٣", "forward;k ²", "forward;k 9223372036854775808", "forward;k " + "9" * 5000, "Forward;k 7", "k;forward 7"):
            self.assertIsNone(stack_of(line), line[:60])

    def test_merging(self):
        made = of_stacks(("forward", [TRAIN, GEMM], 30), ("backward", [TRAIN, GEMM], 50), ("forward", [TRAIN, ADD], 5), ("optimizer", [TRAIN, STEP, ADD], 10),
                         ("other", [ADD], 3), ("[unattributed]", [ADD], 2))
        self.assertEqual(tree_of(made), {
            (ALL,): {"forward": 35, "backward": 50, "optimizer": 10, "other": 3, "[unattributed]": 2},
            (ALL, TRAIN): {"forward": 35, "backward": 50, "optimizer": 10}, (ALL, TRAIN, GEMM): {"forward": 30, "backward": 50}, (ALL, TRAIN, ADD): {"forward": 5},
            (ALL, TRAIN, STEP): {"optimizer": 10}, (ALL, TRAIN, STEP, ADD): {"optimizer": 10},
            (ALL, "[none]"): {"other": 3}, (ALL, "[none]", ADD): {"other": 3}, (ALL, "[unattributed]"): {"[unattributed]": 2}, (ALL, "[unattributed]", ADD): {"[unattributed]": 2}})
        self.assertEqual([phase["name"] for phase in made.phases], list(PHASES))
        self.assertEqual(dict(map(tuple, made.names)), {ALL: ALL, TRAIN: "train.py:72 train", STEP: "adamw.py:20 AdamW.step", GEMM: "", ADD: "", "[none]": "[none]",
                                                        "[unattributed]": "[unattributed]"})
        self.assertIsNone(of_stacks())
        self.assertIsNone(of_stacks(("forward", [TRAIN, ADD], 0)))

    def test_labels_of_frames(self):
        for text, label in (("<module> (/me/a b.py:1)", "a b.py:1 <module>"), ("<lambda> (<string>:2)", "<string>:2 <lambda>"), ("f (a:b.py:3)", "a:b.py:3 f"),
                            *((text, text) for text in ("f", "f (a.py)", "f (:3)", " (a.py:3)", "(a.py:3)", "f (a.py:3", "f (a.py:x)"))):
            self.assertEqual(of_stacks(("forward", [text, ADD], 1)).names, [[ALL, ALL], [text, label], [ADD, ""]])
        self.assertEqual(of_stacks(("forward", [TRAIN, STEP], 1)).names[2], [STEP, ""], "the last one is a kernel, whatever its name looks like")

    def test_what_there_is_no_room_for(self):
        """It is summed up in place, on the page and while stacks are added up: no time is lost."""
        chance = random.Random(5)
        stacks = [(chance.choice(PHASES), [f"f{chance.randrange(9)} (a.py:1)" for _ in range(chance.randrange(5))] + [f"k{chance.randrange(3000)}"], chance.randrange(1, 10_000))
                  for _ in range(20_000)]
        for bounds in ({}, {"most": 500}, {"most": 0}):
            made = of_stacks(*stacks, **bounds)
            if not bounds:
                tree = tree_of(made)
                self.assertEqual(len([1 for box in made.boxes if box[1] >= 0]), MOST_BOXES)
                self.assertLessEqual(len(made.boxes), 2 * MOST_BOXES)
                self.assertTrue(any(path[-1].endswith(" smaller)") for path in tree))
                # The largest ones are there: those that were left out are not larger, at least on average.
                self.assertGreaterEqual(min(sum(box[3:]) for box in made.boxes if box[1] >= 0), max(sum(box[3:]) / box[2] for box in made.boxes if box[1] < 0))
            # Innermost boxes have all of it.
            around = {box[0] for box in made.boxes} if made else set()
            self.assertEqual(sum(sum(box[3:]) for at, box in enumerate(made.boxes) if at not in around) if made else 0,
                             sum(time for *_, time in stacks) if bounds != {"most": 0} else 0)

    def test_deep_stacks(self):
        made = of_stacks(("forward", [f"f{at} (a.py:{at})" for at in range(10_000)] + [ADD], 7), ("backward", [f"f{at} (a.py:{at})" for at in range(5000)] + [ADD], 9))
        deepest = max(tree_of(made), key=len)
        self.assertEqual((len(deepest), deepest[-2:]), (1 + MOST_LEVELS, ("(more frames)", ADD)))
        self.assertEqual(tree_of(made)[deepest], {"forward": 7, "backward": 9})

    def test_long_names(self):
        made = of_stacks(*(("forward", [f"k{at}" + "x" * 500_000], 1) for at in range(40)))
        self.assertLess(max(len(text) for text, _ in made.names), 4200)
        made = of_stacks(*(("forward", [f"k{at}" + "x" * 4000], 1 + at) for at in range(3000)))
        self.assertLess(len(embedded(as_data(made))), 3_000_000)


class Modules(unittest.TestCase):
    def made(self, *rows):
        return icicle(module_boxes(rows), "i", "I", "module_sum.csv")

    def test_modules(self):
        made = self.made(module("Net", "", 100, "Net", forward=40, backward=60), module("Net.blocks.0", "Net", 70, "Block", forward=30, backward=40),
                         module("Net.blocks.0.a", "Net.blocks.0", 50, "Linear", forward=20, recomputation=30), module("[none]", "", 8, optimizer=5, other=3),
                         module("[unattributed]", "", 4, other=4))
        self.assertEqual(tree_of(made), {
            (ALL,): {"forward": 40, "backward": 60, "recomputation": 30, "optimizer": 5, "other": 3, "[unattributed]": 4},
            # A box is not larger than its parent, even if the table says so.
            (ALL, "Net (Net)"): {"forward": 40, "backward": 60, "recomputation": 30}, (ALL, "Net (Net)", "Net.blocks.0 (Block)"): {"forward": 30, "backward": 40, "recomputation": 30},
            (ALL, "Net (Net)", "Net.blocks.0 (Block)", "Net.blocks.0.a (Linear)"): {"forward": 20, "recomputation": 30},
            (ALL, "[none]"): {"optimizer": 5, "other": 3}, (ALL, "[unattributed]"): {"[unattributed]": 4}})
        self.assertEqual([label for _, label in made.names], [ALL, "Net", "blocks.0 Block", "a Linear", "[none]", "[unattributed]"])
        self.assertIsNone(self.made())
        self.assertIsNone(self.made(module("Net", "", 0)))

    def test_tables_that_are_none(self):
        """Modules that call each other in a cycle, or twice, or are called by none; cells that are not numbers."""
        self.assertEqual(tree_of(self.made(module("a", "a", 5), module("b", "c", 5), module("c", "b", 5), module("d", "x", 7), module("d", "", 6), module("", "", 5))),
                         {(ALL,): {"forward": 6}, (ALL, "d"): {"forward": 6}})
        self.assertEqual(tree_of(self.made({**module("a", "", -5), "Backward (ns)": 2.5, "Other (ns)": None, "Class": None, "Parent": None})), {(ALL,): {"backward": 2}, (ALL, "a"): {"backward": 2}})
        self.assertEqual(tree_of(self.made({**module("a", "", 9), "Forward (ns)": None})), {(ALL,): {"[unattributed]": 9}, (ALL, "a"): {"[unattributed]": 9}})

    def test_deep_modules(self):
        made = self.made(*(module(f"m{at}", f"m{at - 1}" if at else "", 7) for at in reversed(range(10_000))))
        self.assertEqual(max(map(len, tree_of(made))), 1 + MOST_LEVELS)


class Files(folders.TemporaryFolder):
    def setUp(self):
        super().setUp()
        folders.write_run(self.folder)
        self.file = self.folder / FILE

    def read(self):
        result = Result(self.folder)
        return list(read_stacks(result)), [problem.removeprefix(str(self.folder) + "/") for problem in result.problems]

    def icicles(self):
        run = page_model([Result(self.folder)], [])["runs"][0]
        embedded(run)
        return {made["id"]: made for section in run["sections"] for made in section["icicles"]}, run["problems"]

    def test_a_run_without_it(self):
        self.assertEqual(self.read(), ([], []))
        folders.write_table(self.folder, "module_sum", [module("Net", "", 5)])
        self.assertEqual([*self.icicles()[0]], ["module-icicle"])
        folders.write_run(self.folder, files=[FILE])
        self.assertEqual(self.read(), ([], [f"{FILE}: missing, though run.json lists it"]))

    def test_a_whole_one(self):
        self.file.write_text(f"forward;{TRAIN};{GEMM} 30\nother;k 7\n", encoding="utf-8")
        self.assertEqual(self.read(), ([(0, [TRAIN, GEMM], 30), (4, ["k"], 7)], []))
        found, problems = self.icicles()
        self.assertEqual(([*found], problems), (["stack-icicle"], []))
        self.assertEqual(sum(found["stack-icicle"]["boxes"][0][3:]), 37)

    def test_lines_that_are_none(self):
        hostile = "</script><img src=x onerror=\"window.hacked=1\">\x1b[31m\u202e"
        self.file.write_bytes(f"forward;{hostile};{hostile} 5\r\nforward;{hostile};{hostile} 5\n".encode() + b"forward;\xff\xfe 6\nforward;a\rb 7\n\n\0\0\n"
                              + b"backward;" + b"x" * (3 << 20) + b" 9\n" + b"forward;" + b"f;" * 10_000 + b"k 8")
        stacks, problems = self.read()
        self.assertEqual([stack.time for stack in stacks], [5, 6, 7, 8])
        self.assertEqual((stacks[1].names, stacks[2].names, len(stacks[3].names)), (["\ufffd\ufffd"], ["a\rb"], 10_001))
        self.assertEqual(problems, [f"{FILE}:1: not a phase, a stack and a time: 4 of 8 lines are left out"])
        found, shown = self.icicles()
        self.assertEqual(len(shown), 1)
        self.assertEqual(sum(found["stack-icicle"]["boxes"][0][3:]), 26)
        self.assertTrue(all(text.isprintable() for name in found["stack-icicle"]["names"] for text in name))
        self.assertNotIn("<", embedded(found))

    def test_files_that_are_none(self):
        for make, why in ((lambda: os.mkfifo(self.file), "not a regular file"), (self.file.mkdir, "not a regular file"), (lambda: self.file.symlink_to(self.file), ""),
                          (lambda: os.truncate(os.open(self.file, os.O_CREAT | os.O_WRONLY), 1 << 40), "far too large: 1099511627776 bytes, at most 134217728 are read")):
            make()
            stacks, problems = self.read()
            self.assertEqual((stacks, problems), ([], [f"{FILE}: {why}"] if why else []))
            self.file.rmdir() if self.file.is_dir() else self.file.unlink()
        self.file.write_bytes(b"x" * (40 << 20))
        self.assertEqual(self.read(), ([], [f"{FILE}:1: not a phase, a stack and a time: 1 of 1 lines are left out"]))
        self.file.write_bytes(b"\n" * (1 << 20))
        self.assertEqual(len(self.read()[1]), 1)

    def test_bytes_changed_at_random(self):
        chance = random.Random(11)
        whole = "".join(f"{chance.choice(PHASES)};" + "".join(f"f{chance.randrange(4)} (/a/b.py:{chance.randrange(9)});" for _ in range(chance.randrange(6)))
                        + f"void k<{chance.randrange(9)}>(int, char) {chance.randrange(10**9)}\n" for _ in range(60)).encode()
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(chance.choice((1, 5, 100))):
                at = chance.randrange(len(data))
                data[at:at + chance.choice((0, 1, 1, 1, 40))] = chance.choice((b"", b";", b" ", b"\n", b"\0", b"\xff", b"-1", b"9" * 30, bytes([chance.randrange(256)])))
            self.file.write_bytes(data)
            stacks, _ = self.read()
            made = icicle(stack_boxes(stacks), "i", "I", FILE)
            if made:
                tree_of(made)
                folders.unpacked(embedded(as_data(made)))
                self.assertEqual(sum(made.boxes[0][3:]), sum(stack.time for stack in stacks))

    def test_many_stacks(self):
        """More boxes than are held: 300,000 kernels, a fifth of them below 21 frames."""
        frames = ";".join(f"Module._call_impl (/usr/lib/python3/dist-packages/torch/nn/modules/module.py:{at})" for at in range(20))
        with open(self.file, "w", encoding="utf-8") as file:
            file.writelines(f"forward;f{at % 50} (a.py:{at % 50});{frames};k{at} {1 + at % 7}\n" for at in range(60_000))
            file.writelines(f"forward;f{at % 50} (a.py:{at % 50});k{at} 1\n" for at in range(240_000))
        start = time.process_time()
        found, problems = self.icicles()
        print(f"{self.file.stat().st_size / 1e6:.0f} MB of stacks: {time.process_time() - start:.1f} s")
        self.assertEqual(problems, [])
        self.assertEqual(sum(found["stack-icicle"]["boxes"][0][3:]), sum(1 + at % 7 for at in range(60_000)) + 240_000)


if __name__ == "__main__":
    unittest.main()
