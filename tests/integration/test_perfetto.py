#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""trace.json.gz in Perfetto's own trace processor: it accepts all of it, and interprets it correctly.

usage: test_perfetto.py LIBRARY PROGRAMS SIMULATION NODE ENGINE [TEST...]   ENGINE: the folder that scripts/setup.sh puts the engine into
"""

import collections
import json
import pathlib
import subprocess
import sys

import sanitized
import simulated
import timeline
from timeline import ns

node, engine = sys.argv.pop(4), sys.argv.pop(4)
HERE = pathlib.Path(__file__).resolve().parent

QUERIES = {
    "problems": "select name, value from stats where value != 0 and severity != 'info'",
    "slices": "select category, count(*), sum(dur) from slice group by category",
    "inside": "select name from slice where category in ('kernel', 'gpu_memcpy', 'gpu_memset') and depth > 0",
    "rows": """select process.pid, thread.name, count(*) from slice join thread_track on thread_track.id = slice.track_id
               join thread using (utid) join process using (upid)
               where category in ('kernel', 'gpu_memcpy', 'gpu_memset') group by 1, 2""",
    "arrows": """select b.category, extract_arg(a.arg_set_id, 'args.correlation'), extract_arg(b.arg_set_id, 'args.correlation')
                 from flow join slice a on a.id = slice_out join slice b on b.id = slice_in""",
    "counters": "select name, count(*), sum(value) from counter join counter_track on counter_track.id = track_id group by name",
}


def ask(path):
    done = subprocess.run([node, HERE / "perfetto" / "query.js", engine, path, *QUERIES.values()], capture_output=True, text=True,
                          timeout=60 * sanitized.PACE, check=False)
    if done.returncode != 0:
        # The engine is one long line, which precedes the error.
        raise AssertionError(done.stderr[-2000:])
    return dict(zip(QUERIES, map(json.loads, done.stdout.splitlines()), strict=True))


class Perfetto(simulated.SimulatedTest):
    def test_what_it_makes_of_a_timeline(self):
        text = ("duration:left:30000 duration:right:50000 capture:1 kernel:root:1:1 record:root:1 await:root:2 kernel:left:3:1 "
                "kernel:right:2:2 record:right:2 await:right:1 end_capture:1:x start until_sampling loop:5 [ push:step graph:x:1 kernel:a:5 "
                "copy:h2d:4096 memset:64 gemm range_start:x:load device:1 kernel:b:2 device:0 sync range_end:x pop ] "
                "threads:2 [ name:helper kernel:c:4:own ] sync sleep:20 stop")
        done = self.script(text, devices=2, WINDOW="api", TRACE="csv,chrome", METRICS="auto", METRICS_TIMELINE="1",
                           METRICS_INTERVAL="1ms")
        path = done.out.path / timeline.NAME
        written, read = timeline.Timeline.read(path), ask(path)
        self.assertEqual(read["problems"], [])
        expected = collections.defaultdict(lambda: [0, 0])
        begun = {}
        for event in written.events:
            if event["ph"] == "b":
                begun[event["id"]] = event["ts"]
            if event["ph"] in "Xe":
                sums = expected[event["cat"]]
                sums[0] += 1
                sums[1] += ns(event["dur"]) if event["ph"] == "X" else ns(event["ts"]) - ns(begun[event["id"]])
        self.assertEqual({category: sums for category, *sums in read["slices"]}, expected)
        self.assertEqual(read["inside"], [])
        names = written.names("thread_name")
        rows = collections.Counter((event["pid"], names[event["pid"], event["tid"]]) for event in written.spans(*timeline.GPU))
        self.assertEqual({(pid, name): count for pid, name, count in read["rows"]}, rows)
        self.assertTrue(any("overlapping" in name for _, name in rows))
        # Each ends at the event at which its launch began.
        self.assertEqual(len(read["arrows"]), len(written.phase("s")))
        self.assertEqual([arrow for arrow in read["arrows"] if arrow[0] not in timeline.GPU or arrow[1] != arrow[2]], [])
        samples = collections.defaultdict(list)
        for event in written.phase("C"):
            samples[event["name"]].append(event["args"]["value"])
        self.assertTrue(samples)
        found = collections.Counter()
        for name, count, total in read["counters"]:
            # It adds the name of the argument.
            name = name.removesuffix(" value")
            found[name] += count
            self.assertAlmostEqual(total, sum(samples[name]), places=2)
        self.assertEqual(found, {name: len(values) for name, values in samples.items()})


if __name__ == "__main__":
    simulated.main()
