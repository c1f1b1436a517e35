# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Runs torch_child.py under the preload and checks its output."""

import json
import os
import shutil
import sys

from gputest import (Folder, GPU_TRACE, check_sums, compare_medians, count_differences, folders, profiled_environment, run,
                     spread_of_medians, subtract)

HERE = os.path.dirname(os.path.abspath(__file__))


def run_child(options, model, rounds, steps, release, shortest=0.5, timeout=110, trace="csv", more=()):
    """Returns (run, folder of dumps, INJECT_OUT)."""
    work = os.path.join(options.work, f"{model}-{release}")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    out = os.path.join(work, "out")
    environment = profiled_environment(options.library, out, "api", trace=trace)
    result = run([sys.executable, os.path.join(HERE, "torch_child.py"), "--model", model, "--rounds", str(rounds), "--steps",
                  str(steps), "--release", release, "--shortest", str(shortest), "--dump", work, *more], environment, timeout, cwd=work,
                 log=os.path.join(options.work, f"{model}-{release}.log"))
    return result, work, out


def load(work, rounds):
    """[(our cumulative Folder, theirs)] of the completed rounds."""
    pairs = []
    for number in range(rounds):
        mine, other = os.path.join(work, f"ours.{number}"), os.path.join(work, f"theirs.{number}.json")
        if not (os.path.isdir(mine) and os.path.exists(other)):
            break
        with open(other) as file:
            pairs.append((Folder(mine), json.load(file)))
    return pairs


def describe(differences, limit=3):
    text = "; ".join(f"{ours} ours, {theirs} theirs: {name[:70]}" for name, ours, theirs in differences[:limit])
    more = len(differences) - limit
    return text + (f"; and {more} more" if more > 0 else "")


def judge_counts(report, model, pairs):
    kernels_before, operations_before = {}, {}
    for number, (folder, theirs) in enumerate(pairs, 1):
        kernels_now, operations_now = folder.kernel_counts(), folder.operation_counts()
        kernels = subtract(kernels_now, kernels_before)
        operations = subtract(operations_now, operations_before)
        kernels_before, operations_before = kernels_now, operations_now
        their_kernels = {name: len(d) for name, d in theirs["kernels"].items()}
        their_operations = {name: len(d) for name, d in theirs["operations"].items()}
        differences = count_differences(kernels, their_kernels)
        seen = sum(their_kernels.values())
        report.check(f"{model}: kernels, window {number}", seen > 0 and not differences,
                     f"{sum(kernels.values())} ours, {seen} theirs, of {len(their_kernels)} names. " + describe(differences))
        report.data[f"{model}.kernel_differences.{number}"] = differences
        differences = count_differences(operations, their_operations)
        report.check(f"{model}: copies and memsets, window {number}", bool(their_operations) and not differences,
                     ", ".join(f"{n} {c}" for n, c in sorted(operations.items())) + ". " + describe(differences))


def judge_medians(report, model, final, pairs):
    """Compares kernel times of all windows together, from our raw records."""
    mine, _ = final.trace()
    other = {}
    for _, theirs in pairs:
        for name, durations in theirs["kernels"].items():
            other.setdefault(name, []).extend(durations)
    result = compare_medians(mine, other, spread=spread_of_medians([theirs["kernels"] for _, theirs in pairs]))
    weight_outside = sum(r["theirs_ns"] * r["count"] for r in result["beyond"])
    weight_all = sum(r["theirs_ns"] * r["count"] for r in result["rows"])
    worst = result["outside"][0] if result["outside"] else (result["beyond"] or result["rows"] or [None])[0]
    detail = f"{len(result['rows'])} names, median ratio {result['median_ratio']:.4f}, {len(result['beyond'])} beyond 2 %"
    if weight_all:
        detail += f" ({100 * weight_outside / weight_all:.1f} % of the time)"
    detail += f", {len(result['outside'])} beyond torch.profiler's own spread too"
    if worst:
        detail += f"; worst {worst['ours_ns']:.0f} / {worst['theirs_ns']:.0f} ns {worst['name'][:50]}"
    # Names outside both tolerances are kernels of a few microseconds, or kernels that run beside others (cuDNN's RNN streams); their time
    # must be negligible.
    heavy = sum(r["theirs_ns"] * r["count"] for r in result["outside"])
    report.check(f"{model}: median kernel times within 2 % or their own spread, for 95 % of the time or more",
                 bool(result["rows"]) and abs(result["median_ratio"] - 1) <= 0.02 and heavy <= 0.05 * weight_all, detail)
    report.check(f"{model}: kernel time, medians weighted by count, within 2 %", abs(result["total_ratio"] - 1) <= 0.02,
                 f"ratio {result['total_ratio']:.4f}")
    # For scale: how much the other profiler's results differ between windows.
    if len(pairs) >= 2:
        noise = compare_medians(pairs[0][1]["kernels"], pairs[1][1]["kernels"])
        report.data[f"{model}.their_own_spread"] = {k: noise[k] for k in ("median_ratio", "total_ratio")} | {
            "names_beyond_2_percent": len(noise["beyond"])}
        print(f"{model}: torch.profiler's first window against its second: ratio {noise['total_ratio']:.4f}, "
              f"{len(noise['beyond'])} names beyond 2 %")
    report.data[f"{model}.medians"] = result


def judge_sums(report, model, final):
    if not final.rows(GPU_TRACE):
        report.check(f"{model}: tables equal the sums of the raw records", False, f"no {GPU_TRACE}")
        return
    compared, wrong = check_sums(final)
    report.check(f"{model}: tables equal the sums of the raw records", compared > 0 and not wrong,
                 f"{compared} rows; " + "; ".join(wrong[:2]))
    report.data[f"{model}.sums"] = wrong


def judge_run(report, model, final, rounds):
    run_json = final.run_json()
    report.data[f"{model}.run"] = run_json
    report.check(f"{model}: nothing lost", not final.lost(), final.lost() or "")
    windows = run_json["windows"]
    report.check(f"{model}: a window for every start and stop", len(windows) >= rounds and
                 all(w["state"] == "closed" for w in windows), f"{len(windows)} windows, {rounds} rounds compared")


def judge_library_calls(report, model, final):
    """Compares the time of kernels launched by library calls, by library, which the hooks attribute."""
    rows = final.rows("library_sum.csv")
    by_library = {}
    for row in rows:
        by_library[row["Library"]] = by_library.get(row["Library"], 0) + int(row["GPU Time (ns)"])
    total = sum(by_library.values())
    shares = {name: round(100 * time / total, 1) for name, time in by_library.items()} if total else {}
    report.data[f"{model}.library_time_percent"] = shares
    libraries = {"resnet50": ("cudnn", "cublas"), "transformer": ("cublas",), "deepspeech2": ("cudnn", "cublas")}[model]
    report.check(f"{model}: library calls have kernels", all(any(part in name.lower() for name, time in by_library.items() if time)
                                                          for part in libraries), shares)


def compare_model(options, report, model, rounds, steps=10, shortest=0.5):
    for release in ("teardown", "finalize"):
        result, work, out = run_child(options, model, rounds, steps, release, shortest)
        pairs = load(work, rounds)
        if len(pairs) == rounds or rounds == 1:
            break
        print(f"{model}: {len(pairs)} of {rounds} rounds with {release}: {result.why()}")
    report.check(f"{model}: program ends as without the preload", result.rc == 0, result.why() if result.rc else "")
    report.check(f"{model}: rounds completed", len(pairs) == rounds, f"{len(pairs)} of {rounds}")
    found = folders(out)
    report.check(f"{model}: one output folder", len(found) == 1, ", ".join(map(os.path.basename, found)))
    if pairs:
        report.guarded(f"{model}: counts", judge_counts, report, model, pairs)
    if found:
        final = Folder(found[0])
        if pairs:
            report.guarded(f"{model}: medians", judge_medians, report, model, final, pairs)
        report.guarded(f"{model}: sums", judge_sums, report, model, final)
        report.guarded(f"{model}: run.json", judge_run, report, model, final, len(pairs))
        report.guarded(f"{model}: library calls", judge_library_calls, report, model, final)
