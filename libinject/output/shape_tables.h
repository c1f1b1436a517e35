// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The tables of library calls by what they compute, and of kernel families.
#pragma once

#include <string>
#include <string_view>

#include "libinject/analysis/gemm_hints.h"
#include "libinject/output/table_files.h"

namespace inject {

// Columns that the tables share.
#define INJECT_CALL_COLUMNS                                                       \
  "Calls,Failed Calls,Captured Calls,Replayed Calls,Host Time (ns),GPU Time (%)," \
  "GPU Time (ns),GPU Avg (ns),GPU Min (ns),GPU Max (ns),Kernels,"
#define INJECT_WORK_COLUMNS "FLOPs,TFLOP/s,Peak,Peak (%),Bytes,FLOP/Byte,Bound,Tensor Cores,"

inline constexpr std::string_view kGemmHeader =
    "API,M,N,K,Op A,Op B,Type A,Type B,Type C,Compute "
    "Type,Batch,Groups,Epilogue,Lda,Ldb,Ldc," INJECT_CALL_COLUMNS INJECT_WORK_COLUMNS
    "Eligible,Hint,Kernel Names";
void gemm_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

inline constexpr std::string_view kCollectiveHeader =
    "Operation,Type,Reduction,Bytes,Ranks,Peer/Root,Grouped,Calls,Failed Calls,Captured Calls,Replayed "
    "Calls,Host Time (ns),"
    "GPU Time (%),GPU Time (ns),GPU Avg (ns),GPU Min (ns),GPU Max (ns),Algorithm BW (GB/s),Bus BW (GB/s),"
    "Overlap with Compute (%),Kernels,Kernel Names,Communicator";
void nccl_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

inline constexpr std::string_view kConvHeader =
    "API,Direction,N,C,D,H,W,K,T,R,S,Stride,Padding,Dilation,Groups,Layout,Type X,Type W,Type Y,"
    "Compute Type,Fused,Engine,Algorithm," INJECT_CALL_COLUMNS INJECT_WORK_COLUMNS "Kernel Names";
void conv_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

inline constexpr std::string_view kAttentionHeader =
    "Source,API,Direction,B,H,KV Heads,S Query,S Key,D,D Value,Causal,Bias,Dropout,Varying Lengths,Type,"
    "Compute Type,Engine," INJECT_CALL_COLUMNS INJECT_WORK_COLUMNS "Kernel Names";
void attention_rows(const Statistics& statistics, const RunInfo& run, std::string& text,
                    const TextSink& sink);

inline constexpr std::string_view kRnnHeader =
    "API,Direction,Cell,Layers,Directions,Input Size,Hidden Size,Projection Size,T,B,Steps,Type,"
    "Compute Type,Algorithm,Math," INJECT_CALL_COLUMNS INJECT_WORK_COLUMNS "Kernel Names";
void rnn_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

inline constexpr std::string_view kNormHeader =
    "API,Direction,Mode,Size,Layout,Type,Fused," INJECT_CALL_COLUMNS "Kernel Names";
void norm_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

inline constexpr std::string_view kFamilyHeader =
    "Time (%),Total Time (ns),Instances,Avg (ns),Min (ns),Max (ns),Kernel Names,In Library Calls (%),Tensor "
    "Cores (%),"
    "Tensor Cores Unknown (%),FLOPs,TFLOP/s,Family";
void family_rows(const Statistics& statistics, const RunInfo& run, std::string& text, const TextSink& sink);

#undef INJECT_CALL_COLUMNS
#undef INJECT_WORK_COLUMNS

/// What of the device's peak a row's calls reach, 1 being all of it.
PeakShare peak_share(const CallShapeRow& call, const DeviceSpecs& specs);

/// What the roofline bounds such a call by, as the tables have it.
Bound bound_of(const CallShapeRow& call, const DeviceSpecs& specs);

/// What the peaks of a device of the run are computed from; of device 0 where it is not known.
DeviceSpecs specs_of(const RunInfo& run, std::uint32_t device);

}  // namespace inject
