# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Nine minutes of training with a window of 200 ms every 2 s: nothing grows, and steps outside windows take what they take bare.

Two processes train the same model in turns, one under the preload and one bare: a turn of the bare one stands before and after
each of the other's, so that clocks and temperatures that move within minutes are the same for both. Windows come by time all the
while. A step counts as outside where it overlaps no window.
"""

import collections
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time

from gputest import Folder, clean_environment, folders, main, profiled_environment, run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "torch_soak.py")
START, LENGTH, EVERY = 5, 0.2, 2.0  # s
MOST_COST = 1.01  # of the medians
MOST_MEAN = 1.03  # of the means, which include disturbances by other programs on the host
WARM = 0.15        # of a turn's steps, which follow a pause
MOST_GROWTH = 2e6  # bytes, from the middle of the run to its end
BEFORE, AFTER = 150e6, 400e6  # ns around a window in which CUPTI is attached, or its data is processed


def overlaps(step, spans):
    return any(begin < step[1] and step[0] < end for begin, end in spans)


def by_place(steps, spans):
    """Step times, without the first steps of the turn, in ns: {"in", "near" or "far" from windows: [ns]}."""
    around = [(begin - BEFORE, end + AFTER) for begin, end in spans]
    found = {"in": [], "near": [], "far": []}
    for step in steps[int(WARM * len(steps)):]:
        place = "in" if overlaps(step, spans) else "near" if overlaps(step, around) else "far"
        found[place].append(step[1] - step[0])
    return found


def ratios_of(turns, spans):
    """For each turn of "ours": the ratio of its steps to those of the bare turns before and after it, by place. Bare steps only count where
    the other process, which is idle then, has no window either.

    turns: [(kind, steps)], "bare" and "ours" alternating, bare first and last; spans: windows as (begin, end), sorted."""
    found = []
    for before, (kind, steps), after in zip(turns, turns[1:], turns[2:]):
        if kind != "ours":
            continue
        bare = [time for _, others in (before, after) for time in by_place(others, spans)["far"]]
        ours = by_place(steps, spans)
        outside = ours["near"] + ours["far"]
        found.append({"median": statistics.median(outside) / statistics.median(bare),
                      "mean": statistics.mean(outside) / statistics.mean(bare),
                      **{place: statistics.mean(ours[place]) / statistics.mean(bare) if ours[place] else None for place in ours},
                      "bare_ns": statistics.median(bare), "steps": len(outside)})
    return found


def interval(values, rounds=2000):
    """The 95 % interval of the mean, from draws of the same number of values (bootstrap)."""
    draw = random.Random(1)
    means = sorted(statistics.mean(draw.choices(values, k=len(values))) for _ in range(rounds))
    return means[int(0.025 * rounds)], means[int(0.975 * rounds) - 1]


def growth(values):
    """By how much the median of the last quarter of the samples exceeds that of the third quarter."""
    quarter = len(values) // 4
    return statistics.median(values[-quarter:]) - statistics.median(values[-2 * quarter:-quarter])


def incomplete(windows, steps, kernels_per_step):
    """Problems with windows (begin, end, kernels): each has the kernels of the steps inside it, plus at most those of the two steps at its
    ends."""
    wrong = []
    for number, (begin, end, kernels) in enumerate(windows, 1):
        whole = sum(begin <= step[0] and step[1] <= end for step in steps)
        touched = sum(begin < step[1] and step[0] < end for step in steps)
        if not whole * kernels_per_step <= kernels <= touched * kernels_per_step:
            wrong.append(f"window {number}: {kernels} kernels, {whole} to {touched} steps of {kernels_per_step}")
    return wrong


class Turns:
    """The two processes."""

    def __init__(self, options, out):
        self.seconds = options.seconds
        self.started, self.logs = {}, []
        for kind, environment in (("bare", clean_environment()), ("ours", profiled_environment(options.library, out, options.window))):
            self.logs.append(open(os.path.join(options.work, f"soak_{kind}.log"), "w", encoding="utf-8"))
            self.started[kind] = subprocess.Popen([sys.executable, options.program, *options.model.split(":")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                  stderr=self.logs[-1], text=True, cwd=options.work, env=environment)
        # If a process hangs, this ends the reading.
        self.timer = threading.Timer(options.seconds + 120, self.kill)
        self.timer.start()
        for kind, process in self.started.items():
            if not process.stdout.readline():
                raise RuntimeError(f"{kind}: ended before its first turn")

    def kill(self):
        for process in self.started.values():
            process.kill()

    def turn(self, kind, seconds):
        process = self.started[kind]
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{kind}: ended in its turn")
        return json.loads(line)

    def end(self):
        """{kind: (exit status, seconds from the end of its input to the process's end)}"""
        found = {}
        for kind, process in self.started.items():
            begin = time.monotonic()
            process.communicate()
            found[kind] = process.returncode, time.monotonic() - begin
        return found

    def close(self):
        self.timer.cancel()
        self.kill()
        for process in self.started.values():
            process.communicate()
        for log in self.logs:
            log.close()


def disk(folder):
    """Bytes that a folder's files take on disk; some are about to be renamed."""
    found = 0
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found += os.stat(os.path.join(folder, name)).st_blocks * 512
    return found


def check_growth(report, held):
    """held: resources of the process under the preload after each of its turns."""
    def show(name):
        values = [sample[name] for sample in held]
        return values, " ".join(str(value) for value in values[::max(1, len(values) // 10)])

    for name, most in (("VmRSS", MOST_GROWTH / 1024), ("device", 0), ("disk", MOST_GROWTH)):
        values, text = show(name)
        report.check(f"{name} does not grow", growth(values) <= most, text)
    for name in ("descriptors", "threads"):  # those of CUPTI come and go with it
        values, text = show(name)
        report.check(f"no more {name} at the end than before", max(values[-len(values) // 4:]) <= max(values[:-len(values) // 4]), text)


def soak(options, report):
    out = os.path.join(options.work, "soak.out")
    for left in folders(out):
        shutil.rmtree(left)
    per_step = kernels_per_step(options)
    turns, held, processor = [], [], []
    began = time.monotonic()
    pair = Turns(options, out)
    try:
        def take(kind, seconds):
            told = pair.turn(kind, seconds)
            turns.append((kind, [tuple(step) for step in told["steps"]]))
            processor.append(statistics.median(told.get("processor", [0])))
            if kind == "ours":
                held.append({**told["process"], "device": told["device"], "disk": disk(folders(out)[0]),
                             "at": round(time.monotonic() - began, 1)})

        take("bare", options.bare)
        first = time.monotonic()
        while time.monotonic() - first < options.seconds:
            take("ours", options.turn)
            take("bare", options.bare)
        ends = pair.end()
    finally:
        pair.close()
    report.check("both programs end well", all(status == 0 for status, _ in ends.values()), ends)
    report.check("the end is soon there", ends["ours"][1] <= ends["bare"][1] + 1, f"{ends['ours'][1]:.2f} s, bare {ends['bare'][1]:.2f} s")

    folder = Folder(folders(out)[0])
    about = folder.run_json()
    zero = about["time_zero"]["clock_monotonic_ns"]
    spans = [(zero + window["start_ns"], zero + window["end_ns"]) for window in about["windows"]]
    expected = (turns[-1][1][-1][1] - spans[0][0]) / 1e9 / EVERY
    report.check("a window every two seconds", abs(len(spans) - expected) <= 2, f"{len(spans)}, expected {expected:.1f}")
    report.check("nothing is lost", folder.lost() == {}, folder.lost())
    kernels = [int(row["Kernels"] or 0) for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
    steps = [step for kind, steps in turns if kind == "ours" for step in steps]
    wrong = incomplete([(*span, count) for span, count in zip(spans, kernels, strict=True)], steps, per_step)
    report.check("each window has its steps' kernels", not wrong,
                 "; ".join(wrong[:3]) or f"{sum(kernels)} kernels in all; torch.profiler counts {per_step} in a step")
    check_growth(report, held)

    ratios = ratios_of(turns, spans)
    report.data["steps_ns"] = [(kind, [end - begin for begin, end in steps]) for kind, steps in turns]
    report.data.update(ratios=ratios, held=held, ends=ends, spans=spans, kernels=kernels, processor_ns=processor, overhead=about["overhead"])
    minutes = collections.defaultdict(list)
    length = options.seconds / len(ratios)
    for at, ratio in enumerate(ratios):
        minutes[int(at * length // 60)].append(ratio)
    def by_minute(name):
        """A single turn that another program on the host disturbs does not determine a minute's value."""
        return [statistics.median(one[name] for one in minutes[minute]) for minute in sorted(minutes)]

    def show(name, values):
        low, high = interval([one[name] for one in ratios])
        return f"all {statistics.mean(one[name] for one in ratios):.4f}, 95 % in {low:.4f} … {high:.4f}; by minute " + " ".join(
            f"{value:.4f}" for value in values)

    medians, means = by_minute("median"), by_minute("mean")
    report.check(f"a step outside windows takes at most {MOST_COST} of a bare one in each minute", max(medians) <= MOST_COST,
                 show("median", medians))
    places = {name: [one[name] for one in ratios if one[name] is not None] for name in ("far", "near", "in")}
    report.check(f"all of them together at most {MOST_MEAN}", statistics.mean(one["mean"] for one in ratios) <= MOST_MEAN,
                 show("mean", means) + "; windows: " + ", ".join(f"{name} {statistics.mean(values):.4f}" for name, values in places.items() if values))
    report.check("turns enough", len(ratios) >= 5,
                 f"{len(ratios)}; a bare step {statistics.median(one['bare_ns'] for one in ratios) / 1e6:.3f} ms")


def kernels_per_step(options):
    """As counted by torch.profiler, in a process of its own."""
    result = run([sys.executable, options.program, *options.model.split(":"), "count"], clean_environment(), timeout=90, cwd=options.work,
                 log=os.path.join(options.work, "soak_count.log"))
    if result.rc != 0:
        raise RuntimeError(f"the kernels of a step: {result.why()}")
    return json.loads(result.out.splitlines()[-1])


def arguments(parser):
    parser.add_argument("--seconds", type=float, default=540, help="of training in turns")
    parser.add_argument("--turn", type=float, default=8, help="seconds of a turn under the preload")
    parser.add_argument("--bare", type=float, default=2, help="seconds of a bare turn")
    parser.add_argument("--window", default=f"time:{START}s+{LENGTH * 1000:.0f}ms/{EVERY:.0f}s")
    parser.add_argument("--model", default="resnet50:64", help="MODEL[:BATCH]")
    parser.add_argument("--program", default=PROGRAM)


def test(options, report):
    report.guarded("soak", soak, options, report)


if __name__ == "__main__":
    main("soak", test, modules=("torch", "torchvision"), arguments=arguments)
