// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/counter_holder.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>

#include "libinject/capture/cupti/holder.h"

namespace inject {

namespace {

constexpr std::size_t kMaxProcesses = 4096;

struct KnownProcess {
  std::string_view name;
  std::string_view text;
};

// `dcgmi profile --pause`: the DCGM manual, "Pausing releases profiling resources so developer tools … can
// use them".
constexpr std::array<KnownProcess, 4> kProcesses{{
    {"nv-hostengine",
     "DCGM (nv-hostengine runs here): `dcgmi profile --pause` makes it release them, `--resume` undoes that"},
    {"dcgm-exporter",
     "DCGM (dcgm-exporter runs here): `dcgmi profile --pause` makes it release them, `--resume` undoes that"},
    {"nsys", "Nsight Systems (nsys runs here): without --gpu-metrics-devices it leaves them alone"},
    {"ncu", "Nsight Compute (ncu runs here): wait for its end"},
}};

std::vector<std::string> process_names() {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"),
                                                   [](DIR* open) { return closedir(open); });
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const std::string path = std::string(entry->d_name) + "/comm";
    const int file = openat(dirfd(folder.get()), path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    std::array<char, 32> name{};
    const ssize_t length = read(file, name.data(), name.size());
    close(file);
    if (length > 1) names.emplace_back(name.data(), static_cast<std::size_t>(length) - 1);
    if (names.size() == kMaxProcesses) break;
  }
  return names;
}

}  // namespace

std::string counter_holder(std::string_view tool, const std::vector<std::string>& processes) {
  if (!tool.empty()) return ", likely " + std::string(tool);
  for (const KnownProcess& known : kProcesses) {
    if (std::find(processes.begin(), processes.end(), known.name) != processes.end())
      return ", likely " + std::string(known.text);
  }
  return ": Nsight Systems or Compute, another process with INJECT_METRICS, or DCGM, anywhere on this "
         "machine (`dcgmi profile --pause` makes DCGM release them)";
}

std::string counter_holder() {
  return counter_holder(likely_holder(), process_names());
}

}  // namespace inject
