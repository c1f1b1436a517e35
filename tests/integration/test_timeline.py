#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""trace.json.gz: its contents equal the raw records' tables of the same run (timeline.py), arrows and rows fit, and it is complete whenever
it exists.

usage: test_timeline.py LIBRARY PROGRAMS SIMULATION INJECTCTL [TEST...]
"""

import collections
import pathlib
import shlex
import signal
import stat
import subprocess
import sys
import unittest

import sanitized
import simulated
import timeline
from timeline import ns

injectctl = pathlib.Path(sys.argv.pop(4)).resolve()
BOTH = "csv,chrome"
TEMPORARY = "." + timeline.NAME + ".new"
READINGS = ("power (W)", "SM clock (MHz)", "memory clock (MHz)", "temperature (°C)", "memory allocated (MB)", "memory in use (MB)",
            "pinned memory allocated (MB)")


class TimelineTest(simulated.SimulatedTest):
    """Runs of `script` with both formats are checked by timeline.check() if nothing is lost."""

    def timeline(self, text, **options):
        done = self.script(text, **{"WINDOW": "api", "TRACE": BOTH, **options})
        self.assertEqual({kind: done.out.lost().get(kind, 0) for kind in ("trace_rows", "trace_events")},
                         {"trace_rows": 0, "trace_events": 0})
        return done, timeline.Timeline.read(done.out.path / timeline.NAME)


class Contents(TimelineTest):
    def test_all_kinds_of_work(self):
        text = ("start loop:3 [ kernel:alpha:5 copy:h2d:4096 copy:d2h:100 memset:64 gemm device:1 kernel:beta:2 device:0 ] "
                "threads:3 [ name:helper kernel:gamma:4:own ] sync stop")
        done, found = self.timeline(text, devices=2)
        names = collections.Counter(event["name"] for event in found.spans("kernel"))
        self.assertEqual({name: names[name] for name in ("alpha()", "beta()", "gamma()")}, {"alpha()": 15, "beta()": 6, "gamma()": 12})
        self.assertEqual({event["name"] for event in found.spans("gpu_memcpy")},
                         {"Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"})
        # As many arrows as launches.
        submissions = sum(int(row["Submissions"]) for row in done.out.windows())
        self.assertEqual(len(found.phase("s")), submissions)
        threads = found.names("thread_name")
        for row in (*found.spans(*timeline.GPU), *found.spans(*timeline.APIS)):
            self.assertIn((row["pid"], row["tid"]), threads)
        self.assertEqual(sum("helper" in name for name in threads.values()), 3)
        self.assertEqual(found.names("process_name"), {(0, 0): "Simulated H200", (1, 0): "Simulated H200",
                                                       (timeline.host_row(done.out.run["pid"]), 0): "script_cuda"})
        self.assertEqual(len(found.whole["deviceProperties"]), 2)
        self.assertEqual(found.whole["distributedInfo"], {"rank": 0, "world_size": 1})
        self.assertEqual(found.whole["baseTimeNanoseconds"], done.out.run["time_zero"]["utc_ns"])
        self.assertEqual(done.warnings(), [])

    def test_library_calls_are_those_of_their_kernels(self):
        _, found = self.timeline("gemm start loop:4 [ gemm ] stop sync")
        outermost = {event["args"]["External id"] for event in found.spans("cpu_op") if event["name"] == "cublasGemmEx"}
        self.assertEqual(len(outermost), 4)
        calls = {event["args"]["External id"]: event for event in found.spans("cpu_op")}
        for kernel in found.spans("kernel"):
            call = calls[kernel["args"]["External id"]]
            (start,) = [event for event in found.phase("s") if event["id"] == kernel["args"]["correlation"]]
            self.assertLessEqual(call["ts"], start["ts"])
            self.assertLessEqual(ns(start["ts"]), ns(call["ts"]) + ns(call["dur"]))

    def test_ranges(self):
        text = r'start push:step push:in"n\er kernel:a:1 pop pop domain_push:mine:part kernel:a:1 domain_pop:mine ' \
               "range_start:x:load kernel:b:1 sync range_end:x stop"
        done, found = self.timeline(text)
        nested = collections.Counter(event["name"] for event in found.spans("user_annotation"))
        self.assertEqual(nested, {"step": 1, r'in"n\er': 1, "mine:part": 1})
        rows = {row["Range"].removeprefix(":"): int(row["Total Time (ns)"]) for row in done.out.rows("nvtx_sum.csv")}
        lengths = {event["name"]: ns(event["dur"]) for event in found.spans("user_annotation")}
        ((begin,), (end,)) = (found.phase(phase) for phase in "be")
        self.assertEqual((begin["name"], begin["id"]), (end["name"], end["id"]))
        self.assertEqual({**lengths, begin["name"]: ns(end["ts"]) - ns(begin["ts"])}, rows)

    def test_ranges_around_the_window(self):
        # They begin with it, and are still nested.
        _, found = self.timeline("push:epoch push:step push:forward start kernel:a:2 sync pop pop kernel:a:1 sync stop pop")
        begins = {event["name"]: ns(event["ts"]) for event in found.spans("user_annotation")}
        self.assertEqual([begins[name] - begins["epoch"] for name in ("epoch", "step", "forward")], [0, 1, 2])

    def test_a_graph_launch_has_one_arrow(self):
        done, found = self.timeline("gemm capture:1 gemm:1 kernel:own:1:1 end_capture:1:x start loop:5 [ graph:x:1 ] stop sync",
                                    WINDOW="always")
        launches = {event["args"]["correlation"] for event in found.spans("cuda_runtime") if event["name"] == "cudaGraphLaunch"}
        self.assertEqual(len(launches), 5)
        arrows = [event["id"] for event in found.phase("s") if event["id"] in launches]
        self.assertEqual(sorted(arrows), sorted(launches))
        self.assertEqual(done.out.kernels()["own"], 5)

    def test_what_overlaps_on_a_stream(self):
        # A graph's kernels run concurrently, each beginning while another one runs; CUPTI reports the stream of the graph's launch for all.
        text = ("duration:root:1000 duration:left:30000 duration:right:50000 duration:join:1000 "
                "capture:1 kernel:root:1:1 record:root:1 await:root:2 kernel:left:3:1 kernel:right:2:2 record:right:2 await:right:1 "
                "kernel:join:1:1 end_capture:1:x start loop:5 [ graph:x:1 kernel:alone:2:1 ] stop sync")
        for fault in ("", "out_of_order"):
            with self.subTest(fault):
                _, found = self.timeline(text, faults=fault)
                kernels = found.spans("kernel")
                self.assertEqual({event["args"]["stream"] for event in kernels}, {kernels[0]["args"]["stream"]})
                names = found.names("thread_name")
                on_row = collections.Counter((names[event["pid"], event["tid"]].partition(" (")[2], event["name"]) for event in kernels)
                self.assertEqual(sum(on_row.values()), 45)
                # Events that overlap with nothing need no second row.
                self.assertIn("overlapping)", {row for row, _ in on_row})
                self.assertEqual({name: on_row["", name] for name in ("root()", "join()", "alone()")},
                                 {"root()": 5, "join()": 5, "alone()": 10})

    def test_iterations(self):
        text = "start loop:30 [ kernel:first:1 kernel:middle:2 kernel:adam_step:1 sync ] stop"
        done, found = self.timeline(text)
        rows = [row for row in done.out.rows("iteration_sum.csv") if row["Device"] == "all" and row["Iteration"].isdigit()]
        mine = {int(event["name"].removeprefix("ProfilerStep#")): ns(event["dur"]) + 1 for event in found.spans("user_annotation")
                if event["name"].startswith("ProfilerStep#")}
        self.assertGreater(len(mine), 20)
        told = {int(row["Iteration"]): int(row["Duration (ns)"]) for row in rows if row["Duration (ns)"] != ""}
        self.assertEqual({number: mine.get(number) for number in told}, told)

    def test_metrics_are_counters(self):
        text = "start until_sampling kernel:a:200 sync sleep:50 stop"
        done, found = self.timeline(text, METRICS="auto", METRICS_TIMELINE="1", METRICS_INTERVAL="100us")
        counters = collections.Counter()
        for event in found.phase("C"):
            if event["name"] not in READINGS:
                counters[event["pid"], ns(event["ts"]), event["name"], f"{event['args']['value']:.3f}"] += 1
        expected = collections.Counter()
        for row in done.out.rows("metric_samples.csv"):
            for name, value in row.items():
                if name not in ("Device", "Start (ns)", "End (ns)") and value != "":
                    expected[int(row["Device"]), int(row["Start (ns)"]), name, f"{float(value):.3f}"] += 1
        self.assertGreater(len(expected), 0)
        self.assertEqual(counters, expected)

    def test_readings_are_counters(self):
        """Memory as in memory_timeline.csv; power and clocks as on the simulated device."""
        text = ("malloc:a:1000000 kernel:a:1 sync loop:2 [ start malloc:b:2000000 malloc:c:3000000 free:c sleep:300 free:b stop ] "
                "until_calls:nvmlDeviceGetCurrentClocksEventReasons:3")
        done, found = self.timeline(text, env={"CUDASIM_POWER": "step_us=20000,busy_mw=300000,limit_mw=700000"})
        events = [event for event in found.phase("C") if event["pid"] == 0]
        windows = [(window["start_ns"], window["end_ns"]) for window in done.out.run["windows"]]
        self.assertTrue(all(any(start <= ns(event["ts"]) <= end for start, end in windows) for event in events))
        for name, least, most in (("power (W)", 90, 310), ("SM clock (MHz)", 200, 1980), ("temperature (°C)", 20, 90)):
            values = [event["args"]["value"] for event in events if event["name"] == name]
            self.assertGreater(len(values), 1, name)
            self.assertTrue(all(least <= value <= most for value in values), (name, values))
        allocated = [event["args"]["value"] for event in events if event["name"] == "memory allocated (MB)"]
        self.assertEqual(allocated, [1, 3, 6, 3, 1] * 2)
        rows = [row for row in done.out.rows("memory_timeline.csv") if row["Of"] == "in use"]
        self.assertTrue(rows)
        highest = {event["args"]["value"] for event in events if event["name"] == "memory in use (MB)"}
        self.assertLessEqual(highest, {float(row["Highest (MB)"]) for row in rows})
        self.assertEqual(found.names("process_name")[0, 0], "Simulated H200")

    def test_a_rank(self):
        _, found = self.timeline("start kernel:a:1 stop sync", env={"RANK": "3", "WORLD_SIZE": "16"})
        self.assertEqual(found.whole["distributedInfo"], {"rank": 3, "world_size": 16})

    def test_alone(self):
        done = self.script("start kernel:a:1 stop sync", WINDOW="api", TRACE="chrome")
        self.assertEqual(done.out.files(), sorted([*simulated.TABLES, timeline.NAME, "run.json"]))
        self.assertEqual(stat.S_IMODE((done.out.path / timeline.NAME).stat().st_mode), 0o600)
        self.assertEqual([event["name"] for event in timeline.Timeline.read(done.out.path / timeline.NAME).spans("kernel")], ["a()"])


class Whole(TimelineTest):
    """The file exists while no window is open."""

    def test_windows_one_after_the_other(self):
        # Complete after each of them: a program that is killed later leaves what it had.
        out = self.folder / "run1" / "out"
        text = "start kernel:a:3 sync stop flush start kernel:b:4 sync stop flush crash:KILL"
        done = self.script(text, WINDOW="api", TRACE=BOTH, check=False)
        self.assertEqual(done.code, -signal.SIGKILL)
        found = timeline.Timeline.read(out / timeline.NAME)
        self.assertEqual(collections.Counter(event["name"] for event in found.spans("kernel")), {"a()": 3, "b()": 4})
        self.assertEqual(len(found.spans("Trace")), 2)
        timeline.check_arrows(self, found)

    def test_attachments_in_turn(self):
        # CUPTI is finalized after each window, so its correlation ids start over.
        text = "start kernel:a:3 sync stop until_calls:cuptiFinalize:1 start kernel:a:3 sync stop"
        _, found = self.timeline(text)
        self.assertEqual(len({event["id"] for event in found.phase("s")}), 6)

    def test_killed_in_a_window(self):
        text = "sync start kernel:a:20 sync until_text:out/run.json:time_zero until_delivered looks:3 crash:KILL"
        done = self.script(text, WINDOW="api", TRACE=BOTH, check=False)
        self.assertEqual(done.code, -signal.SIGKILL)
        self.assertNotIn(timeline.NAME, done.out.files())
        self.assertIn(TEMPORARY, done.out.files())
        recovered = subprocess.run([injectctl, "recover", done.out.path], capture_output=True, text=True,
                                   timeout=60 * sanitized.PACE, check=False)
        self.assertEqual(recovered.returncode, 0, recovered.stderr)
        self.assertNotIn(TEMPORARY, done.out.files())
        found = timeline.check(self, done.out)
        self.assertEqual(len(found.spans("kernel")), done.out.kernels()["a"])
        self.assertEqual(stat.S_IMODE((done.out.path / timeline.NAME).stat().st_mode), 0o600)

    def test_a_limit_on_the_size_of_files(self):
        # A truncated file is useless, so it is removed. There is space for the tables.
        program = shlex.join([str(simulated.programs / "script_cuda"), *"start kernel:a:20000 stop sync print:done return:3".split()])
        preload = shlex.quote(simulated.preload_of(simulated.library))
        done = self.script("", command=["bash", "-c", f"ulimit -f 256; LD_PRELOAD={preload} {program}"], preload=False, check=False,
                           WINDOW="api", TRACE="chrome", RECOVER="0", env={"CUDASIM_REPORT": ""})
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        (warning,) = done.warnings()
        self.assertIn("trace.json.gz.new: File too large", warning)
        self.assertEqual([name for name in done.out.files() if timeline.NAME in name], [])
        self.assertEqual(done.out.kernels(), {"a": 20_000})
        self.assertGreater(done.out.lost()["trace_events"], 0)


if __name__ == "__main__":
    simulated.main()
