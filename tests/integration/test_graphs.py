#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Library calls captured into CUDA graphs, and the kernels that launches of the graphs run.

usage: test_graphs.py LIBRARY PROGRAMS SIMULATION
"""

import simulated


class Replayed(simulated.SimulatedTest):
    """Calls captured into a CUDA graph count as calls whenever it is launched."""
    WORK = 2 * 128 * 128 * 64
    KERNEL = "sm90_lt_matmul_128x128"

    def gemm(self, done):
        row, = (row for row in done.out.rows("gemm_sum.csv") if not row["API"].startswith("["))
        return tuple(int(row[column]) for column in
                     ("Calls", "Captured Calls", "Replayed Calls", "FLOPs", "Kernels", "GPU Time (ns)"))

    def flops(self, done):
        for table in ("iteration_sum.csv", "family_sum.csv"):
            self.assertEqual(sum(int(row["FLOPs"] or 0) for row in done.out.rows(table) if row.get("Device", "all") == "all"),
                             sum(int(row["FLOPs"]) for row in done.out.windows()), table)
        return [int(row["FLOPs"]) for row in done.out.windows()]

    def test_replayed(self):
        text = "capture:1 gemm:1 kernel:own:1:1 end_capture:1:x loop:5 [ graph:x:1 ] sync"
        done = self.script(text, WINDOW="always")
        self.assertEqual(self.gemm(done), (1, 1, 5, self.WORK, 5, 50_000))
        self.assertEqual(self.flops(done), [5 * self.WORK])
        row, = done.out.rows("gemm_sum.csv")
        self.assertEqual(row["TFLOP/s"], f"{self.WORK / 10_000 / 1e3:.3f}")
        self.assertEqual(row["Kernel Names"], self.KERNEL)
        self.assertEqual(done.out.kernels(), {self.KERNEL: 5, "own": 5})
        self.assertEqual(done.out.libraries()["cublasGemmEx > cublasLtMatmul"], (1, 5, 5))
        families = {row["Family"]: row for row in done.out.rows("family_sum.csv")}
        self.assertEqual((families["GEMM"]["Instances"], families["GEMM"]["In Library Calls (%)"]), ("5", "100.0"))
        # The program's own kernel is known not to be a library's.
        self.assertEqual(done.out.run["graph_kernels_without_call"], 0)
        self.assertEqual(done.out.lost(), {})
        self.check_unharmed(done, text)

    def test_captured_before_the_window(self):
        done = self.script("gemm capture:1 gemm:1 kernel:own:1:1 end_capture:1:x start loop:5 [ graph:x:1 ] stop sync",
                           WINDOW="api")
        row, = done.out.rows("gemm_sum.csv")
        self.assertEqual((row["API"], row["Calls"], row["Kernels"], row["GPU Time (ns)"]), ("[no call]", "", "5", "50000"))
        self.assertEqual(done.out.kernels(), {self.KERNEL: 5, "own": 5})
        self.assertEqual(done.out.run["graph_kernels_without_call"], 10)
        self.assertEqual(self.flops(done), [0])

    def test_captured_in_a_window_before(self):
        done = self.script("start capture:1 gemm:1 gemm:1 kernel:own:1:1 end_capture:1:x gemm:0 stop kernel:k start graph:x:1 "
                           "graph:x:1 gemm stop sync", WINDOW="api")
        self.assertEqual(self.gemm(done)[:3], (4, 2, 4))
        self.assertEqual(self.flops(done), [self.WORK, 5 * self.WORK])
        self.assertEqual(done.out.run["graph_kernels_without_call"], 0)

    def test_one_graph_of_each_age(self):
        done = self.script("gemm capture:1 gemm:1 end_capture:1:x start capture:1 gemm:1 end_capture:1:y graph:x:1 graph:y:1 "
                           "stop sync", WINDOW="api")
        self.assertEqual(self.gemm(done)[:5], (1, 1, 1, self.WORK, 1))
        self.assertEqual(done.out.run["graph_kernels_without_call"], 1)

    def test_a_graph_inside_a_graph(self):
        done = self.script("capture:1 gemm:1 end_capture:1:x capture:1 graph:x:1 gemm:1 end_capture:1:y graph:y:1 graph:y:1 "
                           "graph:x:1 sync", WINDOW="always")
        self.assertEqual(self.gemm(done)[:5], (2, 2, 5, self.WORK, 5))
        self.assertEqual(done.out.run["graph_kernels_without_call"], 0)

    def test_without_the_library_s_hooks(self):
        done = self.script("capture:1 gemm:1 end_capture:1:x graph:x:1 sync", WINDOW="always", HOOKS="cudart")
        self.assertEqual([row["API"] for row in done.out.rows("gemm_sum.csv")], ["[no call]"])
        self.assertEqual(done.out.kernels(), {self.KERNEL: 1})


class Destroyed(simulated.SimulatedTest):
    """The driver is never asked about a stream that is gone, to which calls without a stream might have gone."""

    def check(self, text):
        done = self.script(f"kernel:a:1 sync {text} print:done return:3", WINDOW="iter:1000+1")
        self.assertEqual((done.code, done.stdout), (3, "done\n"), done.stderr)

    def test_in_the_midst_of_a_capture(self):
        self.check("capture:s kernel:b:1:s destroy_stream:s kernel:c:3")

    def test_while_another_one_is_captured(self):
        self.check("capture:t capture:s kernel:b:1:s end_capture:s:x destroy_stream:s kernel:c:3 end_capture:t:y")

    def test_by_a_reset(self):
        self.check("capture:s kernel:b:1:s reset kernel:c:3")


class OtherThreads(simulated.SimulatedTest):
    """The driver is never asked about a stream that only other threads capture into: its answer points to memory that they may free."""

    def queries(self, text):
        done = self.script(f"kernel:a:1 gemm sync capture:s kernel:b:1:s {text} end_capture:s:x print:done", WINDOW="iter:1000+1")
        self.assertEqual((done.code, done.stdout), (0, "done\n"), done.stderr)
        return done.simulated_calls()["cuStreamGetCaptureInfo_v3"]

    def test_launches_on_the_default_stream_and_library_calls(self):
        alone = self.queries("")
        self.assertGreater(alone, 0)
        self.assertEqual(self.queries("threads:2 [ kernel:c:50 loop:10 [ gemm ] ]"), alone)

    def test_library_calls_of_the_capturing_thread(self):
        self.assertGreater(self.queries("gemm"), self.queries(""))


class Owed(simulated.SimulatedTest):
    """Calls for which no GPU record comes: none is missing."""

    def test_graphs_without_gpu_work(self):
        for text, launches, kernels in (("kernel:a:1 graph:x:1 graph:x:1 kernel:b:1", 2, {"a": 1, "b": 1}), ("graph:x:1", 1, {}),
                                        ("kernel:a:1 loop:20 [ graph:x:1 ]", 20, {"a": 1})):
            with self.subTest(text):
                done = self.script(f"capture:1 end_capture:1:x start {text} stop sync", WINDOW="api")
                self.assertEqual((done.out.lost(), done.out.kernels()), ({}, kernels))
                self.assertEqual(done.out.run["graph_launches_without_records"], launches)

    def test_a_graph_within_a_graph(self):
        done = self.script("capture:1 end_capture:1:x capture:1 graph:x:1 end_capture:1:y capture:1 graph:x:1 kernel:k:1:1 "
                           "end_capture:1:z start graph:y:1 graph:z:1 stop sync", WINDOW="api")
        self.assertEqual((done.out.lost(), done.out.kernels()), ({}, {"k": 1}))
        self.assertEqual(done.out.run["graph_launches_without_records"], 1)

    def test_a_graph_whose_records_do_not_come(self):
        # Nothing tells that it has no work.
        done = self.script("capture:1 kernel:k:1:1 end_capture:1:x start kernel:a:3 graph:x:1 stop sync", WINDOW="api",
                           faults="cupti_fail=cuptiActivityFlushAll:2", timeout=20)
        self.assertEqual((done.out.kernels(), done.out.lost()), ({}, {"missing_activity_records": 4}))
        self.assertEqual(done.out.run["graph_launches_without_records"], 0)

    def test_sizes_of_0(self):
        done = self.script("start copy2d:0:4 copy2d:4:0:1 memset2d:0:4 memset2d:4:0:1 copy3d:4:4:0 copy3d:0:4:4 copy:h2d:0 "
                           "memset:0 copy2d:16:4 copy3d:4:4:4 memset2d:16:4:1 kernel:a:1 stop sync", WINDOW="api")
        self.assertEqual((done.out.lost(), done.out.kernels()), ({}, {"a": 1}))
        window, = done.out.windows()
        self.assertEqual((window["Copies"], window["Memsets"], window["Submissions"]), ("2", "1", "4"))

class Times(simulated.SimulatedTest):
    """The record of a graph's kernel may have the end of the node's next replay, if that ran before the record was
    read."""
    CAPTURED = "capture:1 kernel:a:1:1 kernel:b:1:1 end_capture:1:x"

    def check(self, done, kernels):
        """Every instance took as long as on the device, and instances that can't be determined are counted."""
        rows = {row["Name"].split("(")[0]: row for row in done.out.rows("cuda_gpu_kern_sum.csv")}
        self.assertEqual({name: (int(row["Instances"]), int(row["Max (ns)"])) for name, row in rows.items()},
                         {name: (count, 10_000) for name, count in kernels.items()})

    def test_a_replay_after_the_window(self):
        done = self.script(f"{self.CAPTURED} start loop:4 [ graph:x:1 ] fault:overwritten_end:2 graph:x:1 stop sleep:5 graph:x:1 sync",
                           WINDOW="api")
        self.check(done, {"a": 4, "b": 4})
        self.assertEqual(done.out.lost(), {"invalid_timestamps": 2})
        self.assertEqual([(row["Kernels"], row["Invalid Timestamps"]) for row in done.out.windows()], [("8", "2")])

    def test_a_replay_after_the_window_that_is_not_recorded(self):
        done = self.script(f"{self.CAPTURED} start loop:4 [ graph:x:1 ] fault:overwritten_end:2 graph:x:1 stop sleep:5 fault:drop:2 "
                           "graph:x:1 sync", WINDOW="api")
        self.check(done, {"a": 4, "b": 4})
        self.assertEqual(done.out.lost()["invalid_timestamps"], 2)

    def test_a_replay_in_the_window(self):
        done = self.script(f"{self.CAPTURED} start loop:4 [ graph:x:1 ] fault:overwritten_end:1 graph:x:1 sleep:5 graph:x:1 graph:x:1 "
                           "stop sync", WINDOW="api")
        self.check(done, {"a": 6, "b": 7})
        self.assertEqual(done.out.lost(), {"invalid_timestamps": 1})

    def test_other_work_in_the_stream_after_it(self):
        # For a node that ran once, it is only known that the following one had ended by then.
        done = self.script(f"{self.CAPTURED} start fault:overwritten_end:2 graph:x:1 kernel:c:1:1 stop sleep:5 fault:drop:2 graph:x:1 "
                           "sync", WINDOW="api")
        self.check(done, {"c": 1})
        self.assertEqual(done.out.lost()["invalid_timestamps"], 2)

    def test_replays_that_take_longer_now_and_then(self):
        # In the window a kernel may take any time, after its end no longer than usual.
        done = self.script(f"{self.CAPTURED} start loop:3 [ graph:x:1 ] sync duration:a:5000000 graph:x:1 sync duration:a:10000 "
                           "loop:3 [ graph:x:1 ] stop sync", WINDOW="api")
        rows = {row["Name"].split("(")[0]: row for row in done.out.rows("cuda_gpu_kern_sum.csv")}
        self.assertEqual((rows["a"]["Instances"], rows["a"]["Max (ns)"]), ("7", "5000000"))
        self.assertEqual(done.out.lost(), {})


if __name__ == "__main__":
    simulated.main()
