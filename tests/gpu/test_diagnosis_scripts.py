# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Tests of idle_truth.py on folders written here, one rule each, and of how diagnosis.py judges the programs' results."""

import contextlib
import csv
import io
import json
import os
import re
import sys
import tempfile
import unittest

import diagnosis
import gputest
import idle_truth

GPU = ("Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
       "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name").split(",")
API = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name".split(",")
LIBRARY = "Start (ns),Duration (ns),Name,Result,Depth,Pid,Tid,Thread Name".split(",")
CPU = "Time (ns),CPU Time (ns),Voluntary Switches,Tid".split(",")
US, MS = 1000, 1_000_000
H2D, D2H, D2D = (f"[CUDA memcpy {way}]" for way in ("Host-to-Device", "Device-to-Host", "Device-to-Device"))


class Records:
    """The raw records of a run, with all times in microseconds."""

    def __init__(self, *windows):
        self.windows = windows or [(0, 1000)]
        self.work, self.api, self.library, self.readings = [], [], [], []
        self.last_correlation = 0

    def next_correlation(self):
        self.last_correlation += 1
        return self.last_correlation

    def kernel(self, begin, end, correlation=0, stream=7, name="k", device=0):
        self.work.append([round(begin * US), round((end - begin) * US), correlation, *[1] * 9, "", "", "", "",
                          f"GPU, large ({device})", 1, "", stream, name])

    def transfer(self, begin, end, correlation=0, name=H2D, megabytes="1.000", stream=7, device=0):
        self.work.append([begin * US, (end - begin) * US, correlation, *[""] * 9, megabytes, "", "", "", f"GPU, large ({device})", 1,
                          "", stream, name])

    def call(self, begin, end, name="cudaLaunchKernel", correlation=0, tid=1):
        self.api.append([begin * US, (end - begin) * US, name, 0, correlation, 99, tid, "", "thread"])

    def library_call(self, begin, end, name, tid=1):
        self.library.append([begin * US, (end - begin) * US, name, 0, 0, 99, tid, "thread"])

    def launched(self, call, work, tid=1, **how):
        """A kernel and the call that launched it: (begin, end) each."""
        correlation = self.next_correlation()
        self.call(*call, correlation=correlation, tid=tid)
        self.kernel(*work, correlation, **how)

    def reading(self, time, used, tid=1, waits=None):
        """By default the thread has waited since the previous reading."""
        self.readings.append([time * US, used * US, len(self.readings) + 1 if waits is None else waits, tid])

    def write(self, folder):
        for name, header, rows in ((idle_truth.GPU_TRACE, GPU, self.work), (idle_truth.API_TRACE, API, self.api),
                                   (idle_truth.LIBRARY_TRACE, LIBRARY, self.library), (idle_truth.CPU_TRACE, CPU, self.readings)):
            with open(os.path.join(folder, name), "w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(header)
                writer.writerows(rows)
        windows = [{"number": number, "start_ns": begin * US, "end_ns": end * US, "duration_ns": (end - begin) * US}
                   for number, (begin, end) in enumerate(self.windows, 1)]
        with open(os.path.join(folder, "run.json"), "w") as file:
            json.dump({"windows": windows, "devices": [{"id": device, "multiprocessors": 132} for device in range(2)]}, file)


class Truth(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.path = temporary.name

    def columns(self, records, window=1, device=0):
        records.write(self.path)
        return idle_truth.compute(self.path)[window, device]

    def idle(self, records, **which):
        """{cause: microseconds} of causes that are not 0."""
        columns = self.columns(records, **which)
        found = {cause: columns[idle_truth.idle_column(cause)] / US for cause in idle_truth.CAUSES}
        self.assertAlmostEqual(sum(found.values()) * US, columns["Idle (ns)"])
        self.assertEqual(columns["Kernel Busy (ns)"] + columns["Copy Only (ns)"] + columns["Idle (ns)"], columns["Device Time (ns)"])
        return {cause: time for cause, time in found.items() if time}

    def write_summary(self, changed=None, to=None):
        truth = idle_truth.compute(self.path)
        columns = idle_truth.TIMES + idle_truth.RATIOS
        with open(os.path.join(self.path, "window_sum.csv"), "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Window", "Device", *columns])
            writer.writerow([1, "all", *["7"] * len(columns)])
            for (window, device), row in truth.items():
                cells = ["" if row[c] is None else f"{row[c]:.1f}" if c in idle_truth.RATIOS else row[c] for c in columns]
                if changed is not None:
                    cells[columns.index(changed)] = to(cells[columns.index(changed)])
                writer.writerow([window, device, *cells])


class Time(Truth):
    def test_each_moment_is_one_of_three(self):
        r = Records()
        r.launched((10, 20), (100, 300))
        r.transfer(250, 400, 2)
        r.call(20, 25, "cudaMemcpyAsync", 2)
        r.transfer(500, 550, 3, "[CUDA memset]")
        r.call(25, 30, "cudaMemsetAsync", 3)
        c = self.columns(r)
        self.assertEqual([c[name] // US for name in idle_truth.SUMS], [1000, 200, 150, 650])
        self.assertEqual(c["GPU Utilization (%)"], 20)
        self.assertEqual(c["H2D Busy (ns)"], 150 * US)
        self.assertEqual(c["D2H Busy (ns)"], 0)
        self.assertAlmostEqual(c["Copy Overlap (%)"], 100 * 50 / 150)

    def test_the_span_is_shifted_by_the_lag(self):
        for first, last, span, start_up in ((100, 1500, 1400, 0), (100, 1040, 1000, 60), (100, 900, 1000, 100)):
            with self.subTest(last=last):
                r = Records()
                r.launched((10, 20), (first, last))
                c = self.columns(r)
                self.assertEqual((c["Device Time (ns)"] // US, c["Idle: Start-up (ns)"] // US), (span, start_up))

    def test_concurrency(self):
        r = Records()
        r.launched((10, 20), (100, 300))
        r.launched((20, 30), (200, 400), stream=8)
        r.launched((30, 40), (200, 300), stream=9)
        self.assertAlmostEqual(self.columns(r)["Kernel Concurrency"], 500 / 300)

    def test_exposed_collectives(self):
        r = Records()
        r.launched((10, 20), (100, 300))
        r.launched((20, 30), (200, 500), stream=8, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)")
        r.transfer(450, 600, 3)
        r.call(30, 40, "cudaMemcpyAsync", 3)
        c = self.columns(r)
        self.assertEqual(c["Exposed Collective (ns)"], 200 * US)
        self.assertEqual(c["Taken by Collectives (ns)"], 100 * US // 132)  # a block
        self.assertAlmostEqual(c["Copy Overlap (%)"], 100 * 50 / 150)

    def test_copies_by_direction(self):
        r = Records()
        for number, (begin, end, name) in enumerate([(100, 200, H2D), (150, 250, H2D), (300, 340, D2H), (320, 420, D2D)], 1):
            r.transfer(begin, end, number, name)
            r.call(number, number + 1, "cudaMemcpyAsync", number)
        c = self.columns(r)
        self.assertEqual([c["H2D Busy (ns)"] // US, c["D2H Busy (ns)"] // US], [150, 40])
        self.assertEqual((c["Copy Overlap (%)"], c["Kernel Concurrency"]), (0, None))

    def test_devices_and_windows(self):
        r = Records((0, 1000), (2000, 3000))
        r.launched((900, 910), (950, 1000))
        r.launched((990, 995), (2010, 2100), device=1)
        r.launched((2100, 2110), (2150, 2500))
        r.write(self.path)
        found = idle_truth.compute(self.path)
        self.assertEqual(sorted(found), [(1, 0), (1, 1), (2, 0)])
        self.assertEqual((found[1, 1]["Device Time (ns)"] // US, found[1, 1]["Idle: Start-up (ns)"] // US), (1000, 910))
        self.assertEqual(found[2, 0]["Idle: Start-up (ns)"], 150 * US)

    def test_an_id_that_is_given_out_twice(self):
        r = Records((0, 1000), (2000, 3000))
        for base in (0, 2000):
            r.call(base + 10, base + 20, correlation=1, tid=1)
            r.kernel(base + 30, base + 40, 1)
            r.call(base + 21, base + 25, correlation=2, tid=2)
            r.kernel(base + 41, base + 50, 2)
        r.write(self.path)
        self.assertEqual([time.work[1].launch.begin // US for time in idle_truth.read(self.path)], [21, 2021])
        self.assertEqual([time.gaps[1].cause for time in idle_truth.read(self.path)], ["Queue"] * 2)

    def test_a_call_at_a_windows_edge(self):
        # A call that began before the window and extends into it; or one that began as the window closed.
        r = Records((100, 1000), (2000, 3000))
        r.launched((1990, 2010), (2020, 2100))
        r.launched((90, 110), (120, 1000))
        r.launched((1005, 1006), (1010, 1020))
        r.write(self.path)
        found = idle_truth.compute(self.path)
        self.assertEqual([found[1, 0]["Kernel Busy (ns)"] // US, found[2, 0]["Kernel Busy (ns)"] // US], [890, 80])


class Rules(Truth):
    """Rules for the gap between a kernel from 100 to 200 us and the next work; the time up to the closing does not matter."""

    def setUp(self):
        super().setUp()
        self.r = Records((0, 1000))
        self.r.launched((10, 20), (100, 200))

    def between(self, **which):
        """The cause of the gap that begins at 200."""
        self.r.write(self.path)
        (gap,) = [gap for time in idle_truth.read(self.path) for gap in time.gaps if gap.begin == 200 * US]
        return gap.cause

    def test_start_up(self):
        self.assertEqual(self.idle(self.r)["Start-up"], 100)

    def test_copies_ahead(self):
        """Beside work from before the window, unless the first kernel waited for them, was late or was on their stream."""
        for call_end, begin, stream, expected in ((40, 500, 8, {"Start-up": 500}), (40, 215, 8, {"Start-up": 100, "Other Stream": 15}),
                                                  (210, 500, 8, {"Start-up": 100}), (40, 500, 7, {"Start-up": 100, "Other Stream": 300})):
            with self.subTest((call_end, begin, stream)):
                r = Records((0, 1000))
                r.call(10, 20, "cudaMemcpyAsync", correlation := r.next_correlation())
                r.transfer(100, 200, correlation)
                r.launched((30, call_end), (begin, 1000), stream=stream)
                found = self.idle(r)
                self.assertEqual({cause: found.get(cause) for cause in expected}, expected)

    def test_unknown(self):
        self.r.kernel(500, 1000, 77)
        self.assertEqual(self.between(), "Unknown")

    def test_queue_and_longer(self):
        for end, cause in ((220, "Queue"), (220.001, "Other Stream")):
            with self.subTest(end):
                r = Records((0, 1000))
                r.launched((10, 20), (100, 200))
                r.launched((30, 200), (end, 1000))
                self.assertEqual(list(self.idle(r))[1:], [cause])

    def test_a_call_that_ends_as_the_gap_begins_is_over(self):
        self.r.launched((30, 200), (210, 1000))
        self.assertEqual(self.between(), "Queue")

    def test_within_a_graph(self):
        for stream in (7, 8):
            with self.subTest(stream):
                r = Records((0, 1000))
                r.launched((10, 20), (100, 200))
                r.kernel(205, 1000, r.last_correlation, stream=stream)
                self.assertEqual(list(self.idle(r))[1:], ["Graph"])

    def test_other_stream(self):
        self.r.launched((30, 40), (205, 1000), stream=8)
        self.assertEqual(self.between(), "Other Stream")

    def test_what_ended_last_and_not_what_began_last(self):
        self.r.launched((21, 22), (110, 190), stream=8)
        self.r.launched((30, 40), (205, 1000), stream=8)
        self.assertEqual(self.between(), "Other Stream")

    def test_of_several_that_ended_last_the_one_that_started_last_counts(self):
        for start, cause in ((110, "Queue"), (90, "Other Stream")):
            with self.subTest(start):
                r = Records((0, 1000))
                r.launched((10, 20), (100, 200))
                r.launched((21, 22), (start, 200), stream=8)
                r.launched((30, 40), (205, 1000), stream=8)
                self.assertIn(cause, self.idle(r))

    def test_of_several_that_started_together_the_one_launched_last_counts(self):
        self.r.launched((5, 9), (100, 200), stream=8)
        self.r.launched((30, 40), (205, 1000))
        self.assertEqual(self.between(), "Queue")

    def test_collective(self):
        for stream, cause in ((8, "Collective"), (7, "Queue")):
            with self.subTest(stream):
                r = Records((0, 1000))
                r.launched((10, 20), (100, 200), stream=stream, name="ncclDevKernel_AllGather()")
                r.launched((30, 40), (205, 1000))
                self.assertIn(cause, self.idle(r))

    def test_of_works_that_start_together_the_first_launched_one_ends_the_gap(self):
        self.r.launched((40, 50), (205, 1000), stream=8)
        self.r.launched((30, 39), (205, 400))
        self.assertEqual(self.between(), "Queue")

    def test_by_the_call_that_the_host_was_in(self):
        for name, cause in (("cudaStreamSynchronize", "Synchronization"), ("cudaMemcpyAsync", "Copy Call"),
                            ("cudaGraphLaunch", "Launch Call"), ("cudaMemsetAsync", "Launch Call"), ("cudaMalloc", "Other Call"),
                            ("cudaEventRecord", "Other Call")):
            with self.subTest(name):
                r = Records((0, 1000))
                r.launched((10, 20), (100, 200))
                r.call(150, 480, name)
                r.launched((490, 495), (500, 1000))
                self.assertIn(cause, self.idle(r))

    def test_library_calls(self):
        for name, cause in (("cublasGemmEx", "Launch Call"), ("cudnnBackendExecute", "Launch Call"), ("ncclAllReduce", "Launch Call"),
                            ("cudnnBackendFinalize", "Other Call"), ("cudnnFindConvolutionForwardAlgorithm", "Other Call"),
                            ("cublasLtMatmulAlgoGetHeuristic", "Other Call"), ("ncclCommInitRank", "Other Call"),
                            ("cublasCreate_v2", "Other Call"), ("cublasSetStream_v2", "Launch Call")):
            with self.subTest(name):
                r = Records((0, 1000))
                r.launched((10, 20), (100, 200))
                r.library_call(210, 480, name)
                r.launched((490, 495), (500, 1000))
                self.assertIn(cause, self.idle(r))

    def test_the_outermost_call_counts(self):
        self.r.library_call(190, 480, "cudnnCreate")
        self.r.call(200, 470, "cudaMemcpyAsync")
        self.r.launched((485, 495), (500, 1000))
        self.assertEqual(self.between(), "Other Call")

    def test_computing(self):
        self.r.launched((480, 495), (500, 1000))
        self.assertEqual(self.between(), "Host Compute")

    def test_the_launch_itself(self):
        self.r.launched((300, 495), (500, 1000))
        self.assertEqual(self.between(), "Launch Call")

    def test_a_launch_that_was_on_its_way_as_the_gap_began(self):
        self.r.launched((150, 495), (500, 1000))
        self.assertEqual(self.between(), "Launch Call")

    def test_a_copy_itself(self):
        self.r.call(300, 995, "cudaMemcpyAsync", 5)
        self.r.transfer(500, 990, 5)
        self.assertEqual(self.between(), "Copy Call")

    def test_a_synchronization_that_took_as_long_as_half_the_gap(self):
        for begin, cause in ((70, "Synchronization"), (71, "Host Compute")):
            with self.subTest(begin):
                r = Records((0, 1000))
                r.launched((10, 20), (100, 200))
                r.call(begin, 220, "cudaDeviceSynchronize")
                r.launched((498, 499), (500, 1000))
                self.assertIn(cause, self.idle(r))

    def test_a_copy_to_the_host_of_some_bytes_is_a_synchronization(self):
        for name, size, cause in ((D2H, "0.065", "Synchronization"), (D2H, "0.066", "Copy Call"), (H2D, "0.000", "Copy Call")):
            with self.subTest(name, size=size):
                r = Records((0, 1000))
                r.call(10, 210, "cudaMemcpyAsync", 9)
                r.transfer(100, 200, 9, name, size)
                r.launched((290, 299), (300, 1000))
                self.assertIn(cause, self.idle(r))

    def test_what_took_most_else(self):
        # The copy took less than half of the gap, but more than anything else.
        self.r.call(210, 230, "cudaMalloc")
        self.r.call(230, 340, "cudaMemcpyAsync")
        self.r.call(340, 440, "cudaDeviceSynchronize")
        self.r.launched((490, 495), (500, 1000))
        self.assertEqual(self.between(), "Copy Call")

    def test_of_equals_the_first(self):
        self.r.call(200, 350, "cudaMalloc")
        self.r.launched((350, 495), (500, 1000))
        self.assertEqual(self.between(), "Launch Call")

    def test_another_threads_calls_do_not_matter(self):
        self.r.call(150, 480, "cudaDeviceSynchronize", tid=2)
        self.r.launched((490, 495), (500, 1000))
        self.assertEqual(self.between(), "Host Compute")

    def test_the_end_of_the_window(self):
        self.r.call(150, 800, "cudaDeviceSynchronize")
        self.assertEqual(self.idle(self.r), {"Start-up": 100, "Synchronization": 800})

    def test_the_end_of_the_window_by_the_thread_of_the_last_launch(self):
        self.r.launched((30, 40), (200, 300), tid=2)
        self.r.call(250, 999, "cudaDeviceSynchronize", tid=2)
        self.assertEqual(self.idle(self.r), {"Start-up": 100, "Synchronization": 700})

    def test_the_end_of_a_window_whose_launches_were_not_seen(self):
        r = Records((0, 1000))
        r.kernel(100, 200, 7)
        self.assertEqual(self.idle(r), {"Start-up": 100, "Unknown": 800})


class Waiting(Truth):
    """Off the CPU between the call that ends at 20 and the launch at `launch`; the kernel ends at 200."""

    def gap(self, launch, readings, window=20_000):
        r = Records((0, window))
        r.launched((10, 20), (100, 200))
        r.launched((launch, launch + 5), (launch + 10, window))
        for time, used in readings:
            r.reading(time, used)
        return self.idle(r)

    def test_off_the_processor(self):
        self.assertIn("Host Wait", self.gap(5000, [(10, 1000), (5000, 1100)]))

    def test_half_of_the_time(self):
        # CPU time: what was used from 10 on, minus the 10 us up to the call's end.
        self.assertIn("Host Wait", self.gap(5020, [(10, 1000), (5020, 1000 + 10 + 2500)]))
        self.assertIn("Host Compute", self.gap(5020, [(10, 1000), (5020, 1000 + 10 + 2501)]))

    def test_a_reading_at_the_calls_end(self):
        self.assertIn("Host Wait", self.gap(5020, [(10, 0), (20, 1000), (5020, 3500)]))
        self.assertIn("Host Compute", self.gap(5020, [(10, 0), (20, 1000), (5020, 3501)]))

    def test_no_less_than_nothing(self):
        self.assertIn("Host Wait", self.gap(5020, [(10, 1000), (5020, 1005)]))

    def test_without_a_reading_it_computes(self):
        self.assertIn("Host Compute", self.gap(5000, [(10, 1000)]))
        self.assertIn("Host Compute", self.gap(5000, [(5000, 1000)]))
        self.assertIn("Host Compute", self.gap(5000, []))

    def test_readings_of_other_threads(self):
        r = Records((0, 20_000))
        r.launched((10, 20), (100, 200))
        r.launched((5000, 5005), (5010, 20_000))
        r.reading(10, 0, tid=2)
        r.reading(5000, 0, tid=2)
        self.assertIn("Host Compute", self.idle(r))

    def test_a_pause_of_less_than_100_us_is_computing(self):
        for pause, cause in ((99, "Host Compute"), (100, "Host Wait")):
            with self.subTest(pause):
                r = Records((0, 20_000))
                r.launched((5, 6), (20, 21))
                r.reading(5, 0)
                at = 6
                for _ in range(6):
                    at += pause
                    r.call(at, at + 1, "cudaMalloc")
                    r.reading(at, 0)
                    at += 1
                r.launched((at, at + 5), (at + 10, 20_000))
                self.assertIn(cause, self.idle(r))

    def test_a_thread_that_gave_nothing_up_computes(self):
        for waits, cause in (((3, 3), "Host Compute"), ((3, 4), "Host Wait"), ((0, 0), "Host Wait")):
            with self.subTest(waits):
                r = Records((0, 20_000))
                r.launched((10, 20), (100, 200))
                r.reading(10, 1000, waits=waits[0])
                r.launched((5000, 5005), (5010, 20_000))
                r.reading(5000, 1100, waits=waits[1])
                self.assertIn(cause, self.idle(r))

    def test_a_wait_wins_from_half_a_millisecond_and_half_of_the_gap_on(self):
        for size, cause in ((1_000, "Host Wait"), (499, "Synchronization")):
            with self.subTest(size):
                r = Records((0, 20_000))
                r.launched((10, 20), (100, 200))
                r.call(30, 210, "cudaDeviceSynchronize")
                r.call(210, 900, "cudaDeviceSynchronize")
                r.launched((900 + size, 905 + size), (910 + size, 20_000))
                r.reading(30, 0)
                r.reading(900, 0)
                r.reading(900 + size, 0)
                # 1,000 us of waiting are more than half of the gap's 1,710 us; 499 are not.
                self.assertIn(cause, self.idle(r))

    def test_the_thread_that_launched_before_is_asked(self):
        for used, call, cause in ((5000, None, "Host Compute"), (0, None, "Host Wait"), (5000, (150, 5000), "Synchronization")):
            with self.subTest(cause):
                r = Records((0, 20_000))
                r.call(2, 4, "cudaGetDevice", tid=2)
                r.launched((10, 20), (100, 200), tid=1)
                if call:
                    r.call(*call, "cudaDeviceSynchronize", tid=1)
                r.call(6000, 6010, "cudaEventRecord", tid=1)
                r.launched((6100, 6105), (6110, 20_000), tid=2)
                for time, spent, tid in ((10, 0, 1), (6000, used, 1), (2, 0, 2), (6100, 0, 2)):
                    r.reading(time, spent, tid)
                self.assertIn(cause, self.idle(r))

    def test_the_same_thread_is_not_asked_twice(self):
        r = Records((0, 20_000))
        r.launched((10, 20), (100, 200))
        r.launched((21, 25), (200, 300))
        r.launched((6100, 6105), (6110, 20_000))
        r.reading(10, 0)
        r.reading(6100, 0)
        self.assertIn("Host Wait", self.idle(r))

    def test_calls_of_another_window_end_no_pause(self):
        r = Records((0, 5000), (9000, 10_000))
        r.launched((10, 20), (100, 200))
        r.launched((9100, 9110), (9150, 10_000))
        r.reading(10, 0)
        r.reading(9100, 0)
        self.assertEqual(self.idle(r), {"Start-up": 100, "Host Compute": 4800})


class Lead(Truth):
    """How much earlier the launches would have come if nothing had waited for the device."""

    def causes(self, wait, gaps, closing=2000):
        """A kernel that ends at 600, and `wait` for it; then kernels of 10 us, after gaps: [cause]. Each is launched in the 8 us before
        it."""
        r = Records((0, closing))
        r.launched((10, 20), (100, 600))
        wait(r)
        time = 600
        for gap in gaps:
            time += gap
            r.launched((time - 8, time - 5), (time, time + 10))
            time += 10
        r.launched((time - 9, time - 8), (time, closing))
        r.write(self.path)
        (device,) = idle_truth.read(self.path)
        self.assertEqual([gap.end - gap.begin for gap in device.gaps[1:]], [gap * US for gap in gaps])
        return [gap.cause for gap in device.gaps[1:]]

    def test_used_up(self):
        def wait(r):
            r.call(530, 605, "cudaStreamSynchronize")

        # 75 - 30 - 20 - 20 leaves 5.
        self.assertEqual(self.causes(wait, (30, 20, 20, 20, 20)), ["Synchronization"] * 3 + ["Host Compute"] * 2)
        self.assertEqual(self.causes(wait, (30, 45, 20)), ["Synchronization"] * 2 + ["Host Compute"])
        self.assertEqual(self.causes(wait, (30, 46, 20)), ["Synchronization", "Host Compute", "Host Compute"])

    def test_never_less_than_nothing(self):
        def waits(r):
            r.call(580, 605, "cudaStreamSynchronize")
            r.call(645, 675, "cudaStreamSynchronize")

        # The first gap uses up the whole lead; the second synchronization's lead is complete: 30 - 24 - 6.
        self.assertEqual(self.causes(waits, (49, 24, 6, 6)), ["Synchronization"] * 3 + ["Launch Call"])

    def test_only_what_was_over_by_the_launch(self):
        def wait(r):
            r.call(530, 605, "cudaStreamSynchronize", tid=2)
            r.launched((21, 22), (100, 110), tid=2, stream=9)

        # A wait of another thread that launches as well: it ends by 622, but not by 604.
        self.assertEqual(self.causes(wait, (30,)), ["Synchronization"])
        self.assertNotEqual(self.causes(wait, (12,)), ["Synchronization"])

    def test_a_thread_that_launches_nothing_has_no_lead(self):
        self.assertEqual(self.causes(lambda r: r.call(530, 605, "cudaStreamSynchronize", tid=2), (30,)), ["Host Compute"])

    def test_copies(self):
        for size, name, cause in (("0.065", D2H, "Synchronization"), ("0.066", D2H, "Host Compute"), ("0.065", H2D, "Host Compute")):
            with self.subTest(size, name=name):
                def wait(r, size=size, name=name):
                    r.call(200, 590, "cudaMemcpyAsync", 99)
                    r.transfer(300, 310, 99, name, size, stream=9)

                self.assertEqual(self.causes(wait, (30,)), [cause])

    def test_a_wait_for_something_else_takes_it_away(self):
        def waits(r):
            r.call(530, 605, "cudaStreamSynchronize")
            # The last gap's launch comes after 1,000 us off the CPU.
            r.reading(622, 0)
            r.reading(1642, 0)

        self.assertEqual(self.causes(waits, (30, 1010, 20), 3000), ["Synchronization", "Host Wait", "Host Compute"])


class Summary(Truth):
    def setUp(self):
        super().setUp()
        r = Records((0, 1000))
        r.launched((10, 20), (100, 200))
        r.transfer(300, 400, 2)
        r.call(30, 40, "cudaMemcpyAsync", 2)
        r.write(self.path)

    def status(self):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            arguments, sys.argv = sys.argv, ["idle_truth.py", self.path, "--gaps"]
            try:
                return idle_truth.main(), said.getvalue()
            finally:
                sys.argv = arguments

    def test_equal(self):
        self.write_summary()
        self.assertEqual(idle_truth.differences(self.path), [])
        status, said = self.status()
        self.assertEqual(status, 0)
        self.assertIn("Start-up", said)

    def test_a_nanosecond_is_a_difference(self):
        for column in idle_truth.TIMES:
            self.write_summary(column, lambda cell: int(cell) + 1)
            self.assertEqual(len(idle_truth.differences(self.path)), 1, column)
            self.assertEqual(self.status()[0], 1)

    def test_a_ratio_is_as_fine_as_it_is_printed(self):
        self.write_summary("GPU Utilization (%)", lambda cell: f"{float(cell) + 0.04:.2f}")
        self.assertEqual(len(idle_truth.differences(self.path)), 1)
        self.write_summary("GPU Utilization (%)", lambda cell: f"{float(cell):.3f}")
        self.assertEqual(idle_truth.differences(self.path), [])

    def test_what_is_missing(self):
        self.write_summary("Idle (ns)", lambda _: "")
        self.assertEqual(len(idle_truth.differences(self.path)), 1)
        with open(os.path.join(self.path, "window_sum.csv"), "w") as file:
            file.write("Window,Device\n1,0\n2,0\n")
        wrong = idle_truth.differences(self.path)
        self.assertEqual(len(wrong), len(idle_truth.TIMES + idle_truth.RATIOS) + 1)

    def test_a_folder_without_records_proves_nothing(self):
        Records().write(self.path)
        self.assertTrue(idle_truth.differences(self.path))


class Judging(unittest.TestCase):
    @staticmethod
    def case(name):
        (found,) = [case for case in diagnosis.CASES if case.name == name]
        return found

    def test_every_program_is_judged(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "bottlenecks.py")
        with open(path) as file:
            text = file.read()
        listed = set(re.findall(r'^PROGRAMS = \{(.*?)\}', text, re.S | re.M)[0].replace("\n", " ").split())
        names = {word.split('"')[1] for word in listed if word.startswith('"')}
        self.assertEqual(names, {case.name for case in diagnosis.CASES})
        self.assertLessEqual(set(diagnosis.COMPARED), names)
        for case in diagnosis.CASES:
            self.assertLessEqual(set(case.verdicts), set(diagnosis.VERDICTS))

    def test_verdicts(self):
        launch, gemm = self.case("tiny_kernels"), self.case("gemm_fp32")
        self.assertEqual(diagnosis.judge_verdicts(launch, "launch-bound", "GPU-bound (latency)"), [])
        self.assertEqual(diagnosis.judge_verdicts(launch, "launch-bound", None), [])
        self.assertEqual(len(diagnosis.judge_verdicts(launch, "mixed", "GPU-bound (latency)")), 1)
        self.assertEqual(len(diagnosis.judge_verdicts(launch, "launch-bound", "launch-bound")), 1)
        self.assertEqual(len(diagnosis.judge_verdicts(launch, "launch-bound", "quick")), 1)
        self.assertEqual(diagnosis.judge_verdicts(gemm, "GPU-bound (compute)", "GPU-bound (compute)"), [])
        self.assertEqual(len(diagnosis.judge_verdicts(gemm, "GPU-bound (memory)", "GPU-bound (compute)")), 1)
        self.assertEqual(len(diagnosis.judge_verdicts(gemm, "", "launch-bound")), 2)

    def test_gains(self):
        self.assertEqual(diagnosis.judge_gain(0.005, 0.010, 0.005), [])
        self.assertEqual(diagnosis.judge_gain(0.0091, 0.020, 0.010), [])
        self.assertEqual(diagnosis.judge_gain(0.0199, 0.020, 0.010), [])
        self.assertIn("less", diagnosis.judge_gain(0.0089, 0.020, 0.010)[0])
        self.assertIn("more", diagnosis.judge_gain(0.0201, 0.020, 0.010)[0])
        self.assertEqual(len(diagnosis.judge_gain(0.0, 0.010, 0.010)), 1)
        self.assertEqual(len(diagnosis.judge_gain(0.005, 0.010, 0.011)), 1)
        self.assertIn("nothing was promised", diagnosis.judge_gain(None, 0.010, 0.005)[0])

    def test_study(self):
        good = [(1, "launch-bound", 30.0), (4, "mixed", 60.0), (16, "GPU-bound (memory)", 98.0), (64, "GPU-bound (compute)", 97.0)]
        self.assertEqual(diagnosis.judge_study(good), [])
        self.assertEqual(len(diagnosis.judge_study([])), 1)
        for place, point in ((0, (1, "mixed", 30.0)), (3, (64, "mixed", 97.0)), (3, (64, "GPU-bound (compute)", 92.0)),
                             (1, (4, "launch-bound", 24.0))):
            with self.subTest(point):
                points = list(good)
                points[place] = point
                self.assertTrue(diagnosis.judge_study(points))

    def test_utilization(self):
        self.assertEqual(diagnosis.judge_utilization([97.0, 99.0], [98.9, 97.1]), [])
        self.assertEqual(len(diagnosis.judge_utilization([97.0, 99.0], [99.1, 99.0])), 1)
        self.assertTrue(diagnosis.judge_utilization([], []))
        self.assertTrue(diagnosis.judge_utilization([97.0], [97.0, 97.0]))


class Tables(unittest.TestCase):
    def setUp(self):
        row = {"Device Time (ns)": "1000", "GPU Busy (ns)": "300", "GPU Utilization (%)": "30.0", "Verdict": "launch-bound",
               "Potential Gain (%)": "60.0", **{idle_truth.idle_column(cause): "0" for cause in idle_truth.CAUSES},
               "Idle: Launch Call (ns)": "450", "Idle: Host Compute (ns)": "248", "Idle: Queue (ns)": "2"}
        self.row = row

    def test_row(self):
        self.assertEqual(diagnosis.idle_text(self.row), "launch call 45, host compute 25")
        fixed = {**self.row, "Verdict": "GPU-bound (latency)", "GPU Utilization (%)": "95.0"}
        row = diagnosis.table_row("a", 0.010, self.row, 0.005, fixed)
        self.assertEqual(row, ("a", "10.000", "5.000", "launch-bound", "GPU-bound (latency)", "6.000", "5.000", "30.0", "95.0",
                               "launch call 45, host compute 25"))
        lines = diagnosis.markdown([row, diagnosis.table_row("b", 0.010, self.row)]).splitlines()
        self.assertEqual({line.count("|") for line in lines}, {len(diagnosis.HEADER) + 1})
        self.assertEqual(len(lines), 4)

    def test_a_row_without_a_gain(self):
        self.row["Potential Gain (%)"] = ""
        self.assertIsNone(diagnosis.promised(self.row, 0.010))
        self.assertEqual(diagnosis.table_row("a", 0.010, self.row)[5], "")

    def test_the_busiest_device_of_each_window(self):
        class Folder:
            @staticmethod
            def rows(_):
                return [{"Window": window, "Device": device, "GPU Busy (ns)": busy} for window, device, busy in (
                    ("10", "0", "5"), ("2", "all", "99"), ("2", "0", "7"), ("2", "1", "8"), ("[other]", "0", "9"))]

        rows = diagnosis.device_rows(Folder)
        self.assertEqual([(window, row["Device"]) for window, row in rows.items()], [(2, "1"), (10, "0")])


class Programs(unittest.TestCase):
    """How programs' results are judged; the programs are replaced."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.report = gputest.Report("diagnosis", temporary.name)
        self.table = []
        self.results = {}
        real, diagnosis.profile = diagnosis.profile, lambda _options, _report, name, arguments, _ranks=1: self.results[name, *arguments]
        self.addCleanup(setattr, diagnosis, "profile", real)

    def result(self, said, *rows):
        class Folder:
            @staticmethod
            def rows(_):
                return [{"Window": str(number), "Device": "0", "GPU Busy (ns)": "5", "Device Time (ns)": "10", "Verdict": verdict,
                         "GPU Utilization (%)": str(utilization), "Potential Gain (%)": str(gain),
                         **{idle_truth.idle_column(cause): "0" for cause in idle_truth.CAUSES}}
                        for number, (verdict, utilization, gain) in enumerate(rows, 1)]
        return said, Folder

    def verdicts(self):
        return [check["passed"] for check in self.report.checks]

    def compare(self, name, before, after):
        self.results[name,] = self.result({"seconds": 0.010}, before)
        self.results[name, "--fixed"] = self.result({"seconds": 0.006}, after)
        diagnosis.compare(None, self.report, Judging.case(name), self.table)
        return self.verdicts()

    def test_as_it_should_be(self):
        self.assertEqual(self.compare("tiny_kernels", ("launch-bound", 30, 50), ("GPU-bound (latency)", 90, 0)), [True, True])
        self.assertEqual(self.table[0][5:7], ("5.000", "4.000"))

    def test_another_verdict_and_too_small_a_promise(self):
        self.assertEqual(self.compare("tiny_kernels", ("input-bound", 30, 30), ("mixed", 90, 0)), [False, False])

    def test_no_promise_is_judged_of_kernels(self):
        self.assertEqual(self.compare("gemm_fp32", ("GPU-bound (compute)", 99, ""), ("GPU-bound (memory)", 99, 0)), [True, True])

    def test_without_a_remedy(self):
        self.results["rnn_large",] = self.result({"seconds": 0.010}, ("GPU-bound (compute)", 99, ""))
        diagnosis.compare(None, self.report, Judging.case("rnn_large"), self.table)
        self.assertEqual(self.verdicts(), [True])

    def test_a_study(self):
        said = {"windows": [{"batch": 1, "seconds": 0.01}, {"batch": 64, "seconds": 0.02}]}
        self.results["resnet50",] = self.result(said, ("launch-bound", 30, 50), ("GPU-bound (memory)", 98, 0))
        diagnosis.resnet50(None, self.report, self.table)
        self.assertEqual(self.verdicts(), [True, True])
        self.assertEqual([row[0] for row in self.table], ["resnet50, batch 1", "resnet50, batch 64"])

    def test_a_profiler(self):
        for theirs, agree in (([98.0, 99.0], True), ([98.0, 95.0], False)):
            self.results["gemm_fp32", "--profiler"] = self.result({"their_utilization": theirs}, ("", 99.5, 0), ("", 99.5, 0))
            diagnosis.against_profiler(None, self.report, "gemm_fp32")
            self.assertEqual(self.verdicts()[-1], agree)


if __name__ == "__main__":
    unittest.main()
