// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "libinject/stats/run_info.h"
#include "libinject/stats/statistics.h"

namespace inject {

/// The text that a run ends with: windows, devices, the largest kernels, library calls, copies and API calls,
/// what was lost, where the files are. Lines of at most 120 columns.
std::string summary_text(const Statistics& statistics, const RunInfo& run, std::string_view folder);

/// `name` in at most `columns` columns (wide characters take two): first without its return type and
/// arguments, then with the middle left out. Control characters become `?`, bytes that are not UTF-8 U+FFFD.
std::string shortened(std::string_view name, std::size_t columns);

/// Nanoseconds in the unit that suits: `999ns`, `21.040ms`.
std::string time_text(double nanoseconds);
/// `12.3%` of the whole; 0 of nothing.
std::string share_text(std::uint64_t part, std::uint64_t whole);
/// Bytes in the unit that suits, powers of 1000: `512B`, `3.400MB`.
std::string size_text(double bytes);

}  // namespace inject
