# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""The timeline of PyTorch programs (INJECT_TRACE=csv,chrome): against the raw records' tables of the same run, against what
torch.profiler counts and exports in windows that alternate with ours, and in HolisticTraceAnalysis, where that is installed.
"""

import collections
import os
import pathlib
import shutil
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, os.pardir, "integration"))

import timeline  # noqa: E402
from compare import describe, load, run_child  # noqa: E402
from gputest import Folder, count_differences, folders, main, module_missing, normalise, subtract  # noqa: E402

# Arguments that Kineto has and we lack: `queued` is always 0 there, cbid is CUPTI's number of a call that has a name, and calls that launch
# nothing have no correlation id in our timeline, because CUPTI's callbacks for them are off.
NOT_OURS = {"kernel": {"queued"}, "gpu_memcpy": set(), "gpu_memset": set(), "cuda_runtime": {"cbid", "External id", "correlation"}}


class Tables:
    """An output folder, in the form that timeline.check() expects."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder.path)
        self.rows, self.run = folder.rows, folder.run_json()


def kernel_counts(found):
    return dict(collections.Counter(normalise(event["name"]) for event in found.spans("kernel")))


def copy_counts(found):
    """By Kineto's names, which are the same as ours: `Memcpy HtoD (Pinned -> Device)`."""
    return dict(collections.Counter(event["name"] for event in found.spans("gpu_memcpy", "gpu_memset")))


def arguments_by_category(events):
    """{category: arguments that each of its events has}"""
    found = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in NOT_OURS:
            names = set(event.get("args", {}))
            found[event["cat"]] = found.get(event["cat"], names) & names
    return found


def missing_arguments(ours, theirs):
    """Arguments that all of their events have, but not all of ours: {category: names}"""
    mine, other = arguments_by_category(ours), arguments_by_category(theirs)
    missing = {category: names - mine.get(category, set()) - NOT_OURS[category] for category, names in other.items()}
    return {category: sorted(names) for category, names in missing.items() if names}


def judge_against_tables(report, model, folder):
    try:
        found = timeline.check(unittest.TestCase(), Tables(folder))
    except AssertionError as error:
        report.check(f"{model}: the timeline is the raw records", False, str(error)[:300])
        return
    report.check(f"{model}: the timeline is the raw records", bool(found.spans("kernel")),
                 f"{len(found.spans('kernel'))} kernels, {len(found.spans(*timeline.APIS))} calls, {len(found.phase('s'))} arrows")


def judge_rows(report, model, folder):
    """Events that overlap on a stream are in separate rows, because viewers would omit them otherwise."""
    found = timeline.Timeline.read(os.path.join(folder.path, timeline.NAME))
    work = found.spans(*timeline.GPU)
    beside = [event for event in work if event["tid"] != event["args"]["stream"]]
    wrong = timeline.overlaps(work)
    report.check(f"{model}: nothing overlaps on a row", bool(work) and not wrong,
                 f"{len(beside)} of {len(work)} beside their stream's, {len(wrong)} overlap. {str(wrong[:1])[:300]}")
    on_streams = timeline.overlaps([{**event, "tid": event["args"]["stream"]} for event in work])
    report.check(f"{model}: rows beside streams where something overlaps, and there alone", bool(on_streams) == bool(beside),
                 f"{len(on_streams)} overlaps on streams")


def judge_against_torch(report, model, work, pairs):
    kernels_before, copies_before = {}, {}
    for number, (folder, theirs) in enumerate(pairs, 1):
        found = timeline.Timeline.read(os.path.join(folder.path, timeline.NAME))
        kernels_now, copies_now = kernel_counts(found), copy_counts(found)
        kernels, copies = subtract(kernels_now, kernels_before), subtract(copies_now, copies_before)
        kernels_before, copies_before = kernels_now, copies_now
        differences = count_differences(kernels, {name: len(times) for name, times in theirs["kernels"].items()})
        report.check(f"{model}: kernels, window {number}", bool(kernels) and not differences,
                     f"{sum(kernels.values())} ours. " + describe(differences))
        exported = timeline.Timeline.read(os.path.join(work, f"theirs.{number - 1}.trace.json.gz"))
        differences = count_differences(copies, copy_counts(exported))
        report.check(f"{model}: copies and memsets by torch.profiler's names, window {number}", not differences, describe(differences))
        missing = missing_arguments(found.events, exported.events)
        report.check(f"{model}: torch.profiler's arguments, window {number}", not missing, missing or "")


def judge_in_hta(report, model, folder, work):
    """HolisticTraceAnalysis rounds times to whole microseconds by default, which makes calls of less than a microsecond end before they
    begin (docs/timeline.md)."""
    missing = module_missing("hta")
    if missing:
        report.skip(f"{model}: HolisticTraceAnalysis", missing)
        return
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    from hta.trace_analysis import TraceAnalysis  # pylint: disable=import-outside-toplevel
    alone = os.path.join(work, "hta")
    shutil.rmtree(alone, ignore_errors=True)
    os.makedirs(alone)
    shutil.copy(os.path.join(folder.path, timeline.NAME), alone)
    analysis = TraceAnalysis(trace_dir=alone)
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)
    launches = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]
    report.check(f"{model}: HolisticTraceAnalysis", len(breakdown) == 1 and len(kernels) and len(launches),
                 f"{len(kernels)} kernel names, {len(launches)} launches, idle {breakdown.iloc[0]['idle_time_pctg']} %")


def one_model(options, report, model):
    result, work, out = run_child(options, model, options.rounds, 10, "finalize", trace="csv,chrome", more=("--export",))
    report.check(f"{model}: program ends as without the preload", result.rc == 0, result.why() if result.rc else "")
    pairs, found = load(work, options.rounds), folders(out)
    report.check(f"{model}: rounds completed, one output folder", len(pairs) == options.rounds and len(found) == 1,
                 f"{len(pairs)} of {options.rounds}, {len(found)} folders")
    if not found:
        return
    folder = Folder(found[0])
    report.check(f"{model}: nothing lost", not folder.lost(), folder.lost() or "")
    kernels = sum(folder.kernel_counts().values())
    size = os.path.getsize(os.path.join(folder.path, timeline.NAME))
    print(f"{model}: {size / 1e6:.2f} MB for {kernels} kernels, {size / max(1, kernels):.0f} bytes each")
    report.data[f"{model}.size"] = {"bytes": size, "kernels": kernels}
    report.guarded(f"{model}: tables", judge_against_tables, report, model, folder)
    report.guarded(f"{model}: rows", judge_rows, report, model, folder)
    report.guarded(f"{model}: torch.profiler", judge_against_torch, report, model, work, pairs)
    report.guarded(f"{model}: HolisticTraceAnalysis", judge_in_hta, report, model, folder, work)


def arguments(parser):
    parser.add_argument("--models", default="resnet50,transformer")
    parser.add_argument("--rounds", type=int, default=2)


def test(options, report):
    for model in options.models.split(","):
        report.guarded(model, one_model, options, report, model)


if __name__ == "__main__":
    main("torch_timeline", test, modules=("torch", "torchvision"), arguments=arguments)
