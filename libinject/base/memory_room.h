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

/// What the tightest limit of the process's control group, or of an enclosing group, leaves; nothing if there
/// is no limit. Page cache that the kernel reclaims first counts as free. `groups` is the contents of
/// /proc/self/cgroup, `mounted` where the hierarchies are mounted.
std::optional<MemoryRoom> group_memory(const std::string& groups, const std::string& mounted);
/// The same for this process.
std::optional<MemoryRoom> group_memory();

/// What the limit on address space (ulimit -v) leaves; nothing if there is none. Allocates nothing.
std::optional<MemoryRoom> address_room() noexcept;

}  // namespace inject
