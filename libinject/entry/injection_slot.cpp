// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/entry/injection_slot.h"

#include <errno.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace inject {

namespace {

constexpr const char* kDriver = "CUDA_INJECTION64_PATH";
constexpr const char* kNvtx = "NVTX_INJECTION64_PATH";

// Programs that start others under a tool, whose environment these get.
constexpr std::array<std::string_view, 6> kLaunchers{"compute-sanitizer", "cuda-gdb",        "ncu", "nsys",
                                                     "nsys-launcher",     "nv-nsight-cu-cli"};

bool offer(const char* variable, const char* path) noexcept {
  const char* present = getenv(variable);
  if (present == nullptr) setenv(variable, path, 1);
  return present == nullptr || std::strcmp(present, path) == 0;
}

void take_back(const char* variable, const char* path) noexcept {
  const char* present = getenv(variable);
  if (present != nullptr && std::strcmp(present, path) == 0) unsetenv(variable);
}

bool is_launcher() noexcept {
  return std::find(kLaunchers.begin(), kLaunchers.end(), program_invocation_short_name) != kLaunchers.end();
}

// A program that Nsight Compute has started.
bool under_nsight_compute() noexcept {
  return getenv("NV_COMPUTE_PROFILER_PERFWORKS_DIR") != nullptr;
}

}  // namespace

bool claim_injection_slot(const char* path) noexcept {
  const bool launcher = is_launcher();
  if (launcher) {
    take_back(kNvtx, path);
  } else {
    offer(kNvtx, path);
  }
  if (!launcher && !under_nsight_compute()) return offer(kDriver, path);
  take_back(kDriver, path);
  return false;
}

}  // namespace inject
