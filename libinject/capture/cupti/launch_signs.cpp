// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/launch_signs.h"

#include "libinject/base/mapping.h"
#include "libinject/capture/cupti/launch_observer.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

namespace {

// Handles of kernels do not change while their module is loaded.
std::uint64_t hash_of(const void* handle) noexcept {
  return hash_mix(reinterpret_cast<std::uint64_t>(handle) * kHashSeed + 1);
}

std::uint64_t pair(std::uint64_t x, std::uint64_t y) noexcept {
  return x << 32 | y;
}

}  // namespace

void emit_launch_sign(const DriverFunction& function, CUpti_CallbackId cbid,
                      const CUpti_CallbackData& data) noexcept {
  const void* parameters = data.functionParams;
  if (parameters == nullptr) return;
  const std::uint64_t stream = function.stream(parameters);
  const Nanoseconds begin = LaunchObserver::call_begin();
  // Both kinds of launches have grid and block in members of the same names.
  const auto emit_kernel = [&](const void* handle, const auto& launch) {
    const std::uint64_t kernel = hash_of(handle);
    if (data.symbolName != nullptr && function_is_new(kernel)) emit_name(kernel, data.symbolName);
    const std::uint64_t grid = pair(launch.gridDimX, launch.gridDimY);
    const std::uint64_t block = pair(launch.blockDimX, launch.blockDimY);
    const std::uint64_t depths = pair(launch.gridDimZ, launch.blockDimZ);
    const std::uint64_t shape = hash_mix((kernel ^ grid) * kHashSeed + hash_mix(block ^ depths));
    emit_sign(SignKind::kKernel, kernel, shape, stream, true, begin);
  };
  switch (function.call) {
    case DriverCall::kLaunch:
      if (function.launch == DriverFunction::Launch::kKernel) {
        const auto* launch = static_cast<const cuLaunchKernel_params*>(parameters);
        emit_kernel(launch->f, *launch);
      } else if (function.launch == DriverFunction::Launch::kKernelEx) {
        const auto* launch = static_cast<const cuLaunchKernelEx_params*>(parameters);
        if (launch->config != nullptr) emit_kernel(launch->f, *launch->config);
      } else {
        emit_sign(SignKind::kKernel, cbid, hash_mix(cbid * kHashSeed), stream, true, begin);
      }
      break;
    case DriverCall::kGraphLaunch: {
      const std::uint64_t graph = hash_of(static_cast<const cuGraphLaunch_params*>(parameters)->hGraph);
      emit_sign(SignKind::kGraph, graph, hash_mix(graph + 1), stream, true, begin);
      break;
    }
    case DriverCall::kCopy:
    case DriverCall::kMemset: {
      const SignKind kind = function.call == DriverCall::kMemset ? SignKind::kMemset : function.copy;
      emit_sign(kind, cbid, hash_mix(cbid * kHashSeed + function.third_size(parameters)), stream, true,
                begin);
      break;
    }
    case DriverCall::kOther:
      break;
  }
}

}  // namespace inject
