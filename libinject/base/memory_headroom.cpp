// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/memory_headroom.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "libinject/base/control_groups.h"
#include "libinject/base/host_io.h"

namespace inject {

namespace {

// More than any machine has: version 1 reports such a number for a group without a limit.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto found = std::from_chars(text.data(), text.data() + text.size(), number);
  if (found.ec != std::errc()) return std::nullopt;
  return number;
}

/// The number on the line "name number"; 0 if there is none.
std::uint64_t number_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.size() > name.size() && line.substr(0, name.size()) == name && line[name.size()] == ' ')
      return number_in(line.substr(name.size() + 1)).value_or(0);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return 0;
}

/// The files of a version of control groups.
struct Names {
  std::array<const char*, 2> limits;
  const char* used;
  const char* cache;  // in memory.stat, for the group and its subgroups
};
constexpr Names kVersion1{{"memory.limit_in_bytes", nullptr}, "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names kVersion2{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

void look_at(const std::string& folder, const Names& names, std::optional<MemoryHeadroom>& room) {
  std::uint64_t limit = kNoLimit;
  for (const char* name : names.limits) {
    // "max", which means no limit, is not a number.
    if (name != nullptr)
      limit = std::min(limit, number_in(small_file_text(folder + "/" + name)).value_or(kNoLimit));
  }
  if (limit >= kNoLimit) return;
  std::uint64_t used = number_in(small_file_text(folder + "/" + names.used)).value_or(0);
  used -= std::min(used, number_of(small_file_text(folder + "/memory.stat"), names.cache));
  const std::uint64_t left = limit - std::min(limit, used);
  if (!room || left < room->left) room = MemoryHeadroom{left, limit};
}

}  // namespace

std::optional<MemoryHeadroom> group_memory(const std::string& groups, const std::string& mounted) {
  std::optional<MemoryHeadroom> room;
  for_each_group(groups, mounted, "memory", [&room](const std::string& folder, GroupVersion version) {
    look_at(folder, version == GroupVersion::k2 ? kVersion2 : kVersion1, room);
  });
  return room;
}

std::optional<MemoryHeadroom> group_memory() {
  return group_memory(small_file_text("/proc/self/cgroup"), "/sys/fs/cgroup");
}

std::optional<MemoryHeadroom> address_space_headroom() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  // In pages, the first of several numbers. If it is unknown, nothing is left.
  std::uint64_t pages = ~std::uint64_t{0} >> 16;
  const int file = open_file("/proc/self/statm", O_RDONLY);
  if (file >= 0) {
    std::array<char, 128> text;
    const ssize_t n = read(file, text.data(), text.size());
    close(file);
    if (n > 0) pages = number_in({text.data(), static_cast<std::size_t>(n)}).value_or(pages);
  }
  const std::uint64_t used = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return MemoryHeadroom{limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used), limit.rlim_cur};
}

}  // namespace inject
