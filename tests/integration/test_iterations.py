#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Windows of training iterations: which of them are profiled, what their tables contain, and that nothing else changes.

Programs are lists of steps; the library has to find out what a step is. Its windows are compared with those that the same program opens
itself, through the profiler API, at the same steps.

usage: test_iterations.py LIBRARY PROGRAMS SIMULATION

Not tested here: the window that `auto` opens by the clock if no iterations are found. It opens 20 s after the initialisation of CUDA, which
no option shortens.
"""

import random
import re
import statistics

import simulated

NEVER_OPENED = "the program ended before a window opened"
PROFILER_CALLS = ("cudaProfilerStart", "cudaProfilerStop")
GRAPHS = "CUPTI is not finalized because the program uses CUDA graphs"

# A program trains for minutes before its window. These train for milliseconds: they pause once there is enough to recognise, and again
# after the next steps, which locate the program, and for CUPTI to be attached: until our own thread has looked, however late on a busy
# machine.
PAUSE = "sleep:40 looks:2"
PAUSES = (11, 13, 18)
STEPS = 32
START, COUNT = 20, 5

# Four of these are too few for a pattern of their own, in case the library looks during the first step.
MICRO_BATCH = "kernel:embed:1 kernel:attend:1 kernel:loss:1 kernel:loss_backward:1 kernel:embed_backward:1"
PLAIN = "copy:h2d:64 kernel:forward:3 kernel:backward:2 kernel:adam:1"
SYNCED = PLAIN + " sync"
LENGTHS = [3, *random.Random(7).choices(range(2, 10), k=STEPS - 1)]


class Program:
    """`step(i)`: the words of step i, or the same words for each. `after`: {step: work between it and the next}."""

    def __init__(self, step, setup="sync", tail="sync", program="cuda", after=None, steps=STEPS):
        self.step = step if callable(step) else lambda _: step
        self.setup, self.tail, self.program = setup, tail, program
        self.after, self.steps = after or {}, steps

    def words(self, api=None, pauses=(), begin="start", end="stop"):
        """`api`: (first, one after the last) of the steps between `begin` and `end`."""
        words = [self.setup]
        for i in range(self.steps):
            if i in pauses:
                words.append(PAUSE)
            if api and i == api[0]:
                words.append(begin)
            words.append(self.step(i))
            if api and i == api[1] - 1:
                words.append(end)
            words.append(self.after.get(i, ""))
        words.append(self.tail)
        return " ".join(words)


def variable_step(i):
    """The number of launches, their grids and the copy depend on the sequence's length."""
    length = LENGTHS[i]
    cells = " ".join(f"kernel:cell:1:0:{1 + j}" for j in range(length))
    back = " ".join(f"kernel:cell_backward:1:0:{length - j}" for j in range(length))
    return f"copy:h2d:{64 * length} kernel:embed:1:0:{length} {cells} kernel:loss:1 {back} kernel:adam:2"


def threads_step(i):
    """The main thread launches the forward pass, another one the backward pass."""
    return f"copy:h2d:64 kernel:forward:4 signal:f{i} wait:b{i} kernel:adam:2"


def skipped_step(i):
    """A loss scaler that sometimes skips an optimizer step: it checks the gradients first."""
    return "kernel:forward:3 kernel:backward:2 kernel:multi_tensor_apply_scale:1 copy:d2h:4" + (
        "" if i % 9 == 4 else " kernel:adam:3")


BACKWARD = "background [ " + " ".join(
    f"wait:f{i} kernel:backward:3 kernel:backward_weights:2 signal:b{i}" for i in range(STEPS)) + " ]"
GRAPH = "capture:1 kernel:forward:3:1 kernel:backward:2:1 kernel:adam:1:1 end_capture:1:step sync"

PROGRAMS = {
    "fixed steps": Program(PLAIN + " copy:d2h:4"),
    "no optimizer that is known by its name": Program(
        "copy:h2d:64 kernel:conv:1 kernel:norm:1 kernel:relu:1 kernel:conv_backward:1 kernel:norm_backward:1 "
        "kernel:subtract:1"),
    "gradient accumulation": Program(f"loop:4 [ copy:h2d:64 {MICRO_BATCH} ] kernel:clip:1 kernel:adam:2"),
    "variable length": Program(variable_step),
    "loss scaling": Program(skipped_step),
    "two optimizers": Program("copy:h2d:64 kernel:generate:2 kernel:judge:2 kernel:judge_backward:2 kernel:adam:1:0:2 "
                              "kernel:generate:2 kernel:judge:2 kernel:generate_backward:3 kernel:adam:1:0:3"),
    "libraries": Program("copy:h2d:64:1 gemm kernel:relu:1 sgemm gemm kernel:adam:1 stream_sync:1"),
    "streams": Program("copy:h2d:4096:1 kernel:forward:2:1 memset:64:2 kernel:backward:2:2 kernel:reduce:1:3 stream_sync:3 "
                       "kernel:adam:1:1"),
    "tuned at the start": Program(PLAIN, setup="sync kernels:try:20 sync kernels:try:20 kernel:fill:4 copy:h2d:100000"),
    "a step runs a runtime kernel and ends with a synchronization": Program(
        "runtime_kernel:forward:3 kernel:backward:2 kernel:sgd:1 sync"),
    "two threads": Program(threads_step, setup="sync " + BACKWARD, tail="join sync"),
    "graphs": Program("copy:h2d:64:1 graph:step:1 stream_sync:1", setup=GRAPH),
    "a graph and an optimizer outside of it": Program("copy:h2d:64:1 graph:step:1 kernel:adam:2:1 stream_sync:1",
                                                      setup=GRAPH.replace("kernel:adam:1:1 ", "")),
    "driver API": Program("copy:64 kernel:forward:3 kernel:backward:2 kernel:adam:1 sync", setup="init sync",
                          program="driver"),
    "driver API, gradient accumulation": Program(f"loop:4 [ copy:64 {MICRO_BATCH} ] kernel:clip:1 kernel:sgd:2",
                                                 setup="init sync", program="driver"),
}


class IterationTest(simulated.SimulatedTest):
    def train(self, program, pauses=PAUSES, **options):
        return self.script(program.words(pauses=pauses), program=program.program, **options)

    def iterations(self, out):
        """The rows of iteration_sum.csv, all devices."""
        return [row for row in out.rows("iteration_sum.csv") if row["Device"] == "all"]

    def numbers(self, out):
        return [int(row["Iteration"]) for row in self.iterations(out) if row["Label"] == "iteration"]

    def in_window(self, out):
        calls = {name: count for name, count in out.calls().items() if name not in PROFILER_CALLS}
        threads = sorted(int(row["Instances"]) for row in out.rows("thread_kern_sum.csv"))
        return {"kernels": out.kernels(), "operations": out.operations(), "calls": calls, "libraries": out.libraries(),
                "windows": out.window_kernels(), "threads": threads, "lost": out.lost()}

    def ran(self, done, kernel="adam"):
        """{start: number of earlier ones} for the kernels of that name which ran on the device."""
        starts = sorted(start for _, name, _, _, _, start, _ in done.device_work() if kernel in name)
        return {start: i for i, start in enumerate(starts)}

    def check_numbers(self, done, kernel="adam"):
        """Each row has the kernels of the step with its number, whichever steps the program has really executed."""
        out = done.out
        base = out.run["time_zero"]["clock_monotonic_ns"]
        ran = self.ran(done, kernel)
        found = {}
        for row in out.rows("cuda_gpu_trace.csv"):
            if kernel in row["Name"]:
                start = int(row["Start (ns)"])
                found.setdefault(ran[start + base], []).append(start)
        rows = [row for row in self.iterations(out) if row["Label"] == "iteration"]
        self.assertEqual(sorted(found), [int(row["Iteration"]) for row in rows])
        for row in rows:
            begin, duration = int(row["Start (ns)"]), int(row["Duration (ns)"])
            for start in found[int(row["Iteration"])]:
                # Steps end with a pause or a synchronization, so that devices do not lag behind.
                self.assertTrue(begin <= start <= begin + duration, row)


class SameAsTheProfilerApi(IterationTest):
    def check(self, name, start=START, count=COUNT):
        program = PROGRAMS[name]
        done = self.train(program, WINDOW=f"iter:{start}+{count}")
        self.assertEqual([line for line in done.warnings() if not line.startswith(GRAPHS)], [])
        calls = self.script(program.words(api=(start, start + count)), program=program.program, WINDOW="api")
        self.assertEqual(self.in_window(done.out), self.in_window(calls.out))
        self.assertEqual(done.out.reasons(), [f"iterations {start}-{start + count - 1} (iter:{start}+{count})"])
        self.assertEqual(self.numbers(done.out), list(range(start, start + count)))
        rows = self.iterations(done.out)
        self.assertEqual({(row["Label"], row["Complete"]) for row in rows}, {("iteration", "1")})
        # By the bare program, without the pauses.
        alone = self.script(program.words(), program=program.program, preload=False, check=False)
        self.assertEqual((done.code, done.stdout), (alone.code, alone.stdout))
        found = done.out.run["iterations"]
        self.assertEqual(found["source"], "callbacks" if program.program == "driver" else "hooks")


def same_as_the_profiler_api(name):
    return lambda self: self.check(name)


for title in PROGRAMS:
    setattr(SameAsTheProfilerApi, "test_" + title.replace(" ", "_").replace(",", ""), same_as_the_profiler_api(title))


class Windows(IterationTest):
    def test_right_after_a_pause(self):
        """A window that begins with the step after a pause."""
        done = self.train(Program(SYNCED), WINDOW="iter:18+2")
        self.assertEqual(self.numbers(done.out), [18, 19])
        self.check_numbers(done)

    def test_again_and_again(self):
        program = Program(SYNCED, steps=52)
        pauses = (*PAUSES, 24, 27, 34, 37, 44, 47)
        for window, first in (("iter:20+3/10", (20, 30, 40, 50)), ("iter:20+3/10x2", (20, 30))):
            with self.subTest(window):
                done = self.train(program, pauses=pauses, WINDOW=window)
                numbers = [[begin, begin + 1, begin + 2] for begin in first]
                if first[-1] == 50:
                    numbers[-1].pop()  # there are 52
                self.assertEqual(self.numbers(done.out), [number for window in numbers for number in window])
                self.check_numbers(done)
                self.assertEqual(done.out.window_kernels(), [6 * len(window) for window in numbers])
                self.assertEqual([int(row["Window"]) for row in self.iterations(done.out)],
                                 [i + 1 for i, window in enumerate(numbers) for _ in window])
                self.assertEqual({row["Complete"] for row in self.iterations(done.out)}, {"1"})
                self.assertEqual(done.out.reasons(), [f"iterations {begin}-{begin + 2} ({window})" for begin in first])
                self.assertEqual((done.warnings(), done.out.lost()), ([], {}))
                # They are closer together than a second.
                self.assertLessEqual(done.out.run["overhead"]["attachments"], 2 + 2 * simulated.pauses(done.out.run))

    def test_the_profilers_own_share(self):
        """Steps outside the window are known, so the time that the window adds to a step is measured."""
        done = self.train(Program(SYNCED, steps=52), WINDOW="iter:20+10")
        row = next(row for row in done.out.rows("window_sum.csv") if row["Device"] == "0")
        low, high = float(row["Profiler Overhead Low (%)"]), float(row["Profiler Overhead High (%)"])
        self.assertTrue(low <= high < 100, row)
        share = float(row["Profiler Overhead (%)"] or 0)
        # It is shown where it is visible, and only there; values from -0.05 to 0.05 are printed alike.
        if abs(low) > 0.05:
            self.assertEqual(row["Profiler Overhead (%)"] != "", low > 0, row)
        self.assertTrue(share == 0 or low - 0.051 <= share <= high + 0.051, row)
        if row["Utilization w/o Overhead (%)"]:
            times = [int(step["Duration (ns)"]) for step in done.out.rows("step_times.csv")]
            inside = [int(step["Duration (ns)"]) for step in self.iterations(done.out)]
            without, within = ([one for one in steps if one <= 10 * statistics.median(steps)] for steps in (times, inside))
            added = max(0, sum(within) - len(within) * statistics.fmean(without))
            left = int(row["Device Time (ns)"]) - added
            self.assertAlmostEqual(int(row["Device Time w/o Overhead (ns)"]) / left, 1, delta=1e-5)
            self.assertAlmostEqual(float(row["Utilization w/o Overhead (%)"]), 100 * int(row["Kernel Busy (ns)"]) / left, delta=0.06)
        for row in self.iterations(done.out):
            self.assertTrue(0 < float(row["GPU Utilization (%)"]) <= 100, row)
        # Too few steps tell nothing, and neither does a window without any outside.
        few = self.train(Program(SYNCED), WINDOW="iter:20+5")
        calls = self.script(Program(SYNCED).words(api=(20, 25)), WINDOW="api")
        for out in (few.out, calls.out):
            for column in ("Profiler Overhead (%)", "Profiler Overhead Low (%)", "Utilization w/o Overhead (%)"):
                self.assertEqual({row[column] for row in out.rows("window_sum.csv")}, {""})

    def test_a_validation_in_the_window_was_not_lengthened(self):
        """Only what the steps were lengthened by is subtracted, however long the window was for other reasons."""
        def step(index):  # much longer in the window, as with a slow profiler
            return SYNCED + (" sleep:20" if 20 <= index < 30 else " sleep:4")
        validation = "loop:4 [ copy:h2d:64 kernel:forward:3 sync sleep:70 ] copy:d2h:4"
        done = self.train(Program(step, after={9: validation, 24: validation}, steps=52), WINDOW="iter:20+10")
        (row,) = (row for row in done.out.rows("window_sum.csv") if row["Device"] == "0")
        outside = [int(step["Duration (ns)"]) for step in done.out.rows("step_times.csv")]
        inside = [int(step["Duration (ns)"]) for step in self.iterations(done.out) if (step["Label"], step["Complete"]) == ("iteration", "1")]
        whole = int(row["Device Time (ns)"])
        self.assertGreater(whole, 1.5 * sum(inside))
        added = sum(inside) - len(inside) * statistics.fmean(step for step in outside if step <= 10 * statistics.median(outside))
        self.assertAlmostEqual((whole - int(row["Device Time w/o Overhead (ns)"])) / added, 1, delta=0.01)

    def test_too_early(self):
        done = self.train(Program(SYNCED), WINDOW="iter:1+3")
        (line,) = done.warnings()
        said = re.fullmatch(r"too late for iteration 1: iterations were recognised after (\d+) had run; "
                            r"the window opens at iteration (\d+)", line)
        self.assertTrue(said, line)
        opened = int(said[2])
        self.assertLessEqual(int(said[1]), opened)
        self.assertLessEqual(opened, 19)
        self.assertEqual(self.numbers(done.out), [opened, opened + 1, opened + 2])
        self.check_numbers(done)
        self.assertEqual(done.out.run["messages"], [line])

    def test_layers_taken_for_iterations(self):
        """The window opens at the 20th layer, in the second step. Once the steps are known, it opens at the 20th of these."""
        layer = "kernel:cell:1 kernel:gate:1 copy:h2d:64"

        def step(i):
            layers = [f"loop:7 [ {layer} sleep:1 ] looks:2"] * 2 if i < 8 else [f"loop:14 [ {layer} ]"]
            return " ".join([*layers, "kernel:adam:1 copy:d2h:4"])

        done = self.train(Program(step, steps=330), pauses=(14, 18), WINDOW="iter:20+300")
        *early, said = done.warnings()
        self.assertRegex(said, "the open window's iterations are only parts of longer ones: it closes in iteration [0-9]+, and another window opens as planned")
        for line in early:
            self.assertIn("too late for iteration", line)
        first, second = done.out.run["windows"]
        self.assertEqual(first["ended_by"], "the iterations turned out to be parts of longer ones")
        self.assertNotIn("ended_by", second)
        rows = [row for row in self.iterations(done.out) if row["Label"] == "iteration"]
        self.assertEqual([int(row["Iteration"]) for row in rows if row["Window"] == "2"], list(range(20, 320)))
        early = {int(row["Iteration"]) for row in rows if row["Window"] == "1"}
        self.assertLess(max(early), 20)
        base, ran = done.out.run["time_zero"]["clock_monotonic_ns"], self.ran(done)
        shown = {ran[int(row["Start (ns)"]) + base] for row in done.out.rows("cuda_gpu_trace.csv") if "adam" in row["Name"]}
        self.assertLessEqual(shown - early, set(range(20, 320)))
        self.assertLessEqual(set(range(20, 320)), shown)

    def test_more_than_there_are(self):
        done = self.train(Program(SYNCED), WINDOW="iter:28+1000")
        self.assertEqual(self.numbers(done.out), list(range(28, STEPS)))
        self.assertEqual([row["State"] for row in done.out.windows()], ["closed"])
        self.check_numbers(done)

    def test_never_reached(self):
        for window in ("iter:1000+2", "iter:1000+2/5"):
            with self.subTest(window):
                done = self.train(Program(SYNCED), WINDOW=window)
                self.assertEqual(done.folders(), [])
                (line,) = done.warnings()
                self.assertIn(f"{NEVER_OPENED} (INJECT_WINDOW={window}): only {STEPS} training iterations ran", line)

    def test_no_iterations(self):
        """One line, at the end, that says what was found."""
        text = "sync kernels:a:150 copy:h2d:64 sync return:3"
        done = self.script(text, WINDOW="iter:5+2")
        self.assertEqual(done.folders(), [])
        (line,) = done.stderr.splitlines()
        self.assertIn(f"{NEVER_OPENED} (INJECT_WINDOW=iter:5+2): no training iterations were found; 152 launches, copies "
                      "and synchronizations of 152 kinds were seen (150 launches and library calls)", line)
        self.check_unharmed(done, text)
        self.assertEqual([name for name in done.simulated_calls() if name.startswith("cupti")], [])

    def test_nothing_at_all(self):
        done = self.script("sync", WINDOW="iter:5+2")
        self.assertEqual((done.folders(), len(done.stderr.splitlines())), ([], 1))
        self.assertIn(NEVER_OPENED, done.stderr)

    def test_bad_values(self):
        for value in ("iter:5", "iter:5+0", "iter:+3", "iter:5+3/2", "iter:5ms+3", "iter"):
            with self.subTest(value):
                done = self.script(SYNCED, WINDOW=value)
                self.assertEqual(done.folders(), [])
                self.assertEqual(len(done.stderr.splitlines()), 1)
                self.assertIn("profiling is off", done.warnings()[0])

    def test_validation_between_two_steps(self):
        """It begins like a step, and its work is in the window, but in no iteration."""
        for name, window, after in (("inside", "iter:18+5", 19), ("ahead", "iter:22+3", 19)):
            with self.subTest(name):
                validation = "loop:4 [ copy:h2d:64 kernel:forward:3 sync ] copy:d2h:4"
                done = self.train(Program(SYNCED, after={9: validation, after: validation}), WINDOW=window)
                self.check_numbers(done)
                begin, count = (int(number) for number in window[5:].split("+"))
                self.assertEqual(self.numbers(done.out), list(range(begin, begin + count)))
                inside = [row for row in self.iterations(done.out) if row["Label"] != "iteration"]
                found = [(row["Label"], row["Iteration"], row["Kernels"], row["Copies"]) for row in inside]
                self.assertEqual(found, [("validation", "", "12", "5")] if name == "inside" else [])
                self.assertEqual(done.out.kernels()["adam"], count)
                (row,) = done.out.windows()
                self.assertEqual(int(row["Iterations"]), count)


class Auto(IterationTest):
    def test_ten_iterations_once_they_are_steady(self):
        for program, text in (("cuda", f"sync loop:400 [ {SYNCED} sleep:5 ]"),
                              ("driver", "init sync loop:400 [ copy:64 kernel:forward:2 kernel:adam:1 sync sleep:5 ]")):
            with self.subTest(program):
                done = self.script(text, program=program, WINDOW="auto")
                numbers = self.numbers(done.out)
                self.assertEqual(numbers, list(range(numbers[0], numbers[0] + 10)))
                self.check_numbers(done)
                self.assertEqual(done.out.reasons(), [f"iterations {numbers[0]}-{numbers[-1]} (auto)"])
                self.assertEqual(done.out.kernels()["adam"], 10)
                self.assertEqual({row["Complete"] for row in self.iterations(done.out)}, {"1"})
                # Steady for a second.
                self.assertGreater(int(done.out.windows()[0]["Start (ns)"]), 1_000_000_000)
                self.assertEqual((done.warnings(), done.out.lost()), ([], {}))

    def test_as_the_program_says(self):
        """Even if iterations have been found already."""
        for program in ("cuda", "driver"):
            with self.subTest(program):
                step = "kernel:forward:2 kernel:backward:2 kernel:adam:1 sync"
                setup = "init sync" if program == "driver" else "sync"
                done = self.train(Program(step, setup=setup, program=program), pauses=(8,), WINDOW="auto")
                self.assertEqual(done.folders(), [])
                self.assertIn(f"{STEPS} training iterations ran", done.warnings()[-1])
                words = Program(step, setup=setup, program=program).words(api=(15, 18), pauses=(8, 12))
                done = self.script(words, program=program, WINDOW="auto")
                self.assertEqual(done.out.reasons(), ["api"])
                self.assertEqual(done.out.kernels(), {"forward": 6, "backward": 6, "adam": 3})
                self.assertEqual(done.warnings(), [])


    def test_as_the_program_says_within_a_step(self):
        """The window begins with work of an iteration that was not followed before it: numbers count from what the window shows."""
        step = "kernel:forward:2 kernel:backward:2 kernel:adam:1 sync sleep:1"
        done = self.script(f"sync loop:100 [ {step} ] kernel:forward:2 kernel:backward:2 start kernel:adam:1 sync "
                           f"loop:30 [ {step} ] stop loop:10 [ {step} ]", WINDOW="auto")
        rows = self.iterations(done.out)
        self.assertEqual([(row["Label"], row["Kernels"]) for row in rows], [("outside", "1")] + [("iteration", "5")] * 30)
        self.assertEqual([row["Iteration"] for row in rows], ["", *map(str, range(1, 31))])
        self.assertEqual([row["Complete"] for row in rows], [""] + ["1"] * 30)


class Table(IterationTest):
    """iteration_sum.csv, of whichever window."""

    def check_table(self, done, adams, launches=7, kernels=6):
        rows = self.iterations(done.out)
        complete = [row for row in rows if row["Complete"] == "1" and row["Label"] == "iteration"]
        for row in complete:
            self.assertEqual((row["Launches"], row["Kernels"], row["Copies"], row["Memsets"]),
                             (str(launches), str(kernels), "1", "0"), row)
            self.assertEqual(int(row["Kernel Time (ns)"]), 10_000 * kernels)
            if row is not rows[-1]:  # it may end with its window, before the device has finished
                self.assertGreater(int(row["Duration (ns)"]), int(row["GPU Busy (ns)"]))
        for one, other in zip(rows, rows[1:]):
            if one["Window"] == other["Window"] and one["Label"] == other["Label"] == "iteration":
                self.assertEqual(int(one["Start (ns)"]) + int(one["Duration (ns)"]), int(other["Start (ns)"]))
                self.assertEqual(int(one["Iteration"]) + 1, int(other["Iteration"]))
        # The sums over the rows are those of the window and of the kernel table (which each test compares as well).
        self.assertEqual(sum(int(row["Kernels"]) for row in rows), sum(done.out.kernels().values()))
        self.assertEqual(done.out.kernels()["adam"], adams)
        self.assertEqual(sum(int(row["Iterations"]) for row in done.out.windows()), len(complete))
        return complete

    def test_gaps(self):
        """From an iteration's last work to the next one's first, on the device; computed from what really ran."""
        done = self.train(Program(SYNCED + " sleep:2"), WINDOW=f"iter:{START}+{COUNT}")
        rows = self.check_table(done, COUNT)
        work = sorted((start, end) for _, _, _, _, _, start, end in done.device_work())
        steps = [work[i:i + 7] for i in range(0, len(work), 7)]
        gaps = [steps[i + 1][0][0] - steps[i][-1][1] for i in range(START, START + COUNT - 1)]
        self.assertEqual([row["Gap to Next (ns)"] for row in rows], [*map(str, gaps), ""])
        self.assertGreater(min(gaps), 2_000_000)
        busy = [self.union(step) for step in steps[START:START + COUNT]]
        self.assertEqual([int(row["GPU Busy (ns)"]) for row in rows], busy)

    def test_several_devices(self):
        step = "device:0 copy:h2d:64 kernel:forward:3 device:1 kernel:forward:2 kernel:backward:1 sync device:0 kernel:adam:1 sync"
        done = self.train(Program(step), devices=2, WINDOW=f"iter:{START}+{COUNT}")
        self.assertEqual(self.numbers(done.out), list(range(START, START + COUNT)))
        for device, kernels in (("all", "7"), ("0", "4"), ("1", "3")):
            rows = [row for row in done.out.rows("iteration_sum.csv") if row["Device"] == device]
            self.assertEqual([row["Kernels"] for row in rows], [kernels] * COUNT)
        self.check_numbers(done)

    def test_step_times(self):
        """Each from the end of the work before it to its own first work, from what really ran; none in the window or right after it."""
        done = self.train(Program(SYNCED + " sleep:2", after={START + COUNT: "until_calls:cuptiFinalize:1"}), WINDOW=f"iter:{START}+{COUNT}")
        self.check_table(done, COUNT)
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        work = sorted((start, end) for _, _, _, _, _, start, end in done.device_work())
        steps = [work[i:i + 7] for i in range(0, len(work), 7)]
        rows = [{name: int(float(value)) for name, value in row.items() if value} for row in done.out.rows("step_times.csv")]
        self.assertGreater(len(rows), 7)
        for row in rows:
            number = row["Iteration"]
            for at, time in ((number, row["Start (ns)"]), (number + 1, row["Start (ns)"] + row["Duration (ns)"])):
                if 0 < at < len(steps):
                    self.assertGreater(base + time, steps[at - 1][-1][1], (row, at))
                    self.assertLess(base + time, steps[at][0][0], (row, at))
        # Nothing before the first one was seen, and the one after the window directly follows the profiler.
        numbers = {row["Iteration"] for row in rows}
        self.assertFalse({0, *range(START, START + COUNT + 1)} & numbers)
        self.assertGreater(max(numbers), START + COUNT)

    def test_a_host_that_runs_ahead(self):
        """It waits for the device after every fourth step, and for none of the others, which take only the time of launching them."""
        steps, every, kernel = 120, 4, 5_000_000
        after = {i: "sync" for i in range(every - 1, steps, every)}
        after[START + 2 * every] = "until_calls:cuptiFinalize:1"
        done = self.train(Program(PLAIN.removeprefix("copy:h2d:64 "), setup=f"duration:forward:{kernel} sync", after=after, steps=steps), WINDOW=f"iter:{START}+8", SUMMARY="summary", BATCH="64")
        self.assertEqual(self.numbers(done.out), list(range(START, START + 8)))
        (window,) = done.out.windows()
        least = 3 * kernel  # three kernels per step
        rows = done.out.rows("step_times.csv")
        self.assertLess(statistics.median(int(row["Duration (ns)"]) for row in rows), least)
        times = [float(row["Step Time (ns)"]) for row in rows if row["Step Time (ns)"]]
        self.assertGreaterEqual(statistics.median(times), least)
        self.assertEqual(float(window["Step Time (ns)"]), statistics.median(times))
        self.assertAlmostEqual(float(window["Samples/s"]), 64e9 / statistics.median(times), delta=0.051)
        self.assertGreaterEqual(float(window["Step Time in Window (ns)"]), least)
        # On the device the profiler adds next to nothing.
        self.assertLess(float(window["Profiler Overhead (%)"] or 0), 50)

    def test_a_host_that_runs_ahead_in_a_window_of_one_iteration(self):
        """Its time on the device would have been from the end of its work to that of the next one's, which no window has."""
        steps, every, kernel = 120, 4, 5_000_000
        after = {i: "sync" for i in range(every - 1, steps, every)}
        done = self.train(Program(PLAIN.removeprefix("copy:h2d:64 "), setup=f"duration:forward:{kernel} sync", after=after, steps=steps),
                          WINDOW=f"iter:{START}+1", SUMMARY="summary", BATCH="64")
        (window,) = done.out.windows()
        self.assertEqual([window[column] for column in ("Iterations", "Step Time in Window (ns)", "Samples/s in Window")], ["1", "", ""])
        # Steps without CUPTI are compared with the device's work as well.
        self.assertGreaterEqual(float(window["Step Time (ns)"] or 3 * kernel), 3 * kernel)
        (row,) = self.iterations(done.out)
        self.assertEqual((row["Step Time (ns)"], row["Samples/s"], row["Units/s"]), ("", "", ""))
        self.assertIn("in windows: 1 iteration whose time is unknown", (done.work / "summary").read_text(encoding="utf-8"))

    def test_samples_per_second(self):
        done = self.train(Program(SYNCED + " sleep:2"), WINDOW=f"iter:{START}+{COUNT}", BATCH="256", SUMMARY="summary")
        rows = self.check_table(done, COUNT)
        durations = [int(row["Duration (ns)"]) for row in rows]
        for row, duration in zip(rows, durations):
            self.assertAlmostEqual(float(row["Samples/s"]), 256e9 / duration, delta=0.051)
        rate = 256e9 / statistics.median(durations)
        (window,) = done.out.windows()
        self.assertAlmostEqual(float(window["Samples/s in Window"]), rate, delta=0.051)
        times = [float(row["Step Time (ns)"]) for row in done.out.rows("step_times.csv")]
        self.assertEqual(float(window["Step Time (ns)"]), statistics.median(times))
        rate = 256e9 / statistics.median(times)
        self.assertAlmostEqual(float(window["Samples/s"]), rate, delta=0.051)
        said = re.search(r"^  step time \S+ \(\S+ to \S+\): median of (\d+) iterations without the profiler; (\S+) samples/s$",
                         (done.work / "summary").read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(int(said[1]), len(times))
        self.assertAlmostEqual(float(said[2]), rate, delta=0.051)
        without = self.train(Program(SYNCED), WINDOW=f"iter:{START}+{COUNT}", SUMMARY="summary")
        self.assertEqual({row["Samples/s"] for row in self.iterations(without.out)}, {""})
        self.assertNotIn("samples/s", (without.work / "summary").read_text(encoding="utf-8"))

    def test_in_windows_of_calls_and_ranges(self):
        """Numbers count what the windows show; if a window contains whole steps, all of them are complete."""
        for window, begin, end in (("api", "start", "stop"), ("nvtx:train", "push:train", "pop"),
                                   ("signal", "raise:USR2 until_open", "sync raise:USR2 until_closed")):
            for program in ("cuda", "driver"):
                with self.subTest(window + " " + program):
                    setup, step = (("init sync", SYNCED.replace("h2d:", "")) if program == "driver" else ("sync", SYNCED))
                    words = Program(step, setup=setup, program=program).words(api=(10, 22), begin=begin, end=end)
                    done = self.script(words, program=program, WINDOW=window)
                    complete = self.check_table(done, 12)
                    self.assertEqual([int(row["Iteration"]) for row in complete], list(range(12)))
                    self.assertEqual(len(self.iterations(done.out)), 12)
                    self.assertEqual(done.warnings(), [])

    def test_in_several_windows(self):
        steps = f"start loop:8 [ {SYNCED} ] stop loop:5 [ {SYNCED} ]"
        done = self.script(f"sync loop:3 [ {steps} ]", WINDOW="api")
        complete = self.check_table(done, 24)
        self.assertEqual([row["Window"] for row in complete], ["1"] * 8 + ["2"] * 8 + ["3"] * 8)
        self.assertEqual([int(row["Iteration"]) for row in complete], list(range(24)))

    def test_in_a_window_by_the_clock(self):
        """It cuts off the first step and the last one: their parts within the window are there, but not as complete steps."""
        done = self.script(f"sync loop:10 [ {PLAIN} sleep:2 ] until_open while_open [ {PLAIN} sleep:2 ] {PLAIN} sync",
                           WINDOW=f"time:{100 * simulated.PACE}ms+{400 * simulated.PACE}ms")
        (window,) = done.out.windows()
        rows = self.iterations(done.out)
        complete = self.check_table(done, done.out.kernels()["adam"])
        self.assertGreater(len(complete), 4)
        self.assertLessEqual(len(rows) - len(complete), 2)
        numbers = [int(row["Iteration"]) for row in complete]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        begin, end = int(window["Start (ns)"]), int(window["End (ns)"])
        for row in complete:
            self.assertLessEqual(begin, int(row["Start (ns)"]))
            self.assertLessEqual(int(row["Start (ns)"]) + int(row["Duration (ns)"]), end)

    def check_whole(self, done, least):
        """Rows marked as complete have a step's work; returns their numbers."""
        rows = self.iterations(done.out)
        complete = [row for row in rows if row["Complete"] == "1"]
        self.assertEqual({(row["Kernels"], row["Copies"]) for row in complete}, {("4", "1")}, rows)
        self.assertGreaterEqual(len(complete), least, rows)
        numbers = [int(row["Iteration"]) for row in complete]
        self.assertEqual(numbers, sorted(set(numbers)))
        told = [int(row["Iteration"]) for row in rows if row["Iteration"]]
        self.assertEqual(told, sorted(told))
        # Nothing is counted twice, and nothing is left out.
        self.assertEqual(sum(int(row["Kernels"]) for row in rows), sum(done.out.kernels().values()))
        return numbers

    def test_in_windows_by_the_clock(self):
        """Between two of them the program continues unseen: a step cut off by the first one does not continue in the second."""
        step = "copy:h2d:64 sleep:1 kernel:forward:2 sleep:1 kernel:backward:1 sleep:1 kernel:adam:1 sleep:1"
        for period in (109, 131):
            with self.subTest(period):
                done = self.script(f"sync loop:600 [ {step} ] sync", WINDOW=f"time:50ms+60ms/{period}ms")
                self.assertGreater(len(done.out.windows()), 5)
                self.check_whole(done, 10)

    def test_cut_by_the_clock_before_a_window_without_a_launch(self):
        """Work that looks like a whole step except for its last launch is not a step, whatever comes next."""
        head, tail = "copy:h2d:64 kernel:forward:40 kernel:backward:40 kernel:adam:1 ", "kernel:norm:1 "
        done = self.script(f"sync until_open loop:8 [ {head}{tail} ] {head}sync until_closed {tail}until_open until_closed sync",
                           WINDOW=f"time:50ms+{400 * simulated.PACE}ms/{1000 * simulated.PACE}msx2")
        self.assertEqual([sum(row["Complete"] == complete for row in self.iterations(done.out)) for complete in "10"], [8, 1])

    def test_in_windows_that_calls_cut(self):
        """Closed and opened in the middle of a step, and where it ends."""
        begin, end = "copy:h2d:64 kernel:forward:2 ", "kernel:backward:1 kernel:adam:1 sync "
        step = begin + end
        for first, second, whole in ((begin, end, 0), (step, step, 2), (begin, step, 1), (step, end, 1), ("", "", 0)):
            with self.subTest(first + "| " + second):
                window = f"start {second} loop:5 [ {step} ] {first} stop"
                unseen = {begin: end, step: "", "": ""}[first] + f" loop:3 [ {step} ] " + {end: begin, step: "", "": ""}[second]
                done = self.script(f"sync loop:4 [ {window} {unseen} ] sync", WINDOW="api")
                self.assertEqual(len(done.out.windows()), 4)
                self.assertEqual(len(self.check_whole(done, 1)), 4 * (5 + whole), self.iterations(done.out))


class Unharmed(IterationTest):
    """The search changes nothing for the program."""

    def test_an_error_that_the_program_has_not_asked_for(self):
        """cudaGetLastError returns it, whether it came before the search knew the kernels or after."""
        for name, setup, tail in (("before", "sync bad_copy", "last_error last_error sync return:5"),
                                  ("after", "sync", "bad_copy last_error last_error sync return:5"),
                                  ("none", "sync", "last_error sync return:5")):
            with self.subTest(name):
                program = Program(PLAIN + " kernel:norm:3", setup=setup, tail=tail)
                done = self.train(program, WINDOW=f"iter:{START}+{COUNT}")
                alone = self.script(program.words(), preload=False, check=False)
                self.assertEqual((done.code, done.stdout), (alone.code, alone.stdout))
                self.assertEqual("cudaGetLastError" in done.stdout, name != "none")
                self.assertEqual(self.numbers(done.out), list(range(START, START + COUNT)))

    def test_no_place_for_the_recording(self):
        whole = self.train(Program(SYNCED), WINDOW=f"iter:{START}+{COUNT}")
        done = self.train(Program(SYNCED), WINDOW=f"iter:{START}+{COUNT}", ITER_RECORD="/nonexistent/folder/stream")
        (line,) = done.warnings()
        self.assertIn("INJECT_ITER_RECORD: the launch stream can't be recorded: ", line)
        self.assertIn("/nonexistent/folder/stream", line)
        self.assertEqual(self.in_window(done.out), self.in_window(whole.out))
        self.assertEqual(self.numbers(done.out), self.numbers(whole.out))
        self.assertEqual((done.code, done.stdout), (whole.code, whole.stdout))

    def test_many_threads_without_iterations(self):
        text = "threads:8 [ kernel:t:4000:own stream_sync:own ] sync return:4"
        done = self.script(text, WINDOW="iter:1000000+5")
        self.assertEqual(done.folders(), [])
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.check_unharmed(done, text)


if __name__ == "__main__":
    simulated.main()
