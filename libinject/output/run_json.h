// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/model/run_info.h"
#include "libinject/report/device_diagnosis.h"

namespace inject {

/// Incremented whenever a reader of the previous version could go wrong (docs/run_json.md). The members are
/// also in scripts/libinject/run.schema.json, which a test compares with the names in run_json.cpp.
inline constexpr int kRunSchemaVersion = 1;

/// The text of run.json. `files`: the tables beside it; `stale`: those from an earlier write; `errors`: why.
/// `diagnoses`: of the devices, if known.
std::string run_json_text(const RunInfo& run, std::span<const std::string> files,
                          std::span<const std::string> errors,
                          std::span<const DeviceDiagnosis> diagnoses = {},
                          std::span<const std::string> stale = {});

/// The same in at most `max_bytes`, of which some 20,000 always suffice: without the lists of windows and
/// threads, whose counts remain, or, if that is still too long, without everything except the state, the
/// files and the losses. `write_errors` says so.
std::string short_run_json_text(RunInfo run, std::span<const std::string> files,
                                std::span<const std::string> errors,
                                std::span<const DeviceDiagnosis> diagnoses,
                                std::span<const std::string> stale, std::size_t max_bytes);

/// Something missing from the tables: its name in run.json's `lost`, and the number.
struct LostCount {
  std::string_view kind;
  std::uint64_t count = 0;
};
/// All kinds, including those without losses, in run.json's order; for the whole run.
std::vector<LostCount> lost_counts(const RunInfo& run);

/// Marks the text of a run.json, which may have any contents, as that of a recovered run: sets its state and
/// adds the object `recovered`. False, with the text unchanged, if it is not a run.json.
bool mark_recovered(std::string& text, const RecoveredInfo& recovered);

}  // namespace inject
