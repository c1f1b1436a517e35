// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Ways to functions without their names.
#include <dlfcn.h>

#include <string>

#include "tests/sim/cudart/call.h"
#include "tests/sim/cudart/impl.h"

namespace inject::sim::rt::impl {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** funcPtr, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
  *funcPtr = nullptr;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver != nullptr) {
    for (const char* version : {"_v4", "_v3", "_v2", ""}) {
      *funcPtr = dlsym(driver, (std::string(symbol) + version).c_str());
      if (*funcPtr != nullptr) break;
    }
    dlclose(driver);
  }
  if (driverStatus != nullptr)
    *driverStatus = *funcPtr != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

}  // namespace inject::sim::rt::impl

extern "C" {

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** funcPtr, unsigned long long flags,
                                    cudaDriverEntryPointQueryResult* driverStatus) {
  return cudaGetDriverEntryPointByVersion(symbol, funcPtr, CUDART_VERSION, flags, driverStatus);
}

cudaError_t cudaGetExportTable(const void** ppExportTable, const cudaUUID_t*) {
  *ppExportTable = nullptr;
  return inject::sim::rt::keep(cudaErrorUnknown);
}
}
