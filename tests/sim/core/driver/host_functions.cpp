// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Functions of the program that a stream calls.
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {
namespace {

CUresult host_function(CUstream handle, bool per_thread, CUhostFn fn, void* data) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(stream, HostWork{fn, data});
}

}  // namespace

CUresult cuLaunchHostFunc(bool per_thread, CUstream hStream, CUhostFn fn, void* userData) {
  return host_function(hStream, per_thread, fn, userData);
}

CUresult cuStreamAddCallback(bool per_thread, CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int) {
  struct Call {
    CUstream stream;
    CUstreamCallback callback;
    void* data;
  };
  auto* call = new Call{hStream, callback, userData};
  CUresult result = host_function(
      hStream, per_thread,
      [](void* opaque) {
        auto* made = static_cast<Call*>(opaque);
        made->callback(made->stream, CUDA_SUCCESS, made->data);
        delete made;
      },
      call);
  if (result != CUDA_SUCCESS) delete call;
  return result;
}

}  // namespace inject::sim::drv::impl
