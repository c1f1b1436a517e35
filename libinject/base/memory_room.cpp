// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/memory_room.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "libinject/base/host_io.h"

namespace inject {

namespace {

constexpr std::size_t kMaxText = std::size_t{64} << 10;
constexpr int kMaxLevels = 64;
// More than any machine has: version 1 says so of a group without a limit.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

std::string text_of(const std::string& path) {
  std::string text;
  const int file = open_file(path.c_str(), O_RDONLY);
  if (file < 0) return text;
  std::array<char, 4096> part;
  for (ssize_t n; text.size() < kMaxText && (n = read(file, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  close(file);
  return text;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto found = std::from_chars(text.data(), text.data() + text.size(), number);
  if (found.ec != std::errc()) return std::nullopt;
  return number;
}

/// Of "name number" lines; 0 if there is none.
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
  const char* cache;  // in memory.stat, of the group and those in it
};
constexpr Names kVersion1{{"memory.limit_in_bytes", nullptr}, "memory.usage_in_bytes", "total_inactive_file"};
constexpr Names kVersion2{{"memory.max", "memory.high"}, "memory.current", "inactive_file"};

void look_at(const std::string& folder, const Names& names, std::optional<MemoryRoom>& room) {
  std::uint64_t limit = kNoLimit;
  for (const char* name : names.limits) {
    // "max", where there is no limit, is no number.
    if (name != nullptr) limit = std::min(limit, number_in(text_of(folder + "/" + name)).value_or(kNoLimit));
  }
  if (limit >= kNoLimit) return;
  std::uint64_t used = number_in(text_of(folder + "/" + names.used)).value_or(0);
  used -= std::min(used, number_of(text_of(folder + "/memory.stat"), names.cache));
  const std::uint64_t left = limit - std::min(limit, used);
  if (!room || left < room->left) room = MemoryRoom{left, limit};
}

// From the group up to the root of what is mounted. In a container the path may be one of the host's, of
// which nothing is mounted but the end: the root is the container's own group then.
void look_along(const std::string& mounted, std::string path, const Names& names,
                std::optional<MemoryRoom>& room) {
  if (path.find("/..") != std::string::npos) path.clear();
  for (int level = 0; level < kMaxLevels; ++level) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    look_at(mounted + path, names, room);
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool has_memory(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::string_view name = controllers.substr(0, controllers.find(','));
    if (name == "memory") return true;
    controllers.remove_prefix(std::min(controllers.size(), name.size() + 1));
  }
  return false;
}

}  // namespace

// Lines of "number:controllers:path"; version 2 has no controllers.
std::optional<MemoryRoom> group_memory(const std::string& groups, const std::string& mounted) {
  std::optional<MemoryRoom> room;
  std::string_view text = groups;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t first = line.find(':');
    if (first == std::string_view::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      look_along(mounted, path, kVersion2, room);
      look_along(mounted + "/unified", path, kVersion2, room);
    } else if (has_memory(controllers)) {
      look_along(mounted + "/memory", path, kVersion1, room);
    }
  }
  return room;
}

std::optional<MemoryRoom> group_memory() {
  return group_memory(text_of("/proc/self/cgroup"), "/sys/fs/cgroup");
}

std::optional<MemoryRoom> address_room() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  // In pages, the first of several numbers. Not known: nothing is left.
  std::uint64_t pages = ~std::uint64_t{0} >> 16;
  const int file = open_file("/proc/self/statm", O_RDONLY);
  if (file >= 0) {
    std::array<char, 128> text;
    const ssize_t n = read(file, text.data(), text.size());
    close(file);
    if (n > 0) pages = number_in({text.data(), static_cast<std::size_t>(n)}).value_or(pages);
  }
  const std::uint64_t used = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return MemoryRoom{limit.rlim_cur - std::min<std::uint64_t>(limit.rlim_cur, used), limit.rlim_cur};
}

}  // namespace inject
