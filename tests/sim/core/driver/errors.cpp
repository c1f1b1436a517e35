// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Names and texts of errors.
#include "tests/sim/core/driver/call.h"

namespace inject::sim::drv {
namespace {
struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};
const ErrorText* error_text(CUresult code) {
  for (const ErrorText& entry : kErrors)
    if (entry.code == code) return &entry;
  return nullptr;
}
}  // namespace

CUresult cuGetErrorName(CUresult error, const char** pStr) {
  DRIVER_FUNCTION(cuGetErrorName);
  return impl::call(function, nullptr, nullptr, false, [&] {
    const ErrorText* entry = error_text(error);
    *pStr = entry != nullptr ? entry->name : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorString(CUresult error, const char** pStr) {
  DRIVER_FUNCTION(cuGetErrorString);
  return impl::call(function, nullptr, nullptr, false, [&] {
    const ErrorText* entry = error_text(error);
    *pStr = entry != nullptr ? entry->text : "unknown error";
    return CUDA_SUCCESS;
  });
}

}  // namespace inject::sim::drv
