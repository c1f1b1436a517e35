// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>
#include <string_view>

#include "libinject/report/report.h"

namespace inject {

/// The text that a run ends with: windows, devices, the largest kernels, library calls, copies and API calls,
/// what was lost, where the files are. Lines of at most 120 columns.
std::string summary_text(const Report& report, std::string_view folder);

}  // namespace inject
