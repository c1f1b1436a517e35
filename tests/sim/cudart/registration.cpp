// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/cudart/registration.h"

#include <map>
#include <mutex>

#include "tests/sim/cudart/call.h"

namespace inject::sim::rt {
namespace {

// Leaked: binaries unregister in exit handlers.
struct State {
  std::mutex mutex;
  std::map<const void*, Kernel*> kernels;  // by host stub
  std::map<const void*, Variable> variables;
};
State& state() {
  static State& instance = *new State;
  return instance;
}

}  // namespace

Kernel* find_kernel(const void* function) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto found = shared.kernels.find(function);
  if (found != shared.kernels.end()) return found->second;
  for (const auto& [stub, kernel] : shared.kernels)
    if (kernel == function) return kernel;
  return nullptr;
}

bool find_variable(const void* symbol, Variable& found) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto entry = shared.variables.find(symbol);
  if (entry == shared.variables.end()) return false;
  if (entry->second.device == nullptr)
    entry->second.device = allocate(entry->second.bytes, MemoryType::kDevice, current_context());
  found = entry->second;
  return found.device != nullptr;
}

}  // namespace inject::sim::rt

using namespace inject::sim;
using namespace inject::sim::rt;

extern "C" {

void** __cudaRegisterFatBinary(void* fatCubin) {
  RUNTIME_FUNCTION(__cudaRegisterFatBinary);
  function.enter();
  return new void*(fatCubin);
}

void __cudaRegisterFatBinaryEnd(void**) {}

void __cudaUnregisterFatBinary(void** fatCubinHandle) {
  RUNTIME_FUNCTION(__cudaUnregisterFatBinary);
  function.enter();
  delete fatCubinHandle;
}

void __cudaRegisterFunction(void**, const char* hostFun, char*, const char* deviceName, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  Kernel& kernel = kernel_by_name(deviceName);
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.kernels[hostFun] = &kernel;
}

void __cudaRegisterVar(void**, char* hostVar, char*, const char* deviceName, int, size_t size, int, int) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  shared.variables[hostVar] = {intern(deviceName), nullptr, size};
}

void __cudaRegisterManagedVar(void**, void** hostVarPtrAddress, char*, const char* deviceName, int,
                              size_t size, int, int) {
  State& shared = state();
  std::lock_guard lock(shared.mutex);
  auto* memory = new char[size]();
  *hostVarPtrAddress = memory;
  shared.variables[static_cast<const void*>(hostVarPtrAddress)] = {intern(deviceName), memory, size};
}

char __cudaInitModule(void**) {
  return 1;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entryFunction) {
  Kernel* found = find_kernel(entryFunction);
  if (found == nullptr) return keep(cudaErrorInvalidDeviceFunction);
  *kernel = reinterpret_cast<cudaKernel_t>(found);
  return cudaSuccess;
}
}
