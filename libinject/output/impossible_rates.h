// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/stats/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// Rows of the tables of calls, kernels' metrics, windows and iterations whose share of a peak is left out
/// because it can't be (possible_share).
std::uint64_t impossible_rates(const Statistics& statistics, const RunInfo& run);

}  // namespace inject
