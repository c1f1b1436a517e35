// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "libinject/model/run_info.h"
#include "libinject/stats/iterations.h"

namespace inject {

/// Units of work (samples, tokens, seconds of audio) of iterations, and their duration.
struct WorkUnits {
  std::uint64_t iterations = 0;  ///< those whose units are known; the rest is for these only
  double units = 0;
  std::uint64_t time = 0;                       ///< on the host
  std::map<std::uint32_t, std::uint64_t> busy;  ///< by device

  void add(const std::optional<double>& more, std::uint64_t duration,
           std::span<const IterationDeviceRow> devices = {});
  std::optional<double> total() const;
  std::optional<double> per_second() const;
  /// Divided by the busy time of the busiest device.
  std::optional<double> per_busy_second() const;
};

/// Empty if nothing was reported, if not all is known, and for incomplete ones.
std::optional<double> units_of(const RunInfo& run, const IterationRow& row);
std::optional<double> units_of(const RunInfo& run, const UnprofiledStep& step);

/// `stated`, `called`, `payload`.
std::string_view unit_source_name(UnitSource source);

}  // namespace inject
