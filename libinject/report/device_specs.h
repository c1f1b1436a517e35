// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/analysis/peaks.h"
#include "libinject/model/run_info.h"

namespace inject {

/// What the peaks of a device of the run are computed from; of the first device where it is not known.
DeviceSpecs specs_of(const RunInfo& run, std::uint32_t device);

}  // namespace inject
