// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/pm_refusal.h"

#include "libinject/capture/metrics/counter_holder.h"

namespace inject {

namespace {

constexpr const char* kBusy = "another profiler uses its counters";

bool lacks(CUpti_Profiler_Support_Level level) {
  return level == CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED || level == CUPTI_PROFILER_CONFIGURATION_DISABLED;
}

}  // namespace

const char* reason_of(CUptiResult result, std::string_view action) noexcept {
  // From other functions, it means a call out of order.
  if (result == CUPTI_ERROR_INVALID_OPERATION && action != kPmEnable) return nullptr;
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "the driver lets only administrators read its counters; an administrator can load it with "
             "NVreg_RestrictProfilingToAdminUsers=0, or run the program with CAP_SYS_ADMIN (in a container "
             "--cap-add=SYS_ADMIN)";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "the hypervisor does not allow this virtual GPU to be profiled";
    case CUPTI_ERROR_HARDWARE_BUSY:
    case CUPTI_ERROR_INVALID_OPERATION:
      return kBusy;
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
      return "it is a virtual GPU, whose counters can't be sampled";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "its counters can't be read with confidential computing";
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
      return "it is a mining processor, whose counters can't be sampled";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return "it is partitioned (MIG), and an instance's counters can't be sampled";
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
      return "it is in an SLI group, whose counters can't be sampled";
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return "counters can't be sampled under WSL";
    case CUPTI_ERROR_INVALID_CHIP_NAME:
      return "this CUPTI does not know its chip";
    default:
      return nullptr;
  }
}

bool is_permanent(CUptiResult result) noexcept {
  return result != CUPTI_ERROR_HARDWARE_BUSY && reason_of(result) != nullptr;
}

bool affects_all_devices(CUptiResult result) noexcept {
  return result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ||
         result == CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES;
}

std::string support_level(const PmApi& api, std::uint32_t device) {
  INJECT_PM_PARAMS(params, CUpti_Profiler_DeviceSupported);
  params.cuDevice = static_cast<CUdevice>(device);
  params.api = CUPTI_PROFILER_PM_SAMPLING;
  if (api.ProfilerDeviceSupported(&params) != CUPTI_SUCCESS ||
      params.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) {
    return {};
  }
  if (lacks(params.architecture))
    return "its architecture is too old: counters can be sampled from Turing on";
  if (lacks(params.sli)) return reason_of(CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED);
  if (params.vGpu == CUPTI_PROFILER_CONFIGURATION_DISABLED)
    return reason_of(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
  if (lacks(params.vGpu)) return reason_of(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
  if (lacks(params.confidentialCompute)) return reason_of(CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED);
  if (lacks(params.cmp)) return reason_of(CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED);
  if (lacks(params.wsl)) return reason_of(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED);
  return {};
}

std::string refusal(const PmApi& api, std::uint32_t device, const char* action, CUptiResult result) {
  if (const char* known = reason_of(result, action); known != nullptr)
    return known == kBusy ? known + counter_holder() : known;
  if (std::string level = support_level(api, device); !level.empty()) return level;
  return std::string(action) + " failed";
}

}  // namespace inject
