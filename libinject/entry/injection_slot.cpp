// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/entry/injection_slot.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace inject {

namespace {

constexpr const char* kDriver = "CUDA_INJECTION64_PATH";
constexpr const char* kNvtx = "NVTX_INJECTION64_PATH";
constexpr std::array<const char*, 2> kVariables{kDriver, kNvtx};

// Programs that start others under a tool, which inherit their environment.
constexpr std::array<std::string_view, 6> kLaunchers{"compute-sanitizer", "cuda-gdb",        "ncu", "nsys",
                                                     "nsys-launcher",     "nv-nsight-cu-cli"};

// Separates folder and file in a path that we have set ourselves.
constexpr std::string_view kMark = "/././";

// Room for a path, with the mark and the terminating zero.
using PathBuffer = std::array<char, 4096 + kMark.size() + 1>;

std::string_view file_name(std::string_view path) noexcept {
  return path.substr(path.rfind('/') + 1);
}

// The part before the file's name, without its last slash; includes the mark if the path has it.
std::string_view folder(std::string_view path) noexcept {
  return path.substr(0, path.size() - std::min(path.size(), file_name(path).size() + 1));
}

bool is_marked(std::string_view path) noexcept {
  return folder(path).ends_with(kMark.substr(0, kMark.size() - 1));
}

// nullptr if the result is too long for a path.
const char* spell(std::string_view path, std::string_view between, PathBuffer& buffer) noexcept {
  std::string_view before = folder(path);
  if (is_marked(path)) before.remove_suffix(kMark.size() - 1);
  std::size_t size = 0;
  for (const std::string_view part : {before, between, file_name(path)}) {
    if (part.size() >= buffer.size() - size) return nullptr;
    std::memcpy(&buffer[size], part.data(), part.size());
    size += part.size();
  }
  buffer[size] = '\0';
  return buffer.data();
}

bool same_file(const char* one, const char* other) noexcept {
  struct stat first {};
  struct stat second {};
  return stat(one, &first) == 0 && stat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// Entries are separated by colons or spaces. One without a slash was searched for, so only its name can be
// compared.
bool is_preloaded(const char* library) noexcept {
  const char* preload = getenv("LD_PRELOAD");
  for (std::string_view rest = preload == nullptr ? "" : preload; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find_first_of(": "));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    PathBuffer path;
    if (entry.empty() || entry.size() >= path.size()) continue;
    std::memcpy(path.data(), entry.data(), entry.size());
    path[entry.size()] = '\0';
    const bool searched = entry.find('/') == std::string_view::npos;
    if (searched ? entry == file_name(library) : same_file(path.data(), library)) return true;
  }
  return false;
}

// Our path as it is, and as we set it.
struct Spellings {
  explicit Spellings(const char* path) noexcept
      : plain(spell(path, "/", plain_buffer)), marked(spell(path, kMark, marked_buffer)) {}
  bool contain(const char* value) const noexcept {
    return (plain != nullptr && std::strcmp(value, plain) == 0) ||
           (marked != nullptr && std::strcmp(value, marked) == 0);
  }

  PathBuffer plain_buffer;
  PathBuffer marked_buffer;
  const char* plain;
  const char* marked;
};

bool offer(const char* variable, const Spellings& ours) noexcept {
  const char* present = getenv(variable);
  if (present != nullptr) return ours.contain(present);
  return ours.marked != nullptr && setenv(variable, ours.marked, 1) == 0;
}

void take_back(const char* variable, const Spellings& ours) noexcept {
  const char* present = getenv(variable);
  if (present != nullptr && ours.contain(present)) unsetenv(variable);
}

bool is_launcher() noexcept {
  return std::find(kLaunchers.begin(), kLaunchers.end(), program_invocation_short_name) != kLaunchers.end();
}

// True in a program that Nsight Compute has started.
bool under_nsight_compute() noexcept {
  return getenv("NV_COMPUTE_PROFILER_PERFWORKS_DIR") != nullptr;
}

}  // namespace

bool claim_injection_slot(const char* path) noexcept {
  const Spellings ours(path);
  const bool launcher = is_launcher();
  if (launcher) {
    take_back(kNvtx, ours);
  } else {
    offer(kNvtx, ours);
  }
  if (!launcher && !under_nsight_compute()) return offer(kDriver, ours);
  take_back(kDriver, ours);
  return false;
}

bool is_only_inherited(const char* loaded_as) noexcept {
  if (!is_marked(loaded_as) || is_preloaded(loaded_as)) return false;
  return std::none_of(kVariables.begin(), kVariables.end(), [&](const char* variable) {
    const char* value = getenv(variable);
    return value != nullptr && !is_marked(value) && same_file(value, loaded_as);
  });
}

}  // namespace inject
