# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""libinject.load and libinject.window: tables with their types, several runs, damaged folders, what is shown in a notebook, windows with
the preload and without. Without pandas, polars, nbclient and ipykernel, which scripts/setup.sh installs, some tests are left out; with nvtx,
which it doesn't install, some come on top."""

import ast
import asyncio
import collections
import contextlib
import csv
import importlib.util
import json
import os
import random
import re
import subprocess
import sys
import threading
import types
import unittest
import warnings
from unittest import mock

import browser
import folders
import ranks

sys.path.insert(0, str(folders.ROOT / "tests" / "fuzz"))

import result_folders
from libinject.notebook import plots, tables
from libinject.result import read_table

import libinject
from libinject import marks

DATA = folders.ROOT / "examples" / "data" / "h200" / "resnet50"
EXAMPLE = folders.ROOT / "examples" / "notebook.ipynb"


def there(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


needs_pandas = unittest.skipUnless(there("pandas"), "there is no pandas, which scripts/setup.sh installs")
needs_polars = unittest.skipUnless(there("polars"), "there is no polars, which scripts/setup.sh installs")


def documented():
    """{file: {column: unit}} of docs/columns.md."""
    found, file = collections.defaultdict(dict), ""
    for line in (folders.ROOT / "docs" / "columns.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            file = line[3:].removesuffix(".csv")
        elif file and line.startswith("| ") and not line.startswith("| column "):
            name, unit = (part.strip() for part in line.strip("|").split(" | ")[:2])
            found[file][name] = unit
    return found


class TheList(unittest.TestCase):
    def test_has_every_table(self):
        self.assertEqual(sorted(table.file for table in tables.TABLES.values()), sorted(documented()))
        self.assertEqual(len({table.file for table in tables.TABLES.values()}), len(tables.TABLES))

    def test_types_are_those_of_the_documentation(self):
        for table in tables.TABLES.values():
            for column, unit in documented()[table.file].items():
                with self.subTest(table=table.file, column=column):
                    kind = table.kind_of(column)
                    if "*metric*" in column:
                        self.assertIsNone(kind)
                    elif column == "Window":
                        self.assertEqual(kind, tables.WHOLE)
                    elif unit == "text" or column == "Device":
                        self.assertEqual(kind, tables.TEXT)
                    else:
                        self.assertIn(kind, (tables.WHOLE, tables.REAL))

    def test_says_what_a_table_needs(self):
        page = (folders.ROOT / "docs" / "columns.md").read_text(encoding="utf-8")
        said = dict(re.findall(r"^## (\w+)\.csv\n[^\n]*? Written ([^.\n]*)\.$", page.replace("`", ""), re.MULTILINE))
        self.assertEqual({table.file: table.needs for table in tables.TABLES.values() if table.needs}, said)

    def test_stands_in_the_documentation(self):
        page = (folders.ROOT / "docs" / "notebook.md").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"^\| `(\w+)` \| `(\w+)\.csv` \|", page, re.MULTILINE),
                         [(name, table.file) for name, table in tables.TABLES.items()])
        for name in plots.SOURCES:
            self.assertIn(f"`plot_{name}`", page)
            self.assertTrue(callable(getattr(libinject.Run, f"plot_{name}")))


class OneRun(folders.TemporaryFolder):
    @classmethod
    def setUpClass(cls):
        # All tables, from a run on the simulated CUDA.
        cls.kept = result_folders.folders_to_begin_with(kept=True)

    def written(self, name, place=None):
        folder = self.folder / (place or name)
        folder.mkdir(parents=True)
        for file, data in self.kept[name].items():
            (folder / file).write_bytes(data)
        return folder

    @needs_pandas
    def test_every_table(self):
        import pandas

        folder = self.written("everything")
        run = libinject.load(folder, totals=True)
        self.assertGreater(len(run.tables), 25)
        for name in run.tables:
            with self.subTest(table=name):
                frame = getattr(run, name)
                self.assertIs(getattr(run, name), frame)
                self.assertIs(run.table(tables.TABLES[name].file), frame)
                expected = read_table(folder / f"{tables.TABLES[name].file}.csv")
                self.assertEqual((tuple(frame.columns), len(frame)), (expected.columns, len(expected)))
                for column in frame:
                    kind = tables.TABLES[name].kind_of(column)
                    self.assertEqual(str(frame[column].dtype), {tables.WHOLE: "Int64", tables.TEXT: "string"}.get(kind, "float64"), column)
                    for cell, wanted in zip(frame[column], (row[column] for row in expected), strict=True):
                        if wanted in (None, "", "[other]") and (wanted != "[other]" or column == "Window"):
                            self.assertTrue(pandas.isna(cell), column)
                        elif kind == tables.TEXT:
                            self.assertEqual(cell, str(wanted), column)
                        else:
                            self.assertEqual(cell, float(wanted), column)
        for name in set(tables.TABLES) - set(run.tables):
            with self.assertRaises(libinject.NotInRun):
                getattr(run, name)
        self.assertEqual((run.problems, run.lost, run.complete), ([], {}, True))

    @needs_pandas
    def test_rows_that_are_sums_of_others(self):
        folder = self.written("everything")
        run = libinject.load(folder)
        total = int(run.kernels["Total Time (ns)"].sum())
        self.assertGreater(total, 0)
        for name in ("windows", "iterations"):
            self.assertEqual(run.table(name)["Kernel Time (ns)"].sum(), total)
            self.assertEqual(run.table(name, totals="only")["Kernel Time (ns)"].sum(), total)
            self.assertEqual(run.table(name, totals=True)["Kernel Time (ns)"].sum(), 2 * total)
            self.assertNotIn("all", set(run.table(name)["Device"]))
            self.assertEqual(set(run.table(name, totals="only")["Device"]), {"all"})
        self.assertIs(libinject.load(folder, totals="only").windows.equals(run.table("windows", totals="only")), True)
        self.assertEqual(set(run.table("memory", totals="only")["Kind"]), {"[all]"})
        self.assertEqual(run.memory["Allocated (MB)"].sum(), run.table("memory", totals="only")["Allocated (MB)"].sum())
        for wrong in ("all", None, 2):
            with self.assertRaises(ValueError):
                libinject.load(folder, totals=wrong)

    @needs_pandas
    def test_cells(self):
        folder = folders.write_run(self.folder / "run")
        huge = 2**63
        folders.write_table(folder, "gemm_sum", [{"API": "'=1", "M": 1, "Lda": 7, "FLOPs": 2**62, "TFLOP/s": 1},
                                                 dict.fromkeys(("API", "M", "Lda", "FLOPs", "TFLOP/s"), "")])
        folders.write_table(folder, "conv_sum", [{"N": 1, "C": 3, "FLOPs": huge, "Stride": "1x1", "Groups": 1, "new": "5"}])
        folders.write_table(folder, "window_sum", [{"Window": "[other]", "Device": "0", "a__metric.avg": "1.5", "a new text": "x"},
                                                   {"Window": 2, "Device": "1", "a__metric.avg": "", "a new text": ""}])
        run = libinject.load(folder)
        self.assertEqual([str(kind) for kind in run.gemms.dtypes], ["string", "Int64", "Int64", "Int64", "float64"])
        self.assertEqual(run.gemms.iloc[0].tolist(), ["=1", 1, 7, 2**62, 1.0])
        self.assertTrue(run.gemms.iloc[1].isna().all())
        self.assertEqual([str(kind) for kind in run.convolutions.dtypes], ["Int64", "Int64", "float64", "string", "Int64", "string"])
        self.assertEqual(run.convolutions["FLOPs"].tolist(), [float(huge)])
        self.assertEqual([str(kind) for kind in run.windows.dtypes], ["Int64", "string", "float64", "string"])
        self.assertEqual(run.windows["Window"].isna().tolist(), [True, False])

    def test_without_pandas(self):
        """In a process of its own, which can't import it."""
        program = """if True:
            import sys
            class Nothing:
                def find_spec(self, name, path=None, target=None):
                    if name.partition(".")[0] in ("pandas", "polars", "numpy"):
                        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            sys.meta_path.insert(0, Nothing())
            import libinject
            slow = {"duckdb", "jinja2", "plotly", "rich", "typer"} & set(sys.modules)
            run = libinject.load(sys.argv[1])
            assert not slow, slow
            assert (run.verdict, run.steps.count, run.problems) == ("GPU-bound (memory)", 40, []), (run.verdict, run.steps, run.problems)
            assert "GPU-bound (memory)" in run._repr_html_() and "<iframe" in run.plot_kernels()._repr_html_()
            for frames in ("pandas", "polars"):
                for load in (sys.argv[1], sys.argv[1:]):
                    try:
                        libinject.load(load, frames).kernels
                    except ImportError as error:
                        print(error)
        """
        done = subprocess.run([sys.executable, "-c", program, DATA], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(done.stdout.splitlines()), 4)
        for line, name in zip(done.stdout.splitlines(), ("pandas", "pandas", "polars", "polars"), strict=True):
            self.assertIn(f"pip install {name}", line)

    @needs_polars
    @needs_pandas
    def test_polars(self):
        import polars

        folder = self.written("everything")
        run, other = libinject.load(folder, "polars", totals=True), libinject.load(folder, totals=True)
        for name in run.tables:
            frame, pandas_frame = getattr(run, name), getattr(other, name)
            self.assertIsInstance(frame, polars.DataFrame)
            kinds = {"Int64": polars.Int64, "float64": polars.Float64, "string": polars.String}
            self.assertEqual(frame.schema, {column: kinds[str(kind)] for column, kind in pandas_frame.dtypes.items()})
            empty = pandas_frame.isna().itertuples(index=False, name=None)
            self.assertEqual(frame.rows(), [tuple(None if missing else cell for cell, missing in zip(row, of_row, strict=True))
                                            for row, of_row in zip(pandas_frame.itertuples(index=False, name=None), empty, strict=True)])
        several = libinject.load([folder, DATA], "polars")
        self.assertEqual(several.kernels["run"].unique(maintain_order=True).to_list(), ["everything", "resnet50"])
        self.assertEqual(several.steps.height, 2)

    def test_verdict_and_steps(self):
        run = libinject.load(str(DATA))
        shown = json.loads(folders.invoke("report", DATA, "--json").stdout)["runs"][0]
        self.assertEqual((run.verdict, run.utilization), (shown["verdicts"][0]["verdict"], shown["utilization"]))
        self.assertEqual({field: getattr(run.steps, f"{field}_ns") for field in ("mean", "median", "min", "max", "stdev")}
                         | {"count": run.steps.count}, shown["steps"])
        self.assertFalse(run.steps.unprofiled)
        (verdict,) = run.verdicts
        self.assertEqual((verdict.device, verdict.device_time_ns, len(verdict.evidence)),
                         ("0", shown["verdicts"][0]["device_ns"], len(shown["verdicts"][0]["remedies"])))
        self.assertEqual((run.name, run.rank, run.host, run.run["pid"]), ("resnet50", None, "vm", 2922))
        self.assertIn("GPU-bound (memory), step time 33.270ms", repr(run))
        self.assertEqual(verdict.gain, shown["verdicts"][0]["gain"])
        unbounded = libinject.load(folders.write_run(self.folder / "unbounded", diagnosis=[{"device": 0, "verdict": "GPU-bound", "device_time_ns": 1000}]))
        self.assertIsNone(unbounded.verdicts[0].gain)
        self.assertNotIn("could be saved", unbounded._repr_html_())
        both = libinject.load([DATA, unbounded.path]).verdicts["Potential Gain (%)"]
        self.assertEqual((both.iloc[0], bool(both.isna().iloc[1])), (verdict.gain, True))
        empty = libinject.load(folders.write_run(self.folder / "empty"))
        self.assertEqual((empty.verdict, empty.steps, empty.steps_in_windows, empty.utilization, empty.samples_per_second), (None,) * 5)
        self.assertIn("no verdict", repr(empty))
        self.assertIn("empty", empty._repr_html_())

    def test_what_is_not_there(self):
        run = libinject.load(folders.write_run(self.folder / "run", files=["cuda_api_sum.csv"]))
        with self.assertRaises(libinject.NotInRun) as caught:
            _ = run.operators
        self.assertEqual(str(caught.exception),
                         f"{self.folder}/run/op_sum.csv: the run has no such table: it is written where launches are named")
        with self.assertRaises(libinject.BadFile) as caught:
            _ = run.api
        self.assertNotIsInstance(caught.exception, libinject.NotInRun)
        self.assertEqual(run.problems, [f"{self.folder}/run/cuda_api_sum.csv: missing, though run.json lists it"])
        with self.assertRaisesRegex(libinject.NotInRun, "nothing to plot: no kernels ran"):
            run.plot_kernels()
        for wrong in ("../run", "x.csv", "", 7):
            with self.assertRaisesRegex(ValueError, "is not one of libinject's tables"):
                run.table(wrong)
        with self.assertRaises(AttributeError):
            run.kernels = 1
        self.assertFalse(hasattr(run, "no_such_table"))


class SeveralRuns(folders.TemporaryFolder):
    def setUp(self):
        super().setUp()
        ranks.write_job(self.folder / "job", 12, iterations=8, hosts=3, nccl=[ranks.collective(8, ranks.MS, [5000] * 8, world=12)])

    @needs_pandas
    def test_one_frame(self):
        job = self.folder / "job"
        for source in (job, str(job / "rank-*"), [job / f"rank-{rank}" for rank in range(12)],
                       [job / "rank-[0-9]", str(job / "rank-1?"), job]):
            runs = libinject.load(source)
            self.assertEqual(runs.names, [f"rank-{rank}" for rank in range(12)])
            frame = runs.iterations
            self.assertEqual(list(frame.columns[:3]), ["run", "rank", "host"])
            self.assertEqual([str(kind) for kind in frame.dtypes.iloc[:3]], ["string", "Int64", "string"])
            self.assertEqual(frame["rank"].unique().tolist(), list(range(12)))
            self.assertEqual(frame["host"].nunique(), 4)
            self.assertEqual(len(frame), sum(len(run.iterations) for run in runs))
            self.assertEqual(list(frame.columns[3:]), list(runs[0].iterations.columns))
        self.assertEqual(len(runs.verdicts), sum(len(run.verdicts) for run in runs))
        self.assertEqual(runs.steps["Step Time (ns)"].tolist(), [run.steps.median_ns for run in runs])
        self.assertIsInstance(runs[3], libinject.Run)
        self.assertEqual(runs[2:4].names, ["rank-2", "rank-3"])
        self.assertIsInstance(libinject.load(str(self.folder / "job" / "rank-1")), libinject.Run)
        self.assertIsInstance(libinject.load(str(self.folder / "job" / "rank-[1]")), libinject.Runs, "a pattern, though it matches one")

    @needs_pandas
    def test_columns_that_not_all_have(self):
        for name, row in (("a", {"Window": 1, "Device": "0", "Kernels": 5, "FLOPs": 2**70}),
                          ("b", {"Window": 1, "Device": "0", "FLOPs": 3, "IPC": 0.5, "rank": 9})):
            folders.write_table(folders.write_run(self.folder / name, rank=name == "b" and "1" or None), "window_sum", [row])
        runs = libinject.load([self.folder / "a", self.folder / "b"])
        self.assertEqual(list(runs.windows.columns), ["run", "rank", "host", "Window", "Device", "Kernels", "FLOPs", "IPC"])
        self.assertEqual(runs.windows["FLOPs"].tolist(), [2.0**70, 3.0])
        self.assertEqual((str(runs.windows["Kernels"].dtype), runs.windows["Kernels"].isna().tolist()), ("Int64", [False, True]))
        self.assertEqual(runs.windows["rank"].isna().tolist(), [True, False])

    @needs_pandas
    def test_what_can_not_be_read_is_left_out(self):
        job = self.folder / "job"
        (job / "rank-3" / "run.json").write_text("{")
        (job / "rank-5" / "iteration_sum.csv").write_text("Window,Device\n1\n")
        (job / "rank-6" / "iteration_sum.csv").unlink()
        with self.assertWarnsRegex(UserWarning, r"^left out: .*rank-3/run.json:1: not JSON") as caught:
            runs = libinject.load(job)
        self.assertEqual(caught.filename, __file__)
        self.assertEqual((len(runs), len(runs.problems)), (11, 3))
        with self.assertWarnsRegex(UserWarning, "^iteration_sum.csv of 2 of 11 runs is left out: .*rank-5"):
            self.assertEqual(sorted(set(runs.table("iteration_sum")["rank"])), [0, 1, 2, 4, 7, 8, 9, 10, 11])
        with self.assertRaises(libinject.NotInRun):
            _ = runs.kernel_metrics
        self.assertIn("rank-11", runs._repr_html_())

    def test_nothing_to_load(self):
        (self.folder / "empty").mkdir()
        for source, why in ((self.folder / "none", "none: no such folder"), (self.folder / "empty", "not a libinject folder"),
                            (str(self.folder / "x*"), "no folder's name is like this"), ([], "no folder is named"),
                            ([self.folder / "empty"], "neither a libinject folder"), ("a\0b", "NUL"), ("", "no folder has an empty name"), ([""], "no folder has an empty name")):
            with self.assertRaisesRegex(libinject.BadFile, why) as caught:
                libinject.load(source)
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaises(ValueError):
            libinject.load(self.folder / "job", "arrow")


class Damaged(folders.TemporaryFolder):
    @needs_pandas
    def test_folders(self):
        """Folders of test_fuzz.py. Whatever they contain, there is one type of exception, whose text is one line."""
        kept = result_folders.folders_to_begin_with(kept=True)
        refused = collections.Counter()

        def tried(what, use):
            try:
                return use()
            except libinject.BadFile as problem:
                self.assertTrue(str(problem).isprintable() and len(str(problem)) < 3000, what)
                refused[what] += 1

        for number in range(60):
            case = result_folders.Case("report", 1, number, kept)
            try:
                case.make(self.folder / str(number))
            except csv.Error:  # Python 3.10 does not write a NUL
                continue
            inside = sorted((self.folder / str(number) / "in").iterdir())
            with self.subTest(number=number), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                for source in [*inside, inside]:
                    run = tried("load", lambda source=source: libinject.load(source))
                    if run is None:
                        continue
                    self.assertTrue(repr(run).isprintable())
                    for name in tables.TABLES:
                        tried("table", lambda run=run, name=name: getattr(run, name))
                    self.assertTrue(all("\n" not in problem for problem in run.problems))
                    self.assertNotRegex(run._repr_html_(), r"<script|<b>|<img|\bnan\b|\binf\b")
                    if isinstance(run, libinject.Run):
                        self.assertTrue(run.verdict is None or isinstance(run.verdict, str))
                        tried("plot", random.Random(number).choice([getattr(run, f"plot_{name}") for name in plots.SOURCES]))
        self.assertGreater(min(refused["load"], refused["table"], refused["plot"]), 5)

    @needs_pandas
    def test_tables_that_are_too_large(self):
        folder = folders.write_run(self.folder / "run")
        (folder / "cuda_gpu_trace.csv").write_text("Name\n")
        os.truncate(folder / "cuda_gpu_trace.csv", 1 << 40)
        (folder / "nvtx_sum.csv").write_text(",".join(map(str, range(5000))) + "\n")
        (folder / "metric_samples.csv").touch()
        run = libinject.load(folder)
        for name, why in (("gpu_trace", ": too large for a DataFrame"), ("ranges", "far too many columns"),
                          ("metric_samples", "no sample was taken")):
            with self.assertRaisesRegex(libinject.BadFile, why):
                getattr(run, name)


class Shown(folders.TemporaryFolder):
    def hostile(self):
        """A run whose names try to be HTML."""
        hostile = browser.HOSTILE
        phases = ("Forward", "Backward", "Recomputation", "Optimizer", "Other")
        times = {f"{what} (ns)": 100 for what in ("Self Time", "Total Time", *phases)}
        evidence = {"kind": hostile, "text": hostile, "time_ns": 5}
        verdict = {"device": 0, "verdict": hostile, "device_time_ns": 100, "kernel_busy_ns": 90, "evidence": [evidence]}
        folder = folders.write_run(self.folder / "<b>run", host=hostile, devices=[{"id": 0, "name": hostile}], lost={hostile: 3},
                                   diagnosis=[verdict])
        folders.write_table(folder, "cuda_gpu_kern_sum", [{"Name": hostile, "Total Time (ns)": 100, "Instances": 1, "Time (%)": 100.0}])
        folders.write_table(folder, "module_sum", [{"Module": hostile, "Class": hostile, **times}])
        folders.write_table(folder, "line_sum", [{"File": hostile, "Line": 7, "Function": hostile, "In Library": 0,
                                                  "User Code Time (ns)": 100, **times}])
        (folder / "iteration_sum.csv").write_text(f'"{hostile.replace(chr(34), chr(34) * 2)}","Window"\n1\n')
        return libinject.load(folder)

    def test_a_run(self):
        page = libinject.load(DATA)._repr_html_()
        for words in ("GPU-bound (memory)", "33.270ms", "cudnn::bn_bw_1C11_kernel_new"):
            self.assertIn(words, page)
        run = self.hostile()
        for page in (run._repr_html_(), libinject.load([run.path, DATA])._repr_html_()):
            self.assertLessEqual(set(re.findall(r"<(\w+)", page)),
                                 {"div", "table", "thead", "tbody", "tr", "th", "td", "strong", "small", "code", "p"})
            self.assertIn("&lt;b&gt;", page)
        # Dollar signs do not start formulas.
        self.assertTrue(run._repr_html_().startswith('<div class="tex2jax_ignore mathjax_ignore">'))

    def test_plots_have_the_data_of_the_report(self):
        run = libinject.load(DATA)
        (shown,) = json.loads(folders.invoke("report", DATA, "--json").stdout)["runs"]
        report = {plot["id"]: plot for section in shown["sections"] for plot in section["plots"]}
        drawn = {}
        for name in plots.SOURCES:
            try:
                drawn |= {plot["id"]: plot for plot in getattr(run, f"plot_{name}")().data}
            except libinject.NotInRun as problem:
                self.assertIn("nothing to plot", str(problem))
        self.assertEqual(json.loads(json.dumps(drawn)), report)
        run.plot_steps().save(self.folder / "steps.html")
        self.assertIn("Content-Security-Policy", (self.folder / "steps.html").read_text(encoding="utf-8"))

    @unittest.skipIf(browser.missing(), f"there is no {browser.missing()}")
    def test_in_a_browser(self):
        """The output of cells: drawn in a frame without network access, isolated from the notebook, and as high as the frame."""
        run, hostile = libinject.load(DATA), self.hostile()
        outputs = [run, hostile, run.plot_steps(), run.plot_kernels(), run.plot_idle(), run.plot_metrics(), hostile.plot_modules(),
                   hostile.plot_kernels()]
        page = self.folder / "notebook.html"
        shown = "".join(output._repr_html_() for output in outputs)
        page.write_text(f"<!DOCTYPE html><meta charset=utf-8><title>x</title><body>{shown}", encoding="utf-8")
        chromium = browser.Browser()
        self.addCleanup(chromium.quit)
        chromium.driver.get_log("performance")
        chromium.driver.get(page.as_uri())
        frames = chromium.driver.find_elements("tag name", "iframe")
        self.assertEqual(len(frames), 6)
        self.assertEqual(chromium.run("return [typeof window.hacked, document.querySelectorAll('img, b, svg').length]"), ["undefined", 0])
        for frame in frames:
            chromium.driver.switch_to.frame(frame)
            chromium.until("['drawn', 'failed'].includes(document.documentElement.dataset.plots)")
            state, drawn, hacked, images, tall, room, origin = chromium.run(
                "return [document.documentElement.dataset.plots, "
                f"{browser.PLOTS}.map((plot) => plot.querySelectorAll('.trace, .bars .point').length), typeof window.hacked,"
                "document.querySelectorAll('img, b').length, document.documentElement.scrollHeight, innerHeight, self.origin]")
            self.assertEqual((state, hacked, images, origin), ("drawn", "undefined", 0, "null"))
            self.assertTrue(drawn and all(drawn), drawn)
            self.assertLessEqual(tall, room + 1)
            chromium.driver.switch_to.default_content()
        self.assertEqual(chromium.requests(), [])
        self.assertEqual([entry["message"] for entry in chromium.driver.get_log("browser")], [])


class Notebook(unittest.TestCase):
    """The example notebook."""

    @needs_pandas
    def test_its_cells(self):
        """Each by itself, in this process: the last line of each can be shown."""
        cells = ["".join(cell["source"]) for cell in json.loads(EXAMPLE.read_text(encoding="utf-8"))["cells"]
                 if cell["cell_type"] == "code"]
        names, shown = {}, []
        with self.in_folder(EXAMPLE.parent):
            for source in cells:
                *lines, last = ast.parse(source).body
                exec(compile(ast.Module(lines, []), "cell", "exec"), names)  # noqa: S102
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names)._repr_html_())
        self.assertEqual(len(shown), len(cells))
        self.assertIn("<iframe", "".join(shown))

    @contextlib.contextmanager
    def in_folder(self, folder):
        before = os.getcwd()
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)

    def test_has_no_outputs(self):
        for cell in json.loads(EXAMPLE.read_text(encoding="utf-8"))["cells"]:
            self.assertEqual((cell.get("outputs", []), cell.get("execution_count")), ([], None))

    @unittest.skipUnless(there("nbclient", "nbformat", "ipykernel"), "there is no nbclient, or no ipykernel, which scripts/setup.sh installs")
    @needs_pandas
    def test_in_a_kernel(self):
        import nbclient
        import nbformat

        notebook = nbformat.read(EXAMPLE, as_version=4)
        nbformat.validate(notebook)
        paths = os.pathsep.join(path for path in sys.path if path)
        with mock.patch.dict(os.environ, {"PYTHONPATH": paths}):
            nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3",
                                    resources={"metadata": {"path": str(EXAMPLE.parent)}}).execute()
        outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
        self.assertEqual([[output.output_type for output in of_cell] for of_cell in outputs], [["execute_result"]] * len(outputs))
        self.assertTrue(all("text/html" in of_cell[0].data for of_cell in outputs))


class Marks(folders.TemporaryFolder):
    """Without the preload, and with functions in place of the library's."""

    def setUp(self):
        super().setUp()
        self.calls, self.is_open = [], False

    def start(self):
        self.calls.append("start")
        before, self.is_open = self.is_open, True
        return -1 if before else 0

    def stop(self):
        self.calls.append("stop")
        self.is_open = False
        return 0

    @contextlib.contextmanager
    def library(self):
        ranges = types.SimpleNamespace(push_range=lambda name: self.calls.append(name), pop_range=lambda: self.calls.append("pop"))
        library = marks._Library(self.start, self.stop, None)
        with mock.patch.object(marks, "_library", lambda: library), mock.patch.dict(sys.modules, {"nvtx": ranges}):
            for module in ("torch.cuda.nvtx", "cupy.cuda.nvtx"):
                sys.modules.pop(module, None)
            yield

    def test_without_the_preload(self):
        program = """if True:
            import sys
            import libinject
            @libinject.window("x")
            def f(n):
                with libinject.window("y"), libinject.window():
                    return n + 1
            assert f(1) == 2
            assert libinject.units(64) is False
            try:
                with libinject.window("z"):
                    raise KeyError("mine")
            except KeyError as error:
                print(error)
            print(sorted(name for name in sys.modules if name.startswith("libinject")), "libinject.so" in open("/proc/self/maps").read())
        """
        done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, timeout=100, check=False,
                              env={**os.environ, "PYTHONPATH": str(folders.ROOT / "scripts")})
        self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", "'mine'\n['libinject', 'libinject.marks'] False\n"))

    def test_blocks(self):
        with self.library():
            with libinject.window("a"), libinject.window("b"), libinject.window():
                self.calls.append("x")
            self.assertEqual(self.calls, ["start", "a", "start", "b", "start", "x", "pop", "pop", "stop"])
            self.calls.clear()
            again = libinject.window("a")
            with again, again:
                pass
            with self.assertRaises(ZeroDivisionError), again:
                raise ZeroDivisionError
            self.assertEqual(self.calls, ["start", "a", "start", "a", "pop", "pop", "stop", "start", "a", "pop", "stop"])
            # A window that was open before stays open.
            self.calls.clear()
            self.is_open = True
            with libinject.window("a"):
                pass
            self.assertEqual((self.calls, self.is_open), (["start", "a", "pop"], True))

    def test_threads(self):
        """The window belongs to the block that opened it; the other thread's block adds a range."""
        inside, done, one = threading.Event(), threading.Event(), libinject.window()

        def other():
            with one:
                inside.set()
                done.wait(60)

        with self.library():
            with one:
                thread = threading.Thread(target=other)
                thread.start()
                inside.wait(60)
            self.assertEqual(self.calls, ["start", "start", "stop"])
            done.set()
            thread.join()
            self.assertEqual(self.calls, ["start", "start", "stop"])

    def test_functions(self):
        @libinject.window("f")
        def factorial(n):
            """Of n."""
            return n * factorial(n - 1) if n else 1

        @libinject.window("c")
        async def coroutine(n):
            await asyncio.sleep(0)
            return n

        @libinject.window("g")
        def generator():
            received = yield 1
            yield received

        with self.library():
            self.assertEqual((factorial(2), factorial.__name__, factorial.__doc__), (2, "factorial", "Of n."))
            self.assertEqual(self.calls, ["start", "f"] * 3 + ["pop"] * 3 + ["stop"])
            self.calls.clear()
            self.assertEqual(asyncio.run(coroutine(5)), 5)
            self.assertEqual(self.calls, ["start", "c", "pop", "stop"])
            self.calls.clear()
            values = generator()
            self.assertEqual(self.calls, [])
            self.assertEqual((next(values), values.send(7)), (1, 7))
            values.close()
            self.assertEqual(self.calls, ["start", "g", "pop", "stop"])
        for wrong in (lambda: libinject.window(factorial), lambda: libinject.window()(self.asynchronous)):
            self.assertRaises(TypeError, wrong)

    async def asynchronous(self):
        yield 1

    def test_a_range_that_fails_is_none(self):
        def fails(*_):
            raise RuntimeError("NVTX functions not installed")

        broken = types.SimpleNamespace(push_range=fails, pop_range=fails)
        with self.library(), mock.patch.dict(sys.modules, {"nvtx": broken}), libinject.window("a"):
            pass
        self.assertEqual(self.calls, ["start", "stop"])

    def test_units_in_a_run(self):
        """Likewise. An iteration is a copy, four products of different sizes, and a wait."""
        program = """if True:
            import ctypes, libinject
            runtime = ctypes.CDLL("libcudart.so.13", ctypes.RTLD_GLOBAL)
            memory = ctypes.c_void_p()
            runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(1 << 20))
            batch, one, handle = ctypes.create_string_buffer(64), ctypes.c_float(1), ctypes.c_void_p()
            blas = ctypes.CDLL("libcublas.so.13")
            blas.cublasCreate_v2(ctypes.byref(handle))
            said = []
            with libinject.window():
                for i in range(60):
                    said += [libinject.units(i), libinject.units(0.5)]
                    runtime.cudaMemcpy(memory, batch, ctypes.c_size_t(64), 1)
                    for n in (16, 32, 48, 64):
                        assert blas.cublasSgemm_v2(handle, 0, 0, n, n, n, ctypes.byref(one), memory, n, memory, n, ctypes.byref(one), memory, n) == 0
                    runtime.cudaDeviceSynchronize()
            print(set(said), libinject.units(-1), libinject.units("8"))
        """
        out = self.folder / "units"
        env = {**{name: value for name, value in os.environ.items() if not name.startswith("INJECT_")},
               "LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "LD_PRELOAD": str(folders.BUILD / "libinject.so"), "INJECT_OUT": str(out),
               "INJECT_WINDOW": "api", "INJECT_SUMMARY": "off",
               "PYTHONPATH": os.pathsep.join([str(folders.ROOT / "scripts"), *filter(None, sys.path)])}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False, env=env)
        self.assertEqual((done.returncode, done.stdout), (0, "{True} False True\n"), done.stderr)
        rows = [row for row in read_table(out / "iteration_sum.csv") if row["Device"] == "all" and row["Complete"] == 1]
        self.assertGreater(len(rows), 40)
        self.assertEqual([(row["Units"], row["Units From"]) for row in rows], [(row["Iteration"] + 0.5, "called") for row in rows])
        self.assertEqual([str(finding) for finding in folders.findings(out) if finding.severity == folders.ERROR], [])

    def test_in_a_run(self):
        """On the simulated CUDA, under the preload."""
        program = """if True:
            import contextlib, ctypes, libinject
            with contextlib.suppress(ImportError):
                import nvtx
            ctypes.CDLL("libcudart.so.13", ctypes.RTLD_GLOBAL)  # CUPTI is looked for beside it
            cuda = ctypes.CDLL("libcuda.so.1")
            device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
            cuda.cuInit(0)
            cuda.cuDeviceGet(ctypes.byref(device), 0)
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
            cuda.cuCtxSetCurrent(context)
            cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 20))
            def work(count):
                for _ in range(count):
                    assert cuda.cuMemsetD8Async(memory, ctypes.c_ubyte(0), ctypes.c_size_t(1 << 20), None) == 0
            work(1)
            with libinject.window("first"):
                work(2)
                with libinject.window("inner"):
                    work(4)
                work(8)
            work(16)
            @libinject.window("second")
            def evaluate():
                work(32)
                raise LookupError
            try:
                evaluate()
            except LookupError:
                print("passed through")
            work(64)
        """
        out = self.folder / "out"
        env = {**{name: value for name, value in os.environ.items() if not name.startswith("INJECT_")},
               "LD_LIBRARY_PATH": str(folders.BUILD / "sim"), "LD_PRELOAD": str(folders.BUILD / "libinject.so"), "INJECT_OUT": str(out),
               "INJECT_WINDOW": "api", "INJECT_SUMMARY": "off",
               "PYTHONPATH": os.pathsep.join([str(folders.ROOT / "scripts"), *filter(None, sys.path)])}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False, env=env)
        self.assertEqual((done.returncode, done.stdout), (0, "passed through\n"), done.stderr)
        windows = [row for row in read_table(out / "window_sum.csv") if row["Device"] == "all"]
        self.assertEqual([(row["Reason"], row["Memsets"]) for row in windows], [("inject_start", 14), ("inject_start", 32)])
        ranges = [(row["Range"], row["Instances"]) for row in read_table(out / "nvtx_sum.csv")]
        self.assertEqual(sorted(ranges), [(":first", 1), (":inner", 1), (":second", 1)] if there("nvtx") else [])
        self.assertEqual([str(finding) for finding in folders.findings(out) if finding.severity == folders.ERROR], [])


if __name__ == "__main__":
    unittest.main()
