// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <string>
#include <string_view>

#include "libinject/report/report.h"

namespace inject {

/// The text printed at the end of a run: windows, devices, the largest kernels, library calls, copies and API
/// calls, what was lost, and where the files are. Lines have at most 120 columns.
std::string summary_text(const Report& report, std::string_view folder);

}  // namespace inject
