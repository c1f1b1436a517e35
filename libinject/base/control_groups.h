// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The control groups of this process, and their CPU limits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace inject {

/// The text of a small file of /proc or /sys; empty if it can't be read.
std::string small_file_text(const std::string& path);

enum class GroupVersion : unsigned char { k1, k2 };

/// Calls `look` with the folder of each group that contains the process for `controller`, from its own up to
/// the root of what is mounted. `groups` is the contents of /proc/self/cgroup, `mounted` where the
/// hierarchies are mounted.
void for_each_group(const std::string& groups, const std::string& mounted, std::string_view controller,
                    const std::function<void(const std::string& folder, GroupVersion version)>& look);

/// The CPU time that the tightest quota allows, in CPUs; nothing if there is no quota.
std::optional<double> group_processors(const std::string& groups, const std::string& mounted);
/// The same for this process.
std::optional<double> group_processors();

}  // namespace inject
