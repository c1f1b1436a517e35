#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Library calls and the kernels launched inside them; what INJECT_HOOKS and INJECT_API record.

usage: test_libraries.py LIBRARY PROGRAMS SIMULATION [--without GROUP]...
"""

import sys
import unittest

import simulated

# Read before the classes are made, whose decorators ask for it.
without = []
while "--without" in sys.argv:
    place = sys.argv.index("--without")
    without.append(sys.argv[place + 1])
    del sys.argv[place:place + 2]


def takes(group):
    """The test needs a library whose headers the build had."""
    return unittest.skipIf(group in without, f"built without {group}")


class Attribution(simulated.SimulatedTest):
    def script(self, text, **options):
        # The handles are made before the window.
        return super().script(text, **{"WINDOW": "api", **options})

    def test_a_call_inside_a_call(self):
        done = self.script("gemm start loop:4 [ gemm ] stop sync")
        self.assertEqual(done.out.kernels(), {"sm90_lt_matmul_128x128": 4})
        self.assertEqual(done.out.libraries(), {"cublasGemmEx": (4, 0, 4), "cublasGemmEx > cublasLtMatmul": (4, 4, 4)})
        rows = {row["Call"]: row for row in done.out.rows("library_sum.csv")}
        self.assertEqual([rows[call]["Library"] for call in sorted(rows)], ["cublas", "cublaslt"])
        self.assertEqual(rows["cublasGemmEx"]["GPU Time incl. Nested (ns)"], "40000")
        self.assertEqual(done.out.windows()[0]["Library Calls"], "8")

    def test_a_call_that_launches_by_itself(self):
        done = self.script("sgemm start loop:3 [ sgemm kernel:mine:2 ] stop sync")
        self.assertEqual(done.out.kernels(), {"sm90_gemm_f32_nt_128x128": 3, "mine": 6})
        self.assertEqual(done.out.libraries(), {"cublasSgemm_v2": (3, 3, 3)})
        # The library's own runtime can't be hooked: its launches are the driver's.
        calls = done.out.calls()
        self.assertEqual((calls["cuLaunchKernel"], calls["__cudaLaunchKernel"]), (3, 6))

    @takes("cudnn")
    def test_cudnn(self):
        done = self.script("convolution start loop:5 [ convolution ] stop sync")
        self.assertEqual(done.out.libraries(), {"cudnnConvolutionForward": (5, 5, 5)})
        self.assertEqual(done.out.rows("library_sum.csv")[0]["Library"], "cudnn")

    @takes("nccl")
    def test_collectives(self):
        done = self.script("all_reduce start loop:3 [ all_reduce ] stop sync")
        self.assertEqual(done.out.libraries(), {"ncclAllReduce": (3, 3, 3)})
        self.assertEqual(list(done.out.kernels().values()), [3])

    @takes("nccl")
    def test_a_group_launches_where_it_ends(self):
        done = self.script("all_reduce start group_start loop:3 [ all_reduce ] group_end stop sync")
        self.assertEqual(done.out.libraries(), {"ncclGroupStart": (1, 0, 0), "ncclAllReduce": (3, 0, 0),
                                                "ncclGroupEnd": (1, 3, 3)})

    def test_a_runtime_call_that_launches(self):
        done = self.script("start runtime_kernel:a:3 kernel:b:2 copy:h2d:64 memset:64 stop sync")
        calls = done.out.calls()
        self.assertEqual({name: calls[name] for name in ("cudaLaunchKernel", "__cudaLaunchKernel", "cudaMemcpy", "cudaMemset")},
                         {"cudaLaunchKernel": 3, "__cudaLaunchKernel": 2, "cudaMemcpy": 1, "cudaMemset": 1})
        # The driver's launch inside a hooked call is no call of its own.
        self.assertNotIn("cuLaunchKernel", calls)
        self.assertEqual(done.out.libraries(), {})
        self.assertEqual(done.out.windows()[0]["Submissions"], "7")

    def test_the_driver_api(self):
        done = self.script("init start kernel:a:3 copy:64 stop sync", program="driver")
        calls = done.out.calls()
        self.assertEqual((calls["cuLaunchKernel"], calls["cuMemcpyHtoD_v2"]), (3, 1))

    def test_a_call_that_fails(self):
        text = "gemm start gemm fault:api_fail:cublasLtMatmul:15 gemm fault:api_fail:off gemm stop sync"
        done = self.script(text)
        self.assertEqual(done.stdout, "cublasGemmEx: 15\n")
        self.check_unharmed(done, text)
        failed = {row["Call"]: (row["Calls"], row["Failed Calls"]) for row in done.out.rows("library_sum.csv")}
        self.assertEqual(failed, {"cublasGemmEx": ("3", "1"), "cublasGemmEx > cublasLtMatmul": ("3", "1")})
        self.assertEqual(done.out.lost(), {})

    def test_a_launch_that_fails(self):
        text = "start kernel:a:2 fault:api_fail:cuLaunchKernel:719 kernel:b:1 fault:api_fail:off kernel:c:1 bad_copy stop sync"
        done = self.script(text)
        self.check_unharmed(done, text)
        self.assertEqual(done.out.kernels(), {"a": 2, "c": 1})
        # It submitted nothing: no record is missing.
        self.assertEqual(done.out.lost(), {})
        results = [row["Result"] for row in done.out.rows("cuda_api_trace.csv") if row["Name"] == "__cudaLaunchKernel"]
        self.assertEqual(results, ["0", "0", "719", "0"])
        copies = [row["Result"] for row in done.out.rows("cuda_api_trace.csv") if row["Name"] == "cudaMemcpy"]
        self.assertEqual(copies, ["1"])

    def test_threads_do_not_mix(self):
        done = self.script("threads:4 [ gemm ] start threads:4 [ loop:10 [ gemm sgemm kernel:k:1 ] ] stop sync")
        self.assertEqual(done.out.libraries()["cublasGemmEx > cublasLtMatmul"], (40, 40, 40))
        self.assertEqual(done.out.libraries()["cublasSgemm_v2"], (40, 40, 40))
        self.assertEqual(done.out.kernels()["k"], 40)


class Hooks(simulated.SimulatedTest):
    """INJECT_HOOKS: a group that does not record leaves its callers' rows, and every kernel, as they are."""

    text = "gemm sgemm start gemm sgemm kernel:mine:2 stop sync"
    kernels = {"sm90_lt_matmul_128x128": 1, "sm90_gemm_f32_nt_128x128": 1, "mine": 2}

    def record(self, hooks):
        done = self.script(self.text, WINDOW="api", HOOKS=hooks)
        self.assertEqual(done.out.kernels(), self.kernels)
        self.assertEqual(done.out.lost(), {})
        return done.out.libraries(), done.out.calls()

    def test_all(self):
        libraries, calls = self.record("all")
        self.assertEqual(libraries, {"cublasGemmEx": (1, 0, 1), "cublasGemmEx > cublasLtMatmul": (1, 1, 1),
                                     "cublasSgemm_v2": (1, 1, 1)})
        self.assertEqual((calls["__cudaLaunchKernel"], calls["cuLaunchKernel"]), (2, 2))

    def test_cublaslt_alone(self):
        libraries, calls = self.record("cublaslt")
        self.assertEqual(libraries, {"cublasLtMatmul": (1, 1, 1)})
        # Without the runtime's hooks its launches are the driver's.
        self.assertEqual(calls, {"cuLaunchKernel": 4})

    def test_cublas_and_cudart(self):
        libraries, calls = self.record("cublas,cudart")
        self.assertEqual(libraries, {"cublasGemmEx": (1, 1, 1), "cublasSgemm_v2": (1, 1, 1)})
        self.assertEqual(calls["__cudaLaunchKernel"], 2)

    def test_nccl_alone(self):
        libraries, calls = self.record("nccl")
        self.assertEqual((libraries, calls), ({}, {"cuLaunchKernel": 4}))


class ApiStatistics(simulated.SimulatedTest):
    text = "copy:h2d:1 sgemm start kernel:a:2 copy:h2d:64 sgemm sync stop"

    def test_cuda(self):
        done = self.script(self.text, WINDOW="api", API="cuda")
        self.assertEqual(done.out.calls()["cudaDeviceSynchronize"], 1)
        self.assertNotIn("cuCtxSynchronize", done.out.calls())

    def test_full(self):
        done = self.script(self.text, WINDOW="api", API="full")
        calls = done.out.calls()
        self.assertEqual(calls["cudaDeviceSynchronize"], 1)
        self.assertEqual(calls["cuCtxSynchronize"], 1)
        self.assertEqual(done.out.kernels(), {"a": 2, "sm90_gemm_f32_nt_128x128": 1})
        self.assertEqual(done.out.lost(), {})

    def test_off(self):
        done = self.script(self.text, WINDOW="api", API="off")
        calls = done.out.calls()
        # What submits device work is kept: the kernels are its.
        self.assertNotIn("cudaDeviceSynchronize", calls)
        self.assertEqual(done.out.kernels(), {"a": 2, "sm90_gemm_f32_nt_128x128": 1})
        self.assertEqual(done.out.libraries(), {"cublasSgemm_v2": (1, 1, 1)})
        self.assertEqual(done.out.lost(), {})


class Build(simulated.SimulatedTest):
    def test_run_json_says_what_was_left_out(self):
        done = self.script("start kernel:a:1 stop sync", WINDOW="api")
        self.assertEqual(done.out.run["hooks_left_out_of_the_build"], sorted(without))


if __name__ == "__main__":
    simulated.main()
