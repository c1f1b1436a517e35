#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""When windows open and close, and which work belongs to them.

usage: test_windows.py LIBRARY PROGRAMS SIMULATION
"""

import os
import pathlib
import threading
import time

import simulated

NEVER_OPENED = "the program ended before a window opened"


class ProfilerApi(simulated.SimulatedTest):
    def test_the_work_between_start_and_stop(self):
        text = "kernel:before:3 start kernel:inside:5 copy:h2d:1000 stop kernel:after:7 sync return:3"
        for window in ("api", "auto"):
            with self.subTest(window):
                done = self.script(text, WINDOW=window)
                self.assertEqual(done.out.kernels(), {"inside": 5})
                self.assertEqual(done.out.operations(), {"[CUDA memcpy Host-to-Device]": 1})
                self.assertEqual(done.out.reasons(), ["api"])
                self.assertEqual(done.out.lost(), {})
                self.assertEqual(done.out.run["state"], "closed")
                self.assertEqual(done.warnings(), [])
                self.check_unharmed(done, text)

    def test_work_belongs_to_the_window_of_its_launch(self):
        # 12 ms of kernels are queued when the window opens; its own wait for a kernel launched after its end.
        done = self.script("duration:early:3000000 fault:wait_for:late/after kernel:early:4 start kernel:late:2 stop "
                           "kernel:after:2:1 sync", WINDOW="api")
        self.assertEqual(done.out.kernels(), {"late": 2})
        (window,) = done.out.windows()
        last = done.out.rows("cuda_gpu_trace.csv")[-1]
        self.assertGreater(int(last["Start (ns)"]), int(window["End (ns)"]))
        self.assertEqual(done.out.lost(), {})

    def test_work_that_has_not_run_when_the_program_returns(self):
        done = self.script("duration:late:5000000 start kernel:late:10 stop", WINDOW="api")
        self.assertEqual(done.out.kernels(), {"late": 10})
        self.assertEqual(done.out.lost(), {})

    def test_a_window_that_is_open_when_the_program_returns(self):
        done = self.script("kernel:before:1 start kernel:inside:4", WINDOW="api")
        self.assertEqual(done.out.kernels(), {"inside": 4})
        self.assertEqual([row["State"] for row in done.out.windows()], ["closed"])

    def test_a_start_in_an_open_window_and_a_stop_in_none_change_nothing(self):
        done = self.script("stop kernel:a:1 start kernel:b:2 start kernel:c:3 stop kernel:d:4 stop kernel:e:5 sync",
                           WINDOW="api")
        self.assertEqual(done.out.kernels(), {"b": 2, "c": 3})
        self.assertEqual(len(done.out.windows()), 1)

    def test_several_windows(self):
        done = self.script("loop:3 [ start kernel:in:4 stop kernel:out:1 sync ]", WINDOW="api")
        self.assertEqual(done.out.window_kernels(), [4, 4, 4])
        self.assertEqual(done.out.kernels(), {"in": 12})

    def test_as_many_windows_as_asked_for(self):
        done = self.script("loop:5 [ start kernel:in:4 stop sync ]", WINDOW="apix2")
        self.assertEqual(done.out.window_kernels(), [4, 4])

    def test_no_window_is_one_line(self):
        text = "kernel:a:3 sync"
        for window in ("api", "auto"):
            with self.subTest(window):
                done = self.script(text, WINDOW=window)
                self.assertEqual(done.folders(), [])
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(NEVER_OPENED, done.warnings()[0])
                self.assertIn("INJECT_WINDOW=" + window, done.warnings()[0])
                # If hooks see the profiler API, CUPTI is not even loaded before a window opens.
                self.assertEqual([name for name in done.simulated_calls() if name.startswith("cupti")], [])

    def test_cupti_is_given_up_after_a_window(self):
        done = self.script("start kernel:in:4 stop sync until_calls:cuptiFinalize:1 kernel:out:2 sync", WINDOW="api")
        self.assertEqual(done.out.kernels(), {"in": 4})
        calls = done.simulated_calls()
        # Once more for the duration of cuptiFinalize.
        self.assertEqual((calls["cuptiSubscribe"], calls["cuptiUnsubscribe"], calls["cuptiFinalize"]), (2, 1, 1))
        self.assertGreater(done.out.run["windows"][0]["detached_ns"], done.out.run["windows"][0]["end_ns"])
        overhead = done.out.run["overhead"]
        for name in ("open_ns", "close_ns", "write_ns", "drain_cpu_ns", "buffer_callbacks_ns", "activity_buffers"):
            self.assertGreater(overhead[name], 0, name)
        self.assertLess(overhead["buffer_callbacks_ns"], 1_000_000_000)

    def test_windows_far_apart_attach_anew(self):
        done = self.script("start kernel:a:4 stop sync until_calls:cuptiFinalize:1 sleep:1300 start kernel:b:2 stop sync", WINDOW="api")
        self.assertEqual(done.out.window_kernels(), [4, 2])
        self.assertEqual(done.out.run["overhead"]["attachments"], 2)


class EveryIteration(simulated.SimulatedTest):
    """A program that brackets every iteration keeps its speed: no attachment and no file per iteration."""

    def test_counts_attachments_and_writes(self):
        seen = set()
        ended = threading.Event()
        begin = time.monotonic()

        def watch(path):
            while not ended.wait(0.003):
                try:
                    seen.add(os.stat(path).st_mtime_ns)
                except OSError:
                    pass

        watcher = threading.Thread(target=watch, args=(self.folder / "run1" / "out" / "run.json",))
        watcher.start()
        try:
            done = self.script("loop:300 [ start kernel:a:3 copy:h2d:64 stop kernel:b:2 sleep:4 ] sync", WINDOW="api")
        finally:
            seconds = time.monotonic() - begin
            ended.set()
            watcher.join()
        self.assertEqual(done.out.kernels(), {"a": 900})
        self.assertEqual(done.out.operations(), {"[CUDA memcpy Host-to-Device]": 300})
        self.assertEqual(done.out.window_kernels(), [3] * 300)
        self.assertEqual(done.out.lost(), {})
        run = done.out.run
        pauses = simulated.pauses(run)
        self.assertLessEqual(run["overhead"]["attachments"], 2 + 2 * pauses)
        self.assertLessEqual(done.simulated_calls()["cuptiFinalize"], 2 + 2 * pauses)
        self.assertGreater((run["windows"][-1]["end_ns"] - run["windows"][0]["start_ns"]) / 1e9, 1)
        # When the first window opens and closes, once a second, at the end, and when CUPTI is detached and attached.
        self.assertLessEqual(len(seen), seconds + 4 + 2 * pauses)

    def test_a_program_without_hooks(self):
        # Between CUPTI's detachment after the first window and its attachment for the two calls, no call is seen.
        done = self.script("init start kernel:a:3 stop flush loop:149 [ start kernel:a:3 stop kernel:b:2 sleep:4 ] sync", program="driver",
                           WINDOW="api")
        windows = done.out.window_kernels()
        self.assertEqual(set(windows), {3})
        # First the two calls are watched, then a window, the two calls again, and from the second window on everything. Each pause adds two
        # changes: the two calls alone, then everything.
        pauses = simulated.pauses(done.out.run)
        self.assertTrue(150 - pauses <= len(windows) <= 150, windows)
        self.assertLessEqual(done.simulated_calls()["cuptiFinalize"], 2 + 2 * pauses)
        self.assertLessEqual(done.simulated_calls()["cuptiSubscribe"], 3 + 2 * pauses)


class DriverApi(simulated.SimulatedTest):
    """Nothing that can be hooked: CUPTI sees cuProfilerStart and cuProfilerStop, twice each."""

    def test_the_work_between_start_and_stop(self):
        text = "kernel:before:3 start kernel:inside:5 copy:1000 stop kernel:after:7 sync return:4"
        for window in ("api", "auto"):
            with self.subTest(window):
                done = self.script(text, program="driver", WINDOW=window)
                self.assertEqual(done.out.kernels(), {"inside": 5})
                self.assertEqual(done.out.operations(), {"[CUDA memcpy Host-to-Device]": 1})
                self.assertEqual(done.out.reasons(), ["api"])
                self.assertEqual(done.out.lost(), {})
                self.assertEqual(done.warnings(), [])
                self.check_unharmed(done, text, program="driver")

    def test_several_windows(self):
        done = self.script("init loop:3 [ start kernel:in:4 stop kernel:out:1 sync ]", program="driver", WINDOW="api")
        self.assertEqual(done.out.window_kernels(), [4, 4, 4])

    def test_windows_far_apart(self):
        # CUPTI is detached in between, except for the two calls.
        done = self.script("init start kernel:a:4 stop sync flush sleep:1300 kernel:out:1 start kernel:b:2 stop sync", program="driver",
                           WINDOW="api")
        self.assertEqual(done.out.window_kernels(), [4, 2])
        self.assertEqual(done.out.lost(), {})

    def test_outside_windows_only_the_profiler_calls_are_watched(self):
        done = self.script("kernel:a:3 sync", program="driver", WINDOW="api")
        calls = done.simulated_calls()
        self.assertEqual(calls["cuptiSubscribe"], 1)
        # Start, stop, and CUPTI's own fatal errors.
        self.assertEqual(calls["cuptiEnableCallback"], 3)
        self.assertEqual(calls["cuptiEnableDomain"] + calls["cuptiActivityEnable"], 0)
        self.assertIn(NEVER_OPENED, done.warnings()[0])


class Always(simulated.SimulatedTest):
    def test_everything(self):
        text = "kernel:a:3 copy:h2d:100 memset:50 sync kernel:b:2"
        for program, changed in (("cuda", {}), ("driver", {"memset:50 ": "", "h2d:": ""})):
            with self.subTest(program):
                words = text
                for old, new in changed.items():
                    words = words.replace(old, new)
                done = self.script(words, program=program, WINDOW="always")
                self.assertEqual(done.out.kernels(), {"a": 3, "b": 2})
                self.assertEqual(done.out.operations()["[CUDA memcpy Host-to-Device]"], 1)
                self.assertEqual(done.out.reasons(), ["always"])
                self.assertEqual(done.out.lost(), {})

    def test_the_profiler_api_does_nothing(self):
        done = self.script("kernel:a:3 start kernel:b:3 stop kernel:c:2 sync", WINDOW="always")
        self.assertEqual(done.out.kernels(), {"a": 3, "b": 3, "c": 2})
        self.assertEqual(len(done.out.windows()), 1)


class Off(simulated.SimulatedTest):
    def test_nothing(self):
        text = "kernel:a:3 start kernel:b:3 stop open close sync return:7"
        done = self.script(text, WINDOW="off")
        self.assertEqual((done.code, done.stderr, done.folders()), (7, "", []))
        self.assertEqual([name for name in done.simulated_calls() if name.startswith("cupti")], [])
        self.check_unharmed(done, text)


class Time(simulated.SimulatedTest):
    # Kernels from before the window opens until it has closed by itself, however late that is on a busy machine.
    LAUNCHES = "kernel:a:1 loop:10 [ kernel:a:1 sleep:3 ] until_open while_open [ kernel:a:1 sleep:3 ] kernel:a:3 sync"

    def check_edges(self, done, kernel):
        """The window's kernels are those launched during it; the trace has their starts, and the stream was idle."""
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        starts = [start - base for _, name, _, _, _, start, _ in done.device_work() if kernel in name]
        for row in done.out.windows():
            begin, end = int(row["Start (ns)"]), int(row["End (ns)"])
            # The simulation takes 2 µs from the launch call to the kernel's start; a launch in progress at an edge may be in or out,
            # however long it takes: there is one thread.
            margin = 1_000_000
            surely = sum(begin + margin < start < end - margin for start in starts)
            perhaps = sum(begin - margin < start < end + margin for start in starts)
            self.assertLessEqual(surely - 2, int(row["Kernels"]))
            self.assertLessEqual(int(row["Kernels"]), perhaps + 2)

    def test_a_window_by_time(self):
        done = self.script(self.LAUNCHES, WINDOW="time:100ms+400ms")
        (window,) = done.out.windows()
        self.assertEqual(window["Reason"], "time:100ms+400ms")
        self.assertGreaterEqual(int(window["Start (ns)"]), 100_000_000)
        self.assertGreaterEqual(int(window["Duration (ns)"]), 400_000_000)
        self.assertGreater(int(window["Kernels"]), 3)
        self.check_edges(done, "a")
        self.assertEqual(done.out.lost(), {})

    def test_again_and_again(self):
        done = self.script("loop:450 [ kernel:a:1 sleep:3 ] sync", WINDOW="time:50ms+30ms/100msx3")
        starts = [int(row["Start (ns)"]) for row in done.out.windows()]
        self.assertEqual(len(starts), 3)
        # From start to start: however late one was, the next one is not delayed.
        self.assertGreaterEqual(starts[0], 50_000_000)
        turns = [(start - 50_000_000) // 100_000_000 for start in starts]
        self.assertEqual(turns, sorted(set(turns)))
        self.check_edges(done, "a")
        # They are closer together than a second: one attachment.
        self.assertLessEqual(done.out.run["overhead"]["attachments"], 2 + 2 * simulated.pauses(done.out.run))

    def test_a_program_without_hooks(self):
        done = self.script("init " + self.LAUNCHES, program="driver", WINDOW="time:50ms+400ms")
        self.assertGreater(done.out.window_kernels()[0], 2)
        self.check_edges(done, "a")

    def test_a_window_that_is_open_when_the_program_returns(self):
        done = self.script("kernel:a:3 until_open loop:20 [ kernel:a:1 sleep:2 ]", WINDOW="time:20ms+1h")
        (window,) = done.out.windows()
        self.assertEqual(window["State"], "closed")
        self.assertGreaterEqual(int(window["Kernels"]), 20)
        self.check_edges(done, "a")

    def test_a_program_that_ends_before(self):
        done = self.script("kernel:a:3 sync", WINDOW="time:1h+1s")
        self.assertEqual(done.folders(), [])
        self.assertIn(NEVER_OPENED, done.warnings()[0])


class Launch(simulated.SimulatedTest):
    def test_exactly_those_launches(self):
        for program in ("cuda", "driver"):
            with self.subTest(program):
                done = self.script("kernel:a:10 kernel:b:10 kernel:c:10 sync", program=program, WINDOW="launch:5+10")
                self.assertEqual(done.out.kernels(), {"a": 5, "b": 5})
                self.assertEqual(done.out.reasons(), ["launch:5+10"])
                self.assertEqual(done.out.lost(), {})

    def test_from_the_first_launch_on(self):
        done = self.script("kernel:a:3 kernel:b:3 sync", WINDOW="launch:0+4")
        self.assertEqual(done.out.kernels(), {"a": 3, "b": 1})

    def test_whatever_launches(self):
        done = self.script("kernel:a:4 runtime_kernel:b:2 gemm copy:h2d:64 capture:1 kernel:g:2:1 end_capture:1:x "
                           "graph:x:1 kernel:c:4 sync", WINDOW="launch:5+6")
        # b, the GEMM, two that were captured and ran in no window of their own, the graph (one launch, whatever it runs) and c; a copy does
        # not count.
        self.assertEqual(done.out.kernels(), {"b": 1, "sm90_lt_matmul_128x128": 1, "g": 2, "c": 1})

    def test_eight_threads(self):
        done = self.script("threads:8 [ kernel:k:1000:own ] sync", WINDOW="launch:2000+3000")
        self.assertEqual(done.out.kernels(), {"k": 3000})
        self.assertEqual(done.out.lost(), {})

    def test_eight_threads_again_and_again(self):
        done = self.script("threads:8 [ kernel:k:1000:own ] sync", WINDOW="launch:1000+500/2000")
        self.assertEqual(set(done.out.window_kernels()), {500})
        self.assertLessEqual(len(done.out.windows()), 4)

    def test_again_and_again(self):
        done = self.script("loop:12 [ kernel:k:10 sleep:30 ] sync", WINDOW="launch:10+5/20x3")
        self.assertEqual(done.out.window_kernels(), [5, 5, 5])
        self.assertEqual(done.out.kernels(), {"k": 15})

    def test_a_burst_has_whole_windows_or_none(self):
        # Windows that follow each other faster than our own thread looks are skipped, never cut.
        done = self.script("kernel:k:20000 sync", WINDOW="launch:10+5/20")
        self.assertEqual(set(done.out.window_kernels()), {5})

    def check_own_times(self, out, count, length):
        """That many windows, each with its launches between its own edges, or without times and counted as such."""
        windows = out.windows()
        self.assertEqual([row["Window"] for row in windows], [str(number) for number in range(1, count + 1)])
        self.assertEqual(out.window_kernels(), [length] * count)
        timed = [row for row in windows if row["Start (ns)"] and row["End (ns)"]]
        edges = [int(row[edge]) for row in timed for edge in ("Start (ns)", "End (ns)")]
        self.assertEqual(edges, sorted(edges))
        blank = [row for row in windows if row not in timed]
        self.assertTrue(all(row["Start (ns)"] == row["End (ns)"] == row["Duration (ns)"] == "" for row in blank))
        self.assertEqual(out.run["lost"].get("window_times", 0), len(blank))

    def test_every_window_of_a_burst_has_its_own_times(self):
        for threads in (1, 4):
            for window, count in (("launch:0+10/20x300", 300), ("launch:3+1/2x1500", 1500), ("launch:0+5/5x600", 600)):
                with self.subTest(window, threads=threads):
                    done = self.script(f"threads:{threads} [ kernel:k:{8000 // threads}:own ] sync", WINDOW=window)
                    self.check_own_times(done.out, count, int(window.split("+")[1].split("/")[0]))

    def test_a_window_that_is_open_when_the_program_returns(self):
        done = self.script("kernel:a:10 kernel:b:3", WINDOW="launch:8+100")
        self.assertEqual(done.out.kernels(), {"a": 2, "b": 3})
        self.assertEqual([row["State"] for row in done.out.windows()], ["closed"])

    def test_too_few_launches(self):
        done = self.script("kernel:a:10 sync", WINDOW="launch:10+5")
        self.assertEqual(done.folders(), [])
        self.assertIn(NEVER_OPENED, done.warnings()[0])


class OwnApi(simulated.SimulatedTest):
    """include/inject/inject.h, through weak symbols."""

    def test_without_the_preload(self):
        done = self.script("is_open open is_open close flush", preload=False)
        self.assertEqual(done.stdout.split("\n"), ["is_open: 0", "open: -1", "is_open: 0", "close: -1", "flush: -1", ""])

    def test_a_window(self):
        for program in ("cuda", "driver"):
            with self.subTest(program):
                done = self.script("kernel:a:2 is_open open is_open open kernel:b:3 close is_open close kernel:c:4 sync",
                                   program=program)
                self.assertEqual(done.stdout.split("\n"), ["is_open: 0", "open: 0", "is_open: 1", "open: -1", "close: 0",
                                                           "is_open: 0", "close: -1", ""])
                self.assertEqual(done.out.kernels(), {"b": 3})
                self.assertEqual(done.out.reasons(), ["inject_start"])

    def test_before_cuda_is_initialised(self):
        done = self.script("open kernel:a:2 close kernel:b:1 sync")
        self.assertEqual(done.stdout.split("\n"), ["open: 0", "close: 0", ""])
        self.assertEqual(done.out.kernels(), {"a": 2})

    def test_a_flush_does_not_wait_for_windows_that_open_meanwhile(self):
        done = self.script("loop:60 [ kernel:k:1 sync sleep:5 ] flush quick_exit:5", WINDOW="time:0s+20ms/40ms")
        self.assertEqual((done.code, done.stdout), (5, "flush: 0\n"))
        self.assertGreater(done.out.kernels()["k"], 0)

    def test_what_is_flushed_outlives_a_program_that_is_cut_off(self):
        done = self.script("open kernel:a:2 close flush quick_exit:5")
        self.assertEqual((done.code, done.stdout), (5, "open: 0\nclose: 0\nflush: 0\n"))
        self.assertEqual(done.out.kernels(), {"a": 2})
        self.assertEqual(done.out.run["state"], "closed")

    def test_closes_the_window_of_another_trigger(self):
        done = self.script("kernel:a:2 close kernel:b:2 is_open sync", WINDOW="always")
        self.assertEqual(done.stdout, "close: 0\nis_open: 0\n")
        self.assertEqual(done.out.kernels(), {"a": 2})


class Graphs(simulated.SimulatedTest):
    def test_every_kernel_of_a_graph(self):
        done = self.script("capture:1 kernel:g:3:1 kernel:h:1:1 end_capture:1:x start graph:x:1 graph:x:1 stop graph:x:1 sync",
                           WINDOW="api")
        self.assertEqual(done.out.kernels(), {"g": 6, "h": 2})
        self.assertEqual(done.out.calls()["cudaGraphLaunch"], 2)
        self.assertEqual(done.out.windows()[0]["Submissions"], "2")
        self.assertEqual(done.out.lost(), {})

    def test_a_capture_in_a_window_runs_nothing(self):
        text = "start capture:1 kernel:g:3:1 copy:h2d:64:1 end_capture:1:x stop graph:x:1 sync"
        done = self.script(text.replace("copy:h2d:64:1 ", ""), WINDOW="api")
        self.assertEqual(done.out.kernels(), {})
        self.assertEqual(done.out.lost(), {})
        self.check_unharmed(done, text.replace("copy:h2d:64:1 ", ""))

    def test_a_capture_and_its_graph_in_a_window(self):
        done = self.script("start capture:1 kernel:g:3:1 end_capture:1:x kernel:k:1 graph:x:1 stop sync", WINDOW="api")
        self.assertEqual(done.out.kernels(), {"g": 3, "k": 1})
        self.assertEqual(done.out.lost(), {})

    def test_edges_inside_a_capture(self):
        # A capture in global mode makes many calls fail: ours must not be among those that invalidate it.
        text = ("capture:1 kernel:g:2:1 start kernel:g:1:1 sleep:20 stop kernel:g:1:1 sleep:50 kernel:g:1:1 "
                "end_capture:1:x graph:x:1 sync")
        for window, kernels in (("api", {}), ("always", {"g": 5}), ("launch:1+2", None), ("time:5ms+20ms", None)):
            with self.subTest(window):
                done = self.script(text, WINDOW=window)
                self.check_unharmed(done, text)
                if kernels is not None:
                    self.assertEqual(done.out.kernels(), kernels)

    def test_a_capture_whose_graph_nobody_asks_for(self):
        """As after cudaStreamBeginCaptureToGraph: the program already has the graph."""
        text = "capture:1 kernel:g:2:1 end_capture:1 start kernel:k:1 stop sync print:done"
        for window in ("api", "off"):
            done = self.script(text, WINDOW=window)
            self.assertIn("done", done.stdout)
            self.check_unharmed(done, text)

    def test_a_graph_between_the_edges_of_captures(self):
        text = "capture:1 kernel:g:2:1 start kernel:g:1:1 end_capture:1:x graph:x:1 capture:2 kernel:h:1:2 stop end_capture:2:y sync"
        done = self.script(text, WINDOW="api")
        self.assertEqual(done.out.kernels(), {"g": 3})
        self.assertEqual(done.out.lost(), {})
        self.check_unharmed(done, text)


class Concurrency(simulated.SimulatedTest):
    def test_several_devices(self):
        done = self.script("device:0 copy:h2d:1 device:1 copy:h2d:1 start device:0 kernel:a:2 copy:h2d:2000000 device:1 "
                           "kernel:a:3 kernel:b:1 memset:5000 stop device:0 sync device:1 sync", WINDOW="api", devices=2)
        self.assertEqual(done.out.kernels(), {"a": 5, "b": 1})
        rows = {row["Device"]: row for row in done.out.rows("window_sum.csv")}
        self.assertEqual({device: (row["Kernels"], row["Copies"], row["Memsets"]) for device, row in rows.items()},
                         {"all": ("6", "1", "1"), "0": ("2", "1", "0"), "1": ("4", "0", "1")})
        self.assertEqual(rows["0"]["Copy Size (MB)"], "2.000")
        self.assertEqual(rows["1"]["Memset Size (MB)"], "0.005")
        self.assertEqual([device["id"] for device in done.out.run["devices"]], [0, 1])

    def test_streams_that_overlap_are_busy_once(self):
        # The first one ends once all have been launched.
        done = self.script("kernel:a:1:1 kernel:a:1:2 kernel:a:1:3 sync fault:wait_for:hold/free start kernel:hold:1:1 kernel:a:40:1 "
                           "kernel:b:40:2 kernel:free:1:3 stop sync", WINDOW="api")
        (row,) = done.out.windows()
        self.assertLess(int(row["GPU Busy (ns)"]), int(row["Kernel Time (ns)"]))
        self.assertLessEqual(int(row["GPU Busy (ns)"]), int(row["GPU Span (ns)"]))

    def test_several_streams(self):
        done = self.script("kernel:a:1:1 kernel:a:1:2 start kernel:a:2:1 kernel:b:3:2 kernel:c:1:0 stop sync", WINDOW="api")
        streams = {}
        for row in done.out.rows("cuda_gpu_trace.csv"):
            streams.setdefault(row["Strm"], []).append(row["Name"])
        self.assertEqual(sorted(streams.values()), [["a()", "a()"], ["b()", "b()", "b()"], ["c()"]])

    def test_32_threads(self):
        done = self.script("start threads:32 [ kernel:t:500:own copy:d2d:16:own stream_sync:own ] stop sync", WINDOW="api")
        self.assertEqual(done.out.kernels(), {"t": 16_000})
        self.assertEqual(done.out.operations(), {"[CUDA memcpy Device-to-Device]": 32})
        rows = done.out.rows("thread_kern_sum.csv")
        self.assertEqual([row["Instances"] for row in rows], ["500"] * 32)
        self.assertEqual(len({row["TID"] for row in rows}), 32)
        self.assertLessEqual(set(done.out.lost()), simulated.LOST_TO_PACE)

    def test_windows_over_threads_that_launch_without_pause(self):
        # Edges are anywhere: every recorded kernel did run (checked by each test), and none is missing.
        text = "background [ threads:8 [ kernel:t:4000:own ] ] loop:10 [ sleep:10 start sleep:8 stop ] join sync"
        done = self.script(text, WINDOW="api")
        self.assertEqual(len(done.out.windows()), 10)
        self.assertEqual(done.out.lost(), {})
        self.check_unharmed(done, text)

    def test_names_of_threads(self):
        done = self.script("start threads:2 [ name:worker kernel:t:2:own stream_sync:own ] kernel:m:5 stop sync", WINDOW="api")
        rows = [(row["Thread Name"], row["Instances"]) for row in done.out.rows("thread_kern_sum.csv")]
        self.assertEqual(sorted(rows)[1:], [("worker", "2"), ("worker", "2")])
        self.assertEqual(sorted(rows)[0][1], "5")

    def test_threads_that_start_and_stop(self):
        # The others' stops may cancel each start before its window opens: the last start has none beside it.
        done = self.script("threads:4 [ loop:20 [ start kernel:t:5:own stop ] ] start kernel:t:7 stop sync", WINDOW="api")
        self.assertEqual(done.out.lost(), {})
        *others, last = done.out.window_kernels()
        self.assertEqual(last, 7)
        self.assertLessEqual(sum(others), 400)


class Tables(simulated.SimulatedTest):
    def test_launch_shapes(self):
        done = self.script("start kernel:a:2:0:7:64 kernel:a:1:0:8:64 kernel:b:1:0:7:64 stop sync", WINDOW="api")
        rows = [(row["Name"], row["GridXYZ"], row["BlockXYZ"], row["Instances"])
                for row in done.out.rows("cuda_gpu_kern_gb_sum.csv")]
        self.assertEqual(sorted(rows), [("a()", "   7    1    1", "  64    1    1", "2"),
                                        ("a()", "   8    1    1", "  64    1    1", "1"),
                                        ("b()", "   7    1    1", "  64    1    1", "1")])

    def test_statistics_of_known_durations(self):
        done = self.script("start duration:k:1000 kernel:k:1 duration:k:2000 kernel:k:1 duration:k:6000 kernel:k:1 stop sync",
                           WINDOW="api")
        (row,) = done.out.rows("cuda_gpu_kern_sum.csv")
        self.assertEqual(row, {"Time (%)": "100.0", "Total Time (ns)": "9000", "Instances": "3", "Avg (ns)": "3000.0",
                               "Med (ns)": "2000.0", "Min (ns)": "1000", "Max (ns)": "6000", "StdDev (ns)": "2645.8",
                               "Name": "k()"})

    def test_copies(self):
        done = self.script("start copy:h2d:1000000 copy:h2d:3000000 copy:d2h:1000000:1 copy:d2d:1000000 memset:1000 memset:0 "
                           "copy:h2d:0 stop sync", WINDOW="api")
        rows = {row["Operation"]: row for row in done.out.rows("cuda_gpu_mem_time_sum.csv")}
        # 10,000 bytes per microsecond to and from the device, a hundred times that within it.
        self.assertEqual({name: (row["Count"], row["Total Time (ns)"], row["Max (ns)"]) for name, row in rows.items()},
                         {"[CUDA memcpy Host-to-Device]": ("2", "400000", "300000"),
                          "[CUDA memcpy Device-to-Host]": ("1", "100000", "100000"),
                          "[CUDA memcpy Device-to-Device]": ("1", "1000", "1000"),
                          "[CUDA memset]": ("1", "1", "1")})
        sizes = {row["Operation"]: row["Total (MB)"] for row in done.out.rows("cuda_gpu_mem_size_sum.csv")}
        self.assertEqual(sizes["[CUDA memcpy Host-to-Device]"], "4.000")
        self.assertEqual(sizes["[CUDA memset]"], "0.001")
        self.assertEqual(done.out.lost(), {})


if __name__ == "__main__":
    simulated.main()
