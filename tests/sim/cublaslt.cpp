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
  std::int64_t leading;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

struct Description {
  std::int32_t compute;
  std::int32_t op_a;
  std::int32_t op_b;
  std::uint32_t epilogue;
};
static_assert(sizeof(Description) <= sizeof(cublasLtMatmulDescOpaque_t));

template <typename T>
cublasStatus_t give(const T& value, void* buffer, size_t size, size_t* written) {
  if (written != nullptr) *written = sizeof value;
  if (size < sizeof value || buffer == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(buffer, &value, sizeof value);
  return CUBLAS_STATUS_SUCCESS;
}

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
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* matmulDesc, cublasComputeType_t computeType,
                                        cudaDataType_t) {
  CUBLASLT_FUNCTION(cublasLtMatmulDescCreate);
  *matmulDesc = new cublasLtMatmulDescOpaque_t{};
  const Description description{computeType, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT};
  std::memcpy(*matmulDesc, &description, sizeof description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, void* buf,
                                              size_t sizeInBytes, size_t* sizeWritten) {
  Description description;
  std::memcpy(&description, matmulDesc, sizeof description);
  switch (attr) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return give(description.compute, buf, sizeInBytes, sizeWritten);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return give(description.op_a, buf, sizeInBytes, sizeWritten);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return give(description.op_b, buf, sizeInBytes, sizeWritten);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return give(description.epilogue, buf, sizeInBytes, sizeWritten);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t matmulDesc) {
  CUBLASLT_FUNCTION(cublasLtMatmulDescDestroy);
  delete matmulDesc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* matLayout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  CUBLASLT_FUNCTION(cublasLtMatrixLayoutCreate);
  *matLayout = new cublasLtMatrixLayoutOpaque_t{};
  Layout layout{type, rows, cols, ld};
  std::memcpy(*matLayout, &layout, sizeof layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t matLayout,
                                                cublasLtMatrixLayoutAttribute_t attr, void* buf,
                                                size_t sizeInBytes, size_t* sizeWritten) {
  Layout layout;
  std::memcpy(&layout, matLayout, sizeof layout);
  switch (attr) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return give(static_cast<std::uint32_t>(layout.type), buf, sizeInBytes, sizeWritten);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return give(layout.rows, buf, sizeInBytes, sizeWritten);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return give(layout.columns, buf, sizeInBytes, sizeWritten);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return give(layout.leading, buf, sizeInBytes, sizeWritten);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return give(std::int32_t{1}, buf, sizeInBytes, sizeWritten);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
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
