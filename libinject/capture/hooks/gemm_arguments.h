// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the arguments of cuBLAS's and cuBLASLt's matrix products mean. The functions have a few patterns of
// parameters, distinguished by overloading: one pattern serves every element type and size of integer.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdint>

#include "libinject/capture/hooks/frame.h"
#include "libinject/capture/hooks/grouped_gemm.h"
#include "libinject/capture/hooks/shim.h"
#include "libinject/model/functions.h"

namespace inject {

/// A product as passed in a call; sizes are unchecked and may be negative.
struct GemmCall {
  cublasOperation_t op_a = CUBLAS_OP_N;
  cublasOperation_t op_b = CUBLAS_OP_N;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
  DataType a = DataType::kUnknown;
  DataType b = DataType::kUnknown;
  DataType c = DataType::kUnknown;
  DataType d = DataType::kUnknown;  ///< kUnknown: the same as c
  ComputeType compute = ComputeType::kUnknown;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  // Addresses, for their alignment; not known for batches given by pointers, because the arrays are on the
  // device.
  const void* at_a = nullptr;
  const void* at_b = nullptr;
  const void* at_c = nullptr;
  std::uint32_t epilogue = 0;
  bool other_order = false;  ///< a matrix is not column-major
  // The whole batch shares this matrix.
  bool common_a = false;
  bool common_b = false;
  bool pedantic = false;      ///< the call forbids what its handle's math mode allows
  bool block_scaled = false;  ///< mxfp8, nvfp4
};

DataType data_type_of(cudaDataType type) noexcept;
ComputeType compute_type_of(cublasComputeType_t type) noexcept;
ComputeType compute_type_of(DataType type) noexcept;

template <typename T>
constexpr DataType kElement = DataType::kUnknown;
template <>
inline constexpr DataType kElement<float> = DataType::kF32;
template <>
inline constexpr DataType kElement<double> = DataType::kF64;
template <>
inline constexpr DataType kElement<__half> = DataType::kF16;
template <>
inline constexpr DataType kElement<__nv_bfloat16> = DataType::kBf16;
template <>
inline constexpr DataType kElement<cuComplex> = DataType::kC64;
template <>
inline constexpr DataType kElement<cuDoubleComplex> = DataType::kC128;

/// The call's shape; empty if the arguments are invalid.
CallShape shape_of(const GemmCall& call) noexcept;
/// Further groups are ignored.
inline constexpr std::int64_t kMaxGroups = 4096;

/// What a handle's math mode permits for fp32 if the call does not specify it. `real`: the function called.
ComputeType allowed(ComputeType compute, DataType type, cublasHandle_t handle, const void* real) noexcept;
/// The same for a known mode.
ComputeType compute_under(cublasMath_t mode, ComputeType compute, DataType type) noexcept;
bool is_pedantic(cublasComputeType_t compute) noexcept;

void set_matmul_shape(CallFrame& frame, void* real, cublasLtMatmulDesc_t desc, const void* a,
                      cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                      cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d) noexcept;

struct GemmArguments {
  using Op = cublasOperation_t;

  // Sgemm, …
  template <typename I, typename T>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, I m, I n, I k, const T*,
                   const T* a, I lda, const T* b, I ldb, const T*, T* c, I ldc) noexcept {
    tell(frame, real, handle,
         {ta, tb, m, n, k, 1, kElement<T>, kElement<T>, kElement<T>, DataType::kUnknown,
          compute_type_of(kElement<T>), lda, ldb, ldc, a, b, c});
  }
  // SgemmEx, CgemmEx
  template <typename I, typename S>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, I m, I n, I k, const S*,
                   const void* a, cudaDataType type_a, I lda, const void* b, cudaDataType type_b, I ldb,
                   const S*, void* c, cudaDataType type_c, I ldc) noexcept {
    tell(frame, real, handle,
         {ta, tb, m, n, k, 1, data_type_of(type_a), data_type_of(type_b), data_type_of(type_c),
          DataType::kUnknown, ComputeType::kF32, lda, ldb, ldc, a, b, c});
  }
  // GemmEx
  template <typename I>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, I m, I n, I k,
                   const void*, const void* a, cudaDataType type_a, I lda, const void* b, cudaDataType type_b,
                   I ldb, const void*, void* c, cudaDataType type_c, I ldc, cublasComputeType_t compute,
                   cublasGemmAlgo_t) noexcept {
    tell(frame, real, handle,
         computed({ta, tb, m, n, k, 1, data_type_of(type_a), data_type_of(type_b), data_type_of(type_c),
                   DataType::kUnknown, ComputeType::kUnknown, lda, ldb, ldc, a, b, c},
                  compute));
  }
  // SgemmBatched, …
  template <typename I, typename T>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, I m, I n, I k, const T*,
                   const T* const*, I lda, const T* const*, I ldb, const T*, T* const*, I ldc,
                   I batch) noexcept {
    tell(frame, real, handle,
         {ta, tb, m, n, k, batch, kElement<T>, kElement<T>, kElement<T>, DataType::kUnknown,
          compute_type_of(kElement<T>), lda, ldb, ldc});
  }
  // SgemmStridedBatched, …
  template <typename I, typename T>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, I m, I n, I k, const T*,
                   const T* a, I lda, long long stride_a, const T* b, I ldb, long long stride_b, const T*,
                   T* c, I ldc, long long, I batch) noexcept {
    tell(frame, real, handle,
         strided({ta, tb, m, n, k, batch, kElement<T>, kElement<T>, kElement<T>, DataType::kUnknown,
                  compute_type_of(kElement<T>), lda, ldb, ldc, a, b, c},
                 stride_a, stride_b));
  }
  // GemmBatchedEx
  template <typename I>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, I m, I n, I k,
                   const void*, const void* const*, cudaDataType type_a, I lda, const void* const*,
                   cudaDataType type_b, I ldb, const void*, void* const*, cudaDataType type_c, I ldc, I batch,
                   cublasComputeType_t compute, cublasGemmAlgo_t) noexcept {
    tell(frame, real, handle,
         computed({ta, tb, m, n, k, batch, data_type_of(type_a), data_type_of(type_b), data_type_of(type_c),
                   DataType::kUnknown, ComputeType::kUnknown, lda, ldb, ldc},
                  compute));
  }
  // GemmStridedBatchedEx
  template <typename I>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, I m, I n, I k,
                   const void*, const void* a, cudaDataType type_a, I lda, long long stride_a, const void* b,
                   cudaDataType type_b, I ldb, long long stride_b, const void*, void* c, cudaDataType type_c,
                   I ldc, long long, I batch, cublasComputeType_t compute, cublasGemmAlgo_t) noexcept {
    tell(frame, real, handle,
         strided(computed({ta, tb, m, n, k, batch, data_type_of(type_a), data_type_of(type_b),
                           data_type_of(type_c), DataType::kUnknown, ComputeType::kUnknown, lda, ldb, ldc, a,
                           b, c},
                          compute),
                 stride_a, stride_b));
  }
  // SgemmGroupedBatched, …
  template <typename I, typename T>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, const Op* ta, const Op* tb,
                   const I* m, const I* n, const I* k, const T*, const T* const*, const I* lda,
                   const T* const*, const I* ldb, const T*, T* const*, const I* ldc, I groups,
                   const I* sizes) noexcept {
    set_grouped_shape(frame, real, handle, ta, tb, m, n, k, lda, ldb, ldc, groups, sizes, kElement<T>,
                      kElement<T>, kElement<T>, compute_type_of(kElement<T>), false);
  }
  // GemmGroupedBatchedEx
  template <typename I>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, const Op* ta, const Op* tb,
                   const I* m, const I* n, const I* k, const void*, const void* const*, cudaDataType_t type_a,
                   const I* lda, const void* const*, cudaDataType_t type_b, const I* ldb, const void*,
                   void* const*, cudaDataType_t type_c, const I* ldc, I groups, const I* sizes,
                   cublasComputeType_t compute) noexcept {
    set_grouped_shape(frame, real, handle, ta, tb, m, n, k, lda, ldb, ldc, groups, sizes,
                      data_type_of(type_a), data_type_of(type_b), data_type_of(type_c),
                      compute_type_of(compute), is_pedantic(compute));
  }
  // Uint8gemmBias
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, Op tb, Op, int m, int n, int k,
                   const unsigned char* a, int, int lda, const unsigned char* b, int, int ldb,
                   unsigned char* c, int, int ldc, int, int) noexcept {
    tell(frame, real, handle,
         {ta, tb, m, n, k, 1, DataType::kU8, DataType::kU8, DataType::kU8, DataType::kUnknown,
          ComputeType::kI32, lda, ldb, ldc, a, b, c});
  }
  // Sgemv, …: A is m × n as stored. The vector is a matrix of one column.
  template <typename I, typename T>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, I m, I n, const T*, const T* a,
                   I lda, const T* x, I, const T*, T* y, I) noexcept {
    set_vector_shape(frame, real, handle, ta, m, n, I{1}, kElement<T>, kElement<T>, kElement<T>, lda, a, x, y,
                     1, 1);
  }
  template <typename I, typename S, typename T, typename Y>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, I m, I n, const S*,
                   const T* const*, I lda, const T* const*, I, const S*, Y* const*, I, I batch) noexcept {
    set_vector_shape(frame, real, handle, ta, m, n, batch, kElement<T>, kElement<Y>, kElement<S>, lda,
                     nullptr, nullptr, nullptr, 1, 1);
  }
  template <typename I, typename S, typename T, typename Y>
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, I m, I n, const S*, const T* a,
                   I lda, long long stride_a, const T* x, I, long long stride_x, const S*, Y* y, I, long long,
                   I batch) noexcept {
    set_vector_shape(frame, real, handle, ta, m, n, batch, kElement<T>, kElement<Y>, kElement<S>, lda, a, x,
                     y, stride_a, stride_x);
  }
  // cublasLtMatmul
  static void tell(CallFrame& frame, void* real, cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void*,
                   const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                   cublasLtMatrixLayout_t layout_b, const void*, const void*, cublasLtMatrixLayout_t layout_c,
                   void* d, cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t*, void*, size_t,
                   cudaStream_t) noexcept {
    set_matmul_shape(frame, real, desc, a, layout_a, b, layout_b, layout_c, d, layout_d);
  }

 private:
  static void tell(CallFrame& frame, void* real, cublasHandle_t handle, GemmCall call) noexcept;

  template <typename I>
  static void set_vector_shape(CallFrame& frame, void* real, cublasHandle_t handle, Op ta, I m, I n, I batch,
                               DataType type, DataType type_y, DataType scalar, I lda, const void* a,
                               const void* x, const void* y, long long stride_a,
                               long long stride_x) noexcept {
    const bool plain = ta == CUBLAS_OP_N;
    tell(frame, real, handle,
         strided({ta, CUBLAS_OP_N, plain ? m : n, 1, plain ? n : m, batch, type, type, type_y,
                  DataType::kUnknown, compute_type_of(scalar), lda, plain ? n : m, plain ? m : n, a, x, y},
                 stride_a, stride_x));
  }

  static GemmCall computed(GemmCall call, cublasComputeType_t compute) noexcept {
    call.compute = compute_type_of(compute);
    call.pedantic = is_pedantic(compute);
    return call;
  }

  /// Without a stride, the whole batch shares the matrix.
  static GemmCall strided(GemmCall call, long long stride_a, long long stride_b) noexcept {
    call.common_a = stride_a == 0;
    call.common_b = stride_b == 0;
    return call;
  }

  template <typename I>
  static void set_grouped_shape(CallFrame& frame, void* real, cublasHandle_t handle, const Op* ta,
                                const Op* tb, const I* m, const I* n, const I* k, const I* lda, const I* ldb,
                                const I* ldc, I groups, const I* sizes, DataType a, DataType b, DataType c,
                                ComputeType compute, bool pedantic) noexcept {
    for (const void* array :
         {static_cast<const void*>(ta), static_cast<const void*>(tb), static_cast<const void*>(m),
          static_cast<const void*>(n), static_cast<const void*>(k), static_cast<const void*>(lda),
          static_cast<const void*>(ldb), static_cast<const void*>(ldc), static_cast<const void*>(sizes)}) {
      if (array == nullptr) return;
    }
    if (groups <= 0 || groups > kMaxGroups) return;
    if (!pedantic) compute = allowed(compute, a, handle, real);
    GroupedGemm sum;
    for (I i = 0; i < groups; ++i) {
      const CallShape group = shape_of(GemmCall{ta[i], tb[i], m[i], n[i], k[i], sizes[i], a, b, c,
                                                DataType::kUnknown, compute, lda[i], ldb[i], ldc[i]});
      if (group.kind() == ShapeKind::kNone) return;
      sum.add(group.as<GemmShape>());
    }
    frame.shape(sum.shape());
  }
};

template <FunctionId function>
requires(kCategory<function> == Category::kGemm) struct CallArguments<function> : GemmArguments {
};

}  // namespace inject
