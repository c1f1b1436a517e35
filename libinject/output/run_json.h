// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <span>
#include <string>

#include "libinject/output/diagnosis_report.h"
#include "libinject/stats/run_info.h"

namespace inject {

/// The text of run.json; `files` are the tables written beside it, `errors` those that could not be.
/// `diagnoses`: of the devices, where they are known.
std::string run_json_text(const RunInfo& run, std::span<const std::string> files,
                          std::span<const std::string> errors,
                          std::span<const DeviceDiagnosis> diagnoses = {});

/// Makes the text of a run.json, which may have any contents, that of a run which was recovered: its state,
/// and the object `recovered`. False, with the text as it was, where it is none.
bool mark_recovered(std::string& text, const RecoveredInfo& recovered);

}  // namespace inject
