// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "libinject/output/text_page.h"
#include "libinject/report/report.h"

namespace inject {

/// The text printed at the end of a run: windows, devices, the largest kernels, library calls, copies and API
/// calls, what was lost, where the files are, and the command that turns them into a page. Lines have at most
/// `columns` columns, except for those two.
std::string summary_text(const Report& report, std::string_view folder, std::size_t columns = kPageColumns);

}  // namespace inject
