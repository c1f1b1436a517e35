# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Values for one folder are the same in `inject report`, `compare`, `sweep` and `merge` if they have the same name."""

import csv
import json
import shutil
import statistics
import unittest

import folders

import libinject

DATA = folders.ROOT / "examples" / "data" / "h200"


def read(folder, table):
    with open(folder / f"{table}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


class OneNameOneMeaning(folders.TemporaryFolder):
    def shown(self, *arguments):
        done = folders.invoke(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def folders_of_runs(self):
        for name in ("resnet50", "deepspeech2"):
            yield DATA / name
        # Windows that are mostly waiting, before and after their iterations.
        idle = self.folder / "idle"
        shutil.copytree(DATA / "resnet50", idle)
        rows = read(idle, "window_sum")
        for row in rows:
            for column in ("Duration (ns)", "Device Time (ns)"):
                row[column] = int(row[column]) + 150_000_000
            row["GPU Utilization (%)"] = round(100 * int(row["Kernel Busy (ns)"]) / row["Device Time (ns)"], 1)
        folders.write_table(idle, "window_sum", rows)
        yield idle
        # Its iterations without the profiler are shorter.
        shorter = self.folder / "shorter"
        shutil.copytree(DATA / "resnet50", shorter)
        rows = read(shorter, "window_sum")
        batch = next(float(row["Samples/s"]) * int(row["Duration (ns)"]) for row in read(shorter, "iteration_sum") if row["Samples/s"])
        times = [30_000_000 + 50_000 * i for i in range(9)]
        folders.write_table(shorter, "step_times", [{"Iteration": i, "Start (ns)": 40_000_000 * i, "Duration (ns)": time, "Samples/s": round(batch / time, 1)}
                                                    for i, time in enumerate(times)])
        for row in rows:
            row["Step Time (ns)"], row["Samples/s"] = (times[4], round(batch / times[4], 1)) if row["Device"] == "all" else ("", "")
        folders.write_table(shorter, "window_sum", rows)
        yield shorter

    def swept(self, folder):
        sweep = self.folder / f"sweep {folder.name}"
        shutil.copytree(folder, sweep / "point" / "tables")
        (sweep / "points.json").write_text(json.dumps({
            "inject_sweep": 1, "command": ["train"], "variables": {"N": ["1"]}, "batch_variable": None, "settings": {},
            "points": [{"values": {"N": "1"}, "folder": "point", "status": "done", "why": "", "exit_status": 0, "seconds": 1}]}))
        (point,) = json.loads(self.shown("sweep", "--report", sweep, "--json"))["points"]
        return point

    def figures_of(self, folder):
        """By command: step time (ns), samples per second (as in the report, in tenths), GPU utilization (%)."""
        report = json.loads(self.shown("report", folder, "--json"))["runs"][0]
        tiles = {tile["label"]: tile["value"] for tile in report["tiles"]}
        metrics = {metric["name"]: metric for metric in json.loads(self.shown("compare", folder, folder, "--json"))["comparisons"][0]["metrics"]}
        point = self.swept(folder)
        (job,) = json.loads(self.shown("merge", folder, "--json"))["jobs"]
        (rank,) = job["by_rank"]
        self.assertIn(tiles["GPU utilization"], self.shown("merge", folder))
        return tiles, {
            "report": (report["steps"]["median"], float(tiles["Samples per second"].removesuffix("/s").replace(",", "")), report["utilization"]),
            "compare": tuple(metrics[name]["after"] for name in ("step_time", "throughput", "utilization")),
            "sweep": tuple(point[name] for name in ("step_time_ns", "samples_per_s", "gpu_utilization_pct")),
            "merge": (job["step_ns"], job["throughput"]["samples_per_s"], 100 * rank["utilization"])}

    def test_every_command_says_the_same(self):
        for folder in self.folders_of_runs():
            rows = [row for row in read(folder, "iteration_sum") if (row["Label"], row["Complete"], row["Device"]) == ("iteration", "1", "all")]
            windows = [row for row in read(folder, "window_sum") if row["Device"] == "all"]
            if (folder / "step_times.csv").exists():
                rows = read(folder, "step_times")
            step = statistics.median(int(row["Duration (ns)"]) for row in rows)
            busy, time = (sum(int(row[column]) for row in windows) for column in ("Kernel Busy (ns)", "Device Time (ns)"))
            batch = int(json.loads((folder / "run.json").read_text(encoding="utf-8"))["options"]["INJECT_BATCH"])
            expected = (step, batch * 1e9 / step, 100 * busy / time)
            tiles, found = self.figures_of(folder)
            self.assertEqual((tiles["Step time"], tiles["GPU utilization"]), (f"{step / 1e6:.3f}ms", f"{100 * busy / time:.1f}%"))
            for command, values in found.items():
                for value, wanted in zip(values, expected, strict=True):
                    self.assertAlmostEqual(value / wanted, 1, delta=5e-4, msg=(folder.name, command, values, expected))

    def test_a_window_with_one_of_two_cells(self):
        """No command has a utilization that is of other windows' kernels than of time."""
        columns = ("Kernel Busy (ns)", "Device Time (ns)")
        for number, (column, windows) in enumerate(((columns[0], ()), (columns[1], ()), (columns[0], (2, 3)), (columns[1], (2, 3)))):
            folder = self.folder / f"lacking {number}"
            shutil.copytree(DATA / "resnet50", folder)
            rows = read(folder, "window_sum")
            for row in rows:
                if not windows:
                    del row[column]
                elif int(row["Window"]) in windows:
                    row[column] = ""
            folders.write_table(folder, "window_sum", rows)
            said = "a window has only one of 'Kernel Busy (ns)' and 'Device Time (ns)': no GPU utilization"
            done = folders.invoke("compare", folder, folder, "--fail-if", "utilization < 95%")
            self.assertEqual((done.returncode, done.stderr.count(said)), (2, 1), done.stderr)
            run = libinject.load(folder)
            self.assertIsNone(run.utilization)
            self.assertEqual(sum(said in problem for problem in run.problems), 1)
            report = json.loads(self.shown("report", folder, "--json"))["runs"][0]
            self.assertEqual((report["utilization"], sum(said in problem for problem in report["problems"])), (None, 1))
            point = self.swept(folder)
            self.assertEqual((point["gpu_utilization_pct"], sum(said in problem for problem in point["problems"])), (None, 1))
            (job,) = json.loads(self.shown("merge", folder, "--json"))["jobs"]
            self.assertEqual((job["by_rank"][0]["utilization"], job["problems"]), (None, [f"{said}: rank 0"]))

    def test_idle_time_without_a_cause(self):
        folder = self.folder / "no queue"
        shutil.copytree(DATA / "transformer", folder)
        folders.write_table(folder, "window_sum", [{name: cell for name, cell in row.items() if name != "Idle: Queue (ns)"} for row in read(folder, "window_sum")])
        metrics = json.loads(self.shown("compare", DATA / "transformer", folder, "--json"))["comparisons"][0]["metrics"]
        self.assertNotIn("idle_time", [metric["name"] for metric in metrics])
        report = json.loads(self.shown("report", folder, "--json"))["runs"][0]
        self.assertTrue(any("causes" in problem for problem in report["problems"]))
        self.assertFalse(any(table["id"] == "idle" for section in report["sections"] for table in section["tables"]))

    def folders_with_units(self, source):
        """(folder, units per second): in windows only, and without the profiler. Every third iteration has none."""
        def units(rows):
            for i, row in enumerate(rows):
                if i % 3:
                    row["Units"], row["Units From"] = 100 + 37 * i, source
                    row["Units/s"] = row["Units"] * 1e9 / int(row["Duration (ns)"])
            known = [row for row in rows if row.get("Units")]
            return sum(row["Units"] for row in known) * 1e9 / sum(int(row["Duration (ns)"]) for row in known)

        for name in ("inside", "outside"):
            folder = self.folder / f"{source} {name}"
            shutil.copytree(DATA / "resnet50", folder)
            run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            del run["options"]["INJECT_BATCH"]
            (folder / "run.json").write_text(json.dumps(run), encoding="utf-8")
            rows, windows = read(folder, "iteration_sum"), read(folder, "window_sum")
            for row in (*rows, *windows):
                row.update({"Samples/s": "", "Samples/s in Window": "", "Units From": "", "Units": "", "Units/s": ""})
            rate = units([row for row in rows if (row["Label"], row["Complete"], row["Device"]) == ("iteration", "1", "all")])
            if name == "outside":
                steps = [{"Iteration": i, "Start (ns)": 40_000_000 * i, "Duration (ns)": 30_000_000 + 50_000 * i, "Units": "", "Units From": "", "Units/s": ""} for i in range(12)]
                rate = units(steps)
                folders.write_table(folder, "step_times", steps)
            for row in windows:
                if row["Device"] == "all":
                    row.update({"Units From": source}, **({"Units/s": rate, "Step Time (ns)": 30_275_000} if name == "outside" else {}))
            folders.write_table(folder, "iteration_sum", rows)
            folders.write_table(folder, "window_sum", windows)
            yield folder, rate

    def test_every_command_has_the_same_units(self):
        for folder, rate in self.folders_with_units("called"):
            tiles, found = self.commands(folder)
            self.assertEqual(tiles["Units of work per second"], f"{rate:,.1f}/s")
            self.assertNotIn("Samples per second", tiles)
            for command, value in found.items():
                self.assertAlmostEqual(value / rate, 1, delta=1e-9, msg=(folder.name, command))
            self.assertIn(f", {rate:,.1f} units/s", self.shown("merge", folder))
            self.assertAlmostEqual(libinject.load(folder).units_per_second / rate, 1)

    def commands(self, folder):
        report = json.loads(self.shown("report", folder, "--json"))["runs"][0]
        metrics = {metric["name"]: metric for metric in json.loads(self.shown("compare", folder, folder, "--json"))["comparisons"][0]["metrics"]}
        (job,) = json.loads(self.shown("merge", folder, "--json"))["jobs"]
        return ({tile["label"]: tile["value"] for tile in report["tiles"]},
                {"compare": metrics["unit_rate"]["after"], "sweep": self.swept(folder)["units_per_s"], "merge": job["throughput"]["units_per_s"]})

    def test_other_units_are_not_compared(self):
        (one, _), _ = self.folders_with_units("called")
        (other, _), _ = self.folders_with_units("payload")
        names = {metric["name"] for metric in json.loads(self.shown("compare", one, other, "--json"))["comparisons"][0]["metrics"]}
        self.assertIn("step_time", names)
        self.assertNotIn("unit_rate", names)


if __name__ == "__main__":
    unittest.main()
