#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""CUPTI that is missing, in use, slow or wrong: what can be shown is right, losses are counted, and the program continues.

usage: test_cupti_faults.py LIBRARY PROGRAMS SIMULATION
"""

import simulated

TEXT = "gemm start kernel:a:3 gemm copy:h2d:64 push:r kernel:b:2 pop stop print:done sync return:3"


class FaultTest(simulated.SimulatedTest):
    def script(self, text=TEXT, **options):
        return super().script(text, **{"WINDOW": "api", **options})

    def without(self, text=TEXT, hidden="libcupti.so", program="cuda", **options):
        """No library whose path contains `hidden` can be loaded."""
        hide = simulated.programs / "script_hide.so"
        return self.script(text, program=program, before=[hide], env={"HIDDEN_LIBRARIES": hidden}, **options)

    def check_hooks_only(self, done, *fragments):
        """One line gives the reason, and the tables have what the hooks saw."""
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        (line,) = done.warnings()
        self.assertIn("no device activity is recorded", line)
        for fragment in fragments:
            self.assertIn(fragment, line)
        out = done.out
        self.assertEqual(out.run["messages"], [line])
        self.assertEqual((out.kernels(), out.operations()), ({}, {}))
        calls = out.calls()
        self.assertEqual((calls["__cudaLaunchKernel"], calls["cudaMemcpy"]), (5, 1))
        self.assertEqual(out.libraries(), {"cublasGemmEx": (1, 0, 0), "cublasGemmEx > cublasLtMatmul": (1, 0, 0)})
        self.assertEqual(out.ranges(), {("r", "PushPop"): 1})
        # Nothing that was expected is missing.
        self.assertEqual(out.lost(), {})
        self.assertEqual(len(out.windows()), 1)


class Missing(FaultTest):
    def test_no_library(self):
        self.check_hooks_only(self.without(), "no libcupti.so.13 or libcupti.so.12 was found")

    def test_no_library_and_other_triggers(self):
        done = self.without(WINDOW="always")
        self.assertIn("no device activity is recorded", done.warnings()[0])
        self.assertEqual(done.out.calls()["__cudaLaunchKernel"], 5)
        done = self.without("kernel:a:1 until_open while_open [ kernel:a:1 sleep:5 ] print:done return:3", WINDOW="time:20ms+300ms")
        self.assertEqual((done.code, done.stdout, len(done.warnings())), (3, "done\n", 1))
        self.assertEqual(set(done.out.calls()), {"__cudaLaunchKernel"})

    def test_no_library_and_nobody_to_count_launches(self):
        done = self.without(WINDOW="launch:1+2")
        self.assertEqual((done.code, done.stdout, done.folders()), (3, "done\n", []))
        self.assertIn("no device activity is recorded", done.warnings()[0])

    def test_no_library_and_nobody_to_see_the_profiler_api(self):
        done = self.without("init start kernel:a:2 stop print:done sync return:3", program="driver")
        self.assertEqual((done.code, done.stdout, done.folders()), (3, "done\n", []))
        self.assertIn("no libcupti.so.13 or libcupti.so.12 was found", done.warnings()[0])

    def test_version_12_alone(self):
        done = self.without(hidden="libcupti.so.13")
        self.assertEqual(done.out.kernels(), {"a": 3, "b": 2, "sm90_lt_matmul_128x128": 1})
        self.assertEqual(done.out.operations(), {"[CUDA memcpy Host-to-Device]": 1})
        self.assertEqual(done.out.run["versions"]["cupti"], "26")
        self.assertEqual((done.warnings(), done.out.lost()), ([], {}))

    def test_too_old(self):
        # Whatever other copy the machine has.
        self.check_hooks_only(self.without(hidden="cuda/", faults="cupti_version=18"), "API version is 18",
                              "oldest accepted is 19")

    def test_the_oldest_accepted(self):
        done = self.script(faults="cupti_version=19")
        self.assertEqual(done.out.kernels(), {"a": 3, "b": 2, "sm90_lt_matmul_128x128": 1})


class Taken(FaultTest):
    def test_by_another_tool(self):
        self.check_hooks_only(self.script(faults="subscriber_taken"), "another profiler is attached to this process",
                              "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)")

    def test_by_another_tool_for_a_while(self):
        done = self.script("start kernel:a:3 stop fault:subscriber_taken:off sleep:20 start kernel:b:2 stop sync",
                           faults="subscriber_taken")
        self.assertEqual(done.out.window_kernels(), [0, 2])
        self.assertEqual(len(done.warnings()), 1)
        self.assertEqual(done.out.lost(), {})

    def test_many_windows_are_one_line(self):
        done = self.script("loop:20 [ start kernel:a:3 stop ] sync", faults="subscriber_taken")
        self.assertEqual(sum("no device activity" in line for line in done.warnings()), 1)
        self.assertEqual(done.out.calls(), {"__cudaLaunchKernel": 60})

    def test_by_the_program_before_a_window(self):
        text = TEXT.replace("gemm start", "gemm subscribe start").replace("print:done", "print:done unsubscribe")
        self.check_hooks_only(self.script(text), "another profiler is attached to this process")

    def test_by_the_program_after_a_window(self):
        done = self.script("start kernel:a:3 stop sync until_calls:cuptiFinalize:1 subscribe kernel:b:2 unsubscribe sync print:done")
        self.assertEqual((done.stdout, done.warnings()), ("done\n", []))
        self.assertEqual(done.out.kernels(), {"a": 3})

    def test_by_the_program_right_after_a_window(self):
        # The window is collected first: all its records are there, and the subscriber is not refused.
        done = self.script("duration:a:5000000 start kernel:a:3 stop mark subscribe within:5000 kernel:b:2 sync print:done")
        self.assertEqual((done.stdout, done.warnings()), ("done\n", []))
        self.assertEqual(done.out.kernels(), {"a": 3})
        self.assertEqual(done.out.lost(), {})

    def test_by_the_program_between_windows_that_stay_attached(self):
        done = self.script("loop:3 [ start kernel:a:3 stop sync ] subscribe unsubscribe start kernel:b:2 stop sync print:done")
        self.assertEqual((done.stdout, done.warnings()), ("done\n", []))
        self.assertEqual(done.out.window_kernels(), [3, 3, 3, 2])

    def test_held_for_the_profiler_calls_alone_it_is_given_up(self):
        done = self.script("init kernel:a:1 subscribe start kernel:b:2 stop unsubscribe sync print:done", program="driver")
        self.assertEqual(done.stdout, "done\n")
        given_up = [text for _, text in done.messages() if "CUPTI is released" in text]
        self.assertEqual(len(given_up), 1)

    def test_buffers_taken_after_a_window(self):
        # Newer profilers don't subscribe: they replace the buffer callbacks.
        done = self.script("start kernel:a:3 stop sync until_calls:cuptiFinalize:1 take_buffers kernel:b:4 sync client_records print:done")
        self.assertEqual((done.stdout, done.warnings()), ("client's kernels: 4\ndone\n", []))
        self.assertEqual(done.out.kernels(), {"a": 3})

    def test_buffers_taken_while_the_window_before_is_collected(self):
        # Our own thread is in a flush, which waits for the running kernel: CUPTI is not finalized meanwhile.
        text = ("duration:long:700000000 start kernel:a:3 kernel:long:1 stop until_calls:cuptiActivityFlushAll:1 start "
                "kernel:b:2:1 stream_sync:1 take_buffers kernel:c:4 sync client_records stop print:done return:3")
        done = self.script(text, faults="no_attach_wait")
        self.assertEqual((done.code, done.stdout), (3, "client's kernels: 4\ndone\n"))
        (line,) = done.warnings()
        self.assertIn("window 2 closed early", line)
        self.assertEqual(done.out.kernels(), {"a": 3, "long": 1, "b": 2})

    def test_the_program_finalizes_cupti(self):
        done = self.script("start kernel:a:3 stop sync until_calls:cuptiFinalize:1 subscribe finalize start kernel:b:2 stop sync print:done")
        self.assertEqual(done.stdout, "done\n")
        self.assertEqual(done.out.window_kernels(), [3, 2])


class Failing(FaultTest):
    def test_functions_that_fail_at_attaching(self):
        for function, code, name in (("cuptiSubscribe", 35, "INSUFFICIENT_PRIVILEGES"), ("cuptiEnableCallback", 2, "INVALID"),
                                     ("cuptiActivityRegisterCallbacks", 1, "INVALID_PARAMETER"),
                                     ("cuptiActivityEnable", 35, "INSUFFICIENT_PRIVILEGES")):
            with self.subTest(function):
                done = self.script(faults=f"cupti_fail={function}:{code}")
                self.check_hooks_only(done, name, f"({code})")
                # Nothing is left attached.
                calls = done.simulated_calls()
                if function != "cuptiSubscribe":
                    # Each subscription ends by one or the other.
                    self.assertEqual(calls["cuptiSubscribe"], calls["cuptiUnsubscribe"] + calls["cuptiFinalize"])

    def test_a_failure_that_passes(self):
        done = self.script("start kernel:a:3 stop sleep:20 start kernel:b:2 stop sync", faults="cupti_fail=cuptiActivityEnable:35:1:1")
        self.assertEqual(done.out.window_kernels(), [0, 2])
        self.assertEqual(len(done.warnings()), 1)

    def test_copies_alone_can_not_be_enabled(self):
        # The second kind to be enabled is copies.
        done = self.script(faults="cupti_fail=cuptiActivityEnable:35:2:1", timeout=20)
        self.assertEqual(done.out.kernels(), {"a": 3, "b": 2, "sm90_lt_matmul_128x128": 1})
        self.assertEqual(done.out.operations(), {})
        (line,) = done.warnings()
        self.assertIn("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES", line)
        self.assertEqual(done.out.lost(), {})

    def test_no_clock_of_ours(self):
        # CUPTI's own clock is the wall clock: times are converted to ours nevertheless.
        done = self.script(faults="cupti_fail=cuptiActivityRegisterTimestampCallback:7", check=False)
        self.assertEqual(done.out.kernels(), {"a": 3, "b": 2, "sm90_lt_matmul_128x128": 1})
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        ran = [start - base for _, name, _, _, _, start, _ in done.device_work() if name in ("_Z1av", "_Z1bv")]
        recorded = [int(row["Start (ns)"]) for row in done.out.rows("cuda_gpu_trace.csv") if row["Name"] in ("a()", "b()")]
        for mine, its in zip(recorded, ran, strict=True):
            self.assertAlmostEqual(mine, its, delta=20_000_000)

    def test_flushing_fails(self):
        done = self.script(faults="cupti_fail=cuptiActivityFlushAll:2", timeout=20)
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        lost = sum(done.out.lost().values())
        self.assertEqual(sum(done.out.kernels().values()) + sum(done.out.operations().values()) + lost, 7)
        self.assertGreater(lost, 0)

    def test_finalizing_fails(self):
        done = self.script("start kernel:a:3 stop sync until_calls:cuptiFinalize:1 start kernel:b:2 stop sync",
                           faults="cupti_fail=cuptiFinalize:2")
        self.assertEqual(done.out.window_kernels(), [3, 2])

    def test_a_fatal_error(self):
        done = self.script("start kernel:a:3 sync fault:fatal_error: kernel:b:2 sync stop print:done sync return:3", timeout=20)
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        # The records that it has not delivered yet are lost with it, and it sees no launch afterwards.
        self.assertEqual((done.out.kernels(), done.out.lost()), ({}, {"missing_activity_records": 4}))
        (line,) = done.warnings()
        self.assertIn("fatal error", line)

    def test_a_window_after_a_fatal_error(self):
        done = self.script("start kernel:a:3 sync fault:fatal_error: kernel:b:2 sync stop sync flush start kernel:c:4 stop sync")
        self.assertEqual(done.out.kernels().get("c"), 4)


class Records(FaultTest):
    def check(self, faults, kernels, lost, repeated=0, text="start kernel:a:100 copy:h2d:64 kernel:b:50 stop sync", **options):
        done = self.script(text, faults=faults, **options)
        self.assertEqual(done.out.kernels(), kernels)
        self.assertEqual(done.out.lost(), lost)
        self.assertEqual(done.out.run["repeated_activity_records"], repeated)
        return done

    def test_late(self):
        self.check("late=100", {"a": 100, "b": 50}, {})

    def test_late_while_the_program_goes_on(self):
        done = self.check("late=100", {"a": 100, "b": 50}, {},
                          text="start kernel:a:100 kernel:b:50 stop loop:10 [ kernel:c:5 sleep:30 ] until_calls:cuptiFinalize:1 sync")
        # As soon as they have arrived, not at the program's end.
        window = done.out.run["windows"][0]
        self.assertGreater(window["detached_ns"] - window["end_ns"], 90_000_000)
        self.assertEqual(done.warnings(), [])

    def test_late_beyond_the_end(self):
        done = self.script("start kernel:a:100 kernel:b:50 stop sync print:done", faults="late=60000", timeout=20)
        self.assertEqual(done.out.kernels(), {})
        self.assertEqual(sum(done.out.lost().values()), 150)

    def test_dropped(self):
        done = self.check("drop=7", {"a": 93, "b": 50}, {"activity_records": 7})
        self.assertEqual(done.out.windows()[0]["Lost Activity Records"], "7")

    def test_repeated(self):
        done = self.check("repeat=7", {"a": 100, "b": 50}, {}, repeated=7)
        self.assertEqual(done.out.operations(), {"[CUDA memcpy Host-to-Device]": 1})

    def test_repeated_in_a_graph(self):
        self.check("repeat=7", {"g": 40}, {}, repeated=7,
                   text="capture:1 kernel:g:20:1 end_capture:1:x start graph:x:1 graph:x:1 stop sync")

    def test_without_times(self):
        self.check("zero_time=7", {"a": 93, "b": 50}, {"invalid_timestamps": 7})

    def test_out_of_order(self):
        self.check("out_of_order", {"a": 100, "b": 50}, {})

    def test_all_at_once(self):
        # The same records are affected, from the first one on.
        self.check(["drop=3", "repeat=5", "zero_time=7", "out_of_order", "late=50"], {"a": 93, "b": 50},
                   {"activity_records": 3, "invalid_timestamps": 4}, repeated=2)

    def test_in_several_windows(self):
        done = self.script("start kernel:a:10 stop fault:drop:3 start kernel:b:10 stop fault:zero_time:2 start kernel:c:10 stop sync")
        # Work without a record would look like idle time.
        for row in done.out.windows():
            whole = row["Window"] == "1"
            for column in ("GPU Busy (ns)", "GPU Busy (%)"):
                self.assertEqual(row[column] != "", whole, (row["Window"], column))
            self.assertTrue(row["Device Time (ns)"] or not whole)
            if row["Device Time (ns)"]:
                (self.assertGreaterEqual if whole else self.assertLess)(int(row["Device Time (ns)"]), int(row["Duration (ns)"]))
            self.assertNotEqual(row["Kernels"], "")
        self.assertEqual(done.out.kernels(), {"a": 10, "b": 7, "c": 8})
        rows = [(row["Kernels"], row["Lost Activity Records"], row["Invalid Timestamps"]) for row in done.out.windows()]
        self.assertEqual(rows, [("10", "0", "0"), ("7", "3", "0"), ("8", "0", "2")])

    def test_the_summary_says_what_is_missing(self):
        done = self.script("start kernel:a:10 stop sync", faults="drop=3", SUMMARY="stderr")
        self.assertRegex(done.stderr, r"(?i)3 .*(lost|dropped|missing)|(lost|dropped|missing).* 3")


class OtherThreads(FaultTest):
    """CUPTI is not finalized while another thread is in the middle of a call: the report counts calls in progress."""

    def test_one_in_cuProfilerStop(self):
        # The call is waited for, and CUPTI is finalized after it.
        for ms in (5, 60):
            for program in ("cuda", "driver"):
                with self.subTest(ms=ms, program=program):
                    done = self.script("kernel:w:1 start kernel:a:3 stop sleep:400 kernel:b:1 sync print:done", program=program,
                                       faults=f"profiler_stop_ms={ms}")
                    self.assertEqual((done.stdout, done.warnings()), ("done\n", []))
                    self.assertEqual(done.out.kernels(), {"a": 3})
                    self.assertEqual((done.misuse(), done.simulated_calls()["cuptiFinalize"]), (0, 1))

    def test_one_that_does_not_return(self):
        done = self.script("kernel:w:1 start kernel:a:3 background [ stop ] sleep:1500 kernel:b:1 sync join print:done",
                           faults="profiler_stop_ms=800")
        self.assertEqual((done.stdout, done.out.kernels()), ("done\n", {"a": 3}))
        self.assertEqual((done.misuse(), done.simulated_calls()["cuptiFinalize"]), (0, 0))
        (line,) = done.warnings()
        self.assertIn("one of the program's threads is still inside it", line)

    def test_one_after_another_in_cuProfilerStop(self):
        done = self.script("loop:5 [ start kernel:a:3 stop sleep:30 ] sync", faults="profiler_stop_ms=8")
        self.assertEqual(done.out.kernels(), {"a": 15})
        self.assertEqual(done.misuse(), 0)

    def test_one_that_creates_a_context(self):
        done = self.script("device_count sleep:1000 kernel:a:1 until_open kernel:b:2 until_closed sync", faults="context_ms=400",
                           WINDOW="time:1200ms+300ms")
        self.assertGreaterEqual(done.out.kernels()["b"], 2)
        self.assertEqual(done.misuse(), 0)

    def test_one_that_creates_a_context_while_CUPTI_is_subscribed_to(self):
        """The driver, asked before, would have said that there is no context. (CUPTI is attached about 100 ms ahead.)"""
        for ms in (60, 200, 350):
            for pause in (1060, 1100, 1130):
                with self.subTest(ms=ms, pause=pause):
                    done = self.script(f"device_count sleep:{pause} kernel:a:1 sync", faults=f"context_ms=400,attach_ms={ms}",
                                       WINDOW="time:1150ms+300ms")
                    self.assertEqual(done.misuse(), 0)

    def test_one_that_creates_a_context_as_a_window_ends(self):
        for start in (10, 60, 90):
            with self.subTest(start=start):
                done = self.script(f"device_count sleep:{start} kernel:a:1 sync until_closed sleep:300", faults="context_ms=400", WINDOW="time:0s+100ms")
                self.assertEqual(done.misuse(), 0)
                self.assertGreaterEqual(done.simulated_calls()["cuptiFinalize"], 1)

    def test_one_that_is_inside_cuInit(self):
        for window in ("time:0s+50ms/100ms", "time:20ms+50ms/100ms", "time:150ms+50ms/100ms", "time:1150ms+50ms/100ms"):
            with self.subTest(window=window):
                done = self.script("kernel:a:1 until_open kernel:b:2 sync", faults="init_ms=1300", WINDOW=window)
                self.assertEqual(done.misuse(), 0)

    def test_one_that_is_inside_nvmlInit(self):
        done = self.script("kernel:a:1 background [ nvml_init ] until_calls:nvmlInit_v2:1 start kernel:b:2 stop join sync", faults="nvml_ms=300")
        self.assertEqual((done.misuse(), done.out.kernels()), (0, {"b": 2}))

    def test_one_that_calls_nvmlInit_after_cuInit(self):
        """Nothing could prevent it from doing so while our thread attaches CUPTI, so that is done inside cuInit."""
        for start in (10, 150, 900):
            with self.subTest(start=start):
                done = self.script(f"device_count sleep:{max(start - 80, 20)} nvml_init kernel:a:1 until_open kernel:b:2 sync",
                                   faults="enable_ms=100,nvml_ms=50", WINDOW=f"time:{start}ms+3s")
                self.assertEqual(done.misuse(), 0)
                self.assertEqual(done.out.kernels()["b"], 2)

    def test_our_own_that_calls_nvmlInit(self):
        """It does so as the first window opens. CUPTI would be finalized before NVML has taken its lock."""
        done = self.script("kernel:a:1 start kernel:b:2 stop sync until_calls:cuptiFinalize:1", faults="finalize_ms=300,nvml_wait_ms=200,nvml_ms=100")
        self.assertEqual((done.misuse(), done.out.kernels()), (0, {"b": 2}))

    def test_one_that_begins_to_create_a_context_as_activity_is_switched_on(self):
        """The driver, asked right before, would have said that there is no context. (CUPTI is attached about 100 ms ahead.)"""
        for pause in (1040, 1060, 1080, 1100, 1120, 1140):
            with self.subTest(pause=pause):
                done = self.script(f"device_count sleep:{pause} kernel:a:1 until_open kernel:b:2 sync", faults="context_ms=300,enable_ms=100",
                                   WINDOW="time:1150ms+3s")
                self.assertEqual(done.misuse(), 0)
                self.assertEqual(done.out.kernels()["b"], 2)

    def test_one_that_begins_to_create_a_context_as_CUPTI_would_be_finalized(self):
        for pause in (30, 60, 90, 120, 150, 180):
            with self.subTest(pause=pause):
                done = self.script(f"device_count sleep:{pause} kernel:a:1 sync until_calls:cuptiFinalize:1 kernel:b:1 sync",
                                   faults="context_ms=300,finalize_ms=100", WINDOW="time:0s+50ms")
                self.assertEqual(done.misuse(), 0)

    def test_one_that_creates_a_context_while_CUPTI_is_given_up(self):
        """The driver, asked before, would have said that there is no context."""
        for ms in (150, 250, 350):
            with self.subTest(ms=ms):
                done = self.script(f"device_count sleep:{ms} kernel:a:1 sync until_closed until_calls:cuptiFinalize:1 sleep:50",
                                   faults="context_ms=400,detach_ms=300", WINDOW="time:0s+100ms")
                self.assertEqual(done.misuse(), 0)


class NoContext(FaultTest):
    """Without a context CUPTI stays attached after a window, until there is one."""

    def test_one_that_is_no_primary_one(self):
        # The driver can't be asked whether there is one.
        self.script("count until_closed create kernel:a:1 sync until_calls:cuptiFinalize:1", program="driver", WINDOW="time:0s+50ms")

    def test_the_profiler_calls_are_watched_afterwards(self):
        # The guard of cuptiFinalize is the second subscriber.
        done = self.script("count open close kernel:a:1 until_calls:cuptiSubscribe:3 sleep:300 start kernel:b:2 stop sync", program="driver")
        self.assertEqual(done.out.kernels(), {"b": 2})


class Attaching(FaultTest):
    def test_slowly(self):
        done = self.script("start kernel:a:3 stop sync print:done", faults="attach_ms=150")
        self.assertEqual(done.out.kernels(), {"a": 3})
        self.assertEqual(done.warnings(), [])

    def test_behind_a_kernel_that_runs(self):
        done = self.script("duration:long:100000000 kernel:long:1 start until_open kernel:b:2 stop sync")
        self.assertEqual(done.out.kernels(), {"b": 2})
        self.assertEqual((done.stdout, done.out.lost()), ("", {}))
        (end,) = [end for _, name, *_, end in done.device_work() if "long" in name]
        self.assertGreaterEqual(done.out.run["windows"][0]["start_ns"] + done.out.run["time_zero"]["clock_monotonic_ns"], end)

    def test_longer_than_the_program_is_held(self):
        # It continues after a second, long before CUPTI is attached.
        done = self.script("kernel:before:1 start is_open kernel:early:2 until_open kernel:b:2 stop sync print:done",
                           faults="attach_ms=4000")
        self.assertEqual(done.stdout, "is_open: 0\ndone\n")
        self.assertEqual(len(done.warnings()), 1, done.warnings())
        self.assertIn("CUPTI is still not attached after", done.warnings()[0])
        self.assertEqual(done.out.kernels(), {"b": 2})

    def test_behind_a_kernel_that_waits_for_a_held_launch(self):
        # The gate holds the launch for which the running kernel waits: unless it releases in time, no window would open. On a busy machine
        # the other thread may arrive when the gate has been released already, but rarely every time.
        text = " ".join(f"kernel:waiter:1:1 background [ until_calls:cuptiSubscribe:{i} loop:20 [ kernel:other:1:3 sleep:2 ] "
                        f"kernel:setter:1:2 ] start until_open kernel:b:2 stop join sync until_calls:cuptiFinalize:{i}"
                        for i in range(1, 4))
        done = self.script(text + " print:done", faults="wait_for=waiter/setter")
        self.assertEqual(done.stdout, "done\n")
        self.assertEqual(done.out.kernels()["b"], 6)
        overhead = done.out.run["overhead"]
        self.assertGreater(overhead["gate_holds"], 0)
        # Until the gate releases by itself, 30 ms after it was closed.
        self.assertGreater(overhead["gate_ns"], 1_000_000)

    def test_behind_a_kernel_that_waits_for_the_program_itself(self):
        text = "kernel:waiter:1:1 start is_open kernel:setter:1:2 sync kernel:late:1 until_open kernel:b:2 stop sync print:done"
        done = self.script(text, faults="wait_for=waiter/setter")
        self.assertEqual(done.stdout, "is_open: 0\ndone\n")
        self.assertEqual(len(done.warnings()), 1)
        self.assertEqual(done.out.kernels()["b"], 2)

    def test_behind_a_kernel_that_never_ends(self):
        text = "kernel:stuck:1 start is_open stop print:done return:3"
        done = self.script(text, faults="hang=stuck", timeout=30)
        self.assertEqual((done.code, done.stdout), (3, "is_open: 0\ndone\n"))
        self.assertIn("CUPTI is still not attached after", done.warnings()[0])

    def test_at_a_stop_while_attaching(self):
        done = self.script("kernel:waiter:1:1 background [ sleep:100 stop sleep:100 kernel:setter:1:2 ] start kernel:a:1 join sync "
                           "sleep:50 start kernel:b:2 stop sync print:done", faults="wait_for=waiter/setter")
        self.assertEqual(done.stdout, "done\n")
        self.assertEqual(done.out.kernels().get("b"), 2)


class Closing(FaultTest):
    def test_a_device_that_never_finishes(self):
        text = "start kernel:a:3 kernel:stuck:1:1 stop print:done return:3"
        done = self.script(text, faults="hang=stuck", timeout=20)
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        self.assertEqual(done.out.kernels(), {"a": 3})
        self.assertEqual(sum(done.out.lost().values()), 1)
        self.assertEqual(done.out.run["state"], "closed")
        (line,) = done.warnings()
        self.assertIn("the device has not finished", line)
        self.assertIn(line, done.out.run["messages"])

    def test_the_program_is_not_held_by_it(self):
        # A flush would wait for it for a second.
        done = self.script("start kernel:a:3 kernel:stuck:1:1 mark stop within:900 sleep:100 print:done return:3", faults="hang=stuck",
                           timeout=20)
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        self.assertEqual(done.out.kernels(), {"a": 3})

    def test_cupti_hangs(self):
        """cuptiActivityDisable and cuptiFinalize, at a window's end: threads that request windows are not blocked for long."""
        for function in ("cuptiActivityDisable", "cuptiFinalize"):
            with self.subTest(function):
                text = (f"start kernel:a:3 sync stop until_calls:{function}:1 kernel:b:1 start kernel:c:1 stop start stop "
                        "flush sync print:done return:3")
                done = self.script(text, faults=f"cupti_hang={function}", timeout=50)
                self.assertEqual((done.code, done.stdout.splitlines()[-1]), (3, "done"))
                self.assertEqual(len([line for line in done.warnings() if "windows can neither be opened nor closed until it does" in line]), 1)

    def test_a_kernel_after_the_window_where_cupti_is_kept(self):
        """Its thread's buffer is from an attachment that is over when the next window's records are written into it."""
        # CUPTI is kept because of the graph, and detached about a second after the window.
        text = ("duration:late:4000000 capture:1 kernel:own:1:1 end_capture:1:x start graph:x:1 sync stop until_calls:cuptiUnsubscribe:1 "
                "background [ wait:closed loop:500 [ kernel:late:1:2 sleep:3 ] signal:ended wait:open kernel:b:2:2 signal:launched ] "
                "start kernel:a:3 sync stop signal:closed until_calls:cuptiUnsubscribe:2 wait:ended start signal:open wait:launched sync stop join sync")
        done = self.script(text)
        self.assertEqual(done.out.kernels(), {"own": 1, "a": 3, "b": 2})
        self.assertEqual({row["Unattributed"] for row in done.out.windows()}, {"0"})
        self.assertEqual(done.out.lost(), {})

    def test_a_stop_behind_long_kernels_holds_nobody(self):
        # They end once the program has continued.
        done = self.script("start kernel:long:2:1 stop kernel:go:2 sync", faults="wait_for=long/go")
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.out.kernels(), {"long": 2})
        self.assertEqual(done.out.lost(), {})


if __name__ == "__main__":
    simulated.main()
