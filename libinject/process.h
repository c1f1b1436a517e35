// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What this process is: its command line, folder, libraries and devices. Nothing here initialises CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/stats/run_info.h"

namespace inject {

/// Whether the process has other rights than the user who started it (setuid, file capabilities): its
/// environment is then that user's, who must not have it do anything.
bool has_other_rights() noexcept;

/// Keeps the working directory as it is now; called once, when the library is loaded. Makes one system call.
void remember_working_directory() noexcept;
/// The directory kept by remember_working_directory().
std::string working_directory();

std::vector<std::string> command_line();
std::optional<std::string> environment_variable(std::string_view name);
std::string host_name();

/// Whether an object of the process, other than this library, refers to the function `name` by symbol, so
/// that an exported hook of that name is called.
bool process_imports(std::string_view name);

/// Where the program is a Python interpreter: has `handler` called as it shuts down. After Ctrl+C, which no
/// script catches, Python ends itself by the signal, past every exit handler.
void at_python_exit(void (*handler)()) noexcept;

/// Name and version of the CUDA libraries in the process, e.g. {"libcublas.so.13", "/usr/…/libcublas.so.13"},
/// and of the driver ("driver", "13.0").
std::vector<std::pair<std::string, std::string>> library_versions();

/// Finds what current_device() asks. Not before the driver is loaded; no dl* call.
void find_current_device() noexcept;
/// The device of the calling thread's current context, as MemoryUse numbers devices. For hooks: the driver
/// alone is asked, a few instructions of its own, and neither the runtime's last error nor errno changes.
std::uint32_t current_device() noexcept;

/// Numbers of the devices whose primary context is alive: those that the runtime's users have used. For our
/// own threads.
std::vector<std::uint32_t> devices_in_use();

/// The devices that the driver shows to this process. Only where the program has initialised CUDA.
std::vector<DeviceInfo> devices();

}  // namespace inject
