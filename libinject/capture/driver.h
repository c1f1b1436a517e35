// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Queries the CUDA driver about its devices. Nothing here initialises CUDA if the program has not done so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libinject/model/run_info.h"

namespace inject {

/// The newest CUDA version that the driver supports, e.g. "13.0"; empty if there is no driver.
std::string driver_version();

/// Resolves the functions that current_device() and graph_capture.h call. Not before the driver is loaded; no
/// dl* call.
void find_driver_functions() noexcept;
/// The device of the calling thread's current context, numbered as in MemoryUse. For hooks: only a few
/// instructions of the driver run, and neither the runtime's last error nor errno changes.
std::uint32_t current_device() noexcept;

/// Numbers of the devices whose primary context is active: those that the runtime's users have used. Waits
/// for one that is being created. For our own threads.
std::vector<std::uint32_t> devices_in_use();
/// The program has called cuInit, and may still be inside.
void note_initialization() noexcept;
/// Looks up the functions that devices_in_use() and wait_for_driver() call, which may wait for a library that
/// another thread is loading. They look them up themselves if necessary.
void find_device_functions() noexcept;
/// Waits until no thread is inside its first cuInit, in nvmlInit, or creating a device's primary context.
/// Must not be called on a thread that may be doing so, or that such a thread may be waiting for.
void wait_for_driver() noexcept;

/// The devices that the driver shows to this process. Only if the program has initialised CUDA.
std::vector<DeviceInfo> devices();

}  // namespace inject
