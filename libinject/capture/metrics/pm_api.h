// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <cstddef>
#include <string>

#include "libinject/capture/cupti/api.h"

namespace inject {

/// CUPTI's functions for sampling hardware counters while the program runs, and for what the samples mean.
struct PmApi {
#define INJECT_PM_FUNCTIONS(X)            \
  X(DeviceGetChipName)                    \
  X(ProfilerInitialize)                   \
  X(ProfilerDeInitialize)                 \
  X(ProfilerDeviceSupported)              \
  X(ProfilerHostInitialize)               \
  X(ProfilerHostDeinitialize)             \
  X(ProfilerHostGetBaseMetrics)           \
  X(ProfilerHostConfigAddMetrics)         \
  X(ProfilerHostGetConfigImageSize)       \
  X(ProfilerHostGetConfigImage)           \
  X(ProfilerHostGetNumOfPasses)           \
  X(ProfilerHostEvaluateToGpuValues)      \
  X(PmSamplingEnable)                     \
  X(PmSamplingDisable)                    \
  X(PmSamplingSetConfig)                  \
  X(PmSamplingStart)                      \
  X(PmSamplingStop)                       \
  X(PmSamplingDecodeData)                 \
  X(PmSamplingGetCounterDataSize)         \
  X(PmSamplingCounterDataImageInitialize) \
  X(PmSamplingGetCounterDataInfo)         \
  X(PmSamplingCounterDataGetSampleInfo)
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is being declared
#define INJECT_PM_MEMBER(name) decltype(&::cupti##name) name = nullptr;
  INJECT_PM_FUNCTIONS(INJECT_PM_MEMBER)
#undef INJECT_PM_MEMBER
  /// Optional: without it, every board with a chip is assumed to have all of the chip's counters.
  // NOLINTNEXTLINE(readability-identifier-naming): the vendor's name, as the others'
  decltype(&::cuptiPmSamplingGetCounterAvailability) PmSamplingGetCounterAvailability = nullptr;
};

/// Finds them in the CUPTI that has been loaded. False if it is too old; `error` then says so.
bool find_pm_api(const CuptiApi& cupti, PmApi& api, std::string& error);

/// Parameters of one of these functions: zeroed, with the size that tells CUPTI which part of them the caller
/// knows.
template <typename Params>
Params sized_params(std::size_t size) noexcept {
  Params params{};
  params.structSize = size;
  return params;
}
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is being declared
#define INJECT_PM_PARAMS(name, type) auto name = sized_params<type##_Params>(type##_Params_STRUCT_SIZE)

}  // namespace inject
