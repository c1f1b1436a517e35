#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Windows opened by NVTX ranges and by signals, schedules of every trigger, and the messages if none opened.

usage: test_triggers.py LIBRARY PROGRAMS SIMULATION
"""

import simulated

NEVER_OPENED = "the program ended before a window opened"
PROFILER_CALLS = ("cudaProfilerStart", "cudaProfilerStop")


class TriggerTest(simulated.SimulatedTest):
    def check_windows(self, done, kernels, windows=1):
        self.assertEqual(done.out.kernels(), kernels)
        self.assertEqual(len(done.out.windows()), windows)
        self.assertEqual(done.out.lost(), {})
        self.assertEqual({row["State"] for row in done.out.windows()}, {"closed"})
        self.assertEqual(done.warnings(), [])

    def check_none(self, done, *why):
        self.assertEqual(done.folders(), [])
        line = done.warnings()[-1]
        self.assertIn(NEVER_OPENED, line)
        for text in why:
            self.assertIn(text, line)
        return line


class Ranges(TriggerTest):
    def test_the_work_in_a_range(self):
        text = "kernel:before:3 push:step kernel:in:5 copy:h2d:1000 pop kernel:after:7 sync return:3"
        done = self.script(text, WINDOW="nvtx:step")
        self.check_windows(done, {"in": 5})
        self.assertEqual(done.out.operations(), {"[CUDA memcpy Host-to-Device]": 1})
        self.assertEqual(done.out.reasons(), ['nvtx:"step"'])
        # The range is within its window, and is not cut by it.
        self.assertEqual(done.out.ranges(), {("step", "PushPop"): 1})
        self.assertEqual(done.out.windows()[0]["Clipped Ranges"], "0")
        self.check_unharmed(done, text)

    def test_as_an_api_window_at_the_same_calls(self):
        # One program, both marks at the same places: whichever opens the window, its tables have the same counts.
        texts = {
            "one": "kernel:a:3 {start} kernel:b:5 copy:h2d:1000 memset:64 gemm kernel:c:1:1 {stop} kernel:d:2 sync",
            "several": "gemm loop:25 [ kernel:a:1 {start} kernel:b:3 copy:d2h:64:1 gemm {stop} kernel:c:2 ] sync",
            "far apart": "{start} kernel:a:4 {stop} sync until_calls:cuptiFinalize:1 kernel:b:1 {start} kernel:c:2 {stop} sync",
            "queued": "duration:early:3000000 duration:late:10000000 kernel:early:4 {start} kernel:late:3 {stop} "
                      "kernel:x:2 sync",
            "to the end": "kernel:a:2 {start} kernel:b:2 copy:h2d:8",
            "graph": "capture:1 kernel:g:3:1 end_capture:1:x {start} graph:x:1 graph:x:1 {stop} graph:x:1 sync",
            "in a capture": "capture:1 kernel:g:2:1 {start} kernel:g:1:1 end_capture:1:x graph:x:1 capture:2 kernel:h:1:2 "
                            "{stop} end_capture:2:y sync",
            "threads": "{start} threads:8 [ kernel:t:50:own copy:d2d:16:own stream_sync:own ] {stop} kernel:u:9 sync",
        }
        marks = {"api": ("push:step start", "stop pop"), "nvtx:step": ("start push:step", "pop stop")}
        for name, text in texts.items():
            with self.subTest(name):
                found = []
                for window, (start, stop) in marks.items():
                    words = text.format(start=start, stop=stop)
                    done = self.script(words, WINDOW=window)
                    self.check_unharmed(done, words)
                    out = done.out
                    calls = {call: count for call, count in out.calls().items() if call not in PROFILER_CALLS}
                    found.append((out.kernels(), out.operations(), calls, out.window_kernels(), out.libraries(), out.lost()))
                self.assertEqual(found[0], found[1])

    def test_start_and_end(self):
        done = self.script("kernel:a:1 range_start:x:step kernel:b:2 range_end:x kernel:c:3 sync", WINDOW="nvtx:step")
        self.check_windows(done, {"b": 2})

    def test_start_on_one_thread_and_end_on_another(self):
        done = self.script("kernel:a:1 range_start:x:step kernel:b:2 background [ kernel:b:1:own range_end:x kernel:c:1:own ] "
                           "join range_end:x kernel:d:3 sync", WINDOW="nvtx:step")
        self.check_windows(done, {"b": 3})

    def test_registered_and_wide_names(self):
        done = self.script("kernel:a:1 registered:step kernel:b:2 pop kernel:c:1 wide:step kernel:b:2 pop kernel:c:1 sync",
                           WINDOW="nvtx:step")
        self.check_windows(done, {"b": 4}, windows=2)

    def test_domains(self):
        text = ("kernel:x:1 push:step kernel:default:1 pop domain_push:lib:step kernel:lib:1 domain_pop:lib "
                "domain_start:k:other:step kernel:other:1 range_end:k sync")
        for window, inside in (("nvtx:step", ["default"]), ("nvtx:step@lib", ["lib"]), ("nvtx:step@o*", ["other"]),
                               ("nvtx:step@*", ["default", "lib", "other"]), ("nvtx:*@?*", ["lib", "other"])):
            with self.subTest(window):
                self.check_windows(self.script(text, WINDOW=window), {name: 1 for name in inside}, windows=len(inside))

    def test_names_with_wildcards(self):
        text = " ".join(f"push:{name} kernel:k{i}:1 pop" for i, name in
                        enumerate(["step", "step_1", "step_12", "Step", "a*b", "axb"]))
        for window, inside in (("nvtx:step*", [0, 1, 2]), ("nvtx:step_?", [1]), ("nvtx:*1*", [1, 2]), ("nvtx:?tep", [0, 3]),
                               ("nvtx:a*b", [4, 5]), (r"nvtx:a\*b", [4]), (r'nvtx:"a\*b"', [4]), ("nvtx:*", range(6))):
            with self.subTest(window):
                done = self.script("kernel:x:1 " + text + " sync", WINDOW=window)
                self.check_windows(done, {f"k{i}": 1 for i in inside}, windows=len(inside))

    def test_nested_ranges_are_one_window(self):
        done = self.script("kernel:x:1 push:step kernel:a:1 push:inner push:step kernel:b:1 pop pop domain_push:lib:step "
                           "kernel:c:1 domain_pop:lib kernel:d:1 pop kernel:y:1 sync", WINDOW="nvtx:step@*")
        self.check_windows(done, {"a": 1, "b": 1, "c": 1, "d": 1})

    def test_a_pop_in_another_domain_ends_nothing(self):
        done = self.script("kernel:x:1 domain_push:lib:other push:step kernel:a:1 domain_pop:lib kernel:b:1 pop kernel:y:1 "
                           "pop pop kernel:z:1 sync", WINDOW="nvtx:step")
        self.check_windows(done, {"a": 1, "b": 1})

    def test_overlapping_ranges_of_two_threads_are_one_window(self):
        done = self.script("kernel:x:1 range_start:k:step background [ push:step kernel:t:2:own signal:in wait:go "
                           "kernel:t:3:own pop signal:out ] kernel:m:1 wait:in range_end:k kernel:m:2 signal:go wait:out kernel:y:4 join sync",
                           WINDOW="nvtx:step")
        self.check_windows(done, {"m": 3, "t": 5})

    def test_ranges_of_eight_threads(self):
        # The second thread waits for the window as well: nothing launched in a range is missing.
        done = self.script("kernel:x:1 threads:8 [ loop:40 [ kernel:out:1:own push:step kernel:in:5:own pop ] "
                           "stream_sync:own ] sync", WINDOW="nvtx:step")
        self.assertEqual(done.out.kernels()["in"], 1600)
        self.assertEqual(done.out.lost(), {})

    def test_a_range_around_the_initialisation_of_cuda(self):
        done = self.script("push:step kernel:a:2 pop kernel:b:1 push:step kernel:a:1 pop sync", WINDOW="nvtx:step")
        self.check_windows(done, {"a": 3}, windows=2)

    def test_a_range_that_never_closes_ends_with_the_program(self):
        for text in ("kernel:a:1 push:step kernel:b:3", "kernel:a:1 range_start:x:step kernel:b:3 sync",
                     "kernel:a:1 background [ push:step kernel:b:2:own stream_sync:own ] join kernel:b:1 sync"):
            with self.subTest(text):
                self.check_windows(self.script(text, WINDOW="nvtx:step"), {"b": 3})

    def test_every_iteration(self):
        done = self.script("kernel:x:1 loop:200 [ push:step kernel:a:3 pop kernel:b:2 ] sync", WINDOW="nvtx:step")
        self.check_windows(done, {"a": 600}, windows=200)
        self.assertEqual(done.out.window_kernels(), [3] * 200)
        self.assertLessEqual(done.out.run["overhead"]["attachments"], 2 + 2 * simulated.pauses(done.out.run))

    def test_more_names_than_there_is_room_for(self):
        # Each of a profiler's ranges has a new name; the trigger compares the text.
        done = self.script("kernel:a:1 names:fill:140000 push:late kernel:b:2 names:in:10 kernel:b:1 pop kernel:c:1 "
                           "registered:late kernel:d:1 pop kernel:e:1 sync", WINDOW="nvtx:late")
        self.assertEqual(done.out.window_kernels(), [3, 1])
        self.assertGreater(done.out.run["lost"]["names"] + done.out.run["lost"]["range_paths"], 0)

    def test_ranges_without_a_name(self):
        text = "kernel:a:1 push_null kernel:b:1 pop push: kernel:c:1 pop range_end:none sync return:2"
        done = self.script(text, WINDOW="nvtx:*")
        self.check_windows(done, {"b": 1, "c": 1}, windows=2)
        self.check_unharmed(done, text)

    def test_the_programs_own_windows(self):
        # A window that the program opened itself is not closed by a range, and one closed by it is not reopened by a
        # range.
        done = self.script("kernel:x:1 open kernel:a:1 push:step kernel:b:1 pop kernel:c:1 close push:step kernel:d:1 close "
                           "push:step kernel:y:1 pop pop kernel:z:1 sync", WINDOW="nvtx:step")
        self.assertEqual(done.stdout, "open: 0\nclose: 0\nclose: 0\n")
        self.check_windows(done, {"a": 1, "b": 1, "c": 1, "d": 1}, windows=2)

    def test_cupti_stays_away_until_a_range_opens(self):
        done = self.script("push:a kernel:a:3 pop sync", WINDOW="nvtx:step")
        self.assertEqual([name for name in done.simulated_calls() if name.startswith("cupti")], [])

    def test_no_window_says_which_ranges_there_were(self):
        done = self.script("kernel:a:1 loop:3 [ push:forward push:backward pop pop ] domain_push:lib:step domain_pop:lib "
                           "sync", WINDOW="nvtx:step")
        line = self.check_none(done, "no such NVTX range", "'forward', 'backward', 'step'@'lib'")
        self.assertNotIn("...", line)
        self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_no_window_says_a_few_of_many_ranges(self):
        line = self.check_none(self.script("kernel:a:1 names:n:20000 sync", WINDOW="nvtx:step"), "'n0'", "...")
        self.assertLess(len(line), 400)

    def test_no_window_for_want_of_ranges(self):
        self.check_none(self.script("kernel:a:1 sync", WINDOW="nvtx:step"), "the program opened no NVTX range")
        self.check_none(self.script("push:step pop kernel:a:1 sync", WINDOW="nvtx:step"), "only before CUDA was initialised")

    def test_ranges_without_cuda_leave_nothing(self):
        done = self.script("push:step pop push:step", WINDOW="nvtx:step")
        self.assertEqual((done.code, done.stderr, done.folders()), (0, "", []))


class Signals(TriggerTest):
    ONE = "kernel:before:3 raise:{0} until_open kernel:in:5 copy:h2d:100 raise:{0} until_closed kernel:after:7 sync return:3"

    def test_each_signal_toggles(self):
        for window, signal in (("signal", "USR2"), ("signal:USR1", "USR1"), ("signal:SIGHUP", "HUP"),
                               ("signal:SIGRTMIN+3", "RTMIN+3")):
            with self.subTest(window):
                done = self.script(self.ONE.format(signal), WINDOW=window)
                self.check_windows(done, {"in": 5})
                self.assertEqual(done.code, 3)
                self.assertEqual(done.out.reasons(), ["signal:SIG" + signal])

    def test_as_an_api_window_at_the_same_calls(self):
        text = "gemm loop:3 [ kernel:a:1 {start} kernel:b:3 copy:h2d:64 gemm {stop} kernel:c:2 ] sync"
        words = text.format(start="raise:USR2 until_open", stop="raise:USR2 until_closed")
        signals = self.script(words, WINDOW="signal").out
        calls = self.script(text.format(start="start", stop="stop"), WINDOW="api").out
        for table in ("kernels", "operations", "libraries", "window_kernels"):
            self.assertEqual(getattr(signals, table)(), getattr(calls, table)())

    def test_several_windows(self):
        done = self.script("kernel:x:1 loop:4 [ raise:USR2 until_open kernel:in:2 raise:USR2 until_closed kernel:out:1 ] "
                           "sync", WINDOW="signal")
        self.check_windows(done, {"in": 8}, windows=4)

    def test_a_window_that_is_open_when_the_program_returns(self):
        self.check_windows(self.script("kernel:a:1 raise:USR2 until_open kernel:b:2", WINDOW="signal"), {"b": 2})

    def test_a_program_without_hooks(self):
        text = self.ONE.format("USR2").replace("copy:h2d:100", "copy:100")
        self.check_windows(self.script(text, program="driver", WINDOW="signal"), {"in": 5})

    def test_handlers_of_the_program_are_called_as_well(self):
        for how, calls in (("plain", 2), ("siginfo", 2), ("once", 1), ("ignore", 0), ("default", 0)):
            with self.subTest(how):
                text = self.ONE.format("USR2").replace("return:3", "handled")
                done = self.script(f"handle:USR2:{how} {text}", WINDOW="signal")
                self.check_windows(done, {"in": 5})
                self.assertEqual((done.code, done.stdout), (0, f"handled: {calls}\n"))
                self.assertEqual("which is still called" in done.stderr, calls > 0)

    def test_a_handler_that_the_program_installs_later(self):
        done = self.script("kernel:a:1 handle:USR2:plain raise:USR2 raise:USR2 handled kernel:b:1 sync", WINDOW="signal")
        self.assertEqual(done.stdout, "handled: 2\n")
        self.check_none(done, "no SIGUSR2 came to libinject's handler")
        self.assertEqual(len(done.warnings()), 2)
        self.assertIn("the program has replaced libinject's handler of SIGUSR2", done.warnings()[0])

    def test_a_later_handler_is_seen_while_the_program_runs(self):
        done = self.script("kernel:a:1 raise:USR2 until_open kernel:b:1 raise:USR2 until_closed handle:USR2:plain "
                           "until_text:messages:handler handle:USR2:default sync", WINDOW="signal", LOG_FILE="messages")
        (line,) = [line.partition(" warning: ")[2] for line in (done.work / "messages").read_text(encoding="utf-8").splitlines()
                   if " warning: " in line]
        self.assertIn("the program has replaced libinject's handler of SIGUSR2", line)
        self.assertEqual(done.out.run["messages"], [line])

    def test_a_later_handler_that_passes_the_signal_on(self):
        done = self.script("kernel:a:1 handle:USR2:chain raise:USR2 until_open kernel:b:2 raise:USR2 until_closed "
                           "kernel:c:1 handled sync", WINDOW="signal")
        self.assertEqual(done.out.kernels(), {"b": 2})
        self.assertEqual(done.stdout, "handled: 2\n")

    def test_children_are_as_without_the_library(self):
        for how, shown in (("default", "default"), ("ignore", "ignored"), ("plain", "its own handler")):
            with self.subTest(how):
                text = f"handle:USR2:{how} kernel:a:1 child:USR2 sync"
                done = self.script(text, WINDOW="signal")
                self.assertEqual(done.stdout, f"child: {shown}\n")
                self.check_unharmed(done, text)

    def test_a_storm_of_signals(self):
        text = ("handle:USR2:plain kernel:a:1 threads:4 [ loop:100 [ raise:USR2 raise:USR2 raise:USR2 kernel:t:5:own "
                "sleep:2 ] stream_sync:own ] sync return:4")
        done = self.script(text, WINDOW="signal")
        self.assertGreater(len(done.out.windows()), 1)
        self.assertEqual(done.out.lost(), {})
        self.check_unharmed(done, text)

    def test_no_window_for_want_of_a_signal(self):
        done = self.script("kernel:a:1 sync", WINDOW="signal")
        self.check_none(done, "no SIGUSR2 came")
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual([name for name in done.simulated_calls() if name.startswith("cupti")], [])

    def test_without_cuda_no_handler_is_installed(self):
        done = self.script("child:USR2", WINDOW="signal")
        self.assertEqual((done.stdout, done.stderr), ("child: default\n", ""))


class Schedules(TriggerTest):
    def test_every_nth_range(self):
        text = "kernel:x:1 " + " ".join(f"push:step kernel:k{i}:2 pop kernel:out:1" for i in range(8)) + " sync"
        for window, inside in (("nvtx:step/3", (0, 3, 6)), ("nvtx:step/3x2", (0, 3)), ("nvtx:stepx2", (0, 1)),
                               ("nvtx:step/1x3", (0, 1, 2)), ("nvtx:step/100", (0,))):
            with self.subTest(window):
                self.check_windows(self.script(text, WINDOW=window), {f"k{i}": 2 for i in inside}, windows=len(inside))

    def test_overlapping_ranges_count_once(self):
        text = "kernel:x:1 " + " ".join(f"push:step push:step kernel:k{i}:1 pop pop" for i in range(4)) + " sync"
        self.check_windows(self.script(text, WINDOW="nvtx:step/2"), {"k0": 1, "k2": 1}, windows=2)

    def test_every_nth_call(self):
        for program, first in (("cuda", "kernel:x:1"), ("driver", "init")):
            text = first + " " + " ".join(f"start start kernel:k{i}:2 stop stop kernel:out:1" for i in range(7)) + " sync"
            for window, inside in (("api/3", (0, 3, 6)), ("api/2x2", (0, 2)), ("apix1", (0,))):
                with self.subTest(program + " " + window):
                    done = self.script(text, program=program, WINDOW=window)
                    self.check_windows(done, {f"k{i}": 2 for i in inside}, windows=len(inside))

    def test_every_nth_signal(self):
        toggles = " ".join(f"raise:USR2 {wait} kernel:k{i}:1" for i, wait in enumerate(
            ["until_open", "until_closed", "sleep:60", "sleep:60", "until_open", "until_closed", "sleep:60", "sleep:60"]))
        for window, inside, last in (("signal/4", (0, 4), ""), ("signal/4x2", (0, 4), " raise:USR2 sleep:60 kernel:k8:1")):
            with self.subTest(window):
                done = self.script("kernel:x:1 " + toggles + last + " sync", WINDOW=window)
                self.check_windows(done, {f"k{i}": 1 for i in inside}, windows=2)

    def test_as_many_signals_as_asked_for(self):
        done = self.script("kernel:x:1 raise:USR2 until_open kernel:a:1 raise:USR2 until_closed raise:USR2 "
                           "sleep:60 kernel:b:1 sync", WINDOW="signalx1")
        self.check_windows(done, {"a": 1})

    def test_sampling_a_long_run(self):
        # 100 windows leave as much as one window does, except for the rows of the windows.
        done = self.script("loop:700 [ kernel:a:1 sleep:3 ] sync", WINDOW="time:10ms+5ms/20ms", TRACE=None)
        windows = done.out.windows()
        self.assertGreater(len(windows), 30)
        starts = [int(row["Start (ns)"]) for row in windows]
        for start in starts:
            # From start to start: however late one was, the next one is not delayed.
            self.assertGreaterEqual((start - 10_000_000) % 20_000_000, 0)
        self.assertEqual(len({(start - 10_000_000) // 20_000_000 for start in starts}), len(starts))
        one = self.script("kernel:a:1 sync", WINDOW="always", TRACE=None)
        self.assertEqual(done.out.files(), one.out.files())
        self.assertEqual(done.out.lost(), {})
        self.assertLessEqual(done.out.run["overhead"]["attachments"], 2 + 2 * simulated.pauses(done.out.run))

    def test_why_no_window_opened(self):
        for window, why in (("api", "did not call cudaProfilerStart"), ("time:1h+1s/2h", "with CUDA"),
                            ("launch:10+5", "launched 3 kernels")):
            with self.subTest(window):
                self.check_none(self.script("kernel:a:3 sync", WINDOW=window), why)

    def test_always_has_no_schedule(self):
        for value in ("always/5", "alwaysx2", "off/5", "auto/5"):
            with self.subTest(value):
                done = self.script("kernel:a:3 sync", WINDOW=value)
                self.assertEqual(done.folders(), [])
                self.assertIn("profiling is off", done.warnings()[0])


if __name__ == "__main__":
    simulated.main()
