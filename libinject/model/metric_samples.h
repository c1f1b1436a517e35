// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Hardware metrics as sampled while the program runs: what the sampler (metrics/) passes to the statistics.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/base/time.h"

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
  std::string name;   ///< CUPTI's name, with rollup
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

/// Why an expected sample is missing.
enum class MetricLoss : std::uint8_t {
  kIncomplete,     ///< a part of the data from the device's units is missing
  kTimeless,       ///< it came without times, or without a duration, for example when CUPTI's image was full
  kMistimed,       ///< its times are impossible: before the previous sample's, or of no known clock
  kNotEvaluated,   ///< it has no values
  kContradictory,  ///< its values are contradictory
  kQueueFull,      ///< the drain side was late
  kMissing,        ///< nothing came at all
};
inline constexpr std::size_t kMetricLosses = 7;

/// The most frequent reason.
inline MetricLoss main_loss(const std::array<std::uint64_t, kMetricLosses>& lost) noexcept {
  return static_cast<MetricLoss>(std::max_element(lost.begin(), lost.end()) - lost.begin());
}

/// The explanation and remedy, to follow "of hardware metrics lost: ".
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

/// A sample's times as given by CUPTI, and on our clock.
struct MetricSampleTimes {
  Nanoseconds cupti_start = 0;
  Nanoseconds cupti_end = 0;
  Nanoseconds start = 0;
  Nanoseconds end = 0;
  Nanoseconds read = 0;  ///< when it was read, on our clock; 0: there is no sample
};

}  // namespace inject
