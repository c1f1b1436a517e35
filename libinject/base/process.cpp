// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/process.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "libinject/base/host_io.h"

namespace inject {

namespace {

constexpr std::size_t kMaxPathLength = 4096;
constinit std::array<char, kMaxPathLength> folder_at_load{};

std::string read_file(const char* path) {
  std::string text;
  const int file = open_file(path, O_RDONLY);
  if (file < 0) return text;
  std::array<char, 4096> part;
  constexpr std::size_t kMax = 64 * 1024;
  for (ssize_t n = 0; text.size() < kMax && (n = read(file, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(n));
  }
  close(file);
  return text;
}

}  // namespace

bool is_secure_execution() noexcept {
  return getauxval(AT_SECURE) != 0;
}

void remember_working_directory() noexcept {
  if (getcwd(folder_at_load.data(), folder_at_load.size()) == nullptr) folder_at_load[0] = 0;
}

std::string working_directory() {
  return folder_at_load.data();
}

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> command_line() {
  const std::string text = read_file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\0', at);
    words.push_back(text.substr(at, end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return words;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace inject
