// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/kernel_class.h"

namespace inject {

namespace {

// Words lie in the rules themselves: pointers would have to be relocated in every process.
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

    // Frameworks have some of their own: PyTorch (symmetric memory), XLA, vLLM, SGLang, TensorRT-LLM,
    // FlashInfer, Transformer Engine (userbuffers), NVSHMEM (…_on_stream_kernel). One that normalizes what it
    // has summed up is an all-reduce, and so is rmsNormLamport, which waits for the other ranks' sums; one
    // that sums up its product is a GEMM. Threads of a block or a warp that all get its sum are none.
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
    // All-to-all, in which experts get their tokens (DeepEP's dispatch and combine, TensorRT-LLM's moeA2A…).
    // The layout of a dispatch is counted by each rank for itself.
    {"get_dispatch_layout", Family::kOther},
    {"deep_ep", Family::kCollectiveOther},
    {"internode dispatch", Family::kCollectiveOther},
    {"internode combine", Family::kCollectiveOther},
    {"moeA2A", Family::kCollectiveOther},
    {"^all_to_all", Family::kCollectiveOther},
    {"^alltoall", Family::kCollectiveOther},
    {"llToAll", Family::kCollectiveOther},
    {"mscclpp", Family::kCollectiveOther},

    // TorchInductor: triton_<kind>_fused_<the operators that went into it>. poi is pointwise, red and per are
    // reductions, spl is a scan, for is a loop over a list of tensors, tem is a template (a matrix product by
    // Triton, mostly).
    // The operators of the first kinds say little about the kernel: a pointwise one may name the addmm whose
    // bias it adds. Normalization, softmax, loss, embedding and pooling are done by such kernels from end to
    // end.
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

    // XLA: <emitter>_<operations>_fusion, wrapped_<operation> for one alone. A fusion without operations in
    // its name (fusion_23) can be anything.
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

    // What is done around attention by kernels of its own. Rotary position embedding turns pairs of elements;
    // vLLM's and FlashInfer's caches of keys and values are written by copies.
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
    // Attention 2 and 3, FlashInfer's (…KVCacheKernel). With the kernels that merge the parts of a split one.
    // Above convolution: the backward pass is called bprop or dgrad.
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

    // Losses: above softmax, which is part of them. The two without the word are cuDNN's CTC.
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

    // Normalization: cuDNN's (bn_fw, bn_bw, batchnorm), the frameworks' (ln_fwd is Transformer Engine's and
    // Flash Attention's, the gradients' kernels of PyTorch's group norm have its inner names).
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

    // Pooling: backward first, as its names contain the forward ones.
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

    // Embedding: its forward is a gather of rows (index_select in PyTorch, whatever it is used for), its
    // backward a sort of the indices and a sum over the segments; FBGEMM's backward updates the table as
    // well.
    {"mbedding", Family::kEmbedding},
    {"indexSelect", Family::kEmbedding},
    {"vectorized_gather_kernel", Family::kEmbedding},
    {"k_get_rows", Family::kEmbedding},
    {"compute_grad_weight", Family::kEmbedding},
    {"sum_and_scatter", Family::kEmbedding},
    {"krn_partial", Family::kEmbedding},
    {"num_of_partial_segments", Family::kEmbedding},

    // Work over lists of tensors (PyTorch's foreach and fused functions, apex, DeepSpeed), by its functor. In
    // training it is the optimizer's but for this: copies (Copy, of FSDP's shards and of master weights),
    // setting gradients to zero, their norms, and the scaling of gradients or losses.
    {"multi_tensor_apply Copy", Family::kCopy},
    {"multi_tensor_apply ZeroFunctor", Family::kElementwise},
    {"multi_tensor_apply NormFunctor", Family::kReduction},
    {"lpnorm_cleanup", Family::kReduction},
    {"non_finite_check", Family::kElementwise},
    {"multi_tensor_apply ^ScaleFunctor", Family::kElementwise},
    {"multi_tensor_apply ^AxpbyFunctor", Family::kElementwise},
    {"amp_update_scale", Family::kElementwise},
    {"multi_tensor_apply", Family::kOptimizer},

    // Optimizers by their names: bitsandbytes (kOptimizer32bit2State), apex, DeepSpeed, TensorFlow, Triton
    // kernels of one's own.
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
    // algorithm's matrix products are GEMMs of cuBLAS's.
    {"lstm_cell", Family::kRnnCell},
    {"gru_cell", Family::kRnnCell},
    {"LSTM_", Family::kRnnCell},
    {"GRU_", Family::kRnnCell},
    {"RNN", Family::kRnnCell},
    {"_lstm_", Family::kRnnCell},

    // Vector products and norms of BLAS: above matrix products, as their parameters are those of gemv.
    {"dot_kernel", Family::kReduction},
    {"reduce_1Block", Family::kReduction},
    {"nrm2_", Family::kReduction},
    {"asum_kernel", Family::kReduction},

    // Matrix products: cuBLAS's and cuBLASLt's with the kernels that end a split one, CUTLASS's, Triton's,
    // Marlin's (of quantized weights), llama.cpp's (mul_mat), TensorRT-LLM's (bmm). What xmma and CUTLASS
    // have left by now is one (syrk, trmm, …).
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

    // Changes of layout: between channels first and channels last (cuDNN's around its own kernels), padding
    // of channels, transpositions. scal_kernel scales, its parameters are called cublasTransposeParams.
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

    // Copies, among them casts (PyTorch's copy_, which may change the layout as well) and concatenations.
    {"copy_kernel", Family::kCopy},
    {"BatchedCopy", Family::kCopy},
    {"split_with_sizes_copy", Family::kCopy},
    {"chunk_cat", Family::kCopy},
    {"onvertTensor", Family::kCopy},
    {"memcpy", Family::kCopy},

    // Elementwise: above reductions, as PyTorch's bear their functor's name. Dropout and random numbers are,
    // and quantization, even by blocks.
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

struct DirectionRule {
  char words[28];
  ConvolutionDirection direction;
};

// wgrad first: its names may also say what the gradient is taken of.
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

constexpr std::uint64_t bit(Family family) {
  return std::uint64_t{1} << static_cast<unsigned>(family);
}
static_assert(kFamilies <= 64);

constexpr std::uint64_t bits(Family first, Family last) {
  return (bit(last) | (bit(last) - 1)) & ~(bit(first) - 1);
}

/// What a library call tells: the family of its kernels but for those whose name says one of `by_name`.
struct CallRule {
  Category call;
  Family family;
  std::uint64_t by_name;
};

constexpr std::uint64_t kConvolutions = bits(Family::kConvImplicitGemm, Family::kConvOtherFilterGradient);
constexpr std::uint64_t kPoolings = bits(Family::kPoolingForward, Family::kPoolingBackward);
constexpr std::uint64_t kCollectives = bits(Family::kAllReduce, Family::kCollectiveOther);

// The call comes first: a kernel that sums up the parts of a split GEMM is the GEMM's, a plain matrix product
// in a convolution is the convolution's. Where a call can be many things the name decides among them; and
// what cuDNN spends on other layouts than the program's is told apart, as channels-last tensors would save
// it. Calls that are not listed (cudart's, plain BLAS) say nothing.
constexpr CallRule kCallRules[] = {
    {Category::kGemm, Family::kGemm, 0},
    // cuDNN's graphs are run by one call, convolutions or not.
    {Category::kConv, Family::kConvOther,
     kConvolutions | kPoolings | bit(Family::kNormalization) | bit(Family::kSoftmax) |
         bit(Family::kAttention) | bit(Family::kLayoutChange)},
    {Category::kRnn, Family::kRnnCell, bit(Family::kGemm)},
    {Category::kNorm, Family::kNormalization, bit(Family::kLayoutChange)},
    {Category::kAttention, Family::kAttention, 0},
    {Category::kPool, Family::kPoolingForward, kPoolings | bit(Family::kLayoutChange)},
    {Category::kSoftmax, Family::kSoftmax, 0},
    {Category::kActivation, Family::kElementwise, 0},
    {Category::kCollective, Family::kCollectiveOther, kCollectives},
    {Category::kPointToPoint, Family::kSendReceive, kCollectives},
};

constexpr CoresRule kCoresRules[] = {
    // Kernels around a product: sums of a split one's parts, epilogues, work spaces, transforms, the cells of
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

    // The name says the unit: fused multiply-add on the CUDA cores, …
    {"_ffma", TensorCores::kNotUsed},
    {"simt", TensorCores::kNotUsed},
    // … or matrix instructions: HMMA, wgmma (gmma), wmma, CUTLASS's tensorop, xmma's tensor16x8x16 and
    // sptensor (structured sparsity), and warp groups, which wgmma alone has. nvjet kernels are all of that
    // kind.
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

    // Attention. PyTorch's memory-efficient kernels take the tensor cores where the architecture they were
    // compiled for has them for the type: fp16 from sm70, fp32 from sm80, as three products of tf32. Flash
    // Attention 2 and 3 have matrix instructions alone, and so have cuDNN's flash kernels.
    {"fmha_cutlass _sm50", TensorCores::kNotUsed},
    {"fmha_cutlass _f32_ _sm70", TensorCores::kNotUsed},
    {"fmha_cutlass _f32_ _sm75", TensorCores::kNotUsed},
    {"fmha_cutlass", TensorCores::kUsed},
    {"FlashAttnFwdSm90", TensorCores::kUsed},
    {"Flash_fwd_kernel_traits", TensorCores::kUsed},
    {"Flash_bwd_kernel_traits", TensorCores::kUsed},
    {"sdpa _flash_", TensorCores::kUsed},

    // Products on the CUDA cores: the assembly kernels of each generation (volta_sgemm; those with an
    // instruction's shape are gone by now), cuBLAS's kernels for vectors and odd sizes, cuDNN's older ones.
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

    // The persistent kernels of recurrent networks contain products, by either unit: unknown, unless HMMA or
    // the generation is in the name.
    {"ampere_lstm", TensorCores::kUsed},

    // Inductor can write a small product as a reduction.
    {"triton_red_ mm", TensorCores::kUnknown},
};

// Of kernels that a rule above knows. Names that say the type of the matrices but not that of the product
// (cuDNN's sdpa calls bf16 f16 as well) have no rule here.
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

    // CUTLASS: the type after gemm_ or before the shape; s1688gemm without one is tf32 on sm80, d884 and z884
    // are fp64, 9xbf16 is fp32 by nine products of bf16.
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

    // Assembly kernels. The letter before gemm or cudnn is the sum's type, and the operand's without a matrix
    // instruction: volta_sgemm_fp16 converts.
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

/// Families that compute nothing which a tensor core could.
constexpr std::uint64_t kWithoutProducts =
    kPoolings | kCollectives | bit(Family::kNormalization) | bit(Family::kSoftmax) | bit(Family::kLoss) |
    bit(Family::kElementwise) | bit(Family::kReduction) | bit(Family::kEmbedding) | bit(Family::kOptimizer) |
    bit(Family::kLayoutChange) | bit(Family::kCopy);

constexpr bool is_small(char c) {
  return c >= 'a' && c <= 'z';
}
constexpr bool is_letter(char c) {
  return is_small(c) || (c >= 'A' && c <= 'Z');
}

/// `word` may begin with ^ and end with $.
bool has_word(std::string_view name, std::string_view word) {
  const bool begins = word.starts_with('^');
  const bool ends = word.ends_with('$');
  if (begins) word.remove_prefix(1);
  if (ends) word.remove_suffix(1);
  for (std::size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const std::size_t after = at + word.size();
    if (begins && at != 0 && is_letter(name[at - 1])) continue;
    if (ends && after < name.size() && is_small(name[after])) continue;
    return true;
  }
  return false;
}

template <class Rule, std::size_t kCount>
const Rule* first_match(const Rule (&rules)[kCount], std::string_view name) {
  for (const Rule& rule : rules) {
    if (name_has_words(name, rule.words)) return &rule;
  }
  return nullptr;
}

Family family_by_name(std::string_view name) {
  const FamilyRule* rule = first_match(kFamilyRules, name);
  if (rule == nullptr) return Family::kOther;
  if (!is_convolution(rule->family)) return rule->family;
  const DirectionRule* direction = first_match(kDirectionRules, name);
  return convolution_family(algorithm_of(rule->family),
                            direction != nullptr ? direction->direction : ConvolutionDirection::kUnknown);
}

}  // namespace

bool name_has_words(std::string_view name, std::string_view words) noexcept {
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    if (!has_word(name, words.substr(0, end))) return false;
    if (end == std::string_view::npos) break;
    words.remove_prefix(end + 1);
  }
  return true;
}

Family family_of(std::string_view name, Category innermost_call) noexcept {
  const Family by_name = family_by_name(name.substr(0, kMaxClassifiedLength));
  for (const CallRule& rule : kCallRules) {
    if (rule.call != innermost_call) continue;
    if ((rule.by_name & bit(by_name)) != 0) return by_name;
    if (!is_convolution(rule.family)) return rule.family;
    if (by_name != Family::kGemm) return rule.family;
    // Complex products inside a convolution are those of its FFTs.
    const bool complex =
        name.find("cgemm") != std::string_view::npos || name.find("gemm_cf32") != std::string_view::npos;
    return complex ? Family::kConvFft : Family::kConvGemm;
  }
  return by_name;
}

ConvolutionAlgorithm algorithm_of(Family family) noexcept {
  if (!is_convolution(family)) return ConvolutionAlgorithm::kOther;
  return static_cast<ConvolutionAlgorithm>(
      (static_cast<std::size_t>(family) - static_cast<std::size_t>(Family::kConvImplicitGemm)) /
      kConvolutionDirections);
}

ConvolutionDirection direction_of(Family family) noexcept {
  if (!is_convolution(family)) return ConvolutionDirection::kUnknown;
  return static_cast<ConvolutionDirection>(
      (static_cast<std::size_t>(family) - static_cast<std::size_t>(Family::kConvImplicitGemm)) %
      kConvolutionDirections);
}

ConvolutionAlgorithm convolution_algorithm_of(std::string_view name) noexcept {
  return algorithm_of(family_of(name, Category::kConv));
}

TensorCoreUse tensor_cores_of(std::string_view name) noexcept {
  name = name.substr(0, kMaxClassifiedLength);
  if (const CoresRule* rule = first_match(kCoresRules, name); rule != nullptr) {
    if (rule->cores == TensorCores::kUnknown) return {};
    const OperandRule* operand = rule->multiplies ? first_match(kOperandRules, name) : nullptr;
    return {rule->cores, operand != nullptr ? operand->operand : Operand::kUnknown};
  }
  if ((kWithoutProducts & bit(family_by_name(name))) != 0) return {TensorCores::kNotUsed, Operand::kUnknown};
  return {};
}

ProductRole product_role_of(std::string_view name) noexcept {
  name = name.substr(0, kMaxClassifiedLength);
  if (const CoresRule* rule = first_match(kCoresRules, name); rule != nullptr) {
    if (rule->cores == TensorCores::kUnknown) return ProductRole::kUnknown;
    return rule->multiplies ? ProductRole::kMultiplies : ProductRole::kHelps;
  }
  const Family family = family_by_name(name);
  if ((kWithoutProducts & bit(family)) != 0) return ProductRole::kHelps;
  constexpr std::uint64_t kProducts =
      kConvolutions | bit(Family::kGemm) | bit(Family::kAttention) | bit(Family::kRnnCell);
  return (kProducts & bit(family)) != 0 ? ProductRole::kMultiplies : ProductRole::kUnknown;
}

std::string_view family_name(Family family) noexcept {
  switch (family) {
    case Family::kGemm:
      return "GEMM";
    case Family::kConvImplicitGemm:
      return "convolution implicit GEMM";
    case Family::kConvImplicitGemmForward:
      return "convolution implicit GEMM forward";
    case Family::kConvImplicitGemmDataGradient:
      return "convolution implicit GEMM data gradient";
    case Family::kConvImplicitGemmFilterGradient:
      return "convolution implicit GEMM filter gradient";
    case Family::kConvGemm:
      return "convolution GEMM";
    case Family::kConvGemmForward:
      return "convolution GEMM forward";
    case Family::kConvGemmDataGradient:
      return "convolution GEMM data gradient";
    case Family::kConvGemmFilterGradient:
      return "convolution GEMM filter gradient";
    case Family::kConvWinograd:
      return "convolution Winograd";
    case Family::kConvWinogradForward:
      return "convolution Winograd forward";
    case Family::kConvWinogradDataGradient:
      return "convolution Winograd data gradient";
    case Family::kConvWinogradFilterGradient:
      return "convolution Winograd filter gradient";
    case Family::kConvFft:
      return "convolution FFT";
    case Family::kConvFftForward:
      return "convolution FFT forward";
    case Family::kConvFftDataGradient:
      return "convolution FFT data gradient";
    case Family::kConvFftFilterGradient:
      return "convolution FFT filter gradient";
    case Family::kConvDirect:
      return "convolution direct";
    case Family::kConvDirectForward:
      return "convolution direct forward";
    case Family::kConvDirectDataGradient:
      return "convolution direct data gradient";
    case Family::kConvDirectFilterGradient:
      return "convolution direct filter gradient";
    case Family::kConvOther:
      return "convolution other";
    case Family::kConvOtherForward:
      return "convolution other forward";
    case Family::kConvOtherDataGradient:
      return "convolution other data gradient";
    case Family::kConvOtherFilterGradient:
      return "convolution other filter gradient";
    case Family::kPoolingForward:
      return "pooling forward";
    case Family::kPoolingBackward:
      return "pooling backward";
    case Family::kNormalization:
      return "normalization";
    case Family::kSoftmax:
      return "softmax";
    case Family::kAttention:
      return "attention";
    case Family::kLoss:
      return "loss";
    case Family::kElementwise:
      return "elementwise";
    case Family::kReduction:
      return "reduction";
    case Family::kEmbedding:
      return "embedding";
    case Family::kOptimizer:
      return "optimizer";
    case Family::kRnnCell:
      return "RNN cell";
    case Family::kAllReduce:
      return "all-reduce";
    case Family::kAllGather:
      return "all-gather";
    case Family::kReduceScatter:
      return "reduce-scatter";
    case Family::kBroadcast:
      return "broadcast";
    case Family::kReduce:
      return "reduce";
    case Family::kSendReceive:
      return "send/receive";
    case Family::kCollectiveOther:
      return "collective other";
    case Family::kLayoutChange:
      return "layout change";
    case Family::kCopy:
      return "copy";
    case Family::kOther:
      break;
  }
  return "other";
}

std::string_view algorithm_name(ConvolutionAlgorithm algorithm) noexcept {
  switch (algorithm) {
    case ConvolutionAlgorithm::kImplicitGemm:
      return "implicit GEMM";
    case ConvolutionAlgorithm::kGemm:
      return "GEMM";
    case ConvolutionAlgorithm::kWinograd:
      return "Winograd";
    case ConvolutionAlgorithm::kFft:
      return "FFT";
    case ConvolutionAlgorithm::kDirect:
      return "direct";
    case ConvolutionAlgorithm::kOther:
      break;
  }
  return "other";
}

std::string_view direction_name(ConvolutionDirection direction) noexcept {
  switch (direction) {
    case ConvolutionDirection::kForward:
      return "forward";
    case ConvolutionDirection::kDataGradient:
      return "data gradient";
    case ConvolutionDirection::kFilterGradient:
      return "filter gradient";
    case ConvolutionDirection::kUnknown:
      break;
  }
  return "unknown";
}

std::string_view tensor_cores_name(TensorCores cores) noexcept {
  switch (cores) {
    case TensorCores::kUsed:
      return "yes";
    case TensorCores::kNotUsed:
      return "no";
    case TensorCores::kUnknown:
      break;
  }
  return "unknown";
}

std::string_view operand_name(Operand operand) noexcept {
  switch (operand) {
    case Operand::kFp64:
      return "fp64";
    case Operand::kFp32:
      return "fp32";
    case Operand::kTf32:
      return "tf32";
    case Operand::kFp16:
      return "fp16";
    case Operand::kBf16:
      return "bf16";
    case Operand::kFp8:
      return "fp8";
    case Operand::kFp4:
      return "fp4";
    case Operand::kInt8:
      return "int8";
    case Operand::kUnknown:
      break;
  }
  return {};
}

std::span<const FamilyRule> family_rules() noexcept {
  return kFamilyRules;
}
std::span<const CoresRule> cores_rules() noexcept {
  return kCoresRules;
}
std::span<const OperandRule> operand_rules() noexcept {
  return kOperandRules;
}

}  // namespace inject
