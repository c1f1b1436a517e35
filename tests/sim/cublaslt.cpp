// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcublasLt.so.13.
#include <cublasLt.h>

#include <cstring>

#include "tests/sim/core/base.h"
#include "tests/sim/core/library.h"

using namespace inject::sim;

namespace {

constexpr const char* kLibrary = "libcublasLt.so.13";

#define CUBLASLT_FUNCTION(name)                                  \
  static constinit FunctionSlot slot;                            \
  Function& function = slot.get(kLibrary, #name, Domain::kNone); \
  if (int fault = function.enter()) return static_cast<cublasStatus_t>(fault)

struct Layout {
  cudaDataType type;
  std::uint64_t rows;
  std::uint64_t columns;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  CUBLASLT_FUNCTION(cublasLtCreate);
  *lightHandle = reinterpret_cast<cublasLtHandle_t>(new int(0));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  CUBLASLT_FUNCTION(cublasLtDestroy);
  delete reinterpret_cast<int*>(lightHandle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t,
                                        cudaDataType_t) {
  CUBLASLT_FUNCTION(cublasLtMatmulDescCreate);
  *matmulDesc = new cublasLtMatmulDescOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  CUBLASLT_FUNCTION(cublasLtMatmulDescDestroy);
  delete matmulDesc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t) {
  CUBLASLT_FUNCTION(cublasLtMatrixLayoutCreate);
  *matLayout = new cublasLtMatrixLayoutOpaque_t{};
  Layout layout{type, rows, cols};
  std::memcpy(*matLayout, &layout, sizeof layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matLayout) {
  CUBLASLT_FUNCTION(cublasLtMatrixLayoutDestroy);
  delete matLayout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                              const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
  CUBLASLT_FUNCTION(cublasLtMatmul);
  if (lightHandle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (Ddesc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  Layout layout{};
  std::memcpy(&layout, Ddesc, sizeof layout);
  auto grid = static_cast<unsigned>(((layout.rows + 127) / 128) * ((layout.columns + 127) / 128));
  int error = library::launch("sm90_lt_matmul_128x128", grid, 384, stream);
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
