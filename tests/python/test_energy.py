# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Energy and clocks in `inject report`, `compare`, `sweep` and `merge`."""

import csv
import math
import unittest

import folders
import ranks
import test_merge
from libinject.compare.measures import Basis, Run
from libinject.result import Result
from libinject.sweep import measured, points

from libinject import figures
from libinject.report import energy, model, over_time

MS = 1_000_000
ROW = {"Window": 1, "Iteration": "", "Of": "window", "Device": 0, "Start (ns)": 20_000 * MS, "Duration (ns)": 2000 * MS, "Energy (J)": "900.000",
       "± Energy (J)": "30.000", "Power (W)": "450.0", "Idle Energy (J)": "", "± Idle Energy (J)": "", "Idle Energy (%)": "",
       "Energy per Sample (J)": "1.406250", "Clock Readings": 40, "SM Clock (MHz)": "1500.0", "SM Clock Min (MHz)": 1400,
       "SM Clock Highest (MHz)": 1980, "Memory Clock (MHz)": "2619.0", "Memory Clock Min (MHz)": 2619, "Temperature Max (C)": 60,
       "Power Readings (W)": "440.0", "Held Down (%)": "25.0", "Held by Power (%)": "25.0", "Held by Heat (%)": "0.0", "Held by Hardware (%)": "0.0",
       "Held Cost Bound (%)": "6.0"}
EMPTY = dict.fromkeys(("Energy (J)", "± Energy (J)", "Power (W)", "Energy per Sample (J)"), "")
HELD = "clocks throttled 25.0% of the time (power 25.0%)"


def rank(folder, number, rows):
    ranks.write_rank(folder, number, [100 * MS] * 20, batch=32, options={"INJECT_BATCH": "32"},
                     files=["iteration_sum.csv", "window_sum.csv", "nccl_sum.csv", "copy_sum.csv", "memory_sum.csv", "energy_sum.csv"],
                     diagnosis=[{"device": 0, "verdict": "input-bound", "device_time_ns": 2000 * MS, "kernel_busy_ns": 1000 * MS, "clocks": HELD}])
    folders.write_table(folder, "energy_sum", rows)
    return folder


class Energy(folders.TemporaryFolder):
    def result(self, *rows, name="run"):
        return Result(rank(self.folder / name, None, rows))

    def test_figures(self):
        # Readings come less often the longer windows are open.
        other = {**ROW, "Window": 2, "Duration (ns)": 500 * MS, "SM Clock (MHz)": "1000.0", "Held Down (%)": "50.0"}
        found = figures.energy(self.result(ROW, {**ROW, "Of": "iteration", "Iteration": 0}, {**other, **EMPTY}))
        self.assertEqual((found.joules, found.error, found.seconds, found.whole), (900, 30, 2, False))
        result = self.result(ROW, {**ROW, "Device": 1, "Energy per Sample (J)": "0.5"}, other, name="two")
        found = figures.energy(result)
        self.assertEqual((found.joules, found.error, found.seconds, found.whole), (2700, 90, 4.5, True))
        self.assertAlmostEqual(figures.joules_per("Sample", result), 1.90625)
        self.assertAlmostEqual(figures.clock(result), (4 * 1500 + 0.5 * 1000) / 4.5)
        self.assertAlmostEqual(figures.clock(result, "Held Down (%)"), (4 * 25 + 0.5 * 50) / 4.5)

    def test_no_time(self):
        for name, time in (("none", 0), ("unknown", "")):
            tiles = {tile["label"]: tile for tile in model.run_model(self.result({**ROW, "Duration (ns)": time}, name=name))["tiles"]}
            self.assertEqual((tiles["Energy"]["value"], tiles["Energy"]["note"]), ("900.0 J", "± 30.0 J in windows; 1.406 J a sample"))

    def test_nothing_is_known(self):
        unknown = {**ROW, **EMPTY, "SM Clock (MHz)": "", "Held Down (%)": ""}
        for name, rows in (("unknown", [unknown]), ("none", [{**ROW, "Of": "iteration"}])):
            result = self.result(*rows, name=name)
            self.assertIsNone(figures.energy(result))
            self.assertIsNone(figures.clock(result))
            run = Run(result)
            run.measure(Basis.ITERATION, False)
            self.assertFalse({"energy", "power", "sm_clock"} & run.metrics.keys())
        folder = ranks.write_rank(self.folder / "older", None, [100 * MS] * 20)
        self.assertTrue(energy.section(Result(folder)).empty)
        self.assertEqual(Result(folder).problems, [])

    def test_compare(self):
        run = Run(self.result(ROW))
        for basis, divisor in ((Basis.ITERATION, 20), (Basis.SECOND, 2), (Basis.RUN, 1)):
            run.measure(basis, False)
            self.assertAlmostEqual(run.metrics["energy"].value, 900 / divisor)
            self.assertAlmostEqual(run.metrics["power"].value, 450)
            # The meter's own, as the steps are equally long; without iterations their spread is not known.
            known = basis is Basis.ITERATION
            self.assertEqual([run.metrics[name].error is not None for name in ("energy", "power")], [known] * 2)
            if known:
                self.assertAlmostEqual(run.metrics["energy"].error, 30 / math.sqrt(3) / divisor)
                self.assertAlmostEqual(run.metrics["power"].error, 30 / math.sqrt(3) / 2)
            self.assertAlmostEqual(run.metrics["sm_clock"].value, 1500)
        # If a window has no energy, there is no total.
        run = Run(self.result(ROW, {**ROW, "Window": 2, **EMPTY}, name="part"))
        run.measure(Basis.RUN, False)
        self.assertNotIn("energy", run.metrics)
        self.assertAlmostEqual(run.metrics["power"].value, 450)

    def test_compare_where_the_host_ran_ahead(self):
        """The window's iterations used more than what was used up to its end."""
        for step_time, known in (("100000000.0", True), ("150000000.0", False), ("", False)):
            with self.subTest(step_time):
                result = self.result(ROW, name=f"steps-{step_time}")
                with open(result.path / "iteration_sum.csv", newline="", encoding="utf-8") as file:
                    rows = list(csv.DictReader(file))
                folders.write_table(result.path, "iteration_sum", [{**row, "Step Time (ns)": step_time} for row in rows])
                run = Run(Result(result.path))
                run.measure(Basis.ITERATION, False)
                self.assertEqual("energy" in run.metrics, known)
                run.measure(Basis.SECOND, False)
                self.assertIn("energy", run.metrics)

    def test_report(self):
        parts = [{**ROW, "Of": "iteration", "Iteration": i, "Start (ns)": (20_000 + 500 * i) * MS, "Duration (ns)": 500 * MS, "Power (W)": f"{400 + i}.0"}
                 for i in range(4)]
        # The third is too short for its energy to be known.
        parts[2] |= EMPTY
        result = self.result(ROW, *parts)
        section = energy.section(result)
        (power_axis, (iterations, windows)), (clock_axis, clock) = energy.over_time(result)
        self.assertEqual((power_axis["title"], clock_axis["title"]), ("power (W)", "SM clock (MHz)"))
        self.assertEqual([y for y in iterations["y"]], [400.0, 400.0, 401.0, 401.0, None, 403.0, 403.0])
        self.assertEqual(iterations["x"][:3], [20_000 * MS, 20_500 * MS, 20_500 * MS])
        self.assertEqual(windows["y"], [450.0, 450.0])
        self.assertEqual([series["name"] for series in clock], ["SM clock in iterations, GPU 0", "SM clock in windows, GPU 0"])
        self.assertIn(f"GPU 0: {HELD}.", section.notes)
        self.assertEqual(len(section.tables[0].rows), 5)
        tiles = {tile["label"]: tile for tile in model.run_model(result)["tiles"]}
        self.assertEqual((tiles["Energy"]["value"], tiles["Energy"]["note"]), ("900.0 J", "± 30.0 J in windows, 450 W a GPU; 1.406 J a sample"))
        self.assertEqual((tiles["SM clock"]["value"], tiles["SM clock"]["note"]), ("1,500 MHz", "mean in windows; throttled 25.0% of the time"))

    def test_over_time(self):
        """Steps, memory, power and clock, one below the other over one time axis, each series in its own panel."""
        result = self.result(ROW)
        plot = over_time.plot(result)
        self.assertEqual([axis["title"] for axis in plot.panels], ["step time", "memory (MB)", "power (W)", "SM clock (MHz)"])
        self.assertEqual({series["name"]: series["panel"] for series in plot.series},
                         {"step time in windows": 0, "in use, GPU 0": 1, "allocated at most, GPU 0": 1, "power in windows, GPU 0": 2, "SM clock in windows, GPU 0": 3})
        steps, *_, power, _ = plot.series
        self.assertEqual((steps["x"][0], steps["x"][1], steps["y"][0]), (20_000 * MS, 20_100 * MS, 100 * MS))
        self.assertEqual((power["x"], power["y"]), ([20_000 * MS, 22_000 * MS], [450, 450]))
        self.assertEqual([(band["from"], band["to"]) for band in plot.bands], [(20_000 * MS, 22_000 * MS)])
        # Steps alone have a plot of their own.
        (result.path / "energy_sum.csv").unlink()
        (result.path / "memory_sum.csv").unlink()
        folders.write_table(result.path, "window_sum", [{"Window": 1, "Device": "all", "Start (ns)": 1, "End (ns)": 2, "Memory at Start (MB)": "", "Memory at End (MB)": ""}])
        self.assertIsNone(over_time.plot(Result(result.path)))

    def test_sweep(self):
        run = Run(self.result(ROW))
        found = measured.Measured(points.Point({}, status=points.Status.DONE))
        measured._measure(found, run)
        self.assertEqual((found.figures["power_w"], found.figures["sm_clock_mhz"], found.figures["clocks_held_down_pct"]), (450, 1500, 25))
        self.assertAlmostEqual(found.figures["joules_per_sample"], 1.40625)

    def test_merge(self):
        rank(self.folder / "0", 0, [ROW, {**ROW, "Of": "iteration", "Iteration": 0}])
        rank(self.folder / "1", 1, [{**ROW, "Energy (J)": "600.000", "SM Clock (MHz)": "1000.0", "Held Down (%)": "75.0"},
                                         {**ROW, "Window": 2, "Clock Readings": 5, **EMPTY}])
        (job,) = test_merge.merged(self.folder)["jobs"]
        first, second = job["by_rank"]
        self.assertEqual((first["energy_j"], first["energy_error_j"], first["power_w"], first["sm_clock_mhz"], first["clocks_held_down"]), (900, 30, 450, 1500, 0.25))
        self.assertEqual((second["energy_j"], second["power_w"], second["sm_clock_mhz"], second["clocks_held_down"]), (None, 300, 1250, 0.5))
        self.assertEqual(job["problems"], [])


if __name__ == "__main__":
    unittest.main()
