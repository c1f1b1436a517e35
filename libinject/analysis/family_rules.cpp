// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/kernel_rules.h"

namespace inject {

namespace {

constexpr FamilyRule kFamilyRules[] = {
    // Collectives: NCCL names its kernels after the operation (ncclDevKernel_AllReduce_Sum_f32_RING_LL,
    // ncclSymkDevKernel_… with symmetric memory, ncclKernel_… before 2.18, ncclAllReduceRingLLKernel_… before
    // 2.8).
    {"nccl Kernel AllReduce", Family::kAllReduce},
    {"nccl Kernel AllGather", Family::kAllGather},
    {"nccl Kernel ReduceScatter", Family::kReduceScatter},
    {"nccl Kernel Broadcast", Family::kBroadcast},
    {"nccl Kernel Reduce", Family::kReduce},
    {"nccl Kernel SendRecv", Family::kSendReceive},
    {"nccl Kernel", Family::kCollectiveOther},

    // Collectives of frameworks: PyTorch (symmetric memory), XLA, vLLM, SGLang, TensorRT-LLM, FlashInfer,
    // Transformer Engine (userbuffers), NVSHMEM (…_on_stream_kernel). One that normalizes the sum is an
    // all-reduce, and so is rmsNormLamport, which waits for the other ranks' sums; one that sums up its
    // product is a GEMM. An all-reduce among the threads of a block or a warp is not a collective.
    {"block_all_reduce", Family::kReduction},
    {"warp_all_reduce", Family::kReduction},
    {"BlockAllReduce", Family::kReduction},
    {"WarpAllReduce", Family::kReduction},
    {"gemm_allreduce", Family::kGemm},
    {"cross_device_reduce", Family::kAllReduce},
    {"^all_reduce", Family::kAllReduce},
    {"^allreduce", Family::kAllReduce},
    {"^allReduce", Family::kAllReduce},
    {"AllReduce", Family::kAllReduce},
    {"Allreduce", Family::kAllReduce},
    {"Lamport", Family::kAllReduce},
    {"rdxn_on_stream", Family::kAllReduce},
    {"userbuffers_ _rs", Family::kReduceScatter},
    {"userbuffers_ _ag", Family::kAllGather},
    {"userbuffers_ push", Family::kSendReceive},
    {"userbuffers_ pull", Family::kSendReceive},
    {"userbuffers_ sum", Family::kAllReduce},
    {"reduce_scatter", Family::kReduceScatter},
    {"reducescatter", Family::kReduceScatter},
    {"ReduceScatter", Family::kReduceScatter},
    {"^all_gather", Family::kAllGather},
    {"^allgather", Family::kAllGather},
    {"AllGather", Family::kAllGather},
    {"fcollect_on_stream", Family::kAllGather},
    {"broadcast_on_stream", Family::kBroadcast},
    {"barrier_on_stream", Family::kCollectiveOther},
    // All-to-all, which sends tokens to their experts (DeepEP's dispatch and combine, TensorRT-LLM's
    // moeA2A…). Each rank computes the layout of a dispatch by itself.
    {"get_dispatch_layout", Family::kOther},
    {"deep_ep", Family::kCollectiveOther},
    {"internode dispatch", Family::kCollectiveOther},
    {"internode combine", Family::kCollectiveOther},
    {"moeA2A", Family::kCollectiveOther},
    {"^all_to_all", Family::kCollectiveOther},
    {"^alltoall", Family::kCollectiveOther},
    {"llToAll", Family::kCollectiveOther},
    {"mscclpp", Family::kCollectiveOther},

    // TorchInductor: triton_<kind>_fused_<fused operators>. poi is pointwise, red and per are reductions, spl
    // is a scan, for is a loop over a list of tensors, tem is a template (mostly a matrix product by Triton).
    // With the first kinds, operators say little about the kernel: a pointwise one may name the addmm whose
    // bias it adds. But normalization, softmax, loss, embedding and pooling are done entirely by such
    // kernels.
    {"triton_tem_ flex_attention", Family::kAttention},
    {"triton_tem_ convolution", Family::kConvImplicitGemm},
    {"triton_tem_", Family::kGemm},
    {"triton_mm", Family::kGemm},
    {"triton_for_ copy", Family::kCopy},
    {"triton_for_", Family::kOptimizer},
    {"triton_ fused vector_norm", Family::kReduction},
    {"triton_ fused _norm$", Family::kNormalization},
    {"triton_ fused _loss", Family::kLoss},
    {"triton_ fused cross_entropy", Family::kLoss},
    {"triton_ fused softmax", Family::kSoftmax},
    {"triton_ fused embedding", Family::kEmbedding},
    {"triton_ fused pool backward", Family::kPoolingBackward},
    {"triton_ fused pool", Family::kPoolingForward},
    {"triton_poi_", Family::kElementwise},
    {"triton_per_", Family::kReduction},
    {"triton_red_", Family::kReduction},

    // XLA: <emitter>_<operations>_fusion, or wrapped_<operation> for a single one. A fusion without
    // operations in its name (fusion_23) can be anything.
    {"gemm_fusion", Family::kGemm},
    {"reduce _fusion", Family::kReduction},
    {"transpose _fusion", Family::kLayoutChange},
    {"copy_fusion", Family::kCopy},
    {"concatenate_fusion", Family::kCopy},
    {"loop_ _fusion", Family::kElementwise},
    {"wrapped_reduce", Family::kReduction},
    {"wrapped_transpose", Family::kLayoutChange},
    {"wrapped_convert", Family::kCopy},
    {"wrapped_copy", Family::kCopy},
    {"wrapped_concatenate", Family::kCopy},
    {"wrapped_", Family::kElementwise},

    // CuPy: cupy_<ufunc>__<types>; reductions have no types in their names.
    {"cupy_copy__", Family::kCopy},
    {"cupy_ __", Family::kElementwise},
    {"cupy_sum", Family::kReduction},
    {"cupy_prod", Family::kReduction},
    {"cupy_max", Family::kReduction},
    {"cupy_min", Family::kReduction},
    {"cupy_mean", Family::kReduction},
    {"cupy_arg", Family::kReduction},

    // Separate kernels around attention. Rotary position embedding rotates pairs of elements; vLLM's and
    // FlashInfer's key-value caches are written by copies.
    {"QKNorm", Family::kNormalization},
    {"norm_rope", Family::kNormalization},
    {"_grouped_kernel_stage", Family::kAttention},
    {"otary", Family::kElementwise},
    {"^rope", Family::kElementwise},
    {"Rope", Family::kElementwise},
    {"RoPE", Family::kElementwise},
    {"_and_cache_", Family::kCopy},
    {"AppendPagedKVCache", Family::kCopy},

    // Attention: cuDNN's and cuBLAS's sdpa and fmha, PyTorch's memory-efficient one (fmha_cutlass), Flash
    // Attention 2 and 3, FlashInfer's (…KVCacheKernel), and the kernels that merge the parts of a split one.
    // Above convolution, since the backward pass is called bprop or dgrad.
    {"sdpa", Family::kAttention},
    {"fmha", Family::kAttention},
    {"flash_fwd_", Family::kAttention},
    {"flash_bwd_", Family::kAttention},
    {"flash_attn", Family::kAttention},
    {"FlashAttn", Family::kAttention},
    {"Flash_fwd_kernel_traits", Family::kAttention},
    {"prepare_varlen_num_blocks", Family::kAttention},
    {"attention", Family::kAttention},
    {"Attention", Family::kAttention},
    {"_attn_", Family::kAttention},
    {"KVCacheKernel", Family::kAttention},
    {"MergeState", Family::kAttention},
    {"compute_dot_do_o", Family::kAttention},
    {"convert_dq_to_16bits", Family::kAttention},

    // Losses: above softmax, which is part of them. The two without the word "loss" are cuDNN's CTC.
    {"cross_entropy", Family::kLoss},
    {"CrossEntropy", Family::kLoss},
    {"XEntropy", Family::kLoss},
    {"nll_loss", Family::kLoss},
    {"ctc_loss", Family::kLoss},
    {"compute_alphas_and_betas", Family::kLoss},
    {"compute_grads_ deterministic", Family::kLoss},

    // Convolution. wgrad_alg0/1 and dgrad (alg 0) and dgrad_alg1 are CUDNN_CONVOLUTION_BWD_*_ALGO_0 and _1,
    // which the vendor describes as matrix products without forming the matrix; so is precomputed_convolve
    // (IMPLICIT_PRECOMP_GEMM), of which scudnn and s884cudnn are the assembly versions. explicit_convolve
    // forms it, as im2col does. cuDNN's xmma kernels for batch normalization have a convolution's traits in
    // their names; those that fuse the two are called kernel_matmul.
    {"bn_stats_kernel", Family::kNormalization},
    {"bn_apply_kernel", Family::kNormalization},
    {"batchnorm kernel_matmul", Family::kConvOther},
    {"batchnorm split_k_kernel", Family::kConvOther},
    {"depthwise", Family::kConvDirect},
    {"first_layer", Family::kConvOther},
    {"winograd", Family::kConvWinograd},
    {"Winograd", Family::kConvWinograd},
    {"implicit_gemm", Family::kConvImplicitGemm},
    {"ImplicitGemmConvolution", Family::kConvImplicitGemm},
    {"cutlass fprop", Family::kConvImplicitGemm},
    {"cutlass dgrad", Family::kConvImplicitGemm},
    {"cutlass wgrad", Family::kConvImplicitGemm},
    {"implicit_convolve", Family::kConvImplicitGemm},
    {"precomputed_convolve", Family::kConvImplicitGemm},
    {"conv2d_precomputed", Family::kConvImplicitGemm},
    {"wgrad_alg", Family::kConvImplicitGemm},
    {"dgrad_alg", Family::kConvImplicitGemm},
    {"dgrad2d_alg", Family::kConvImplicitGemm},
    {"dgrad_engine", Family::kConvImplicitGemm},
    {"scudnn", Family::kConvImplicitGemm},
    {"hcudnn", Family::kConvImplicitGemm},
    {"84cudnn", Family::kConvImplicitGemm},
    {"88cudnn", Family::kConvImplicitGemm},
    {"computeOffsetsKernel", Family::kConvImplicitGemm},
    {"fft1d_", Family::kConvFft},
    {"fft2d_", Family::kConvFft},
    {"fft3d_", Family::kConvFft},
    {"DSE _fft", Family::kConvFft},
    {"pointwise_mult_and_sum_complex", Family::kConvFft},
    {"grouped_direct", Family::kConvDirect},
    {"conv1d", Family::kConvDirect},
    {"explicit_convolve", Family::kConvGemm},
    {"im2col", Family::kConvGemm},
    {"col2im", Family::kConvGemm},
    {"convolve", Family::kConvOther},
    {"conv_transpose", Family::kConvOther},
    {"flip_filter", Family::kConvOther},
    {"reduce_wgrad", Family::kConvOther},
    {"sparse_conv", Family::kConvOther},
    {"cudnn ReduceSplitK", Family::kConvOther},

    // Normalization: cuDNN's (bn_fw, bn_bw, batchnorm) and the frameworks' (ln_fwd is Transformer Engine's
    // and Flash Attention's; the gradient kernels of PyTorch's group norm go by its internal names).
    {"batch_norm", Family::kNormalization},
    {"batchnorm", Family::kNormalization},
    {"BatchNorm", Family::kNormalization},
    {"batchNorm", Family::kNormalization},
    {"bn_pointwise", Family::kNormalization},
    {"bn_fw_", Family::kNormalization},
    {"bn_bw_", Family::kNormalization},
    {"layer_norm", Family::kNormalization},
    {"layernorm", Family::kNormalization},
    {"LayerNorm", Family::kNormalization},
    {"^ln_fwd_", Family::kNormalization},
    {"^ln_bwd_", Family::kNormalization},
    {"GammaBeta", Family::kNormalization},
    {"RowwiseMoments", Family::kNormalization},
    {"group_norm", Family::kNormalization},
    {"GroupNorm", Family::kNormalization},
    {"groupNorm", Family::kNormalization},
    {"ComputeInternalGradients", Family::kNormalization},
    {"instance_norm", Family::kNormalization},
    {"rms_norm", Family::kNormalization},
    {"rmsnorm", Family::kNormalization},
    {"RMSNorm", Family::kNormalization},
    {"rmsNorm", Family::kNormalization},
    {"weight_norm", Family::kNormalization},
    {"lrn", Family::kNormalization},
    {"divNorm", Family::kNormalization},
    {"BNStats", Family::kNormalization},

    {"softmax", Family::kSoftmax},
    {"soft_max", Family::kSoftmax},
    {"SoftMax", Family::kSoftmax},
    {"Softmax", Family::kSoftmax},

    // Pooling: backward first, since its names contain the forward ones.
    {"pool backward", Family::kPoolingBackward},
    {"Pool ackward", Family::kPoolingBackward},
    {"Pool Grad", Family::kPoolingBackward},
    {"pooling_bw", Family::kPoolingBackward},
    {"adaptive_average grad", Family::kPoolingBackward},
    {"adaptivegradinput", Family::kPoolingBackward},
    {"pooling_fw", Family::kPoolingForward},
    {"max_pool", Family::kPoolingForward},
    {"avg_pool", Family::kPoolingForward},
    {"adaptive_average", Family::kPoolingForward},
    {"adaptivemaxpool", Family::kPoolingForward},
    {"MaxPool", Family::kPoolingForward},
    {"AvePool", Family::kPoolingForward},
    {"KernelPool", Family::kPoolingForward},

    // Embedding: forward is a gather of rows (index_select in PyTorch, whatever it is used for), backward a
    // sort of the indices and a sum over the segments; FBGEMM's backward also updates the table.
    {"mbedding", Family::kEmbedding},
    {"indexSelect", Family::kEmbedding},
    {"vectorized_gather_kernel", Family::kEmbedding},
    {"k_get_rows", Family::kEmbedding},
    {"compute_grad_weight", Family::kEmbedding},
    {"sum_and_scatter", Family::kEmbedding},
    {"krn_partial", Family::kEmbedding},
    {"num_of_partial_segments", Family::kEmbedding},

    // Work over lists of tensors (PyTorch's foreach and fused functions, apex, DeepSpeed), by its functor. In
    // training it belongs to the optimizer, except for copies (Copy, of FSDP's shards and of master weights),
    // zeroing of gradients, their norms, and the scaling of gradients or losses.
    {"multi_tensor_apply Copy", Family::kCopy},
    {"multi_tensor_apply ZeroFunctor", Family::kElementwise},
    {"multi_tensor_apply NormFunctor", Family::kReduction},
    {"lpnorm_cleanup", Family::kReduction},
    {"non_finite_check", Family::kElementwise},
    {"multi_tensor_apply ^ScaleFunctor", Family::kElementwise},
    {"multi_tensor_apply ^AxpbyFunctor", Family::kElementwise},
    {"amp_update_scale", Family::kElementwise},
    {"multi_tensor_apply", Family::kOptimizer},

    // Optimizers by name: bitsandbytes (kOptimizer32bit2State), apex, DeepSpeed, TensorFlow, users' own
    // Triton kernels.
    {"Optimizer", Family::kOptimizer},
    {"^optimizer", Family::kOptimizer},
    {"Adam", Family::kOptimizer},
    {"^adam", Family::kOptimizer},
    {"Adagrad", Family::kOptimizer},
    {"^adagrad", Family::kOptimizer},
    {"^adadelta", Family::kOptimizer},
    {"Adafactor", Family::kOptimizer},
    {"^adafactor", Family::kOptimizer},
    {"RMSProp", Family::kOptimizer},
    {"^rmsprop", Family::kOptimizer},
    {"^lamb$", Family::kOptimizer},
    {"Lamb$", Family::kOptimizer},
    {"usedLAMB", Family::kOptimizer},
    {"^lars$", Family::kOptimizer},
    {"^lion$", Family::kOptimizer},
    {"Lion$", Family::kOptimizer},
    {"^sgd", Family::kOptimizer},
    {"SGD", Family::kOptimizer},
    {"AdaGrad", Family::kOptimizer},
    {"AdaDelta", Family::kOptimizer},
    {"Adadelta", Family::kOptimizer},
    {"Rmsprop", Family::kOptimizer},
    {"NesterovUpdate", Family::kOptimizer},

    // The cells of recurrent networks, and cuDNN's persistent kernels, which are a whole layer. The standard
    // algorithm's matrix products are cuBLAS GEMMs.
    {"lstm_cell", Family::kRnnCell},
    {"gru_cell", Family::kRnnCell},
    {"LSTM_", Family::kRnnCell},
    {"GRU_", Family::kRnnCell},
    {"RNN", Family::kRnnCell},
    {"_lstm_", Family::kRnnCell},

    // BLAS vector products and norms: above matrix products, since their parameters are those of gemv.
    {"dot_kernel", Family::kReduction},
    {"reduce_1Block", Family::kReduction},
    {"nrm2_", Family::kReduction},
    {"asum_kernel", Family::kReduction},

    // Matrix products: those of cuBLAS and cuBLASLt including the kernels that finish a split one, CUTLASS,
    // Triton, Marlin (quantized weights), llama.cpp (mul_mat), TensorRT-LLM (bmm). All other xmma and CUTLASS
    // kernels at this point are products, too (syrk, trmm, …).
    {"nvjet", Family::kGemm},
    {"gemm", Family::kGemm},
    {"Gemm", Family::kGemm},
    {"gemv", Family::kGemm},
    {"cublasLt", Family::kGemm},
    {"xmma_", Family::kGemm},
    {"cutlass", Family::kGemm},
    {"matmul", Family::kGemm},
    {"matMul", Family::kGemm},
    {"scaled_mm", Family::kGemm},
    {"^mul_mat_", Family::kGemm},
    {"^bmm_", Family::kGemm},
    {"arlin", Family::kGemm},
    {"fused_moe_kernel", Family::kGemm},

    // Layout changes: between channels first and channels last (cuDNN's around its own kernels), padding of
    // channels, transpositions. scal_kernel scales, though its parameters are called cublasTransposeParams.
    {"scal_kernel", Family::kElementwise},
    {"ToNhwc", Family::kLayoutChange},
    {"ToNchw", Family::kLayoutChange},
    {"ToFolded", Family::kLayoutChange},
    {"AddPadding", Family::kLayoutChange},
    {"transpose", Family::kLayoutChange},
    {"Transpose", Family::kLayoutChange},
    {"tensorTransform", Family::kLayoutChange},
    {"SwapDimension1And2InTensor3", Family::kLayoutChange},
    {"ShuffleInTensor3", Family::kLayoutChange},

    // Copies, including casts (PyTorch's copy_, which may change the layout as well) and concatenations.
    {"copy_kernel", Family::kCopy},
    {"BatchedCopy", Family::kCopy},
    {"split_with_sizes_copy", Family::kCopy},
    {"chunk_cat", Family::kCopy},
    {"onvertTensor", Family::kCopy},
    {"memcpy", Family::kCopy},

    // Elementwise: above reductions, since PyTorch's carry their functor's name. Includes dropout, random
    // numbers, and quantization, even by blocks.
    {"elementwise", Family::kElementwise},
    {"Pointwise", Family::kElementwise},
    {"dropout", Family::kElementwise},
    {"op_tensor_kernel", Family::kElementwise},
    {"op_generic_tensor", Family::kElementwise},
    {"scalePackedTensor", Family::kElementwise},
    {"scaleTensor", Family::kElementwise},
    {"setTensor", Family::kElementwise},
    {"axpy", Family::kElementwise},
    {"relu", Family::kElementwise},
    {"silu", Family::kElementwise},
    {"swiglu", Family::kElementwise},
    {"uantize", Family::kElementwise},
    {"_quant_", Family::kElementwise},
    {"bin_bcast", Family::kElementwise},
    {"ParallelForAgent", Family::kElementwise},
    {"cub transform_kernel", Family::kElementwise},

    // Reductions. Not "reduce" alone: cudnn::reduced_divisor is an argument of many kernels.
    {"reduce_", Family::kReduction},
    {"Reduce", Family::kReduction},
    {"sum_rows", Family::kReduction},
};

// wgrad first: its names may also contain the direction whose gradient it is.
constexpr DirectionRule kDirectionRules[] = {
    {"wgrad", ConvolutionDirection::kFilterGradient},
    {"Wgrad", ConvolutionDirection::kFilterGradient},
    {"depthwise grad_weight", ConvolutionDirection::kFilterGradient},
    {"dgrad", ConvolutionDirection::kDataGradient},
    {"Dgrad", ConvolutionDirection::kDataGradient},
    {"depthwise backward", ConvolutionDirection::kDataGradient},
    {"winogradForward", ConvolutionDirection::kForward},
    {"fprop", ConvolutionDirection::kForward},
    {"Fprop", ConvolutionDirection::kForward},
    {"depthwise forward", ConvolutionDirection::kForward},
    {"conv2d_grouped_direct", ConvolutionDirection::kForward},
    {"conv1d_fwd", ConvolutionDirection::kForward},
};

// The call takes precedence: a kernel that sums up the parts of a split GEMM belongs to the GEMM, a plain
// matrix product in a convolution to the convolution. For calls that can be several things, the name decides
// among them. Layout changes by cuDNN are kept apart, since channels-last tensors would avoid them. Calls
// that are not listed (cudart's, plain BLAS) imply nothing.
constexpr CallRule kCallRules[] = {
    {Category::kGemm, Family::kGemm, {}},
    // One call runs all of cuDNN's graphs, convolutions or not.
    {Category::kConv, Family::kConvOther,
     kConvolutions | kPoolings | Family::kNormalization | Family::kSoftmax | Family::kAttention |
         Family::kLayoutChange},
    {Category::kRnn, Family::kRnnCell, Family::kGemm},
    {Category::kNorm, Family::kNormalization, Family::kLayoutChange},
    {Category::kAttention, Family::kAttention, {}},
    {Category::kPool, Family::kPoolingForward, kPoolings | Family::kLayoutChange},
    {Category::kSoftmax, Family::kSoftmax, {}},
    {Category::kActivation, Family::kElementwise, {}},
    {Category::kCollective, Family::kCollectiveOther, kCollectives},
    {Category::kPointToPoint, Family::kSendReceive, kCollectives},
};

}  // namespace

std::span<const FamilyRule> family_rules() noexcept {
  return kFamilyRules;
}
std::span<const DirectionRule> direction_rules() noexcept {
  return kDirectionRules;
}
std::span<const CallRule> call_rules() noexcept {
  return kCallRules;
}

}  // namespace inject
