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

struct MemoryHeadroom {
  std::uint64_t left = 0;
  std::uint64_t limit = 0;
};

/// What the tightest limit of the process's control group, or of an enclosing group, leaves; nothing if there
/// is no limit. Page cache that the kernel reclaims first counts as free. `groups` is the contents of
/// /proc/self/cgroup, `mounted` where the hierarchies are mounted.
std::optional<MemoryHeadroom> group_memory(const std::string& groups, const std::string& mounted);
/// The same for this process.
std::optional<MemoryHeadroom> group_memory();

/// What the limit on address space (ulimit -v) leaves; nothing if there is none. Allocates nothing.
std::optional<MemoryHeadroom> address_space_headroom() noexcept;

}  // namespace inject
