// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcublas.so.13. GEMMs that the vendor's library hands to cuBLASLt go there through the PLT, so that hooks
// nest.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <cstdio>

#include "tests/sim/core/base.h"
#include "tests/sim/core/library.h"

using namespace inject::sim;

namespace {

constexpr const char* kLibrary = "libcublas.so.13";

struct Handle {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasLtHandle_t lt = nullptr;
};

Handle* handle_of(cublasHandle_t handle) {
  return reinterpret_cast<Handle*>(handle);
}

#define CUBLAS_FUNCTION(name)                                    \
  static constinit FunctionSlot slot;                            \
  Function& function = slot.get(kLibrary, #name, Domain::kNone); \
  if (int fault = function.enter()) return static_cast<cublasStatus_t>(fault)

const char* type_name(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_16F:
      return "f16";
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_64F:
      return "f64";
    case CUDA_R_8I:
      return "i8";
    default:
      return "f32";
  }
}

cublasStatus_t launch(cublasHandle_t handle, const char* kernel, unsigned grid, unsigned block) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  int error = library::launch(kernel, grid, block, handle_of(handle)->stream);
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// Tiles of 128 by 128, one block each.
unsigned tiles(int m, int n, int batch = 1) {
  return static_cast<unsigned>(((m + 127) / 128) * ((n + 127) / 128) * batch);
}

cublasStatus_t gemm_kernel(cublasHandle_t handle, const char* type, cublasOperation_t a, cublasOperation_t b,
                           unsigned grid) {
  char name[96];
  std::snprintf(name, sizeof name, "sm90_gemm_%s_%c%c_128x128", type, a == CUBLAS_OP_N ? 'n' : 't',
                b == CUBLAS_OP_N ? 'n' : 't');
  return launch(handle, name, grid, 256);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  CUBLAS_FUNCTION(cublasCreate_v2);
  auto* fresh = new Handle;
  cublasLtCreate(&fresh->lt);
  *handle = reinterpret_cast<cublasHandle_t>(fresh);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  CUBLAS_FUNCTION(cublasDestroy_v2);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  cublasLtDestroy(handle_of(handle)->lt);
  delete handle_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  CUBLAS_FUNCTION(cublasGetVersion_v2);
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId) {
  CUBLAS_FUNCTION(cublasSetStream_v2);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle_of(handle)->stream = streamId;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* streamId) {
  CUBLAS_FUNCTION(cublasGetStream_v2);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *streamId = handle_of(handle)->stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  CUBLAS_FUNCTION(cublasSetMathMode);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle_of(handle)->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  CUBLAS_FUNCTION(cublasGetMathMode);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *mode = handle_of(handle)->math;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  CUBLAS_FUNCTION(cublasSetPointerMode_v2);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle_of(handle)->pointer_mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  CUBLAS_FUNCTION(cublasGetPointerMode_v2);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  *mode = handle_of(handle)->pointer_mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                              int m, int n, int, const float*, const float*, int, const float*, int,
                              const float*, float*, int) {
  CUBLAS_FUNCTION(cublasSgemm_v2);
  return gemm_kernel(handle, "f32", transa, transb, tiles(m, n));
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                            const void* alpha, const void* A, cudaDataType Atype, int lda, const void* B,
                            cudaDataType Btype, int ldb, const void* beta, void* C, cudaDataType Ctype,
                            int ldc, cublasComputeType_t computeType, cublasGemmAlgo_t) {
  CUBLAS_FUNCTION(cublasGemmEx);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr;
  cublasLtMatrixLayout_t layout_b = nullptr;
  cublasLtMatrixLayout_t layout_c = nullptr;
  cublasLtMatmulDescCreate(&operation, computeType, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&layout_a, Atype, static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(k),
                             lda);
  cublasLtMatrixLayoutCreate(&layout_b, Btype, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n),
                             ldb);
  cublasLtMatrixLayoutCreate(&layout_c, Ctype, static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(n),
                             ldc);
  cublasStatus_t status =
      cublasLtMatmul(handle_of(handle)->lt, operation, alpha, A, layout_a, B, layout_b, beta, C, layout_c, C,
                     layout_c, nullptr, nullptr, 0, handle_of(handle)->stream);
  cublasLtMatrixLayoutDestroy(layout_a);
  cublasLtMatrixLayoutDestroy(layout_b);
  cublasLtMatrixLayoutDestroy(layout_c);
  cublasLtMatmulDescDestroy(operation);
  return status;
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int, const float*,
                                         const float*, int, long long int, const float*, int, long long int,
                                         const float*, float*, int, long long int, int batchCount) {
  CUBLAS_FUNCTION(cublasSgemmStridedBatched);
  return gemm_kernel(handle, "f32_batched", transa, transb, tiles(m, n, batchCount));
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int, const void*,
                                          const void*, cudaDataType Atype, int, long long int, const void*,
                                          cudaDataType, int, long long int, const void*, void*, cudaDataType,
                                          int, long long int, int batchCount, cublasComputeType_t,
                                          cublasGemmAlgo_t) {
  CUBLAS_FUNCTION(cublasGemmStridedBatchedEx);
  return gemm_kernel(handle, type_name(Atype), transa, transb, tiles(m, n, batchCount));
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                                   int m, int n, int, const void*, const void* const[], cudaDataType Atype,
                                   int, const void* const[], cudaDataType, int, const void*, void* const[],
                                   cudaDataType, int, int batchCount, cublasComputeType_t, cublasGemmAlgo_t) {
  CUBLAS_FUNCTION(cublasGemmBatchedEx);
  return gemm_kernel(handle, type_name(Atype), transa, transb, tiles(m, n, batchCount));
}
}
