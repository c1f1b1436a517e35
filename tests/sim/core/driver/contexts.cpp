// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver's calls on contexts.
#include "tests/sim/core/driver/arguments.h"
#include "tests/sim/core/driver/call.h"
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv::impl {
namespace {

Context* context_or_null(CUcontext handle) {
  return is_context(handle) ? reinterpret_cast<Context*>(handle) : nullptr;
}

CUresult create_current_context(CUcontext* pctx, CUdevice dev) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = create_context(dev, false);
  context_stack().push_back(context);
  *pctx = context->handle();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *pctx = primary_context(dev)->handle();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return valid_device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = existing_primary_context(dev);
  if (context == nullptr) return CUDA_SUCCESS;
  destroy_context(context);
  std::erase(context_stack(), context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int) {
  return valid_device(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  if (!valid_device(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = primary_context_active(dev) ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int, CUdevice dev) {
  return create_current_context(pctx, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams*, unsigned int, CUdevice dev) {
  return create_current_context(pctx, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  Context* context = context_or_null(ctx);
  if (context == nullptr || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  destroy_context(context);
  std::erase(context_stack(), context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  Context* context = context_or_null(ctx);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = context_stack().back()->handle();
  context_stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (ctx != nullptr && context_or_null(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  set_current_context(reinterpret_cast<Context*>(ctx));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  *pctx = current_context_handle();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *flags = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  Context* context = ctx != nullptr ? context_or_null(ctx) : current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *ctxId = context->uid;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (ctx != nullptr && context_or_null(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  if (leastPriority != nullptr) *leastPriority = 0;
  if (greatestPriority != nullptr) *greatestPriority = -5;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int) {
  return context_or_null(peerContext) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext) {
  return context_or_null(peerContext) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace inject::sim::drv::impl

namespace inject::sim::drv {

CUresult cuCtxSynchronize() {
  DRIVER_FUNCTION(cuCtxSynchronize);
  return impl::call(function, nullptr, nullptr, true, [] {
    Context* context = current_context();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (capture_forbids_unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    timeline::wait(context_tail(context));
    return CUDA_SUCCESS;
  });
}

}  // namespace inject::sim::drv
