// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "libinject/model/run_info.h"
#include "libinject/stats/iterations.h"

namespace inject {

/// Units of work (samples, tokens, seconds of audio) of iterations, and how long these took.
struct WorkUnits {
  std::uint64_t iterations = 0;  ///< whose units are known; the rest is of these alone
  double units = 0;
  std::uint64_t time = 0;  ///< on the host
  std::uint64_t busy = 0;  ///< of the devices together

  void add(const std::optional<double>& more, std::uint64_t duration, std::uint64_t device_busy);
  std::optional<double> total() const;
  std::optional<double> per_second() const;
  /// By the devices' busy time.
  std::optional<double> per_busy_second() const;
};

/// Empty where nothing was said, where not all is known, and of what is not complete.
std::optional<double> units_of(const RunInfo& run, const IterationRow& row);
std::optional<double> units_of(const RunInfo& run, const UnprofiledStep& step);

/// `stated`, `called`, `payload`.
std::string_view unit_source_name(UnitSource source);

}  // namespace inject
