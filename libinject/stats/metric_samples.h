// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Samples of a device's hardware counters: what the sampler hands to the statistics.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "libinject/record/records.h"

namespace inject {

enum class Quantity : std::uint8_t {
  kSmActive,
  kIpc,
  kFma,
  kFp64,
  kTensor,
  kWarpsActive,
  kOccupancy,
  kDramRead,
  kDramWrite,
  kL2,
  kPcieRead,
  kPcieWrite,
  kNvlinkReceive,
  kNvlinkTransmit,
  kUser,  ///< named by the user
};

struct MetricInfo {
  std::string name;   ///< as CUPTI has it, with rollup
  std::string title;  ///< column: "SM Active (%)"
  Quantity quantity = Quantity::kUser;
};

inline constexpr std::size_t kMostMetrics = 24;

struct MetricSample {
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  std::uint32_t device = 0;
  std::uint32_t window = 0;                  ///< in which it began; 0: none
  std::array<float, kMostMetrics> values{};  ///< in the order of the MetricInfo list; NaN: not measured
};

}  // namespace inject
