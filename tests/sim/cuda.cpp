// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcuda.so.1: the driver functions under their exported names.
#include <dlfcn.h>

#include <string>

#include "tests/sim/arity.h"
#include "tests/sim/core/driver.h"

using namespace inject::sim;

extern "C" {

// NOLINTBEGIN(bugprone-macro-parentheses): a function's name can't stand in them
#define EXPORT(name, twin, arity)                                           \
  Result<decltype(::name)> twin(SIM_PARAMETERS_##arity(decltype(::name))) { \
    static_assert(Signature<decltype(::name)>::kArity == arity, #name);     \
    return drv::twin(SIM_ARGUMENTS_##arity);                                \
  }
#define SIM_DRIVER(name, arity) EXPORT(name, name, arity)
#define SIM_DRIVER_TWINS(name, twin, arity) EXPORT(name, name, arity) EXPORT(name, twin, arity)
#include "tests/sim/core/driver.def"
// NOLINTEND(bugprone-macro-parentheses)

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid*) {
  // The vendor's private tables are not simulated; programs linked with the static runtime need them.
  *ppExportTable = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus);
}

namespace {

void* own_symbol(const std::string& name) {
  static void* self = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<void*>(&cuGetExportTable), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return dlsym(self, name.c_str());
}

}  // namespace

// Answers with the newest version there is, as the driver does for a caller built against its own headers.
extern "C" CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int, cuuint64_t flags,
                                        CUdriverProcAddressQueryResult* symbolStatus) {
  static constinit FunctionSlot slot;
  Function& function = slot.get("libcuda.so.1", "cuGetProcAddress_v2", Domain::kDriver);
  if (int fault = function.enter()) return static_cast<CUresult>(fault);
  *pfn = nullptr;
  bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  for (const char* version : {"_v4", "_v3", "_v2", ""}) {
    std::string name = std::string(symbol) + version;
    if (per_thread)
      for (const char* suffix : {"_ptsz", "_ptds"})
        if (*pfn == nullptr) *pfn = own_symbol(name + suffix);
    if (*pfn == nullptr) *pfn = own_symbol(name);
    if (*pfn != nullptr) break;
  }
  if (symbolStatus != nullptr)
    *symbolStatus = *pfn != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *pfn != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
extern "C" CUresult cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
  return cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, nullptr);
}
