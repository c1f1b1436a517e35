// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/analysis/peaks.h"
#include "libinject/model/run_info.h"

namespace inject {

/// The data from which a device's peaks are computed; the first device's if this one is unknown.
DeviceSpecs specs_of(const RunInfo& run, std::uint32_t device);

}  // namespace inject
