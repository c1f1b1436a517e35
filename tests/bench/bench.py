# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs the cost benchmarks that need a GPU, prints their table, writes every sample to OUT/bench.json.

Ratios are taken inside one process, round by round; a row shows the median of the rounds and their least and greatest.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "gpu"))
import gputest  # noqa: E402  (its folder is known only now)


class Table:
    def __init__(self):
        self.rows = []

    def add(self, what, samples, unit, limit=None, value=None):
        """`limit`: the most that the median (or `value`) may be."""
        samples = [s for s in samples if s is not None]
        if not samples:
            self.rows.append({"what": what, "verdict": "FAIL", "note": "not measured"})
            return
        middle = statistics.median(samples) if value is None else value
        verdict = "" if limit is None else "PASS" if middle <= limit else "FAIL"
        self.rows.append({"what": what, "value": middle, "low": min(samples), "high": max(samples), "count": len(samples),
                          "unit": unit, "limit": limit, "verdict": verdict})

    def print(self):
        print(f"{'':4} {'what':<66} {'median':>10} {'least':>10} {'greatest':>10} {'limit':>8} unit (samples)")
        for row in self.rows:
            if "value" not in row:
                print(f"{row['verdict']:4} {row['what']:<66} {row['note']}")
                continue
            limit = "" if row["limit"] is None else f"{row['limit']:g}"
            print(f"{row['verdict']:4} {row['what']:<66} {row['value']:>10.4g} {row['low']:>10.4g} {row['high']:>10.4g} "
                  f"{limit:>8} {row['unit']} ({row['count']})")

    def failed(self):
        return sum(row["verdict"] == "FAIL" for row in self.rows)


def ratios(over, under):
    return [a / b for a, b in zip(over, under)]


def differences(minuend, subtrahend):
    return [a - b for a, b in zip(minuend, subtrahend)]


def run_json(options, name, arguments, environment, timeout):
    result = gputest.run([options.launch, *arguments], environment, timeout, cwd=options.work,
                         log=os.path.join(options.out, f"bench_{name}.log"))
    if result.rc != 0:
        print(f"bench_launch {' '.join(arguments)}: {result.why()}")
        return None
    return json.loads(result.out[result.out.index("{"):])


def profiled(options, name, window="api", **more):
    out = os.path.join(options.work, name)
    shutil.rmtree(out, ignore_errors=True)
    environment = gputest.profiled_environment(options.library, out, window, summary="off", **more)
    return environment, out


def bench_loop(options, table, data):
    environment, out = profiled(options, "loop")
    series = run_json(options, "loop", ["loop", str(options.rounds)], environment, 150)
    if series is None:
        table.add("launch loop", [], "")
        return
    data["loop"] = series
    data["loop_run"] = gputest.Folder(out).run_json() if os.path.isdir(out) else None
    for call in ("launch", "gemm"):
        for when in ("before", "after"):
            hooked, bare = series[f"{when}.hooked.{call}_ns"], series[f"{when}.unhooked.{call}_ns"]
            table.add(f"{call}: hooked / unhooked, {when} the windows", ratios(hooked, bare), "×", 1.01)
            table.add(f"{call}: unhooked, {when} the windows", bare, "ns")
        table.add(f"{call}: hooked, after / before the windows",
                  ratios(series[f"after.hooked.{call}_ns"], series[f"before.hooked.{call}_ns"]), "×")
        table.add(f"{call}: our window", series.get(f"ours.{call}_ns", []), "ns")
        table.add(f"{call}: bare CUPTI client", series.get(f"bare.{call}_ns", []), "ns")
        table.add(f"{call}: our window / bare CUPTI client",
                  ratios(series.get(f"ours.{call}_ns", []), series.get(f"bare.{call}_ns", [])), "×", 1.05)
    for when in ("before", "after"):
        table.add(f"a hook outside a window, {when} the windows (cudaPeekAtLastError)",
                  differences(series[f"{when}.hooked.trivial_ns"], series[f"{when}.unhooked.trivial_ns"]), "ns", 5)


def bench_latency(options, table, data):
    environment, out = profiled(options, "latency", log="debug")
    series = run_json(options, "latency", ["latency", str(options.cycles)], environment, 170)
    if series is None:
        table.add("opening and closing", [], "")
        return
    data["latency"] = series
    if os.path.isdir(out):
        data["latency_run"] = gputest.Folder(out).run_json()
        data["latency_windows"] = gputest.Folder(out).rows("window_sum.csv")
    names = {"idle": "idle device", "hooked1": "1 thread, hooks", "hooked16": "16 threads, hooks",
             "unhooked1": "1 thread, no hook", "unhooked16": "16 threads, no hook"}
    for key, name in names.items():
        limited = not key.startswith("unhooked")
        table.add(f"open: cudaProfilerStart, {name}", series.get(f"{key}.start_ms", []), "ms", 25 if limited else None,
                  max(series.get(f"{key}.start_ms", [0])))
        table.add(f"close: cudaProfilerStop, {name}", series.get(f"{key}.stop_ms", []), "ms", 5 if limited else None,
                  max(series.get(f"{key}.stop_ms", [0])))
        if key == "idle":
            continue
        quiet = series.get(f"{key}.quiet_stall_ms", [])
        held = [max(pair) for pair in zip(series.get(f"{key}.close_stall_ms", []), series.get(f"{key}.detach_stall_ms", []))]
        table.add(f"slowest launch, no window near, {name}", quiet, "ms")
        table.add(f"slowest launch while opening, {name}", series.get(f"{key}.open_stall_ms", []), "ms")
        table.add(f"slowest launch while closing and detaching, {name}", held, "ms")
        # Sixteen threads at full rate wait for each other as it is: what counts is what closing adds to that.
        added = [max(0.0, h - max(quiet)) for h in held]
        table.add(f"held while closing, beyond the slowest launch without, {name}", added, "ms", 5 if limited else None,
                  max(added, default=0))
    run = data.get("latency_run") or {}
    detached = [(w["detached_ns"] - max(w["end_ns"], w.get("last_activity_ns", 0))) / 1e6
                for w in run.get("windows", []) if w.get("detached_ns")]
    # The windows come in the order of `names`, after one to warm up. Sixteen threads that launch past every hook can't be
    # held while CUPTI detaches: the figure is shown, it has no limit.
    rest = 1 + options.cycles * (len(names) - 1)
    table.add("detached after the last in-window kernel, greatest", detached[:rest], "ms", 25, max(detached[:rest], default=0))
    if detached[rest:]:  # none where CUPTI was not attached before the program closed the window again
        table.add(f"detached after the last in-window kernel, {names['unhooked16']}", detached[rest:], "ms")


def million_run(options, client, name, window=None):
    """One process; the time from the end of main() to the end of the process is the work at exit."""
    if window:
        environment, out = profiled(options, name, window)
    else:
        environment, out = gputest.clean_environment(), None
    with open(os.path.join(options.out, f"bench_{name}.log"), "w") as log:
        process = subprocess.Popen([options.launch, "million", client], env=environment, stdout=subprocess.PIPE, stderr=log, cwd=options.work)
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        text = process.stdout.read().decode()
        _, status, usage = os.wait4(process.pid, 0)
        ended = time.monotonic_ns()
        process.returncode = os.waitstatus_to_exitcode(status)
        watchdog.cancel()
    if process.returncode != 0 or "{" not in text:
        print(f"million {client}: rc {process.returncode}: {text[-200:]}")
        return None
    result = json.loads(text)
    result["exit_ms"] = (ended - result["end_ns"]) / 1e6
    result["peak_at_end_mb"] = usage.ru_maxrss * 1024 / 1e6
    if out:
        folder = gputest.Folder(out)
        result["csv_bytes"] = sum(os.path.getsize(os.path.join(out, f)) for f in folder.files() if f.endswith(".csv"))
        counts = folder.kernel_counts()
        result["kernels"], result["names"] = sum(counts.values()), len(counts)
        result["run"] = folder.run_json() if "run.json" in folder.files() else None
    return result


def bench_million(options, table, data):
    runs = {"none": [], "bare": [], "exit": [], "stop": []}
    for number in range(options.repeats):
        for client in runs:
            window = "api" if client in ("exit", "stop") else None
            runs[client].append(million_run(options, client, f"million_{client}_{number}", window))
    data["million"] = runs

    def column(client, key):
        return [r[key] if r else None for r in runs[client]]

    for client, name in (("none", "no profiler"), ("bare", "bare CUPTI client"), ("exit", "ours, window open to the end"),
                         ("stop", "ours, window closed before")):
        table.add(f"million kernels: a launch, {name}", column(client, "launch_ns"), "ns")
        table.add(f"million kernels: end of main to end of process, {name}", column(client, "exit_ms"), "ms")
        table.add(f"million kernels: resident at the end of main, {name}", column(client, "rss_mb"), "MB")
        table.add(f"million kernels: peak, {name}", column(client, "peak_at_end_mb"), "MB")

    def beyond(key):
        pairs = zip(runs["exit"], runs["bare"])
        return [a[key] - b[key] for a, b in pairs if a and b]

    table.add("million kernels: work at exit beyond the bare CUPTI client's", beyond("exit_ms"), "ms", 200)
    table.add("million kernels: resident memory beyond the bare CUPTI client's", beyond("rss_mb"), "MB", 64)
    table.add("million kernels: peak memory beyond the bare CUPTI client's", beyond("peak_at_end_mb"), "MB", 64)
    table.add("million kernels: all CSV files", [r["csv_bytes"] / 1e6 for r in runs["exit"] + runs["stop"] if r], "MB", 1)
    missing = [1_000_000 - r["kernels"] for r in runs["exit"] + runs["stop"] if r]
    table.add("million kernels: not in the tables", missing, "kernels", 0, max((abs(m) for m in missing), default=0))


def bench_spawn(options, table, data):
    result = gputest.run([options.spawn, options.library, str(options.spawns)], gputest.clean_environment(), 60)
    if result.rc != 0:
        print(f"bench_spawn: {result.why()}")
        table.add("preload on /bin/true", [], "")
        return
    series = json.loads(result.out)
    data["spawn"] = series
    bare, ours = series["spawn.bare_us"], series["spawn.preloaded_us"]
    table.add("/bin/true: bare", bare, "µs")
    table.add("/bin/true: preloaded", ours, "µs")
    table.add("/bin/true: added by the preload", differences(ours, bare), "µs", 400,
              statistics.median(ours) - statistics.median(bare))


def bench_micro(options, table, data):
    """The Google Benchmark programs, which need no GPU."""
    for name in ("bench_hook", "bench_stats"):
        program = os.path.join(os.path.dirname(options.spawn), name)
        if not os.path.exists(program):
            print(f"{name} is not built")
            continue
        environment = gputest.clean_environment()
        if name == "bench_hook":
            environment["LD_PRELOAD"] = os.path.abspath(options.library)
        result = gputest.run([program, "--benchmark_format=json", "--benchmark_min_time=0.1", "--benchmark_repetitions=3"],
                             environment, 120)
        if result.rc != 0:
            print(f"{name}: {result.why()}")
            continue
        series = {}
        for one in json.loads(result.out[result.out.index("{"):])["benchmarks"]:
            if one.get("run_type", "iteration") == "iteration":
                series.setdefault((one["name"], one["time_unit"]), []).append(one["real_time"])
        data[name] = {benchmark: samples for (benchmark, _), samples in series.items()}
        for (benchmark, unit), samples in series.items():
            table.add(f"{name}: {benchmark}", samples, unit)


def bench_held(options, table, data):
    """The subscription that is held where no hook sees the profiler API: processes in turn, profiling off and `api`."""
    program = os.path.join(os.path.dirname(options.spawn), "bench_driver")
    if not os.path.exists(program):
        print("bench_driver is not built")
        return
    times = {"off": [], "api": []}
    for turn in range(2 * options.cycles + 4):
        window = ("off", "api")[turn % 2]
        environment, _ = profiled(options, f"held{turn}", window)
        result = gputest.run([program], environment, 60)
        if result.rc != 0:
            print(f"bench_driver: {result.why()}")
            return
        times[window].append(float(result.out))
    data["held"] = times
    table.add("driver launch, profiling off", times["off"], "ns")
    table.add("driver launch, subscribed for the profiler calls alone", times["api"], "ns")
    table.add("subscribed / off", ratios(times["api"], times["off"]), "×")


PARTS = {"held": bench_held, "loop": bench_loop, "latency": bench_latency, "million": bench_million, "spawn": bench_spawn,
         "micro": bench_micro}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=os.environ.get("INJECT_BUILD", "build"), help="build folder")
    parser.add_argument("--programs", help="folder of bench_launch and bench_spawn (default: BUILD/tests/bench)")
    parser.add_argument("--out", default=os.environ.get("OUT") or "gpu-out")
    parser.add_argument("--parts", default="loop,latency,million,spawn", help="of " + ",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--spawns", type=int, default=1000)
    options = parser.parse_args()
    parts = options.parts.split(",")
    options.library = gputest.find_library(options.build)
    programs = options.programs or os.path.join(options.build, "tests", "bench")
    options.launch = os.path.abspath(os.path.join(programs, "bench_launch"))
    options.spawn = os.path.abspath(os.path.join(programs, "bench_spawn"))
    options.out = os.path.abspath(options.out)
    options.work = os.path.join(options.out, "bench")
    os.makedirs(options.work, exist_ok=True)
    if not options.library:
        print(f"bench: no libinject.so under {options.build}")
        return 1
    reason = gputest.gpu_missing()
    if reason and not set(parts) <= {"spawn", "micro"}:
        print(f"bench: SKIPPED: {reason}")
        return gputest.SKIPPED
    table, data = Table(), {}
    for part in parts:
        begin = time.monotonic()
        try:
            PARTS[part](options, table, data)
        except Exception as error:  # the other parts still have something to say
            table.rows.append({"what": part, "verdict": "FAIL", "note": f"{type(error).__name__}: {error}"})
        print(f"bench {part}: {time.monotonic() - begin:.0f} s", flush=True)
    with open(os.path.join(options.out, "bench.json"), "w") as file:
        json.dump({"table": table.rows, "samples": data}, file)
    print("== bench")
    table.print()
    return 1 if table.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
