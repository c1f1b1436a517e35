# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Reads trace.json.gz, and compares it with the raw records' tables of the same run."""

import collections
import gzip
import itertools
import json

NAME = "trace.json.gz"
APIS = ("cuda_runtime", "cuda_driver")
GPU = ("kernel", "gpu_memcpy", "gpu_memset")
OVERLAPPING = r" \(overlapping( \d+)?\)"


class Timeline:
    def __init__(self, whole):
        self.whole = whole
        self.events = whole["traceEvents"]

    @classmethod
    def read(cls, path):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            return cls(json.load(file))

    def spans(self, *categories):
        return [event for event in self.events if event["ph"] == "X" and event.get("cat") in categories]

    def phase(self, phase, *categories):
        return [event for event in self.events if event["ph"] == phase and (not categories or event.get("cat") in categories)]

    def names(self, what, argument="name"):
        """{(pid, tid): name} of thread_name, process_name and the like."""
        return {(event["pid"], event["tid"]): event["args"][argument] for event in self.phase("M") if event["name"] == what}


def host_row(pid):
    """The pid under which a program is shown: devices have the numbers below 1024 (timeline_text.h)."""
    return pid if pid >= 1024 else pid + (1 << 22)


def ns(microseconds):
    return round(microseconds * 1000)


def correlation(event):
    # After CUPTI is attached anew, ids start over, and are made unique by an added number.
    return event.get("args", {}).get("correlation", 0) % 2**32


def device_of(row):
    return int(row["Device"].rpartition("(")[2].rstrip(")"))


def check(test, out):
    """For a run with INJECT_TRACE=csv,chrome that lost neither records nor events."""
    timeline = Timeline.read(out.path / NAME)
    rows = out.rows("cuda_gpu_trace.csv")
    work = collections.Counter((device_of(row), int(row["Strm"]), int(row["Start (ns)"]), int(row["Duration (ns)"]), int(row["CorrId"]),
                                row["Name"] if row["GrdX"] else row["Name"] == "[CUDA memset]") for row in rows)
    found = collections.Counter((event["pid"], event["args"]["stream"], ns(event["ts"]), ns(event["dur"]), correlation(event),
                                 event["name"] if event["cat"] == "kernel" else event["cat"] == "gpu_memset")
                                for event in timeline.spans(*GPU))
    test.assertEqual(found, work)
    check_streams(test, timeline)
    calls = collections.Counter((row["Name"].removeprefix("__"), int(row["Tid"]), int(row["Start (ns)"]), int(row["Duration (ns)"]),
                                 int(row["CorrID"])) for row in out.rows("cuda_api_trace.csv"))
    test.assertEqual(collections.Counter((event["name"], event["tid"], ns(event["ts"]), ns(event["dur"]), correlation(event))
                                         for event in timeline.spans(*APIS)), calls)
    library = collections.Counter((row["Name"], int(row["Tid"]), int(row["Start (ns)"]), int(row["Duration (ns)"]))
                                  for row in out.rows("library_trace.csv"))
    test.assertEqual(collections.Counter((event["name"], event["tid"], ns(event["ts"]), ns(event["dur"]))
                                         for event in timeline.spans("cpu_op")), library)
    check_arrows(test, timeline)
    check_rows(test, timeline)
    windows = timeline.spans("Trace")
    listed = {(window["number"], window["start_ns"], window["end_ns"]) for window in out.run["windows"]}
    test.assertEqual({(int(window["name"].split()[1]), ns(window["ts"]), ns(window["ts"]) + ns(window["dur"])) for window in windows},
                     listed)
    return timeline


def check_streams(test, timeline):
    """Work on a stream is on its row, or on an overflow row labelled as such."""
    names, places = timeline.names("thread_name"), timeline.names("thread_sort_index", "sort_index")
    for event in timeline.spans(*GPU):
        row, stream = (event["pid"], event["tid"]), event["args"]["stream"]
        test.assertEqual((event["args"]["device"], places[row]), (event["pid"], stream))
        test.assertRegex(names[row], rf"^stream {stream}{'' if event['tid'] == stream else OVERLAPPING}$")


def check_arrows(test, timeline):
    """From the beginning of the launching call to that of the launched work, one for each known launch."""
    launches = {event["args"]["correlation"]: event for event in timeline.spans(*APIS, "cpu_op") if correlation(event)}
    launched = collections.defaultdict(list)
    for event in timeline.spans(*GPU):
        launched[event["args"]["correlation"]].append((event["pid"], event["tid"], event["ts"]))
    starts = {event["id"]: event for event in timeline.phase("s", "ac2g")}
    ends = {event["id"]: event for event in timeline.phase("f", "ac2g")}
    test.assertEqual((len(starts), len(ends)), (len(timeline.phase("s", "ac2g")), len(timeline.phase("f", "ac2g"))))
    test.assertEqual(set(starts), set(ends))
    test.assertEqual(set(starts), set(launches) & set(launched))
    for number, start in starts.items():
        call = launches[number]
        test.assertEqual((start["pid"], start["tid"], start["ts"]), (call["pid"], call["tid"], call["ts"]))
        end = ends[number]
        test.assertIn((end["pid"], end["tid"], end["ts"]), launched[number])
        test.assertEqual((start["cat"], end["cat"], end["bp"]), ("ac2g", "ac2g", "e"))


def overlaps(events):
    """Pairs of spans on a row that overlap, partly or nested."""
    rows = collections.defaultdict(list)
    for event in events:
        begin = ns(event["ts"])
        rows[event["pid"], event["tid"]].append((begin, begin + ns(event["dur"]), event["name"]))
    found = []
    for spans in map(sorted, rows.values()):
        found += [(before[2], after[2]) for before, after in itertools.pairwise(spans) if after[0] < before[1]]
    return found


def check_rows(test, timeline):
    """Spans on one row are nested or disjoint: Perfetto omits others. Work on a GPU is not nested."""
    test.assertEqual(overlaps(timeline.spans(*GPU)), [])
    rows = collections.defaultdict(list)
    for event in timeline.phase("X"):
        if event.get("cat") in GPU:
            continue
        begin = ns(event["ts"])
        rows[event["pid"], event["tid"]].append((begin, -(begin + ns(event["dur"])), event["name"]))
    for events in rows.values():
        around = []
        for begin, minus_end, name in sorted(events):
            while around and around[-1][0] <= begin:
                around.pop()
            if around:
                test.assertLessEqual(-minus_end, around[-1][0], f"{name} reaches out of {around[-1][1]}")
            around.append((-minus_end, name))
