// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/gemm_arguments.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "libinject/base/mapping.h"
#include "libinject/capture/hooks/known_matmuls.h"
#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/capture/hooks/tf32.h"
#include "libinject/record/core.h"

namespace inject {

namespace {

char op_letter(cublasOperation_t op) noexcept {
  switch (op) {
    case CUBLAS_OP_N:
      return 'N';
    case CUBLAS_OP_T:
      return 'T';
    case CUBLAS_OP_C:
      return 'C';
    default:
      return 0;
  }
}

std::uint8_t alignment(const void* address) noexcept {
  if (address == nullptr) return 0;
  return static_cast<std::uint8_t>(std::min(std::countr_zero(reinterpret_cast<std::uintptr_t>(address)), 4));
}

/// a · b; saturates.
std::uint64_t times(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? ~std::uint64_t{0} : product;
}

std::uint64_t plus(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? ~std::uint64_t{0} : sum;
}

std::uint64_t matrix_bytes(std::int64_t rows, std::int64_t columns, DataType type) noexcept {
  const std::uint64_t bits = times(
      times(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns)), data_type_bits(type));
  return bits == ~std::uint64_t{0} ? bits : bits / 8;
}

bool fill(GemmShape& shape, const GemmCall& call) noexcept {
  shape.op_a = op_letter(call.op_a);
  shape.op_b = op_letter(call.op_b);
  if (shape.op_a == 0 || shape.op_b == 0 || call.m < 0 || call.n < 0 || call.k < 0 || call.batch < 0 ||
      call.batch > 0xFFFF'FFFF) {
    return false;
  }
  shape.a = call.a;
  shape.b = call.b;
  shape.c = call.c;
  shape.d = call.d == DataType::kUnknown ? call.c : call.d;
  shape.compute = call.compute;
  shape.epilogue = call.epilogue;
  shape.align_a = alignment(call.at_a);
  shape.align_b = alignment(call.at_b);
  shape.align_c = alignment(call.at_c);
  shape.batch = static_cast<std::uint32_t>(call.batch);
  shape.m = call.m;
  shape.n = call.n;
  shape.k = call.k;
  shape.lda = call.lda;
  shape.ldb = call.ldb;
  shape.ldc = call.ldc;
  const std::uint64_t products =
      times(times(static_cast<std::uint64_t>(call.m), static_cast<std::uint64_t>(call.n)),
            times(static_cast<std::uint64_t>(call.k), shape.batch));
  shape.flops = times(products, is_complex(call.a) ? 8 : 2);
  const auto all = [&](std::uint64_t bytes, bool common) {
    return common ? bytes : times(bytes, shape.batch);
  };
  // Unknown if a type is unknown.
  if (data_type_bits(call.a) != 0 && data_type_bits(call.b) != 0 && data_type_bits(shape.d) != 0)
    shape.bytes = plus(plus(all(matrix_bytes(call.m, call.k, call.a), call.common_a),
                            all(matrix_bytes(call.k, call.n, call.b), call.common_b)),
                       all(matrix_bytes(call.m, call.n, shape.d), false));
  if (call.other_order) shape.flags |= kGemmOtherOrder;
  if (call.block_scaled) shape.flags |= kGemmBlockScaled;
  return true;
}

/// True if a product is one in fp32 or fp64, which may be computed in other types.
bool is_single_or_double(ComputeType compute, DataType type) noexcept {
  return (compute == ComputeType::kF32 && (type == DataType::kF32 || type == DataType::kC64)) ||
         (compute == ComputeType::kF64 && (type == DataType::kF64 || type == DataType::kC128));
}

// ---- cuBLASLt: descriptors, read by the library's own getters. Fifteen of them take some 110 ns (measured):
// more than a product's hook may. So the contents of the four layouts, which the vendor's header declares as
// eight words each, are cached with what the getters returned for them; the rest is queried each time.

using GetLayout = cublasStatus_t(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, void*, std::size_t,
                                 std::size_t*);
using GetDesc = cublasStatus_t(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, void*, std::size_t,
                               std::size_t*);
constinit SameLibraryFunction<GetLayout> get_layout{"cublasLtMatrixLayoutGetAttribute"};
constinit SameLibraryFunction<GetDesc> get_desc{"cublasLtMatmulDescGetAttribute"};

constexpr std::size_t kProbes = 8;

std::uint64_t hash_layout(std::uint64_t hash, cublasLtMatrixLayout_t layout) noexcept {
  cublasLtMatrixLayoutOpaque_t words;
  std::memcpy(&words, layout, sizeof words);
  std::uint64_t even = hash;
  std::uint64_t odd = ~hash;
  for (std::size_t i = 0; i < 8; i += 2) {
    even = (even ^ words.data[i]) * 0xD6E8'FEB8'6659'FD93u;
    odd = (odd ^ words.data[i + 1]) * 0x9E37'79B9'7F4A'7C15u;
    even ^= even >> 31;
    odd ^= odd >> 29;
  }
  return hash_mix(even + std::rotl(odd, 17));
}

struct Layout {
  cudaDataType type = CUDA_R_32F;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::int64_t leading = 0;
  std::int32_t batch = 1;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int64_t offset = 0;       // between the matrices of a batch
  std::uint32_t batch_mode = 0;  // cublasLtBatchMode_t
};

// By number, because these names came with CUDA 13.0. In an older library, all batches are strided.
constexpr auto kBatchMode = static_cast<cublasLtMatrixLayoutAttribute_t>(8);
constexpr std::uint32_t kStrided = 0;
constexpr std::uint32_t kByPointers = 1;

bool read_layout(GetLayout* get, cublasLtMatrixLayout_t layout, Layout& to) noexcept {
  std::uint32_t type = 0;
  if (get(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type, nullptr) != CUBLAS_STATUS_SUCCESS ||
      get(layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &to.rows, sizeof to.rows, nullptr) != CUBLAS_STATUS_SUCCESS ||
      get(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &to.columns, sizeof to.columns, nullptr) !=
          CUBLAS_STATUS_SUCCESS ||
      get(layout, CUBLASLT_MATRIX_LAYOUT_LD, &to.leading, sizeof to.leading, nullptr) !=
          CUBLAS_STATUS_SUCCESS ||
      get(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &to.batch, sizeof to.batch, nullptr) !=
          CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  to.type = static_cast<cudaDataType>(type);
  get(layout, CUBLASLT_MATRIX_LAYOUT_ORDER, &to.order, sizeof to.order, nullptr);
  get(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &to.offset, sizeof to.offset, nullptr);
  if (get(layout, kBatchMode, &to.batch_mode, sizeof to.batch_mode, nullptr) != CUBLAS_STATUS_SUCCESS)
    to.batch_mode = kStrided;
  return to.batch_mode <= kByPointers;  // in any other mode, rows and columns may have another meaning
}

struct Operation {
  std::int32_t op_a = CUBLAS_OP_N;
  std::int32_t op_b = CUBLAS_OP_N;
  std::int32_t compute = 0;
  std::uint32_t epilogue = 0;
  std::int32_t scale_a = 0;  // cublasLtMatmulMatrixScale_t
};

// By number, because these names came with CUDA 12.8. A library without them has no such scaling.
constexpr auto kScaleModeOfA = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr std::int32_t kScaledBy16 = 1;  // nvfp4
constexpr std::int32_t kScaledBy32 = 2;  // mxfp8

bool read_operation(GetDesc* get, cublasLtMatmulDesc_t desc, Operation& to) noexcept {
  if (get(desc, kScaleModeOfA, &to.scale_a, sizeof to.scale_a, nullptr) != CUBLAS_STATUS_SUCCESS)
    to.scale_a = 0;
  return get(desc, CUBLASLT_MATMUL_DESC_TRANSA, &to.op_a, sizeof to.op_a, nullptr) == CUBLAS_STATUS_SUCCESS &&
         get(desc, CUBLASLT_MATMUL_DESC_TRANSB, &to.op_b, sizeof to.op_b, nullptr) == CUBLAS_STATUS_SUCCESS &&
         get(desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &to.compute, sizeof to.compute, nullptr) ==
             CUBLAS_STATUS_SUCCESS &&
         get(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &to.epilogue, sizeof to.epilogue, nullptr) ==
             CUBLAS_STATUS_SUCCESS;
}

std::uint32_t find_layout(GetLayout* get, const Operation& operation, const void* at_a,
                          cublasLtMatrixLayout_t layout_a, const void* at_b, cublasLtMatrixLayout_t layout_b,
                          cublasLtMatrixLayout_t layout_c, const void* at_d,
                          cublasLtMatrixLayout_t layout_d) noexcept {
  Layout a;
  Layout b;
  Layout c;
  Layout d;
  Core* core = Core::get_if_any();
  if (core == nullptr || !read_layout(get, layout_a, a) || !read_layout(get, layout_b, b) ||
      !read_layout(get, layout_c, c) || !read_layout(get, layout_d, d)) {
    return 0;
  }
  GemmCall call;
  call.op_a = static_cast<cublasOperation_t>(operation.op_a);
  call.op_b = static_cast<cublasOperation_t>(operation.op_b);
  call.m = static_cast<std::int64_t>(d.rows);
  call.n = static_cast<std::int64_t>(d.columns);
  call.k = static_cast<std::int64_t>(call.op_a == CUBLAS_OP_N ? a.columns : a.rows);
  call.batch = d.batch;
  call.a = data_type_of(a.type);
  call.b = data_type_of(b.type);
  call.c = data_type_of(c.type);
  call.d = data_type_of(d.type);
  const auto compute = static_cast<cublasComputeType_t>(operation.compute);
  call.compute = compute_type_of(compute);
  if (is_single_or_double(call.compute, call.a) && !is_pedantic(compute))
    call.compute = unless_emulated(call.compute);
  call.lda = a.leading;
  call.ldb = b.leading;
  call.ldc = d.leading;
  // Pointers to the matrices are in device memory.
  call.at_a = a.batch_mode == kStrided ? at_a : nullptr;
  call.at_b = b.batch_mode == kStrided ? at_b : nullptr;
  call.at_c = d.batch_mode == kStrided ? at_d : nullptr;
  for (const Layout& layout : {a, b, c, d})
    call.other_order = call.other_order || layout.order != CUBLASLT_ORDER_COL;
  call.common_a = a.offset == 0 && a.batch_mode == kStrided;
  call.common_b = b.offset == 0 && b.batch_mode == kStrided;
  call.epilogue = operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0 : operation.epilogue;
  call.block_scaled = operation.scale_a == kScaledBy16 || operation.scale_a == kScaledBy32;
  const CallShape shape = shape_of(call);
  return shape.kind() == ShapeKind::kNone ? 0 : core->shapes.intern(shape);
}

}  // namespace

DataType data_type_of(cudaDataType type) noexcept {
  switch (static_cast<int>(type)) {
    case CUDA_R_64F:
      return DataType::kF64;
    case CUDA_R_32F:
      return DataType::kF32;
    case CUDA_R_16F:
      return DataType::kF16;
    case CUDA_R_16BF:
      return DataType::kBf16;
    case CUDA_C_64F:
      return DataType::kC128;
    case CUDA_C_32F:
      return DataType::kC64;
    case CUDA_C_16F:
      return DataType::kC32;
    case CUDA_C_16BF:
      return DataType::kCBf16;
    case CUDA_C_8I:
      return DataType::kC8I;
    case CUDA_R_8I:
      return DataType::kI8;
    case CUDA_R_8U:
      return DataType::kU8;
    case CUDA_R_16I:
      return DataType::kI16;
    case CUDA_R_32I:
      return DataType::kI32;
    case CUDA_R_64I:
      return DataType::kI64;
    // By number, because these names came with CUDA 11.8 and later.
    case 28:
      return DataType::kF8E4M3;
    case 29:
      return DataType::kF8E5M2;
    case 31:
    case 32:
      return DataType::kF6;
    case 33:
      return DataType::kF4;
    default:
      return DataType::kOther;
  }
}

ComputeType compute_type_of(cublasComputeType_t type) noexcept {
  switch (type) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return ComputeType::kF16;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return ComputeType::kF32;
    case CUBLAS_COMPUTE_32F_FAST_16F:
      return ComputeType::kF32F16;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return ComputeType::kF32Bf16;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return tf32_if_allowed();
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return ComputeType::kF64;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return ComputeType::kI32;
    default:
      return ComputeType::kOther;
  }
}

ComputeType compute_type_of(DataType type) noexcept {
  switch (type) {
    case DataType::kF64:
    case DataType::kC128:
      return ComputeType::kF64;
    case DataType::kF32:
    case DataType::kC64:
      return ComputeType::kF32;
    case DataType::kF16:
    case DataType::kC32:
      return ComputeType::kF16;
    default:
      return ComputeType::kUnknown;
  }
}

bool is_pedantic(cublasComputeType_t compute) noexcept {
  return compute == CUBLAS_COMPUTE_16F_PEDANTIC || compute == CUBLAS_COMPUTE_32F_PEDANTIC ||
         compute == CUBLAS_COMPUTE_64F_PEDANTIC || compute == CUBLAS_COMPUTE_32I_PEDANTIC;
}

ComputeType compute_under(cublasMath_t mode, ComputeType compute, DataType type) noexcept {
  // By number, because these names came with CUDA 12.9 and 13.0. Both may be set, and there are further flags
  // above the four bits.
  constexpr unsigned kEmulatesFp32 = 4;
  constexpr unsigned kEmulatesFp64 = 8;
  const unsigned bits = static_cast<unsigned>(mode) & 0xF;
  if (compute == ComputeType::kF64 && (type == DataType::kF64 || type == DataType::kC128))
    return (bits & kEmulatesFp64) != 0 ? ComputeType::kOther : unless_emulated(compute);
  if (compute != ComputeType::kF32 || (type != DataType::kF32 && type != DataType::kC64)) return compute;
  if ((bits & kEmulatesFp32) != 0) return ComputeType::kOther;
  switch (bits & 3) {
    case CUBLAS_TENSOR_OP_MATH:  // "same effect as using CUBLAS_COMPUTE_32F_FAST_16F"
      return ComputeType::kF32F16;
    case CUBLAS_TF32_TENSOR_OP_MATH:
      return tf32_if_allowed();
    default:
      return unless_emulated(compute);
  }
}

ComputeType allowed(ComputeType compute, DataType type, cublasHandle_t handle, const void* real) noexcept {
  if (!is_single_or_double(compute, type)) return compute;
  static constinit SameLibraryFunction<cublasStatus_t(cublasHandle_t, cublasMath_t*)> get_math{
      "cublasGetMathMode"};
  auto* get = handle == nullptr ? nullptr : get_math.get(real);
  cublasMath_t mode = CUBLAS_DEFAULT_MATH;
  if (get == nullptr || get(handle, &mode) != CUBLAS_STATUS_SUCCESS) return unless_emulated(compute);
  return compute_under(mode, compute, type);
}

CallShape shape_of(const GemmCall& call) noexcept {
  GemmShape shape;
  if (!fill(shape, call)) return {};
  return shape;
}

void GemmArguments::tell(CallFrame& frame, void* real, cublasHandle_t handle, GemmCall call) noexcept {
  if (!call.pedantic) call.compute = allowed(call.compute, call.a, handle, real);
  // What several small products may share is a weight: the first operand in PyTorch's calls.
  frame.shape(shape_of(call), reinterpret_cast<std::uint64_t>(call.at_a));
}

void set_matmul_shape(CallFrame& frame, void* real, cublasLtMatmulDesc_t desc, const void* a,
                      cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                      cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d) noexcept {
  GetLayout* layout = get_layout.get(real);
  GetDesc* get = get_desc.get(real);
  Operation operation;
  if (desc == nullptr || layout_a == nullptr || layout_b == nullptr || layout_c == nullptr ||
      layout_d == nullptr || layout == nullptr || get == nullptr || !read_operation(get, desc, operation)) {
    return;
  }
  std::uint64_t key = static_cast<std::uint64_t>(operation.compute) << 40 |
                      static_cast<std::uint64_t>(operation.op_a & 3) << 38 |
                      static_cast<std::uint64_t>(operation.op_b & 3) << 36 |
                      std::uint64_t{operation.epilogue};
  key = hash_mix(key * kHashSeed + (static_cast<std::uint64_t>(operation.scale_a & 0xFF) << 24 |
                                    std::uint64_t{alignment(a)} << 16 | std::uint64_t{alignment(b)} << 8 |
                                    alignment(d)));
  for (cublasLtMatrixLayout_t one : {layout_a, layout_b, layout_c, layout_d}) key = hash_layout(key, one);
  key |= 1;
  for (std::size_t probe = 0; probe < kProbes; ++probe) {
    KnownMatmul& known = known_matmuls[(key / 2 + probe) % kKnownMatmuls];
    std::uint64_t there = known.key.load(std::memory_order_acquire);
    if (there == 0 && known.key.compare_exchange_strong(there, key, std::memory_order_acq_rel)) {
      const std::uint32_t found =
          find_layout(layout, operation, a, layout_a, b, layout_b, layout_c, d, layout_d);
      known.shape.store(found, std::memory_order_release);
      return frame.shape(found, reinterpret_cast<std::uint64_t>(a));
    }
    if (there != key) continue;
    const std::uint32_t found = known.shape.load(std::memory_order_acquire);
    if (found == 0) break;
    return frame.shape(found, reinterpret_cast<std::uint64_t>(a));
  }
  frame.shape(find_layout(layout, operation, a, layout_a, b, layout_b, layout_c, d, layout_d),
              reinterpret_cast<std::uint64_t>(a));
}

}  // namespace inject
