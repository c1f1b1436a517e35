// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/analysis/sample_stats.h"

namespace inject {

/// Device work, as counts and times.
struct DeviceWork {
  Totals kernels;
  std::uint64_t copies = 0;
  std::uint64_t copy_time = 0;
  std::uint64_t copy_bytes = 0;
  std::uint64_t memsets = 0;
  std::uint64_t memset_time = 0;
  std::uint64_t memset_bytes = 0;
  std::uint64_t unattributed = 0;  ///< of all of these, the ones whose launch was not seen

  void merge(const DeviceWork& more);
};

}  // namespace inject
