# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Hardware metrics: the samples say what the GPU did, over several windows, and what taking them costs.

During a large product in bfloat16 the SMs and the tensor pipe are busy, during one in fp32 the FMA pipe, during a pause
nothing; sample times are those of the work. Programs end well, also inside a window, and as a user who may not read the
counters gets one line.

Values: kernels whose work is known (products, elementwise, reduction, softmax, convolution) against what that work is of the
device's peak at the clock that NVML reads meanwhile, and every kernel against Nsight Compute where that may count. Kernels
shorter than a sample in a random order against each by itself. Two devices in one process. The SM clock before, during and after
sampling. 8 and 16 threads that launch while windows open and close. Cost: the time of training steps
in windows with metrics over those without, which two processes open in turn, and the memory used.

--parts picks what runs; each takes half a minute to four minutes, all of them less than twelve.
"""

import argparse
import collections
import contextlib
import csv
import ctypes
import io
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import tensor_truth
from gputest import Folder, clean_environment, folders, main, normalise, profiled_environment, run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_metrics.py")
TABLE = "metric_samples.csv"
MOST_COST = 1.02
BLOCK_SECONDS = 0.7  # of steps per turn, the first few of which are warm-up
NOBODY = 65534
# The legitimate reasons for a machine to have no metrics; every other message is a failure.
REFUSALS = {"NVreg_RestrictProfilingToAdminUsers": "no permission to read the counters",
            "can't sample counters while it records kernels": "CUPTI is too old", "virtual GPU": "a virtual GPU", "(MIG)": "a MIG instance",
            "too old": "the GPU is too old", "no metrics for its chip": "CUPTI does not know the chip"}


# By compute capability: FLOPs per SM and cycle, for dense bfloat16 on tensor cores and for FP32.
FLOP_A_CYCLE = {(8, 0): (2048, 128), (9, 0): (4096, 256)}
# By how much two measurements of the same value may differ: in points, or relatively. NVML's clock is a mean of readings, hence the last.
POINTS, PART, PART_BY_CLOCK = 3, 0.05, 0.08
FEWEST_SAMPLES = 10
PERCENT = ".avg.pct_of_peak_sustained_elapsed"
NCU = {"SM Active (%)": "sm__cycles_active" + PERCENT, "Tensor Pipe (%)": "sm__pipe_tensor_cycles_active" + PERCENT,
       "FMA Pipe (%)": "sm__inst_executed_pipe_fma" + PERCENT, "IPC": "sm__inst_executed.avg.per_cycle_active",
       "Occupancy (%)": "sm__warps_active.avg.pct_of_peak_sustained_active",
       "DRAM Read (%)": "dram__bytes_read.sum.pct_of_peak_sustained_elapsed",
       "DRAM Write (%)": "dram__bytes_write.sum.pct_of_peak_sustained_elapsed", "L2 (%)": "lts__t_sectors" + PERCENT}
# Bytes that a launch moves. ncu runs a kernel several times, and its saving and restoring goes through the caches: for a kernel whose data
# fit into the L2 cache, these values (MEMORY) differ between ncu's runs and a program's loop.
MOVED = ("dram__bytes_read.sum", "dram__bytes_write.sum")
MEMORY = ("IPC", "DRAM Read (%)", "DRAM Write (%)")
# Shorter kernels are not comparable at all then: ncu starts each alone, with its data in memory.
SHORTEST_IN_CACHE = 10_000
SHOWN_ONLY = ("L2 (%)",)
# Relative difference allowed between mean durations of the same work.
SAME_TIME = 0.02
# For kernels shorter than a sample; L2 and the links are shared with others.
POOLED = ("SM Active (%)", "Tensor Pipe (%)", "FMA Pipe (%)", "IPC", "Occupancy (%)", "DRAM Read (%)", "DRAM Write (%)")
IPC_POINTS = 0.12
# Counters of warps in addition to the sampled one, all in one pass of GH100.
WARPS = ("sm__warps_active", "TPC.TriageCompute.tpc__warps_active_shader_cs_realtime")
ACTIVE = "TPC.TriageCompute.sm__cycles_active" + PERCENT
MOST_CLOCK_CHANGE = 0.02
# Maximum duration of a window's edge with threads that launch continuously, in seconds.
MOST_EDGE = 5
# Memory for sampling one device, in addition to the vendor's libraries; the second: for samples that wait for other threads and for
# kernels.
MOST_OWN, MOST_HELD = 64_000_000, 12_000_000
MOST_RESIDENT, MOST_DEVICE = 256 << 20, 32 << 20


def close(value, expected, part=PART):
    return abs(value - expected) <= max(POINTS, part * abs(expected))


def expectations(kind, seconds, about, mhz, bandwidth):
    """{column: (least, most)} in percent of the device's peaks, expected for a kind of work; `bandwidth` in bytes per second. Unknown
    values are left out."""
    rate = kind["calls"] / seconds
    one, found = kind["one"], {}
    cycle = FLOP_A_CYCLE.get(tuple(about["capability"]))
    if cycle and mhz:
        peak = about["sms"] * mhz * 1e6
        if "tensor_flop" in one:
            # A lower bound: a pipe is busy for longer than its operations take at the peak.
            share = 100 * one["tensor_flop"] * rate / (cycle[0] * peak)
            found["Tensor Pipe (%)"] = (share - max(POINTS, PART_BY_CLOCK * share), 100)
        elif "fma_flop" in one:
            share = 100 * one["fma_flop"] * rate / (cycle[1] * peak)
            # Its other instructions (addresses, scaling) are added.
            found["FMA Pipe (%)"] = (share - max(POINTS, PART_BY_CLOCK * share), 1.2 * share + POINTS)
            # A warp's multiply-add is one instruction, and the loop has few others.
            found["IPC"] = (0.9 * share / 100 * cycle[1] / 64, 1.5 * share / 100 * cycle[1] / 64)
    if bandwidth:
        for way, column in (("read", "DRAM Read (%)"), ("written", "DRAM Write (%)")):
            if way in one:
                share = 100 * one[way] * rate / bandwidth
                slack = max(POINTS, PART * share)
                found[column] = (share - slack, share + slack)
    if "fma_flop" in one:
        found["Tensor Pipe (%)"] = (0, 1)
    return found


def differences(found, expected):
    """The means that are not between (least, most)."""
    return [f"{column} {found.get(column)}, {low:.2f} … {high:.2f} expected" for column, (low, high) in expected.items()
            if found.get(column) is None or not low <= found[column] <= high]


def judge_occupancy(rows):
    """Achieved occupancy above the launch's limit: [texts], and the number of rows checked."""
    wrong, looked = [], 0
    for row in rows:
        if row.get("Occupancy (%)", "") == "" or row.get("Theoretical Occupancy (%)", "") == "":
            continue
        looked += 1
        achieved, most = float(row["Occupancy (%)"]), float(row["Theoretical Occupancy (%)"])
        if achieved > most + POINTS or achieved <= 0:
            wrong.append(f"{row['Name'][:40]}: {achieved:.1f} of {most:.1f} %")
    return wrong, looked


def grid_of(text):
    return tuple(int(part) for part in re.findall(r"\d+", text))


def parse_ncu(text):
    """{(name, grid): {column: mean over the launches}} of `ncu --csv --page raw`."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        if not (row.get("ID") or "").strip().isdigit():
            continue  # the units
        for column, metric in [*NCU.items(), *((metric, metric) for metric in MOVED)]:
            cell = (row.get(metric) or "").replace(",", "").strip()
            if re.fullmatch(r"[0-9.eE+-]+", cell):  # not "n/a"
                values[normalise(row["Kernel Name"]), grid_of(row["Grid Size"])][column].append(float(cell))
    return {key: {column: statistics.fmean(found) for column, found in columns.items()} for key, columns in values.items()}


def compare_ncu(rows, truth, l2_bytes):
    """({column: values compared}, [differences], [lines of a table]): rows of kernel_metrics.csv with enough samples against ncu's."""
    compared, wrong = collections.Counter(), []
    table = ["| kernel | " + " | ".join(NCU) + " |", "|---" * (len(NCU) + 1) + "|"]
    for row in rows:
        key = normalise(row["Name"]), tuple(int(row[column]) for column in ("GrdX", "GrdY", "GrdZ"))
        found = truth.get(key, {})
        if int(row["Samples"]) < FEWEST_SAMPLES or not found:
            continue
        in_cache = sum(found.get(metric, 0) for metric in MOVED) < l2_bytes
        short = in_cache and float(row["Total Time (ns)"]) < SHORTEST_IN_CACHE * int(row["Instances"])
        cells = []
        for column in NCU:
            if row.get(column, "") == "" or column not in found:
                cells.append("")
                continue
            value, expected = float(row[column]), found[column]
            judged = column not in SHOWN_ONLY and not (in_cache and column in MEMORY) and not short
            cells.append(f"{value:.2f} / {expected:.2f}" + ("" if judged else " (not compared)"))
            if not judged:
                continue
            compared[column] += 1
            good = close(value, expected) if column != "IPC" else abs(value - expected) <= max(IPC_POINTS, PART * expected)
            if not good:
                wrong.append(f"{row['Name'][:40]} {column}: {value:.2f}, ncu {expected:.2f}")
        table.append(f"| {row['Name'][:40]} {key[1]} | " + " | ".join(cells) + " |")
    return compared, wrong, table


def clock_changes(medians):
    """(during / before - 1, after / before - 1); None if one of the clocks is unknown."""
    if not all(medians.get(phase) for phase in ("before", "during", "after")):
        return None
    return medians["during"] / medians["before"] - 1, medians["after"] / medians["before"] - 1


def judge_threads(told, number, windows=4):
    """Problems in the output of the program with launching threads."""
    wrong = list(told["failures"])
    if len(told["counts"]) != number or min(told["counts"], default=0) < 100:
        wrong.append(f"launches by thread: {told['counts']}")
    if len(told["edges"]) != windows:
        wrong.append(f"{len(told['edges'])} windows")
    slow = [edge for edge in told["edges"] if max(edge["open_ns"], edge["close_ns"]) > MOST_EDGE * 1e9]
    return wrong + [f"an edge took {max(edge.values()) / 1e9:.1f} s" for edge in slow]


def means(rows, begin, end, columns):
    """{column: mean} over the samples between begin and end, and their number; NaN samples are left out."""
    inside = [row for row in rows if int(row["Start (ns)"]) >= begin and int(row["End (ns)"]) <= end]
    found = {}
    for column in columns:
        values = [float(row[column]) for row in inside if row.get(column, "") != ""]
        found[column] = statistics.fmean(values) if values else None
    return found, len(inside)


def middle(span, base, margin=0.1):
    """The span without its edges, on the tables' clock."""
    begin, end = span
    cut = int((end - begin) * margin)
    return begin - base + cut, end - base - cut


def judge_phase(name, found):
    """Problems with a phase's means: a text, or None."""
    active, tensor, fma = (found.get(column) for column in ("SM Active (%)", "Tensor Pipe (%)", "FMA Pipe (%)"))
    if active is None or tensor is None or fma is None:
        return f"no value: SM active {active}, tensor {tensor}, FMA {fma}"
    good = {"bf16": active > 85 and tensor > 60 and fma < 10,
            "fp32": active > 85 and tensor < 5 and fma > 40,
            "idle": active < 10 and tensor < 2 and fma < 2}[name]
    return None if good else f"SM active {active:.1f} %, tensor {tensor:.1f} %, FMA {fma:.1f} %"


def refusal(err):
    """Why this machine can't sample, from the library's own message; None if there is no such message."""
    for line in err.splitlines():
        if "no hardware metrics" in line:
            return next((reason for mark, reason in REFUSALS.items() if mark in line), None)
    return None


def profile(options, name, arguments, prefix=(), metrics="auto", **more):
    out = os.path.join(options.work, name.replace(" ", "_") + ".out")
    shutil.rmtree(out, ignore_errors=True)
    given = {} if metrics is None else {"metrics": metrics, "metrics_timeline": "1"}
    environment = profiled_environment(options.library, out, "api", summary="off", **given, **more)
    result = run([*prefix, sys.executable, PROGRAM, *arguments], environment, timeout=240, cwd=options.work,
                 log=os.path.join(options.work, name.replace(" ", "_") + ".log"))
    found = folders(out)
    return result, Folder(found[0]) if len(found) == 1 else None


def loss_reasons(metrics):
    """The reasons for lost samples in run.json."""
    return "".join(f"; {reason} {count}" for reason, count in metrics["lost"].items() if count)


def decoding(metrics, samples):
    """Microseconds of CPU time per sample, for each step of decoding."""
    decode = metrics["decode"]
    each = {step: decode[f"{step}_cpu_ns"] / 1e3 / max(samples, 1) for step in ("data", "times", "evaluate", "empty")}
    return (f"decoding {metrics['decode_cpu_ns'] / 1e3 / max(samples, 1):.1f} us a sample: "
            + ", ".join(f"{step} {time:.1f}" for step, time in each.items())
            + f"; {decode['calls']} calls, {decode['samples']} complete, image full {decode['full']}, emptied {decode['emptied']}, "
            f"{decode['image_bytes'] / max(decode['image_samples'], 1) / 1e3:.1f} kB a sample")


def first_times(metrics):
    texts = []
    for name in ("first_sample", "first_lost"):
        times = metrics.get(name)
        if times:
            texts.append(" ".join([name, *(f"{key} {value}" for key, value in times.items() if value != "")]))
    return "; ".join(texts)


def check_phases(options, report, name, windows, pause, most_lost=0.01, **more):
    result, folder = profile(options, name, ["phases", str(windows), str(pause)], **more)
    if not report.check(f"{name}: program ends well, one output folder", result.rc == 0 and folder is not None, result.why()):
        return
    spans = json.loads(result.out.strip().splitlines()[-1])
    about = folder.run_json()
    rows = folder.rows(TABLE)
    # Losses are checked below.
    judged = ("hardware metrics lost", *(["was full"] if most_lost > 0.5 else []))
    lines = [line for line in result.err.splitlines()
             if "hardware metrics" in line and not any(known in line for known in judged)]
    report.check(f"{name}: no complaint", not lines, " | ".join(lines))
    without = [line for line in result.err.splitlines() if "is sampled without" in line]
    report.check(f"{name}: samples exist", len(rows) > 100, " | ".join([f"{len(rows)}; {about['metrics']['samples']} in all", *without]))
    report.data[name] = {"metrics": about["metrics"], "lost": folder.lost(), "phases": []}
    base = about["time_zero"]["clock_monotonic_ns"]
    columns = [column["title"] for column in about["metrics"]["columns"]]
    for number, window in enumerate(spans, 1):
        for phase, span in window.items():
            found, count = means(rows, *middle(span, base), columns)
            report.data[name]["phases"].append({"window": number, "phase": phase, "samples": count, "means": found})
            wrong = judge_phase(phase, found) if count or most_lost < 0.5 else None
            text = ", ".join(f"{column} {value:.1f}" for column, value in found.items() if value is not None)
            report.check(f"{name}: window {number}, {phase}", wrong is None, wrong or f"{count} samples: {text}")
    lost = folder.lost().get("metric_samples", 0)
    total = lost + about["metrics"]["samples"]
    report.check(f"{name}: samples lost, {most_lost:.0%} at most", total and lost <= most_lost * total,
                 f"{lost} of {total}{loss_reasons(about['metrics'])}")
    beyond = [row for row in rows if any(float(row[title] or 0) > 101 for title in row if title.endswith("(%)"))]
    report.check(f"{name}: no sample that contradicts itself", not beyond, f"{len(beyond)}: {beyond[:1]}")
    # Except for the last decode before sampling stops, at most once per window: no sample follows it.
    torn = about["metrics"]["lost"]["incomplete"] - about["metrics"]["decode"]["emptied"]
    report.check(f"{name}: a sample left out for each time that the image was emptied",
                 -len(about["windows"]) <= torn <= 1 or lost > 0.02 * total, torn)
    cost = about["metrics"]
    report.check(f"{name}: the profiler's own share is told", cost["decode_cpu_ns"] > 0,
                 f"start {cost['start_ns'] / 1e6:.0f} ms, stop {cost['stop_ns'] / 1e6:.0f} ms in all; {decoding(cost, total)}")
    report.check(f"{name}: times of the first sample", "first_sample" in cost, first_times(cost))


def check_timing(options, report):
    """Sample times and kernel records on one clock: while an SM is busy, a kernel runs."""
    name = "one clock"
    result, folder = profile(options, name, ["phases", "1", "0.1"], trace="csv")
    if not report.check(f"{name}: program ends well", result.rc == 0 and folder is not None, result.why()):
        return
    kernels = sorted((int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"]))
                     for row in folder.rows("cuda_gpu_trace.csv") if row["GrdX"] != "")
    if not kernels:
        report.check(f"{name}: kernel records", False, "none")
        return
    agree = off = 0
    at = 0
    for row in sorted(folder.rows(TABLE), key=lambda row: int(row["Start (ns)"])):
        start, end = int(row["Start (ns)"]), int(row["End (ns)"])
        while at < len(kernels) and kernels[at][1] <= start:
            at += 1
        covered = sum(max(0, min(end, over) - max(start, begin)) for begin, over in kernels[at:at + 20]) / (end - start)
        active = float(row["SM Active (%)"] or 0) / 100
        # Only in clear cases: no kernel at all, or nothing but kernels.
        if covered in (0, 1):
            agree += (active > 0.5) == (covered == 1)
            off += (active > 0.5) != (covered == 1)
    report.check(f"{name}: samples are busy where kernels run, and nowhere else", agree > 100 and off <= 0.02 * (agree + off),
                 f"{agree} agree, {off} do not")


def check_exit(options, report):
    result, folder = profile(options, "exit inside a window", ["exit"])
    report.check("a program that ends inside a window ends well", result.rc == 0 and not result.timed_out, result.why())
    report.check("… and its samples are there", folder is not None and len(folder.rows(TABLE)) > 0,
                 len(folder.rows(TABLE)) if folder else "no folder")


def check_own(options, report):
    names = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed,sm__nonsense.avg"
    result, folder = profile(options, "unknown metric", ["exit"], metrics=names)
    lines = [line for line in result.err.splitlines() if "no hardware metrics" in line]
    named = len(lines) == 1 and "sm__nonsense.avg" in lines[0]
    report.check("an unknown metric is one line that names it", result.rc == 0 and named,
                 " | ".join(lines))
    report.check("… and the rest works", folder is not None and folder.kernel_counts() != {}, "")


def check_permission(options, report):
    what = "as another user one line says what is missing"
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        report.skip(what, "not root" if os.geteuid() else "no setpriv")
        return
    prefix = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    probe = run([*prefix, sys.executable, "-c", "import torch; torch.zeros(1, device='cuda')"], timeout=120, cwd="/tmp")
    if probe.rc != 0:
        report.skip(what, "this user can't run PyTorch: " + probe.why())
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as work:
        os.chmod(work, 0o777)  # the tests' own folder may be in one that only its owner may enter
        result, folder = profile(argparse.Namespace(**{**vars(options), "work": work}), "permission", ["exit"], prefix=prefix)
        judge_permission(report, what, result, folder)


def judge_permission(report, what, result, folder):
    lines = [line for line in result.err.splitlines() if "no hardware metrics" in line]
    samples = len(folder.rows(TABLE)) if folder else 0
    if samples and not lines:
        report.skip(what, "here everybody may read the counters")
        return
    report.check(what, result.rc == 0 and len(lines) == 1 and "NVreg_RestrictProfilingToAdminUsers=0" in lines[0]
                 and "SYS_ADMIN" in lines[0], " | ".join(lines) or result.why())
    report.check("… and everything else works", folder is not None and folder.kernel_counts() != {}, "")


class Nvml:
    """NVML's readings of device 0 while something runs; none if NVML is unavailable."""

    GRAPHICS_SM, MEMORY = 1, 2

    def __init__(self):
        self.readings, self.device, self.stops = [], None, threading.Event()
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            device = ctypes.c_void_p()
            if self.library.nvmlInit_v2() == 0 and self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0:
                self.device = device
        except (OSError, AttributeError):
            pass

    def number(self, name, *arguments):
        value = ctypes.c_uint()
        function = getattr(self.library, name, None) if self.device else None
        return value.value if function and function(self.device, *arguments, ctypes.byref(value)) == 0 else None

    def bandwidth(self):
        """The memory's peak bandwidth in bytes per second."""
        mhz = self.number("nvmlDeviceGetMaxClockInfo", self.MEMORY)
        width = self.number("nvmlDeviceGetMemoryBusWidth")
        return 2 * mhz * 1e6 * width / 8 if mhz and width else None

    def __enter__(self):
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        return self

    def read(self):
        while not self.stops.wait(0.01):
            mhz = self.number("nvmlDeviceGetClockInfo", self.GRAPHICS_SM)
            if mhz:
                self.readings.append((time.monotonic_ns(), mhz))

    def __exit__(self, *unused):
        self.stops.set()
        self.thread.join()

    def between(self, begin, end):
        """The mean clock, in MHz."""
        found = [mhz for at, mhz in self.readings if begin <= at <= end]
        return statistics.fmean(found) if len(found) >= 5 else None


def check_clock(options, report):
    """The same light work before, during and after a window, with metrics and without."""
    found = {}
    for metrics in ("auto", None):
        with Nvml() as nvml:
            result, folder = profile(options, f"clock {metrics}", ["clock"], metrics=metrics)
        name = f"clock, metrics {metrics or 'off'}"
        if not report.check(f"{name}: program ends well", result.rc == 0 and folder is not None, result.why()):
            return
        spans = json.loads(result.out.strip().splitlines()[-1])
        if metrics:
            report.check("clock: samples were taken in the window", len(folder.rows(TABLE)) > 1000, len(folder.rows(TABLE)))
        found[metrics or "off"] = {phase: nvml.between(*middle(span, 0)) for phase, span in spans.items()}
    report.data["clock"] = found
    changes = clock_changes(found["auto"])
    if changes is None:
        report.skip("the SM clock before, during and after sampling", f"NVML does not tell: {found}")
        return
    text = "; ".join(f"metrics {name}: " + ", ".join(f"{phase} {mhz:.0f} MHz" for phase, mhz in phases.items() if mhz)
                     for name, phases in found.items())
    report.check(f"sampling leaves the SM clock as it is, to {MOST_CLOCK_CHANGE:.0%}, and so it is after it",
                 max(map(abs, changes)) <= MOST_CLOCK_CHANGE, text)


def check_values(options, report):
    """Kernels whose work is known; then all kernels against ncu."""
    with Nvml() as nvml:
        result, folder = profile(options, "values", ["kernels", "0.6"])
    if not report.check("values: program ends well, one output folder", result.rc == 0 and folder is not None, result.why()):
        return
    told = json.loads(result.out.strip().splitlines()[-1])
    about = folder.run_json()
    base = about["time_zero"]["clock_monotonic_ns"]
    rows = folder.rows(TABLE)
    columns = [column["title"] for column in about["metrics"]["columns"]]
    values = report.data["values"] = {}
    for name, kind in told["kinds"].items():
        begin, end = kind["span"]
        found, count = means(rows, *middle(kind["span"], base), columns)
        expected = expectations(kind, (end - begin) / 1e9, told, nvml.between(begin, end), nvml.bandwidth())
        values[name] = {"means": found, "samples": count, "expected": expected, "mhz": nvml.between(begin, end)}
        wrong = differences(found, expected)
        active = found["SM Active (%)"] or 0
        fewest = 0.5 * (end - begin) / about["metrics"]["interval_ns"]
        if not report.check(f"values: {name} has samples, and the SMs were active", count > fewest and active > 5,
                            f"{count} samples, {active:.1f} %"):
            continue
        if expected:
            report.check(f"values: {name}", not wrong, "; ".join(wrong) or ", ".join(f"{c} {found[c]:.2f}" for c in expected))
        else:
            report.skip(f"values: {name}", "nothing is known of its work on this device")
    resident = values["resident"]["means"]
    used = [resident.get(column) for column in ("L2 (%)", "DRAM Read (%)", "DRAM Write (%)")]
    report.check("values: what stays in the L2 cache uses it, and not the memory",
                 None not in used and used[0] > 2 and used[0] > 3 * (used[1] + used[2]), used)
    kernel_rows = folder.rows("kernel_metrics.csv")
    wrong, looked = judge_occupancy(kernel_rows)
    report.check("values: no kernel has more warps than its launch allows", looked >= 5 and not wrong,
                 "; ".join(wrong) or f"{looked} kernels")
    check_warps(options, report)
    check_ncu(options, report, kernel_rows, told.get("l2", 0))


def check_warps(options, report):
    """Achieved occupancy by every counter of warps: comparison with ncu shows which one is right."""
    kinds = ["gemm_fp32", "elementwise", "reduction", "softmax"]
    names = [ACTIVE, *(name + PERCENT for name in WARPS)]
    result, folder = profile(options, "warps", ["kernels", "0.25", ",".join(kinds)], metrics=",".join(names))
    rows = folder.rows(TABLE) if folder else []
    if result.rc != 0 or not rows:
        report.skip("values: counters of warps", result.why())
        return
    told, base = json.loads(result.out.strip().splitlines()[-1]), folder.run_json()["time_zero"]["clock_monotonic_ns"]
    found = {}
    for kind, about in told["kinds"].items():
        mean, _ = means(rows, *middle(about["span"], base), names)
        if mean[ACTIVE]:
            found[kind] = {name: 100 * (mean[name + PERCENT] or 0) / mean[ACTIVE] for name in WARPS}
    report.data["warps"] = found
    text = "; ".join(f"{kind} " + ", ".join(f"{value:.1f}" for value in by.values()) for kind, by in found.items())
    used = {kind: by[WARPS[0]] for kind, by in found.items()}
    report.check("values: by the SM's counter of warps large grids fill most of what their launch allows",
                 all(50 < used.get(kind, 0) <= 100 + POINTS for kind in kinds[1:]), ", ".join(WARPS) + ": " + text)


def check_ncu(options, report, rows, l2_bytes):
    what = f"values: as ncu has them, within {POINTS} points or {PART:.0%}"
    try:
        ncu = tensor_truth.find_ncu(options.ncu)
    except tensor_truth.Skip as reason:
        report.skip(what, reason)
        return
    log = os.path.join(options.work, "ncu.csv")
    if os.path.exists(log):
        os.remove(log)
    command = [ncu, "--csv", "--page", "raw", "--log-file", log, "--profile-from-start", "off", "--clock-control", "none",
               "--cache-control", "none", "--print-units", "base", "--print-kernel-base", "mangled",
               "--metrics", ",".join([*NCU.values(), *MOVED]), sys.executable, PROGRAM, "kernels", "0"]
    result = run(command, clean_environment(), timeout=120, cwd=options.work, log=os.path.join(options.work, "ncu.log"))
    text = ""
    if os.path.exists(log):
        with open(log, errors="replace") as file:
            text = file.read()
    reason = tensor_truth.why_not(text) or tensor_truth.why_not(result.out)
    truth = parse_ncu(text)
    if not truth and reason and "ERR_NVGPUCTRPERM" in reason:
        report.skip(what, reason)
        return
    compared, wrong, table = compare_ncu(rows, truth, l2_bytes)
    report.data["ncu"] = {"compared": compared, "wrong": wrong, "kernels": len(truth), "table": table}
    with open(os.path.join(options.work, "ncu.md"), "w") as file:
        file.write("Ours / ncu's\n\n" + "\n".join(table) + "\n")
    report.check(what, not wrong and len(compared) >= 5, "; ".join(wrong) or f"{dict(compared)} {reason or ''}")


def measured(rows, columns):
    """{(name, grid, block): {column: (value, its error)}} of the rows of kernel_metrics.csv that have values; "mean" is the mean duration,
    in ns."""
    found = {}
    for row in rows:
        key = row["Name"], *(int(row[column]) for column in ("GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ"))
        values = {column: (float(row[column]), float(row["± " + column])) for column in columns if row.get(column, "") != ""}
        if values:
            found[key] = {**values, "mean": (float(row["Total Time (ns)"]) / int(row["Instances"]), 0)}
    return found


def compare_pooled(alone, mixed):
    """([(key, column, alone, mixed, error)], how many are within the error) for kernels in both: those that ran alternating with others,
    within samples, against the same ones running alone for many samples. Kernels with a different duration in the two runs did different
    work, and are skipped."""
    pairs = []
    for key, values in mixed.items():
        if key not in alone or abs(values["mean"][0] / alone[key]["mean"][0] - 1) > SAME_TIME:
            continue
        for column, (value, error) in values.items():
            if column in alone[key] and column != "mean":
                truth, own = alone[key][column]
                pairs.append((key, column, truth, value, math.hypot(error, own)))
    return pairs, sum(abs(value - truth) <= error for _, _, truth, value, error in pairs)


def check_pooled(options, report):
    """Kernels shorter than a sample: each one's values in a random order, against its values when it runs repeatedly, with samples of its
    own."""
    found, told = {}, {}
    for how in ("alone", "mixed"):
        result, folder = profile(options, f"pooled {how}", ["pooled", how])
        if not report.check(f"pooled, {how}: program ends well", result.rc == 0 and folder is not None, result.why()):
            return
        told[how] = json.loads(result.out.strip().splitlines()[-1])
        found[how] = measured(folder.rows("kernel_metrics.csv"), POOLED)
    pairs, within = compare_pooled(found["alone"], found["mixed"])
    kernels = {key for key, *_ in pairs}
    report.data["pooled"] = {"pairs": pairs, "told": told}
    with open(os.path.join(options.work, "pooled.md"), "w", encoding="utf-8") as file:
        file.write("| kernel | metric | alone | mixed | ± of both | apart |\n|---|---|---|---|---|---|\n")
        for key, column, truth, value, error in pairs:
            file.write(f"| {normalise(key[0])[:48]} {key[1:4]} | {column} | {truth:.2f} | {value:.2f} | {error:.2f} | "
                       f"{value - truth:+.2f} |\n")
    both = found["alone"].keys() & found["mixed"].keys()
    report.check("pooled: most kernels have values in both runs", len(both) >= told["mixed"]["kinds"] - 1,
                 f"{len(both)} of {told['mixed']['kinds']}")
    report.check("pooled: some of them took the same time in both", len(kernels) >= 3,
                 f"{len(kernels)} of {told['mixed']['kinds']}; {len(pairs)} values")
    apart = [abs(value - truth) for _, column, truth, value, _ in pairs if column.endswith("(%)")]
    worst = sorted(pairs, key=lambda pair: abs(pair[3] - pair[2]) - pair[4])[-3:]
    report.check("pooled: nine of ten values lie within their error", pairs and within >= 0.9 * len(pairs),
                 f"{within} of {len(pairs)}; apart by {statistics.fmean(apart or [0]):.2f} points in the mean, {max(apart or [0]):.2f} at most; "
                 + "; ".join(f"{normalise(key[0])[:30]} {column} {truth:.2f} {value:.2f} ± {error:.2f}"
                             for key, column, truth, value, error in worst))


def check_devices(options, report):
    """Two devices in one process, with one thread that decodes for both."""
    what = "devices: samples of two devices in one process"
    count = run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"], timeout=120, cwd=options.work).out.split()
    if not count or int(count[-1]) < 2:
        report.skip(what, "one device")
        return
    result, folder = profile(options, "devices", ["devices"])
    if not report.check("devices: program ends well", result.rc == 0 and folder is not None, result.why()):
        return
    spans, about = json.loads(result.out.strip().splitlines()[-1]), folder.run_json()
    rows, base = folder.rows(TABLE), about["time_zero"]["clock_monotonic_ns"]
    columns = ["SM Active (%)", "Tensor Pipe (%)"]
    found = {(phase, device): means([row for row in rows if row["Device"] == str(device)], *middle(span, base), columns)
             for phase, span in spans.items() for device in range(2)}
    text = "; ".join(f"{phase}, device {device}: {values} of {number}" for (phase, device), (values, number) in found.items())
    report.data["devices"] = {"metrics": about["metrics"], "found": text}
    busy = {key: (values["SM Active (%)"] or 0) for key, (values, _) in found.items()}
    report.check(what, all(number > 400 for _, number in found.values()) and busy["second", 0] < 1
                 and min(busy["both", 0], busy["both", 1], busy["second", 1]) > 80, text)
    lost, given = folder.lost().get("metric_samples", 0), about["metrics"]["samples"]
    report.check("devices: samples lost, 1% at most", lost <= 0.01 * (lost + given),
                 f"{lost} of {lost + given}{loss_reasons(about['metrics'])}; {decoding(about['metrics'], lost + given)}")


def check_threads(options, report, number):
    found = {}
    for metrics in ("auto", None):
        result, folder = profile(options, f"threads {number} {metrics}", ["threads", str(number)], metrics=metrics)
        name = f"{number} launching threads, metrics {metrics or 'off'}"
        if not report.check(f"{name}: program ends well", result.rc == 0 and folder is not None, result.why()):
            continue
        told = json.loads(result.out.strip().splitlines()[-1])
        found[metrics or "off"] = told
        wrong = judge_threads(told, number)
        edges = [round(max(edge.values()) / 1e6) for edge in told["edges"]]
        report.check(f"{name}: windows open and close", not wrong,
                     "; ".join(wrong) or f"edges {edges} ms, longest launch {max(told['longest_ns']) / 1e6:.0f} ms")
        if metrics:
            begun = {row["Window"] for row in folder.rows("window_sum.csv") if row.get("SM Active (%)", "") != ""}
            report.check(f"{name}: every window has samples", len(begun) == len(told["edges"]), f"{len(begun)} windows have")
    report.data[f"threads {number}"] = found


def median_interval(values, inside=0.95):
    """The order statistics between which the median lies with this probability, for any distribution; the whole range if there are too few
    values."""
    values, number = sorted(values), len(values)
    below, tail = -1, 0.0
    while below + 1 < number // 2:
        tail += math.comb(number, below + 1) / 2 ** number
        if 2 * tail > 1 - inside:
            break
        below += 1
    return values[max(below, 0)], values[number - 1 - max(below, 0)]


def cost_of(blocks, warm=0.2):
    """([ratio of step times with metrics to those without, for each block with metrics and the blocks without before and after it], median
    step in ns by kind) from [(kind, [ns])], with alternating kinds; the first part of a block's steps is slower."""
    medians = [(kind, statistics.median(times[int(warm * len(times)):])) for kind, times in blocks]
    ratios = []
    for at in range(1, len(medians) - 1):
        if medians[at][0] == "auto":
            ratios.append(2 * medians[at][1] / (medians[at - 1][1] + medians[at + 1][1]))
    by_kind = {kind: statistics.median(one for found, one in medians if found == kind) for kind in ("auto", "off")}
    return ratios, by_kind


def take_turns(options, model):
    """Two processes, one with metrics, open windows in turn: [(kind, [ns])] and {kind: memory}, with "off" first and last; a text if one of
    them fails."""
    environments = {kind: {"metrics": "auto", "metrics_timeline": "1"} if kind == "auto" else {} for kind in ("off", "auto")}
    with contextlib.ExitStack() as stack:
        started = {}
        for kind, given in environments.items():
            out = os.path.join(options.work, f"cost_{model}_{kind}.out")
            shutil.rmtree(out, ignore_errors=True)
            log = stack.enter_context(open(os.path.join(options.work, f"cost_{model}_{kind}.log"), "w", encoding="utf-8"))
            process = subprocess.Popen([sys.executable, PROGRAM, "turns", str(BLOCK_SECONDS), *model.split(":")], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=log, text=True, cwd=options.work,
                                       env=profiled_environment(options.library, out, "api", summary="off", **given))
            started[kind] = process
            # If a process hangs, this ends the reading below.
            timer = threading.Timer(240, process.kill)
            timer.start()
            stack.callback(timer.cancel)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            if not process.stdout.readline():
                return [], {}, f"{kind}: ended before its first turn"
        blocks, memory = [], {}
        for turn in range(2 * max(options.rounds, 1) + 1):
            kind = ("off", "auto")[turn % 2]
            process = started[kind]
            try:
                process.stdin.write("turn\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass
            line = process.stdout.readline()
            if not line:
                return [], {}, f"{kind}: ended in turn {turn}"
            told = json.loads(line)
            blocks.append((kind, told["times"]))
            memory.setdefault(kind, told["memory"])
        for kind, process in started.items():
            process.communicate()
            if process.returncode != 0:
                return [], {}, f"{kind}: ends with {process.returncode}"
    return blocks, memory, None


def check_cost(options, report, model):
    """Ratio of step times in windows with metrics to those without, from two processes that take turns."""
    blocks, memory, wrong = take_turns(options, model)
    if not report.check(f"{model}: both programs end well", wrong is None, wrong or ""):
        return
    ratios, medians = cost_of(blocks)
    report.data[f"cost {model}"] = {"ratios": ratios, "step_ns": medians, "blocks": blocks, "memory": memory}
    cost = statistics.median(ratios)
    low, high = median_interval(ratios)
    report.check(f"{model}: a step takes at most {MOST_COST} of what it takes without metrics", cost <= MOST_COST,
                 f"{cost:.4f}, 95 % in {low:.4f} … {high:.4f}, all in {min(ratios):.4f} … {max(ratios):.4f}, {len(ratios)} rounds; a step "
                 + ", ".join(f"{kind} {time / 1e6:.3f} ms" for kind, time in medians.items()))
    host, device = (memory["auto"][kind] - memory["off"][kind] for kind in ("resident", "device_own"))
    report.check(f"{model}: memory within what the docs say", host <= MOST_RESIDENT and device <= MOST_DEVICE,
                 f"{host / 1e6:.0f} MB on the host, {device / 1e6:.0f} MB on the device more than without; by mapping, MB: "
                 + more_of(memory["auto"]["mapped"], memory["off"]["mapped"]))


def more_of(mapped, than):
    """The mappings that have grown most, in MB."""
    files = collections.Counter(mapped)
    files.subtract(than)
    return ", ".join(f"{name} {more / 1e6:.1f}" for name, more in files.most_common(8) if more > 1e6)


def check_memory(options, report):
    """Host memory that sampling takes: with one metric, whose samples are small, nearly all is the vendor's; with all metrics."""
    found, own = {}, {}
    for name, metrics in (("off", None), ("one", "sm__cycles_active" + PERCENT), ("auto", "auto")):
        result, folder = profile(options, f"memory {name}", ["memory"], metrics=metrics)
        if not report.check(f"memory, {name}: program ends well", result.rc == 0 and folder is not None, result.why()):
            return
        found[name] = json.loads(result.out.strip().splitlines()[-1])
        if metrics:
            decode = folder.run_json()["metrics"]["decode"]
            own[name] = decode["buffer_bytes"] + decode["image_bytes"]
    report.data["memory"] = {"mapped": found, "own": own}
    grown = {name: sum(found[name].values()) - sum(found["off"].values()) for name in own}
    report.check("memory: within what the docs say",
                 own["auto"] + MOST_HELD <= MOST_OWN and grown["auto"] - grown["one"] <= MOST_OWN and grown["auto"] <= MOST_RESIDENT,
                 "; ".join(f"{name}: {grown[name] / 1e6:.1f} MB more, {own[name] / 1e6:.1f} of them CUPTI's image and the hardware's "
                           f"buffer; by mapping {more_of(found[name], found['off'])}" for name in own))


PARTS = ("phases", "values", "pooled", "devices", "clock", "threads", "ends", "memory", "cost")


def arguments(parser):
    parser.add_argument("--rounds", type=int, default=12, help="of windows with metrics, each between two without, for the cost")
    parser.add_argument("--models", default="resnet50,transformer,resnet50:128,transformer:64",
                        help="whose steps are timed, with a batch size or their own; empty for none")
    parser.add_argument("--parts", default=",".join(PARTS), help="what runs")
    parser.add_argument("--ncu", default=None, help="Nsight Compute's program (default: the one that is installed)")


def test(options, report):
    parts = options.parts.split(",")
    unknown = set(parts) - set(PARTS)
    if not report.check("the parts are known", not unknown, ", ".join(sorted(unknown or parts))):
        return
    result, _ = profile(options, "probe", ["exit"])
    reason = refusal(result.err)
    if reason:
        report.check("where nothing can be sampled, one line says why", result.rc == 0, reason)
        report.skip("everything else", reason)
        return
    if "phases" in parts:
        report.guarded("phases", check_phases, options, report, "three windows, detached in between", 3, 1.5)
        report.guarded("close", check_phases, options, report, "four windows in a row", 4, 0.05)
        # Faster than one thread can decode: losses are reported, and some samples remain.
        report.guarded("fine", check_phases, options, report, "every 20 us", 1, 0.1, most_lost=0.99, metrics_interval="20us")
        # At the limit of one thread's decoding: losses are from none to 77 %, depending on the machine.
        report.guarded("ten thousand a second", check_phases, options, report, "every 100 us", 1, 0.1, most_lost=0.9,
                       metrics_interval="100us")
        # Decoding takes 137 to 185 of these 200 us on an H100.
        report.guarded("five thousand a second", check_phases, options, report, "every 200 us", 1, 0.1, most_lost=0.2, metrics_interval="200us")
        report.guarded("coarse", check_phases, options, report, "every ms", 1, 0.1, metrics_interval="1ms")
        report.guarded("timing", check_timing, options, report)
    if "values" in parts:
        report.guarded("values", check_values, options, report)
    if "pooled" in parts:
        report.guarded("pooled", check_pooled, options, report)
    if "devices" in parts:
        report.guarded("devices", check_devices, options, report)
    if "clock" in parts:
        report.guarded("clock", check_clock, options, report)
    if "threads" in parts:
        for number in (8, 16):
            report.guarded(f"threads {number}", check_threads, options, report, number)
    if "ends" in parts:
        report.guarded("exit", check_exit, options, report)
        report.guarded("own", check_own, options, report)
        report.guarded("permission", check_permission, options, report)
    if "memory" in parts:
        report.guarded("memory", check_memory, options, report)
    if "cost" in parts:
        for model in filter(None, options.models.split(",")):
            report.guarded(f"cost {model}", check_cost, options, report, model)


if __name__ == "__main__":
    main("metrics_collection", test, modules=("torch",), arguments=arguments)
