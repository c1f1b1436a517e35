#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""More than there is room for: what does not fit is counted, and the rest is right.

usage: test_limits.py LIBRARY PROGRAMS SIMULATION
"""

import simulated


class LimitTest(simulated.SimulatedTest):
    def script(self, text, **options):
        return super().script(text, **{"WINDOW": "api", **options})


class Ring(LimitTest):
    """INJECT_RING=64K has room for 1,020 host records between two passes of our own thread. An earlier window keeps it busy: it collects
    that window, and CUPTI's flush waits for a kernel that `free` ends, at most a second."""

    BUSY = "kernel:k:1:1 sync start kernel:held:1:1 stop until_calls:cuptiActivityFlushAll:1 start "

    def script(self, text, **options):
        options = {"faults": ["wait_for=held/free", "no_attach_wait"], **options}
        done = super().script(text.replace("BUSY ", self.BUSY), **options)
        for _ in range(3):
            # On a machine with too few CPUs the flush may have ended before the launches came.
            if "BUSY " not in text or {"host_records", "range_records"} & set(done.out.lost()):
                break
            done = super().script(text.replace("BUSY ", self.BUSY), **options)
        return done

    def test_every_kernel_is_counted_without_its_launch(self):
        done = self.script("BUSY kernel:a:6000 kernel:free:1 sync stop", RING="64K")
        self.assertEqual(done.out.kernels(), {"held": 1, "a": 6_000, "free": 1})
        lost = done.out.lost()
        self.assertLessEqual(set(lost), {"host_records", "iteration_signs", "device_time_records"})
        _, window = done.out.windows()
        # A launch that found no room: its kernel is counted by its time.
        self.assertEqual(int(window["Unattributed"]) + int(window["Submissions"]), 6_001)
        self.assertGreater(int(window["Unattributed"]), 0)
        # Calls, including the one that waits: recorded or lost.
        self.assertEqual(int(window["API Calls"]) + lost["host_records"], 6_002)
        rows = {row["Thread Name"]: int(row["Instances"]) for row in done.out.rows("thread_kern_sum.csv")}
        self.assertEqual(rows["[unknown]"], int(window["Unattributed"]))

    def test_threads_that_find_no_room_at_all(self):
        done = self.script("start threads:16 [ kernel:t:1000:own stream_sync:own ] sync stop", RING="64K")
        self.assertEqual(done.out.kernels(), {"t": 16_000})
        (window,) = done.out.windows()
        self.assertEqual(int(window["Unattributed"]) + int(window["Submissions"]), 16_000)

    def test_ranges_have_a_count_of_their_own(self):
        done = self.script("BUSY loop:20000 [ push:r pop ] kernel:free:1 sync stop", RING="64K")
        lost = done.out.lost()
        self.assertGreater(lost["range_records"], 0)
        self.assertEqual(done.out.windows()[1]["Lost Range Records"], str(lost["range_records"]))
        self.assertEqual(done.out.kernels(), {"held": 1, "free": 1})
        self.assertLessEqual(sum(done.out.ranges().values()), 20_000)

    def test_the_next_window_has_room_again(self):
        done = self.script("BUSY kernel:a:6000 kernel:free:1 sync stop sync until_calls:cuptiFinalize:1 start kernel:b:100 sync stop",
                           RING="64K")
        _, *rows = done.out.windows()
        self.assertEqual(done.out.window_kernels(), [1, 6_001, 100])
        self.assertGreater(int(rows[0]["Lost Host Records"]), 0)
        self.assertEqual((rows[1]["Lost Host Records"], rows[1]["Unattributed"]), ("0", "0"))

    def test_each_window_has_its_own_losses(self):
        # The second one opens before the first one's records have been processed.
        done = self.script("BUSY kernel:a:6000 stop start kernel:b:3000 kernel:free:1 sync stop", RING="64K")
        windows = _, first, second = done.out.windows()
        self.assertEqual(int(first["API Calls"]) + int(first["Lost Host Records"]), 6_000)
        self.assertEqual(int(second["API Calls"]) + int(second["Lost Host Records"]), 3_002)
        self.assertEqual(sum(int(window["Lost Host Records"]) for window in windows), done.out.lost()["host_records"])

    def test_the_summary_says_so(self):
        done = self.script("BUSY kernel:a:6000 kernel:free:1 sync stop", RING="64K", SUMMARY="stderr", LOG="off")
        self.assertRegex(done.stderr, rf"(?i){done.out.lost()['host_records']}\b.*INJECT_RING|INJECT_RING")

    def test_the_program_notices_nothing(self):
        text = "start kernel:a:30000 sync stop print:done return:3"
        self.check_unharmed(self.script(text, RING="64K", faults=()), text)


class Buffers(LimitTest):
    """INJECT_BUFFERS=1M gives 16 buffers of about 300 kernels each, which return once the kernels have run: kernels that wait for one that
    runs until `free` is launched have not."""

    HELD = "kernel:k:1:1 sync start kernel:held:1 "

    def script(self, text, **options):
        return super().script(text.replace("HELD ", self.HELD), **{"faults": "wait_for=held/free", **options})

    def check_counted(self, text, launched):
        done = self.script(text, BUFFERS="1M")
        lost = done.out.lost()
        # Each launch looks like an iteration here. Of more than 10,000 the oldest no longer have a row, but a thread that had no CPU may
        # still deliver their kernels.
        self.assertEqual(set(lost) - {"busy_time_records"}, {"activity_records"})
        self.assertEqual(sum(done.out.kernels().values()) + lost["activity_records"], launched)
        (window,) = done.out.windows()
        self.assertEqual(window["Lost Activity Records"], str(lost["activity_records"]))
        self.assertEqual(int(window["Submissions"]), launched)
        return done

    def test_kernels_that_wait_for_the_device(self):
        self.check_counted("HELD kernel:a:20000 kernel:free:1:1 sync stop", 20_002)

    def test_more_threads_than_buffers(self):
        # All of them have launched before the first one ends.
        self.check_counted("start threads:32 [ meet:begin:32 kernel:t:500:own meet:end:32 stream_sync:own ] sync stop", 16_000)

    @simulated.unsanitized("the first window's files take longer than the second's opening is waited for", alone="thread")
    def test_the_next_window_has_room_again(self):
        done = self.script("HELD kernel:a:20000 kernel:free:1:1 stop sync until_calls:cuptiFinalize:1 start kernel:b:100 stop sync",
                           BUFFERS="1M")
        rows = done.out.windows()
        self.assertGreater(int(rows[0]["Lost Activity Records"]), 0)
        self.assertEqual((rows[1]["Kernels"], rows[1]["Lost Activity Records"]), ("100", "0"))

    def test_the_summary_says_so(self):
        done = self.script("HELD kernel:a:20000 kernel:free:1:1 sync stop", BUFFERS="1M", SUMMARY="stderr", LOG="off")
        self.assertIn("INJECT_BUFFERS", done.stderr)


class Tables(LimitTest):
    def test_many_kernels(self):
        # The raw records keep all names.
        done = self.script("start kernels:k:10500 sync stop", TRACE=None)
        kernels = done.out.kernels()
        self.assertEqual(sum(kernels.values()), 10_500)
        # A table keeps 10,000 keys; the rest is one row.
        self.assertEqual(len(kernels), 10_000 + 1)
        self.assertEqual(kernels["[other]"], 500)

    @simulated.unsanitized("10,500 windows are more than it collects before the program's end is not waited for")
    def test_many_windows(self):
        done = self.script("loop:10500 [ start kernel:a:1 stop ] sync", TRACE=None)
        self.assertEqual(done.out.kernels(), {"a": 10_500})
        run = done.out.run
        # Those that the table has, and the latest.
        self.assertEqual([window["number"] for window in run["windows"]], [*range(1, 10_001), *range(10_401, 10_501)])
        self.assertEqual(run["windows_not_listed"], 400)
        rows = done.out.windows()
        self.assertEqual([row["Window"] for row in rows], [*map(str, range(1, 10_001)), "[other]"])
        self.assertEqual([row["Kernels"] for row in rows], ["1"] * 10_000 + ["500"])
        self.assertNotIn("", [row["Start (ns)"] for row in rows[:-1]])
        self.assertLessEqual(run["overhead"]["attachments"], 2 + 2 * simulated.pauses(run))

    def test_many_short_threads(self):
        # Each takes one of CUPTI's buffers, 8 full ones and 96 quarters, and leaves it nearly empty. They are recalled once half of the
        # memory is in use, by 40 threads.
        done = self.script("start loop:5 [ threads:44 [ kernel:t:3 ] until_delivered:120 looks:2 ] sync stop")
        self.assertEqual(done.out.kernels(), {"t": 660})
        self.assertEqual(done.out.lost(), {})
        self.assertEqual([row["Instances"] for row in done.out.rows("thread_kern_sum.csv")], ["3"] * 220)

    def test_many_threads_that_launch_once(self):
        # If threads that no longer launch hold all buffers, these are recalled: on a busy machine not before the next kernel.
        done = self.script("start threads:120 [ kernel:once:1 meet:end:120 ] until_delivered:40 loop:10 [ looks:2 kernel:later:1 ] sync stop")
        kernels = done.out.kernels()
        self.assertEqual(sum(kernels.values()) + done.out.lost().get("activity_records", 0), 130)
        self.assertGreater(kernels.get("later", 0), 0)


if __name__ == "__main__":
    simulated.main()
