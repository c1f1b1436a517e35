// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/pm_api.h"

#include <dlfcn.h>

#include "libinject/base/dynamic_loader_guard.h"
#include "libinject/base/format.h"

namespace inject {

namespace {

// CUDA 12.6 to 12.9 have the functions, but are reported to deliver no kernel records while they sample.
constexpr std::uint32_t kOldestVersion = 130000;

}  // namespace

bool find_pm_api(const CuptiApi& cupti, PmApi& api, std::string& error) {
  const DynamicLoaderGuard guard;
  // It is loaded and stays loaded: another reference does not matter.
  void* handle =
      cupti.version < kOldestVersion ? nullptr : dlopen(cupti.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  bool complete = handle != nullptr;
#define INJECT_PM_FIND(name)                                                       \
  if (complete) {                                                                  \
    api.name = reinterpret_cast<decltype(api.name)>(dlsym(handle, "cupti" #name)); \
    complete = api.name != nullptr;                                                \
  }
  INJECT_PM_FUNCTIONS(INJECT_PM_FIND)
#undef INJECT_PM_FIND
  if (complete) {
    api.PmSamplingGetCounterAvailability = reinterpret_cast<decltype(api.PmSamplingGetCounterAvailability)>(
        dlsym(handle, "cuptiPmSamplingGetCounterAvailability"));
  }
  if (!complete) {
    error = str_format(
        "this CUPTI can't sample counters while it records kernels ({}, version {}); CUDA 13.0 has the "
        "first that can",
        cupti.path, cupti.version);
  }
  return complete;
}

}  // namespace inject
