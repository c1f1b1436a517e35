# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Times of kernels in CUDA graphs that are replayed across the edges of ten windows: JAX, Flax, PyTorch's graphs of a whole step and
of a part of it, and torch.compile (reduce-overhead).

No kernel but a collective may take longer than all else that its iteration did, many times what it takes otherwise, as one does whose
record has the end of the next replay. Durations are torch.profiler's, within 2 % or 64 ns.
"""

import bisect
import json
import os
import statistics
import sys

from gputest import Folder, GPU_TRACE, clean_environment, compare_medians, folders, main, module_missing, normalise, \
    profiled_environment, run

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "graph_steps.py")
WINDOWS = 10
WINDOW = f"iter:30+10/40x{WINDOWS}"
KINDS = {"jax": ("jax",), "flax": ("jax", "flax"), "whole": ("torch",), "partial": ("torch",), "compile": ("torch", "triton")}
MANY_TIMES = 4
# Share of the kernels' time: kernels of a few microseconds differ between processes, depending on the placement of their data.
MOST_BEYOND = 0.05


def overlong(kernels, begins):
    """Those of the kernels [(name, start, end)] that took longer than all others of their iteration together, and MANY_TIMES their median.
    `begins`: when iterations began on the device, or slightly before."""
    begins = sorted(begins)
    iterations, durations = {}, {}
    for name, start, end in kernels:
        iterations.setdefault(bisect.bisect_right(begins, start), []).append((start, end, name))
        durations.setdefault(name, []).append(end - start)
    found = []
    for members in iterations.values():
        if len(members) < 3:
            continue
        ends = sorted((end for _, end, _ in members), reverse=True)
        starts = sorted(start for start, _, _ in members)
        for start, end, name in members:
            others_end = ends[1] if end == ends[0] else ends[0]
            others_start = starts[1] if start == starts[0] else starts[0]
            usual = statistics.median(durations[name])
            if "nccl" not in name and end - start > max(others_end - others_start, MANY_TIMES * usual):
                found.append((name, start, end))
            elif "nccl" not in name and end - start > 10 * MANY_TIMES * usual and end - start > (others_end - others_start) / 2:
                found.append((name, start, end))
    return found


def trace_of(folder):
    """[(name, start, end)] of the kernels."""
    return [(normalise(row["Name"]), int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"]))
            for row in folder.rows(GPU_TRACE) if row["GrdX"] != ""]


def check_kind(options, report, kind):
    out = os.path.join(options.work, kind + ".out")
    environment = profiled_environment(options.library, out, WINDOW, summary="off", trace="csv")
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    result = run([sys.executable, PROGRAM, kind], environment, timeout=150, cwd=options.work, log=os.path.join(options.work, kind + ".log"))
    found = folders(out)
    if not report.check(f"{kind}: ends well, one output folder", result.rc == 0 and len(found) == 1, result.why() if result.rc else found):
        return
    folder = Folder(found[0])
    windows = [row for row in folder.rows("window_sum.csv") if row["Device"] == "all"]
    kernels = trace_of(folder)
    report.check(f"{kind}: kernels in {WINDOWS} windows", len(windows) == WINDOWS and all(int(row["Kernels"]) for row in windows),
                 [row["Kernels"] for row in windows])
    begins = [int(row["Start (ns)"]) for row in folder.rows("iteration_sum.csv") if row["Device"] == "all" and row["Start (ns)"]]
    wrong = overlong(kernels, begins)
    report.check(f"{kind}: no kernel takes longer than its iteration", kernels and begins and not wrong,
                 f"{len(wrong)} of {len(kernels)}: " + "; ".join(f"{end - start} ns {name[:60]}" for name, start, end in wrong[:3]))
    invalid = sum(int(row["Invalid Timestamps"]) for row in windows)
    lost = {what: count for what, count in folder.lost().items() if what != "invalid_timestamps"}
    report.check(f"{kind}: nothing lost but records with another's end, one kernel in a hundred at most",
                 not lost and invalid * 100 <= len(kernels), f"{invalid} left out; {lost or 'nothing else'}")
    report.data[kind] = {"invalid": invalid, "kernels": len(kernels), "overlong": wrong[:100]}
    if kind not in ("jax", "flax"):
        check_durations(options, report, kind, kernels)


def check_durations(options, report, kind, kernels):
    result = run([sys.executable, PROGRAM, kind, "--reference"], clean_environment(), timeout=150, cwd=options.work,
                 log=os.path.join(options.work, kind + "_reference.log"))
    theirs = {}
    try:
        for name, times in json.loads(result.out.strip().splitlines()[-1])["kernels"].items():
            theirs.setdefault(normalise(name), []).extend(times)
    except (IndexError, KeyError, ValueError):
        pass
    if not theirs:
        report.check(f"{kind}: torch.profiler's durations", False, result.why())
        return
    ours = {}
    for name, start, end in kernels:
        ours.setdefault(name, []).append(end - start)
    # Several kernels of a graph may have the same name, and the median of their durations could be anywhere between them.
    compared = compare_medians({name: middle(times) for name, times in ours.items()}, {name: middle(times) for name, times in theirs.items()})
    report.data[kind]["medians"] = compared
    beyond = sum(row["theirs_ns"] * row["count"] for row in compared["beyond"])
    share = beyond / max(sum(row["theirs_ns"] * row["count"] for row in compared["rows"]), 1)
    report.check(f"{kind}: durations are torch.profiler's, within 2 % or 64 ns, for {1 - MOST_BEYOND:.0%} of the time or more",
                 compared["rows"] and share <= MOST_BEYOND,
                 f"{len(compared['rows'])} names, beyond for {share:.1%} of the time; "
                 + "; ".join(f"{row['ours_ns']:.0f} for {row['theirs_ns']:.0f} ns {row['name'][:40]}" for row in compared["beyond"][:3]))


def middle(times):
    """For similar durations: their mean without the shortest and the longest tenth."""
    cut = len(times) // 10
    return [statistics.fmean(sorted(times)[cut:len(times) - cut])] * len(times)


def test(options, report):
    for kind in options.only.split(","):
        reason = module_missing(*KINDS[kind])
        if reason:
            report.skip(kind, reason)
        else:
            report.guarded(kind, check_kind, options, report, kind)


if __name__ == "__main__":
    main("graph_times", test, arguments=lambda parser: parser.add_argument("--only", default=",".join(KINDS)))
