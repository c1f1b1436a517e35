// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The parts of the summary, in order. Each writes nothing if there is nothing to say.
#pragma once

#include "libinject/output/text_page.h"
#include "libinject/report/report.h"

namespace inject {

/// Reports that the process was killed, and what its tables lack because of that. (summary_losses.cpp)
void write_recovered(TextPage& page, const RunInfo& run);
/// What each device did and what was allocated on it. (summary_devices.cpp)
void write_devices(TextPage& page, const Report& report);
/// CPU use of the process and its children. (summary_host.cpp)
void write_host(TextPage& page, const RunInfo& run);
/// How much profiling has lengthened the steps, if it did so noticeably. (summary_iterations.cpp)
void write_disturbance(TextPage& page, const Report& report);
/// Step times, and what ran between the steps. (summary_iterations.cpp)
void write_iterations(TextPage& page, const Report& report);
/// Kernel time by forward, backward and so on. (summary_iterations.cpp)
void write_phases(TextPage& page, const Statistics& statistics);
/// Windows cut short because another tool used CUPTI. (summary_losses.cpp)
void write_interruptions(TextPage& page, const RunInfo& run);
/// What is missing, and what to do about it. (summary_losses.cpp)
void write_losses(TextPage& page, const Report& report);
/// What each device is bound by, and why. (summary_diagnosis.cpp)
void write_diagnoses(TextPage& page, const Report& report);
/// Hardware metrics, and the kernels that leave most of the device unused. (summary_metrics.cpp)
void write_metrics(TextPage& page, const Report& report);
/// The modules and lines that launch the longest-running kernels. (summary_code.cpp)
void write_code(TextPage& page, const Report& report);
/// Kernels, library calls, copies and API calls. (summary_tables.cpp)
void write_tables(TextPage& page, const Statistics& statistics);

}  // namespace inject
