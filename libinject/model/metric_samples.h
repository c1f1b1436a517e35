// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Hardware metrics as they are sampled while the program runs: what the sampler (metrics/) hands to the
// statistics.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/model/records.h"

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

inline constexpr std::size_t kMaxMetrics = 24;

struct MetricSample {
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  std::uint32_t device = 0;
  std::uint32_t window = 0;                 ///< in which it began; 0: none
  std::uint32_t after = 0;                  ///< the latest window that had opened by then
  std::array<float, kMaxMetrics> values{};  ///< in the order of the MetricInfo list; NaN: not measured
};

/// Why a sample that was due is not there.
enum class MetricLoss : std::uint8_t {
  kIncomplete,     ///< a part of what the device's units tell of it is not there
  kTimeless,       ///< it came without times, or a duration, as where CUPTI's image had no room
  kMistimed,       ///< its times can't be: before the one before it, or of no clock that is known
  kNotEvaluated,   ///< it has no values
  kContradictory,  ///< its values can't all be right
  kQueueFull,      ///< the drain side came late
  kMissing,        ///< nothing came at all
};
inline constexpr std::size_t kMetricLosses = 7;

/// Why most of them are not there.
inline MetricLoss main_loss(const std::array<std::uint64_t, kMetricLosses>& lost) noexcept {
  return static_cast<MetricLoss>(std::max_element(lost.begin(), lost.end()) - lost.begin());
}

/// What that means, and what can be done about it: after "of hardware metrics lost: ".
inline std::string_view loss_text(MetricLoss loss) noexcept {
  switch (loss) {
    case MetricLoss::kIncomplete:
      return "a part of the device's counters is not in them";
    case MetricLoss::kMistimed:
      return "CUPTI gave them impossible times";
    case MetricLoss::kNotEvaluated:
      return "CUPTI gave them no values";
    case MetricLoss::kContradictory:
      return "their counters contradict each other";
    case MetricLoss::kMissing:
      return "measure fewer (INJECT_METRICS), or raise INJECT_METRICS_INTERVAL";
    case MetricLoss::kTimeless:
    case MetricLoss::kQueueFull:
      break;
  }
  return "raise INJECT_METRICS_INTERVAL";
}

/// A sample's times as CUPTI gave them, and on our clock.
struct MetricSampleTimes {
  Nanoseconds cupti_start = 0;
  Nanoseconds cupti_end = 0;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  Nanoseconds read = 0;  ///< when, on our clock; 0: there is none
};

}  // namespace inject
