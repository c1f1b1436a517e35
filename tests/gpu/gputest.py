# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""What the GPU tests share: starting a program under the preload, reading its output folder, comparing, reporting.

Pure Python without CUDA: the test's own process never touches the device.
"""

import argparse
import csv
import ctypes
import glob
import json
import os
import re
import statistics
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import promises  # noqa: E402

SKIPPED = 77  # ctest's SKIP_RETURN_CODE

KERN_SUM = "cuda_gpu_kern_sum.csv"
KERN_GB_SUM = "cuda_gpu_kern_gb_sum.csv"
API_SUM = "cuda_api_sum.csv"
MEM_TIME_SUM = "cuda_gpu_mem_time_sum.csv"
MEM_SIZE_SUM = "cuda_gpu_mem_size_sum.csv"
GPU_TRACE = "cuda_gpu_trace.csv"
API_TRACE = "cuda_api_trace.csv"

# Kineto's short copy names -> Nsight Systems' operation names.
COPY_KINDS = {
    "HtoD": "[CUDA memcpy Host-to-Device]",
    "DtoH": "[CUDA memcpy Device-to-Host]",
    "DtoD": "[CUDA memcpy Device-to-Device]",
    "HtoH": "[CUDA memcpy Host-to-Host]",
    "PtoP": "[CUDA memcpy Peer-to-Peer]",
    "HtoA": "[CUDA memcpy Host-to-Array]",
    "AtoH": "[CUDA memcpy Array-to-Host]",
    "AtoA": "[CUDA memcpy Array-to-Array]",
    "AtoD": "[CUDA memcpy Array-to-Device]",
    "DtoA": "[CUDA memcpy Device-to-Array]",
}
MEMSET = "[CUDA memset]"


# --- names -----------------------------------------------------------------------------------------------------------

def _cxa_demangle():
    for soname in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            function = ctypes.CDLL(soname).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        return function
    return None


_DEMANGLE = _cxa_demangle()
_FREE = ctypes.CDLL(None).free
_FREE.argtypes = [ctypes.c_void_p]


def demangle(name):
    if _DEMANGLE is None or not name.startswith("_Z"):
        return name
    status = ctypes.c_int()
    text = _DEMANGLE(name.encode(), None, None, ctypes.byref(status))
    if not text or status.value != 0:
        return name
    result = ctypes.cast(text, ctypes.c_char_p).value.decode(errors="replace")
    _FREE(text)
    return result


def normalise(name):
    """A kernel name without white space: demanglers differ in `> >`. torch.profiler leaves names of more than 1,024
    characters mangled, so those are demangled here."""
    return re.sub(r"\s+", "", demangle(name))


# --- the output folder -----------------------------------------------------------------------------------------------

def number(text):
    try:
        return int(text)
    except ValueError:
        return float(text)


def read_csv(path):
    """The rows as dicts, [] if the file does not exist (a table without rows may be omitted)."""
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class Folder:
    """One output folder."""

    def __init__(self, path):
        self.path = path

    def exists(self):
        return os.path.isdir(self.path)

    def rows(self, table):
        return read_csv(os.path.join(self.path, table))

    def run_json(self):
        with open(os.path.join(self.path, "run.json")) as file:
            return json.load(file)

    def lost(self):
        """Losses reported in run.json: {kind: number}, empty if there are none."""
        return {kind: number for kind, number in self.run_json()["lost"].items() if number}

    def files(self):
        return sorted(os.listdir(self.path)) if self.exists() else []

    def kernel_counts(self):
        counts = {}
        for row in self.rows(KERN_SUM):
            name = normalise(row["Name"])
            counts[name] = counts.get(name, 0) + int(row["Instances"])
        return counts

    def operation_counts(self):
        counts = {}
        for row in self.rows(MEM_TIME_SUM):
            counts[row["Operation"]] = counts.get(row["Operation"], 0) + int(row["Count"])
        return counts

    def trace(self):
        """(kernels, operations): {name: [durations in ns]}, from the raw records."""
        kernels, operations = {}, {}
        for row in self.rows(GPU_TRACE):
            is_kernel = row["GrdX"] != ""
            target = kernels if is_kernel else operations
            name = normalise(row["Name"]) if is_kernel else row["Name"]
            target.setdefault(name, []).append(int(row["Duration (ns)"]))
        return kernels, operations


def folders(prefix):
    """Every folder that INJECT_OUT=prefix can have created: prefix and prefix.N."""
    return sorted(p for p in [prefix] + glob.glob(prefix + ".*") if os.path.isdir(p))


def subtract(now, before):
    """Counts of one window, as the difference of two cumulative snapshots."""
    out = {name: count - before.get(name, 0) for name, count in now.items()}
    return {name: count for name, count in out.items() if count != 0}


# --- comparison ------------------------------------------------------------------------------------------------------

def count_differences(ours, theirs):
    """[(name, ours, theirs)] where the counts differ."""
    return [(name, ours.get(name, 0), theirs.get(name, 0)) for name in sorted(set(ours) | set(theirs))
            if ours.get(name, 0) != theirs.get(name, 0)]


def spread_of_medians(windows):
    """{name: least to greatest median} over windows of {name: [durations]} of one profiler."""
    medians = {}
    for window in windows:
        for name, durations in window.items():
            medians.setdefault(name, []).append(statistics.median(durations))
    return {name: max(values) - min(values) for name, values in medians.items()}


def compare_medians(ours, theirs, tolerance=0.02, ticks=64, spread=None):
    """Kernel time, per name: {name: [durations]} on both sides.

    A name agrees if its medians differ by at most `tolerance`, or by at most `ticks` ns, since the device's time stamps
    advance in steps of 32 ns and a difference contains two of them; or, with `spread` ({name: ns}), by at most the
    difference between their side's own windows: clocks change between windows, which limits any comparison.
    `total_ratio` compares the sums of the medians, each weighted with its count."""
    rows, total_ours, total_theirs = [], 0.0, 0.0
    for name in sorted(set(ours) & set(theirs)):
        mine, other = statistics.median(ours[name]), statistics.median(theirs[name])
        weight = len(theirs[name])
        total_ours += mine * weight
        total_theirs += other * weight
        ratio = mine / other if other else float("inf")
        rows.append({"name": name, "count": weight, "ours_ns": mine, "theirs_ns": other, "ratio": ratio,
                     "within": abs(mine - other) <= max(tolerance * other, ticks),
                     "agrees": abs(mine - other) <= max(tolerance * other, ticks, (spread or {}).get(name, 0))})
    rows.sort(key=lambda row: abs(row["ratio"] - 1), reverse=True)
    return {"rows": rows, "beyond": [row for row in rows if not row["within"]],
            "outside": [row for row in rows if not row["agrees"]],
            "median_ratio": statistics.median(row["ratio"] for row in rows) if rows else float("nan"),
            "total_ratio": total_ours / total_theirs if total_theirs else float("nan")}


EXACT_SAMPLES = 1024  # medians are exact up to this number, and within 1.6 % beyond


def _check_row(row, values, count_column):
    """Differences between a summary row and the raw values that it should sum."""
    wrong = []

    def expect(column, value, slack):
        if abs(float(row[column]) - value) > slack:
            wrong.append(f"{column} {row[column]} != {value}")

    # Averages are printed with one decimal.
    rounding = 0.0501
    median = statistics.median(values)
    expect(count_column, len(values), 0)
    expect("Total Time (ns)", sum(values), 0)
    expect("Min (ns)", min(values), 0)
    expect("Max (ns)", max(values), 0)
    expect("Avg (ns)", sum(values) / len(values), rounding)
    expect("Med (ns)", median, rounding if len(values) <= EXACT_SAMPLES else 0.016 * median)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    expect("StdDev (ns)", deviation, rounding + 1e-9 * deviation)
    return wrong


def check_sums(folder):
    """Every summary table against the raw records of cuda_gpu_trace.csv. Returns (tables compared, differences)."""
    trace = folder.rows(GPU_TRACE)
    kernels, shapes, operations, sizes = {}, {}, {}, {}
    for row in trace:
        duration = int(row["Duration (ns)"])
        if row["GrdX"] != "":
            kernels.setdefault(row["Name"], []).append(duration)
            grid = tuple(int(row[c]) for c in ("GrdX", "GrdY", "GrdZ"))
            block = tuple(int(row[c]) for c in ("BlkX", "BlkY", "BlkZ"))
            shapes.setdefault((row["Name"], grid, block), []).append(duration)
        else:
            operations.setdefault(row["Name"], []).append(duration)
            sizes.setdefault(row["Name"], []).append(float(row["Bytes (MB)"]))
    wrong, compared = [], 0

    def compare(table, raw, key, count_column):
        nonlocal compared
        rows = folder.rows(table)
        compared += len(rows)
        seen = set()
        for row in rows:
            k = key(row)
            seen.add(k)
            if k not in raw:
                wrong.append(f"{table}: {k} is not in the raw records")
                continue
            wrong.extend(f"{table}: {k}: {w}" for w in _check_row(row, raw[k], count_column))
        wrong.extend(f"{table}: {k} is missing" for k in raw if k not in seen)
        total = sum(float(row["Time (%)"]) for row in rows if "Time (%)" in row)
        if rows and "Time (%)" in rows[0] and abs(total - 100) > 0.05 * len(rows) + 0.05:
            wrong.append(f"{table}: percentages sum to {total}")

    def triple(text):
        return tuple(int(part) for part in re.findall(r"\d+", text))

    compare(KERN_SUM, kernels, lambda r: r["Name"], "Instances")
    compare(KERN_GB_SUM, shapes, lambda r: (r["Name"], triple(r["GridXYZ"]), triple(r["BlockXYZ"])), "Instances")
    compare(MEM_TIME_SUM, operations, lambda r: r["Operation"], "Count")
    # A raw record's bytes are rounded to three decimals of a MB, so a sum of n records is off by up to n half units.
    rows = folder.rows(MEM_SIZE_SUM)
    compared += len(rows)
    for row in rows:
        raw = sizes.get(row["Operation"])
        if raw is None:
            wrong.append(f"{MEM_SIZE_SUM}: {row['Operation']} is not in the raw records")
        elif int(row["Count"]) != len(raw):
            wrong.append(f"{MEM_SIZE_SUM}: {row['Operation']}: Count {row['Count']} != {len(raw)}")
        elif abs(float(row["Total (MB)"]) - sum(raw)) > 0.0005 * (len(raw) + 1) + 1e-9:
            wrong.append(f"{MEM_SIZE_SUM}: {row['Operation']}: Total {row['Total (MB)']} != {sum(raw)}")
    # Copies again, split by device and kind of memory.
    copies = {}
    for row in folder.rows("copy_sum.csv"):
        compared += 1
        count, time = copies.get(f"[CUDA memcpy {row['Direction']}]", (0, 0))
        copies[f"[CUDA memcpy {row['Direction']}]"] = count + int(row["Count"]), time + int(row["Total Time (ns)"])
    raw_copies = {name: (len(durations), sum(durations)) for name, durations in operations.items() if name != MEMSET}
    wrong.extend(f"copy_sum.csv: {name}: {copies.get(name)} copies and ns, {raw_copies.get(name)} in the raw records"
                 for name in sorted(copies.keys() | raw_copies.keys()) if copies.get(name) != raw_copies.get(name))
    calls = {}
    for row in folder.rows(API_TRACE):
        calls.setdefault(row["Name"], []).append(int(row["Duration (ns)"]))
    compare(API_SUM, calls, lambda r: r["Name"], "Num Calls")

    # Our own tables split the same kernels in other ways: each must have the same total time and count.
    kernel_time, kernel_count = sum(map(sum, kernels.values())), sum(map(len, kernels.values()))

    def agree(table, time_column, count_column, rows):
        nonlocal compared
        compared += len(rows)
        time, count = sum(int(r[time_column]) for r in rows), sum(int(r[count_column]) for r in rows)
        if (time, count) != (kernel_time, kernel_count):
            wrong.append(f"{table}: {count} kernels of {time} ns, {kernel_count} of {kernel_time} ns in the raw records")

    if trace:
        agree("kernel_detail.csv", "Total Time (ns)", "Instances", folder.rows("kernel_detail.csv"))
        agree("thread_kern_sum.csv", "Total Time (ns)", "Instances", folder.rows("thread_kern_sum.csv"))
        # Kernels that no library call launched are not included; each of the others is in one row, and in the inclusive
        # columns of the outermost call's row.
        calls = folder.rows("library_sum.csv")
        compared += len(calls)
        inside = sum(int(r["Kernels"]) for r in calls), sum(int(r["GPU Time (ns)"]) for r in calls)
        outermost = [r for r in calls if r["Depth"] in ("0", "")]
        nested = (sum(int(r["Kernels incl. Nested"]) for r in outermost),
                  sum(int(r["GPU Time incl. Nested (ns)"]) for r in outermost))
        if inside != nested or inside[0] > kernel_count or inside[1] > kernel_time:
            wrong.append(f"library_sum.csv: {inside} kernels and ns, {nested} by outermost call, {(kernel_count, kernel_time)} in all")
        windows = folder.rows("window_sum.csv")
        agree("window_sum.csv", "Kernel Time (ns)", "Kernels", [r for r in windows if r["Device"] == "all"])
        agree("window_sum.csv by device", "Kernel Time (ns)", "Kernels", [r for r in windows if r["Device"] != "all"])
        for row in windows:
            if float(row["GPU Busy (%)"] or 0) > 100:
                wrong.append(f"window_sum.csv: window {row['Window']}, device {row['Device']}: busy {row['GPU Busy (%)']} %")
        iterations = folder.rows("iteration_sum.csv")
        agree("iteration_sum.csv", "Kernel Time (ns)", "Kernels", [r for r in iterations if r["Device"] == "all"])
        agree("iteration_sum.csv by device", "Kernel Time (ns)", "Kernels", [r for r in iterations if r["Device"] != "all"])
        copies = sum(len(d) for n, d in operations.items() if n != MEMSET)
        listed = sum(int(r["Copies"] or 0) for r in windows if r["Device"] == "all")
        if listed != copies:
            wrong.append(f"window_sum.csv: {listed} copies, {copies} in the raw records")
    return compared, wrong


def check_promises(work, report):
    """Checks every folder that the test left in WORK against the documentation's promises, as `inject check` does."""
    made = sum("run.json" in files for _, _, files in os.walk(work))
    wrong = promises.broken(work, report.may_break)
    report.data["broken_promises"] = wrong
    if made:
        first = "; ".join(f"{folder}: {lines[0]} (of {len(lines)})" for folder, lines in sorted(wrong.items()))
        report.check("inject check finds nothing wrong with the folders", not wrong, first or f"{made} folders")


# --- running ---------------------------------------------------------------------------------------------------------

def find_library(build):
    """libinject.so of a build folder, or the file itself."""
    if os.path.isfile(build):
        return os.path.abspath(build)
    for pattern in ("libinject.so", "libinject/libinject.so", "lib/libinject.so", "lib*/libinject.so", "**/libinject.so"):
        found = sorted(glob.glob(os.path.join(build, pattern), recursive=True))
        if found:
            return os.path.abspath(found[0])
    return None


def clean_environment():
    """This process's environment without anything that would enable a profiler."""
    return {k: v for k, v in os.environ.items()
            if not k.startswith("INJECT_") and k not in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")}


class Run:
    """A finished program: rc, out (its stdout), err (stderr), seconds, timed_out."""

    def __init__(self, rc, out, err, seconds, timed_out):
        self.rc, self.out, self.err, self.seconds, self.timed_out = rc, out, err, seconds, timed_out

    def why(self):
        tail = "; ".join((self.err or self.out).strip().splitlines()[-3:])
        if self.timed_out:
            return f"timed out after {self.seconds:.0f} s: {tail[-300:]}"
        return f"rc {self.rc}: {tail[-300:]}"


def run(argv, environment=None, timeout=120, cwd=None, log=None):
    """Runs argv to its end; its output goes to files, so that a leftover daemon can't hold a pipe open."""
    import tempfile
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd,
                                   start_new_session=True)
        timed_out = False
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            # Our child's own process group, from start_new_session.
            try:
                os.killpg(process.pid, 6)  # SIGABRT: faulthandler then prints the Python stack
                process.wait(5)
            except (subprocess.TimeoutExpired, ProcessLookupError):
                pass
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()
        seconds = time.monotonic() - begin
        out.seek(0)
        err.seek(0)
        result = Run(process.returncode, out.read(), err.read(), seconds, timed_out)
    if log:
        with open(log, "w") as file:
            file.write(f"$ {' '.join(argv)}\n# rc {result.rc}, {result.seconds:.1f} s\n--- stdout\n{result.out}\n--- stderr\n{result.err}\n")
    return result


def profiled_environment(library, out, window="api", **options):
    """The environment of a program under the preload. options: INJECT_ variables without the prefix, lower case."""
    environment = clean_environment()
    environment["LD_PRELOAD"] = library
    environment["INJECT_OUT"] = out
    environment["INJECT_WINDOW"] = window
    environment["PYTHONFAULTHANDLER"] = "1"
    environment["PYTHONUNBUFFERED"] = "1"
    for name, value in options.items():
        environment["INJECT_" + name.upper()] = str(value)
    return environment


def gpu_missing():
    """None if a CUDA device can be used, else the reason. Queried in a process of its own."""
    code = ("import ctypes,sys\n"
            "try: cuda=ctypes.CDLL('libcuda.so.1')\n"
            "except OSError as e: sys.exit('no CUDA driver: '+str(e))\n"
            "n=ctypes.c_int()\n"
            "rc=cuda.cuInit(0)\n"
            "if rc: sys.exit('cuInit returned %d' % rc)\n"
            "rc=cuda.cuDeviceGetCount(ctypes.byref(n))\n"
            "if rc or n.value<1: sys.exit('no CUDA device')\n")
    result = run([sys.executable, "-c", code], clean_environment(), timeout=60)
    return None if result.rc == 0 else (result.err.strip().splitlines() or [f"rc {result.rc}"])[-1]


def module_missing(*modules):
    """None if this python3 can find all modules, else the reason."""
    import importlib.util
    for module in modules:
        if importlib.util.find_spec(module) is None:
            return f"the Python module {module} is not installed"
    return None


class Report:
    """The checks of one test: a table on stdout, all details in OUT/NAME.json, an exit status."""

    def __init__(self, name, out):
        self.name, self.out, self.checks, self.data = name, out, [], {}
        self.may_break = {}  # rules of `inject check` that the test's folders may break, and why

    def check(self, what, passed, detail=""):
        self.checks.append({"check": what, "passed": bool(passed), "detail": str(detail)})
        return bool(passed)

    def skip(self, what, reason):
        self.checks.append({"check": what, "passed": None, "detail": str(reason)})

    def guarded(self, what, function, *args, **named):
        """Runs a part of the test; an exception in it fails only this part."""
        try:
            return function(*args, **named)
        except Exception as error:  # the other parts still give results
            import traceback
            self.data.setdefault("tracebacks", {})[what] = traceback.format_exc()
            self.check(what, False, f"{type(error).__name__}: {error}")
            return None

    def finish(self):
        width = max([len(c["check"]) for c in self.checks] + [5])
        print(f"== {self.name}")
        for c in self.checks:
            verdict = {True: "PASS", False: "FAIL", None: "skip"}[c["passed"]]
            print(f"{verdict}  {c['check']:<{width}}  {c['detail'][:220]}")
        failed = sum(c["passed"] is False for c in self.checks)
        passed = sum(c["passed"] is True for c in self.checks)
        skipped = sum(c["passed"] is None for c in self.checks)
        print(f"{self.name}: {passed} passed, {failed} failed, {skipped} skipped", flush=True)
        with open(os.path.join(self.out, self.name + ".json"), "w") as file:
            json.dump({"name": self.name, "checks": self.checks, "data": self.data}, file, indent=1, default=str)
        return 1 if failed or not passed else 0


def main(name, test, modules=(), arguments=None):
    """Entry point of a test: test(options, report). Skips, with the reason, if there is no GPU."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--build", default=os.environ.get("INJECT_BUILD", "build"), help="build folder, or libinject.so itself")
    parser.add_argument("--out", default=os.environ.get("OUT"), help="folder for details (default: $OUT, else ./gpu-out)")
    if arguments:
        arguments(parser)
    options = parser.parse_args()
    reason = gpu_missing() or module_missing(*modules)
    if reason:
        print(f"{name}: SKIPPED: {reason}")
        sys.exit(SKIPPED)
    options.library = find_library(options.build)
    if not options.library:
        print(f"{name}: no libinject.so under {options.build}")
        sys.exit(1)
    options.out = os.path.abspath(options.out or "gpu-out")
    options.work = os.path.join(options.out, name)
    os.makedirs(options.work, exist_ok=True)
    report = Report(name, options.out)
    begin = time.monotonic()
    report.guarded(name, test, options, report)
    report.guarded("inject check", check_promises, options.work, report)
    report.data["seconds"] = round(time.monotonic() - begin, 1)
    sys.exit(report.finish())
