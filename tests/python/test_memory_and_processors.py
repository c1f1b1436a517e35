# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Memory by purpose, memory in use and CPU use in `inject compare`, `sweep` and `merge`: all of them give the same values."""

import json
import unittest

import folders
import ranks
import test_merge
from libinject.compare import measures
from libinject.result import Result
from libinject.sweep import measured, page, points

from libinject import figures

MS = 1_000_000
PURPOSES = {"parameters": 94_000, "gradients": 94_000, "optimizer state": 188_008, "buffers": 400, "other tensors": 12_000, "workspaces": 8_000, "communication buffers": 7_000, "[no tensor]": 500_000,
            "[rounding]": 9, "[cached]": 1_000_000, "[outside of the allocator]": 400_000_000}
STAYING = ("parameters", "gradients", "optimizer state", "buffers", "workspaces", "communication buffers")
LASTING = sum(PURPOSES[purpose] for purpose in STAYING)
UNKNOWN = {"gradients": ""}


def memory(activations, device=0, **purposes):
    """Rows of memory_purpose.csv."""
    sizes = {**PURPOSES, **{name.replace("_", " "): size for name, size in purposes.items()}}
    told = "" in sizes.values()
    lasting = sum(sizes[purpose] for purpose in STAYING if sizes[purpose] != "")
    rows = [{"Device": device, "Purpose": name, "Total": "no", "Tensors": 3, "Memory (B)": size} for name, size in sizes.items()]
    return [*rows, {"Device": device, "Purpose": "[all]", "Total": "yes", "Memory (B)": "", "Peak Allocated (B)": activations + lasting,
                    "Peak Reserved (B)": 2_000_000, "Activations at Peak (B)": "" if told else activations}]


def host(window, used, wanted, span=1000 * MS, affinity=8, quota="", **more):
    return {"Window": window, "Role": "process", "Total": "yes", "Processor Time (ns)": 1, "Span (ns)": span, "Cores by Affinity": affinity,
            "Cores by Quota": quota, "Cores Used": used, "Cores Wanted": wanted, **more}


class Case(folders.TemporaryFolder):
    def rank(self, name, number=None, **tables):
        folder = ranks.write_rank(self.folder / name, number, [100 * MS] * 20, batch=32, peak=100.0)
        for table, rows in tables.items():
            header = list(dict.fromkeys(column for row in rows for column in row))
            ranks.write(folder / f"{table}.csv", header, rows)
        return folder

    def compare(self, *arguments):
        done = folders.invoke("compare", *arguments, "--json")
        self.assertEqual(done.stderr, "")
        (comparison,) = json.loads(done.stdout)["comparisons"]
        return {row["name"]: row for row in comparison["metrics"]}, comparison

    def point(self, folder, values=None):
        found = measured.Measured(points.Point(values or {}, status=points.Status.DONE))
        measured._measure(found, measures.Run(Result(folder)))
        return found


class Purposes(Case):
    def test_compare(self):
        """Values that are equal to the byte are no change, and all others are, however small; what grows is found by its name."""
        a = self.rank("a", memory_purpose=memory(1_000_000))
        b = self.rank("b", memory_purpose=memory(2_000_000, optimizer_state=0, other_tensors=12_200))
        metrics, comparison = self.compare(a, b)
        self.assertEqual([(metrics[name]["before"], metrics[name]["after"], metrics[name]["verdict"]) for name in ("activations", "torch_peak")],
                         [(1_000_000, 2_000_000, "changed"), (1_000_000 + LASTING, 2_000_000 + LASTING - 188_008, "changed")])
        rows = {row["name"]: row for row in comparison["tables"]["purposes"]["rows"]}
        self.assertEqual(comparison["tables"]["purposes"]["unit"], "B")
        self.assertEqual({name.removeprefix("GPU 0 "): row["verdict"] for name, row in rows.items()},
                         {**dict.fromkeys(PURPOSES, "no difference"), "optimizer state": "gone", "other tensors": "changed"})
        self.assertEqual(rows["GPU 0 other tensors"]["difference"], 200)
        shown = folders.invoke("compare", a, b).stdout
        self.assertRegex(shown, r"PyTorch's memory by purpose: 2 of 11 changed *\n")
        self.assertRegex(shown, r"-188.008kB +gone +.*GPU 0 optimizer state")
        self.assertRegex(shown, r"\+200B +\+1\.7%")

    def test_gates(self):
        a = self.rank("a", memory_purpose=memory(1_000_000))
        b = self.rank("b", memory_purpose=memory(1_200_000))
        for condition, status in (("activations > +100kB", 1), ("activations > +0.3MB", 0), ("activations > +25%", 0), ("torch_peak > 1MB", 1),
                                  ("purpose:*gradients > +0%", 0), ("purpose:* > 1GB", 0)):
            self.assertEqual(folders.invoke("compare", a, b, "--fail-if", condition).returncode, status, condition)

    def test_what_is_not_known(self):
        """A purpose some of whose tensors can't be determined has no row, and the peak no activations."""
        a = self.rank("a", memory_purpose=memory(1_000_000, **UNKNOWN))
        metrics, comparison = self.compare(a, a)
        self.assertIn("torch_peak", metrics)
        self.assertNotIn("activations", metrics)
        self.assertNotIn("GPU 0 gradients", [row["name"] for row in comparison["tables"]["purposes"]["rows"]])
        found = self.point(a).figures
        self.assertEqual((found["gradients_mb"], found["activations_mb"], found["parameters_mb"]), (None, None, 0.094))
        (job,) = test_merge.merged(self.rank("0", 0, memory_purpose=memory(1_000_000, **UNKNOWN) + memory(9, device=1)), self.rank("1", 1, memory_purpose=memory(1_000_000)))["jobs"]
        rows = {row["purpose"]: row for row in job["memory_by_purpose"]}
        self.assertEqual((rows["gradients"]["ranks"], rows["gradients"]["most_rank"], rows["gradients"]["sum_b"]), (1, 1, None))
        self.assertEqual(rows["parameters"]["sum_b"], 3 * 94_000)

    def test_of_the_gpu_with_the_highest_peak(self):
        """Values of one GPU, so that they add up."""
        a = self.rank("a", memory_purpose=memory(1_000_000) + memory(2_000_000, device=1, parameters=0))
        self.assertEqual([(each.device, each.peak, each.activations) for each in figures.memory_purposes(Result(a))],
                         [("1", 2_000_000 + LASTING - 94_000, 2_000_000), ("0", 1_000_000 + LASTING, 1_000_000)])
        found = self.point(a).figures
        self.assertEqual((found["activations_mb"], found["parameters_mb"]), (2, 0))
        self.assertAlmostEqual(sum(found[column] for column in measured.AT_PEAK.values()), found["torch_peak_mb"])
        # If libraries' memory is not separated, it is part of the activations.
        b = self.rank("b", memory_purpose=[{**row, **({"Peak Allocated (B)": 500_000, "Activations at Peak (B)": 123_592} if row["Total"] == "yes" else {})}
                                           for row in memory(0) if row["Purpose"] not in ("workspaces", "communication buffers")])
        (plot,) = page._memory_plots({"": [self.point(b, {"N": "1"})]}, "N")
        self.assertAlmostEqual(sum(series["values"][0] for series in plot.series), 0.5)
        metrics, comparison = self.compare(a, a)
        self.assertEqual(metrics["activations"]["after"], 2_000_000)
        self.assertIn("GPU 1 gradients", [row["name"] for row in comparison["tables"]["purposes"]["rows"]])

    def test_sweep(self):
        items = [self.point(self.rank(size, memory_purpose=memory(int(size) * 100_000)), {"N": size}) for size in ("1", "2", "4")]
        items.append(self.point(self.rank("8"), {"N": "8"}))
        self.assertEqual([item.figures.get("activations_mb") for item in items], [0.1, 0.2, 0.4, None])
        sweep = points.Sweep(self.folder, ["train"], {"N": ["1", "2", "4", "8"]}, None, {}, [item.point for item in items])
        rows = measured.as_csv(sweep, items).splitlines()
        at = rows[0].split(",").index("activations_mb")
        self.assertEqual([row.split(",")[at] for row in rows[1:]], ["0.1", "0.2", "0.4", ""])
        (plot,) = page._memory_plots({"": items}, next(iter(items[0].point.values)))
        self.assertEqual([(series["name"], series["values"]) for series in plot.series][-1], ("activations", [0.1, 0.2, 0.4]))
        self.assertEqual(plot.series[0]["names"], ["N=1", "N=2", "N=4"])
        sums = [sum(series["values"][i] for series in plot.series) for i in range(3)]
        for total, item in zip(sums, items[:3], strict=True):
            self.assertAlmostEqual(total, item.figures["torch_peak_mb"], places=2)

    def test_a_sweep_without_any(self):
        self.assertEqual(list(page._memory_plots({"": [self.point(self.rank("8"))]}, "N")), [])

    def test_merge(self):
        """The ranks with the least and the most, and the sum if it is meaningful: for shards, but not for what processes share."""
        for number, share in enumerate((100, 300, 200)):
            self.rank(str(number), number, memory_purpose=memory(share, optimizer_state=share))
        self.rank("3", 3)
        (job,) = test_merge.merged(self.folder)["jobs"]
        rows = {row["purpose"]: row for row in job["memory_by_purpose"]}
        self.assertEqual(list(rows), [*PURPOSES, "peak of PyTorch's tensors", "activations at that peak"])
        self.assertEqual(rows["optimizer state"], {"purpose": "optimizer state", "ranks": 3, "least_b": 100, "least_rank": 0, "median_b": 200, "most_b": 300,
                                                   "most_rank": 1, "sum_b": 600})
        for purpose in ("[outside of the allocator]", "peak of PyTorch's tensors", "activations at that peak"):
            self.assertIsNone(rows[purpose]["sum_b"], purpose)
        self.assertEqual(job["by_rank"][1]["memory_by_purpose_b"]["activations at that peak"], 300)
        self.assertNotIn("memory_by_purpose_b", job["by_rank"][3])
        self.assertEqual(job["problems"], [])
        done = folders.invoke("merge", self.folder, "-o", self.folder / "job.html")
        self.assertRegex(done.stdout, r"optimizer state +100B +0 +200B +300B +1 +600B +3 *\n")
        (sections,) = folders.sections_of(self.folder / "job.html")
        self.assertEqual([column["name"] for column in sections["memory"]["tables"][0]["columns"]],
                         ["Purpose", "Least", "of rank", "Median", "Most", "by rank", "Sum", "Ranks"])

    def test_parquet_copies(self):
        self.rank("0", 0, memory_purpose=memory(100))
        self.rank("1", 1, memory_purpose=memory(200))
        self.assertEqual(folders.invoke("merge", self.folder, "--parquet", self.folder / "copies").returncode, 0)
        found = [test_merge.merged(*paths)["jobs"][0]["memory_by_purpose"] for paths in ([self.folder / "copies"], [self.folder / "0", self.folder / "1"])]
        self.assertEqual(found[0], found[1])
        self.assertTrue(found[0])
        # Copies of older versions have none.
        (self.folder / "copies" / "memory_purpose.parquet").unlink()
        report = test_merge.merged(self.folder / "copies")
        self.assertEqual((report["jobs"][0]["memory_by_purpose"], report["problems"]), ([], []))


class Processors(Case):
    def test_by_all(self):
        """Windows with unknown values do not count as windows with zeros."""
        rows = [host(1, "2.000", "3.000"), host(2, "4.000", "", span=3000 * MS, quota="2.500"), host(3, "", "")]
        a = self.rank("a", 0, host_sum=rows)
        found = figures.processors(Result(a))
        self.assertEqual((found.used, found.wanted, found.allowed), (3.5, 3, 2.5))
        metrics, _ = self.compare(a, a)
        self.assertEqual((metrics["processors"]["after"], metrics["processors_wanted"]["after"]), (3.5, 3))
        swept = self.point(a).figures
        self.assertEqual((swept["processors"], swept["processors_wanted"], swept["processors_allowed"]), (3.5, 3, 2.5))
        (job,) = test_merge.merged(a)["jobs"]
        (rank,) = job["by_rank"]
        self.assertEqual((rank["cores_used"], rank["cores_wanted"], rank["cores_allowed"]), (3.5, 3, 2.5))

    def test_what_limits_them_is_a_difference(self):
        a, b = (self.rank(name, host_sum=[host(1, "2.000", "2.000", affinity=cores)]) for name, cores in (("a", 8), ("b", 2)))
        self.assertIn("processors allowed: 8 | 2", self.compare(a, b)[1]["differences"])
        self.assertEqual([line for line in self.compare(a, a)[1]["differences"] if "processors" in line], [])

    def test_what_the_input_waits_for(self):
        def run(name, cause):
            return folders.write_run(self.folder / name, diagnosis=[
                {"device": 0, "verdict": "input-bound", "evidence": [{"kind": "copy-bound", "cause": "no"}, {"kind": "input-bound", **cause}]}])

        said = self.compare(run("a", {"cause": "workers"}), run("b", {"cause": "storage"}))[1]["differences"]
        self.assertIn("verdict: input-bound (workers) | input-bound (storage)", said)
        said = self.compare(run("c", {}), run("d", {"cause": "storage"}))[1]["differences"]
        self.assertIn("verdict: input-bound | input-bound (storage)", said)

    def test_hostile_diagnoses(self):
        runs = [folders.write_run(self.folder / str(index), diagnosis=[{"verdict": "input-bound", "evidence": evidence}])
                for index, evidence in enumerate((None, 7, [7, {"kind": "input-bound", "cause": ["\x1b[2J"]}]))]
        for run in runs:
            done = folders.invoke("compare", runs[0], run)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("\x1b", done.stdout)


def lines(most):
    """Rows of memory_timeline.csv."""
    return [{"Device": device, "Of": of, "Start (ns)": 10, "Duration (ns)": 5, "Window": 1, "Lowest (MB)": "1.000", "Highest (MB)": high}
            for device, of, high in ((0, "allocated", "1900.000"), (0, "in use", "700.000"), (1, "in use", most))]


class MemoryInUse(Case):
    def test_reserved_by_pytorch(self):
        def reserved(*most):
            return [{**row, "Of": "PyTorch reserved", "Highest (MB)": high} for row, high in zip(lines("9.000"), most)]

        a, b = (self.rank(name, memory_timeline=[*lines("800.000"), *reserved(*most)]) for name, *most in (("a", "500.000", "300.000"), ("b", "600.000")))
        metrics, _ = self.compare(a, b)
        self.assertEqual((metrics["torch_reserved"]["before"], metrics["torch_reserved"]["after"]), (500, 600))
        self.assertEqual(self.point(b).figures["torch_reserved_mb"], 600)
        self.assertIsNone(self.point(self.rank("c", memory_timeline=lines("800.000"))).figures["torch_reserved_mb"])

    def test_by_compare_and_sweep(self):
        a, b = (self.rank(name, memory_timeline=lines(most)) for name, most in (("a", "800.000"), ("b", "900.000")))
        metrics, _ = self.compare(a, b)
        # Read at intervals: how far a reading is below the peak is unknown.
        self.assertEqual((metrics["memory_in_use"]["before"], metrics["memory_in_use"]["after"], metrics["memory_in_use"]["verdict"]), (800, 900, "too few"))
        self.assertEqual(self.point(b).figures["memory_in_use_mb"], 900)
        # At the windows' edges the GPU was read as well.
        self.assertEqual(self.point(self.rank("c")).figures["memory_in_use_mb"], 600)
        folder = self.rank("d")
        (folder / "window_sum.csv").unlink()
        self.assertIsNone(self.point(folder).figures["memory_in_use_mb"])

    def test_by_merge(self):
        """The values of compare, for each rank; if nothing was read between the windows' edges, the readings at the edges."""
        for number, rows in enumerate((lines("800.000"), lines("900.000"), lines("500.000"))):
            self.rank(str(number), number, memory_timeline=rows)
        (self.folder / "2" / "window_sum.csv").unlink()
        self.rank("3", 3)
        self.assertEqual(folders.invoke("merge", self.folder, "--parquet", self.folder / "copies").returncode, 0)
        for paths in ([self.folder / str(number) for number in range(4)], [self.folder / "copies"]):
            (job,) = test_merge.merged(*paths)["jobs"]
            self.assertEqual([rank["device_memory_in_use_mb"] for rank in job["by_rank"]], [800, 900, 700, 600])
        self.assertRegex(folders.invoke("merge", self.folder / "copies").stdout,
                         r"\n *in use +highest reading of a GPU's memory, by all processes: from 600.0MB \(rank 3\) to 900.0MB \(rank 1\)")

    def test_pytorch_by_merge(self):
        """The maximum over a rank's GPUs; ranks without PyTorch's allocator have none."""
        def of_torch(reserved, allocated):
            return [*lines("800.000"), *({**row, "Of": f"PyTorch {of}", "Highest (MB)": high} for of, high in (("reserved", reserved), ("allocated", allocated))
                                         for row in lines("9.000")[:1])]

        another = {**lines("9.000")[2], "Of": "PyTorch reserved", "Highest (MB)": "650.000"}
        for number, rows in enumerate((of_torch("500.000", "400.000"), [*of_torch("600.000", "450.000"), another], lines("500.000"))):
            self.rank(str(number), number, memory_timeline=rows)
        (job,) = test_merge.merged(*(self.folder / str(number) for number in range(3)))["jobs"]
        self.assertEqual([(rank["torch_reserved_mb"], rank["torch_allocated_mb"]) for rank in job["by_rank"]], [(500, 400), (650, 450), (None, None)])
        self.assertRegex(folders.invoke("merge", *(self.folder / str(number) for number in range(3))).stdout,
                         r"\n *PyTorch +the most that its allocator had reserved on a GPU: from 500.0MB \(rank 0\) to 650.0MB \(rank 1\)")


if __name__ == "__main__":
    unittest.main()
