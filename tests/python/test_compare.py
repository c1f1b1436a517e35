# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject compare`: what is called a change and what is not, on runs whose truth is known, and what is done with bad input."""

import csv
import json
import math
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest

import folders
from libinject.compare import changes, conditions, describe, noise, page
from libinject.compare.as_json import comparison_as_dict
from libinject.compare.measures import KINDS, METRIC_OF, Basis, Measure, Run, of_series
from libinject.result import Result, Table, printable

from libinject import figures


class Simulated(Result):
    """A run in memory: kernels of (name, instances per iteration, ns). Each iteration has a speed of its own, correlated with the previous
    one's."""

    def __init__(self, seed, kernels, iterations=10, spread=0.02, drift=0.003, step_spread=0.03, step_factor=1.0, run_factor=1.0):
        luck = random.Random(seed)
        self.path = pathlib.Path(f"run{seed}")
        self.run = {"devices": [], "options": {}, "versions": {}, "lost": {}, "files": [], "windows": [], "state": "closed"}
        self.problems = []
        speeds, steps, speed, pace = [], [], 0.0, 0.0
        for _ in range(iterations):
            speed = 0.5 * speed + luck.gauss(0, drift)
            pace = 0.5 * pace + luck.gauss(0, step_spread)
            speeds.append((1 + speed) * run_factor)
            steps.append(2e6 * step_factor * (1 + pace) * (2 if luck.random() < 0.05 else 1))
        rows, each = [], [0.0] * iterations
        for name, count, duration in kernels:
            values = []
            for i, speed in enumerate(speeds):
                mine = [duration * speed * (1 + luck.gauss(0, spread)) for _ in range(count)]
                each[i] += sum(mine)
                values += mine
            rows.append({"Name": name, "Total Time (ns)": sum(values), "Instances": len(values),
                         "StdDev (ns)": noise.deviation(values)})
        kernels_each = sum(count for _, count, _ in kernels)
        common = {"Device": "all", "Kernels": kernels_each}
        self._tables = {name: None for name in ("gemm_sum", "conv_sum", "attention_sum", "rnn_sum", "nccl_sum", "family_sum", "phase_sum",
                                                "module_sum", "line_sum", "op_sum", "library_sum", "nvtx_sum", "nvtx_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum",
                                                "memory_sum")}
        for name, content in (
                ("cuda_gpu_kern_sum", rows), ("cuda_gpu_kern_gb_sum", rows),
                ("iteration_sum", [{**common, "Label": "iteration", "Complete": 1, "Duration (ns)": step, "Kernel Time (ns)": time}
                                   for step, time in zip(steps, each, strict=True)]),
                ("window_sum", [{**common, "Kernels": kernels_each * iterations, "Duration (ns)": sum(steps)}])):
            self._tables[name] = Table(self.path / f"{name}.csv", tuple(content[0]), tuple(content))


def of_run(value):
    return Measure(value, 0.01, 20.0)


def model(kernels, seed=1):
    luck = random.Random(seed)
    return [(f"kernel{i}", luck.randint(1, 6), 10 ** luck.uniform(3.5, 5.5)) for i in range(kernels)]


def compared(before, after, least=0.0):
    runs = [[Run(result) for result in side] for side in (before, after)]
    basis = changes.measure([run for side in runs for run in side])
    return changes.compare(*runs, basis, least)


def slower(kernels, name, factor):
    return [(kernel, count, time * factor if kernel == name else time) for kernel, count, time in kernels]


class Noise(unittest.TestCase):
    def test_no_change_is_rarely_called_one(self):
        kernels = model(16)
        rows = metrics = 0
        for pair in range(200):
            comparison = compared([Simulated(2 * pair, kernels)], [Simulated(2 * pair + 1, kernels, iterations=14)])
            rows += any(change.real for change in comparison.rows())
            metrics += any(change.real for _, change in comparison.metrics)
        self.assertLessEqual(rows, 10, "pairs with a kernel that is called changed: 5 % of 200")
        self.assertLessEqual(metrics, 10, "pairs with a figure of the run that is called changed")

    def test_a_change_of_5_percent_is_found(self):
        kernels = model(40)
        for iterations, least in ((10, 10), (20, 18)):
            found = wrong = 0
            for pair in range(20):
                comparison = compared([Simulated(1000 + pair, kernels, iterations)],
                                      [Simulated(2000 + pair, slower(kernels, "kernel7", 1.05), iterations)])
                called = [change.name for change in comparison.tables["kernels"] if change.real]
                found += "kernel7" in called
                wrong += len(set(called) - {"kernel7"})
            self.assertGreaterEqual(found, least, f"of 20 pairs of runs with {iterations} iterations")
            self.assertLessEqual(wrong, 4)

    def test_a_slower_step_is_found(self):
        """By 20 %, with steps that spread by 3 %, are correlated and now and then take twice as long."""
        for iterations, least in ((10, 10), (40, 28)):
            found = 0
            for seed in range(30):
                comparison = compared([Simulated(seed, [("k", 1, 1e5)], iterations)],
                                      [Simulated(seed + 500, [("k", 1, 1e5)], iterations, step_factor=1.2)])
                found += next(change.real for metric, change in comparison.metrics if metric.name == "step_time")
            self.assertGreaterEqual(found, least, f"of 30 pairs of runs with {iterations} iterations")

    def test_repeated_runs_show_what_one_run_cannot(self):
        """Each run has its own speed, 2 % apart: with single runs that looks like a change, with four per side it does not."""
        kernels = model(12)
        single = repeated = found = 0
        for seed in range(0, 160, 8):
            luck = random.Random(seed)
            factors = [1 + luck.gauss(0, 0.02) for _ in range(8)]
            runs = [Simulated(seed + i, kernels, run_factor=factor, drift=0.0) for i, factor in enumerate(factors)]
            other = [Simulated(seed + i, slower(kernels, "kernel7", 1.2), run_factor=factors[i], drift=0.0) for i in range(4, 8)]
            single += any(change.real for change in compared(runs[:1], runs[1:2]).rows())
            repeated += any(change.real for change in compared(runs[:4], runs[4:]).rows())
            found += any(change.real and change.name == "kernel7" for change in compared(runs[:4], other).rows())
        self.assertGreater(single, 10)
        self.assertLessEqual(repeated, 3)
        self.assertGreaterEqual(found, 18)

    def test_step_times_of_the_same_kind(self):
        """Without the profiler if both runs have them, otherwise in windows, and then only once."""
        def run(seed, unprofiled, iterations=10):
            result = Simulated(seed, [("k", 1, 1e5)], iterations)
            result.run["options"] = {"INJECT_BATCH": "8"}
            if unprofiled:
                steps = [{"Duration (ns)": 1_500_000 + 10 * at} for at in range(9)]
                result._tables["step_times"] = Table(result.path / "step_times.csv", tuple(steps[0]), tuple(steps))
            return Run(result)

        def measured(*runs):
            basis = changes.measure(runs)
            comparison = changes.compare(runs[:1], runs[1:], basis)
            return comparison, {metric.name: change.before for metric, change in comparison.metrics}

        comparison, found = measured(run(1, True), run(2, True))
        self.assertEqual((found["step_time"], found["window_step_time"] > 1_800_000, comparison.unprofiled), (1_500_040, True, True))
        self.assertAlmostEqual(found["throughput"], 8e9 / 1_500_040)
        self.assertEqual([each.notes for each in (*comparison.before, *comparison.after)], [[], []])
        shown = comparison_as_dict(comparison, [])
        self.assertEqual((shown["unprofiled"], shown["before"][0]["unprofiled_iterations"]), (True, 9))
        self.assertIn("medians over the iterations without the profiler.", page.page([comparison], [[]]))

        comparison, found = measured(run(1, True), run(2, False))
        self.assertGreater(found["step_time"], 1_800_000)
        self.assertNotIn("window_step_time", found)
        note = "step times are those in windows, and include the profiler's overhead: not all runs have seven step times without it"
        self.assertEqual([each.notes for each in (*comparison.before, *comparison.after)], [[note], []])
        shown = comparison_as_dict(comparison, [])
        self.assertEqual((shown["unprofiled"], shown["after"][0]["unprofiled_iterations"]), (False, 0))
        self.assertIn("medians over the complete iterations in windows.", page.page([comparison], [[]]))

        # Few complete iterations only matter if they provide the step times.
        for unprofiled, lines in ((True, 0), (False, 2)):
            comparison, _ = measured(run(1, unprofiled, 3), run(2, unprofiled, 3))
            self.assertEqual(sum("3 complete iterations; at least five" in line for line in describe.caveats([*comparison.before, *comparison.after])), lines)

        # Without a complete iteration in a window, totals are per time, but a step's time is known; if it isn't, step times are not
        # mentioned.
        for both, step in ((True, 1_500_040), (False, None)):
            runs = run(1, True), run(2, both)
            for each in runs:
                each.complete = []
            comparison, found = measured(*runs)
            self.assertEqual((comparison.basis, found.get("step_time"), [each.notes for each in runs]), (Basis.SECOND, step, [[], []]))

    def test_samples_per_second_follow_from_the_step_time(self):
        """The tables' rates may have a single decimal, and the median of rates is not the rate of the median."""
        def run(seed, step, batch=1):
            made, luck = Simulated(seed, [("k", 1, 1e5)], 30), random.Random(seed)
            made.run["options"] = {"INJECT_BATCH": str(batch)}
            steps = [{"Duration (ns)": each, "Samples/s": round(batch * 1e9 / each, 1)} for each in (step(at) * luck.gauss(1, 0.0008) for at in range(30))]
            made._tables["step_times"] = Table(made.path / "step_times.csv", tuple(steps[0]), tuple(steps))
            return made

        comparison = compared([run(1, lambda _: 1.83e9)], [run(2, lambda _: 1.81e9)])
        found = {metric.name: change for metric, change in comparison.metrics if metric.name in ("step_time", "throughput")}
        self.assertAlmostEqual(found["throughput"].relative, 1 / (1 + found["step_time"].relative) - 1)
        for end, of_step in zip(found["throughput"].interval, reversed(found["step_time"].interval), strict=True):
            self.assertAlmostEqual(end, 1 / (1 + of_step) - 1, places=4)
        self.assertEqual(conditions.check(conditions.parse("throughput < -5%"), comparison, False, 0.01).result, "passed")

        alternating = run(3, lambda at: 1e9 * (1 + at % 2), 8)
        comparison = compared([alternating], [alternating])
        rate = next(change.before for metric, change in comparison.metrics if metric.name == "throughput")
        self.assertAlmostEqual(rate, 8 / 1.5, delta=0.01)
        self.assertAlmostEqual(figures.samples_per_second(alternating), rate)

    def test_correlated_clocks_change_no_kernel(self):
        """All kernels' times rise and fall together, and slowly: as independent iterations, two pairs out of three had a changed kernel."""
        kernels = model(20)

        def run(seed):
            made, luck = Simulated(seed, [("unused", 1, 1e5)], 10), random.Random(seed)
            clock, speeds = luck.gauss(0, 1), []
            for _ in range(10):
                clock = 0.8 * clock + 0.6 * luck.gauss(0, 1)
                speeds.append(1 + 0.02 * clock)
            rows, each = [], [0.0] * 10
            for name, count, duration in kernels:
                values = [[duration * speed * luck.gauss(1, 0.005) for _ in range(count)] for speed in speeds]
                each = [time + sum(mine) for time, mine in zip(each, values, strict=True)]
                flat = [value for mine in values for value in mine]
                rows.append({"Name": name, "Total Time (ns)": sum(flat), "Instances": len(flat), "StdDev (ns)": noise.deviation(flat)})
            iterations = [{**row, "Kernel Time (ns)": time, "Kernels": sum(count for _, count, _ in kernels)}
                          for row, time in zip(made._tables["iteration_sum"].rows, each, strict=True)]
            for name, content in (("cuda_gpu_kern_sum", rows), ("cuda_gpu_kern_gb_sum", rows), ("iteration_sum", iterations)):
                made._tables[name] = Table(made.path / f"{name}.csv", tuple(content[0]), tuple(content))
            return made

        called = sum(any(change.real for change in compared([run(2 * pair)], [run(2 * pair + 1)], 0.01).rows()) for pair in range(60))
        self.assertLessEqual(called, 12)

    def test_power_varies_with_the_steps(self):
        """The GPU works 3 s of each step, at 500 W instead of 120: the longer a step, the less power."""
        def run(seed):
            made, luck = Simulated(seed, [("k", 4, 1e5)], 10), random.Random(seed)
            steps = [5e9 * luck.gauss(1, 0.1) for _ in range(10)]
            seconds = sum(steps) / 1e9
            joules = 30 * 500 + (seconds - 30) * 120
            for name, rows in (("iteration_sum", [{**row, "Duration (ns)": step} for row, step in zip(made._tables["iteration_sum"].rows, steps, strict=True)]),
                               ("window_sum", [{**made._tables["window_sum"].rows[0], "Window": 1, "Duration (ns)": sum(steps)}]),
                               ("energy_sum", [{"Window": 1, "Of": "window", "Device": 0, "Duration (ns)": sum(steps), "Energy (J)": joules, "± Energy (J)": 100}])):
                made._tables[name] = Table(made.path / f"{name}.csv", tuple(rows[0]), tuple(rows))
            return made

        called = sum(change.real for pair in range(60) for metric, change in compared([run(2 * pair)], [run(2 * pair + 1)], 0.01).metrics
                     if metric.name == "power")
        self.assertLessEqual(called, 2)

    def test_few_runs_that_happen_to_be_alike(self):
        """Between two runs the spread is poorly known: where it is below the error within runs by chance, that error does not make up for it."""
        luck, called = random.Random(5), 0
        for _ in range(500):
            # The spread between runs is twice the error of one run's median.
            a, b = ([of_series(tuple(1e6 * speed * luck.gauss(1, 0.02) for _ in range(40))) for speed in (luck.gauss(1, 0.008) for _ in range(count))]
                    for count in (1, 2))
            called += changes._metric("step_time", a, b, 0.0).certain
        self.assertLessEqual(called, 10)

    def test_what_rounding_hides(self):
        """Percentages in the tables have a few decimals: cells that are all the same do not make an interval of no width."""
        def run(seed, metric, utilization):
            made = Simulated(seed, [("k", 1, 1e5)])
            rows = [{**row, "SM Active (%)": metric, "GPU Utilization (%)": utilization} for row in made._tables["iteration_sum"].rows]
            busy = {"Kernel Busy (ns)": 10 * utilization, "Device Time (ns)": 1000}
            windows = [{**row, **busy} for row in made._tables["window_sum"].rows]
            for name, content in (("iteration_sum", rows), ("window_sum", windows)):
                made._tables[name] = Table(made.path / f"{name}.csv", tuple(content[0]), tuple(content))
            return made

        for cells, real in (((0.54, 0.5), (0.55, 0.6)), False), (((0.54, 0.5), (0.57, 0.8)), True):
            comparison = compared(*([run(seed, *side)] for seed, side in enumerate(cells)), 0.01)
            found = {metric.name: change.real for metric, change in comparison.metrics if metric.name in ("sm_active", "utilization")}
            self.assertEqual(found, {"sm_active": real, "utilization": real})

    def test_memory_makes_no_kernel_a_change(self):
        """Memory is known exactly: however much it changes, kernels are judged as without it."""
        def run(seed, size):
            made = Simulated(seed, model(20))
            rows = [{"Device": 0, "Purpose": f"purpose {at}", "Total": "no", "Memory (B)": size, "Peak Allocated (B)": None, "Activations at Peak (B)": None}
                    for at in range(10)]
            made._tables["memory_purpose"] = Table(made.path / "memory_purpose.csv", tuple(rows[0]), tuple(rows)) if size else None
            return made

        plain, changed = (compared([run(1, a)], [run(2, b)]) for a, b in ((0, 0), (1000, 2000)))
        self.assertEqual([change.verdict for change in changed.tables["purposes"]], ["changed"] * 10)
        self.assertEqual([(change.name, change.confidence) for change in changed.tables["kernels"]],
                         [(change.name, change.confidence) for change in plain.tables["kernels"]])

    def test_few_iterations_tell_nothing(self):
        kernels = model(5)
        comparison = compared([Simulated(1, kernels, 2)], [Simulated(2, slower(kernels, "kernel1", 2), 2)])
        self.assertEqual({change.verdict for change in comparison.rows()} | {change.verdict for metric, change in comparison.metrics
                                                                          if metric.name == "step_time"}, {"too few"})
        for strict, result in ((False, "undecided"), (True, "failed")):
            outcome = conditions.check(conditions.parse("kernel:kernel1 > +50%"), comparison, strict, 0.01)
            self.assertEqual(outcome.result, result)

    def test_new_and_gone(self):
        kernels = model(5)
        comparison = compared([Simulated(1, kernels)], [Simulated(2, [*kernels[1:], ("fresh", 2, 5000)])])
        self.assertEqual({change.name: change.verdict for change in comparison.tables["kernels"] if change.real},
                         {"kernel0": "gone", "fresh": "new"})

    def test_different_numbers_of_iterations(self):
        kernels = [("k", 3, 1e5)]
        comparison = compared([Simulated(1, kernels, 10)], [Simulated(2, kernels, 40)])
        change = comparison.tables["kernels"][0]
        self.assertAlmostEqual(change.before / 3e5, 1, delta=0.02)
        self.assertAlmostEqual(change.relative, 0, delta=0.02)
        self.assertEqual((change.count_before, change.count_after), (3, 3))

    def test_iterations_for_which_there_were_no_rows(self):
        """The tables' totals include them. The windows say how many there were, and otherwise the kernels of the row that combines them."""
        def run(seed, windows, cut=0, validation=0):
            result = Simulated(seed, [("k", 3, 1e5)], 40)
            rows = [{**row, "Window": 1} for row in result._tables["iteration_sum"]]
            rows[:25] = [{"Window": "[other]", "Device": "all", "Label": "", "Complete": None, "Duration (ns)": None, "Kernels": 75 + cut + validation}]
            if cut:
                rows.append({**rows[-1], "Label": "outside", "Complete": None, "Kernels": cut})
            for name, content in (("iteration_sum", rows), ("window_sum", [{**result._tables["window_sum"].rows[0], **each} for each in windows])):
                result._tables[name] = Table(result.path / f"{name}.csv", tuple(content[0]), tuple(content))
            return Run(result)

        told = [{"Window": 1, "Iterations": 40}]
        for windows, more, divisor in ((told, {}, 40), (told, {"validation": 600}, 40), (told, {"cut": 1}, 40 + 40 / 15 / 3), ([{}], {}, 40),
                                       ([{"Window": 1, "Iterations": 15}, {"Window": "[other]", "Iterations": 0}], {}, 40)):
            other = run(1, windows, **more)
            runs = [Run(Simulated(2, [("k", 3, 1e5)], 40)), other]
            (change,) = changes.compare(runs[:1], runs[1:], changes.measure(runs)).tables["kernels"]
            self.assertEqual(other.iterations, 40, (windows, more))
            self.assertAlmostEqual(other.divisor, divisor)
            self.assertAlmostEqual(change.count_after, 120 / divisor)
            self.assertFalse(change.real, change)


def steps(luck, count, kind, alike, factor=1.0):
    """Step times about 1 % apart, whose neighbours have the correlation `alike`."""
    value, found = luck.gauss(0, 1), []
    for _ in range(count):
        value = alike * value + math.sqrt(1 - alike * alike) * luck.gauss(0, 1)
        step = 1 + 0.01 * value
        if kind == "two clusters":
            step = (1.05 if value > 0 else 1) + 0.001 * luck.gauss(0, 1)
        elif kind == "spikes":
            step += luck.random() < 0.05
        elif kind == "skewed":
            step = math.exp(0.02 * value)
        found.append(1e6 * factor * step)
    return tuple(found)


def step_change(before, after):
    return changes._metric("step_time", [of_series(before)], [of_series(after)], 0.0)


class Irregular(Simulated):
    """A run of kernels that occur at random: `launches` has the (name, shape, ns) of each iteration. Without `iterations` it only has
    windows, of a second each. `cut` is what lies outside of complete iterations."""

    def __init__(self, seed, launches, cut=(), windows=0):
        super().__init__(seed, [("unused", 1, 1e5)])
        every = [*launches, cut]

        def rows(key):
            times = {}
            for launch in (launch for part in every for launch in part):
                times.setdefault(key(launch), []).append(launch[2])
            return [{"Name": which[0], "Total Time (ns)": sum(values), "Instances": len(values), "StdDev (ns)": noise.deviation(values)}
                    for which, values in times.items()]

        def row(label, complete, part, nanoseconds):
            return {"Device": "all", "Label": label, "Complete": complete, "Duration (ns)": nanoseconds, "Kernels": len(part),
                    "Kernel Time (ns)": sum(launch[2] for launch in part), "GPU Busy (ns)": sum(launch[2] for launch in part)}

        iterations = [row("iteration", 1, part, 2e6) for part in launches] + ([row("outside", 0, cut, 1e6)] if cut else [])
        whole = [row("", 1, part, 1e9) for part in launches] if windows else [row("", 1, [launch for part in every for launch in part], 1e9)]
        for name, content in (("cuda_gpu_kern_sum", rows(lambda launch: launch[:1])), ("cuda_gpu_kern_gb_sum", rows(lambda launch: launch[:2])),
                              ("iteration_sum", [] if windows else iterations), ("window_sum", whole)):
            self._tables[name] = Table(self.path / f"{name}.csv", tuple(content[0]) if content else (), tuple(content))


class FalseAlarms(unittest.TestCase):
    """Equal runs with random work."""

    def false(self, make, pairs=60):
        """The pairs, out of so many, in which a kernel is reported as changed."""
        return sum(any(change.real for change in compared([make(2 * pair)], [make(2 * pair + 1)]).tables["kernels"]) for pair in range(pairs))

    def test_repeated_runs(self):
        """The spread between runs is pooled over both sides, with the sum of their degrees of freedom."""
        for count in (2, 3, 4):
            luck = random.Random(count)
            sides = ([of_run(luck.gauss(100, 3)) for _ in range(2 * count)] for _ in range(3000))
            false = sum(changes._metric("step_time", runs[:count], runs[count:], 0.0).certain for runs in sides)
            self.assertLessEqual(false, 50, f"of 3,000 pairs of {count} runs: 1 % is 30")

    def test_what_comes_now_and_then(self):
        def make(seed, cut):
            luck = random.Random(seed)
            launches = [[("often", 1, luck.gauss(5e4, 500)), *(("rare", 1, luck.gauss(5e4, 500)) for _ in range(luck.random() < 0.15))] for _ in range(40)]
            return Irregular(seed, launches, [("often", 1, 5e4)] if cut else ())
        for cut in (False, True):
            self.assertLessEqual(self.false(lambda seed, cut=cut: make(seed, cut)), 6, f"cut: {cut}")

    def test_a_cut_iteration_hides_no_change(self):
        def make(seed, slower):
            luck = random.Random(seed)
            return Irregular(seed, [[("a", 1, luck.gauss(5e4, 500)), ("b", 1, luck.gauss(5e4, 500) * slower)] for _ in range(40)], [("a", 1, 5e4)])
        found = compared([make(1, 1.0)], [make(2, 1.2)]).tables["kernels"]
        self.assertEqual([change.name for change in found if change.real], ["b"])

    def test_lengths_that_vary(self):
        def make(seed):
            luck = random.Random(seed)
            lengths = [luck.randint(1, 20) for _ in range(40)]
            return Irregular(seed, [[(name, length, 1e4 * length * luck.gauss(1, 0.01)) for name in "abcd"] for length in lengths])
        self.assertLessEqual(self.false(make), 6)

    def test_windows_without_iterations(self):
        def make(seed, windows, factor=1.0, least=50):
            luck = random.Random(seed)
            return Irregular(seed, [[("k", 1, luck.gauss(5e4, 500) * factor) for _ in range(luck.randint(least, 150))] for _ in range(windows)], windows=windows)
        for windows in (1, 6):
            self.assertLessEqual(self.false(lambda seed, windows=windows: make(seed, windows)), 6, f"{windows} windows")
        # Repeated runs show it; but values without an interval by design have none then either.
        faster, slower = ([Irregular(seed, [[("k", 1, 5e4 * factor)] * luck.randint(95, 105)], windows=1) for seed in range(3)]
                          for luck, factor in ((random.Random(1), 1), (random.Random(2), 2)))
        change, = compared(faster, slower).tables["kernels"]
        self.assertTrue(change.real, change)
        self.assertIsNone(changes._test([Measure(500.0)] * 2, [Measure(600.0)] * 2, None))
        # Runs that did exactly the same amount of work can be compared, even with one window.
        change, = compared([make(1, 1, least=150)], [make(2, 1, 1.1, least=150)]).tables["kernels"]
        self.assertTrue(change.real, change)


class Calibration(unittest.TestCase):
    """The interval that is shown decides. Of equal runs, 1 in 100 may be called changed if iterations are independent, and 5 if neighbours
    have the correlation 0.5; with 300 pairs of each kind there is room for chance."""

    def test_false_alarms_and_what_is_found(self):
        for alike, most in ((0.0, 8), (0.5, 24)):
            for kind in ("normal", "two clusters", "spikes", "skewed"):
                for count in (5, 10, 40):
                    luck = random.Random(f"{kind} {alike} {count}")
                    pairs = [step_change(steps(luck, count, kind, alike), steps(luck, count, kind, alike)) for _ in range(300)]
                    false = sum(change.real for change in pairs)
                    self.assertLessEqual(false, most, f"of 300 equal pairs of {count} iterations, {kind}, correlation {alike}")

    def test_a_slower_run_is_never_no_difference(self):
        """By 10 and 55 %: found, or too few samples to tell."""
        for factor in (1.1, 1.55):
            for alike in (0.0, 0.5):
                for kind in ("normal", "two clusters", "spikes", "skewed"):
                    for count in (3, 5, 10, 40):
                        luck = random.Random(f"{kind} {alike} {count} {factor}")
                        pairs = [step_change(steps(luck, count, kind, alike), steps(luck, count, kind, alike, factor)) for _ in range(50)]
                        passed = sum(change.verdict not in ("changed", "too few") for change in pairs)
                        self.assertLessEqual(passed, 3, f"of 50, {factor}, {count} iterations, {kind}, correlation {alike}")
                        if count == 40 or (factor > 1.5 and count == 10):
                            self.assertGreaterEqual(sum(change.real for change in pairs), 40, (factor, count, kind, alike))

    def test_a_verdict_is_what_its_interval_says(self):
        kernels = model(30)
        for seed in range(30):
            slow = slower(kernels, "kernel7", 1 + 0.01 * (seed % 8))
            comparison = compared([Simulated(seed, kernels)], [Simulated(seed + 500, slow, 20, step_factor=1 + 0.03 * (seed % 12))])
            told = 0
            for change in [*comparison.rows(), *(change for _, change in comparison.metrics)]:
                row = change.as_dict()
                if row["low"] is not None:
                    told += 1
                    without_zero = row["low"] > 0 or row["high"] < 0
                    self.assertEqual(row["verdict"] in ("changed", "small"), without_zero, row)
                    self.assertLessEqual(row["low"], row["relative"])
                    self.assertGreaterEqual(row["high"], row["relative"])
            self.assertGreater(told, 30)

    def test_gates(self):
        def result(text, low, high, strict=False):
            middle = (low + high) / 2
            change = changes.Change("step_time", 100.0, 100.0 + middle)
            changes._judge(change, changes.Test((high - low) / 2 / noise.student_factor(9, 0.01), 9), 0.01, 0.01)
            comparison = changes.Comparison([], [], Basis.ITERATION, [(METRIC_OF["step_time"], change)], {})
            return conditions.check(conditions.parse(text), comparison, strict, 0.01).result

        for text, low, high, expected in (
                ("step_time > +5%", 1, 3, "passed"), ("step_time > +5%", -3, 4, "passed"), ("step_time > +5%", -9, 3, "passed"),
                ("step_time > +5%", 6, 9, "failed"), ("step_time > +5%", 4, 8, "failed"),  # certainly slower, by 6 % as the best estimate
                ("step_time > +5%", -4, 6, "undecided"), ("step_time > +5%", -20, 130, "undecided"), ("step_time > +5%", 2, 7, "undecided"),
                ("step_time > +0%", -0.5, 0.8, "passed"), ("step_time > +0%", -2, 2, "undecided"), ("step_time > +0%", 0.2, 0.6, "passed"),
                ("step_time > -5%", -1, 1, "failed"), ("step_time > -5%", -9, -7, "passed"), ("step_time < -5%", -9, -7, "failed"),
                ("step_time < -5%", -7, 3, "undecided"), ("step_time > +5ns", -4, 4, "passed"), ("step_time > +5ns", -4, 6, "undecided"),
                ("step_time > 101ns", -20, 30, "failed"), ("step_time > 120ns", -20, 30, "passed")):
            self.assertEqual(result(text, low, high), expected, (text, low, high))
        self.assertEqual([result("step_time > +5%", -20, high, True) for high in (130, 24)], ["failed", "passed"])

    def test_gates_of_what_is_0_in_both_runs(self):
        for error, result in ((0.0, "passed"), (1.0, "undecided"), (None, "undecided")):
            runs = [Run(Simulated(seed, model(5))) for seed in (1, 2)]
            basis = changes.measure(runs)
            for run in runs:
                run.metrics["copies"] = Measure(0.0, error, 9.0)
            comparison = changes.compare(runs[:1], runs[1:], basis)
            for condition in ("copies > +5%", "copies < -5%"):
                self.assertEqual(conditions.check(conditions.parse(condition), comparison, False, 0.01).result, result, (condition, error))

    def test_gates_of_what_is_new_or_gone(self):
        def result(text, before, after, half):
            change = changes.Change("kernel", before, after)
            if half is not None:
                changes._judge(change, changes.Test(half / noise.student_factor(9, 0.01), 9), 0.01, 0.01)
            return conditions._result(conditions.parse(text), change, False, 0.01)

        for text, before, after, half, expected in (
                ("kernel:k > +200ns", None, 190, 150, "undecided"), ("kernel:k > +200ns", None, 190, 5, "passed"), ("kernel:k > +200ns", None, 190, None, "undecided"),
                ("kernel:k > +200ns", None, 400, 50, "failed"), ("kernel:k < -200ns", None, 190, None, "passed"), ("kernel:k > +5%", None, 190, 5, "failed"),
                ("kernel:k > +5%", None, 190, 250, "undecided"), ("kernel:k < -5%", None, 190, None, "passed"), ("kernel:k < -200ns", 190, None, 150, "undecided"),
                ("kernel:k < -200ns", 190, None, 5, "passed"), ("kernel:k > +200ns", 190, None, None, "passed"), ("kernel:k < -5%", 190, None, 5, "failed")):
            self.assertEqual(result(text, before, after, half), expected, (text, before, after, half))


class Shapes(unittest.TestCase):
    COLUMNS = ("API", "M", "N", "K", "Op A", "Op B", "Type A", "Type B", "Type C", "Compute Type", "Batch", "Calls", "GPU Time (ns)",
               "GPU Avg (ns)", "GPU Min (ns)", "GPU Max (ns)", "TFLOP/s")

    def run_of(self, seed, *products):
        """products: (API, M, type, compute type, ns), once per iteration."""
        run = Simulated(seed, [("k", 1, 1e5)])
        run._tables["gemm_sum"] = Table(run.path / "gemm_sum.csv", self.COLUMNS, tuple(
            dict(zip(self.COLUMNS, (api, m, 64, 64, "N", "T", type_, type_, type_, compute, 1, 10, 10 * time, time, time - 5, time + 5, 1.0), strict=True))
            for api, m, type_, compute, time in products))
        return run

    def test_other_types_are_the_same_shape(self):
        comparison = compared([self.run_of(1, ("cublasSgemm_v2", 64, "fp32", "fp32 (tf32)", 2000), ("cublasSgemm_v2", 128, "fp32", "fp32", 5000),
                                           ("cublasSgemm_v2", 256, "fp32", "fp32", 700), ("cublasGemmEx", 256, "fp16", "fp32", 600))],
                              [self.run_of(2, ("cublasSgemm_v2", 64, "fp32", "fp32", 8000), ("cublasGemmEx", 128, "bf16", "fp32", 1000),
                                           ("cublasGemmEx", 256, "bf16", "fp32", 500))])
        rows = {change.name: (change.before, change.after, change.verdict) for change in comparison.tables["gemm"]}
        self.assertEqual(rows, {
            "cublasSgemm_v2 64x64x64 NT fp32, fp32 (tf32) → fp32": (2000, 8000, "changed"),
            "cublasSgemm_v2 → cublasGemmEx 128x64x64 NT fp32 → bf16, fp32": (5000, 1000, "changed"),
            # Which of the two it was is unknown.
            "cublasSgemm_v2 256x64x64 NT fp32 fp32": (700, None, "gone"), "cublasGemmEx 256x64x64 NT fp16 fp32": (600, None, "gone"),
            "cublasGemmEx 256x64x64 NT bf16 fp32": (None, 500, "new")})
        outcome = conditions.check(conditions.parse("gemm:*128x64x64* < -70%"), comparison, False, 0.01)
        self.assertEqual((outcome.result, outcome.change.before, outcome.change.after), ("failed", 5000, 1000))

    def test_products_inside_other_calls_are_not_the_programs(self):
        run = self.run_of(1, ("cublasSgemm_v2", 64, "fp32", "fp32", 2000), ("cudnnRNNForward", 64, "fp32", "fp32", 9000))
        table = run._tables["gemm_sum"]
        marks = {"cublasSgemm_v2": "", "cudnnRNNForward": "call"}
        for derived in (False, True):
            rows = tuple({**row, "Derived": marks[row["API"]] if derived else ""} for row in table.rows)
            run._tables["gemm_sum"] = Table(table.path, ("API", "Derived", *table.columns[1:]), rows)
            measured = Run(run)
            measured.measure(Basis.ITERATION, False)
            self.assertEqual(round(measured.metrics["gemm_time"].value), 2000 if derived else 11000)
            self.assertEqual(len(measured.tables["gemm"]), 1 if derived else 2)
            # As in a run from before there was such a column.
            self.assertIn("cublasSgemm_v2 64x64x64 NT fp32 fp32", measured.tables["gemm"])

    def test_a_run_that_is_held_against_several(self):
        a = self.run_of(1, ("cublasSgemm_v2", 64, "fp32", "fp32 (tf32)", 2000))
        runs = [Run(result) for result in (a, self.run_of(2, ("cublasSgemm_v2", 64, "fp32", "fp32", 8000)), self.run_of(3, ("cublasSgemm_v2", 64, "fp32", "fp32 (tf32)", 2000)))]
        for run in runs:
            run.measure(Basis.ITERATION, False)
        for _ in range(2):
            names = [changes.compare(runs[:1], [run], Basis.ITERATION).tables["gemm"][0].name for run in runs[1:]]
            self.assertEqual(names, ["cublasSgemm_v2 64x64x64 NT fp32, fp32 (tf32) → fp32", "cublasSgemm_v2 64x64x64 NT fp32 fp32 (tf32)"])

    def test_names_without_signature(self):
        for name, short in (("void a::b<float, (int)3>(int, std::less<int>)", "a::b<float, (int)3>"), ("sm90_gemm", "sm90_gemm"), ("f()", "f"),
                            ("void f<g(int)>()", "f<g(int)>"), ("(x)", "(x)"), (")", ")"), ("a b)", "a b)")):
            self.assertEqual(describe.without_signature(name), short)


class Processors(unittest.TestCase):
    def run_of(self, rows):
        made = Simulated(1, model(5))
        rows = [{"Window": window, "Role": role, "Processor Time (ns)": time, "Span (ns)": span, "Cores Used": used} for window, role, time, span, used in rows]
        made._tables["host_sum"] = Table(made.path / "host_sum.csv", tuple(rows[0]), tuple(rows)) if rows else None
        windows = [{**made._tables["window_sum"].rows[0], "Window": number, "Duration (ns)": 1e9} for number in (1, 2)]
        made._tables["window_sum"] = Table(made.path / "window_sum.csv", tuple(windows[0]), tuple(windows))
        run = Run(made)
        run.measure(Basis.SECOND, False)
        return run

    def test_by_role_and_second(self):
        """Readings slightly off the edges count as if they were on them, and windows without readings like those with readings."""
        run = self.run_of([(1, "main", 6e8, 1.2e9, None), (1, "loader worker", 24e8, 1.2e9, None), (1, "process", 6e8, 1.2e9, 2.5)])
        self.assertEqual({name: round(measure.value) for name, measure in run.tables["processors"].items()}, {"main": 5e8, "loader worker": 2e9})
        self.assertEqual(run.metrics["processors"].value, 2.5)

    def test_none(self):
        run = self.run_of([])
        self.assertEqual(run.tables["processors"], {})
        self.assertNotIn("processors", run.metrics)


class Idle(unittest.TestCase):
    def run_of(self, *windows):
        """windows: (iterations, device time, idle) of a second each, in which an iteration has two kernels."""
        made = Simulated(1, [("k", 2, 1e5)], sum(iterations for iterations, _, _ in windows))
        rows = []
        for number, (iterations, device, idle) in enumerate(windows, 1):
            row = {"Window": number, "Device": "all", "Duration (ns)": 1_000_000_000, "Kernels": 2 * iterations, "Device Time (ns)": device, "Idle (ns)": idle, "Idle: Queue (ns)": idle}
            rows += [row, {**row, "Device": "0"}]
        made._tables["window_sum"] = Table(made.path / "window_sum.csv", tuple(rows[0]), tuple(rows))
        made._tables["gap_line_sum"] = Table(made.path / "gap_line_sum.csv", ("File", "Function", "Idle Time (ns)"), (
            {"File": "train.py", "Function": "train", "Idle Time (ns)": sum(idle or 0 for _, _, idle in windows)},))
        return made

    def test_windows_of_which_not_all_is_known(self):
        """What is known of the others is divided by their part of the iterations, or of the time."""
        second = 1_000_000_000
        whole = self.run_of((20, second, 6000), (20, second, 6000), (20, second, 6000))
        for cut in ((20, None, None), (20, second // 10, 100)):
            lost = self.run_of(cut, (20, second, 6000), (20, second + 5, 6000))
            for basis, value in ((Basis.ITERATION, 300), (Basis.SECOND, 6000)):
                runs = [Run(whole), Run(lost)]
                for run in runs:
                    run.measure(basis, False)
                comparison = changes.compare(runs[:1], runs[1:], basis)
                self.assertEqual([(change.name, change.before, change.after) for change in comparison.tables["idle"]], [("Queue", value, value)], (cut, basis))
                self.assertEqual(next((change.before, change.after) for metric, change in comparison.metrics if metric.name == "idle_time"), (value, value))
                self.assertEqual(runs[1].notes, ["GPU idle time covers 2 windows; it is not fully known for the others",
                                                 "for some windows it is not known how long the GPU was idle: no gaps in comparisons with this run"])
                self.assertEqual((runs[0].notes, comparison.tables["gaps"]), ([], []))

    def test_causes_that_do_not_add_up(self):
        """As where a column is missing: the idle time would look shorter."""
        for cells in ({"Idle (ns)": 7000}, {"Idle (ns)": None}, {"Idle: Queue (ns)": None}):
            runs = [self.run_of((20, 1_000_000_000, 6000)) for _ in range(2)]
            rows = [{**row, **cells} for row in runs[1]._tables["window_sum"].rows]
            runs[1]._tables["window_sum"] = Table(runs[1].path / "window_sum.csv", tuple(rows[0]), tuple(rows))
            comparison = compared(runs[:1], runs[1:])
            self.assertEqual(comparison.left_out, {"idle": "the causes of idle time do not add up to it in window_sum.csv"})
            self.assertNotIn("idle_time", [metric.name for metric, _ in comparison.metrics])

    def test_no_window_of_which_all_is_known(self):
        comparison = compared([self.run_of((20, 1_000_000_000, 6000))], [self.run_of((20, None, None))])
        self.assertEqual(comparison.left_out, dict.fromkeys(("idle", "gaps"), "it is not known for any window how long the GPU was idle"))
        self.assertNotIn("idle_time", [metric.name for metric, _ in comparison.metrics])


class Unnamed(unittest.TestCase):
    def run_of(self, seed, **times):
        made = Simulated(seed, model(16))
        rows = [{"Module": {"unnamed": "[unattributed]"}.get(name, name), "Self Time (ns)": 10 * time, "Self Instances": 10} for name, time in times.items()]
        made._tables["module_sum"] = Table(made.path / "module_sum.csv", tuple(rows[0]), tuple(rows))
        return made

    def test_what_is_in_no_row_may_be_in_any(self):
        named, half = self.run_of(1, a=4e5, b=4e5), self.run_of(2, a=3e5, b=3e5, unnamed=2e5)
        for before, after in ((named, half), (half, named)):
            comparison = compared([before], [after])
            self.assertEqual({change.name: change.verdict for change in comparison.tables["modules"] if change.name != "[unattributed]"}, {"a": "too few", "b": "too few"})
            (run,) = comparison.after if after is half else comparison.before
            self.assertEqual(run.notes, ["25% of the time by modules is [unattributed], more than in other runs: intervals allow for it"])
            for condition, result in (("module:a > +5%", "undecided"), ("module:a < -5%", "undecided"), ("module:* > +5%", "passed")):
                self.assertEqual(conditions.check(conditions.parse(condition), comparison, False, 0.01).result, result, condition)

    def test_a_change_beyond_that_is_one(self):
        comparison = compared([self.run_of(1, a=4e5, b=4e5)], [self.run_of(2, a=9e5, b=3e5, unnamed=2e5)])
        self.assertEqual(next(change.verdict for change in comparison.tables["modules"] if change.name == "a"), "changed")
        # Where as much is in no row on both sides, it is taken to be the same.
        comparison = compared([self.run_of(1, a=4e5, b=2e5, unnamed=2e5)], [self.run_of(2, a=8e5, b=4e5, unnamed=4e5)])
        self.assertEqual({change.verdict for change in comparison.tables["modules"]}, {"changed"})

    def test_what_is_in_no_row_is_not_known_to_be_gone(self):
        comparison = compared([self.run_of(1, a=4e5, b=1e5)], [self.run_of(2, a=3e5, unnamed=2e5)])
        change = next(change for change in comparison.tables["modules"] if change.name == "b")
        self.assertEqual((change.after, change.verdict), (0.0, "too few"))
        self.assertEqual(conditions.check(conditions.parse("module:b > +5%"), comparison, False, 0.01).result, "undecided")


class Statistics(unittest.TestCase):
    def test_against_tables(self):
        for t, freedom, p in ((12.706, 1, 0.05), (4.604, 4, 0.01), (2.228, 10, 0.05), (1.96, 1e6, 0.05), (0.0, 3, 1.0)):
            self.assertAlmostEqual(noise.student_p(t, freedom), p, places=4)
        self.assertAlmostEqual(noise.student_factor(10), 2.228, places=3)
        # Mann and Whitney: of all 252 orders of five and five, two are as extreme; of 20 orders of three and three, two as well.
        a, b = [1, 5, 2, 4, 3], [16, 20, 17, 19, 18]
        self.assertEqual(noise.rank_interval(a, b, 0.01), (11, 19))
        self.assertEqual(noise.rank_interval(a[:3], b[:3], 0.01), (-math.inf, math.inf))
        self.assertEqual(noise.rank_interval(a[:3], b[:3], 0.1), (11, 19))
        self.assertEqual(noise.rank_interval([1] * 10, [1] * 10, 0.01), (0, 0))
        self.assertEqual(noise.rank_interval([], [1], 0.01), (-math.inf, math.inf))
        self.assertEqual(noise.ranks([5, 1, 5]), [2.5, 1, 2.5])

    def test_the_largest_deviation_is_one(self):
        luck = random.Random(3)
        for _ in range(100):
            values = [luck.lognormvariate(0, 1) for _ in range(luck.randint(1, 30))]
            self.assertLessEqual(statistics.pstdev(values),
                                 noise.largest_deviation(statistics.fmean(values), min(values), max(values)) + 1e-9)

    def test_autocorrelation(self):
        self.assertEqual(noise.autocorrelation([3, 3, 3, 3]), 0)
        self.assertGreater(noise.inflation(range(30)), 10)
        luck = random.Random(1)
        self.assertLess(noise.inflation([luck.random() for _ in range(1000)]), 1.2)


class Conditions(unittest.TestCase):
    def test_forms(self):
        for text, how, limit in (("step_time > +5%", "relative", 0.05), ("step_time>5%", "relative", 0.05), ("utilization < -5%", "relative", -0.05),
                                 ("utilization < 80%", "value", 80), ("utilization < -3pp", "difference", -3), ("step_time >= 30ms", "value", 30e6),
                                 ("step_time > +2.5us", "difference", 2500), ("peak_memory > +1GB", "difference", 1000),
                                 ("kernel:a<4, b> > +5%", "relative", 0.05), ("throughput < 100", "value", 100)):
            condition = conditions.parse(text)
            self.assertEqual((condition.how, round(condition.limit, 9)), (how, limit), text)
        self.assertEqual(conditions.parse("kernel:a<4, b> > +5%").name, "a<4, b>")

    def test_every_figure_has_its_unit(self):
        for metric in METRIC_OF.values():
            unit = {"1/s": "/s"}.get(metric.unit, metric.unit)
            for text, how in ((f"{metric.name} > 7{unit}", "value"), (f"{metric.name} < +7%", "relative"),
                              (f"{metric.name} < +7{'pp' if unit == '%' else unit}", "difference")):
                condition = conditions.parse(text)
                self.assertEqual((condition.how, condition.limit), (how, 0.07 if how == "relative" else 7), text)

    def test_bad_ones_name_what_is_accepted(self):
        for text, part in (("", "is not a condition: METRIC > +5%"), ("step_time 5%", "is not a condition"), ("speed > 5%", "there is no 'speed'"),
                           ("kernel: > 5%", "there is no 'kernel:'"), ("step_time > 5MB", "is not a unit of step_time, which has %, ns, us"),
                           ("step_time > +5", "is not a unit"), ("\x1b[31m > 5%", "\N{REPLACEMENT CHARACTER}[31m")):
            with self.assertRaises(conditions.BadCondition) as caught:
                conditions.parse(text)
            self.assertIn(part, str(caught.exception), text)
            self.assertNotIn("\n", str(caught.exception))


def rewrite(folder, table, function):
    path = folder / f"{table}.csv"
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        function(row)
    folders.write_table(folder, table, rows)


class Command(folders.TemporaryFolder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        holder = tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(holder.cleanup)
        cls.example = folders.profile_example(f"{holder.name}/example")

    def pair(self):
        """A run of the example, and a copy of it in which sum_rows takes twice as long and relu_backward is gone."""
        a, b = self.folder / "a", self.folder / "b"
        for folder in (a, b):
            shutil.copytree(self.example, folder)

        def change(row):
            if row["Name"].startswith("sum_rows"):
                for column in ("Total Time (ns)", "Avg (ns)"):
                    row[column] = str(2 * float(row[column]))
            if row["Name"].startswith("relu_backward"):
                row["Name"] = "<script>alert(1)</script> \x1b[31m</td>"
        for table in ("cuda_gpu_kern_sum", "cuda_gpu_kern_gb_sum"):
            rewrite(b, table, change)
        return a, b

    def test_terminal_json_and_page(self):
        a, b = self.pair()
        done = folders.inject("compare", a, b, "-o", self.folder / "c.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"Kernels: 3 of 7 changed, per iteration")
        self.assertRegex(done.stdout, r"\+20\.000us +\+100\.0% .* sum_rows")
        self.assertRegex(done.stdout, r"-10\.000us +gone .* relu_backward")
        self.assertLessEqual(max(map(len, done.stdout.replace(str(self.folder), "").splitlines())), 120)
        self.assertNotIn("\x1b", done.stdout)
        page = (self.folder / "c.html").read_text(encoding="utf-8")
        self.assertNotIn("<script>alert", page)
        (sections,) = folders.sections_of(self.folder / "c.html")
        (table,) = sections["kernels"]["tables"]
        self.assertEqual([column["name"] for column in table["columns"]], ["Name", "Change (%)", "Verdict", "A", "B", "Change", "Interval", "Calls"])
        rows = {row[0]: row for row in table["rows"]}
        self.assertEqual(rows["sum_rows(float const*, float*, int, int)"][1:6],
                         [[1.0, "+100.0%", "bad"], ["more", "more", "bad"], [20000, "20.000us", ""], [40000, "40.000us", ""], [20000, "+20.000us", "bad"]])
        self.assertEqual(rows["<script>alert(1)</script> \N{REPLACEMENT CHARACTER}[31m</td>"][2], ["new", "new", "bad"])
        self.assertEqual(sorted(sections["kernels"]["plots"][0]["series"][0]["values"]), [-10000, 10000, 20000])
        self.assertEqual(sections["run"]["plots"][0]["series"][0]["name"], "A: a")
        self.assertEqual((self.folder / "c.html").stat().st_mode & 0o777, 0o600)
        shown = json.loads(folders.inject("compare", a, b, "--json").stdout)
        rows = {row["name"]: row for row in shown["comparisons"][0]["tables"]["kernels"]["rows"]}
        row = rows["sum_rows(float const*, float*, int, int)"]
        self.assertEqual((row["verdict"], row["before"], row["after"], row["relative"], row["count_after"]), ("changed", 20000, 40000, 1.0, 2))
        self.assertEqual(shown["basis"], "iteration")

    def test_counts_that_can_not_be(self):
        a, b = self.pair()
        rewrite(b, "family_sum", lambda row: row.update(Instances="-3"))
        self.assertEqual(folders.invoke("compare", a, b).returncode, 0)

    def test_what_one_run_does_not_know(self):
        """It is not known to be gone: not compared, and no gate passes by it."""
        def damaged(folder):
            table = folder / "cuda_gpu_kern_sum.csv"
            table.write_text(table.read_text()[:-5])

        def untraced(folder):
            rewrite(folder, "window_sum", lambda row: row.update(Kernels=""))

        def in_run(folder, **members):
            run = json.loads((folder / "run.json").read_text())
            options = {**run["options"], **{name: text for name, text in members.items() if name.startswith("INJECT")}}
            (folder / "run.json").write_text(json.dumps({**run, **{name: each for name, each in members.items() if name not in options}, "options": options}))

        library = {"gemm", "families", "library", "library_host", "idle"}
        kinds = {"kernels", "api", "nvtx", "nvtx_gpu", "phases", "copies", "memory", *library}
        for number, (change, missing, said) in enumerate((
                (damaged, {"kernels"}, "cuda_gpu_kern_sum.csv is missing, or can't be used: no kernels in comparisons with this run"),
                (lambda b: (b / "phase_sum.csv").unlink(), {"phases"}, "phase_sum.csv is missing, or can't be used: no phases in"),
                (lambda b: in_run(b, stale_files=["cuda_gpu_kern_sum.csv"]), {"kernels"}, "cuda_gpu_kern_sum.csv is older than other tables: no kernels in"),
                (lambda b: in_run(b, stale_files=["iteration_sum.csv"]), kinds - {"memory"}, "iteration_sum.csv is older than other tables: no kernels, "),
                (lambda b: in_run(b, INJECT_HOOKS="cudart,torch,python"), library,
                 "recorded without cublas, cublaslt, cudnn, nccl (INJECT_HOOKS, INJECT_API): no gemm, families, library, library_host, idle in"),
                (lambda b: in_run(b, INJECT_HOOKS="cublas,cublaslt,cudnn,nccl"), {"api", "idle", "memory"},
                 "recorded without cudart (INJECT_HOOKS, INJECT_API): no api, idle, memory in"),
                (lambda b: in_run(b, INJECT_API="off"), {"api", "idle"}, "recorded without API calls (INJECT_HOOKS, INJECT_API): no api, idle in"),
                (lambda b: in_run(b, INJECT_API="full"), {"api", "idle"}, "recorded without driver calls (INJECT_HOOKS, INJECT_API): no api, idle in"),
                (untraced, kinds - {"api", "library_host", "nvtx", "memory"},
                 "there are windows without records of GPU work: no kernels, "))):
            a, b = (self.folder / f"{number}{name}" for name in "ab")
            for folder in (a, b):
                shutil.copytree(self.example, folder)
            change(b)
            for pair in ((a, b), (b, a)):
                done = folders.invoke("compare", *pair, "--json")
                (comparison,) = json.loads(done.stdout)["comparisons"]
                self.assertEqual(set(comparison["tables"]), kinds - missing, said)
                self.assertTrue(any(said in line for line in comparison["caveats"]), (said, comparison["caveats"]))
                self.assertFalse({"new", "gone", "changed"} & {row["verdict"] for table in comparison["tables"].values() for row in table["rows"]})
                found = {metric["name"] for metric in comparison["metrics"]}
                self.assertEqual(({"gemm_time", "gemm_rate"} & found, {"peak_memory"} & found),
                                 (set() if "gemm" in missing else {"gemm_time", "gemm_rate"}, set() if "memory" in missing else {"peak_memory"}), said)
            prefix = next(kind.prefix for kind in KINDS if kind.name in missing)
            done = folders.invoke("compare", a, b, "--fail-if", f"{prefix}:* > +5%")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"not all runs have '{next(kind.name for kind in KINDS if kind.name in missing)}': {said.partition(': no ')[0]}", " ".join(done.stderr.split()))

    def test_conditions(self):
        a, b = self.pair()
        for condition, status in (("kernel:sum_rows* > +5%", 1), ("kernel:sum_rows* > +150%", 0), ("kernel:relu* < -50%", 1), ("step_time > 1ns", 1),
                                  ("kernel:none > +5%", 2), ("attention_time > +5%", 2), ("copy:[CUDA memcpy*] > +5%", 0), ("kernel:sum_row[s]* > +5%", 2)):
            done = folders.invoke("compare", a, b, "--fail-if", "gemm_time > +5%", "--fail-if", condition)
            self.assertEqual(done.returncode, status, (condition, done.stderr))

    def test_a_folder_is_no_repetition_of_itself(self):
        a, b = self.pair()
        (self.folder / "link").symlink_to(a)
        done = folders.invoke("compare", a, self.folder / "link", "vs", b, b, "--json")
        self.assertEqual([done.returncode, *(line.partition("' is given twice")[2] for line in done.stderr.splitlines())], [0, *[" on one side: it counts once"] * 2])
        (comparison,) = json.loads(done.stdout)["comparisons"]
        self.assertEqual([len(comparison[side]) for side in ("before", "after")], [1, 1])

    def test_a_copy_is_no_repetition(self):
        """Of one run: it would narrow the interval. Against its own copy a run may be compared."""
        a, b = self.pair()
        done = folders.invoke("compare", a, b, "vs", b, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, f"inject: '{b}' and '{a}' on one side are the same run: it counts once\n"))
        (comparison,) = json.loads(done.stdout)["comparisons"]
        self.assertEqual([[run["folder"] for run in comparison[side]] for side in ("before", "after")], [[str(a)], [str(b)]])
        run = json.loads((b / "run.json").read_text())
        run["time_zero"]["utc_ns"] += 1
        (b / "run.json").write_text(json.dumps(run))
        (comparison,) = json.loads(folders.invoke("compare", a, b, "vs", b, "--json").stdout)["comparisons"]
        self.assertEqual(len(comparison["before"]), 2)

    def test_a_figure_that_one_of_several_runs_lacks(self):
        """Not compared, because the others' mean would be over different runs."""
        def run(name, batch):
            folder = self.of_steps(name, [1e6 + at for at in range(9)])
            folders.write_run(folder, options=batch)
            return folder
        a, b, c, d = *(run(name, {"INJECT_BATCH": "3"}) for name in "abc"), run("d", {})
        done = folders.invoke("compare", a, b, "vs", c, d, "--fail-if", "throughput < -5%")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("not all runs have a figure for throughput", done.stderr)
        shown = folders.invoke("compare", a, b, "vs", c, d).stdout
        self.assertIn("no throughput: it is left out of comparisons with this run", " ".join(shown.split()))

    def test_modules_functions_and_operators(self):
        """A function's lines are combined, because they move when a program is edited."""
        a, b = self.pair()
        for folder, line, times in ((a, 7, (400_000, 100_000)), (b, 9, (800_000, 100_000))):
            rows = [{"Module": f"Net.{name}", "Self Time (ns)": time, "Self Instances": 10} for name, time in zip("ab", times, strict=True)]
            folders.write_table(folder, "module_sum", rows)
            folders.write_table(folder, "op_sum", [{"Operator": "aten::mm", "Self Time (ns)": sum(times), "Self Instances": 20}])
            folders.write_table(folder, "line_sum", [{"File": "/me/train.py", "Line": line + at, "Function": "train", "User Code Time (ns)": time}
                                                     for at, time in enumerate(times)])
            folders.write_table(folder, "gap_line_sum", [
                *({"File": "/me/train.py", "Line": line + at, "Function": "train", "Idle Time (ns)": 1000 * time} for at, time in enumerate(times)),
                {"File": "", "Line": "", "Function": "[device]", "Idle Time (ns)": 1000}])
        tables = json.loads(folders.inject("compare", a, b, "--json").stdout)["comparisons"][0]["tables"]
        found = {kind: {row["name"]: (row["verdict"], row["relative"]) for row in tables[kind]["rows"]} for kind in ("modules", "functions", "operators")}
        self.assertEqual(found["modules"]["Net.a"], ("changed", 1.0))
        self.assertEqual(found["functions"], {"train.py train": ("changed", 0.8)})
        self.assertEqual(found["operators"], {"aten::mm": ("changed", 0.8)})
        self.assertEqual({row["name"]: row["relative"] for row in tables["gaps"]["rows"]}, {"train.py train": 0.8, "[device]": 0.0})
        self.assertEqual(folders.invoke("compare", a, b, "--strict", "--fail-if", "gap:train.py* > +5%").returncode, 1)
        self.assertEqual(folders.invoke("compare", a, b, "--fail-if", "module:Net.a > +5%").returncode, 1)

    def of_steps(self, name, times):
        folder = folders.write_run(self.folder / name)
        folders.write_table(folder, "iteration_sum", [{"Window": 1, "Label": "iteration", "Complete": 1, "Device": "all", "Duration (ns)": round(time)}
                                                      for time in times])
        return folder

    def test_a_gate_that_can_not_be_judged_is_not_passed(self):
        """Five iterations that differ by as much as half of one: 55 % more may be chance."""
        times = (1e6, 1.1e6, 1.6e6, 1.2e6, 1.5e6)
        a, b = self.of_steps("a", times), self.of_steps("b", [1.55 * time for time in times])
        done = folders.invoke("compare", a, b, "--fail-if", "step_time > +5%")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"inject: step_time > \+5%: inconclusive, too few samples to say: .* \+55\.0%")
        end = " ".join(done.stdout[done.stdout.rindex("\n\n"):].split())
        self.assertRegex(end, r"^Too few samples to say whether B is slower or faster than A: a step takes .* \+55\..*"
                              r"The gate is inconclusive: too few samples to judge step_time > \+5%\.$")
        done = folders.invoke("compare", a, b, "--fail-if", "step_time > +5%", "--strict")
        self.assertEqual(done.returncode, 1)
        self.assertIn("step_time > +5%: failed: ", done.stderr)
        shown = json.loads(folders.invoke("compare", a, b, "--json", "--fail-if", "step_time > +5%").stdout)["comparisons"][0]
        self.assertEqual(shown["conditions"][0]["result"], "undecided")
        self.assertEqual(shown["conclusion"], end)

    def test_the_last_sentence(self):
        for name, factor, says in (("slower", 1.2, "B is slower than A: a step takes 1.200ms instead of 1.000ms: +20.0%, the 99% interval is +1"),
                                   ("faster", 0.8, "B is faster than A: a step takes 800.000us instead of 1.000ms: -20.0%, the 99% interval is -2"),
                                   ("same", 1.0, "No difference seen between A and B: a step takes 1.000ms instead of 1.000ms: +0.0%, the 99%")):
            luck = random.Random(name)
            times = [[1e6 * each * (1 + 0.01 * part) for part in luck.sample([-1, -0.8, -0.6, -0.4, -0.2, 0, 0.2, 0.4, 0.6, 0.8, 1] * 4, 44)]
                     for each in (1, factor)]
            a, b = self.of_steps(f"{name} a", times[0]), self.of_steps(f"{name} b", times[1])
            done = folders.invoke("compare", a, b, "--fail-if", "step_time > +5%")
            end = " ".join(done.stdout[done.stdout.rindex("\n\n"):].split())
            self.assertTrue(end.startswith(says), end)
            self.assertTrue(end.endswith("The gate failed: step_time > +5%." if factor > 1 else "The gate passed."), end)
            self.assertEqual(done.returncode, int(factor > 1))
            folders.invoke("compare", a, b, "-o", self.folder / "c.html", "--fail-if", "step_time > +5%")
            self.assertIn(end, (self.folder / "c.html").read_text(encoding="utf-8").replace("&gt;", ">"))

    def test_against_itself(self):
        a = self.example
        for arguments in ((a, a), (a, a, "vs", a, a), (a, a, a)):
            shown = json.loads(folders.invoke("compare", *arguments, "--json").stdout)
            self.assertEqual(len(shown["comparisons"]), 2 if arguments == (a, a, a) else 1)
            for comparison in shown["comparisons"]:
                verdicts = {row["verdict"] for table in comparison["tables"].values() for row in table["rows"]}
                verdicts |= {row["verdict"] for row in comparison["metrics"]}
                self.assertEqual((verdicts, comparison["differences"]), ({"no difference", "too few"}, []))

    def test_what_else_differs(self):
        a = folders.write_run(self.folder / "a", devices=[{"name": "H200"}], options={"INJECT_WINDOW": "api"}, versions={"cupti": "1"})
        b = folders.write_run(self.folder / "b", devices=[{"name": "evil\x1b[2J"}, 7], options={"INJECT_WINDOW": "always"},
                              command_line=["python3", "other.py"], state="open")
        done = folders.invoke("compare", a, b)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("GPU: H200 | evil\N{REPLACEMENT CHARACTER}[2J", "INJECT_WINDOW: api | always", "cupti: 1 | not there",
                     "command line: python3 train.py | python3 other.py", "b: the run has not ended"):
            self.assertIn(line, done.stdout)
        self.assertIn("neither iterations nor windows", done.stdout)

    def test_which_of_repeated_runs_differs(self):
        runs = [folders.write_run(self.folder / name, pid=pid, options={"INJECT_WINDOW": window})
                for pid, (name, window) in enumerate({"a1": "api", "a2": "always", "b1": "api", "b2": "always", "b3": "time:1s"}.items())]
        arguments = ("compare", *runs[:2], "vs", *runs[2:])
        (comparison,) = json.loads(folders.invoke(*arguments, "--json").stdout)["comparisons"]
        a2, b2, b3 = (printable(str(runs[number]), 80) for number in (1, 3, 4))
        lines = [f"INJECT_WINDOW ({a2}, {b2}): api | always", f"INJECT_WINDOW ({b3}): api | time:1s"]
        self.assertEqual(comparison["differences"], lines)
        done = folders.invoke(*arguments, "-o", self.folder / "c.html")
        self.assertIn(lines[1], " ".join(done.stdout.split()))
        (sections,) = folders.sections_of(self.folder / "c.html")
        self.assertEqual(sections["differences"]["tables"][0]["rows"], [[f"INJECT_WINDOW ({a2}, {b2})", "api", "always"],
                                                                          [f"INJECT_WINDOW ({b3})", "api", "time:1s"]])

    def test_tables_of_an_earlier_moment_are_named(self):
        a = folders.write_run(self.folder / "a")
        b = folders.write_run(self.folder / "b", stale_files=["gemm_sum.csv", "evil\x1b[2J", 7])
        said = "b: gemm_sum.csv, evil\N{REPLACEMENT CHARACTER}[2J older than the other tables"
        done = folders.invoke("compare", a, b)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(said, " ".join(done.stdout.split()))
        self.assertEqual([text.partition(": could")[0] for text in
                          json.loads(folders.invoke("compare", a, b, "--json").stdout)["comparisons"][0]["caveats"] if "older" in text], [said])

    def test_what_recovery_could_not_complete(self):
        a, b = self.pair()
        run = json.loads((b / "run.json").read_text())
        (b / "run.json").write_text(json.dumps({**run, "state": "recovered", "recovered": {"journal_full": True, "submissions_after_full": 3}}))
        said = json.loads(folders.invoke("compare", a, b, "--json").stdout)["comparisons"][0]["caveats"]
        self.assertTrue(any("lost: 3 submissions after full" in text for text in said), said)
        self.assertTrue(any("not recovered completely: the journal was full" in text for text in said), said)

    def test_without_iterations_rates_are_compared(self):
        a, b = self.pair()
        (b / "iteration_sum.csv").unlink()
        rewrite(b, "window_sum", lambda row: row.update({"Duration (ns)": "1000000"}))
        shown = json.loads(folders.invoke("compare", a, b, "--json").stdout)
        self.assertEqual(shown["basis"], "second")
        row = next(row for row in shown["comparisons"][0]["tables"]["kernels"]["rows"] if row["name"].startswith("sgd"))
        self.assertAlmostEqual(row["after"], 200000 / 1e-3)

    def test_bad_folders(self):
        a, b = self.pair()
        done = folders.invoke("compare", a, self.folder / "none", b)
        self.assertEqual(done.returncode, 0)
        self.assertIn("none: no such folder", done.stderr)
        self.assertIn("sum_rows", done.stdout)
        # With a missing repetition as well.
        done = folders.invoke("compare", a, self.folder / "none", "vs", b, "--fail-if", "step_time > +5000%")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(folders.invoke("compare", a, self.folder / "none", b, "--fail-if", "step_time > +1000%").returncode, 2)
        for arguments in ((a,), (a, "vs"), ("vs", a), (a, self.folder / "none"), (self.folder / "none", a)):
            done = folders.invoke("compare", *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
        (b / "cuda_gpu_kern_sum.csv").write_text("Name,Calls\nx,y\n")
        (b / "gemm_sum.csv").write_bytes(b"\xff\xfe")
        done = folders.invoke("compare", a, b)
        self.assertEqual(done.returncode, 0)
        self.assertIn("cuda_gpu_kern_sum.csv:2: 'y' in column 'Calls' is not a number", done.stderr)
        self.assertIn("Step time", done.stdout)
        for name in ("iteration_sum", "window_sum"):
            (b / f"{name}.csv").write_text("Window\n1\n")
        done = folders.invoke("compare", a, b)
        self.assertIn("no column 'Device'", done.stderr)
        self.assertEqual(done.returncode, 0)

    def test_a_page_on_stdout(self):
        done = folders.inject("compare", self.example, self.example, "-o", "-", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr, list(self.folder.iterdir())), (0, "", []))
        self.assertTrue(done.stdout.lower().startswith("<!doctype html>") and done.stdout.rstrip().endswith("</html>"), done.stdout[:200])
        done = folders.invoke("compare", self.example, self.example, "-o", "-", "--json")
        self.assertEqual((done.returncode, done.stderr), (2, "inject: -o - and --json both write to stdout\n"))

    def test_in_a_folder_that_is_gone(self):
        (self.folder / "gone").mkdir()
        done = subprocess.run(["sh", "-c", f'cd gone; rmdir ../gone; exec "{sys.executable}" "{folders.ROOT}/scripts/inject" compare ../A B'], cwd=self.folder,
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr.splitlines()),
                         (2, ["inject: ../A: no such file or directory", "inject: B: no such file or directory", "inject: nothing to compare"]))

    def test_numbers_that_are_none(self):
        a, b = self.pair()
        for value in ("nan", "-1", "9" * 400, "1e29", ""):
            rewrite(b, "iteration_sum", lambda row, value=value: row.update({"Duration (ns)": value, "Kernel Time (ns)": value}))
            rewrite(b, "cuda_gpu_kern_sum", lambda row, value=value: row.update({"Total Time (ns)": value}))
            done = folders.invoke("compare", a, b, "--json")
            self.assertEqual(done.returncode, 0, (value, done.stderr))
            json.loads(done.stdout, parse_constant=self.fail)

    def test_basis(self):
        self.assertEqual([basis.value for basis in Basis], ["iteration", "second", "run"])
        self.assertTrue(math.isinf(changes.Change("x", None, 1.0).relative))


if __name__ == "__main__":
    unittest.main()
