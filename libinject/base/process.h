// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Properties of this process: its privileges, command line, folder and environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inject {

/// True if the process has other privileges than the user who started it (setuid, file capabilities): that
/// user controls its environment, which must then be ignored.
bool is_secure_execution() noexcept;

/// Remembers the current working directory; called once, when the library is loaded. Makes one system call.
void remember_working_directory() noexcept;
/// The directory remembered by remember_working_directory().
std::string working_directory();

std::vector<std::string> command_line();
std::optional<std::string> environment_variable(std::string_view name);
std::string host_name();

}  // namespace inject
