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

/// The text of run.json; `files` are the tables beside it, `stale` those of them that are of an earlier
/// write, `errors` why. `diagnoses`: of the devices, where they are known.
std::string run_json_text(const RunInfo& run, std::span<const std::string> files,
                          std::span<const std::string> errors,
                          std::span<const DeviceDiagnosis> diagnoses = {},
                          std::span<const std::string> stale = {});

/// Something that is missing from the tables: its name in run.json's `lost`, and how many.
struct LostCount {
  std::string_view kind;
  std::uint64_t count = 0;
};
/// All kinds, those of which nothing is missing as well, in run.json's order; of the whole run.
std::vector<LostCount> lost_counts(const RunInfo& run);

/// Makes the text of a run.json, which may have any contents, that of a run which was recovered: its state,
/// and the object `recovered`. False, with the text as it was, where it is none.
bool mark_recovered(std::string& text, const RecoveredInfo& recovered);

}  // namespace inject
