# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""`inject report` without a browser: the page's model compared with the tables, and its handling of damaged folders."""

import csv
import json
import math
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import column_meanings
import folders
from libinject.page import parts, values
from libinject.page.render import embedded
from libinject.report.model import page_model
from libinject.report.page import render
from libinject.result import BadFile, Result

from libinject import figures
from libinject.report import library, metrics, remedies

HOSTILE = "</script><img src=x onerror=\"window.hacked=1\"><b>k</b>&lt;<a href='http://evil.example/'>a</a>"


def model_of(folder):
    return page_model([Result(folder)], [])["runs"][0]


def tables_of(run):
    return {table["id"]: table for section in run["sections"] for table in section["tables"]}


def plots_of(run):
    return {plot["id"]: plot for section in run["sections"] for plot in section["plots"]}


class OfTheExample(folders.TemporaryFolder):
    """The example on the simulated CUDA, with hardware metrics."""

    @classmethod
    def setUpClass(cls):
        cls.holder = folders.tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(cls.holder.cleanup)
        cls.out = folders.profile_example(f"{cls.holder.name}/out", METRICS="auto", METRICS_TIMELINE="1", METRICS_INTERVAL="100us")
        # Its window is too short to be read.
        roles = [{"Window": 1, "Role": role, "Total": total, "Count": 1, "Processor Time (ns)": 10**7 * share, "Share of a Core (%)": f"{share}.0",
                  "Run Queue Wait (ns)": 7, "Read (MB)": "", "Span (ns)": 10**9, "Reading (ns)": 5, "Cores Used": cores}
                 for role, total, share, cores in (("main", "no", 30, ""), ("[rest]", "no", 0, ""), ("process", "yes", 30, "1.300"), ("loader worker", "no", 100, ""))]
        folders.write_table(cls.out, "host_sum", roles)
        cls.run_model = model_of(cls.out)

    def test_processors_by_role(self):
        """The process is the sum of others, and a role without time has no bar."""
        series = plots_of(self.run_model)["processors"]["series"]
        self.assertEqual([(bar["name"], bar["names"], bar["values"]) for bar in series],
                         [("main", ["window 1"], [30.0]), ("loader worker", ["window 1"], [100.0])])

    def test_every_cell_is_the_tables(self):
        checked = 0
        for name, table in tables_of(self.run_model).items():
            if name in ("idle", "settings"):  # derived from others
                continue
            with open(self.out / table["file"], newline="", encoding="utf-8") as file:
                source = list(csv.DictReader(file))
            rows = [{column["name"]: cell for column, cell in zip(table["columns"], row, strict=True)} for row in table["rows"]]
            if len(rows) < len(source):  # iterations: with a single GPU, its rows are equal to the totals
                self.assertEqual(name, "iteration_sum")
                source = [row for row in source if row["Device"] == "all"]
            self.assertEqual(len(rows), len(source), name)
            for shown, row in zip(rows, source, strict=True):
                for column in shown.keys() & row.keys():
                    cell, expected = shown[column], row[column].removeprefix("'")
                    if not isinstance(cell, str):
                        cell, expected = float(cell or 0), float(expected or 0)
                    self.assertEqual(cell, expected, (name, column))
                    checked += 1
        self.assertGreater(checked, 800)

    def test_every_section_is_there_and_says_what_it_shows(self):
        ids = [section["id"] for section in self.run_model["sections"]]
        self.assertEqual(ids, ["steps", "step", "idle", "kernels", "durations", "detail", "measured", "roofline", "gemm", "copies", "memory", "metrics", "phases",
                               "processors", "host", "settings"])
        self.assertEqual(self.run_model["absent"], ["Modules, lines and operators", "Energy and clocks", "Collectives"])
        for section in self.run_model["sections"]:
            self.assertRegex(section["says"], r"^[A-Z].{20,}\.$")
        self.assertGreaterEqual(set(plots_of(self.run_model)), {"steps", "idle", "kernels", "families", "roofline", "gemm", "copies", "over-time",
                                                                 "metrics-0", "phases"})
        self.assertEqual(self.run_model["problems"], [])

    def test_the_verdict_is_run_jsons(self):
        diagnosis = json.loads((self.out / "run.json").read_text())["diagnosis"][0]
        verdict = self.run_model["verdicts"][0]
        self.assertEqual((verdict["verdict"], verdict["device_ns"]), (diagnosis["verdict"], diagnosis["device_time_ns"]))
        self.assertEqual({(part["kind"], part["ns"], part["text"], part["advice"]) for part in verdict["remedies"]},
                         {(part["kind"], part["time_ns"], part["text"], part["advice"]) for part in diagnosis["evidence"]})
        self.assertEqual(sum(part["ns"] for part in verdict["parts"]), diagnosis["device_time_ns"])

    def test_plots_have_the_tables_figures(self):
        tables, plots = tables_of(self.run_model), plots_of(self.run_model)
        at = [column["name"] for column in tables["cuda_gpu_kern_sum"]["columns"]].index("Total Time (ns)")
        self.assertEqual(plots["kernels"]["series"][0]["values"], [row[at] for row in tables["cuda_gpu_kern_sum"]["rows"]])
        idle = plots["idle"]["series"][0]
        window = Result(self.out).rows("window_sum")[1]
        self.assertEqual(dict(zip(idle["names"], idle["values"], strict=True)),
                         {name[6:-5]: value for name, value in window.items() if name.startswith("Idle: ") and value})
        self.assertEqual(sum(idle["values"]), window["Idle (ns)"])
        phases = {series["name"]: series["values"] for series in plots["phases"]["series"]}
        self.assertEqual(phases, {"forward": [200_000], "backward": [300_000], "optimizer": [200_000]})
        steps = [row["Step Time (ns)"] for row in Result(self.out).rows("iteration_sum") if row["Device"] == "all" and row["Label"] == "iteration"]
        self.assertEqual(plots["steps"]["series"][0]["y"], [time for time in steps if time is not None])

    def test_nothing_in_it_breaks_the_page(self):
        """Tables without rows, columns or values, and a run.json with anything anywhere."""
        folder = self.folder / "out"
        shutil.copytree(self.out, folder)
        samples = folder / "metric_samples.csv"
        samples.write_text("".join(samples.read_text(encoding="utf-8").splitlines(keepends=True)[:9]), encoding="utf-8")
        for path in sorted(folder.glob("*.csv")):
            before = path.read_bytes()
            header = before.decode().partition("\n")[0]
            names = header.split(",")
            half = names[::2]
            for text in (header, f"{header}\n{',' * (len(names) - 1)}", f"{','.join(half)}\n{','.join('7' for _ in half)}",
                         f"{header}\n{','.join('0' for _ in names)}",
                         *(f"{header}\n{','.join('' if name == empty else '7' for name in names)}" for empty in names if path.stem != "metric_samples")):
                path.write_text(text + "\n", encoding="utf-8")
                with self.subTest(path.name, text=text[:60]):
                    json.dumps(model_of(folder), allow_nan=False)
            path.write_bytes(before)
        for path in folder.glob("*.csv"):
            if path.stem not in ("window_sum", "memory_sum", "gemm_sum"):
                path.unlink()
        run = json.loads((self.out / "run.json").read_text())
        run["files"] = []
        for key in [key for key in run if key != "libinject"]:
            for odd in (None, True, -1, 10**30, "\ud800", [1, None, "x"], {"a": [1]}, [{}], [{"device": [], "number": {}, "text": 1, "evidence": [1]}]):
                (folder / "run.json").write_text(json.dumps({**run, key: odd}))
                with self.subTest(key=key, odd=odd):
                    try:
                        result = Result(folder)
                    except BadFile as problem:
                        self.assertRegex(str(problem), f"'{key}' is an? .*, but must be an? |'{key}' is null, but must be|is not a number of 64 bits$|must be a whole number, 1 or more$")
                        continue
                    json.dumps(page_model([result], []), allow_nan=False, ensure_ascii=False).encode()


class Command(folders.TemporaryFolder):
    def test_the_page(self):
        folders.write_run(self.folder / "a")
        done = folders.inject("report", "a", cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^report\.html: 1 run, 2\.\d MB\n$")
        page = (self.folder / "report.html").read_text(encoding="utf-8")
        self.assertTrue(page.startswith("<!DOCTYPE html>"))
        self.assertIn("Nothing was lost", page)
        self.assertEqual(stat.S_IMODE((self.folder / "report.html").stat().st_mode), 0o600)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["a", "report.html"])
        self.assertEqual(folders.inject("report", self.folder / "a", "-o", "-").stdout.count("</html>"), 1)

    def test_where_a_link_leads(self):
        """Not to /dev/stdout itself, which root would replace if the link were not followed."""
        folders.write_run(self.folder / "a")
        command = [sys.executable, folders.ROOT / "scripts" / "inject", "report", "a", "-o"]
        for name, target in (("link", "page.html"), ("link", "new.html"), ("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")):
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / name).symlink_to(target)
            (self.folder / "page.html").write_text("old")
            with open(self.folder / "out", "w+b") as out, open(self.folder / "err", "w+b") as err:
                done = subprocess.run([*command, name], cwd=self.folder, stdout=out, stderr=err, check=False)
            self.assertEqual((done.returncode, os.readlink(self.folder / name)), (0, target))
            written = self.folder / {"stdout": "out", "stderr": "err"}.get(name, target)
            page = written.read_text(encoding="utf-8")
            self.assertEqual(page[:15], "<!DOCTYPE html>", target)
            # Other output comes after it.
            self.assertRegex(page[-60:], "</html>stdout: 1 run, .*\n$" if name == "stdout" else "</html>$")
        # A file without a name, and a pipe that is not one of our streams.
        with tempfile.TemporaryFile() as file:
            subprocess.run([*command, f"/proc/self/fd/{file.fileno()}"], cwd=self.folder, pass_fds=[file.fileno()], capture_output=True, check=True)
            file.seek(0)
            self.assertTrue(file.read().endswith(b"</html>"))
        os.mkfifo(self.folder / "pipe")
        with open(self.folder / "read", "wb") as out, subprocess.Popen(["timeout", "60", "cat", self.folder / "pipe"], stdout=out):
            self.assertEqual(folders.inject("report", "a", "-o", "pipe", cwd=self.folder).returncode, 0)
        self.assertTrue((self.folder / "read").read_bytes().endswith(b"</html>"))

    def test_in_any_locale(self):
        folders.write_run(self.folder / "\u00e9", host="\u8282\u70b9")
        command = [sys.executable, folders.ROOT / "scripts" / "inject", "report", "\u00e9"]
        for encoding in ("utf-8", "ascii", "latin-1"):
            def said(*how, encoding=encoding):
                return subprocess.run([*command, *how], cwd=self.folder, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=True).stdout
            self.assertEqual(json.loads(said("--json"))["runs"][0]["name"], "\u00e9", encoding)
            said("-o", "page.html")
            self.assertEqual(said("-o", "-"), (self.folder / "page.html").read_bytes(), encoding)

    def test_a_bad_folder_among_good_ones(self):
        folders.write_run(self.folder / "a")
        folders.write_run(self.folder / "b", files=["cuda_gpu_kern_sum.csv"])
        (self.folder / "b" / "cuda_gpu_kern_sum.csv").write_text("Time (%),Total Time (ns),Instances,Name\n50,7,1,k\n50,x")
        (self.folder / "c").mkdir()
        done = folders.inject("report", "a", "c", "b", "--json", cwd=self.folder)
        self.assertEqual(done.returncode, 0)
        bad = "b/cuda_gpu_kern_sum.csv:3: 2 cells, the header has 4"
        self.assertEqual(done.stderr.splitlines(), ["inject: c: not a libinject folder: it has no run.json", f"inject: {bad}"])
        model = json.loads(done.stdout)
        self.assertEqual(([run["name"] for run in model["runs"]], model["problems"], model["runs"][1]["problems"]),
                         (["a", "b"], ["c: not a libinject folder: it has no run.json"], [bad]))
        page = render(page_model([Result(self.folder / "a"), Result(self.folder / "b")], model["problems"]))
        self.assertIn("1 of 3 folders can&#39;t be shown", page.replace("can't", "can&#39;t"))

    def test_nothing_to_show(self):
        done = folders.invoke("report", self.folder / "none", "-o", self.folder / "x.html")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.splitlines()[-1], "inject: nothing to report: no folder could be read")
        self.assertFalse((self.folder / "x.html").exists())
        done = folders.invoke("report", *range(33))
        self.assertEqual((done.returncode, done.stderr), (2, "inject: 33 folders are too many for one page: it shows at most 32\n"))
        folders.write_run(self.folder / "a")
        done = folders.invoke("report", self.folder / "a", "-o", self.folder / "no" / "x.html")
        self.assertEqual((done.returncode, done.stderr), (2, f"inject: can't write '{self.folder}/no/x.html': no such file or directory\n"))

    def test_names_of_folders(self):
        """Escape sequences, HTML, and bytes that are not text."""
        evil = self.folder / "\x1b[31m<img src=x>\udcff"
        folders.write_run(evil)
        done = folders.inject("report", evil, self.folder / "none\x1b]0;x\x07\udcff", "-o", self.folder / "x\x1b.html")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotRegex(done.stdout + done.stderr, "[\x00-\x09\x0b-\x1f]")
        page = (self.folder / "x\x1b.html").read_text(encoding="utf-8")
        self.assertIn("\N{REPLACEMENT CHARACTER}[31m&lt;img src=x&gt;", page)
        self.assertNotIn("<img", page.partition('<script type="text/plain"')[0])
        self.assertEqual(json.loads(folders.inject("report", evil, "--json").stdout)["runs"][0]["name"],
                         "\N{REPLACEMENT CHARACTER}[31m<img src=x>\N{REPLACEMENT CHARACTER}")

    def test_open(self):
        from libinject.commands import report

        folders.write_run(self.folder / "a")
        with mock.patch.object(report.webbrowser, "open", return_value=True) as opened, mock.patch.object(report.console.out, "print"):
            report.report([str(self.folder / "a")], out=self.folder / "x.html", open_it=True, as_json=False)
        opened.assert_called_once_with((self.folder / "x.html").resolve().as_uri())


class OfAGpu(unittest.TestCase):
    """The folders in examples/data, from an H200 and an H100."""

    def test_pages(self):
        data = folders.ROOT / "examples" / "data"
        names = sorted(str(path.parent.relative_to(data)) for path in data.rglob("run.json"))
        self.assertEqual(names, [f"{gpu}/{run}" for gpu in ("h100", "h200") for run in ("deepspeech2", "resnet50", "transformer")])
        for name in names:
            result = Result(data / name)
            run = page_model([result], [])["runs"][0]
            self.assertEqual(result.problems, [])
            self.assertTrue(run["lost"]["metrics_alone"], name)
            self.assertLessEqual({"steps", "kernels", "idle"}, set(tables_of(run)) | set(plots_of(run)) | {part["id"] for part in run["sections"]})
            self.assertIn("Some records are missing from the hardware metrics", render(page_model([result], [])))


class Parts(folders.TemporaryFolder):
    def test_what_was_lost(self):
        folders.write_run(self.folder / "a", state="open", lost={"host_records": 3, "new_kind": 2, "names": 0}, messages=["a <b>"], windows=[
            {"number": 4, "reason": "api", "ended_by": "another profiler"}])
        lost = model_of(self.folder / "a")["lost"]
        self.assertEqual([(entry["count"], entry["meaning"]) for entry in lost["counts"]],
                         [(3, "API calls lost: the ring was full, raise INJECT_RING"), (2, "new kind")])
        self.assertFalse(lost["metrics_alone"])
        self.assertEqual(len(lost["notes"]), 3)
        self.assertIn("Window 4 closed early: another profiler", lost["notes"])
        page = render(page_model([Result(self.folder / "a")], []))
        self.assertIn("a &lt;b&gt;", page)
        self.assertNotIn("Nothing was lost", page)

    def test_a_run_that_has_not_ended(self):
        folder = self.folder / "a"
        folders.write_run(folder, state="open")
        done = folders.invoke("report", folder, "-o", self.folder / "a.html")
        self.assertEqual((done.returncode, done.stderr),
                         (0, f"inject: {folder}: the run has not ended, or was killed: 'injectctl recover {folder}' makes its tables\n"))

    def test_tables_that_recovery_kept(self):
        folders.write_run(self.folder / "a", state="recovered", recovered={"tables_kept": True, "calls_not_kept": 3},
                          windows=[{"number": 1, "reason": "api", "state": "cut"}])
        model = model_of(self.folder / "a")
        self.assertFalse(model["complete"])
        self.assertEqual([entry["count"] for entry in model["lost"]["counts"]], [3])
        (note,) = model["lost"]["notes"]
        self.assertIn("those that it last wrote itself", note)

    def test_step_times(self):
        folders.write_run(self.folder / "a")
        rows = [{"Window": 1, "Iteration": at, "Label": label, "Complete": complete, "Device": device, "Start (ns)": at * 10, "Duration (ns)": time}
                for at, label, complete, device, time in ((0, "iteration", 0, "all", 500), (1, "iteration", 1, "all", 10),
                                                          (1, "iteration", 1, "0", 10), (2, "iteration", 1, "all", 20),
                                                          ("", "validation", 1, "all", 900), (3, "iteration", 1, "all", 60))]
        rows.append({**rows[0], "Window": "[other]", "Duration (ns)": ""})
        folders.write_table(self.folder / "a", "iteration_sum", rows)
        run = model_of(self.folder / "a")
        self.assertEqual(run["problems"], [])
        self.assertEqual({name: run["steps"][name] for name in ("count", "mean", "median", "min", "max")},
                         {"count": 3, "mean": 30, "median": 20, "min": 10, "max": 60})
        self.assertAlmostEqual(run["steps"]["stdev"], 26.4575, 3)
        plot = plots_of(run)["steps"]
        self.assertEqual([(series["name"], series["y"]) for series in plot["series"]],
                         [("step time in windows", [10, 20, 60]), ("step, not complete", [500]), ("validation time in windows", [900])])
        self.assertEqual([(band["from"], band["to"], band["label"]) for band in plot["bands"]], [(-0.5, 4.5, "window 1")])

    def test_step_times_where_the_host_runs_ahead(self):
        """Those on the GPU, wherever step times are shown; the last iteration of such a window has none."""
        folders.write_run(self.folder / "a")
        folders.write_table(self.folder / "a", "iteration_sum", [
            {"Window": 1, "Iteration": at, "Label": "iteration", "Complete": 1, "Device": "all", "Start (ns)": 1000 * at, "Duration (ns)": duration, "Step Time (ns)": time}
            for at, duration, time in ((0, 100, 9000.0), (1, 200, 9002.5), (2, 300, 9001.0), (3, 400, ""))])
        run = model_of(self.folder / "a")
        (series,) = plots_of(run)["steps"]["series"]
        self.assertEqual((series["x"], series["y"]), ([0, 1, 2], [9000, 9002.5, 9001]))
        self.assertEqual(run["tiles"][0], {"label": "Step time", "value": "9.001us", "note": "median of 3 iterations in windows; mean 9.001us, standard deviation 1ns"})

    def test_stacks_add_up(self):
        folder = folders.write_run(self.folder / "a")
        iteration = {"Window": 1, "Label": "iteration", "Complete": 1, "Start (ns)": 0, "Duration (ns)": 5000}
        folders.write_table(folder, "iteration_sum", [
            {**iteration, "Iteration": at, "Device": device, "Kernel Busy (ns)": kernels, "GPU Busy (ns)": busy, "GPU Utilization (%)": utilization, **more}
            for at, device, kernels, busy, utilization, more in (
                (0, "all", 800, 900, 80.0, {}), (0, 0, 800, 900, 80.0, {}), (1, 0, 900, 900, 90.1, {}), (2, 0, 900, 900, 100.0, {}),
                # Cut by an edge, not an iteration, a time that is too uncertain, and no time at all.
                (3, 0, 800, 900, 80.0, {"Complete": 0}), (4, 0, 800, 900, 80.0, {"Label": "validation"}), (5, 0, 8, 9, 0.8, {}), (6, 0, "", "", "", {}), (7, 0, 900, 800, 90.0, {}))])
        window = {"Window": 1, "Device": 0, "Reason": "", "Device Time (ns)": 1000, "Kernel Busy (ns)": 700, "Exposed Collective (ns)": 100, "Copy Only (ns)": 50, "Idle: Queue (ns)": 200,
                  "Idle: Collective (ns)": 50}
        folders.write_table(folder, "window_sum", [window, {**window, "Device": "all"}, {**window, "Window": 2}, {**window, "Window": 3, "Device Time (ns)": 1001}])
        plots = plots_of(model_of(folder))
        self.assertEqual([(series["name"], series["values"]) for series in plots["iterations-0"]["series"]],
                         [("kernels", [800, 900, 900]), ("copies alone", [100, 0, 0]), ("idle", [100, 99, 0])])
        self.assertEqual(plots["iterations-0"]["x"]["ticks"], ["0", "1", "2"])
        self.assertEqual([(series["name"], series["values"]) for series in plots["windows"]["series"]],
                         [("computing", [600] * 2), ("collectives alone", [100] * 2), ("copies alone", [50] * 2), ("idle: collective", [50] * 2), ("idle: queue", [200] * 2)])
        self.assertEqual(plots["windows"]["x"]["ticks"], ["1", "2"])
        for run in ("resnet50", "transformer", "deepspeech2"):
            result = Result(folders.ROOT / "examples" / "data" / "h100" / run)
            plots = plots_of(page_model([result], [])["runs"][0])
            self.assertIn("iterations-0", plots)
            of_devices = [row for row in result.rows("window_sum") if row["Device"] != "all"]
            self.assertEqual("windows" in plots, len(of_devices) > 1)  # with one device it is the verdict's bar
            for at, row in enumerate(of_devices if "windows" in plots else []):
                self.assertEqual(sum(series["values"][at] for series in plots["windows"]["series"]), row["Device Time (ns)"])

    def test_how_few_kernels_take_how_much(self):
        folder = folders.write_run(self.folder / "a")
        times = [500, 200, 100] + [10] * 17
        folders.write_table(folder, "cuda_gpu_kern_sum", [{"Time (%)": 1.0, "Total Time (ns)": time, "Instances": 1, "Name": f"k{at}"} for at, time in enumerate(times)]
                            + [{"Time (%)": 1.0, "Total Time (ns)": 30, "Instances": 5, "Name": "[other]"}])
        run = model_of(folder)
        (series,) = plots_of(run)["kernels-share"]["series"]
        self.assertEqual((series["x"], series["y"][:3], series["y"][-1]), (list(range(1, 21)), [50.0, 70.0, 80.0], 97.0))
        (kernels,) = (section for section in run["sections"] if section["id"] == "kernels")
        self.assertEqual(kernels["notes"], ["Of 20 kernels 1 takes 50%, 3 take 80%, 18 take 95% of the time."])

    def test_an_axis_has_one_unit(self):
        folders.write_run(self.folder / "a")
        (self.folder / "a" / "metric_samples.csv").write_text("Device,Start (ns),End (ns),IPC,SM Active (%),own,L2 (%)\n0,1,2,1,3,5,4\n0,2,3,1,3,5,4\n")
        plots = [(plot["y"]["title"], [series["name"] for series in plot["series"]]) for id_, plot in plots_of(model_of(self.folder / "a")).items() if id_.startswith("metrics")]
        self.assertEqual(plots, [("IPC", ["IPC"]), ("%", ["SM Active", "L2"]), ("own", ["own"])])

    def test_many_kernels_make_no_large_page(self):
        folder = folders.write_run(self.folder / "a")
        names = [f"void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, {at}>, std::array<char*, 3ul> >(int, std::array<char*, 3ul>)" for at in range(10_000)]
        rows = [{"Time (%)": 0.1, "Total Time (ns)": 10**9 // (at + 1), "Instances": at * 7919 % 1009, "Avg (ns)": at * 7.3, "Device": 0, "GrdX": at % 999, "GrdY": 1, "GrdZ": 1, "BlkX": 128,
                 "BlkY": 1, "BlkZ": 1, "Occupancy (%)": at * 31 % 100 / 1, "Lost Time (ns)": at * 7919 % 10_007, "Unused Time (ns)": at, "SM Active (%)": at * 17 % 1000 / 10, "Samples": 9,
                 "Name": name} for at, name in enumerate(names)]
        for table in ("cuda_gpu_kern_sum", "kernel_detail", "kernel_metrics"):
            folders.write_table(folder, table, rows)
        model = page_model([Result(folder)], [])
        self.assertEqual([len(table["rows"]) for table in tables_of(model["runs"][0]).values()], [2000] * 3)
        self.assertLess(len(render(model).encode()), 3_000_000)

    def test_modules_lines_and_operators(self):
        def row(name, self_time, total, forward, **more):
            return {"Time (%)": "1.0", **name, **more, "Self Time (ns)": self_time, "Self Instances": 1, "Total Time (ns)": total, "Total Instances": 1,
                    "Forward (ns)": forward, "Backward (ns)": total - forward, "Recomputation (ns)": 0, "Optimizer (ns)": 0, "Other (ns)": 0}

        folder = self.folder / "a"
        folders.write_run(folder)
        folders.write_table(folder, "op_sum", [row({"Operator": "aten::mm"}, 300, 300, 100)])
        folders.write_table(folder, "module_sum", [row({"Module": "Net", "Class": "Net", "Depth": 0, "Parent": ""}, 0, 300, 100),
                                                   row({"Module": "Net.a", "Class": "Linear", "Depth": 1, "Parent": "Net"}, 300, 300, 100)])
        folders.write_table(folder, "line_sum", [row({"File": "/me/train.py", "Line": 7, "Function": "train"}, 0, 300, 100, **{"User Code Time (ns)": 300, "In Library": 0}),
                                                 row({"File": "/lib/torch.py", "Line": 9, "Function": "mm"}, 300, 300, 100, **{"User Code Time (ns)": 0, "In Library": 1}),
                                                 row({"File": "", "Line": "", "Function": "[none]"}, 0, 0, 0, **{"User Code Time (ns)": "", "In Library": 1})])
        run = model_of(folder)
        plots, tables = plots_of(run), tables_of(run)
        self.assertEqual([(series["name"], series["names"], series["values"]) for series in plots["code-modules"]["series"]],
                         [("forward", ["Net.a"], [100.0]), ("backward", ["Net.a"], [200.0])])
        self.assertEqual([series["names"] for series in plots["code-lines"]["series"]], [["train.py:7 train"]] * 2)
        self.assertEqual([len(tables[name]["rows"]) for name in ("module_sum", "line_sum", "op_sum")], [2, 3, 1])
        # Invalid cells.
        folders.write_table(folder, "line_sum", [row({"File": "/me/train.py", "Line": "x", "Function": 5}, 0, 300, 100, **{"User Code Time (ns)": "many", "In Library": ""})])
        self.assertNotIn("code-lines", plots_of(model_of(folder)))

    def test_lines_that_the_gpu_waited_for(self):
        """A run whose host computes for 5 us on its way to launches, and for 40 us on its own work."""
        def row(file, line, function, own=0, **causes):
            times = {f"Idle: {cause} (ns)": 0 for cause in ("Start-up", "Synchronization", "Copy Call", "Launch Call", "Other Call", "Host Compute", "Host Wait", "Other Stream",
                                                            "Collective", "Queue", "Unknown")}
            times |= {f"Idle: {cause.replace('_', ' ')} (ns)": time for cause, time in causes.items()}
            return {"Time (%)": 1.0, "File": file, "Line": line, "Function": function, "Idle Time (ns)": sum(times.values()), "Gaps": 2, **times, "Own Work (ns)": own}

        def evidence(kind, time, advice="why: what"):
            return {"kind": kind, "time_ns": time, "text": kind.upper(), "advice": advice}

        folder = folders.write_run(self.folder / "a", diagnosis=[{
            "device": 0, "verdict": "input-bound", "device_time_ns": 200_000, "judged_time_ns": 200_000, "kernel_busy_ns": 100_000, "potential_gain_ns": 60_000,
            "idle_ns": {"Host Compute": 45_000, "Host Wait": 20_000, "Launch Call": 10_000, "Synchronization": 1_000, "Queue": 24_000},
            "evidence": [evidence("synchronization-bound", 1_000), evidence("launch-bound", 39_000), evidence("input-bound", 60_000), evidence("", 500, "")]}])
        folders.write_table(folder, "gap_line_sum", [
            row("/me/a.py", 7, "load", Host_Compute=38_000, own=37_000), row("/me/a.py", 8, "wait", Host_Wait=20_000), row("/me/a.py", 9, "both", Host_Compute=7_000, own=3_000),
            row("/me/b.py", 3, "launch", Launch_Call=10_000, Synchronization=400), row("", "", "[device]", Queue=24_000), row("", "", "[none]", Host_Compute=3_000)])
        run = model_of(folder)
        (verdict,) = run["verdicts"]
        found = [(part["kind"], part["gain"], [(group["title"], group["section"], [(place["name"], place["note"], place["path"]) for place in group["places"]])
                                               for group in part["where"]]) for part in verdict["remedies"]]
        lines = "Lines that the GPU waited for", "idle"
        self.assertEqual(found, [
            ("input-bound", 30.0, [(*lines, [("a.py:7 load", "the GPU waited 37.000us: own work", "/me/a.py:7"), ("a.py:8 wait", "the GPU waited 20.000us: host wait", "/me/a.py:8"),
                                             ("a.py:9 both", "the GPU waited 3.000us: own work", "/me/a.py:9")])]),
            ("launch-bound", 19.5, [(*lines, [("b.py:3 launch", "the GPU waited 10.000us: launch call", "/me/b.py:3"), ("a.py:9 both", "the GPU waited 4.000us: host compute", "/me/a.py:9")])]),
            ("synchronization-bound", 0.5, []), ("", None, [])])
        self.assertEqual((verdict["worth"], verdict["remedies"][0]["why"], verdict["remedies"][0]["remedy"]), (2, "why", "what"))
        page = render(page_model([Result(folder)], []))
        verdict_text, _, rest = page.partition('id="run-0-steps"') if 'id="run-0-steps"' in page else page.partition('id="run-0-idle"')
        self.assertLess(verdict_text.index("input-bound</strong>"), verdict_text.index("Do this first"))
        self.assertLess(verdict_text.index("a.py:7 load"), verdict_text.index("b.py:3 launch"))
        self.assertIn('id="rule-input-bound"', rest)
        self.assertNotIn("no tables of lines", page)
        self.assertIn("no tables of lines", render(page_model([Result(folders.ROOT / "examples" / "data" / "h100" / "transformer")], [])))

        plot, table = plots_of(run)["idle-lines"], tables_of(run)["gap_line_sum"]
        self.assertEqual([(series["name"], series["values"]) for series in plot["series"]], [
            ("Synchronization", [0, 0, 400, 0]), ("Launch Call", [0, 0, 10_000, 0]), ("Host Compute", [38_000, 0, 0, 7_000]), ("Host Wait", [0, 20_000, 0, 0])])
        self.assertEqual(plot["series"][0]["names"], ["a.py:7 load", "a.py:8 wait", "b.py:3 launch", "a.py:9 both"])
        columns = [column["name"] for column in table["columns"]]
        self.assertEqual([column["name"] for column in table["columns"] if not column["off"]], ["Place", "Time (%)", "Idle Time (ns)", "Gaps", *(
            f"Idle: {cause} (ns)" for cause in ("Synchronization", "Launch Call", "Host Compute", "Host Wait", "Queue")), "Own Work (ns)"])
        self.assertEqual([row[columns.index("Place")] for row in table["rows"]], ["a.py:7 load", "a.py:8 wait", "a.py:9 both", "b.py:3 launch", "[device]", "[none]"])
        self.assertEqual(table["rows"][0][columns.index("Line")], "7")
        self.assertTrue(all(column["meaning"] for column in table["columns"]), table["columns"])

        # Unknown values are omitted: host compute of a version without the column, and invalid cells.
        old = row("/me/a.py", 7, "load", Host_Compute=38_000, Host_Wait=20_000)
        del old["Own Work (ns)"]
        folders.write_table(folder, "gap_line_sum", [old])
        (verdict,) = model_of(folder)["verdicts"]
        self.assertEqual([place["note"] for part in verdict["remedies"] for group in part["where"] for place in group["places"]], ["the GPU waited 20.000us: host wait"])
        folders.write_table(folder, "gap_line_sum", [{**row("/me/a.py", "x", 5, Host_Wait=20_000), "Idle Time (ns)": "many"}])
        run = model_of(folder)
        self.assertEqual([part["where"] for part in run["verdicts"][0]["remedies"]], [[]] * 4)

    def test_what_remedies_can_win(self):
        """As in the diagnosis for its verdict, and without the profiler's overhead."""
        checked = 0
        for path in sorted((folders.ROOT / "examples" / "data").rglob("run.json")):
            for entry in json.loads(path.read_text(encoding="utf-8"))["diagnosis"]:
                found = remedies.gains({**entry, "verdict": ""})
                if not entry["verdict"].startswith("GPU-bound"):
                    self.assertEqual(found.by_kind[entry["verdict"]], entry["potential_gain_ns"])
                    checked += 1
                self.assertEqual(remedies.gains(entry).by_kind[entry["verdict"]], entry["potential_gain_ns"])
        self.assertGreater(checked, 1)
        parts = {"launch-bound": 300, "synchronization-bound": 100, "input-bound": 50, "copy-bound": 60, "communication-bound": 80, "": 20}
        entry = {"verdict": "launch-bound", "device_time_ns": 1000, "taken_by_collectives_ns": 5, "potential_gain_ns": 300,
                 "idle_ns": {"Launch Call": 200, "Queue": 100, "Synchronization": 100, "Host Wait": 50, "Copy Call": 20, "Collective": 40, "Unknown": 20},
                 "evidence": [{"kind": kind, "time_ns": time} for kind, time in parts.items()]}
        self.assertEqual(remedies.gains(entry).by_kind, {**parts, "communication-bound": 85, "": None})
        # 200 of the profiler's overhead are at launches, and 33 of the other 330.
        found = remedies.gains({**entry, "judged_time_ns": 767, "potential_gain_ns": 90})
        self.assertEqual({kind: gain and round(gain, 6) for kind, gain in found.by_kind.items()},
                         {"launch-bound": 90, "synchronization-bound": 90, "input-bound": 45, "copy-bound": 58, "communication-bound": 81, "": None})
        self.assertEqual(found.percent("synchronization-bound"), 11.7)
        # Kernels whose gain has no bound, and those with a known gain of 0.
        kernels = {"verdict": "GPU-bound (compute)", "device_time_ns": 1000, "evidence": [{"kind": "GPU-bound (compute)", "time_ns": 900}]}
        self.assertIsNone(remedies.gains(kernels).percent("GPU-bound (compute)"))
        self.assertEqual(remedies.gains({**kernels, "potential_gain_ns": 0}).percent("GPU-bound (compute)"), 0)
        # More than there is: unknown, except for what run.json itself states.
        found = remedies.gains({**entry, "judged_time_ns": 100})
        self.assertEqual({kind for kind, gain in found.by_kind.items() if gain is not None}, {"launch-bound"})
        self.assertEqual((found.percent("launch-bound"), found.percent("copy-bound")), (100.0, None))

    def test_a_gain_that_nothing_bounds(self):
        """It is not shown as 0 %, and the remedy is still recommended."""
        def shown(verdict, **gain):
            folder = folders.write_run(self.folder / f"{verdict} {gain}", diagnosis=[{
                "device": 0, "verdict": verdict, "device_time_ns": 1000, "kernel_busy_ns": 900, **gain,
                "evidence": [{"kind": verdict, "time_ns": 900, "text": "", "advice": "the GPU computes: lower precision" if verdict.endswith(")") else ""}]}])
            (found,) = model_of(folder)["verdicts"]
            return found, render(page_model([Result(folder)], []))

        verdict, page = shown("GPU-bound (compute)")
        self.assertEqual((verdict["gain"], verdict["worth"]), (None, 1))
        self.assertIn('<p class="gain">not known</p>', page)
        verdict, page = shown("GPU-bound")
        self.assertEqual((verdict["gain"], verdict["worth"]), (None, 0))
        self.assertNotIn("could save", page)
        verdict, page = shown("GPU-bound (compute)", potential_gain_ns=0)
        self.assertEqual((verdict["gain"], verdict["worth"]), (0, 0))
        verdict, _ = shown("GPU-bound (compute)", potential_gain_ns=-7)
        self.assertIsNone(verdict["gain"])

    def test_where_kernels_and_copies_are_from(self):
        folder = folders.write_run(self.folder / "a", diagnosis=[{
            "device": 0, "verdict": "GPU-bound (memory)", "device_time_ns": 1000, "kernel_busy_ns": 900, "potential_gain_ns": 500,
            "evidence": [{"kind": kind, "time_ns": time, "text": "", "advice": "x: y"} for kind, time in (("copy-bound", 90), ("GPU-bound (memory)", 900))]}])
        times = {"Self Time (ns)": 60, "Total Time (ns)": 100}
        folders.write_table(folder, "module_sum", [{"Module": name, **times, "Self Time (ns)": time} for name, time in (("Net.a", 700), ("Net.b", 20), ("[unattributed]", 280))])
        folders.write_table(folder, "line_sum", [{"File": file, "Line": 5, "Function": "f", "In Library": library, "User Code Time (ns)": time, "User Code Copies": 3, "User Code Copy Time (ns)": copies,
                                                  **times} for file, library, time, copies in (("/me/a.py", 0, 990, 0), ("/lib/b.py", 1, 0, 0), ("/me/c.py", 0, 10, 80))])
        folders.write_table(folder, "family_sum", [{"Family": name, "Time (%)": share, "Total Time (ns)": 10 * share, "Instances": 1}
                                                   for name, share in (("GEMM", 60.0), ("elementwise", 30.0), ("softmax", 2.0))])
        folders.write_table(folder, "copy_sum", [{"Device": device, "Direction": "Host-to-Device", "Source": source, "Target": "Device", "Count": 1000, "Total (MB)": 1.0, "Total Time (ns)": 50,
                                                  "Throughput (GB/s)": 3.0, "Link (GB/s)": 5.0, "Overlap with Kernels (%)": overlap, "Hint": hint}
                                                 for device, source, overlap, hint in ((0, "Pageable", 10.0, "pin it"), (0, "Pinned", 100.0, ""), (1, "Pinned", 0.0, ""))])
        (verdict,) = model_of(folder)["verdicts"]
        places = [(part["kind"], group["title"], [(place["name"], place["note"]) for place in group["places"]]) for part in verdict["remedies"] for group in part["where"]]
        self.assertEqual(places, [
            ("GPU-bound (memory)", "Modules that launch the most", [("Net.a", "70.0% of the kernels' time, 700ns")]),
            ("GPU-bound (memory)", "Lines that launch the most", [("a.py:5 f", "99.0% of the kernels' time, 990ns")]),
            ("GPU-bound (memory)", "Kernels of kinds that move data", [("elementwise", "30.0% of the kernels' time, 300ns")]),
            ("copy-bound", "Lines that copy", [("c.py:5 f", "3 copies and memsets, 80ns")]),
            ("copy-bound", "Copies", [("Host-to-Device, Pageable → Device", "1,000 copies, 50ns: pin it")])])
        # If the kernels' limits are known, only what launches such kernels.
        folders.write_table(folder, "module_sum", [{"Module": name, "Self Time (ns)": own, "Total Time (ns)": total, "Memory-bound (ns)": memory}
                                                   for name, own, total, memory in (("Net", 0, 1000, 500), ("Net.a", 600, 600, 0), ("Net.b", 300, 400, 300), ("Net.c", 100, 100, 20))])
        (verdict,) = model_of(folder)["verdicts"]
        self.assertEqual([(place["name"], place["note"]) for place in verdict["remedies"][0]["where"][0]["places"]],
                         [("Net.b", "30.0% of the kernels' time, 300ns; 75.0% of what runs in it is memory-bound")])

    def test_library_calls_with_a_hint(self):
        """For a compute-bound GPU; each links to the table that has it."""
        folder = folders.write_run(self.folder / "a", diagnosis=[{
            "device": 0, "verdict": "GPU-bound (compute)", "device_time_ns": 1000, "kernel_busy_ns": 900, "potential_gain_ns": 500,
            "evidence": [{"kind": "GPU-bound (compute)", "time_ns": 900, "text": "", "advice": "x: y"}]}])
        call = {"API": "f", "Calls": 1, "GPU Time (%)": 50.0, "GPU Time (ns)": 400, "Peak": "", "Peak (%)": "", "TFLOP/s": "", "Bound": "", "Tensor Cores": "yes"}
        folders.write_table(folder, "gemm_sum", [{**call, "Derived": "", "M": 64, "N": 7, "K": 8, "Op A": "N", "Op B": "N", "Type A": "fp16", "Batch": 1, "Hint": "N = 7 is below 32"}])
        folders.write_table(folder, "conv_sum", [
            {**call, "Direction": direction, "N": 32, "C": 3, "W": 224, "K": 64, "S": 7, "Type X": "fp16", "Hint": hint}
            for direction, hint in (("forward", "pad it"), ("filter gradient", ""))])
        folders.write_table(folder, "rnn_sum", [
            {**call, "Cell": "GRU", "Direction": "forward", "Layers": 5, "Hidden Size": 800, "B": batch, "Type": "fp32", "Hint": hint}
            for batch, hint in ((4, "hint"), ("", ""))])
        (verdict,) = model_of(folder)["verdicts"]
        self.assertEqual([(group["title"], [(place["name"], place["note"]) for place in group["places"]]) for group in verdict["remedies"][0]["where"]], [
            ("Matrix products with a hint", [("f 64×7×8 fp16", "400ns: N = 7 is below 32")]),
            ("Convolutions with a hint", [("forward: N 32, C 3, W 224, K 64, S 7, fp16", "400ns: pad it")]),
            ("Recurrent layers with a hint", [("GRU forward: 5 layers of 800, B 4, fp32", "400ns: hint")])])
        page = render(page_model([Result(folder)], []))
        for group in verdict["remedies"][0]["where"]:
            self.assertIn(f'href="#run-0-{group["section"]}"', page)
            self.assertIn(f'id="run-0-{group["section"]}"', page)

    def test_what_samples_per_second_are_of(self):
        second = 10**9
        folders.write_run(self.folder / "a", options={"INJECT_BATCH": "1"})
        folders.write_table(self.folder / "a", "iteration_sum", [{"Window": 1, "Iteration": at, "Label": "iteration", "Complete": 1, "Device": "all",
                                                                  "Start (ns)": at * 4 * second, "Duration (ns)": 4 * second} for at in range(3)])
        for steps, tile in ((6, ("0.250/s", "by the step time in windows")), (7, ("0.500/s", "by the step time without the profiler"))):
            folders.write_table(self.folder / "a", "step_times", [{"Iteration": at, "Start (ns)": at * 2 * second, "Duration (ns)": 2 * second}
                                                                  for at in range(steps)])
            tiles = {found["label"]: (found["value"], found["note"]) for found in model_of(self.folder / "a")["tiles"]}
            self.assertEqual(tiles["Samples per second"], tile)
            if steps < figures.FEWEST_STEPS:
                continue
            self.assertEqual(tiles["Step time in windows"][1], "+100.0%: the profiler's share, plus any other difference between these steps")

    def test_peaks(self):
        """Rates and percentages of a known peak, rounded as in the tables."""
        peak = 494.09
        rows = [{"TFLOP/s": round(peak * share, 3), "Peak (%)": round(100 * share, 1), "Peak": "tf32 tensor"} for share in (0.0012, 0.049, 0.2024, 0.3377)]
        found, error = library.peaks(rows)["tf32 tensor"]
        self.assertLess(error / peak, 0.002)
        self.assertLessEqual(abs(found - peak), error)
        # Two GPUs of different kinds: no peak fits both.
        rows.append({"TFLOP/s": 100.0, "Peak (%)": 50.0, "Peak": "tf32 tensor"})
        self.assertAlmostEqual(library.peaks(rows)["tf32 tensor"][0], 200, delta=0.5)
        self.assertEqual(library.peaks([{"TFLOP/s": 1.0, "Peak (%)": None, "Peak": ""}, {"TFLOP/s": 0.1, "Peak (%)": 0.0, "Peak": "fp32"}]), {})

    def test_bandwidth(self):
        device = {"memory_clock_khz": 3201000, "memory_bus_bits": 6016}
        for devices, expected in (([device, device], 4.814304e12), ([device, {}], None), ([{"memory_clock_khz": "x", "memory_bus_bits": -1}], None)):
            folders.write_run(self.folder / "a", devices=devices)
            self.assertEqual(library.bandwidth(Result(self.folder / "a")), expected)

    def test_samples_become_points(self):
        line = metrics.Timeline(["SM Active (%)", "IPC"])
        count = 4 * metrics._MOST_POINTS + 3
        for at in range(count):
            line.add(10 * at, 10 * at + 10, [float(at % 4), None if at % 4 == 0 else 2.0 * (at % 4)])
        self.assertEqual((line.each, len(line.starts)), (4, count // 4 + 1))
        self.assertEqual((line.starts[0], line.ends[0], line.starts[1], line.ends[-1]), (0, 40, 40, 10 * count))
        self.assertEqual(line.means(0)[:3], [1.5, 1.5, 1.5])
        # Per active cycle: (1·2 + 2·4 + 3·6) / (1 + 2 + 3)
        self.assertEqual(line.means(1)[0], 4.667)

    def test_memory_over_time(self):
        folder = folders.write_run(self.folder / "run", files=["memory_timeline.csv", "memory_sum.csv", "window_sum.csv"],
                                   devices=[{"id": 0, "memory_bytes": 80_000_000_000}])
        folders.write_table(folder, "memory_sum", [{"Device": "0", "Kind": "[all]", "API": "[all]", "Peak (MB)": "70.000", "Peak at (ns)": 2_500_000_000}])
        folders.write_table(folder, "window_sum", [{"Window": number, "Device": "0", "Start (ns)": number * 1000, "End (ns)": number * 1000 + 500,
                                                    "Memory at Start (MB)": "1.000", "Memory at End (MB)": "2.000"} for number in (1, 2)])

        def row(of, start, duration, low, high, window="", device="0"):
            return {"Device": device, "Of": of, "Start (ns)": start, "Duration (ns)": duration, "Window": window, "Iteration": "", "Label": "outside",
                    "Lowest (MB)": f"{low}.000", "Highest (MB)": f"{high}.000", "Highest at (ns)": start}

        def drawn(rows):
            folders.write_table(folder, "memory_timeline", rows)
            return {series["name"]: series for series in plots_of(model_of(folder))["over-time"]["series"]}

        steps = [row("allocated", 100, 900, 5, 5), row("allocated", 1000, 100, 6, 70, "1"), row("allocated", 1100, 2000, 7, 7, "1")]
        readings = [row("in use", 1010, 90, 500, 500, "1"), row("in use", 1200, 0, 600, 600, "1"), row("in use", 2010, 5, 510, 520, "2")]
        series = drawn([*steps, *readings, row("allocated", 100, 9, 1, 1, device="host")])
        self.assertEqual(list(series), ["in use, GPU 0", "allocated, GPU 0", "allocated at least, GPU 0"])
        self.assertEqual((series["allocated, GPU 0"]["x"], series["allocated, GPU 0"]["y"]), ([100, 1000, 1000, 1100, 1100, 3100], [5, 5, 70, 70, 7, 7]))
        self.assertEqual(series["allocated at least, GPU 0"]["y"], [5, 5, 6, 6, 7, 7])
        # The line is interrupted at the end of its window.
        self.assertEqual((series["in use, GPU 0"]["x"], series["in use, GPU 0"]["y"]),
                         ([1010, 1100, 1200, 1200, None, 2010, 2015], [500, 500, 600, 600, None, 520, 520]))
        torch = drawn([*steps, *readings, row("PyTorch reserved", 100, 50, 60, 60), row("PyTorch allocated", 100, 50, 3, 40)])
        self.assertEqual(list(torch)[3:], ["reserved by PyTorch, GPU 0", "allocated by PyTorch, GPU 0"])
        self.assertEqual(torch["allocated by PyTorch, GPU 0"]["y"], [40, 40])
        # If no step has several values, one line is enough; without readings the windows' edges are shown.
        self.assertEqual(list(drawn(steps[::2])), ["in use, GPU 0", "allocated, GPU 0"])
        self.assertEqual(drawn(steps)["in use, GPU 0"]["y"], [1, 2, None, 1, 2])
        # So many that neighbours are merged: the peak is kept.
        many = [row("allocated", at * 10, 10, at % 7, at % 7) for at in range(7654)]
        many[4321]["Highest (MB)"] = "70.000"
        series = drawn(many)
        self.assertLessEqual(len(series["allocated, GPU 0"]["x"]), 5000)
        self.assertEqual((max(series["allocated, GPU 0"]["y"]), min(series["allocated at least, GPU 0"]["y"])), (70, 0))
        self.assertEqual((series["allocated, GPU 0"]["x"][0], series["allocated, GPU 0"]["x"][-1]), (0, 76540))
        (memory,) = (section for section in model_of(folder)["sections"] if section["id"] == "memory")
        self.assertIn("GPU 0: 70.000 MB allocated at most, 2.500s after CUDA's initialisation.", memory["notes"])

    def test_windows_that_are_too_short(self):
        folder = folders.write_run(self.folder / "a", diagnosis=[
            {"device": device, "verdict": verdict, "device_time_ns": 1000, "kernel_busy_ns": 10, "evidence": []} for device, verdict in enumerate(("", "too short"))])
        folders.write_table(folder, "window_sum", [
            {"Window": window, "Device": device, "Start (ns)": 0, "End (ns)": 9, "Device Time (ns)": 500, "Unattributed": 0, "Verdict": verdict}
            for window, verdict in ((1, ""), (2, "launch-bound"), (3, "too short")) for device in ("all", "0")])
        run = model_of(folder)
        self.assertEqual([verdict["verdict"] for verdict in run["verdicts"]], ["too short"] * 2)
        self.assertEqual(run["verdicts"][0]["meaning"], "The windows are too short for a verdict: profile longer ones, or more iterations.")
        (steps,) = (section for section in run["sections"] if section["id"] == "steps")
        self.assertEqual(steps["notes"], ["Windows 1, 3 are too short for a verdict."])
        self.assertIn("too short</strong>", render(page_model([Result(folder)], [])))
        # Missing device times, as in a window without work in older versions, say nothing.
        folders.write_table(folder, "window_sum", [{"Window": 1, "Device": "all", "Device Time (ns)": "", "Verdict": ""}])
        self.assertNotIn("too short", str(model_of(folder)["sections"]))

    def test_samples_on_both_sides_of_a_gap_are_no_point(self):
        windows, each = 3, metrics._MOST_POINTS + 5
        line = metrics.Timeline(["SM Active (%)"])
        for window in range(windows):
            for at in range(each):
                line.add(10**6 * window + 10 * at, 10**6 * window + 10 * at + 10, [float(window)])
        self.assertEqual((line.each, line.left_out, sum(line.gaps)), (2, 0, 2))
        self.assertEqual({line.means(at)[0] for at in range(1)}, {0.0})
        for start, end, value in zip(line.starts, line.ends, line.means(0), strict=True):
            self.assertEqual((start // 10**6, (end - 1) // 10**6), (value, value))
        # More windows than points: what is left out is counted.
        line = metrics.Timeline(["SM Active (%)"])
        for window in range(2 * metrics._MOST_POINTS + 7):
            line.add(1000 * window, 1000 * window + 10, [1.0])
        self.assertEqual((len(line.starts), line.left_out), (2 * metrics._MOST_POINTS, 7))

    def test_samples_that_can_not_be_read(self):
        folders.write_run(self.folder / "a")
        (self.folder / "a" / "metric_samples.csv").write_text("Device,Start (ns),End (ns),SM Active (%)\n0,1,2,3\n0,1,2,x\n")
        run = model_of(self.folder / "a")
        self.assertEqual([problem.partition("metric_samples")[2] for problem in run["problems"]],
                         [".csv:3: 'x' in column 'SM Active (%)' is not a number"])

    def test_no_sample_was_taken(self):
        folders.write_run(self.folder / "a")
        (self.folder / "a" / "metric_samples.csv").touch()
        self.assertEqual(model_of(self.folder / "a")["problems"], [])

    def test_large_tables_are_cut_and_say_so(self):
        folders.write_run(self.folder / "a")
        folders.write_table(self.folder / "a", "cuda_gpu_kern_sum", [
            {"Time (%)": 0.1, "Total Time (ns)": 10_000 - at, "Instances": 1, "Name": f"kernel {at}"} for at in range(2500)])
        table = tables_of(model_of(self.folder / "a"))["cuda_gpu_kern_sum"]
        self.assertEqual((len(table["rows"]), table["of"], table["rows"][0][0]), (2000, 2500, "kernel 0"))


class Columns(unittest.TestCase):
    def test_meanings_are_those_of_the_documentation(self):
        columns = column_meanings.COLUMNS.read_text(encoding="utf-8")
        self.assertTrue(column_meanings.MEANINGS.read_text(encoding="utf-8") == column_meanings.text_of(columns), "scripts/column_meanings.py writes page/columns.json anew")
        self.assertEqual(parts.meaning_of("gap_line_sum", "Line"), "The line. Empty: a row without a line, such as [device].")
        self.assertEqual(parts.meaning_of("kernel_metrics", "± IPC"), column_meanings.meanings(columns)["kernel_metrics"]["± metric"])
        self.assertEqual(parts.meaning_of("no table", "Line"), "")

    def test_which_columns_show_at_first(self):
        for path in sorted((folders.ROOT / "examples" / "data").rglob("run.json")):
            for name, table in tables_of(model_of(path.parent)).items():
                shown = [column["name"] for column in table["columns"] if not column["off"]]
                self.assertGreater(len(shown), 2, name)
                self.assertLess(len(shown), 20, name)
                self.assertFalse([column for column in shown if column.startswith("± ")], name)
                self.assertTrue("Device" not in shown or name in ("window_sum", "memory_sum"), name)
                self.assertFalse([column["name"] for column in table["columns"] if not column["meaning"] and name != "settings"], name)


class Texts(unittest.TestCase):
    def test_clean(self):
        self.assertEqual(values.clean("a\x1b[31m\u202eb\ud800\n"), "a\N{REPLACEMENT CHARACTER}[31m" + "\N{REPLACEMENT CHARACTER}b" + 2 * "\N{REPLACEMENT CHARACTER}")
        long = values.clean("x" * 3000 + "y" * 3000)
        self.assertLessEqual(len(long), values.LONGEST)
        self.assertTrue(long.startswith("xx") and " … " in long and long.endswith("yy"))

    def test_embedded(self):
        text = embedded({"name": HOSTILE + "<!--\u2028"})
        self.assertRegex(text, "^[A-Za-z0-9+/=]+$", "nothing that HTML could take for its own")
        self.assertEqual(folders.unpacked(text), {"name": HOSTILE + "<!--\u2028"})
        self.assertEqual(folders.unpacked(embedded([1.5, {"x": [math.inf, -math.inf, math.nan]}])), [1.5, {"x": [None, None, None]}])


if __name__ == "__main__":
    unittest.main()
