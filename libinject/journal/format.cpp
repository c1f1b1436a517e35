// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/journal/format.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "libinject/base/host_io.h"
#include "libinject/model/functions.h"

namespace inject::recovery {

namespace {

std::string start_of(const char* path) {
  const int file = open_file(path, O_RDONLY);
  if (file < 0) return {};
  std::array<char, 1024> text;
  const ssize_t n = read(file, text.data(), text.size());
  close(file);
  return n <= 0 ? std::string() : std::string(text.data(), static_cast<std::size_t>(n));
}

}  // namespace

std::uint64_t function_print() {
  std::uint64_t print = hash_mix(kFunctionEnd);
  for (FunctionId id = 1; id < kFunctionEnd; ++id)
    print = hash_mix(print ^ hash_bytes(function_name(id))) + id;
  return print;
}

std::uint64_t process_start_of(std::int64_t pid) {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%lld/stat", static_cast<long long>(pid));
  const std::string text = start_of(path.data());
  // The second field is the command in parentheses, which may contain any character.
  std::size_t at = text.rfind(')');
  if (at == std::string::npos || text.size() - at < 3) return 0;
  // A process that has ended, and that its parent has not waited for, writes nothing.
  if (text.compare(at, 3, ") Z") == 0 || text.compare(at, 3, ") X") == 0) return 0;
  constexpr int kFieldsBetween = 20;
  for (int i = 0; i < kFieldsBetween; ++i) {
    at = text.find(' ', at + 1);
    if (at == std::string::npos) return 0;
  }
  return std::strtoull(text.c_str() + at + 1, nullptr, 10);
}

std::uint64_t boot_hash() {
  const std::string id = start_of("/proc/sys/kernel/random/boot_id");
  return id.empty() ? 0 : hash_bytes(id);
}

}  // namespace inject::recovery
