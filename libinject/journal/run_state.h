// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Information for the outputs on a run besides its records, as text for the recovery.
#pragma once

#include <string>
#include <string_view>

#include "libinject/model/run_info.h"

namespace inject::recovery {

/// Without windows and threads, which are in the journal, and hardware metrics, which are not recovered.
std::string encode_run(RunInfo run);
/// False if the text is not from encode_run(); `run` then has what could be read.
bool decode_run(std::string_view text, RunInfo& run);

}  // namespace inject::recovery
