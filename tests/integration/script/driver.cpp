// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver API alone, found by name at run time as Numba and JAX do: nothing here can be hooked.
//
//   init  count  create  kernel:NAME[:COUNT]  copy:BYTES  sync  start stop
#include <cuda.h>
#include <cudaProfiler.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/integration/script/script.h"

namespace {

using script::Arguments;
using script::report;

template <typename Function>
Function* driver(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* function = library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    std::fprintf(stderr, "script: libcuda.so.1 has no %s\n", name);
    std::_Exit(99);
  }
  return function;
}
#define DRIVER(name) driver<decltype(::name)>(#name)

CUcontext context(bool primary = true) {
  static CUcontext shared = [primary] {
    CUcontext made = nullptr;
    report("cuInit", DRIVER(cuInit)(0));
    if (primary) {
      report("cuDevicePrimaryCtxRetain", DRIVER(cuDevicePrimaryCtxRetain)(&made, 0));
    } else {
      report("cuCtxCreate", driver<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&made, 0, 0));
    }
    return made;
  }();
  return shared;
}

// Initialises CUDA without creating a context.
void count_devices() {
  int count = 0;
  report("cuInit", DRIVER(cuInit)(0));
  report("cuDeviceGetCount", DRIVER(cuDeviceGetCount)(&count));
}

void use_context() {
  report("cuCtxSetCurrent", DRIVER(cuCtxSetCurrent)(context()));
}

CUfunction function_of(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, CUfunction> functions;
  static CUmodule module = nullptr;
  const std::lock_guard lock(mutex);
  if (module == nullptr) report("cuModuleLoadData", DRIVER(cuModuleLoadData)(&module, ""));
  CUfunction& function = functions[name];
  const std::string mangled = "_Z" + std::to_string(name.size()) + name + "v";
  if (function == nullptr)
    report("cuModuleGetFunction", DRIVER(cuModuleGetFunction)(&function, module, mangled.c_str()));
  return function;
}

void launch(const Arguments& a) {
  use_context();
  CUfunction function = function_of(a.text(1));
  for (std::uint64_t i = a.number(2, 1); i > 0; --i)
    report("cuLaunchKernel",
           DRIVER(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr));
}

void copy(const Arguments& a) {
  use_context();
  static CUdeviceptr memory = [] {
    CUdeviceptr made = 0;
    report("cuMemAlloc", driver<CUresult(CUdeviceptr*, std::size_t)>("cuMemAlloc_v2")(&made, 1 << 20));
    return made;
  }();
  static std::vector<char> host(1 << 20);
  report("cuMemcpyHtoD", driver<CUresult(CUdeviceptr, const void*, std::size_t)>("cuMemcpyHtoD_v2")(
                             memory, host.data(), a.number(1)));
}

const script::Operations kOperations{
    {"init", [](const Arguments&) { use_context(); }},
    {"count", [](const Arguments&) { count_devices(); }},
    {"create", [](const Arguments&) { context(false); }},
    {"kernel", launch},
    {"copy", copy},
    {"sync",
     [](const Arguments&) {
       use_context();
       report("cuCtxSynchronize", driver<CUresult()>("cuCtxSynchronize")());
     }},
    {"start", [](const Arguments&) { report("cuProfilerStart", DRIVER(cuProfilerStart)()); }},
    {"stop", [](const Arguments&) { report("cuProfilerStop", DRIVER(cuProfilerStop)()); }},
};

}  // namespace

int main(int argc, char** argv) {
  return script::run(argc, argv, kOperations);
}
