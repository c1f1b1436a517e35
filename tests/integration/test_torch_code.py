#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Kernels by operator, module and line, for a real PyTorch on the host (Debian's python3-torch) with launches on the simulated CUDA
(torch_model.py), and the FLOPs of its operators (torch_operators.py)."""

import collections
import json
import pathlib
import subprocess
import sys
import unittest

injectctl = sys.argv.pop(4)

import simulated  # noqa: E402
import timeline  # noqa: E402
from test_torch_steps import PYTHON  # noqa: E402
from timeline import ns  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = HERE / "torch_model.py"
MODULES = 2 + 3 * 2 + 2  # calls of Layer per iteration


def line_of(marker):
    """The line of torch_model.py that ends with that comment."""
    return next(number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if line.endswith(f"# {marker}"))


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class Code(simulated.SimulatedTest):
    def train(self, pattern, check=True, code=0, **options):
        given = {"WINDOW": "iter:30+4", "LOG": "debug", **options}
        # On a busy machine iterations are found late, and so the window comes late.
        steps = "400" if pattern in ("plain", "graphed", "callables") else "60"
        done = self.script("", command=[PYTHON, str(PROGRAM), str(simulated.programs / "script_training.so"), pattern, steps], timeout=120,
                           check=check, **given)
        self.assertEqual(done.code, code, done.stderr)
        return done.out

    def table(self, out, name, key):
        rows = out.rows(name)
        self.assertEqual(len({row[key] for row in rows}), len(rows), f"{name}: rows of one name")
        return {row[key]: row for row in rows}

    def lines(self, out):
        """Rows of the program's own lines."""
        return {int(row["Line"]): row for row in out.rows("line_sum.csv") if row["File"] == str(PROGRAM) and row["Line"]}

    def check_sums(self, out):
        """The rows of each table add up to all kernels, and a row's phases to its total."""
        kernels = sum(int(row["Total Time (ns)"]) for row in out.rows("cuda_gpu_kern_sum.csv"))
        for name in ("op_sum.csv", "module_sum.csv", "line_sum.csv"):
            rows = out.rows(name)
            self.assertEqual(sum(int(row["Self Time (ns)"]) for row in rows), kernels, name)
            for row in rows:
                phases = sum(int(row[f"{phase} (ns)"]) for phase in ("Forward", "Backward", "Recomputation", "Optimizer", "Other"))
                self.assertEqual(phases, int(row["Total Time (ns)"]), row)
        self.assertEqual(sum(int(row["User Code Time (ns)"]) for row in out.rows("line_sum.csv")), kernels)

    def check_modules(self, out, iterations=4, recomputed=0):
        modules = self.table(out, "module_sum.csv", "Module")
        expected = {"Net": ("Net", 0, MODULES * 2 + 6 * recomputed), "Net.stem": ("Sequential", 1, 4), "Net.stem.0": ("Layer", 2, 2), "Net.stem.1": ("Layer", 2, 2),
                    "Net.heads.one": ("Layer", 1, 4)}
        for block in range(3):
            expected[f"Net.blocks.{block}"] = ("Block", 1, 4 + 2 * recomputed)
            expected[f"Net.blocks.{block}.a"] = ("Layer", 2, 2 + recomputed)
            expected[f"Net.blocks.{block}.b"] = ("Layer", 2, 2 + recomputed)
        found = {path: (row["Class"], int(row["Depth"]), int(row["Total Instances"])) for path, row in modules.items() if not path.startswith("[")}
        self.assertEqual(found, {path: (type_, depth, count * iterations) for path, (type_, depth, count) in expected.items()})
        self.assertEqual(modules["Net.blocks.1.a"]["Parent"], "Net.blocks.1")

    def check_plain(self, out, zero):
        """Checks all of "plain"; `zero` marks the first line of an iteration. Returns the program's lines."""
        self.check_sums(out)
        self.check_modules(out)
        operators = self.table(out, "op_sum.csv", "Operator")
        self.assertEqual({name: int(row["Self Instances"]) for name, row in operators.items() if row["Self Instances"] != "0"},
                         {"Work": MODULES * 4, "WorkBackward": MODULES * 4, "[none]": 8})
        lines = self.lines(out)
        for marker, count, phase in (("forward", MODULES, "Forward"), ("backward", MODULES, "Backward"), ("optimizer", 1, "Optimizer"), (zero, 1, "Other")):
            row = lines[line_of(marker)]
            self.assertEqual((int(row["Self Instances"]), row["In Library"]), (count * 4, "0"), marker)
            self.assertEqual(row[f"{phase} (ns)"], row["Self Time (ns)"], marker)
            self.assertEqual(row["User Code Time (ns)"], row["Self Time (ns)"], marker)
        return lines

    def test_operators_modules_and_lines(self):
        out = self.train("plain")
        lines = self.check_plain(out, "zero")
        self.assertEqual(lines[line_of("forward")]["Function"].rpartition(".")[2], "forward")
        self.assertEqual(int(lines[line_of("twice")]["Total Instances"]), 2 * 4)
        # Named iterations are in no window: four iterations were requested, and CUPTI saw two more.
        self.assertEqual(len({row["Iteration"] for row in out.rows("iteration_sum.csv") if row["Complete"] == "1"}), 4)
        self.assertEqual(out.lost(), {})

    def test_recomputation(self):
        out = self.train("checkpoint")
        self.check_sums(out)
        self.check_modules(out, recomputed=1)
        modules = self.table(out, "module_sum.csv", "Module")
        layer = modules["Net.blocks.2.b"]
        self.assertTrue(int(layer["Forward (ns)"]) and int(layer["Backward (ns)"]) and int(layer["Recomputation (ns)"]), layer)

    def test_recomputation_without_modules(self):
        """It is what computes with gradients enabled; a backward pass that calls another function does not."""
        out = self.train("again")
        self.check_sums(out)
        self.assertEqual(self.instances(out), {"Again.stem": 8, "Again": 4 * 10, "[none]": 8})
        lines = self.lines(out)
        again = {"Forward", "Recomputation"}
        for marker, phases in (("reentrant", again), ("saved tensors", again), ("enabled", again), ("called", {"Backward"})):
            row = lines[line_of(marker)]
            found = {phase for phase in ("Forward", "Backward", "Recomputation", "Optimizer", "Other") if row[f"{phase} (ns)"] != "0"}
            self.assertEqual((found, int(row["Total Instances"])), (phases, 4 * len(phases)), marker)

    def instances(self, out):
        return {path: int(row["Self Instances"]) for path, row in self.table(out, "module_sum.csv", "Module").items() if row["Self Instances"] != "0"}

    def test_iterations_that_alternate(self):
        """Two iterations are named, and differ in what launched the same kernels, so the launcher is unknown for these."""
        out = self.train("alternating")
        self.check_sums(out)
        # The copy's kernel "zero" and the optimizer's are outside of modules.
        self.assertEqual(self.instances(out), {"Alternating.stem": 8, "[unattributed]": 8, "[none]": 8})

    def test_modules_that_others_call(self):
        out = self.train("shared")
        self.check_sums(out)
        self.assertEqual(self.instances(out), {"Shared.stem": 8, "Shared.query": 8, "Shared.block.a": 8, "Shared.block.b": 16, "Shared.functional": 24,
                                               "[none]": 8})
        modules = self.table(out, "module_sum.csv", "Module")
        # Called by the block, and by the module that contains it.
        self.assertEqual([modules["Shared.block.b"][column] for column in ("Class", "Depth", "Parent")], ["Layer", "", ""])
        self.assertEqual([modules["Shared.query"][column] for column in ("Depth", "Parent")], ["1", "Shared"])

    def test_models_of_one_class(self):
        out = self.train("twins")
        self.check_sums(out)
        self.assertEqual(self.instances(out), {"Twins.student.0.layer": 12, "Twins.teacher.0.layer": 12, "[none]": 8})

    def test_deep_stack(self):
        """Modules beyond the innermost frames are unknown, and so is what is inside them."""
        out = self.train("deep")
        self.check_sums(out)
        self.assertEqual(self.instances(out), {"Deep.stem": 8, "[unattributed]": 8, "[none]": 8})

    def test_iteration_that_begins_in_an_operator(self):
        """The first named iteration lacks that operator; its backward pass, on a thread of autograd's, matches that of the second one."""
        out = self.train("inside")
        self.check_sums(out)
        self.check_modules(out)
        self.assertEqual(self.instances(out)["[none]"], 4)
        self.assertNotIn("[unattributed]", self.instances(out))
        # That thread has no frames of the program's: those of the forward pass count.
        self.assertEqual(int(self.lines(out)[line_of("inside forward")]["Total Instances"]), MODULES * 2 * 4)

    def test_iterations_that_differ_and_begin_in_an_operator(self):
        """What only the first named iteration has launched may be in that operator: it is not said to be in none."""
        out = self.train("varying")
        self.check_sums(out)
        operators = self.table(out, "op_sum.csv", "Operator")
        found = {name: int(row["Self Instances"]) for name, row in operators.items() if row["Self Instances"] != "0"}
        self.assertEqual(found.pop("[none]"), 4)  # the optimizer's
        self.assertEqual(sum(found.values()), 2 * 3 + 2 * 7)
        self.assertGreaterEqual(found["Several"], 2 * 3)
        self.assertEqual(found.keys() - {"Several", "[unattributed]"}, set())

    def test_backward_pass_in_one_function(self):
        out = self.train("compiled_backward")
        self.check_sums(out)
        row = self.lines(out)[line_of("compiled backward")]
        self.assertEqual((int(row["Total Instances"]), row["Backward (ns)"]), (4, row["Total Time (ns)"]))
        # Whose backward pass it is can't be told.
        self.assertEqual(self.instances(out)["[unattributed]"], 4)

    def test_optimizer_in_the_backward_pass(self):
        out = self.train("steps_in_backward")
        self.check_sums(out)
        lines = self.lines(out)
        row = lines[line_of("optimizer")]
        self.assertGreater(int(row["Self Instances"]), 4 * 4)
        self.assertEqual(int(row["Optimizer (ns)"]), int(row["Total Time (ns)"]))

    def test_closure_of_an_optimizer(self):
        """Its passes are inside the optimizer's step, but are not attributed to it."""
        out = self.train("closure")
        self.check_sums(out)
        self.check_modules(out)
        lines = self.lines(out)
        for marker, phase in (("forward", "Forward"), ("backward", "Backward"), ("optimizer", "Optimizer")):
            row = lines[line_of(marker)]
            self.assertEqual(row[f"{phase} (ns)"], row["Total Time (ns)"], marker)

    def test_iterations_that_differ(self):
        """Kernels that are in none of the named iterations have no place; those before and after them do."""
        out = self.train("report")
        self.check_sums(out)
        self.check_modules(out)
        operators = self.table(out, "op_sum.csv", "Operator")
        self.assertEqual(int(operators["[unattributed]"]["Self Instances"]), 3)

    def test_graph_of_an_iteration(self):
        """It was captured before naming began, and its kernels have the places where they were captured."""
        out = self.train("graphed")
        lines = self.check_plain(out, "graphed zero")
        self.assertNotIn(line_of("replay"), lines)
        self.assertEqual(out.lost(), {})

    def test_graphs_of_a_module(self):
        """Operators are those of the launch and of the capture; kernels whose capture no hook has seen have the place of the graph's
        launch."""
        out = self.train("callables")
        self.check_sums(out)
        modules = self.table(out, "module_sum.csv", "Module")
        self.assertEqual({path: (int(row["Self Instances"]), bool(int(row["Forward (ns)"])), bool(int(row["Backward (ns)"])))
                          for path, row in modules.items() if not path.startswith("[")},
                         {"Sequential": (0, True, True), "Sequential.0": (8, True, True), "Sequential.2": (8, True, True),
                          "Sequential.1": (4, False, True), "Block": (0, True, True), "Block.a": (8, True, True), "Block.b": (8, True, True)})
        operators = self.table(out, "op_sum.csv", "Operator")
        self.assertEqual({name: int(row["Self Instances"]) for name, row in operators.items() if row["Self Instances"] != "0"},
                         {"Work": 4 * 4, "WorkBackward": 4 * 4, "ReplayBackward": 4, "[none]": 12})
        self.assertEqual((int(operators["Replay"]["Total Instances"]), int(operators["ReplayBackward"]["Total Instances"])), (2 * 4, 3 * 4))
        lines = self.lines(out)
        for marker, count in (("forward", 4), ("backward", 4), ("replay backward", 1), ("compiled", 1), ("callables zero", 1)):
            self.assertEqual(int(lines[line_of(marker)]["Self Instances"]), count * 4, marker)
        self.assertEqual(out.lost(), {})

    def idle_by_line(self, out):
        """Idle time of torch_model.py's lines, and of `[unattributed]`."""
        rows = out.rows("gap_line_sum.csv")
        idle = sum(int(row["Idle (ns)"]) for row in out.rows("window_sum.csv") if row["Device"] != "all")
        self.assertEqual(sum(int(row["Idle Time (ns)"]) for row in rows), idle)
        lines = {int(row["Line"]): int(row["Idle Time (ns)"]) for row in rows if row["File"] == str(PROGRAM)}
        return lines, sum(int(row["Idle Time (ns)"]) for row in rows if row["Function"] == "[unattributed]")

    def test_lines_that_the_device_waits_for(self):
        """By what the main thread is doing if it sleeps or computes, by the waiting call otherwise. If our thread had no CPU while the
        iterations were named, the time has no line, but never a wrong one."""
        in_compute = range(line_of("function that computes"), line_of("computes") + 1)
        for attempt in range(4):
            out = self.train("gaps")
            self.check_sums(out)
            lines, unknown = self.idle_by_line(out)
            sleeps = lines.get(line_of("sleeps"), 0)
            computes = sum(lines.get(line, 0) for line in (*in_compute, line_of("caller of what computes")))
            # Four iterations of 15 and 12 ms.
            self.assertGreater(sleeps + computes + unknown, 4 * 24_000_000)
            if min(sleeps, computes) > 4 * 10_000_000:
                break
        else:
            self.fail(f"in {attempt + 1} runs what sleeps and computes was not named: {lines}, {unknown}")
        own = {int(row["Line"]): int(row["Own Work (ns)"]) for row in out.rows("gap_line_sum.csv") if row["File"] == str(PROGRAM)}
        self.assertGreater(sum(own.get(line, 0) for line in (*in_compute, line_of("caller of what computes"))), 4 * 10_000_000)
        self.assertEqual([own.get(line_of(marker), 0) for marker in ("sleeps", "reads", "waits")], [0, 0, 0])
        waits = {int(row["Line"]): int(row["Idle: Synchronization (ns)"]) for row in out.rows("gap_line_sum.csv") if row["File"] == str(PROGRAM)}
        self.assertGreater(waits.get(line_of("reads"), 0) + waits.get(line_of("waits"), 0), 0)
        copies = {int(row["Line"]): int(row["User Code Copies"]) for row in out.rows("line_sum.csv") if row["File"] == str(PROGRAM)}
        self.assertEqual(copies[line_of("reads")], 4)
        stacks = dict(line.rpartition(" ")[::2] for line in (out.path / "gpu_stacks.folded").read_text().splitlines())
        kernels = sum(int(row["Total Time (ns)"]) for row in out.rows("cuda_gpu_kern_sum.csv"))
        self.assertEqual(sum(map(int, stacks.values())), kernels)
        self.assertTrue(any(stack.startswith("optimizer;") and f"({PROGRAM}:{line_of('optimizer')});multi_tensor_apply_update" in stack
                            for stack in stacks), stacks)

    def test_timeline(self):
        """Rows of lines, modules and operators, by the window's own times; modules are linked to their backward pass."""
        out = self.train("plain", TRACE="csv,chrome")
        whole = timeline.check(self, out)
        names = whole.names("thread_name")
        rows = collections.defaultdict(list)
        for box in whole.spans("place"):
            rows[names[box["pid"], box["tid"]].partition(" ")[0]].append(box)
        modules = collections.Counter((box["name"], box["args"]["launches"]) for box in rows["modules"])
        layers = {"0 Layer": 1, "1 Layer": 1, "a Layer": 3, "b Layer": 3}
        expected = {(f"{name}{passes}", 1): 4 * count for name, count in layers.items() for passes in ("", " (backward)")}
        # Twice, one after the other.
        expected |= {(f"heads.one Layer{passes}", 2): 4 for passes in ("", " (backward)")}
        expected |= {(f"{name}{passes}", launches): 4 for passes in ("", " (backward)")
                     for name, launches in (("Net Net", MODULES), ("stem Sequential", 2), *((f"blocks.{at} Block", 2) for at in range(3)))}
        self.assertEqual(modules, expected)
        forward = f"torch_model.py:{line_of('forward')} "
        self.assertEqual(sum(box["args"]["launches"] for box in rows["lines"] if box["name"].startswith(forward) and box["args"]["phase"] == "forward"), 4 * MODULES)
        self.assertEqual(sum(box["args"]["launches"] for box in rows["operators"] if box["name"] == "Work"), 4 * MODULES)
        starts, ends = ({event["id"]: event for event in whole.phase(phase, "fwdbwd")} for phase in "sf")
        self.assertEqual((len(starts), set(starts)), (4 * (sum(layers.values()) + 1), set(ends)))

        def innermost(event):
            inside = [box for box in rows["modules"] if box["tid"] == event["tid"] and ns(box["ts"]) <= ns(event["ts"]) <= ns(box["ts"]) + ns(box["dur"])]
            return min(inside, key=lambda box: box["dur"])["name"]

        for number, start in starts.items():
            self.assertEqual(f"{innermost(start)} (backward)", innermost(ends[number]))
        # Each launch of the window that has a place is on the rows, at its time.
        begins = {ns(call["ts"]) for call in whole.spans("cuda_runtime", "cuda_driver") if "correlation" in call.get("args", {})}
        self.assertLessEqual({ns(box["ts"]) for box in whole.spans("place")}, begins)

    def test_program_that_ends_meanwhile(self):
        """One iteration was named, which is enough; a child forked meanwhile is left alone."""
        for pattern, code in (("ends", 3), ("forks", 0), ("stops", 0)):
            with self.subTest(pattern=pattern):
                out = self.train(pattern, check=False, code=code)
                self.check_sums(out)
                self.check_modules(out)

    def test_program_that_is_killed_meanwhile(self):
        """The window is recovered; named work is not, and is in none of its values."""
        out = self.train("killed", check=False, code=-9)
        done = subprocess.run([injectctl, "recover", out.path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(out.run["state"], "recovered")
        self.assertFalse((out.path / "op_sum.csv").exists())
        kernels = out.kernels()
        self.assertEqual((kernels["gemm"], kernels["gemm_gradient"], kernels["zero"]), (MODULES * 4, MODULES * 4, 4))
        self.assertEqual(out.run["windows"][0]["reason"], "iterations 30-33 (iter:30+4)")
        self.assertEqual(out.lost(), {})

    def test_switched_off(self):
        for hooks in ("cudart", "cudart,cublas"):
            out = self.train("plain", HOOKS=hooks)
            self.assertFalse((out.path / "op_sum.csv").exists())
        out = self.train("plain", HOOKS="cudart,torch")
        self.check_sums(out)
        self.assertEqual({row["Module"] for row in out.rows("module_sum.csv")}, {"[none]", "[unattributed]"})
        out = self.train("plain", HOOKS="cudart,python")
        # Without operators, the origin of the backward pass is unknown.
        self.assertEqual(int(self.table(out, "module_sum.csv", "Module")["Net.blocks.1.a"]["Total Instances"]), 4)
        self.assertEqual([row["Operator"] for row in out.rows("op_sum.csv")], ["[none]"])


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class Graphs(simulated.SimulatedTest):
    """Kernels of graphs by the lines that captured them (torch_graphs.py)."""

    def check(self, seed):
        done = self.script("", command=[PYTHON, str(HERE / "torch_graphs.py"), str(simulated.programs / "script_training.so"), str(seed), "800",
                                        "truth.json"], timeout=120, WINDOW="iter:30+12", LOG="debug")
        self.assertEqual(done.out.lost(), {})
        truth = json.loads((done.work / "truth.json").read_text())
        marks = {int(row["GridXYZ"].split()[0]): int(row["Instances"]) for row in done.out.rows("cuda_gpu_kern_gb_sum.csv") if row["Name"].startswith("mark")}
        self.assertEqual((len(marks), set(marks.values())), (12, {1}))
        expected = collections.Counter()
        for mark in marks:
            expected += collections.Counter(dict(map(tuple, truth[mark - 1])))
        unsure = expected.pop(None, 0)
        expected.pop(0, 0)
        found = collections.Counter({int(row["Line"]): int(row["Self Instances"]) for row in done.out.rows("line_sum.csv")
                                     if row["File"] == str(done.work / "sites.py") and row["Line"]})
        # No kernel has a wrong place, and only those that can't be determined lack theirs: they have the place of the graph's launch.
        self.assertEqual(expected - found, {})
        self.assertLessEqual((found - expected).total(), unsure, found - expected)
        return expected.total(), unsure

    def test_generated(self):
        known = unsure = 0
        for seed in range(self.count):
            with self.subTest(seed=seed):
                sums = self.check(seed)
                known, unsure = known + sums[0], unsure + sums[1]
        self.assertGreater(known, unsure)

    count = 4


@unittest.skipIf(PYTHON is None, "no PyTorch for any Python here (python3-torch)")
class Operators(simulated.SimulatedTest):
    """FLOPs from the sizes of operators' inputs, compared with PyTorch's own counter. PyTorch before 2.3 (Debian's) lacks the functions
    used to test how sizes are read: FLOPs are unknown there, and nothing else is wrong."""

    ITERATIONS = 4

    def run_pattern(self, pattern):
        done = self.script("", command=[PYTHON, str(HERE / "torch_operators.py"), str(simulated.programs / "script_training.so"), pattern, "400",
                                        "counts.json"], timeout=120, WINDOW=f"iter:30+{self.ITERATIONS}", LOG="debug", SUMMARY="stderr")
        self.assertEqual(done.out.lost(), {})
        truth = json.loads((done.work / "counts.json").read_text())
        known = truth["torch"] >= [2, 3]
        self.assertIn("PyTorch reports its operators' inputs" if known else "are not asked for their inputs", done.stderr)
        if not known:
            truth["counts"] = {}
        rows = {row["Operator"]: row for row in done.out.rows("op_sum.csv")}
        self.assertTrue(any(name.startswith("aten::") for name in rows), rows.keys())
        return done, rows, truth

    def test_against_the_counter(self):
        for pattern in ("plain", "bfloat16", "grouped"):
            with self.subTest(pattern=pattern):
                done, rows, truth = self.run_pattern(pattern)
                expected = {name: flops * self.ITERATIONS for name, flops in truth["counts"].items()}
                found = {name: int(row["FLOPs"]) for name, row in rows.items() if row["FLOPs"] != "0"}
                self.assertEqual({name: found.get(name) for name in expected}, expected)
                self.assertEqual(bool(found), bool(expected))
                for name in expected:
                    self.assertEqual(rows[name]["FLOP Time (ns)"], rows[name]["Total Time (ns)"], name)
                self.assertEqual("model FLOPs" in done.stderr, bool(expected))

    def test_kernels_that_do_not_show_their_sizes(self):
        _, rows, _ = self.run_pattern("growing")
        self.assertEqual({row["FLOPs"] for row in rows.values()}, {"0"})

    def test_sizes_that_are_not_what_they_seem(self):
        """Sparse, nested and packed tensors, tensors that stand for others, windows of attention."""
        version = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=True).stdout
        if [int(part) for part in version.split(".")[:2]] < [2, 3]:
            self.skipTest(f"PyTorch {version.strip()} has not all of these")
        _, rows, truth = self.run_pattern("strange")
        self.assertEqual({name: int(rows[name]["FLOPs"]) for name in truth["counts"]},
                         {name: flops * self.ITERATIONS for name, flops in truth["counts"].items()})


if __name__ == "__main__":
    simulated.main()
