// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Why CUPTI does not sample a device, in terms on which a user or administrator can act.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/capture/metrics/pm_api.h"

namespace inject {

inline constexpr const char* kPmEnable = "cuptiPmSamplingEnable";

/// What can be done about an error of the function `action`; nullptr if only CUPTI's own name for it is
/// known.
const char* reason_of(CUptiResult result, std::string_view action = {}) noexcept;

/// True if the next attempt would have the same result.
bool is_permanent(CUptiResult result) noexcept;

/// True if the error affects all devices, not just one.
bool affects_all_devices(CUptiResult result) noexcept;

/// CUPTI's own reason why a device can't be profiled; empty if it gives none.
std::string support_level(const PmApi& api, std::uint32_t device);

/// Why a device is not sampled, after an error of the function `action`: the reason as far as it is known,
/// and who is likely to hold its counters. Without CUPTI's name for the error.
std::string refusal(const PmApi& api, std::uint32_t device, const char* action, CUptiResult result);

}  // namespace inject
