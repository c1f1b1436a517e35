// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a simulated device uses: one power while a kernel runs, another one while none does. nvml.cpp puts
// NVML's functions over it.
#pragma once

#include <cstdint>

#include "tests/sim/core/timeline.h"

namespace inject::sim::power {

/// Whether the devices tell of it: CUDASIM_POWER is given.
bool simulated();
/// A kernel has been submitted to a device.
void note_kernel(int device, const OpRef& op);
/// Its counter, in millijoules: what the device has used from the machine's start to the counter's latest
/// step, or from the latest `energy_reset` on.
std::uint64_t counter(int device);
/// In milliwatts, whether a kernel runs now.
std::uint64_t present(int device);

}  // namespace inject::sim::power
