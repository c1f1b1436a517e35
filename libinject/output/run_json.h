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

}  // namespace inject
