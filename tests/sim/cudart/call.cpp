// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/cudart/call.h"

#include <dlfcn.h>

#include <atomic>
#include <string>

#include "tests/sim/cudart/arguments.h"

namespace inject::sim::rt {
namespace {

std::atomic<bool> initialised{false};

}  // namespace

// Leaked: exit handlers and static destructors call into CUDA after the main thread's thread-local objects
// are gone.
ThreadState& this_thread() {
  thread_local ThreadState& instance = *new ThreadState;
  return instance;
}

cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) this_thread().last_error = error;
  return error;
}

cudaError_t initialise() {
  if (initialised) return in_forked_child() ? cudaErrorInitializationError : cudaSuccess;
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&initialise), &info);
  std::string directory(info.dli_fname);
  directory.resize(directory.rfind('/') + 1);
  dlopen((directory + "libcuda.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  // Threads that come meanwhile wait for each other in there.
  CUresult result = drv::cuInit(0);
  if (result == CUDA_SUCCESS) initialised = true;
  return from_driver(result);
}

void need_context() {
  if (Context* context = current_context(); context != nullptr && context->alive) return;
  set_current_context(retained_primary_context(this_thread().device));
}

// By the driver's call, as a subscriber sees it.
Context* retained_primary_context(int device) {
  Context* context = existing_primary_context(device);
  CUcontext handle = nullptr;
  if (context == nullptr && drv::cuDevicePrimaryCtxRetain(&handle, device) == CUDA_SUCCESS)
    context = reinterpret_cast<Context*>(handle);
  return context != nullptr ? context : primary_context(device);
}

}  // namespace inject::sim::rt
