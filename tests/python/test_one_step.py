# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The report's timeline of one iteration, and its durations of kernels: against the raw records, whole and damaged ones."""

import collections
import csv
import gzip
import itertools
import json
import random
import statistics
import time
import unittest

import folders
from libinject.report.model import page_model
from libinject.report.one_step import MOST_EVENTS, MOST_KERNELS, bin_of, sections
from libinject.result import Result

from libinject.report import one_step

FIELDS = 7


def rows_of(folder, name):
    with open(folder / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def events_of(timeline):
    """[(row, lane, start, duration, name, kind, own, count, busy)]"""
    return [(row["name"], at, lane[i], lane[i + 1], timeline.names[lane[i + 2]], timeline.kinds[lane[i + 3]]["name"], *lane[i + 4 : i + 7])
            for row in timeline.rows for at, lane in enumerate(row["lanes"]) for i in range(0, len(lane), FIELDS)]


def of(folder):
    result = Result(folder)
    step, durations = sections(result)
    return (step.timelines[0] if step.timelines else None), step.notes, (durations.histograms[0] if durations.histograms else None), durations.notes, result.problems


def written(folder, steps, work, calls=(), kernels=None):
    """steps: (window, iteration, start, duration, kernels); work: (start, duration, correlation, stream, name); calls: (start, duration,
    correlation, name)."""
    folders.write_run(folder, threads=[{"tid": 1, "name": "python3"}])
    folders.write_table(folder, "iteration_sum", [{"Window": window, "Iteration": number, "Label": "iteration", "Complete": 1, "Device": "all", "Start (ns)": start,
                                                   "Duration (ns)": took, "Kernels": count} for window, number, start, took, count in steps])
    windows = {}
    for window, _, start, _, _ in steps:
        windows.setdefault(window, start)
    folders.write_table(folder, "window_sum", [{"Window": window, "Device": "all", "Start (ns)": start} for window, start in windows.items()])
    folders.write_table(folder, "cuda_gpu_trace", [{"Start (ns)": start, "Duration (ns)": took, "CorrId": correlation, "GrdX": "" if name.startswith("[") else 1,
                                                    "Device": "X (0)", "Strm": stream, "Name": name} for start, took, correlation, stream, name in work])
    if calls:
        folders.write_table(folder, "cuda_api_trace", [{"Start (ns)": start, "Duration (ns)": took, "CorrID": correlation, "Tid": 1, "Name": name}
                                                       for start, took, correlation, name in calls])
    if kernels:
        folders.write_table(folder, "cuda_gpu_kern_sum", [{"Name": name, "Total Time (ns)": total, "Instances": count, "Min (ns)": low, "Max (ns)": high}
                                                          for name, total, count, low, high in kernels])
    return folder


class OfTheExample(folders.TemporaryFolder):
    @classmethod
    def setUpClass(cls):
        holder = folders.tempfile.TemporaryDirectory(prefix="inject-test-")
        cls.addClassCleanup(holder.cleanup)
        cls.out = folders.profile_example(f"{holder.name}/out", TRACE="csv,chrome", SUMMARY="off")

    def test_it_has_all_of_the_iteration(self):
        timeline, notes, histograms, _, problems = of(self.out)
        self.assertEqual(problems, [])
        number = int(timeline.title.split()[1])
        row = next(row for row in rows_of(self.out, "iteration_sum.csv") if row["Iteration"] == str(number) and row["Device"] == "all")
        start, end = int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"])
        self.assertEqual((timeline.step, timeline.title), (end - start, f"Iteration {number} in window 1"))
        times = [float(each["Step Time (ns)"]) for each in rows_of(self.out, "iteration_sum.csv") if each["Device"] == "all" and each["Step Time (ns)"]]
        off = sorted(abs(time - statistics.median(times)) for time in times)
        self.assertEqual(abs(float(row["Step Time (ns)"]) - statistics.median(times)), off[0])
        events = events_of(timeline)
        own = [event for event in events if event[6]]
        kinds = collections.Counter(kind for *_, kind, _, _, _ in own)
        self.assertEqual(kinds["kernel"], int(row["Kernels"]))
        self.assertEqual(kinds["copy or memset"], int(row["Copies"]) + int(row["Memsets"]))
        calls = [call for name in ("cuda_api_trace.csv", "library_trace.csv") for call in rows_of(self.out, name) if start <= int(call["Start (ns)"]) < end]
        self.assertEqual(sum(count for kind, count in kinds.items() if kind.endswith("call")), len(calls))
        self.assertEqual({(at, took, name) for _, _, at, took, name, *_ in own}
                         - {(int(row["Start (ns)"]) - start, int(row["Duration (ns)"]), row["Name"]) for row in [*calls, *rows_of(self.out, "cuda_gpu_trace.csv")]}, set())
        self.assertTrue(notes)
        # Each lane is in order, without overlaps.
        lanes = collections.defaultdict(list)
        for row_name, lane, at, length, *_ in events:
            lanes[row_name, lane].append((at, at + length))
        for lane in lanes.values():
            self.assertTrue(all(before[1] <= after[0] for before, after in itertools.pairwise(lane)))
        self.assertTrue(any("inject-train" in name for name, _ in lanes), "threads have their names")
        # Durations.
        table = {row["Name"]: row for row in rows_of(self.out, "cuda_gpu_kern_sum.csv")}
        for kernel in histograms.kernels:
            bins = collections.Counter(bin_of(int(row["Duration (ns)"])) for row in rows_of(self.out, "cuda_gpu_trace.csv") if row["Name"] == kernel["name"])
            self.assertEqual({kernel["first"] + at: count for at, count in enumerate(kernel["bins"]) if count}, dict(bins))
            self.assertEqual((kernel["count"], kernel["total"]), (int(table[kernel["name"]]["Instances"]), int(table[kernel["name"]]["Total Time (ns)"])))

    def test_the_timeline_for_perfetto_has_the_same(self):
        first, *_ = of(self.out)
        for name in ("cuda_gpu_trace.csv", "cuda_api_trace.csv", "library_trace.csv"):
            (self.out / name).rename(self.folder / name)
        try:
            second, _, histograms, notes, problems = of(self.out)
        finally:
            for name in ("cuda_gpu_trace.csv", "cuda_api_trace.csv", "library_trace.csv"):
                (self.folder / name).rename(self.out / name)
        self.assertEqual((problems, notes, second.file), ([], [], "trace.json.gz"))
        # There, copies have PyTorch's names, and calls those that programs use.
        without_names = [sorted((*event[:4], event[4] if event[5] == "kernel" else "", *event[5:]) for event in events_of(each)) for each in (first, second)]
        self.assertEqual(*without_names)
        self.assertTrue(all(sum(kernel["bins"]) == kernel["count"] for kernel in histograms.kernels))


class Chosen(folders.TemporaryFolder):
    def test_a_folder_without_records_says_what_to_set(self):
        folder = folders.write_run(self.folder / "a")
        timeline, notes, _, _, problems = of(folder)
        self.assertEqual((timeline, problems, len(notes)), (None, [], 1))
        self.assertIn("INJECT_TRACE=csv", notes[0])
        sections_shown = page_model([Result(folder)], [])["runs"][0]["sections"]
        self.assertEqual([section["notes"] for section in sections_shown if section["id"] == "step"], [notes])

    def test_the_closest_to_the_median_whose_kernels_are_all_there(self):
        steps = [(1, number, 1000 * number, took, 1) for number, took in enumerate((900, 500, 520, 540, 100))]
        calls = [(1000 * number + 1, 5, number + 1, "cudaLaunchKernel") for number in range(5)]
        work = [(1000 * number + 10, 30, number + 1, 7, "k") for number in range(5)]
        self.assertEqual(of(written(self.folder / "a", steps, work, calls))[0].title, "Iteration 2 in window 1")
        # No kernel of that one was recorded.
        timeline, notes, *_ = of(written(self.folder / "b", steps, work[:2] + work[3:], calls))
        self.assertEqual(timeline.title, "Iteration 1 in window 1")
        self.assertEqual(len(notes), 1)
        # None at all: shows what there is, and that some is missing.
        timeline, notes, *_ = of(written(self.folder / "c", [(*step[:4], 2) for step in steps], work, calls))
        self.assertIn("1 of its 2 kernels", notes[0])
        self.assertEqual(timeline.title, "Iteration 2 in window 1")

    def test_the_closest_to_the_median_step_time_where_the_host_runs_ahead(self):
        steps = [(1, number, 1000 * number, 500 + number, 1) for number in range(3)]
        folder = written(self.folder / "a", steps, [(1000 * number + 10, 30, number + 1, 7, "k") for number in range(3)],
                         [(1000 * number + 1, 5, number + 1, "cudaLaunchKernel") for number in range(3)])
        path = folder / "iteration_sum.csv"
        lines = path.read_text().splitlines()
        for times, title, said in ((("7002.0", "7000.0", ""), "Iteration 0", "it took 7.002us, and 500ns on the host; the median is 7.001us."),
                                   (("", "7000.0", ""), "Iteration 1", "it took 7.000us, and 501ns on the host; the median is 7.000us."),
                                   (("", "", ""), "Iteration 1", "it took 501ns; the median is 501ns.")):
            path.write_text("\n".join(f"{line},{time}" for line, time in zip(lines, ("Step Time (ns)", *times), strict=True)) + "\n")
            timeline, notes, *_ = of(folder)
            self.assertEqual(timeline.title, f"{title} in window 1")
            self.assertTrue(notes[0].endswith(said), notes[0])

    def test_iterations_without_a_number(self):
        folder = written(self.folder / "a", [(1, 7, 1000, 500, 1)], [(1010, 30, 1, 7, "k")])
        path = folder / "iteration_sum.csv"
        path.write_text(path.read_text().replace("Iteration,", "Iteration?,", 1))
        timeline, notes, *_ = of(folder)
        self.assertEqual((timeline, notes), (None, ["No iteration is complete in a window, so there is none to show."]))

    def test_correlation_ids_that_begin_anew(self):
        """A window's ids may recur from the one before: its own work is what ran after its calls, before the next window."""
        steps = [(1, 0, 0, 100, 1), (2, 7, 1000, 100, 1), (3, 9, 5000, 100, 1)]
        calls = [(start + 1, 5, 1, "cudaLaunchKernel") for start in (0, 1000, 5000)]
        # The second one's kernel ends long after the host has finished.
        work = [(50, 10, 1, 7, "a"), (1900, 100, 1, 7, "b"), (5050, 10, 1, 7, "c")]
        folder = written(self.folder / "a", steps, work, calls)
        for row in range(3):
            with self.subTest(row=row):
                lines = (self.folder / "a" / "iteration_sum.csv").read_text().splitlines()
                only = folders.write_run(self.folder / f"only-{row}")
                for name in ("window_sum.csv", "cuda_gpu_trace.csv", "cuda_api_trace.csv"):
                    (only / name).write_bytes((folder / name).read_bytes())
                (only / "iteration_sum.csv").write_text("\n".join([lines[0], lines[1 + row]]) + "\n")
                timeline, *_ = of(only)
                own = [(name, start) for _, _, start, _, name, kind, is_own, *_ in events_of(timeline) if kind == "kernel" and is_own]
                self.assertEqual(own, [[("a", 50)], [("b", 900)], [("c", 50)]][row])
                self.assertEqual(timeline.duration, [100, 1000, 100][row])

    def test_without_calls_what_ran_meanwhile(self):
        timeline, notes, *_ = of(written(self.folder / "a", [(1, 0, 0, 100, 2)], [(10, 20, 1, 7, "a"), (40, 20, 2, 7, "b"), (400, 20, 3, 7, "c")]))
        self.assertEqual([name for _, _, _, _, name, *_ in events_of(timeline)], ["a", "b"])
        self.assertIn("no records of calls", notes[1])

    def test_short_events_are_joined_and_none_is_lost(self):
        count = 5 * MOST_EVENTS
        work = [(100 * at, 10 + at % 50, at + 1, 7 + at % 3, f"k{at % 4000}") for at in range(count)]
        calls = [(100 * at, 20, at + 1, "cudaLaunchKernel") for at in range(count)]
        timeline, notes, *_ = of(written(self.folder / "a", [(1, 0, 0, 100 * count, count)], work, calls))
        events = events_of(timeline)
        self.assertLessEqual(len(events), MOST_EVENTS)
        self.assertGreater(len(events), MOST_EVENTS / 10)
        for kind, busy in (("kernel", sum(took for _, took, *_ in work)), ("launch call", 20 * count)):
            self.assertEqual((sum(event[7] for event in events if event[5] == kind), sum(event[8] for event in events if event[5] == kind)), (count, busy))
        self.assertTrue(any("drawn with their neighbours" in note for note in notes), notes)
        self.assertFalse(any("left out" in note for note in notes), notes)

    def test_many_streams(self):
        work = [(10 * at, 5 + at, at + 1, at, "k") for at in range(60)]
        timeline, notes, *_ = of(written(self.folder / "a", [(1, 0, 0, 1000, 60)], work))
        self.assertEqual(len(timeline.rows), 24)
        self.assertTrue(any(note.startswith("36 records are left out") for note in notes), notes)

    def test_durations(self):
        kernels = [(f"k{at}", 1000 - at, 1, 1, 9) for at in range(70)]
        work = [(10 * at, at, at, 7, "k3") for at in range(1, 9)]
        _, _, histograms, notes, _ = of(written(self.folder / "a", [(1, 0, 0, 1000, 8)], work, kernels=kernels))
        self.assertEqual(len(histograms.kernels), MOST_KERNELS)
        self.assertEqual((histograms.kernels[3]["first"], histograms.kernels[3]["bins"]), (0, [1, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1]))
        self.assertEqual(histograms.kernels[0]["bins"], [])
        self.assertIn("do not have as many executions", notes[0])

    def test_bins(self):
        for time_ in (*range(1, 300), *(2**power for power in range(60)), 10**12):
            self.assertLessEqual(2 ** (bin_of(time_) / 4), time_ * (1 + 1e-9))
            self.assertGreater(2 ** ((bin_of(time_) + 1) / 4), time_)
        self.assertEqual([bin_of(time_) for time_ in (0, 1, 2, 4, 1024)], [0, 0, 4, 8, 40])


class Damaged(folders.TemporaryFolder):
    def test_whatever_the_records_are(self):
        chance = random.Random(7)
        steps = [(1, number, 1000 * number, 500, 1) for number in range(3)]
        values = ("", "-1", "x", "1e9", "9" * 30, "-9223372036854775808", "18446744073709551615", "0.5", "\x00", "a,b")
        for round_ in range(60):
            folder = written(self.folder / f"{round_}", steps, [(1000 * number + 10, 30, number + 1, 7, "k") for number in range(3)],
                             [(1000 * number, 5, number + 1, "cudaLaunchKernel") for number in range(3)], [("k", 90, 3, 30, 30)])
            for name in ("cuda_gpu_trace", "cuda_api_trace", "iteration_sum", "window_sum", "cuda_gpu_kern_sum"):
                rows = rows_of(folder, f"{name}.csv")
                for _ in range(chance.randrange(3)):
                    row = chance.choice(rows)
                    row[chance.choice(list(row))] = chance.choice(values)
                folders.write_table(folder, name, rows)
            json.dumps(page_model([Result(folder)], []), allow_nan=False)

    def test_whatever_the_timeline_is(self):
        event = '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%s,"dur":%s,"args":%s},\n'
        texts = ["", "[", event % ("1", "1", "{}"), event % ("1e400", "1", "{}"), event % ('"1"', "null", "[]"), event % ("1", "-5", "7"),
                 event.replace('"k"', "7") % ("1", "1", "{}"), event % ("0.010", "0.030", '{"device":[],"stream":{},"correlation":1e5}'), "x" * 3_000_000]
        for at, text in enumerate(texts):
            folder = written(self.folder / f"{at}", [(1, 0, 0, 500, 1)], [(1, 1, 1, 7, "k")])
            (folder / "cuda_gpu_trace.csv").unlink()
            (folder / "trace.json.gz").write_bytes(gzip.compress(text.encode()))
            *_, problems = of(folder)
            self.assertEqual(problems, [])
        for content in (b"", b"no gzip", gzip.compress(b"x" * 100_000)[:50]):
            (folder / "trace.json.gz").write_bytes(content)
            *_, problems = of(folder)
            self.assertLessEqual(len(problems), 1)
        self.assertIn("trace.json.gz", problems[0])
        (folder / "trace.json.gz").unlink()
        (folder / "trace.json.gz").mkdir()
        self.assertIn("trace.json.gz", of(folder)[-1][0])

    def test_a_file_that_unpacks_without_end(self):
        folder = written(self.folder / "a", [(1, 0, 0, 500, 1)], [(1, 1, 1, 7, "k")])
        (folder / "cuda_gpu_trace.csv").unlink()
        before, one_step.Records.__init__.__globals__["LARGEST"] = one_step.Records.__init__.__globals__["LARGEST"], 1 << 20
        self.addCleanup(one_step.Records.__init__.__globals__.__setitem__, "LARGEST", before)
        (folder / "trace.json.gz").write_bytes(gzip.compress(b"\n" * (2 << 20)))
        self.assertIn("far too large", of(folder)[-1][0])

    def test_many_records(self):
        steps = [(1, number, 100_000 * number, 100_000, 1000) for number in range(100)]
        work = [(100 * at, 50, at + 1, 7, f"kernel{at % 97}") for at in range(100_000)]
        calls = [(100 * at, 20, at + 1, "cudaLaunchKernel") for at in range(100_000)]
        folder = written(self.folder / "a", steps, work, calls)
        begin = time.process_time()
        timeline, *_ = of(folder)
        took = time.process_time() - begin
        print(f"200,000 records: {took:.1f} s of a processor")
        self.assertEqual(sum(event[7] for event in events_of(timeline) if event[6]), 2000)
        self.assertLess(took, 30)


if __name__ == "__main__":
    unittest.main()
