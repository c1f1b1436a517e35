# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Iterations found from the launch stream against those that training programs know of themselves (programs.py
and recipes.py).

Every program runs under the preload with a window `iter:START+COUNT` and its launch stream recorded; then the recording,
with the marks that the program left in it, tells where the iterations are that were found. Prints a table; all figures go
to OUT/truth_table.json, small copies of the streams to OUT/streams.

With --auto the window is libinject's choice, and only that is judged: ten whole iterations, none of them from before the
program does the same in each, or the clock's window where it had found none by then. With --without-steps PyTorch is not
asked for its optimizers' steps.
"""

import concurrent.futures
import glob
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))

import programs  # noqa: E402
import recipes  # noqa: E402,F401
import recording  # noqa: E402
from gputest import Folder, folders, main, module_missing, profiled_environment, run  # noqa: E402

# Programs whose own marks are inexact, or that need more than the project promises: shown, but not judged.
NOT_JUDGED = {"jax_async": "JAX launches after the step that asked for it", "ddp": "needs gloo",
              "two_optimizers": "what repeats is three passes of the loop"}
GOAL_LOCK = 5  # iterations after the stream became steady
GOAL_LOCK_BY_STEPS = 10  # if the program reports its optimizers' steps: six steps and 200 events are needed
AUTO_COUNT = 10  # iterations of the window that `auto` opens
ALL_BUT_TORCH = "cudart,cublas,cublaslt,cudnn,nccl"


def find_mark(library):
    """libtruth_mark.so from the same build as the library."""
    for folder in (os.path.dirname(library), os.path.dirname(os.path.dirname(library))):
        found = sorted(glob.glob(os.path.join(folder, "**", "libtruth_mark.so"), recursive=True))
        if found:
            return found[0]
    return None


def gpus_missing(count):
    """None if this machine has that many GPUs, one or two, else the reason."""
    if count < 2:
        return None
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout.splitlines()
    except OSError:
        listed = []
    return None if sum(line.startswith("GPU ") for line in listed) >= count else "needs two GPUs"


def window_positions(stream):
    """[(begin, end)] of the windows as positions."""
    closes = dict((window, position) for position, window in stream.closes)
    return [(position, closes.get(window, len(stream.events))) for position, window in stream.opens]


def automatic(row, reasons):
    """How the only window, opened by `auto`, deviates from the promise; empty if it does not."""
    if len(row["windows"]) != 1:
        # The content of the clock's window is not in the recording, since no boundary opens it.
        by_clock = not row["windows"] and len(reasons) == 1 and reasons[0].startswith("time:")
        return "" if by_clock else f"{len(row['windows'])} windows, {reasons}"
    window, first = row["windows"][0], row["steady_from"]
    full = window["full"]
    if window["partial"] or window["other"] or len(full) != AUTO_COUNT or full != list(range(full[0], full[0] + AUTO_COUNT)):
        return recording.covered_text(window)
    if first is None or full[0] < first:
        return f"iteration {full[0]} is of the warm-up, the program is steady from {first} on"
    return ""


def analyse(stream, run_json, start, count):
    """All values of one program's row. `start`: None if `auto` chose the window."""
    # The message with or without its domain.
    texts = [(position, re.sub(r"^:", "", text)) for position, text in stream.marks]
    steps, phases = recording.iterations([(position, text) for position, text in texts if text.startswith(("truth:", "phase:"))])
    row = {"events": len(stream.events), "iterations": len(steps), "phases": len(phases),
           "events_per_iteration": sorted(b - a for a, b in steps.values())[len(steps) // 2] if steps else 0,
           "steady_from": recording.steady_from(stream, steps), "search": run_json.get("iterations")}

    row["locks"] = [{"event": lock.position, "iterations_over": sum(end <= lock.position for _, end in steps.values()),
                     "optimizer": lock.optimizer, "by_shape": lock.by_shape, "rough": lock.rough, "events": lock.events,
                     "begin": lock.begin, "anchor": lock.anchor} for lock in stream.locks]
    lock = stream.lock()
    row["locked_after"] = None
    if lock:
        # Iterations that were over, by the program's own account; earlier ones were counted back.
        row["locked_after"] = row["locks"][-1]["iterations_over"]
        row["since_lock"] = recording.span_verdict(lock.spans, steps, row["locked_after"])
        row["all"] = recording.span_verdict(lock.spans, steps)
        if row["steady_from"] is not None:
            row["lock_after_steady"] = row["locked_after"] - row["steady_from"]
            # The first iteration does not follow another one: set-up work may merge into it.
            row["judged_from"] = max(row["steady_from"], 1)
            row["since_steady"] = recording.span_verdict(lock.spans, steps, row["judged_from"])

    if stream.boundaries:
        # The first iteration that can have a boundary: the watch is armed some time after the iterations were recognised.
        first = min((k for k, (_, end) in steps.items() if end > stream.boundaries[0][0]), default=None)
        if first is not None:
            row["first_live"] = first
            row["live"] = recording.boundary_verdict(stream.boundaries, steps, phases, first)

    row["windows"] = [recording.covered(begin, end, steps, phases) for begin, end in window_positions(stream)]
    if start is None:
        row["automatic"] = automatic(row, [window["reason"] for window in run_json.get("windows", [])])
        return row
    expected = [k for k in range(start, start + count) if k in steps]
    row["window_exact"] = (len(row["windows"]) == 1 and row["windows"][0]["full"] == expected and len(expected) == count and
                           not row["windows"][0]["partial"] and not row["windows"][0]["other"])
    return row


def run_one(options, name):
    """Runs a program and analyses its recording. Returns (row, finished program)."""
    out = os.path.join(options.work, name + ".out")
    truth_file = os.path.join(options.work, name + ".truth.json")
    record = os.path.join(options.work, name + ".stream")
    for old in folders(out):
        shutil.rmtree(old)
    for old in glob.glob(record + "*") + glob.glob(truth_file):
        os.remove(old)
    # %p: Inductor compiles in processes that initialise CUDA, one of which would truncate the program's recording.
    environment = profiled_environment(options.library, out, "auto" if options.auto else f"iter:{options.start}+{options.count}",
                                       iter_record=record + ".%p", log="debug" if options.debug else "info",
                                       **({"hooks": ALL_BUT_TORCH} if options.without_steps else {}))
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    environment["TF_CPP_MIN_LOG_LEVEL"] = "2"
    # Compiled kernels are kept for all programs of this run, but no longer.
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(options.work, "inductor"))
    command = [sys.executable, os.path.join(HERE, "programs.py"), name, "--truth", truth_file, "--mark", options.mark,
               "--pause", str(options.pause)]
    if options.steps:
        command += ["--steps", str(options.steps)]
    result = run(command, environment, timeout=options.limit, cwd=options.work, log=os.path.join(options.work, name + ".log"))
    row = {"program": name, "seconds": round(result.seconds, 1), "rc": result.rc,
           "said": [line for line in result.err.splitlines() if re.search(r"inject", line, re.IGNORECASE)][:12]}
    if result.rc != 0:
        return row, result
    with open(truth_file) as file:
        truth = json.load(file)
    row["notes"] = truth["notes"]
    found = folders(out)
    run_json = Folder(found[0]).run_json() if found else {}
    records = sorted(glob.glob(record + "*"))
    if not records:
        row["problem"] = "no launch stream was recorded"
        return row, result
    chosen = max(records, key=os.path.getsize)
    stream = recording.read_file(chosen)
    row.update(analyse(stream, run_json, None if options.auto else options.start, options.count))
    if found:
        row["iteration_sum"] = Folder(found[0]).rows("iteration_sum.csv")[:50]
    streams = os.path.join(options.out, "streams")
    os.makedirs(streams, exist_ok=True)
    with open(chosen, errors="replace") as file:
        row["stream_bytes"] = recording.write_compact(file.readlines(), os.path.join(streams, name + ".stream.xz"))
    if not options.keep:
        for path in records:
            os.remove(path)
    return row, result


def text_of(row):
    """The cells of a row of the table."""
    if "events" not in row:
        return [row["program"], row.get("problem", f"rc {row['rc']}")]
    live, every, since, more = row.get("live", {}), row.get("all", {}), row.get("since_lock", {}), []
    if every.get("wrong"):
        more.append("not " + recording.ranges_text(every["wrong"]))
    if every.get("elsewhere"):
        more.append(f"{len(every['elsewhere'])} where there is none")
    if len(row["locks"]) > 1:
        more.append("locked after " + ", ".join(str(lock["iterations_over"]) for lock in row["locks"]))
    if live.get("offsets"):
        more.append("live off by " + " ".join(f"{offset:+d}x{n}" for offset, n in sorted(live["offsets"].items(), key=lambda o: -o[1])[:4]))
    if live.get("missed"):
        more.append("live missed " + recording.ranges_text(live["missed"]))
    if live.get("extra"):
        more.append(f"live {live['extra']} extra, {live['in_phases']} of them in phases")
    windows = "; ".join(recording.covered_text(w) for w in row["windows"]) or "no window"
    return [row["program"], row["events"], row["events_per_iteration"], row["steady_from"], row["locked_after"],
            *(f"{verdict['exact']}/{verdict['expected']}" if verdict else "-" for verdict in (since, every, live)), windows,
            "; ".join(more)]


# Exact: an iteration of the same number begins with the same event, after the lock and in total; live: the boundaries as seen at run time,
# at which windows open and close.
HEADER = ["program", "events", "an iteration", "steady from", "locked after", "exact", "of all", "live", "window covers", ""]


def print_table(rows):
    cells = [HEADER] + [[str(cell) for cell in text_of(row)] for row in rows]
    # A row without values consists of its program and one line of text.
    widths = [max(len(row[i]) for row in cells if len(row) == len(HEADER)) for i in range(len(HEADER))]
    widths[0] = max(len(row[0]) for row in cells)
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def problems(row):
    """How a program's row deviates from the promises."""
    if "events" not in row:
        return [row.get("problem", "it failed")]
    if "automatic" in row:
        return [row["automatic"]] if row["automatic"] else []
    found, after = [], row.get("lock_after_steady")
    if row["locked_after"] is None:
        found.append("no iterations were found")
    else:
        # Work before the stream was steady (tuning, compiling) may be unlike any later iteration.
        for first, when, verdict in ((row["locked_after"], "they were found", row["since_lock"]),
                                     (row.get("judged_from"), "the stream was steady", row.get("since_steady"))):
            if verdict and (verdict["exact"] != verdict["expected"] or verdict["elsewhere"]):
                found.append(f"{verdict['exact']} of {verdict['expected']} exact from iteration {first} on, when {when}; "
                             f"{len(verdict['elsewhere'])} where there is none")
                break
        by_steps = (row["search"] or {}).get("recognised_by") == "optimizer steps"
        if after is None or after > (GOAL_LOCK_BY_STEPS if by_steps else GOAL_LOCK):
            found.append(f"locked after iteration {row['locked_after']}, steady from {row['steady_from']}")
    if not row["window_exact"]:
        found.append("window: " + ("; ".join(recording.covered_text(w) for w in row["windows"]) or "none"))
    return found


def judge(report, row, result):
    name = row["program"]
    found = problems(row)
    text = "; ".join(found) + (" " + result.why() if row["rc"] else "")
    if name in NOT_JUDGED:
        report.skip(name, f"not judged, {NOT_JUDGED[name]}: {text or 'as promised'}")
    else:
        report.check(name, not found, text)


def test(options, report):
    names = [name for name in options.only.split(",") if name] or list(programs.PROGRAMS)
    options.mark = options.mark or find_mark(options.library)
    if not options.mark:
        report.check("libtruth_mark.so is built", False, f"not beside {options.library}")
        return
    runnable, done = [], {}
    for name in names:
        if name not in programs.PROGRAMS:
            report.check(name, False, "no such program")
            continue
        reason = module_missing(*programs.PROGRAMS[name].modules) or gpus_missing(programs.PROGRAMS[name].gpus)
        if reason:
            report.skip(name, reason)
        else:
            runnable.append(name)
    # The longest ones, which compile, go first.
    order = sorted(runnable, key=lambda name: name not in ("compile", "compiled", "resnet50", "dynamic_shapes"))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {name: pool.submit(run_one, options, name) for name in order}
        for name in runnable:
            done[name] = report.guarded(name, futures[name].result)
    rows = []
    for name in runnable:
        if done[name]:
            rows.append(done[name][0])
            report.guarded(name, judge, report, *done[name])
    report.data.update({"window": "auto" if options.auto else f"iter:{options.start}+{options.count}",
                        "without_steps": options.without_steps, "rows": rows})
    shutil.rmtree(os.path.join(options.work, "inductor"), ignore_errors=True)
    print_table(rows)


def arguments(parser):
    parser.add_argument("--only", default="", help="comma-separated names of programs (default: all)")
    parser.add_argument("--steps", type=int, help="steps of each program (default: its own, 80)")
    parser.add_argument("--pause", type=float, default=5, help="milliseconds of rest after each step (default: 5)")
    parser.add_argument("--start", type=int, default=50)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--auto", action="store_true", help="libinject chooses the window")
    parser.add_argument("--without-steps", action="store_true", help="PyTorch is not asked for its optimizers' steps")
    parser.add_argument("--mark", help="libtruth_mark.so (default: that of the build)")
    parser.add_argument("--jobs", type=int, default=4, help="programs at once")
    parser.add_argument("--limit", type=int, default=150, help="seconds for one program")
    parser.add_argument("--keep", action="store_true", help="keep the full recordings")
    parser.add_argument("--debug", action="store_true", help="INJECT_LOG=debug")


if __name__ == "__main__":
    main("truth_table", test, arguments=arguments)
