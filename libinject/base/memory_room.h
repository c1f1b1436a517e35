// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// How much memory and address space the limits leave. Both belong to the program: check here before
// reserving a lot.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace inject {

struct MemoryRoom {
  std::uint64_t left = 0;
  std::uint64_t limit = 0;
};

/// What the tightest limit of the process's control group, or of a group around it, leaves; nothing where
/// there is no limit. Page cache that the kernel takes back first counts as left. `groups` is what
/// /proc/self/cgroup has, `mounted` where the hierarchies are.
std::optional<MemoryRoom> group_memory(const std::string& groups, const std::string& mounted);
/// The same of this process.
std::optional<MemoryRoom> group_memory();

/// What the limit on addresses (ulimit -v) leaves; nothing where there is none. Allocates nothing.
std::optional<MemoryRoom> address_room() noexcept;

}  // namespace inject
