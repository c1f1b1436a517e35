// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <cublas_v2.h>

#include "libinject/capture/hooks/gemm_arguments.h"
#include "libinject/capture/hooks/shim.h"
#include "libinject/record/library_buffers.h"

namespace inject {

template <>
struct Missing<cublasStatus_t> {
  static cublasStatus_t value() noexcept { return CUBLAS_STATUS_NOT_INITIALIZED; }
};

// Frameworks call it around every product: watched, not recorded.
template <>
struct Observer<kFn_cublasSetWorkspace_v2> {
  static constexpr bool kUnrecorded = true;
  static void before(cublasHandle_t /*handle*/, const void* workspace, std::size_t bytes) noexcept {
    library_buffers.note(workspace, bytes, BufferUse::kWorkspace);
  }
};

// These three are overloaded inline for the compute types of CUDA 10. The exported function is the one whose
// 64-bit form has the same types except for its sizes; prototype() checks that such an overload exists.
template <typename T>
using Narrow = std::conditional_t<std::is_same_v<T, std::int64_t>, int, T>;

template <typename Function>
struct Narrowed;
template <typename R, typename... A>
struct Narrowed<R(A...)> {
  using Type = R(Narrow<A>...);
};

template <>
struct Overload<kFn_cublasGemmEx> : Narrowed<decltype(cublasGemmEx_64)> {};
template <>
struct Overload<kFn_cublasGemmBatchedEx> : Narrowed<decltype(cublasGemmBatchedEx_64)> {};
template <>
struct Overload<kFn_cublasGemmStridedBatchedEx> : Narrowed<decltype(cublasGemmStridedBatchedEx_64)> {};

}  // namespace inject

#include "libinject/model/cublas.def"
