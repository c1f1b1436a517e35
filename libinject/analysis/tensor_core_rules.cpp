// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/kernel_rules.h"

namespace inject {

namespace {

constexpr CoresRule kCoresRules[] = {
    // Kernels around a product: partial sums of a split one, epilogues, workspaces, transforms, the cells of
    // recurrent networks without their products.
    {"splitKreduce", TensorCores::kNotUsed, false},
    {"split_k_kernel", TensorCores::kNotUsed, false},
    {"ReduceSplitK", TensorCores::kNotUsed, false},
    {"globalKernel", TensorCores::kNotUsed, false},
    {"init_device_workspace", TensorCores::kNotUsed, false},
    {"computeOffsets", TensorCores::kNotUsed, false},
    {"cuda_reorder", TensorCores::kNotUsed, false},
    {"flash_fwd_splitkv_combine", TensorCores::kNotUsed, false},
    {"flash_bwd_dot_do_o", TensorCores::kNotUsed, false},
    {"flash_bwd_convert", TensorCores::kNotUsed, false},
    {"compute_dot_do_o", TensorCores::kNotUsed, false},
    {"convert_dq_to_16bits", TensorCores::kNotUsed, false},
    {"bn_stats_kernel", TensorCores::kNotUsed, false},
    {"bn_apply_kernel", TensorCores::kNotUsed, false},
    {"reduce_wgrad", TensorCores::kNotUsed, false},
    {"flip_filter", TensorCores::kNotUsed, false},
    {"fft1d_", TensorCores::kNotUsed, false},
    {"fft2d_", TensorCores::kNotUsed, false},
    {"im2col", TensorCores::kNotUsed, false},
    {"col2im", TensorCores::kNotUsed, false},
    {"generateWinograd", TensorCores::kNotUsed, false},
    {"winograd_nonfused", TensorCores::kNotUsed, false},
    {"persistRNN_addBias", TensorCores::kNotUsed, false},
    {"Rearrangement", TensorCores::kNotUsed, false},
    {"RNN_bidirectional", TensorCores::kNotUsed, false},
    {"elementWise", TensorCores::kNotUsed, false},
    {"elemWise", TensorCores::kNotUsed, false},
    {"lstm_cell", TensorCores::kNotUsed, false},
    {"gru_cell", TensorCores::kNotUsed, false},

    // The name shows the unit: fused multiply-add on the CUDA cores, …
    {"_ffma", TensorCores::kNotUsed},
    {"simt", TensorCores::kNotUsed},
    // … or matrix instructions: HMMA, wgmma (gmma), wmma, CUTLASS's tensorop, xmma's tensor16x8x16 and
    // sptensor (structured sparsity), and warp groups, which only wgmma has. All nvjet kernels use these.
    {"nvjet", TensorCores::kUsed},
    {"hmma", TensorCores::kUsed},
    {"HMMA", TensorCores::kUsed},
    {"gmma", TensorCores::kUsed},
    {"wmma", TensorCores::kUsed},
    {"fused_imma_", TensorCores::kUsed},
    {"tensorop", TensorCores::kUsed},
    {"MmaTensorOp", TensorCores::kUsed},
    {"xmma tensor", TensorCores::kUsed},
    {"xmma warpgroupsize", TensorCores::kUsed},
    // … or the matrix instruction's shape: 8x8x4 and so on, with the type of the sum before it.
    {"s884", TensorCores::kUsed},
    {"h884", TensorCores::kUsed},
    {"s1688", TensorCores::kUsed},
    {"h1688", TensorCores::kUsed},
    {"s16816", TensorCores::kUsed},
    {"h16816", TensorCores::kUsed},
    {"i8816", TensorCores::kUsed},
    {"i16832", TensorCores::kUsed},

    // Attention. PyTorch's memory-efficient kernels use tensor cores if the architecture they were compiled
    // for has them for the type: fp16 from sm70, fp32 from sm80, as three products of tf32. Flash Attention 2
    // and 3 have only matrix instructions, and so have cuDNN's flash kernels.
    {"fmha_cutlass _sm50", TensorCores::kNotUsed},
    {"fmha_cutlass _f32_ _sm70", TensorCores::kNotUsed},
    {"fmha_cutlass _f32_ _sm75", TensorCores::kNotUsed},
    {"fmha_cutlass", TensorCores::kUsed},
    {"FlashAttnFwdSm90", TensorCores::kUsed},
    {"Flash_fwd_kernel_traits", TensorCores::kUsed},
    {"Flash_bwd_kernel_traits", TensorCores::kUsed},
    {"sdpa _flash_", TensorCores::kUsed},

    // Products on the CUDA cores: the assembly kernels of each generation (volta_sgemm; those with the shape
    // of an instruction matched above), cuBLAS's kernels for vectors and odd sizes, cuDNN's older ones.
    {"maxwell_ gemm", TensorCores::kNotUsed},
    {"volta_ gemm", TensorCores::kNotUsed},
    {"turing_ gemm", TensorCores::kNotUsed},
    {"ampere_ gemm", TensorCores::kNotUsed},
    {"gemm_largek", TensorCores::kNotUsed},
    {"magma_", TensorCores::kNotUsed},
    {"gemv", TensorCores::kNotUsed},
    {"gemmSN_", TensorCores::kNotUsed},
    {"gemmk1_", TensorCores::kNotUsed},
    {"batch_gemm_kernel", TensorCores::kNotUsed},
    {"gemm_kernel1x1", TensorCores::kNotUsed},
    {"convolve", TensorCores::kNotUsed},
    {"xmma depthwise_convolution", TensorCores::kNotUsed},
    {"scudnn", TensorCores::kNotUsed},
    {"hcudnn", TensorCores::kNotUsed},
    {"alg0_engine", TensorCores::kNotUsed},
    {"alg1_engine", TensorCores::kNotUsed},
    {"dgrad_engine", TensorCores::kNotUsed},
    {"half_engine", TensorCores::kNotUsed},
    {"nd_float_engine", TensorCores::kNotUsed},
    {"dgrad2d_alg", TensorCores::kNotUsed},
    {"precomputed_common_engine", TensorCores::kNotUsed},
    {"grouped_direct", TensorCores::kNotUsed},

    // The persistent kernels of recurrent networks contain products on either unit: unknown, unless HMMA or
    // the generation is in the name.
    {"ampere_lstm", TensorCores::kUsed},

    // Inductor can write a small product as a reduction.
    {"triton_red_ mm", TensorCores::kUnknown},
};

// For kernels matched by a rule above. Names with the type of the matrices but not that of the product
// (cuDNN's sdpa also calls bf16 f16) have no rule here.
constexpr OperandRule kOperandRules[] = {
    // nvjet_[sm90_]<types>_: one letter each for the operands (two if there are four), the sum and the
    // result; h fp16, t bf16, s fp32, q e4m3, o e2m1. Seen on the H200 from known calls: hsh, tst,
    // tss, qqtst.
    {"nvjet _hs", Operand::kFp16},
    {"nvjet _qq", Operand::kFp8},
    {"nvjet _oo", Operand::kFp4},
    {"nvjet tf32", Operand::kTf32},
    {"nvjet _ts", Operand::kBf16},

    // xmma: <A and C>_<operand and sum>_<epilogue>, as in f16f16_f16f32_f32 and f32f32_tf32f32_f32.
    {"xmma _ffma", Operand::kFp32},
    {"xmma e4m3", Operand::kFp8},
    {"xmma _tf32f32_", Operand::kTf32},
    {"xmma _bf16f32_", Operand::kBf16},
    {"xmma _f16f32_", Operand::kFp16},
    {"xmma _f32f32_", Operand::kFp32},
    {"xmma _f16f16_", Operand::kFp16},
    {"xmma _f64f64_", Operand::kFp64},
    {"xmma _i8i32_", Operand::kInt8},

    // CUTLASS: the type is after gemm_ or before the shape; s1688gemm without one is tf32 on sm80, d884 and
    // z884 are fp64, 9xbf16 is fp32 by nine products of bf16.
    {"tensorop 9xbf16", Operand::kBf16},
    {"tensorop tf32", Operand::kTf32},
    {"tensorop s1688bf16gemm", Operand::kBf16},
    {"tensorop s1688f16gemm", Operand::kFp16},
    {"tensorop gemm_e4m3", Operand::kFp8},
    {"tensorop gemm_e5m2", Operand::kFp8},
    {"tensorop gemm_f8", Operand::kFp8},
    {"tensorop gemm_s8", Operand::kInt8},
    {"tensorop _bf16_", Operand::kBf16},
    {"tensorop _f16_", Operand::kFp16},
    {"tensorop _h1688", Operand::kFp16},
    {"tensorop _h16816", Operand::kFp16},
    {"tensorop _h161616", Operand::kFp16},
    {"tensorop _d884", Operand::kFp64},
    {"tensorop _z884", Operand::kFp64},
    {"cutlass_80_tensorop_s1688gemm", Operand::kTf32},
    {"cutlass_80_tensorop_c1688gemm", Operand::kTf32},
    {"cutlass tfloat32_t", Operand::kTf32},

    // Attention.
    {"fmha_cutlass _f16_", Operand::kFp16},
    {"fmha_cutlass _bf16_", Operand::kBf16},
    {"fmha_cutlass _f32_ _sm80", Operand::kTf32},
    {"fmha_cutlass _f32_", Operand::kFp32},
    {"flash half_t", Operand::kFp16},
    {"flash bfloat16_t", Operand::kBf16},

    // Assembly kernels. The letter before gemm or cudnn is the sum's type and, without a matrix instruction,
    // also the operand's: volta_sgemm_fp16 converts.
    {"_imma_dgemm", Operand::kInt8},
    {"sgemm", Operand::kFp32},
    {"cgemm", Operand::kFp32},
    {"scudnn", Operand::kFp32},
    {"hgemm", Operand::kFp16},
    {"hcudnn", Operand::kFp16},
    {"dgemm", Operand::kFp64},
    {"zgemm", Operand::kFp64},
    {"gemm_int8", Operand::kInt8},
    {"gemm_bf16", Operand::kBf16},
    {"gemm_fp16", Operand::kFp16},
    {"84cudnn_fp16", Operand::kFp16},
    {"88cudnn_fp16", Operand::kFp16},
    {"volta_hmma", Operand::kFp16},
    {"h884gemm", Operand::kFp16},
    {"h1688gemm", Operand::kFp16},
    {"h16816gemm", Operand::kFp16},
};

}  // namespace

std::span<const CoresRule> cores_rules() noexcept {
  return kCoresRules;
}
std::span<const OperandRule> operand_rules() noexcept {
  return kOperandRules;
}

}  // namespace inject
