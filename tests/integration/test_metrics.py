#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Hardware metrics sampled while windows are open: the samples match what the simulated device did, whatever opens the windows; if sampling
is not possible there is one message, and the program and its other tables are as without.

usage: test_metrics.py LIBRARY PROGRAMS SIMULATION
"""

import time

import simulated

NS = 1_000_000
GROUP = "TPC.TriageCompute."
ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
ACTIVE = GROUP + "sm__cycles_active" + ELAPSED
TITLES = ["SM Active (%)", "IPC", "FMA Pipe (%)", "FP64 Pipe (%)", "Tensor Pipe (%)", "Warps Active (%)", "Occupancy (%)",
          "DRAM Read (%)", "DRAM Write (%)", "L2 (%)", "PCIe Read (MB/s)", "PCIe Write (MB/s)"]
# Values that the simulated device measures while a kernel of that name runs (tests/sim/cupti_metrics.cpp).
ALWAYS = {"SM Active (%)": 100, "IPC": 2, "Warps Active (%)": 50, "Occupancy (%)": 50, "DRAM Read (%)": 30,
          "DRAM Write (%)": 10, "L2 (%)": 20, "PCIe Read (MB/s)": 2000, "PCIe Write (MB/s)": 1000}
PIPES = {"FMA Pipe (%)": 0, "FP64 Pipe (%)": 0, "Tensor Pipe (%)": 0}
DURING = {"gemm": {**ALWAYS, **PIPES, "Tensor Pipe (%)": 90}, "fp64": {**ALWAYS, **PIPES, "FP64 Pipe (%)": 80},
          "other": {**ALWAYS, **PIPES, "FMA Pipe (%)": 40}}
LONG = "duration:gemm:4000000 duration:fp64:3000000 duration:other:2000000"
# The longest time that a window opened by an API call waits for sampling: part of the second that its attachment may take.
LONGEST_WAIT = 700 * NS
STEP = "kernel:gemm:2 kernel:fp64:1 kernel:other:1 sync"
# A window with samples from its begin on, or from the first time at which they can be taken.
BEGIN = "start until_sampling"
ONE_WINDOW = f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} stop"


class MetricsTest(simulated.SimulatedTest):
    urgent = True

    def script(self, text, **options):
        return super().script(text, **{"WINDOW": "api", "METRICS": "auto", "METRICS_INTERVAL": "100us", "METRICS_TIMELINE": "1",
                                          **options})

    def samples(self, out, device=None):
        return [row for row in out.rows("metric_samples.csv") if device is None or row["Device"] == str(device)]

    def windows(self, out):
        """[(begin, end)]"""
        return [(int(row["Start (ns)"]), int(row["Start (ns)"]) + int(row["Duration (ns)"])) for row in out.windows()]

    def sampled(self, done, device=None):
        """[(begin, end, interval)] on the tables' clock: when there can be samples, by the simulation's report; the first sample spans the
        set-up, and is left out."""
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        return [(one.started + one.interval - base, one.stopped - base, one.interval) for one in done.sampling()
                if one.started and one.stopped and device in (None, one.device)]

    def lost_time(self, out):
        """The time represented by the samples that are counted as lost."""
        return out.lost().get("metric_samples", 0) * out.run["metrics"]["interval_ns"]

    def check_samples(self, done, devices=(0,), after=False):
        """Samples within a single kernel have its values, samples without a kernel have zeros, compared with what the simulation ran.
        Returns how many must lie within one kernel, in a window (or in or `after` one), while sampling ran: that many are there, or counted
        as lost, however late our thread is on a machine with too few CPUs."""
        out = done.out
        base = out.run["time_zero"]["clock_monotonic_ns"]
        kernels = {}
        for kind, name, device, _stream, _correlation, start, end in done.device_work():
            if kind == "kernel" and end:
                name = next((part for part in DURING if part in name), "another")
                kernels.setdefault(device, []).append((start - base, end - base, name))
        rows = self.samples(out)
        self.assertLessEqual({row["Device"] for row in rows}, {str(device) for device in devices})
        busy = 0
        for row in rows:
            start, end = int(row["Start (ns)"]), int(row["End (ns)"])
            self.assertGreater(end, start)
            touching = [kernel for kernel in kernels.get(int(row["Device"]), ()) if kernel[0] < end and kernel[1] > start]
            around = [name for begin, over, name in touching if begin <= start and over >= end]
            if len(around) == len(touching) == 1 and around[0] in DURING:
                busy += 1
                expected = DURING[around[0]]
                self.assertEqual({title: float(row[title] or "nan") for title in expected}, expected, row)
            if not touching:
                self.assertEqual((float(row["SM Active (%)"]), row["Occupancy (%)"], row["IPC"]), (0, "", ""), row)
        windows = self.windows(out)
        if after:
            windows = [(windows[0][0], windows[-1][1] + 60_000 * NS)]
        due = 0
        for device in devices:
            for begin, over, name in kernels.get(device, ()):
                for first, last in windows:
                    for sampled, until, interval in self.sampled(done, device):
                        time = min(over, last, until) - max(begin, first, sampled)
                        # Samples on the edges are not the kernel's alone.
                        due += max(0, time // interval - 2) if name in DURING else 0
        self.assertGreaterEqual(busy + out.lost().get("metric_samples", 0), due)
        return due

    def check_covered(self, done, device=0):
        """Where sampling runs in a window there are samples, or as many are counted as lost."""
        rows = [(int(row["Start (ns)"]), int(row["End (ns)"])) for row in self.samples(done.out, device)]
        missing = 0
        for first, last in self.windows(done.out):
            missing -= sum(max(0, min(last, end) - max(first, start)) for start, end in rows)
            for begin, end, interval in self.sampled(done, device):
                # Without those that are cut by the window's begin or by the end of sampling.
                missing += max(0, min(last, end) - max(first, begin) - 2 * interval)
        self.assertLessEqual(missing, self.lost_time(done.out))

    def check_opened_in_time(self, done, device=0, gap=0):
        """A window whose opening can wait opens once sampling runs, or after the longest wait for it, if it was requested at least `gap`
        nanoseconds after the end of the previous one."""
        before = 0
        for begin, end in self.windows(done.out):
            ready = any(start - interval <= begin < until for start, until, interval in self.sampled(done, device))
            self.assertTrue(ready or begin - before >= gap + LONGEST_WAIT, (begin, before, self.sampled(done, device)))
            before = end

    def check_some(self, done, least):
        """That many samples of windows, including those counted as lost."""
        self.assertGreaterEqual(len(self.samples(done.out)) + done.out.lost().get("metric_samples", 0), least)

    def check_account(self, done, again=False):
        """Every sample that CUPTI delivered is there, and all others that it took are counted as lost; no more than could have been taken:
        only the simulation knows when sampling began and ended within the calls. If it begins `again`, as after each overflow, the samples
        in between are lost as well, and those of a window before sampling begins."""
        metrics = done.out.run["metrics"]
        times = sorted((one for one in done.sampling() if one.started), key=lambda one: (one.device, one.enabled))
        self.assertTrue(all(one.stopped and one.disabled for one in times), times)
        self.assertEqual(metrics["samples"], sum(one.given for one in times))
        accounted = metrics["samples"] + done.out.lost().get("metric_samples", 0)
        self.assertGreaterEqual(accounted + 2 * len(times), sum((one.stopped - one.started) // one.interval for one in times))
        most = sum((one.disabled - one.enabled) // one.interval + 2 for one in times)
        if again or metrics["overflows"]:
            most += sum(after.enabled - before.disabled for before, after in zip(times, times[1:])
                        if before.device == after.device) // times[0].interval
        base = done.out.run["time_zero"]["clock_monotonic_ns"]
        spans = [(one.enabled - base, one.disabled - base) for one in times]
        for begin, end in self.windows(done.out):
            if not any(enabled <= begin and disabled >= end for enabled, disabled in spans):
                begins = min([end] + [enabled for enabled, _ in spans if enabled > begin])
                most += ((begins - begin) // times[0].interval + 1) * len({one.device for one in times})
        self.assertLessEqual(accounted, most)

    def check_order(self, done):
        """Shut down as often as started; the simulation counts the rest (simulated.Result.misuse)."""
        calls = done.simulated_calls()
        self.assertEqual(calls["cuptiPmSamplingEnable"], calls["cuptiPmSamplingDisable"])
        self.assertEqual(calls["cuptiProfilerInitialize"], calls["cuptiProfilerDeInitialize"])
        self.assertEqual(calls["cuptiProfilerHostInitialize"], calls["cuptiProfilerHostDeinitialize"])
        self.assertGreaterEqual(calls["cuptiPmSamplingStart"], calls["cuptiPmSamplingStop"])
        return calls

    def check_good(self, done, devices=(0,), after=False, may_say=None):
        self.assertEqual([line for line in done.warnings() if may_say is None or may_say not in line], [])
        lost = done.out.lost()
        # The thread whose launch ends a `launch:` window reads its own CPU time after that: if it is preempted in between for as long as
        # the window takes to settle, that reading comes too late, and is counted.
        self.assertLessEqual(set(lost), {"metric_samples", "device_time_records"})
        self.assertLessEqual(lost.get("device_time_records", 0), 1)
        self.assertEqual(done.out.run["metrics"]["devices"], list(devices))
        self.check_order(done)
        self.check_account(done)
        for device in devices:
            self.check_covered(done, device)
        return self.check_samples(done, devices, after)


class Collected(MetricsTest):
    def test_one_window(self):
        text = f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} sleep:3 {STEP} stop return:3"
        done = self.script(text)
        self.assertGreater(self.check_good(done), 200)
        self.check_opened_in_time(done)
        self.check_unharmed(done, text)
        metrics = done.out.run["metrics"]
        self.assertEqual([column["title"] for column in metrics["columns"]], TITLES)
        self.assertEqual(metrics["columns"][0]["name"], ACTIVE)
        self.assertEqual(metrics["left_out"], ["NVLink Receive (MB/s)", "NVLink Transmit (MB/s)"])
        self.assertEqual((metrics["devices"], metrics["interval_ns"], metrics["overflows"]), ([0], 100_000, 0))
        self.assertGreaterEqual(metrics["samples"], len(self.samples(done.out)))
        for share in ("start_ns", "stop_ns", "decode_cpu_ns"):
            self.assertGreater(metrics[share], 0)
        # One after the other, and missing samples are reported.
        rows = self.samples(done.out)
        gaps = sum(before["End (ns)"] != after["Start (ns)"] for before, after in zip(rows, rows[1:]))
        self.assertLessEqual(gaps, done.out.lost().get("metric_samples", 0))

    def test_off_is_nothing(self):
        done = self.script(f"{LONG} start {STEP} stop", METRICS=None)
        self.assertNotIn("metric_samples.csv", done.out.files())
        self.assertNotIn("metrics", done.out.run)
        self.assertEqual([name for name in done.simulated_calls() if name.startswith(("cuptiPm", "cuptiProfiler"))], [])

    def test_without_the_timeline(self):
        done = self.script(ONE_WINDOW, METRICS_TIMELINE=None)
        self.assertNotIn("metric_samples.csv", done.out.files())
        self.check_account(done)
        self.assertGreater(done.out.run["metrics"]["samples"], 0)
        self.check_order(done)

    def test_intervals(self):
        for interval, wanted in ((None, NS // 2), ("1ms", NS), ("0.25ms", NS // 4), ("50us", 50_000)):
            with self.subTest(interval):
                done = self.script(ONE_WINDOW, METRICS_INTERVAL=interval)
                self.assertGreater(self.check_good(done), 2)
                self.assertEqual({int(row["End (ns)"]) - int(row["Start (ns)"]) for row in self.samples(done.out)}, {wanted})
                self.assertEqual(done.out.run["metrics"]["interval_ns"], wanted)

    def test_a_window_opens_once_samples_are_taken(self):
        # As long as it takes on real hardware.
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} stop", faults="pm_enable_ms=90")
        self.check_good(done)
        self.check_opened_in_time(done)
        self.assertGreater(done.out.run["metrics"]["start_ns"], 90 * NS)

    def test_long_after_the_window_has_ended(self):
        # Kernels launched in it continue, and so do samples, until the last of them has ended.
        done = self.script("duration:gemm:30000000 kernel:warm:1 sync start until_sampling kernel:gemm:3 stop sync")
        self.assertGreater(self.check_good(done, after=True), 800)

    def test_on_the_wall_clock(self):
        done = self.script(ONE_WINDOW, faults="pm_wall_clock")
        self.assertGreater(self.check_good(done), 60)

    def test_with_cupti_on_the_wall_clock(self):
        # Records' times are then accurate to a microsecond, not to the nanosecond.
        done = self.script(ONE_WINDOW, check=False, faults="cupti_fail=cuptiActivityRegisterTimestampCallback:27")
        self.assertEqual(done.warnings(), [])
        self.check_some(done, 100)

    def test_without_a_timer(self):
        done = self.script(ONE_WINDOW, faults="pm_no_timer")
        self.assertGreater(self.check_good(done), 60)
        for row in self.samples(done.out):
            self.assertAlmostEqual(int(row["End (ns)"]) - int(row["Start (ns)"]), 100_000, delta=1_000)

    def test_a_board_without_some_of_its_chips_counters(self):
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} stop", faults="pm_no_pcie")
        self.assertEqual(done.warnings(), [], done.stderr)
        titles = [column["title"] for column in done.out.run["metrics"]["columns"]]
        self.assertEqual([title for title in titles if "PCIe" in title], [])
        self.assertIn("Tensor Pipe (%)", titles)
        self.assertGreater(len(self.samples(done.out)), 0)


class Windows(MetricsTest):
    def test_one_after_the_other(self):
        for gap in (0, 30):
            with self.subTest(gap):
                done = self.script(f"{LONG} kernel:warm:1 sync loop:3 [ start {STEP} stop sleep:{gap} ]")
                self.assertEqual(len(done.out.windows()), 3)
                self.check_good(done)
                self.check_opened_in_time(done, gap=gap * NS)

    def test_one_after_the_other_from_the_beginning(self):
        # Detached in between, and finalized.
        done = self.script(f"{LONG} kernel:warm:1 sync " +
                           " ".join(f"{BEGIN} {STEP} stop until_calls:cuptiFinalize:{number}" for number in (1, 2, 3)))
        self.assertEqual(len(done.out.windows()), 3)
        self.assertGreater(self.check_good(done), 300)
        self.check_opened_in_time(done)
        self.assertEqual(done.simulated_calls()["cuptiPmSamplingEnable"], 3)
        # Metrics are chosen once.
        self.assertEqual(done.simulated_calls()["cuptiProfilerHostGetBaseMetrics"], 3)

    def test_opened_while_the_sampling_for_the_one_before_ends(self):
        for pause in (15, 30, 60):
            with self.subTest(pause):
                done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} stop sleep:{pause} start {STEP} stop",
                                   faults="pm_enable_ms=150,pm_decode_ms=30")
                self.assertEqual(len(done.out.windows()), 2)
                self.check_good(done)
                self.check_opened_in_time(done, gap=pause * NS)

    def test_many(self):
        done = self.script("duration:gemm:1000000 kernel:warm:1 sync loop:60 [ start kernel:gemm:2 sync stop ]")
        self.assertEqual(len(done.out.windows()), 60)
        self.check_good(done)
        self.check_opened_in_time(done)
        # CUPTI stays attached to a program that brackets its steps, and so does the sampling.
        self.assertLessEqual(done.simulated_calls()["cuptiPmSamplingEnable"], 2 + 2 * simulated.pauses(done.out.run))
    def test_by_the_clock(self):
        done = self.script(f"{LONG} loop:40 [ {STEP} ]", WINDOW="time:150ms+60ms/150msx2")
        self.assertEqual(len(done.out.windows()), 2)
        self.check_good(done)

    def test_of_iterations(self):
        step = "copy:h2d:64 kernel:forward:3 kernel:gemm:2 kernel:adam:1 sync"
        done = self.script(f"duration:gemm:2000000 loop:100 [ {step} ]", WINDOW="iter:50+5")
        self.assertEqual(done.out.window_kernels(), [30])
        self.check_good(done)

    def test_from_the_beginning(self):
        # It opens inside cuInit, before any device is in use.
        done = self.script(f"{LONG} kernel:warm:1 sync until_sampling loop:2 [ {STEP} ]", WINDOW="always")
        self.assertGreater(self.check_good(done), 200)

    def test_by_launches_ranges_and_signals(self):
        for window, text in (("launch:5+12", f"{LONG} kernel:warm:1 sync until_sampling loop:5 [ {STEP} ]"),
                             ("nvtx:step", f"{LONG} kernel:warm:1 sync push:step until_sampling loop:2 [ {STEP} ] pop sync"),
                             ("signal:USR2", f"{LONG} kernel:warm:1 sync raise:USR2 until_open until_sampling "
                                             f"loop:2 [ {STEP} ] raise:USR2 until_closed")):
            with self.subTest(window):
                done = self.script(text, WINDOW=window)
                self.assertEqual(len(done.out.windows()), 1)
                self.assertGreater(self.check_good(done), 200)

    def test_with_the_subscriber_kept_for_the_profiler_calls(self):
        # The driver API alone: CUPTI's callback opens the window, where nothing may wait.
        done = self.script(f"init duration:gemm:30000000 kernel:warm:1 sync {BEGIN} kernel:gemm:2 sync stop", program="driver")
        self.assertGreater(self.check_good(done), 500)

    def test_opened_before_sampling_begins(self):
        # Nothing may wait here either: samples that the window lacks are counted.
        text = f"init {LONG} kernel:warm:1 sync {BEGIN} kernel:gemm:1 sync stop sleep:15 start kernel:gemm:9 sync stop"
        done = self.script(text, program="driver", faults="pm_enable_ms=150,pm_decode_ms=30")
        self.check_account(done)
        begin, end = self.windows(done.out)[1]
        inside = sum(begin <= int(row["Start (ns)"]) < end for row in self.samples(done.out))
        self.assertGreaterEqual(inside + done.out.lost().get("metric_samples", 0), (end - begin) // 100_000 - 4)

    def test_with_graphs(self):
        # CUPTI is unsubscribed, but not finalized.
        done = self.script(f"{LONG} capture:1 kernel:gemm:2:1 end_capture:1:g {BEGIN} graph:g:1 sync stop "
                           f"until_calls:cuptiPmSamplingDisable:1 {BEGIN} graph:g:1 sync stop")
        self.assertEqual(len(done.out.windows()), 2)
        # Reported if the second window did not come before the detachment.
        self.check_good(done, may_say="CUPTI is not finalized because the program uses CUDA graphs")
        self.assertEqual(done.simulated_calls()["cuptiPmSamplingEnable"], 2)


class Threads(MetricsTest):
    def test_that_launch_while_windows_open_and_close(self):
        number = 16
        text = (f"duration:t:20000 kernel:warm:1 sync background [ threads:{number} [ loop:900 [ kernel:t:10:own sleep:1 ] ] ] "
                "loop:3 [ sleep:20 start until_sampling sleep:60 stop ] join sync return:3")
        done = self.script(text, faults="pm_enable_ms=90", timeout=120)
        self.assertEqual((done.code, done.warnings()), (3, []))
        self.assertEqual(len(done.out.windows()), 3)
        self.check_order(done)
        self.check_account(done)
        self.check_covered(done)
        kernels = done.out.window_kernels()
        self.assertGreater(max(kernels), number, kernels)
        self.assertLess(sum(kernels), number * 9_000)


class Devices(MetricsTest):
    def test_those_that_are_in_use(self):
        done = self.script(f"{LONG} device:1 kernel:warm:1 sync device:3 kernel:warm:1 sync start until_sampling:2 {STEP} "
                           f"device:1 {STEP} stop", devices=4)
        self.assertGreater(self.check_good(done, (1, 3)), 200)
        for device in (1, 3):
            self.check_opened_in_time(done, device)
    def test_one_that_comes_later(self):
        # While it is being set up, which takes as long as on real hardware, sampling of the other one continues: neither finds its buffer
        # full.
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} device:1 kernel:warm:1 sync until_sampling:2 "
                           f"loop:2 [ {STEP} ] device:0 {STEP} stop", faults="pm_enable_ms=90")
        self.assertGreater(self.check_good(done, (0, 1)), 400)
        ((begin, _),) = self.windows(done.out)
        ((first, _, _),) = self.sampled(done, 1)
        self.assertGreater(first, begin + 90 * NS)
    def test_one_of_them_is_busy(self):
        done = self.script(f"{LONG} kernel:warm:1 sync device:1 kernel:warm:1 sync {BEGIN} {STEP} stop",
                           faults="cupti_fail=cuptiPmSamplingEnable:26:1:1")
        (line,) = done.warnings()
        self.assertIn("no hardware metrics of device 0: another profiler uses its counters", line)
        self.check_account(done)
        self.assertGreater(self.check_samples(done, (1,)), 60)


class Own(MetricsTest):
    def test_names(self):
        second = "LTS.TriageCompute.lts__throughput" + ELAPSED
        done = self.script(ONE_WINDOW, METRICS=f"{second},{ACTIVE}")
        self.assertEqual(done.warnings(), [])
        self.check_account(done)
        rows = self.samples(done.out)
        self.assertEqual(list(rows[0]), ["Device", "Start (ns)", "End (ns)", second, ACTIVE])
        self.assertIn((20, 100), {(float(row[second]), float(row[ACTIVE])) for row in rows})
        self.check_order(done)

    def check_refused(self, names, *texts):
        text = f"{LONG} kernel:warm:1 sync start {STEP} stop until_calls:cuptiFinalize:1 start {STEP} stop return:3"
        done = self.script(text, METRICS=names)
        (line,) = done.warnings()
        self.assertTrue(line.startswith("no hardware metrics: INJECT_METRICS: "), line)
        for part in texts:
            self.assertIn(part, line)
        self.check_unharmed(done, text)
        self.assertEqual(done.out.kernels(), {"gemm": 4, "fp64": 2, "other": 2})
        self.assertEqual((done.out.lost(), self.samples(done.out)), ({}, []))
        self.assertEqual(self.check_order(done)["cuptiPmSamplingEnable"], 0)

    def test_an_unknown_one(self):
        self.check_refused(f"{ACTIVE},sm__nonsense.avg", "'sm__nonsense.avg'", "SIM100")

    def test_an_unknown_rollup(self):
        self.check_refused("sm__cycles_active.nonsense", "'sm__cycles_active.nonsense'")

    def test_too_many_for_one_pass(self):
        self.check_refused(f"{ACTIVE},sm__warps_active{ELAPSED}", f"'sm__warps_active{ELAPSED}'", "2 passes together")


class Refused(MetricsTest):
    TEXT = f"{LONG} kernel:warm:1 sync start {STEP} stop until_calls:cuptiFinalize:1 start {STEP} stop print:done return:3"
    # Only the second window has samples.
    LATER = f"{LONG} kernel:warm:1 sync start {STEP} stop until_calls:cuptiFinalize:1 {BEGIN} {STEP} stop"

    def check(self, faults, *texts, tries, text=TEXT, **options):
        done = self.script(text, faults=faults, **options)
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        (line,) = done.warnings()
        self.assertIn("no hardware metrics", line)
        for part in texts:
            self.assertIn(part, line)
        self.assertEqual(done.out.run["messages"], [line])
        self.assertEqual(done.out.kernels(), {"gemm": 4, "fp64": 2, "other": 2})
        self.assertEqual((done.out.lost(), self.samples(done.out)), ({}, []))
        self.assertEqual(len(done.out.windows()), 2)
        self.assertEqual(done.simulated_calls()["cuptiPmSamplingEnable"], tries)
        return done

    def test_no_permission(self):
        self.check("cupti_fail=cuptiPmSamplingEnable:35", "NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN",
                   "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)", tries=1)

    def test_busy(self):
        # Once per window, and no more.
        self.check("cupti_fail=cuptiPmSamplingEnable:26", "another profiler uses its counters", tries=2)
        self.check("cupti_fail=cuptiPmSamplingEnable:7", "another profiler uses its counters", tries=2)

    def test_busy_for_a_while(self):
        done = self.script(self.LATER, faults="cupti_fail=cuptiPmSamplingEnable:26:1:1")
        self.assertEqual(len(done.warnings()), 1)
        self.check_account(done)
        self.assertGreater(self.check_samples(done), 60)
        self.assertEqual(done.simulated_calls()["cuptiPmSamplingEnable"], 2)

    def test_partitioned_and_virtual(self):
        self.check("cupti_fail=cuptiPmSamplingEnable:43", "MIG", tries=1)
        self.check("cupti_fail=cuptiPmSamplingEnable:33", "virtual GPU", tries=1)
        self.check("cupti_fail=cuptiPmSamplingEnable:45", "WSL", tries=1)
        self.check("cupti_fail=cuptiPmSamplingSetConfig:41", "confidential computing", tries=1)

    def test_what_cupti_says_of_the_device(self):
        self.check("pm_unsupported=architecture", "its architecture is too old", tries=2)
        self.check("pm_unsupported=vgpu", "virtual GPU", tries=2)
        self.check("pm_unsupported=vgpu_disabled", "hypervisor", tries=2)
        self.check("pm_unsupported=wsl", "WSL", tries=2)
        self.check("pm_unsupported=sli", "SLI", tries=2)

    def test_an_unknown_chip(self):
        self.check("cupti_fail=cuptiProfilerHostInitialize:46", "this CUPTI has no metrics for its chip, SIM100", tries=0)

    def test_any_other_error(self):
        self.check("cupti_fail=cuptiProfilerInitialize:999", "cuptiProfilerInitialize failed", tries=0)
        self.check("cupti_fail=cuptiDeviceGetChipName:999", "cuptiDeviceGetChipName failed", tries=0)
        self.check("cupti_fail=cuptiPmSamplingGetCounterDataSize:999", "cuptiPmSamplingGetCounterDataSize failed", tries=2)
        self.check("cupti_fail=cuptiPmSamplingStart:999", "cuptiPmSamplingStart failed", tries=2)
        self.check("cupti_fail=cuptiProfilerInitialize:35", "NVreg_RestrictProfilingToAdminUsers=0", tries=0)
        self.check("cupti_fail=cuptiProfilerHostGetBaseMetrics:999", "libnvperf_host can't be used", "(999)", tries=0)
        self.check("cupti_fail=cuptiPmSamplingSetConfig:7", "cuptiPmSamplingSetConfig failed", tries=2)
        self.check("cupti_fail=cuptiProfilerHostGetNumOfPasses:999", "its metrics can't be checked", "(999)", tries=0)

    def test_an_error_that_passes(self):
        for fault in ("cuptiProfilerHostGetBaseMetrics:999:1:1", "cuptiProfilerHostConfigAddMetrics:999:1:1"):
            with self.subTest(fault):
                done = self.script(self.LATER, faults=f"cupti_fail={fault}", METRICS=ACTIVE)
                self.assertEqual(len(done.warnings()), 1)
                self.check_some(done, 100)
                self.check_order(done)

    def test_on_every_device_one_line(self):
        text = self.TEXT.replace("kernel:warm:1", "kernel:warm:1 sync device:1 kernel:warm:1 sync device:2 kernel:warm:1")
        self.check("cupti_fail=cuptiPmSamplingEnable:43", "MIG", tries=3, text=text, devices=3)
        self.check("cupti_fail=cuptiPmSamplingEnable:35", "CAP_SYS_ADMIN", tries=1, text=text, devices=3)

    def test_a_cupti_without_it(self):
        hide = simulated.programs / "script_hide.so"
        done = self.script(self.TEXT, before=[hide], env={"HIDDEN_LIBRARIES": "libcupti.so.13"})
        (line,) = done.warnings()
        self.assertIn("no hardware metrics: this CUPTI", line)
        self.assertIn("can't sample counters while it records kernels", line)
        self.assertEqual(done.out.kernels(), {"gemm": 4, "fp64": 2, "other": 2})

    def test_no_cupti_at_all(self):
        hide = simulated.programs / "script_hide.so"
        done = self.script(self.TEXT.replace("until_calls:cuptiFinalize:1", ""), before=[hide],
                           env={"HIDDEN_LIBRARIES": "libcupti.so"})
        (line,) = done.warnings()
        self.assertIn("no device activity is recorded", line)
        self.assertEqual(done.out.run["metrics"]["samples"], 0)


class Faults(MetricsTest):
    def test_decoding_fails_once(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} until_calls:cuptiPmSamplingEnable:2 until_sampling "
                           f"{STEP} stop",
                           faults="cupti_fail=cuptiPmSamplingDecodeData:999:4:1")
        self.assertEqual(done.warnings(), [])
        self.assertEqual(self.check_order(done)["cuptiPmSamplingEnable"], 2)
        self.check_account(done, again=True)
        self.check_covered(done)
        self.assertGreater(self.check_samples(done), 100)
    def test_decoding_fails_for_good(self):
        # Samples that are no longer delivered are lost.
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} until_calls:cuptiPmSamplingDecodeData:5 loop:2 [ {STEP} ] stop",
                           faults="cupti_fail=cuptiPmSamplingDecodeData:999:4")
        (line,) = done.warnings()
        self.assertIn("no further hardware metrics of device 0: cuptiPmSamplingDecodeData failed", line)
        self.assertGreater(done.out.lost()["metric_samples"], 250)
        self.check_account(done, again=True)
        self.check_covered(done)
        self.check_order(done)

    def test_it_can_not_be_started_again(self):
        # Likewise, up to the end of the others.
        for fault in ("cuptiPmSamplingEnable:26:2", "cuptiPmSamplingStart:999:2"):
            with self.subTest(fault):
                function = fault.partition(":")[0]
                done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} until_calls:{function}:2 loop:2 [ {STEP} ] stop",
                                   faults=["cupti_fail=cuptiPmSamplingDecodeData:999:4:1", f"cupti_fail={fault}"])
                (line,) = done.warnings()
                self.assertIn("no further hardware metrics of device 0", line)
                self.assertGreater(done.out.lost()["metric_samples"], 250)
    def test_what_is_left_when_the_sampling_stops_takes_too_long(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} fault:pm_decode_ms:600 loop:12 [ {STEP} ] stop")
        self.assertEqual(done.warnings(), [])
        self.check_account(done)
        self.check_covered(done)
        self.assertGreater(done.out.lost()["metric_samples"], 100)
    OVERFLOW = (f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} fault:pm_buffer:30 until_calls:cuptiPmSamplingEnable:2 "
                f"fault:pm_buffer:off until_sampling loop:2 [ {STEP} ] stop")

    def test_an_overflow_of_one_of_two(self):
        # Both are restarted: the other one's buffer would be full before the first is set up.
        done = self.script(f"{LONG} kernel:warm:1 sync device:1 kernel:warm:1 sync start until_sampling:2 {STEP} fault:pm_buffer:30 "
                           f"until_calls:cuptiPmSamplingEnable:4 fault:pm_buffer:off until_sampling:2 loop:2 [ {STEP} ] device:0 "
                           f"loop:2 [ {STEP} ] stop", faults="pm_enable_ms=90", devices=2)
        self.assertEqual(done.warnings(), [])
        self.check_account(done, again=True)
        self.assertEqual(done.out.run["metrics"]["devices"], [0, 1])
        for device in (0, 1):
            self.assertGreaterEqual(len([one for one in done.sampling() if one.device == device]), 2)
            self.check_covered(done, device)

    def test_a_part_of_the_device_tells_nothing(self):
        # With it no sample is ever complete; without it all is well, from the first window on.
        left_out = ["NVLink Receive (MB/s)", "NVLink Transmit (MB/s)", "PCIe Read (MB/s)", "PCIe Write (MB/s)"]
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} until_calls:cuptiPmSamplingEnable:2 until_sampling {STEP} stop",
                           faults="pm_silent_pcie", LOG="info")
        self.assertEqual(done.warnings(), [])
        self.assertIn("is sampled without PCIe Read (MB/s), PCIe Write (MB/s)", done.stderr)
        metrics = done.out.run["metrics"]
        self.assertEqual((metrics["left_out"], [column["title"] for column in metrics["columns"]]), (left_out, TITLES))
        self.assertGreater(metrics["lost"]["incomplete"], 60)
        self.assertEqual(sum(metrics["lost"].values()), done.out.lost()["metric_samples"])
        self.assertEqual(metrics["first_lost"]["reason"], "incomplete")
        self.assertEqual(self.check_order(done)["cuptiPmSamplingEnable"], 2)
        self.check_account(done, again=True)
        self.check_covered(done)
        rows = self.samples(done.out)
        self.assertGreater(sum(float(row["Tensor Pipe (%)"]) == 90 for row in rows), 20)
        self.assertEqual({row["PCIe Read (MB/s)"] for row in rows}, {""})

    def test_a_part_that_tells_nothing_is_not_tried_twice(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} until_calls:cuptiPmSamplingEnable:2 until_sampling {STEP} stop "
                           f"sleep:1500 start until_sampling {STEP} stop", faults="pm_silent_pcie", LOG="info")
        self.assertEqual(done.warnings(), [])
        self.assertGreaterEqual(self.check_order(done)["cuptiPmSamplingEnable"], 3)
        self.assertEqual(done.stderr.count("is sampled without"), 1)

    def test_a_part_that_the_user_wants_tells_nothing(self):
        done = self.script(f"{LONG} kernel:warm:1 sync start loop:3 [ {STEP} ] stop", faults="pm_silent_pcie",
                           METRICS="PCI.TriageCompute.pcie__read_bytes.sum.per_second")
        (line,) = done.warnings()
        self.assertIn("no sample was usable: a part of the device's counters is not in them", line)
        metrics = done.out.run["metrics"]
        self.assertEqual((metrics["samples"], self.check_order(done)["cuptiPmSamplingEnable"]), (0, 1))
        self.assertGreater(metrics["lost"]["incomplete"], 60)

    def test_some_samples_can_not_be_evaluated(self):
        done = self.script(ONE_WINDOW, SUMMARY="stderr",
                           faults="cupti_fail=cuptiProfilerHostEvaluateToGpuValues:1:11:40")
        self.assertEqual(done.warnings(), [])
        metrics = done.out.run["metrics"]
        self.assertEqual(metrics["lost"]["not_evaluated"], 40)
        self.assertEqual(metrics["first_lost"]["reason"], "not_evaluated")
        self.assertIn("(1)", metrics["first_lost"]["error"])
        self.assertGreater(metrics["first_lost"]["cupti_end_ns"], metrics["first_lost"]["cupti_start_ns"])
        self.assertEqual(metrics["left_out"], ["NVLink Receive (MB/s)", "NVLink Transmit (MB/s)"])
        self.assertIn("of hardware metrics lost: ", done.stderr)

    def test_what_an_emptied_image_cuts_in_two(self):
        # The SMs' part of each new image's first sample was lost with the previous image: no value is derived from it.
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} loop:12 [ {STEP} ] stop", SUMMARY="stderr")
        self.check_good(done)
        metrics = done.out.run["metrics"]
        self.assertGreater(metrics["decode"]["emptied"], 1)
        # The last one may have been emptied for nothing, and a sample may have been in progress when sampling stopped.
        if metrics["overflows"] == 0:
            self.assertLessEqual(abs(metrics["decode"]["emptied"] - metrics["lost"]["incomplete"]), 1)
        self.assertEqual({row["Occupancy (%)"] for row in self.samples(done.out)} - {"", "50.000"}, set())
        self.assertEqual(metrics["first_lost"]["reason"], "incomplete")
        self.assertGreater(metrics["first_lost"]["cupti_end_ns"], metrics["first_lost"]["cupti_start_ns"])
        self.assertIn("of hardware metrics lost: a part of the device's counters is not in them", done.stderr)

    def test_counters_contradict_each_other(self):
        # More warps than the SMs were active for: none of the sample's values counts.
        done = self.script(ONE_WINDOW, faults="pm_contrary=40")
        self.check_good(done)
        metrics = done.out.run["metrics"]
        self.assertEqual(metrics["lost"]["contradictory"], 40)
        # On a busy machine our thread is late, and samples are lost for that reason before there is one of these.
        self.assertGreater(metrics["lost"][metrics["first_lost"]["reason"]], 0)
        self.assertEqual(metrics["first_lost"]["error"], "")
        self.assertEqual([row for row in self.samples(done.out) if float(row["Warps Active (%)"]) > float(row["SM Active (%)"])], [])

    def test_samples_that_are_timed_anew(self):
        # They are the same ones, and count once.
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} until_calls:cuptiPmSamplingDecodeData:20 {STEP} stop", faults="pm_retimed=1000", METRICS_INTERVAL="1ms")
        rows = self.samples(done.out)
        self.assertGreater(len(rows), 10)
        for before, after in zip(rows, rows[1:]):
            self.assertGreaterEqual(int(after["Start (ns)"]), int(before["End (ns)"]) - 1100 * 2)
        metrics = done.out.run["metrics"]
        self.assertLessEqual(metrics["lost"].get("incomplete", 0), metrics["decode"]["emptied"])

    def test_no_sample_can_be_evaluated(self):
        # Not even with fewer metrics: that is reported once, and sampling ends.
        done = self.script(f"{LONG} kernel:warm:1 sync start until_calls:cuptiPmSamplingEnable:5 loop:8 [ {STEP} ] stop",
                           faults="cupti_fail=cuptiProfilerHostEvaluateToGpuValues:1")
        (line,) = done.warnings()
        self.assertIn("no sample was usable: CUPTI gave them no values", line)
        metrics = done.out.run["metrics"]
        self.assertEqual((metrics["samples"], self.check_order(done)["cuptiPmSamplingEnable"]), (0, 5))
        self.assertGreater(metrics["lost"]["not_evaluated"], 250)

    def test_what_decoding_costs_is_told_by_its_steps(self):
        for _ in range(3):
            metrics = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} until_calls:cuptiPmSamplingDecodeData:12 {STEP} stop").out.run["metrics"]
            decode = metrics["decode"]
            # On a busy machine there may be as many samples as fit each time.
            if decode["emptied"] < decode["calls"]:
                break
        steps = [decode[step] for step in ("data_cpu_ns", "times_cpu_ns", "evaluate_cpu_ns", "empty_cpu_ns")]
        self.assertGreater(min(steps[:3]), 0)
        self.assertLessEqual(sum(steps), metrics["decode_cpu_ns"])
        self.assertGreaterEqual(decode["samples"], metrics["samples"])
        # Not after each call, because emptying takes as long as for a full image, whatever was decoded.
        self.assertLess(decode["emptied"], decode["calls"])
        # As many as fit into memory, if that is less than eight pauses deliver: a third of them at a time.
        self.assertEqual(decode["image_samples"], (16 << 20) // 32768 - 1)
        self.assertLessEqual(decode["image_bytes"], 16 << 20)
        self.assertEqual((decode["pause_ns"], decode["shortened"]), (decode["image_samples"] // 3 * 100_000, 0))
        first = metrics["first_sample"]
        self.assertEqual(first["cupti_end_ns"] - first["clock_monotonic_end_ns"],
                         first["cupti_start_ns"] - first["clock_monotonic_start_ns"])
        self.assertLessEqual(first["clock_monotonic_end_ns"], first["read_clock_monotonic_ns"])

    def test_decoding_is_done_before_the_buffer_is_full(self):
        # It fills with time, not only with samples. Sooner at first, then as late as possible with the same margin.
        for interval in (500, 1000):
            with self.subTest(interval):
                done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} until_calls:cuptiPmSamplingDecodeData:9 stop",
                                   METRICS_INTERVAL=f"{interval}us")
                metrics = done.out.run["metrics"]
                decode = metrics["decode"]
                self.check_account(done)
                self.check_covered(done)
                self.assertEqual((metrics["overflows"], decode["shortened"]), (0, 0))
                # 8 kB per sample, and 8 kB per 40 us.
                held = (32 << 20) / 8192 * 1000 / (1000 / interval + 1000 / 40)
                self.assertAlmostEqual(decode["pause_ns"] / 1000, held / 2, delta=0.01 * held)
                self.assertEqual(decode["image_samples"],
                                 min(8 * (decode["pause_ns"] // (interval * 1000)), (16 << 20) // 32768 - 1))
                sampled = sum(one.stopped - one.started for one in done.sampling() if one.started)
                self.assertGreater(sampled, 20e6 + 40e6 + 6 * decode["pause_ns"])
                self.assertLessEqual(decode["image_bytes"] + decode["buffer_bytes"], 48 << 20)

    def test_an_overflow_that_nothing_tells_of(self):
        # Samples are missing between two decodes: this is noticed and counted, and decoding comes sooner, down to every 10 ms.
        for samples in (150, 60):
            with self.subTest(samples):
                done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} loop:12 [ {STEP} ] stop", LOG="info",
                                   faults=["pm_overflow_silent", f"pm_buffer={samples}"])
                metrics = done.out.run["metrics"]
                self.assertEqual((done.warnings(), metrics["overflows"]), ([], 0))
                self.assertGreater(metrics["lost"]["missing"], 20)
                self.assertGreater(metrics["decode"]["shortened"], 0)
                self.assertGreaterEqual(metrics["decode"]["pause_ns"], 10 * NS)
                self.assertLess(metrics["decode"]["pause_ns"], 20 * NS)
                self.assertIn("was full: it is now decoded every", done.stderr)
                self.assertIn("measure fewer metrics (INJECT_METRICS)", done.stderr)
                self.check_account(done)

    def test_overflow(self):
        # Room for three milliseconds, until it has been set up anew, which takes as long as on real hardware.
        done = self.script(self.OVERFLOW, SUMMARY="stderr", faults="pm_enable_ms=90")
        self.assertEqual(done.warnings(), [])
        metrics = done.out.run["metrics"]
        self.assertGreater(metrics["overflows"], 0)
        self.assertEqual(set(done.out.lost()), {"metric_samples"})
        self.assertIn("of hardware metrics lost: measure fewer (INJECT_METRICS), or raise INJECT_METRICS_INTERVAL", done.stderr)
        # It restarts after each: samples until the end, or as many that are counted.
        self.check_account(done)
        self.check_covered(done)
        self.assertGreater(self.check_samples(done), 100)
        self.check_order(done)

    def test_overflows_without_end(self):
        done = self.script(f"{LONG} kernel:warm:1 sync start loop:20 [ {STEP} ] stop", faults="pm_buffer=1")
        (line,) = done.warnings()
        self.assertIn("samples come faster than they can be decoded; measure fewer metrics (INJECT_METRICS), or raise", line)
        # It is given up after some, long before the window's end, and set up anew after each of the others.
        overflows = done.out.run["metrics"]["overflows"]
        self.assertGreater(overflows, 1)
        self.assertEqual(self.check_order(done)["cuptiPmSamplingEnable"], overflows)
        self.assertEqual(set(done.out.lost()), {"metric_samples"})
        self.assertEqual(done.out.kernels(), {"gemm": 40, "fp64": 20, "other": 20})

    def test_an_overflow_that_only_the_flag_tells_of(self):
        done = self.script(self.OVERFLOW, faults=["pm_overflow_flag", "pm_enable_ms=90"])
        self.assertEqual(done.warnings(), [])
        self.assertGreater(done.out.run["metrics"]["overflows"], 0)
        self.assertEqual(set(done.out.lost()), {"metric_samples"})
        self.check_account(done)
        self.check_covered(done)
        self.assertGreater(self.check_samples(done), 100)
        self.check_order(done)

    def test_the_sampling_thread_comes_late(self):
        # There is room in the hardware's buffer, but not in the image.
        for _ in range(3):
            done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} until_calls:cuptiPmSamplingDecodeData:3 fault:pm_decode_ms:off "
                               f"loop:2 [ {STEP} ] stop", faults="pm_decode_ms=90")
            # On a busy machine it comes so late that the hardware's buffer is full as well.
            if not done.out.run["metrics"]["overflows"]:
                break
        self.assertGreater(self.check_good(done), 200)
        self.assertGreater(done.out.lost()["metric_samples"], 150)
        # Those are delivered nevertheless, in the next image, and without a duration.
        metrics = done.out.run["metrics"]
        self.assertGreater(metrics["lost"]["without_times"], 100)
        self.assertEqual((metrics["lost"]["bad_times"], metrics["first_lost"]["reason"]), (0, "without_times"))
        self.assertEqual(metrics["first_lost"]["cupti_start_ns"], metrics["first_lost"]["cupti_end_ns"])

    def test_activity_that_is_late_lost_or_wrong(self):
        for fault in ("late=60", "drop=2", "zero_time=2", "out_of_order", "repeat=2"):
            with self.subTest(fault):
                done = self.script(ONE_WINDOW, faults=fault)
                self.check_account(done)
                self.check_covered(done)
                self.check_order(done)

    def test_no_activity_at_all(self):
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} stop sync",
                           faults="cupti_fail=cuptiActivityEnable:27")
        self.assertEqual(len(done.warnings()), 1)
        self.assertEqual(done.out.kernels(), {})

    def test_fatal_error(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} fault:fatal_error: {STEP} stop sync print:done")
        self.assertEqual((done.code, done.stdout), (0, "done\n"))
        self.assertIn("CUPTI has stopped with a fatal error", " ".join(done.warnings()))

    def test_the_program_resets_its_device(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} reset kernel:other:1 sync stop print:done")
        self.assertEqual((done.code, done.stdout), (0, "done\n"))
        self.check_some(done, 100)

    def test_the_program_takes_cupti(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} take_buffers {STEP} stop sync print:done")
        self.assertEqual((done.code, done.stdout), (0, "done\n"))
        self.check_some(done, 100)
        self.check_order(done)


class Foreign(MetricsTest):
    """The program uses CUPTI itself, through a library that is linked with it."""

    def test_it_finalizes_cupti(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} finalize {STEP} sleep:50 stop sync {BEGIN} {STEP} stop "
                           "sync print:done return:3")
        self.assertEqual((done.code, done.stdout), (3, "done\n"))
        (line,) = done.warnings()
        self.assertIn("window 1 closed early and CUPTI released: script_client.so finalizes CUPTI", line)
        # Sampled until then, and again in the next window.
        self.check_some(done, 240)
        self.check_covered(done)
        self.check_order(done)
        self.assertEqual(done.simulated_calls()["cuptiPmSamplingEnable"], 2)

    def test_it_finalizes_cupti_between_windows(self):
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} stop finalize start {STEP} stop sync finalize print:done")
        self.assertEqual((done.code, done.stdout), (0, "done\n"))
        self.check_order(done)

    def test_it_uses_the_profiler(self):
        for first in ("", "initialize_profiler "):
            with self.subTest(first):
                text = f"{LONG} {first}kernel:warm:1 sync start {STEP} "
                text += "end_profiler " if first else f"initialize_profiler {STEP} end_profiler "
                done = self.script(text + f"{STEP} stop sleep:50 start {STEP} stop sync print:done return:3")
                self.assertEqual((done.code, done.stdout), (3, "done\n"))
                (line,) = done.warnings()
                self.assertIn("the program uses CUPTI's profiler itself", line)
                calls = done.simulated_calls()
                self.assertEqual(calls["cuptiPmSamplingEnable"], calls["cuptiPmSamplingDisable"])
                # Ours, and the program's.
                self.assertEqual(calls["cuptiPmSamplingEnable"], 0 if first else 1)
                self.assertEqual(calls["cuptiProfilerInitialize"], calls["cuptiProfilerDeInitialize"])
                self.assertEqual(done.out.kernels()["gemm"], 4 + 2 * (not first) + 2)


class Stopping(MetricsTest):
    ALL = " ".join(f"device:{device} kernel:warm:1 sync" for device in range(8))
    # The call whose wait was given up has returned, and the sampling that it began is stopped.
    RETURNED = "until_calls:cuptiPmSamplingDisable:1 sleep:100"

    def test_while_devices_are_being_opened(self):
        for end in ("stop sleep:400 return:4", "exit:4"):
            with self.subTest(end):
                done = self.script(f"{LONG} {self.ALL} start {STEP} {end}", devices=8, faults="pm_enable_ms=300")
                self.assertEqual((done.code, done.warnings()), (4, []))
                # Not all of them, which would take longer than any wait.
                self.assertLess(self.check_order(done)["cuptiPmSamplingEnable"], 8)

    def test_a_call_that_does_not_return_in_time(self):
        # CUPTI stays subscribed until the call has returned, and is not finalized any more.
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} stop {self.RETURNED} start {STEP} stop sync return:4",
                           faults="pm_enable_ms=3500")
        self.assertEqual(done.code, 4)
        (line,) = done.warnings()
        self.assertIn("sampling of hardware metrics does not stop", line)
        self.assertEqual(done.simulated_calls()["cuptiFinalize"], 0)

    def test_one_that_was_only_slow(self):
        # It has made progress since: the next window's samples are waited for.
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} stop {self.RETURNED} fault:pm_enable_ms:off start "
                           f"until_sampling {STEP} stop sync return:4", faults="pm_enable_ms=3500")
        self.assertEqual(done.code, 4)
        self.assertEqual(len(done.warnings()), 1)
        self.assertEqual(set(done.out.lost()) - {"metric_samples"}, set())
        self.assertGreater(int(done.out.rows("kernel_metrics.csv")[0]["Samples"]), 10)

    def test_nor_before_the_end(self):
        begin = time.monotonic()
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} return:4", faults="pm_enable_ms=30000")
        self.assertEqual(done.code, 4)
        self.assertLess(time.monotonic() - begin, 12)

    def test_a_fork_while_libraries_are_loaded(self):
        done = self.script(f"{LONG} kernel:warm:1 until_calls:cuptiProfilerHostInitialize:1 fork_load sync return:4",
                           WINDOW="always", faults="pm_load_ms=200")
        self.assertEqual((done.code, done.warnings(), done.stdout), (4, [], ""))


class Ends(MetricsTest):
    def test_in_an_open_window(self):
        for end, code in (("exit:5", 5), ("return:7", 7), ("sync", 0)):
            with self.subTest(end):
                done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} loop:2 [ {STEP} ] {end}")
                self.assertEqual(done.code, code)
                self.assertGreater(self.check_good(done), 200)

    def test_past_every_exit_handler(self):
        done = self.script(f"{LONG} kernel:warm:1 sync start {STEP} sleep:50 quick_exit:6", check=False)
        self.assertEqual((done.code, done.warnings()), (6, []))
        self.assertEqual(done.out.run["state"], "open")

    def test_while_kernels_run(self):
        done = self.script("duration:gemm:40000000 kernel:warm:1 sync start kernel:gemm:3 return:4")
        self.assertEqual(done.code, 4)
        self.check_order(done)

    def test_before_a_window_has_opened(self):
        # CUPTI has been attached for a window that does not come.
        done = self.script(f"{LONG} kernel:warm:1 sync loop:30 [ {STEP} ] exit:5", WINDOW="time:700ms+1s")
        self.assertEqual(done.code, 5)
        self.check_order(done)

    def test_while_the_sampling_starts(self):
        done = self.script(f"{LONG} loop:3 [ {STEP} ] exit:5", WINDOW="always", faults="pm_enable_ms=400")
        self.assertEqual((done.code, done.warnings()), (5, []))
        self.check_order(done)

    def test_by_itself_once_the_windows_are_over(self):
        done = self.script(f"{LONG} kernel:warm:1 sync {BEGIN} {STEP} stop sleep:5000 exit:9", AFTER="exit", WINDOW="apix1")
        self.assertEqual((done.code, done.warnings()), (0, []))
        self.assertLessEqual(set(done.out.lost()), {"metric_samples"})
        self.check_some(done, 100)


if __name__ == "__main__":
    simulated.main()
