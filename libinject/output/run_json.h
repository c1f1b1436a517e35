// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/model/run_info.h"
#include "libinject/report/device_diagnosis.h"

namespace inject {

/// The text of run.json. `files`: the tables beside it; `stale`: those that are from an earlier write;
/// `errors`: why. `diagnoses`: of the devices, if known.
std::string run_json_text(const RunInfo& run, std::span<const std::string> files,
                          std::span<const std::string> errors,
                          std::span<const DeviceDiagnosis> diagnoses = {},
                          std::span<const std::string> stale = {});

/// Something that is missing from the tables: its name in run.json's `lost`, and how many.
struct LostCount {
  std::string_view kind;
  std::uint64_t count = 0;
};
/// All kinds, including those of which nothing is missing, in run.json's order; for the whole run.
std::vector<LostCount> lost_counts(const RunInfo& run);

/// Marks the text of a run.json, which may have any contents, as that of a recovered run: sets its state and
/// adds the object `recovered`. False, with the text unchanged, if it is not a run.json.
bool mark_recovered(std::string& text, const RecoveredInfo& recovered);

}  // namespace inject
