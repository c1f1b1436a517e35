#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""Library calls and the kernels launched inside them; what INJECT_HOOKS and INJECT_API record.

usage: test_libraries.py LIBRARY PROGRAMS SIMULATION [--without GROUP]...
"""

import sys
import unittest

import simulated

# Read before the classes are created, whose decorators need it.
without = []
while "--without" in sys.argv:
    place = sys.argv.index("--without")
    without.append(sys.argv[place + 1])
    del sys.argv[place:place + 2]


def takes(group):
    """The test needs a library whose headers were available to the build."""
    return unittest.skipIf(group in without, f"built without {group}")


class Attribution(simulated.SimulatedTest):
    def script(self, text, **options):
        # The handles are created before the window.
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
        # The driver's launch inside a hooked call is not counted as a call.
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
        # It submitted nothing, so no record is missing.
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


class Products(simulated.SimulatedTest):
    """gemm_sum.csv: cuBLAS's products, and the kernels that they launched."""

    def rows(self, text, **options):
        done = self.script(text, **{"WINDOW": "api", **options})
        self.assertEqual(done.out.lost(), {})
        return done, done.out.rows("gemm_sum.csv")

    def check(self, row, **expected):
        columns = {"".join(letter for letter in column if letter.isalnum()): value for column, value in row.items()}
        self.assertEqual({column: columns[column] for column in expected}, expected)

    def test_a_call_inside_a_call_counts_once(self):
        done, rows = self.rows("gemm start loop:4 [ gemm ] stop sync")
        (row,) = rows
        self.check(row, API="cublasGemmEx", M="128", N="128", K="64", OpA="N", OpB="N", TypeA="fp16", TypeC="fp16",
                   ComputeType="fp32", Batch="1", Calls="4", FailedCalls="0", CapturedCalls="0", GPUTimens="40000",
                   GPUAvgns="10000.0", GPUMinns="10000", Kernels="4", FLOPs=str(2 * 128 * 128 * 64),
                   Bytes=str(2 * (2 * 128 * 64 + 128 * 128)), KernelNames="sm90_lt_matmul_128x128")
        self.assertEqual(done.out.windows()[0]["FLOPs"], str(4 * 2 * 128 * 128 * 64))

    def test_tf32_is_allowed_by_the_program_and_the_environment(self):
        for allow, override, compute in (("", None, "fp32"), ("allow_tf32", None, "fp32 (tf32)"), ("allow_tf32", "1", "fp32 (tf32)"),
                                         ("allow_tf32", "0", "fp32")):
            with self.subTest(allow=allow, override=override):
                _, (row,) = self.rows(f"sgemm {allow} start sgemm stop sync", env={} if override is None else {"NVIDIA_TF32_OVERRIDE": override})
                self.check(row, TypeA="fp32", ComputeType=compute)

    def test_emulation_is_allowed_by_the_environment(self):
        for setting, text, compute in (("SINGLE", "sgemm", "other"), ("DOUBLE", "sgemm", "fp32"), ("SINGLE", "pedantic", "fp32")):
            with self.subTest(setting=setting, text=text):
                _, (row,) = self.rows(f"{text} start {text} stop sync", env={f"CUBLAS_EMULATE_{setting}_PRECISION": "1"})
                self.check(row, TypeA="fp32", ComputeType=compute)
        _, (row,) = self.rows("gemm start gemm stop sync", env={"CUBLAS_EMULATE_SINGLE_PRECISION": "1"})
        self.check(row, TypeA="fp16", ComputeType="fp32")

    def test_the_handles_math_mode(self):
        # cublasMath_t: default, tensor operations (fp16), pedantic, tf32, fp32 and fp64 emulated by other products; 16 is an additional
        # flag.
        for mode, compute in ((0, "fp32"), (1, "fp32 (fp16)"), (2, "fp32"), (3, "fp32 (tf32)"), (4, "other"), (8, "fp32"), (12, "other"),
                              (16, "fp32"), (17, "fp32 (fp16)"), (19, "fp32 (tf32)")):
            with self.subTest(mode=mode):
                _, (row,) = self.rows(f"sgemm math_mode:{mode} start sgemm stop sync")
                self.check(row, TypeA="fp32", ComputeType=compute)
        # A call with an explicit compute type is not affected.
        _, (row,) = self.rows("sgemm math_mode:3 start pedantic stop sync")
        self.check(row, TypeA="fp32", ComputeType="fp32")

    def test_complex_int8(self):
        _, (row,) = self.rows("gemm start complex_int8 stop sync")
        self.check(row, API="cublasCgemmEx", TypeA="complex int8", TypeC="complex fp32", FLOPs=str(8 * 32 * 16 * 8),
                   Bytes=str(2 * (32 * 8 + 8 * 16) + 8 * 32 * 16), Eligible="unknown: complex int8")

    def test_vectors_that_have_a_matrix_in_common(self):
        _, (row,) = self.rows("gemm start vectors stop sync")
        self.check(row, API="cublasSgemvStridedBatched", M="64", N="1", K="32", Batch="4", FLOPs=str(4 * 2 * 64 * 32),
                   Bytes=str(4 * (64 * 32 + 4 * (32 + 64))))

    def test_transposed(self):
        _, (row,) = self.rows("sgemm start loop:3 [ sgemm kernel:mine:2 ] stop sync")
        self.check(row, API="cublasSgemm_v2", M="64", N="64", K="64", OpA="N", OpB="T", TypeA="fp32", Calls="3", Kernels="3",
                   Lda="64", FLOPs=str(2 * 64 ** 3))

    def test_a_batch_with_a_matrix_in_common(self):
        _, (row,) = self.rows("gemm start batched stop sync")
        self.check(row, API="cublasGemmStridedBatchedEx", M="64", N="32", K="16", OpA="T", OpB="N", Batch="4", TypeA="bf16",
                   FLOPs=str(4 * 2 * 64 * 32 * 16), Bytes=str(2 * (64 * 16 + 4 * (16 * 32 + 64 * 32))))

    def test_descriptors_alone(self):
        """cublasLtMatmul's own hook reads layouts and description with the library's getters."""
        _, (row,) = self.rows("gemm start loop:5 [ gemm ] stop sync", HOOKS="cublaslt")
        self.check(row, API="cublasLtMatmul", M="128", N="128", K="64", TypeA="fp16", ComputeType="fp32", Epilogue="", Lda="128",
                   Calls="5", Kernels="5", FLOPs=str(2 * 128 * 128 * 64))

    def test_what_the_library_rejects_is_no_work(self):
        text = "gemm start gemm fault:api_fail:cublasGemmEx:7 gemm gemm fault:api_fail:off stop sync"
        done, (row,) = self.rows(text)
        self.check_unharmed(done, text)
        self.check(row, Calls="1", FailedCalls="2", Kernels="1")
        self.assertEqual(done.out.windows()[0]["FLOPs"], str(2 * 128 * 128 * 64))

    def test_families(self):
        done, _ = self.rows("gemm start loop:4 [ gemm kernel:relu_backward:1 ] stop sync")
        families = {row["Family"]: (row["Instances"], row["FLOPs"]) for row in done.out.rows("family_sum.csv")}
        self.assertEqual(families, {"GEMM": ("4", str(4 * 2 * 128 * 128 * 64)), "elementwise": ("4", "0")})

    def test_families_by_name(self):
        """Outside of library calls."""
        names = {"twoShotAllReduceKernel": "all-reduce", "small_reduce_kernel": "reduction", "moeA2ADispatchKernel": "collective other",
                 "BatchPrefillWithPagedKVCacheKernel": "attention", "rotary_embedding_kernel": "elementwise",
                 "kOptimizer32bit1State": "optimizer", "KeMaxPoolBackward": "pooling backward", "nchwToNhwcKernel": "layout change"}
        done, _ = self.rows(f"start {' '.join('kernel:' + name for name in names)} stop sync")
        families = {row["Family"]: row["Instances"] for row in done.out.rows("family_sum.csv")}
        self.assertEqual(families, dict.fromkeys(names.values(), "1"))

    def test_threads(self):
        _, rows = self.rows("threads:4 [ gemm ] start threads:4 [ loop:10 [ gemm sgemm ] ] stop sync")
        self.assertEqual({row["API"]: (row["Calls"], row["Kernels"]) for row in rows},
                         {"cublasGemmEx": ("40", "40"), "cublasSgemm_v2": ("40", "40")})

    def test_windows(self):
        done, (row,) = self.rows("gemm loop:3 [ start gemm gemm stop sync sleep:20 ] gemm")
        self.check(row, Calls="6", Kernels="6")
        self.assertEqual([window["FLOPs"] for window in done.out.windows()], [str(2 * 2 * 128 * 128 * 64)] * 3)


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
        # Without the runtime's hooks, launches are the driver's.
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
        # Calls that submit device work are kept: kernels belong to them.
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
