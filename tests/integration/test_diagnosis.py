#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Where the time of a window went: window_sum.csv against idle_truth.py's results from the raw records, to the nanosecond.

Each cause has a program that does little else, many times. If the machine preempts it, a gap gets another cause and is long, so each gap
counts with no more than the third quartile.

usage: test_diagnosis.py LIBRARY PROGRAMS SIMULATION FOLDER_OF_IDLE_TRUTH_PY [--without GROUP]...
"""

import collections
import random
import statistics
import sys
import unittest

import simulated

sys.path.append(sys.argv.pop(4))
import idle_truth  # noqa: E402  (its folder is known only now)

without = []
while "--without" in sys.argv:
    place = sys.argv.index("--without")
    without.append(sys.argv[place + 1])
    del sys.argv[place:place + 2]

# A kernel begins so soon after its launch began that it does not wait for the launch to end.
AT_ONCE = {"CUDASIM_LAUNCH_NS": "1"}
# A kernel begins so long after its launch that all launches are over by then.
LATE = {"CUDASIM_LAUNCH_NS": "20000000"}


class Diagnosed(simulated.SimulatedTest):
    urgent = True

    def diagnosed(self, text, **how):
        """{(window, device): row}, equal to the results from the raw records."""
        how.setdefault("WINDOW", "api")
        done = self.script(text, **how)
        self.gaps = [gap for time in idle_truth.read(str(done.out.path)) for gap in time.gaps]
        self.assertEqual(idle_truth.differences(str(done.out.path)), [])
        rows = {(int(row["Window"]), int(row["Device"])): row for row in done.out.rows("window_sum.csv") if row["Device"] != "all"}
        for row in rows.values():
            idle = sum(int(row[idle_truth.idle_column(cause)]) for cause in idle_truth.CAUSES)
            self.assertEqual(idle, int(row["Idle (ns)"]))
            self.assertEqual(int(row["Kernel Busy (ns)"]) + int(row["Copy Only (ns)"]) + idle, int(row["Device Time (ns)"]))
            # Copies ahead of the first kernel may be beside it.
            self.assertLessEqual(int(row["Kernel Busy (ns)"]) + int(row["Copy Only (ns)"]), int(row["GPU Busy (ns)"]))
        self.rows = list(rows.values())
        return rows

    def one(self, text, **how):
        (row,) = self.diagnosed(text, **how).values()
        return row

    def caused(self, cause, least, text, share=0.5, **how):
        """More than `share` of the gaps other than start-up are due to `cause`, at least `least` ns of them; returns {cause: share}."""
        self.diagnosed(text, **how)
        gaps = [(gap.cause, gap.end - gap.begin) for gap in self.gaps if gap.cause != idle_truth.START_UP]
        times = [time for _, time in gaps]
        most = statistics.quantiles(times, n=4, method="inclusive")[2]
        counted = collections.Counter()
        for name, time in gaps:
            counted[name] += min(time, most)
        shares = collections.Counter({name: time / counted.total() for name, time in counted.items()})
        self.assertGreaterEqual(sum(time for name, time in gaps if name == cause), least, shares)
        self.assertGreater(shares[cause], share, shares)
        return shares


class Causes(Diagnosed):
    def test_start_up(self):
        row = self.one("kernel:k:1 sync start busy:3000 kernel:k:1 sync stop")
        self.assertGreaterEqual(int(row["Idle: Start-up (ns)"]), 3_000_000)

    def test_synchronization(self):
        self.caused("Synchronization", 1000, "duration:k:2000000 kernel:k:1 sync start loop:8 [ kernel:k:1 sync ] stop")

    def test_a_synchronization_of_a_stream(self):
        self.caused("Synchronization", 1000,
                    "duration:k:2000000 kernel:k:1:1 sync start loop:8 [ kernel:k:1:1 stream_sync:1 ] stop")

    def test_waiting_for_a_number(self):
        """Programs wait by copying a few bytes to the host."""
        self.caused("Synchronization", 1000,
                    "duration:k:2000000 kernel:k:1 copy:d2h:64 sync start loop:8 [ kernel:k:1 copy:d2h:64 ] stop")

    def test_launches_that_would_have_come_earlier(self):
        self.caused("Synchronization", 10_000, "duration:k:2000000 duration:small:10 kernel:k:1 kernel:small:1 sync start "
                    "loop:8 [ kernel:k:1 sync kernel:small:40 ] stop sync", share=0.75, env=AT_ONCE)

    def test_copy_call(self):
        for kind, size in (("d2h", 1_000_000), ("h2d", 64), ("h2d", 1_000_000)):
            with self.subTest(kind, size=size):
                self.caused("Copy Call", 1000, f"duration:k:2000000 kernel:k:1 copy:{kind}:64 sync start "
                            f"loop:8 [ kernel:k:1 copy:{kind}:{size} ] stop", env={"CUDASIM_RATES": "h2d=500,d2h=500"})

    def test_launch_call(self):
        self.caused("Launch Call", 100_000, "duration:k:10 kernel:k:1 sync start kernel:k:500 stop sync", env=AT_ONCE)

    def test_a_library_launches(self):
        self.caused("Launch Call", 10_000, "gemm sync start loop:100 [ gemm ] stop sync",
                    env={**AT_ONCE, "CUDASIM_KERNELS": "lt_matmul=10"})

    def test_host_compute(self):
        shares = self.caused("Host Compute", 8_000_000, "kernel:k:1 sync start loop:20 [ kernel:k:1 busy:2000 ] kernel:k:1 sync stop")
        self.assertLess(shares["Host Wait"], 0.3)

    def test_host_wait(self):
        shares = self.caused("Host Wait", 20_000_000, "kernel:k:1 sync start loop:20 [ kernel:k:1 sleep:5 ] kernel:k:1 sync stop")
        self.assertLess(shares["Host Compute"], 0.3)

    def test_computing_between_launches(self):
        shares = self.caused("Host Compute", 1_000_000, "kernel:k:1 sync start loop:20 [ kernel:k:1 busy:200 ] kernel:k:1 sync stop")
        self.assertLess(shares["Host Wait"], 0.3)

    def test_queue(self):
        self.caused("Queue", 1000, "duration:k:10 kernel:k:1 sync start kernel:k:300 sync stop", env=LATE)

    def test_other_stream(self):
        self.caused("Other Stream", 1000, "duration:a:10 duration:b:10 kernel:a:1:1 kernel:b:1:2 sync start loop:50 [ "
                    "kernel:a:1:1 record:e:1 await:e:2 kernel:b:1:2 record:f:2 await:f:1 ] sync stop", env=LATE)

    def test_what_is_not_on_the_timeline(self):
        """The launch was over, the stream is the same, and nothing ran for longer than a queue takes."""
        self.caused("Other Stream", 1_000_000, "kernel:a:1 sync start loop:20 [ kernel:a:1 busy:200 ] sync stop", env=LATE)

    @unittest.skipIf("nccl" in without, "built without nccl")
    def test_collective(self):
        # After the other kernel the collective waits for another stream as well.
        shares = self.caused("Collective", 1000, "all_reduce kernel:k:1:1 sync start loop:40 [ all_reduce record:e await:e:1 "
                             "kernel:k:1:1 ] sync stop", share=0.1, env={**LATE, "CUDASIM_KERNELS": "nccl=200,k=10"})
        self.assertGreater(shares["Other Stream"], 0.1)
        self.assertEqual([int(row["Exposed Collective (ns)"]) for row in self.rows], [40 * 200])
        self.assertEqual([int(row["Taken by Collectives (ns)"]) for row in self.rows], [0])

    @unittest.skipIf("nccl" in without, "built without nccl")
    def test_kernels_beside_collectives(self):
        # Long enough for the collective to begin beside the kernel on a busy machine as well.
        row = self.one("duration:k:50000000 all_reduce kernel:k:1:1 sync start loop:5 [ kernel:k:1:1 all_reduce sync ] stop",
                       env={"CUDASIM_KERNELS": "nccl=1000000"})
        self.assertEqual(int(row["Exposed Collective (ns)"]), 0)
        self.assertGreater(int(row["Taken by Collectives (ns)"]), 0)

    def test_the_end_of_a_window(self):
        self.caused("Host Compute", 5_000_000, "kernel:k:1 sync loop:20 [ start kernel:k:1 sync busy:2000 stop ]")
        self.assertEqual([int(row["Kernel Busy (ns)"]) for row in self.rows], [10_000] * 20)

    def test_a_wait_at_the_end_of_a_window(self):
        # No call in the window ends it, so the thread that closes the window is read.
        self.caused("Host Wait", 29_000_000, "kernel:k:1 sync loop:7 [ start kernel:k:1 sync sleep:30 stop ]")


class Threads(Diagnosed):
    """A thread that launches next, and waits for another one."""

    def hand_over(self, pause):
        first = " ".join(f"kernel:first:1 {pause} signal:go{i} wait:back{i}" for i in range(15))
        second = " ".join(f"wait:go{i} kernel:second:1 signal:back{i}" for i in range(15))
        return (f"kernel:first:1 kernel:second:1 sync background [ wait:begin kernel:second:1 signal:there {second} ] "
                f"start signal:begin wait:there {first} join sync stop")

    def test_the_other_thread_computes(self):
        shares = self.caused("Host Compute", 10_000_000, self.hand_over("busy:3000"))
        self.assertLess(shares["Host Wait"], 0.3)

    def test_the_other_thread_waits_as_well(self):
        shares = self.caused("Host Wait", 15_000_000, self.hand_over("sleep:5"))
        self.assertLess(shares["Host Compute"], 0.3)

    def test_the_other_thread_is_in_a_call(self):
        # The sum of the gaps is small: the device works while the first thread waits for it.
        self.caused("Synchronization", 1000, "duration:first:3000000 " + self.hand_over("sync"))

    def test_many(self):
        self.diagnosed("start threads:8 [ loop:40 [ kernel:t:3:own busy:50 copy:d2h:16:own stream_sync:own ] ] stop sync")


class Spans(Diagnosed):
    # Kernels that keep the device busy, one after the other: the first one ends once all have been launched.
    HELD = {"faults": "wait_for=held/free"}

    def test_a_device_that_lags_behind(self):
        row = self.one("duration:k:100000000 kernel:b:1:1 sync start kernel:held:1 kernel:k:5 stop kernel:free:1:1 sync", **self.HELD)
        self.assertGreaterEqual(int(row["Device Time (ns)"]), 500_000_000)
        self.assertEqual([row["Kernel Busy (ns)"], row["Idle (ns)"]], [row["Device Time (ns)"], "0"])
        self.assertEqual(float(row["GPU Utilization (%)"]), 100)

    def test_a_lag_less_than_the_start_up(self):
        row = self.one("duration:k:3000000 kernel:k:1 sync start busy:8000 kernel:k:1 stop sync")
        self.assertGreaterEqual(int(row["Idle: Start-up (ns)"]), 4_000_000)

    def test_work_of_before_is_not_in_it(self):
        # The window's own work waits behind it, and takes longer than the window was open.
        row = self.one("duration:late:300000000 kernel:k:1:1 sync kernel:held:1 start kernel:late:3 stop kernel:free:1:1 sync",
                       faults=["wait_for=held/free", "no_attach_wait"])
        self.assertEqual([int(row[column]) for column in ("Device Time (ns)", "Kernel Busy (ns)")], [900_000_000, 900_000_000])

    def test_copies_ahead(self):
        """A loader copies on a stream of its own while the device works on earlier iterations."""
        ahead = "start copy:h2d:4000000:2 stream_sync:2 kernel:k:1:1 copy:h2d:4000000:2 stream_sync:2 busy:5000"
        for end, start_up in (("stop sync", 0), ("sync stop", 10_000_000)):  # in one case the host is that far ahead, in the other it waits
            with self.subTest(end):
                row = self.one(f"duration:k:100000000 kernel:k:1:1 copy:h2d:64:2 sync kernel:k:1:1 {ahead} {end}",
                               env={"CUDASIM_RATES": "h2d=2000"}, faults="no_attach_wait")
                self.assertEqual([int(row[column]) for column in ("Kernel Busy (ns)", "Copy Only (ns)", "H2D Busy (ns)", "GPU Busy (ns)")],
                                 [100_000_000, 0, 0, 104_000_000])
                self.assertGreaterEqual(int(row["Idle: Start-up (ns)"]), start_up)
                self.assertLessEqual(int(row["Idle (ns)"]) - int(row["Idle: Start-up (ns)"]), 5_000_000)
                if not start_up:
                    self.assertGreater(float(row["GPU Utilization (%)"]), 80)

    def test_kernels_beside_each_other(self):
        row = self.one("duration:k:2000000 duration:free:1 kernel:k:1:1 kernel:k:1:2 kernel:k:1:3 sync start kernel:held:1:1 "
                       "kernel:k:5:1 kernel:held:1:2 kernel:k:5:2 kernel:free:2:3 sync stop", **self.HELD)
        self.assertGreater(float(row["Kernel Concurrency"]), 1.4)
        self.assertLessEqual(float(row["Kernel Concurrency"]), 2)

    def test_copies(self):
        # 4 MB at 2,000 bytes per microsecond take 2 ms: beside a kernel, and alone.
        for text, overlap in (("kernel:held:1:1 copy:h2d:4000000:2 stream_sync:2 kernel:free:1:3 sync", 100),
                              ("copy:h2d:4000000:2 sync kernel:k:1:1", 0)):
            with self.subTest(text):
                row = self.one(f"duration:k:9000000 kernel:k:1:1 copy:h2d:64:2 sync start {text} "
                               "copy:d2h:1000000:3 sync stop", env={"CUDASIM_RATES": "h2d=2000,d2h=100000"}, **self.HELD)
                self.assertEqual([int(row[column]) for column in ("H2D Busy (ns)", "D2H Busy (ns)")], [2_000_000, 10_000])
                self.assertAlmostEqual(float(row["Copy Overlap (%)"]), overlap, delta=1)

    def test_two_devices(self):
        rows = self.diagnosed("device:1 kernel:b:1 device:0 kernel:a:1 sync start loop:10 [ device:0 kernel:a:2 device:1 kernel:b:1 "
                              "sync device:0 sync ] stop", devices=2)
        self.assertEqual(sorted(rows), [(1, 0), (1, 1)])

    def test_windows(self):
        rows = self.diagnosed("kernel:k:1 sync loop:3 [ start kernel:k:3 busy:500 kernel:k:1 sync stop kernel:k:2 sync ]")
        self.assertEqual(sorted(rows), [(1, 0), (2, 0), (3, 0)])

    def test_a_window_that_the_device_has_nothing_of(self):
        done = self.script("kernel:k:1 sync start sleep:2 stop kernel:k:1 sync start kernel:k:1 sync stop", WINDOW="api")
        self.assertEqual(idle_truth.differences(str(done.out.path)), [])

    def test_correlation_ids_that_come_again(self):
        """CUPTI was attached anew, so ids start over."""
        done = self.script("kernel:k:1 sync start loop:5 [ kernel:k:2 sync ] stop sync until_calls:cuptiFinalize:1 start loop:5 [ kernel:k:3 "
                           "busy:300 ] "
                           "sync stop", WINDOW="api")
        self.assertEqual(done.out.run["overhead"]["attachments"], 2)
        self.assertEqual(idle_truth.differences(str(done.out.path)), [])

    def test_other_triggers(self):
        work = "kernel:k:3 busy:300 kernel:k:1:2 stream_sync:2 sleep:1"
        for window, text in (("launch:20+50", f"loop:60 [ {work} ]"), ("time:10ms+15ms/30msx3", f"loop:300 [ {work} ]"),
                             ("time:20ms+200ms", f"loop:5 [ {work} ] until_open while_open [ {work} ] {work}")):
            with self.subTest(window):
                self.diagnosed(text + " sync", WINDOW=window)

    def test_a_program_without_hooks(self):
        self.diagnosed("init kernel:a:1 sync start loop:30 [ kernel:a:3 busy:300 copy:64 sync ] stop", program="driver")

    def test_a_graph(self):
        self.diagnosed("capture:1 kernel:g:5:1 kernel:h:5:1 end_capture:1:x sync start loop:20 [ graph:x:1 busy:100 ] graph:x:1 "
                       "stop sync")


class Anything(Diagnosed):
    OPERATIONS = ("kernel:a:{few}", "kernel:b:{few}:1", "kernel:c:1:2", "kernel:a:{few}:3", "copy:h2d:{bytes}", "copy:d2h:{bytes}",
                  "copy:d2h:{bytes}:2", "copy:h2d:{bytes}:3", "copy:d2d:{bytes}:1", "memset:{bytes}", "memset:{bytes}:2", "sync",
                  "stream_sync:1", "stream_sync:2", "record:e:1", "await:e:2", "record:f:3", "await:f:1", "busy:{few}00",
                  "busy:{few}0", "sleep:1", "sleep:{few}", "gemm", "sgemm", "runtime_kernel:d:{few}", "graph:x:1", "last_error")

    def program(self, seed, length=120):
        generator = random.Random(seed)
        words = [generator.choice(self.OPERATIONS).format(few=generator.randint(1, 6), bytes=generator.choice(
            (1, 4096, 65536, 70_000, 1_000_000))) for _ in range(length)]
        return ("duration:a:{}000 duration:b:{}000 duration:c:{}00 ".format(*(generator.randint(1, 300) for _ in range(3)))
                + "copy:h2d:64 capture:1 copy:h2d:64:1 kernel:g:4:1 kernel:h:2:1 end_capture:1:x kernel:a:1 kernel:b:1:1 kernel:c:1:2 "
                "kernel:a:1:3 gemm sync start " + " ".join(words) + " stop sync")

    def test_programs(self):
        for seed in range(6):
            with self.subTest(seed):
                self.diagnosed(self.program(seed))

    def test_programs_whose_device_is_slow(self):
        for seed in range(6, 10):
            with self.subTest(seed):
                self.diagnosed(self.program(seed), env={"CUDASIM_LAUNCH_NS": "60000"})

    def test_two_threads(self):
        for seed in range(10, 14):
            with self.subTest(seed):
                before, words = self.program(seed).removesuffix(" stop sync").split(" start ")
                _, others = self.program(seed + 100).removesuffix(" stop sync").split(" start ")
                self.diagnosed(f"{before} background [ wait:go {others} ] start signal:go {words} join stop sync")


if __name__ == "__main__":
    simulated.main()
