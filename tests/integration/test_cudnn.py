#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The libinject authors
"""FLOPs of cuDNN's calls: plans of its graph API, read when they are created, and the older functions' descriptors.

usage: test_cudnn.py LIBRARY PROGRAMS SIMULATION
"""

import simulated

# FLOPs of the programs' convolution for one sample: 64 channels of 56 x 56, 128 filters of 3 x 3, stride 2.
SAMPLE = 2 * 128 * 28 * 28 * 64 * 9
# Their network: two LSTM layers in both directions, 256 to 512, over 20 + 15 + 9 + 3 steps.
NETWORK = 2 * 47 * 2 * 4 * 512 * ((256 + 512) + (1024 + 512))
PRODUCT = 2 * 96 * 32 * 64  # per sample

# Plans are read once CUDA is initialised.
BEGIN = "conv:forward"


class CudnnTest(simulated.SimulatedTest):
    def script(self, text, **options):
        return super().script(text, **{"WINDOW": "api", **options})

    def row(self, table, text):
        """The only row of `table` after a window in which `text` runs."""
        (row,) = self.script(text).out.rows(table)
        return row

    def check_row(self, row, **expected):
        """Column names without blanks and brackets."""
        found = {"".join(letter for letter in column if letter.isalnum()): text for column, text in row.items()}
        self.assertEqual({column: found[column] for column in expected}, expected)

    def flops(self, text, **options):
        """FLOPs of the window in which `text` runs."""
        done = self.script(text, **options)
        self.check_unharmed(done, text)
        return int(done.out.windows()[0]["FLOPs"] or 0)


class Plans(CudnnTest):
    def window(self, before, inside, **options):
        return self.flops(f"{BEGIN} {before} start {inside} stop sync", **options)

    def test_directions(self):
        for direction in ("forward", "data", "filter", "fused"):
            self.assertEqual(self.window(f"plan:p:{direction}:16", "loop:5 [ execute:p ]"), 5 * 16 * SAMPLE, direction)

    def test_a_convolution(self):
        row = self.row("conv_sum.csv", f"{BEGIN} plan:p:forward:16:62 start loop:5 [ execute:p ] stop sync")
        self.check_row(row, API="cudnnBackendExecute", Direction="forward", N="16", C="64", D="", H="56", W="56", K="128",
                       T="", R="3", S="3", Stride="2x2", Padding="1x1", Dilation="1x1", Groups="1", Layout="NHWC",
                       TypeX="fp16", TypeW="fp16", TypeY="fp16", ComputeType="fp32", Fused="", Engine="62",
                       Algorithm="implicit GEMM", Calls="5", FailedCalls="0", GPUTimens="50000", Kernels="5",
                       FLOPs=str(16 * SAMPLE), Eligible="yes", Hint="")

    def test_what_is_fused(self):
        row = self.row("conv_sum.csv", f"{BEGIN} plan:p:fused start execute:p stop sync")
        self.check_row(row, Direction="forward", Fused="relu", TypeY="fp16")

    def test_a_product(self):
        row = self.row("gemm_sum.csv", f"{BEGIN} plan:p:matmul:8 start execute:p execute:p stop sync")
        # Row-major, which is the product of the transposes.
        self.check_row(row, API="cudnnBackendExecute", M="32", N="96", K="64", OpA="N", OpB="N", Batch="8", Calls="2",
                       ComputeType="fp32", FLOPs=str(8 * PRODUCT))

    def test_a_graph_s_family_is_what_it_computes(self):
        """One function runs them all."""
        for plan, family in (("matmul:8", "GEMM"), ("attention:2", "attention")):
            done = self.script(f"{BEGIN} plan:p:{plan} start execute:p stop sync")
            (row,) = done.out.rows("family_sum.csv")
            self.assertEqual((row["Family"], row["FLOPs"]), (family, done.out.windows()[0]["FLOPs"]))

    def test_attention(self):
        row = self.row("attention_sum.csv", f"{BEGIN} plan:p:attention:2 start loop:3 [ execute:p ] stop sync")
        self.check_row(row, Source="library call", API="cudnnBackendExecute", Direction="forward", B="2", H="8", KVHeads="8",
                       SQuery="512", SKey="256", D="64", DValue="64", Causal="0", Bias="0", Dropout="0", Type="fp16",
                       Engine="62", Calls="3", Kernels="3", FLOPs=str(2 * 2 * 8 * 512 * 256 * 128), Eligible="yes")

    def test_a_plan_that_becomes_nodes_of_a_graph(self):
        done = self.script(f"{BEGIN} plan:p:forward:16:62 start populate:p:5 stop sync")
        (row,) = [row for row in done.out.rows("conv_sum.csv") if not row["API"].startswith("[")]
        self.check_row(row, API="cudnnBackendPopulateCudaGraph", Direction="forward", N="16", Calls="1", CapturedCalls="1",
                       ReplayedCalls="5", Kernels="5", FLOPs=str(16 * SAMPLE))
        calls = done.out.libraries()
        self.assertEqual(calls["cudnnBackendPopulateCudaGraph"], (1, 5, 5))
        self.assertEqual(calls["cudnnBackendUpdateCudaGraph"], (1, 0, 0))

    def test_other_graphs_count_nothing(self):
        self.assertEqual(self.window("plan:p:pooling", "execute:p"), 0)

    def test_each_plan_has_its_own(self):
        plans = " ".join(f"plan:p{i}:forward:{i}" for i in range(1, 30))
        calls = " ".join(f"execute:p{i}" for i in range(1, 30))
        self.assertEqual(self.window(plans, calls), sum(range(1, 30)) * SAMPLE)

    def test_plans_are_made_in_windows_too(self):
        self.assertEqual(self.window("", "plan:p:forward:4 execute:p"), 4 * SAMPLE)

    def test_an_address_that_is_used_again(self):
        self.assertEqual(self.window("", "plan:p:forward:4 execute:p drop:p plan:q:data:7 execute:q drop:q plan:r:pooling execute:r"),
                         11 * SAMPLE)

    def test_a_plan_that_can_not_be_made(self):
        done = self.script(f"{BEGIN} bad_plan:p start execute:p execute:null last_text stop sync")
        self.check_unharmed(done, f"{BEGIN} bad_plan:p start execute:p execute:null last_text stop sync")
        self.assertIn("cudnnBackendFinalize: ", done.stdout)
        self.assertEqual(int(done.out.windows()[0]["FLOPs"] or 0), 0)

    def test_the_last_error_is_the_programs(self):
        text = f"{BEGIN} bad_plan:bad plan:p:forward last_text last_text start execute:p stop sync last_text"
        self.check_unharmed(self.script(text), text)

    def test_a_plan_is_read_once(self):
        def reads(executions, **options):
            done = self.script(f"{BEGIN} plan:p:forward start loop:{executions} [ execute:p ] stop sync", **options)
            calls = done.simulated_calls()
            self.assertGreaterEqual(calls["cudnnBackendExecute"], executions)
            return calls["cudnnBackendGetAttribute"]
        self.assertGreater(reads(1), 0)
        self.assertEqual(reads(100), reads(1))
        # Nothing uses the result.
        self.assertEqual(reads(1, HOOKS="cudart,cublas"), 0)
        self.assertEqual(reads(1, WINDOW="off"), 0)

    def test_what_is_made_and_destroyed_is_no_row(self):
        done = self.script(f"{BEGIN} start plan:p:forward execute:p drop:p stop sync")
        calls = done.out.libraries()
        self.assertEqual(calls["cudnnBackendExecute"], (1, 1, 1))
        self.assertIn("cudnnBackendFinalize", calls)
        self.assertEqual([call for call in calls if "Descriptor" in call], [])

    def test_threads(self):
        self.assertEqual(self.flops(f"threads:4 [ {BEGIN} ] plan:p:forward:2 start threads:4 [ loop:50 [ execute:p ] ] stop sync"),
                         200 * 2 * SAMPLE)
        self.assertEqual(self.flops(f"threads:4 [ {BEGIN} ] start threads:4 [ loop:50 [ use:forward:2 use:pooling use:data:3 ] ] stop sync"),
                         200 * 5 * SAMPLE)


class Functions(CudnnTest):
    def window(self, inside):
        return self.flops(f"{BEGIN} start {inside} stop sync")

    def test_convolutions(self):
        for direction in ("forward", "data", "filter", "fused"):
            self.assertEqual(self.window(f"loop:3 [ conv:{direction}:4 ]"), 3 * 4 * SAMPLE, direction)

    def test_a_convolution(self):
        for direction, name, algorithm in (("forward", "forward", "Winograd"), ("data", "data gradient", "implicit GEMM"),
                                           ("filter", "filter gradient", "implicit GEMM")):
            row = self.row("conv_sum.csv", f"{BEGIN} start conv:{direction}:4:8 conv:{direction}:4:8 stop sync")
            self.check_row(row, Direction=name, N="4", C="64", H="56", W="56", K="128", R="3", S="3", Stride="2x2",
                           Padding="1x1", Groups="8", Layout="NHWC", TypeX="fp16", ComputeType="fp32", Algorithm=algorithm,
                           Calls="2", Kernels="2", FLOPs=str(4 * SAMPLE // 8))

    def test_what_is_fused(self):
        input, output, filters, bias = 2 * 8 * 64 * 56 * 56, 2 * 8 * 128 * 28 * 28, 2 * 128 * 64 * 9, 4 * 128
        for call, fused, size in (("fused", "bias + relu", input + filters + bias + output),
                                  ("sum", "bias + add + relu", input + filters + bias + 2 * output)):
            row = self.row("conv_sum.csv", f"{BEGIN} start conv:{call} stop sync")
            self.check_row(row, API="cudnnConvolutionBiasActivationForward", Fused=fused, Algorithm="implicit GEMM", Bytes=str(size))

    def test_null_descriptors(self):
        for direction in ("forward", "data", "filter", "fused"):
            self.assertEqual(self.window(f"conv_null:{direction} last_text"), 0, direction)
        self.assertEqual(self.window("convolution last_text"), 0)

    def test_recurrent_networks(self):
        for direction in ("forward", "data", "weights"):
            self.assertEqual(self.window(f"loop:2 [ rnn:{direction} ]"), 2 * NETWORK, direction)

    def test_a_network(self):
        row = self.row("rnn_sum.csv", f"{BEGIN} start rnn:data stop sync")
        self.check_row(row, API="cudnnRNNBackwardData_v8", Direction="data gradient", Cell="LSTM", Layers="2", Directions="2",
                       InputSize="256", HiddenSize="512", ProjectionSize="0", T="20", B="4", Steps="47", Type="fp16",
                       Algorithm="persistent static", Calls="1", FLOPs=str(NETWORK), Hint="")

    def products(self, network, calls=1):
        """The table's rows for one network: those of its calls, and those of its products by size: their number and FLOPs."""
        done = self.script(f"{BEGIN} start loop:{calls} [ rnn:{network} ] stop sync")
        (row,) = done.out.rows("rnn_sum.csv")
        (together, *parts) = done.out.rows("gemm_sum.csv")
        for part, kind in ((together, "call"), *((part, "product") for part in parts)):
            self.check_row(part, API=row["API"], Derived=kind, TypeA="fp16", ComputeType=row["Compute Type"],
                           Calls=str(calls), HostTimens="", Lda="", Epilogue="")
        self.check_row(together, GPUTimens=row["GPU Time (ns)"], FLOPs=row["FLOPs"], Kernels=row["Kernels"])
        self.assertEqual(sum(int(part["FLOPs"]) for part in parts), int(row["FLOPs"]))
        return {tuple(part[column] for column in ("Op A", "Op B", "M", "N", "K")): int(part["Batch"]) for part in parts}, row

    def test_products_of_a_network(self):
        """Two layers in both directions: the second one's input is both directions' output."""
        found, row = self.products("forward:even", calls=3)
        self.assertEqual(found, {("T", "N", "2048", "80", "256"): 2, ("T", "N", "2048", "80", "1024"): 2, ("T", "N", "2048", "4", "512"): 2 * 2 * 20})
        self.check_row(row, T="20", Steps="80")
        found, _ = self.products("data:even")
        self.assertEqual(found, {("N", "N", "256", "80", "2048"): 2, ("N", "N", "1024", "80", "2048"): 2, ("N", "N", "512", "4", "2048"): 2 * 2 * 20})
        found, _ = self.products("weights:even")
        self.assertEqual(found, {("N", "T", "256", "2048", "80"): 2, ("N", "T", "1024", "2048", "80"): 2, ("N", "T", "512", "2048", "80"): 2 * 2})

    def test_products_of_sequences_that_end_at_different_steps(self):
        found, row = self.products("forward")
        self.assertEqual(found, {("T", "N", "2048", "47", "256"): 2, ("T", "N", "2048", "47", "1024"): 2, ("T", "N", "2048", "", "512"): 2 * 2 * 20})
        self.check_row(row, T="20")  # without the padding in memory
        found, _ = self.products("weights")
        self.assertEqual(found, {("N", "T", "256", "2048", "47"): 2, ("N", "T", "1024", "2048", "47"): 2, ("N", "T", "512", "2048", "47"): 2 * 2})

    def test_products_with_a_projection(self):
        found, _ = self.products("forward:projected")
        # The second layer's input is as wide as the state of both directions, 2 · 128.
        self.assertEqual(found, {("T", "N", "2048", "47", "256"): 2 + 2, ("T", "N", "2048", "", "128"): 2 * 2 * 20, ("T", "N", "128", "", "512"): 2 * 2 * 20})

    def test_products_without_those_of_the_input(self):
        found, row = self.products("data:skip")
        self.check_row(row, InputSize="0")
        self.assertEqual(found, {("N", "N", "1024", "47", "2048"): 2, ("N", "N", "512", "", "2048"): 2 * 2 * 20})

    def test_a_network_whose_steps_are_not_known(self):
        done = self.script(f"{BEGIN} start rnn:forward:many stop sync")
        (row,), (found,) = done.out.rows("rnn_sum.csv"), done.out.rows("gemm_sum.csv")
        self.check_row(row, T="", Steps="", B="3000", FLOPs="", TFLOPs="", Calls="1", Kernels="1")
        self.check_row(found, API="cudnnRNNForward", Derived="call", M="", N="", K="", OpA="", TypeA="", Batch="", FLOPs="", TFLOPs="",
                       GPUTimens=row["GPU Time (ns)"], Kernels="1")

    def test_a_normalization(self):
        row = self.row("norm_sum.csv", f"{BEGIN} start norm:backward stop sync")
        self.check_row(row, API="cudnnBatchNormalizationBackwardEx", Direction="backward", Mode="batch", Size="32x64x56x56",
                       Layout="NHWC", Type="fp32", Fused="add + activation gradient", Calls="1", Kernels="1")

    def test_normalization_counts_nothing(self):
        self.assertEqual(self.window("norm:training norm:backward norm:inference"), 0)

    def test_getters_are_no_rows(self):
        done = self.script(f"{BEGIN} start conv:forward rnn:forward norm:training stop sync")
        self.assertEqual(sorted(done.out.libraries()),
                         ["cudnnBatchNormalizationForwardTraining", "cudnnConvolutionForward", "cudnnRNNForward"])


if __name__ == "__main__":
    simulated.main()
