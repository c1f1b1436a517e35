// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/control_groups.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "libinject/base/proc_files.h"

namespace inject {

namespace {

constexpr std::size_t kMaxGroupText = std::size_t{64} << 10;
constexpr int kMaxGroupLevels = 64;

using LookAtGroup = std::function<void(const std::string& folder, GroupVersion version)>;

// Walks from the group up to the root of what is mounted. In a container, the path may be one of the host's,
// of which only the end is mounted: the root is then the container's own group.
void look_along_groups(const std::string& mounted, std::string path, GroupVersion version,
                       const LookAtGroup& look) {
  if (path.find("/..") != std::string::npos) path.clear();
  for (int level = 0; level < kMaxGroupLevels; ++level) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    look(mounted + path, version);
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool names_controller(std::string_view controllers, std::string_view controller) {
  while (!controllers.empty()) {
    const std::string_view name = controllers.substr(0, controllers.find(','));
    if (name == controller) return true;
    controllers.remove_prefix(std::min(controllers.size(), name.size() + 1));
  }
  return false;
}

std::optional<double> leading_number(std::string_view text) {
  double number = 0;
  const auto found = std::from_chars(text.data(), text.data() + text.size(), number);
  if (found.ec != std::errc() || number <= 0) return std::nullopt;
  return number;
}

/// "max", and -1 in version 1, mean no limit.
std::optional<double> processors_of_group(const std::string& folder, GroupVersion version) {
  std::optional<double> quota;
  std::optional<double> period;
  if (version == GroupVersion::k2) {
    const std::string text = small_file_text(folder + "/cpu.max");
    quota = leading_number(text);
    const std::size_t space = text.find(' ');
    if (space != std::string::npos) period = leading_number(std::string_view(text).substr(space + 1));
  } else {
    quota = leading_number(small_file_text(folder + "/cpu.cfs_quota_us"));
    if (quota) period = leading_number(small_file_text(folder + "/cpu.cfs_period_us"));
  }
  if (!quota || !period) return std::nullopt;
  return *quota / *period;
}

}  // namespace

std::string small_file_text(const std::string& path) {
  std::string text;
  const OpenFile file(open_file(path.c_str(), O_RDONLY));
  if (file.number < 0) return text;
  std::array<char, 4096> part;
  for (ssize_t n; text.size() < kMaxGroupText && (n = read(file.number, part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  return text;
}

// Lines of "number:controllers:path"; version 2 has no controllers.
void for_each_group(const std::string& groups, const std::string& mounted, std::string_view controller,
                    const LookAtGroup& look) {
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
      look_along_groups(mounted, path, GroupVersion::k2, look);
      look_along_groups(mounted + "/unified", path, GroupVersion::k2, look);
    } else if (names_controller(controllers, controller)) {
      look_along_groups(mounted + "/" + std::string(controller), path, GroupVersion::k1, look);
    }
  }
}

std::optional<double> group_processors(const std::string& groups, const std::string& mounted) {
  std::optional<double> least;
  for_each_group(groups, mounted, "cpu", [&least](const std::string& folder, GroupVersion version) {
    const std::optional<double> allowed = processors_of_group(folder, version);
    if (allowed && (!least || *allowed < *least)) least = allowed;
  });
  return least;
}

std::optional<double> group_processors() {
  return group_processors(small_file_text("/proc/self/cgroup"), "/sys/fs/cgroup");
}

}  // namespace inject
