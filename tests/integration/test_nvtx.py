#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""NVTX ranges: their times, and the kernels launched in them.

usage: test_nvtx.py LIBRARY PROGRAMS SIMULATION
"""

import simulated

PUSH, START = "PushPop", "StartEnd"


class Ranges(simulated.SimulatedTest):
    def script(self, text, **options):
        return super().script(text, **{"WINDOW": "api", **options})

    def test_nested_ranges(self):
        done = self.script("start push:step kernel:a:1 loop:2 [ push:layer kernel:b:3 pop ] pop kernel:c:1 stop sync")
        self.assertEqual(done.out.ranges(), {("step", PUSH): 1, ("layer", PUSH): 2})
        # A kernel counts in every range around it; kernels launched outside of ranges have a row of their own.
        self.assertEqual(done.out.range_kernels(), {("step", "a"): (1, 1), ("step", "b"): (1, 6), ("layer", "b"): (2, 6),
                                                    ("", "c"): (0, 1)})
        self.assertEqual(done.out.windows()[0]["Ranges"], "3")
        self.assertEqual(done.out.windows()[0]["Clipped Ranges"], "0")

    def test_times_of_ranges(self):
        done = self.script("start push:outer sleep:20 push:inner sleep:30 pop pop stop")
        times = {row["Range"]: int(row["Total Time (ns)"]) for row in done.out.rows("nvtx_sum.csv")}
        self.assertGreaterEqual(times[":inner"], 30_000_000)
        self.assertGreaterEqual(times[":outer"], times[":inner"] + 20_000_000)
        self.assertLess(times[":outer"], 2_000_000_000)

    def test_without_ranges_there_are_no_rows(self):
        done = self.script("push:before pop start kernel:a:2 stop push:after kernel:b:1 pop sync")
        self.assertEqual(done.out.rows("nvtx_sum.csv"), [])
        self.assertEqual(done.out.rows("nvtx_kern_sum.csv"), [])

    def test_ranges_around_the_window_are_clipped_to_it(self):
        done = self.script("push:run sleep:30 start push:step kernel:a:2 stop kernel:b:1 sleep:30 pop pop sync")
        self.assertEqual(done.out.ranges(), {("run", PUSH): 1, ("step", PUSH): 1})
        self.assertEqual(done.out.range_kernels(), {("run", "a"): (1, 2), ("step", "a"): (1, 2)})
        (window,) = done.out.windows()
        self.assertEqual(window["Clipped Ranges"], "2")
        times = {row["Range"]: int(row["Total Time (ns)"]) for row in done.out.rows("nvtx_sum.csv")}
        self.assertEqual(times[":run"], int(window["Duration (ns)"]))
        self.assertLessEqual(times[":step"], times[":run"])

    def test_a_range_over_two_windows_is_clipped_to_both(self):
        done = self.script("push:run start kernel:a:2 stop start kernel:a:3 stop pop sync")
        self.assertEqual(done.out.ranges(), {("run", PUSH): 2})
        times = sum(int(row["Duration (ns)"]) for row in done.out.windows())
        self.assertEqual(int(done.out.rows("nvtx_sum.csv")[0]["Total Time (ns)"]), times)
        self.assertEqual(done.out.range_kernels(), {("run", "a"): (2, 5)})

    def test_first_ranges_of_threads_while_cuda_is_initialised(self):
        """One of them creates what all of them need; the profiler's start waits for that."""
        # It takes time to compare each with the variables that exist.
        unknown = {f"UNKNOWN_{i}": "1" for i in range(1000)}
        for _ in range(5):
            done = self.script("threads:16 [ push:x kernel:a:1:own pop ] sync", WINDOW="always", LOG="error", **unknown)
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.out.run["state"], "closed")

    def test_domains_have_stacks_of_their_own(self):
        done = self.script("start push:mine domain_push:other:theirs kernel:a:1 pop kernel:b:1 domain_pop:other kernel:c:1 "
                           "stop sync")
        self.assertEqual(done.out.ranges(), {("mine", PUSH): 1, ("other:theirs", PUSH): 1})
        self.assertEqual(done.out.range_kernels(), {("mine", "a"): (1, 1), ("other:theirs", "a"): (1, 1),
                                                    ("other:theirs", "b"): (1, 1), ("", "c"): (0, 1)})

    def test_registered_and_wide_names(self):
        done = self.script("start registered:handle kernel:a:1 pop wide:breit kernel:b:1 pop stop sync")
        self.assertEqual(done.out.ranges(), {("handle", PUSH): 1, ("breit", PUSH): 1})
        self.assertEqual(done.out.range_kernels(), {("handle", "a"): (1, 1), ("breit", "b"): (1, 1)})

    def test_names_are_quoted(self):
        done = self.script('start push:a,"b" kernel:k:1 pop stop sync')
        self.assertEqual(done.out.ranges(), {('a,"b"', PUSH): 1})

    def test_names_are_no_formulas(self):
        done = self.script("start domain_push:=1+1:x kernel:a:1 domain_pop:=1+1 stop sync")
        for table in ("nvtx_sum.csv", "nvtx_kern_sum.csv"):
            self.assertIn("\"'=1+1:x\"", (done.out.path / table).read_text(encoding="utf-8"))

    def test_start_and_end_on_one_thread(self):
        done = self.script("start range_start:x:epoch kernel:a:2 push:step kernel:b:1 range_end:x kernel:c:1 pop kernel:d:1 "
                           "stop sync")
        self.assertEqual(done.out.ranges(), {("epoch", START): 1, ("step", PUSH): 1})
        self.assertEqual(done.out.range_kernels(), {("epoch", "a"): (1, 2), ("epoch", "b"): (1, 1), ("step", "b"): (1, 1),
                                                    ("step", "c"): (1, 1), ("", "d"): (0, 1)})

    def test_start_on_one_thread_and_end_on_another(self):
        done = self.script("start range_start:x:epoch kernel:a:2 background [ kernel:other:1 range_end:x ] join kernel:b:1 "
                           "stop sync")
        self.assertEqual(done.out.ranges(), {("epoch", START): 1})
        self.assertEqual(done.out.windows()[0]["Clipped Ranges"], "0")
        # The range was on the path of the thread that started it, and on no other's.
        self.assertEqual(done.out.range_kernels(), {("epoch", "a"): (1, 2), ("", "b"): (0, 1), ("", "other"): (0, 1)})

    def test_start_before_the_window_and_end_inside_it(self):
        done = self.script("range_start:x:epoch start kernel:a:2 range_end:x kernel:b:1 stop sync")
        self.assertEqual(done.out.ranges(), {("epoch", START): 1})
        self.assertEqual(done.out.windows()[0]["Clipped Ranges"], "1")
        self.assertEqual(done.out.range_kernels(), {("epoch", "a"): (1, 2), ("", "b"): (0, 1)})

    def test_threads_have_paths_of_their_own(self):
        done = self.script("start push:main threads:4 [ push:work kernel:t:5:own pop stream_sync:own ] kernel:m:1 pop stop sync")
        self.assertEqual(done.out.ranges(), {("main", PUSH): 1, ("work", PUSH): 4})
        self.assertEqual(done.out.range_kernels(), {("main", "m"): (1, 1), ("work", "t"): (4, 20)})
        rows = [row for row in done.out.rows("nvtx_kern_sum.csv") if row["NVTX Range"] == ":work"]
        self.assertEqual([(row["NVTX Inst"], row["Kern Inst"]) for row in rows], [("1", "5")] * 4)
        self.assertEqual(len({row["TID"] for row in rows}), 4)

    def test_copies_and_library_calls_in_ranges(self):
        done = self.script("gemm start push:step gemm copy:h2d:64 pop stop sync")
        self.assertEqual(done.out.range_kernels(), {("step", "sm90_lt_matmul_128x128"): (1, 1)})

    def test_the_same_range_many_times(self):
        done = self.script("start loop:500 [ push:step kernel:a:2 pop ] stop sync")
        self.assertEqual(done.out.ranges(), {("step", PUSH): 500})
        self.assertEqual(done.out.range_kernels(), {("step", "a"): (500, 1000)})

    def test_many_names(self):
        words = " ".join(f"push:r{i} kernel:a:1 pop" for i in range(300))
        done = self.script(f"start {words} stop sync")
        self.assertEqual(len(done.out.ranges()), 300)
        self.assertEqual(sum(kernels for _, kernels in done.out.range_kernels().values()), 300)

    def test_ranges_that_are_never_popped(self):
        done = self.script("kernel:warm:1 sync loop:60000 [ push:r ] start kernel:a:3 push:s kernel:b:2 pop sync stop")
        self.assertEqual(done.out.kernels(), {"a": 3, "b": 2})
        found = done.out.range_kernels()
        self.assertEqual((found["s", "b"], found["r", "a"][1], found["r", "b"][1]), ((1, 2), 3, 2))

    def test_a_pop_too_many(self):
        done = self.script("start pop push:a kernel:k:1 pop pop kernel:l:1 stop sync")
        self.assertEqual(done.out.ranges(), {("a", PUSH): 1})
        self.assertEqual(done.out.range_kernels(), {("a", "k"): (1, 1), ("", "l"): (0, 1)})

    def test_ranges_before_cuda(self):
        # NVTX loads the library before CUDA does.
        done = self.script("push:init pop push:run start kernel:a:1 stop pop sync")
        self.assertEqual(done.out.ranges(), {("run", PUSH): 1})

    def test_ranges_without_a_window_leave_nothing(self):
        done = self.script("push:a pop", WINDOW="api")
        self.assertEqual((done.code, done.stderr, done.folders()), (0, "", []))


if __name__ == "__main__":
    simulated.main()
