// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Asks the CUDA driver about its devices. Nothing here initialises CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libinject/model/run_info.h"

namespace inject {

/// The newest CUDA version that the driver supports, e.g. "13.0"; empty where there is no driver.
std::string driver_version();

/// Finds what current_device() and graph_capture.h ask. Not before the driver is loaded; no dl* call.
void find_driver_functions() noexcept;
/// The device of the calling thread's current context, as MemoryUse numbers devices. For hooks: the driver
/// alone is asked, a few instructions of its own, and neither the runtime's last error nor errno changes.
std::uint32_t current_device() noexcept;

/// Numbers of the devices whose primary context is alive: those that the runtime's users have used. Waits for
/// one that is being created. For our own threads.
std::vector<std::uint32_t> devices_in_use();
/// That wait alone. Not on a thread that may be creating one, or that its creator may wait for.
void wait_for_primary_contexts() noexcept;

/// The devices that the driver shows to this process. Only where the program has initialised CUDA.
std::vector<DeviceInfo> devices();

}  // namespace inject
