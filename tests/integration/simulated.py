# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs the programs of script/ under the preload on the simulated CUDA, and reads their output.

Every run's tables are checked against each other and against its raw records, and these against the simulation's own record of what ran on
its devices; tests only state what is special to them.
"""

import argparse
import collections
import contextlib
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import promises
import timeline
from sanitized import LOST_TO_PACE, PACE, preload as preload_of, unsanitized  # pylint: disable=unused-import

# The library's path, the programs' folder, the simulated CUDA's: set by main().
library = programs = simulation = None

TABLES = ("cuda_gpu_kern_sum.csv", "cuda_gpu_kern_gb_sum.csv", "cuda_api_sum.csv", "cuda_gpu_mem_time_sum.csv",
          "cuda_gpu_mem_size_sum.csv", "nvtx_sum.csv", "nvtx_kern_sum.csv", "library_sum.csv", "phase_sum.csv", "thread_kern_sum.csv",
          "window_sum.csv", "iteration_sum.csv", "step_times.csv", "kernel_detail.csv", "family_sum.csv", "gemm_sum.csv", "conv_sum.csv",
          "attention_sum.csv", "rnn_sum.csv", "norm_sum.csv", "nccl_sum.csv", "memory_sum.csv", "memory_timeline.csv", "copy_sum.csv",
          "host_sum.csv")
RAW = ("cuda_gpu_trace.csv", "cuda_api_trace.csv", "library_trace.csv", "thread_cpu_trace.csv")
LOST = {"Lost Host Records": "host_records", "Lost Range Records": "range_records",
        "Lost Activity Records": "activity_records", "Invalid Timestamps": "invalid_timestamps",
        "Missing Activity Records": "missing_activity_records"}


def done_by_us(out):
    """Whether device activity was recorded, all of it."""
    return not any("activity" in message for message in out.run["messages"])


def pauses(run):
    """How often a window began a second or more after the one before it ended, for example because the machine stood still. CUPTI may then
    be detached and attached once more, and again for the next window; which of them follow each other directly is known only then."""
    windows = run["windows"]
    return sum(after["start_ns"] - before["end_ns"] >= 1_000_000_000 for before, after in zip(windows, windows[1:]))


class Folder:
    """An output folder."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def files(self):
        return sorted(os.listdir(self.path))

    def rows(self, name):
        with open(self.path / name, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    @property
    def run(self):
        return json.loads((self.path / "run.json").read_text(encoding="utf-8"))

    def counts(self, name, key, count):
        return {row[key].removesuffix("()"): int(row[count]) for row in self.rows(name)}

    def kernels(self):
        """{name: instances}; `name()` without the parentheses that demangling adds."""
        return self.counts("cuda_gpu_kern_sum.csv", "Name", "Instances")

    def operations(self):
        return self.counts("cuda_gpu_mem_time_sum.csv", "Operation", "Count")

    def calls(self):
        return self.counts("cuda_api_sum.csv", "Name", "Num Calls")

    def ranges(self):
        """{(range, style): instances}; without the colon with which names in the default domain begin."""
        return {(row["Range"].removeprefix(":"), row["Style"]): int(row["Instances"]) for row in self.rows("nvtx_sum.csv")}

    def range_kernels(self):
        """{(range, kernel): (instances of the range, kernels)}, all threads together."""
        found = collections.defaultdict(lambda: (0, 0))
        for row in self.rows("nvtx_kern_sum.csv"):
            key = row["NVTX Range"].removeprefix(":"), row["Kernel Name"].removesuffix("()")
            found[key] = found[key][0] + int(row["NVTX Inst"]), found[key][1] + int(row["Kern Inst"])
        return dict(found)

    def libraries(self):
        """{path: (calls, kernels launched by the call itself, by it and the calls inside it)}"""
        return {row["Call"]: (int(row["Calls"]), int(row["Kernels"]), int(row["Kernels incl. Nested"]))
                for row in self.rows("library_sum.csv")}

    def windows(self):
        """One row per window: all devices."""
        return [row for row in self.rows("window_sum.csv") if row["Device"] == "all"]

    def window_kernels(self):
        return [int(row["Kernels"] or 0) for row in self.windows()]

    def reasons(self):
        return [row["Reason"] for row in self.windows()]

    def lost(self):
        """Non-zero losses in run.json."""
        return {kind: count for kind, count in self.run["lost"].items() if count}


Sampling = collections.namedtuple("Sampling", "device interval enabled started stopped disabled given")


class Result:
    """A program that has ended."""

    def __init__(self, done, work, report):
        self.code = done.returncode
        self.stdout = done.stdout
        self.stderr = done.stderr
        self.work = work  # the folder in which it ran
        self.report = report

    def messages(self):
        """[(level, text)] of libinject's own lines on stderr."""
        found = []
        for line in self.stderr.splitlines():
            if line.startswith("libinject["):
                level, _, text = line.partition("] ")[2].partition(": ")
                found.append((level, text))
        return found

    def warnings(self):
        return [text for level, text in self.messages() if level in ("warning", "error", "critical")]

    def folders(self):
        return sorted(path.parent for path in self.work.rglob("run.json"))

    @property
    def out(self):
        """The only output folder."""
        (path,) = self.folders()
        return Folder(path)

    def device_work(self):
        """What the simulated devices ran: [(kind, name, device, stream, correlation, start, end)]"""
        found = []
        for line in self.report.read_text(encoding="utf-8").splitlines():
            fields = line.split(",")
            if fields[0] == "work":
                kind, name, device, _context, stream, correlation, _host, start, end, _bytes = fields[1:]
                found.append((kind, name, int(device), int(stream), int(correlation), int(start), int(end)))
        return found

    def sampling(self):
        """Each time that a simulated device's counters were sampled; a step that did not happen is 0."""
        fields = [line.split(",") for line in self.report.read_text(encoding="utf-8").splitlines()]
        return [Sampling(*map(int, line[1:])) for line in fields if line[0] == "sampling"]

    def misuse(self):
        """CUDA calls made within CUPTI's callbacks, which CUPTI forbids; calls to CUPTI that harm what another thread is doing; and calls
        for hardware counters that came out of order."""
        return sum(int(line.split(",")[1]) for line in self.report.read_text(encoding="utf-8").splitlines()
                   if line.startswith(("calls_in_callbacks,", "cupti_misuse,", "sampling_misuse,")))

    def simulated_calls(self):
        """{function: calls} over the simulated libraries."""
        found = collections.Counter()
        for line in self.report.read_text(encoding="utf-8").splitlines():
            fields = line.split(",")
            if fields[0] == "call":
                found[fields[2]] += int(fields[3])
        return found


def come_first():
    """Gives the process a higher CPU priority, if permitted."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)


class SimulatedTest(unittest.TestCase):
    maxDiff = None
    urgent = False  # the result depends on when the program's threads get a CPU
    place = None  # where its folder is; None: where temporary files are

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="inject-test-", dir=self.place))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.check_promises)
        self.runs = 0
        self.may_break = {}

    def breaks(self, **reasons):
        """The test makes folders that break rules of `inject check`, by their names with _ for -, each with a reason."""
        self.may_break.update({name.replace("_", "-"): reason for name, reason in reasons.items()})

    def check_promises(self):
        """All folders made by the test keep the documentation's promises, in their final state."""
        promises.hold(self, self.folder, self.may_break)

    def script(self, text, program="cuda", preload=True, before=(), faults=(), devices=None, env=None, check=True,
               command=None, timeout=60, **options):
        """Runs `text`, words of script.h. `options`: WINDOW="api" is INJECT_WINDOW=api."""
        self.runs += 1
        work = self.folder / f"run{self.runs}"
        work.mkdir()
        report = self.folder / f"report{self.runs}"
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("INJECT_", "CUDASIM_", "CUDA_", "NVTX_", "LD_"))}
        kept.update(LD_LIBRARY_PATH=str(simulation), CUDASIM_REPORT=str(report), LC_ALL="C")
        if faults:
            kept["CUDASIM_FAULTS"] = ",".join([faults] if isinstance(faults, str) else faults)
        if devices is not None:
            kept["CUDASIM_DEVICES"] = str(devices)
        if libraries := preload_of(*([*before, library] if preload else [])):
            kept["LD_PRELOAD"] = libraries
        given = {"OUT": "out", "TRACE": "csv", "SUMMARY": "off", **options}
        kept.update({f"INJECT_{name}": value for name, value in given.items() if value is not None})
        kept.update(env or {})
        done = subprocess.run(command or [str(programs / f"script_{program}"), *text.split()], cwd=work, env=kept,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout * PACE, check=False,
                              preexec_fn=come_first if self.urgent else None)
        result = Result(done, work, report)
        if check:
            self.assertNotIn(done.returncode, (99, -6, -11), done.stderr)
            if report.exists():
                self.assertEqual(result.misuse(), 0)
            for folder in result.folders():
                self.check_folder(Folder(folder), result)
        return result

    def check_folder(self, out, result):
        """The tables of a run agree with each other and with the raw records, and these with the devices."""
        for name in TABLES:
            self.assertIn(name, out.files())
        per_kernel = self.sums(out, "cuda_gpu_kern_sum.csv", "Name")
        self.assertEqual(self.sums(out, "cuda_gpu_kern_gb_sum.csv", "Name"), per_kernel)
        self.assertEqual(self.sums(out, "kernel_detail.csv", "Name"), per_kernel)
        for row in out.rows("kernel_detail.csv"):
            if row["Lost Time (ns)"] != "":
                self.assertLess(int(row["Lost Time (ns)"]), int(row["Total Time (ns)"]) + 1)
                self.assertTrue(0 < float(row["Occupancy (%)"]) <= 100 and 0 < float(row["SM Efficiency (%)"]) + 0.1 <= 100.1)
        kernels = self.total(per_kernel)
        self.assertEqual(self.total(self.sums(out, "thread_kern_sum.csv", "Thread Name")), kernels)
        windows = out.rows("window_sum.csv")
        # Windows beyond 10,000 share one row, without devices.
        several = not any(row["Window"] == "[other]" for row in windows)
        for scope in ("all", "each") if several else ("all",):
            rows = [row for row in windows if (row["Device"] == "all") == (scope == "all")]
            self.assertEqual((self.sum(rows, "Kernels"), self.sum(rows, "Kernel Time (ns)")), kernels, scope)
        per_operation = self.sums(out, "cuda_gpu_mem_time_sum.csv", "Operation", "Count")
        totals = out.windows()
        iterations = out.rows("iteration_sum.csv")
        for scope in ("all", "each"):
            rows = [row for row in iterations if (row["Device"] == "all") == (scope == "all")]
            self.assertEqual((self.sum(rows, "Kernels"), self.sum(rows, "Kernel Time (ns)")), kernels, scope)
            self.assertEqual((self.sum(rows, "Copies") + self.sum(rows, "Memsets"),
                              self.sum(rows, "Copy Time (ns)") + self.sum(rows, "Memset Time (ns)")),
                             self.total(per_operation), scope)
        self.assertEqual(self.sum(iterations, "Launches"), self.sum(totals, "Submissions"))
        for row in windows:
            work = sum(int(row[f"{kind} Time (ns)"] or 0) for kind in ("Kernel", "Copy", "Memset"))
            self.assertLessEqual(int(row["GPU Busy (ns)"] or 0), work)
            self.assertLessEqual(float(row["GPU Busy (%)"] or 0), 100)
        self.assertEqual((self.sum(totals, "Copies") + self.sum(totals, "Memsets"),
                          self.sum(totals, "Copy Time (ns)") + self.sum(totals, "Memset Time (ns)")),
                         self.total(per_operation))
        sizes = out.rows("cuda_gpu_mem_size_sum.csv")
        self.assertEqual({row["Operation"]: int(row["Count"]) for row in sizes},
                         {name: count for name, (count, _) in per_operation.items()})
        self.assertAlmostEqual(self.sum(totals, "Copy Size (MB)", float) + self.sum(totals, "Memset Size (MB)", float),
                               self.sum(sizes, "Total (MB)", float), delta=0.001 * (len(sizes) + 2 * len(totals)))
        self.check_copies(out, per_operation, sizes)
        per_call = self.sums(out, "cuda_api_sum.csv", "Name", "Num Calls")
        self.assertEqual((self.sum(totals, "API Calls"), self.sum(totals, "API Time (ns)")), self.total(per_call))
        lost = out.run["lost"]
        # Each submission is one kernel, copy or memset, except for graphs. For launches that were in progress in other threads when CUPTI
        # was attached, one per thread, only the kernel is known.
        if not any(lost.values()) and "cudaGraphLaunch" not in per_call and done_by_us(out):
            threads = len(out.rows("thread_kern_sum.csv"))
            if threads == 1:
                self.assertEqual(self.sum(totals, "Unattributed"), 0)
            self.assertLessEqual(self.sum(totals, "Unattributed"), threads * out.run["overhead"]["attachments"])
            for row in totals:
                self.assertEqual(sum(int(row[column]) for column in ("Kernels", "Copies", "Memsets")),
                                 int(row["Submissions"]) + int(row["Unattributed"]))
        if out.run["windows_not_listed"] == 0:
            for column, kind in LOST.items():
                self.assertEqual(sum(window["lost"][kind] for window in out.run["windows"]), self.sum(totals, column))
                self.assertGreaterEqual(lost[kind], self.sum(totals, column))
        traces = out.run["options"]["INJECT_TRACE"].split(",")
        if "csv" in traces and not lost["trace_rows"]:
            self.check_trace(out, result, per_kernel, per_operation, per_call)
            if "chrome" in traces and not lost["trace_events"]:
                timeline.check(self, out)

    def check_copies(self, out, per_operation, sizes):
        """copy_sum.csv splits the operations that are copies."""
        copies = out.rows("copy_sum.csv")
        found = {f"[CUDA memcpy {name}]": sums for name, sums in self.sums(out, "copy_sum.csv", "Direction", "Count").items()}
        self.assertEqual(found, {name: sums for name, sums in per_operation.items() if name != "[CUDA memset]"})
        for row in sizes:
            mine = [copy for copy in copies if f"[CUDA memcpy {copy['Direction']}]" == row["Operation"]]
            if row["Operation"] != "[CUDA memset]":
                self.assertAlmostEqual(self.sum(mine, "Total (MB)", float), float(row["Total (MB)"]), delta=0.0005 * (len(mine) + 1.01))
        times = [int(row["Total Time (ns)"]) for row in copies]
        self.assertEqual(times, sorted(times, reverse=True))
        for row in copies:
            self.assertLessEqual(max(int(row["Small Copies"]), int(row["Synchronizing"])), int(row["Count"]))
            self.assertLessEqual(float(row["Overlap with Kernels (%)"] or 0), 100)

    def check_copy_overlap(self, out, trace):
        """The copies' overlap with kernels in one window, computed a second time from the raw records."""
        kernels, copies = collections.defaultdict(list), collections.defaultdict(list)
        for row in trace:
            device, start = row["Device"].rpartition("(")[2].rstrip(")"), int(row["Start (ns)"])
            span = start, start + int(row["Duration (ns)"])
            if row["GrdX"] != "":
                kernels[device].append(span)
            elif row["Name"] != "[CUDA memset]":
                copies[device, row["Name"], row["SrcMemKd"], row["DstMemKd"]].append(span)
        for intervals in kernels.values():
            intervals.sort()
        for (device, name, source, target), spans in copies.items():
            # For copies between devices, the raw records do not tell the other device.
            rows = [row for row in out.rows("copy_sum.csv")
                    if (row["Device"], f"[CUDA memcpy {row['Direction']}]", row["Source"].rstrip(" 0123456789"),
                        row["Target"].rstrip(" 0123456789")) == (device, name, source, target)]
            total = sum(end - start for start, end in spans)
            self.assertEqual((self.sum(rows, "Count"), self.sum(rows, "Total Time (ns)")), (len(spans), total))
            overlapped = sum(self.union([(max(start, begin), min(end, until)) for begin, until in kernels[device]
                                         if begin < end and until > start]) for start, end in spans)
            # A share of the time from each window's first kernel on, so not more than the whole.
            told = sum(int(row["Total Time (ns)"]) * float(row["Overlap with Kernels (%)"] or 0) / 100 for row in rows)
            self.assertGreaterEqual(told, overlapped - 0.0006 * total - 1)

    def check_trace(self, out, result, per_kernel, per_operation, per_call):
        trace = out.rows("cuda_gpu_trace.csv")
        found = {True: collections.Counter(), False: collections.Counter()}
        times = {True: collections.Counter(), False: collections.Counter()}
        for row in trace:
            kernel = row["GrdX"] != ""
            found[kernel][row["Name"]] += 1
            times[kernel][row["Name"]] += int(row["Duration (ns)"])
        for kernel, table in ((True, per_kernel), (False, per_operation)):
            self.assertEqual({name: (count, times[kernel][name]) for name, count in found[kernel].items()}, table)
        calls = collections.defaultdict(lambda: (0, 0))
        for row in out.rows("cuda_api_trace.csv"):
            count, time = calls[row["Name"]]
            calls[row["Name"]] = count + 1, time + int(row["Duration (ns)"])
        self.assertEqual(dict(calls), per_call)
        if len(out.windows()) == 1:
            busy = {row["Device"]: int(row["GPU Busy (ns)"]) for row in out.rows("window_sum.csv") if row["GPU Busy (ns)"]}
            worked = {}
            for row in trace:
                start = int(row["Start (ns)"])
                worked.setdefault(row["Device"].rpartition("(")[2].rstrip(")"), []).append((start, start + int(row["Duration (ns)"])))
            worked = {device: self.union(intervals) for device, intervals in worked.items()}
            # It is blank if work has no record, and only then.
            lost = out.run["lost"]
            lacks = any(lost[kind] for kind in ("activity_records", "invalid_timestamps", "missing_activity_records"))
            if busy or not (lacks or "no_device_activity" in out.run["windows"][0]):
                self.assertEqual(busy, {"all": sum(worked.values()), **worked})
            if not out.run["lost"]["busy_time_records"]:
                self.check_copy_overlap(out, trace)
        # Nothing that did not run, nothing twice.
        if not result.report.exists():
            return
        base = out.run["time_zero"]["clock_monotonic_ns"]
        ran = collections.Counter((stream, device, start - base, end - start)
                                  for _, _, device, stream, _, start, end in result.device_work() if end)
        recorded = collections.Counter(
            (int(row["Strm"]), int(row["Device"].rpartition("(")[2].rstrip(")")), int(row["Start (ns)"]),
             int(row["Duration (ns)"])) for row in trace)
        self.assertEqual(recorded - ran, collections.Counter(), "recorded, and never ran so")

    @staticmethod
    def union(intervals):
        """The time covered by at least one of the intervals."""
        total, reached = 0, -10**18
        for begin, end in sorted(intervals):
            total += max(0, end - max(begin, reached))
            reached = max(reached, end)
        return total

    @staticmethod
    def sum(rows, column, kind=int):
        return sum(kind(row[column]) for row in rows if row[column] != "")

    @staticmethod
    def total(table):
        return sum(count for count, _ in table.values()), sum(time for _, time in table.values())

    @staticmethod
    def sums(out, table, key, count="Instances"):
        found = {}
        for row in out.rows(table):
            before = found.get(row[key], (0, 0))
            found[row[key]] = before[0] + int(row[count]), before[1] + int(row["Total Time (ns)"])
        return found

    def check_unharmed(self, result, text, **how):
        """The same program, without the preload, printed the same and ended with the same status."""
        alone = self.script(text, preload=False, check=False, **how)
        self.assertEqual((result.code, result.stdout), (alone.code, alone.stdout))


def main():
    global library, programs, simulation
    parser = argparse.ArgumentParser()
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("programs", type=pathlib.Path, help="folder of the script programs")
    parser.add_argument("simulation", type=pathlib.Path, help="folder of the simulated CUDA's libraries")
    arguments, rest = parser.parse_known_args()
    library, programs, simulation = (path.resolve() for path in
                                     (arguments.library, arguments.programs, arguments.simulation))
    unittest.main(module="__main__", argv=[sys.argv[0], *rest])
