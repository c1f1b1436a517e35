// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Asks the CUDA driver about its devices. Nothing here initialises CUDA where the program has not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libinject/model/run_info.h"

namespace inject {

/// The newest CUDA version that the driver supports, e.g. "13.0"; empty where there is no driver.
std::string driver_version();

/// Resolves what current_device() and graph_capture.h call. Not before the driver is loaded; no dl* call.
void find_driver_functions() noexcept;
/// The device of the calling thread's current context, as MemoryUse numbers devices. For hooks: the driver
/// alone is asked, a few instructions of its own, and neither the runtime's last error nor errno changes.
std::uint32_t current_device() noexcept;

/// Numbers of the devices whose primary context is alive: those that the runtime's users have used. Waits for
/// one that is being created. For our own threads.
std::vector<std::uint32_t> devices_in_use();
/// The program has called cuInit, and may be inside.
void note_initialization() noexcept;
/// Finds what devices_in_use() and wait_for_driver() call, which may wait for a library that another thread
/// is loading. They do so themselves if need be.
void find_device_functions() noexcept;
/// Waits until no thread is inside its first cuInit, in nvmlInit, or creating a device's primary context. Not
/// on a thread that may be doing so, or that another one may wait for as it does.
void wait_for_driver() noexcept;

/// The devices that the driver shows to this process. Only where the program has initialised CUDA.
std::vector<DeviceInfo> devices();

}  // namespace inject
