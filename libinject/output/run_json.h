// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <span>
#include <string>

#include "libinject/stats/run_info.h"

namespace inject {

/// The text of run.json; `files` are the tables written beside it, `errors` those that could not be.
std::string run_json_text(const RunInfo& run, std::span<const std::string> files,
                          std::span<const std::string> errors);

}  // namespace inject
