// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What /proc says about a task (a thread, or a process by its first thread). No allocation. Truncated text
// yields no value rather than a wrong one.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "libinject/base/host_io.h"

namespace inject {

/// A task's name, truncated to the available size.
struct TaskName {
  std::array<char, 32> text{};
  std::size_t size = 0;

  TaskName() = default;
  explicit TaskName(std::string_view name) noexcept : size(std::min(name.size(), text.size())) {
    std::copy_n(name.begin(), size, text.begin());
  }
  std::string_view view() const noexcept { return {text.data(), size}; }
};

/// /proc/PID/stat, or that of a thread. Ticks are those of sysconf(_SC_CLK_TCK).
struct TaskStat {
  TaskName name;
  char state = 0;
  pid_t parent = 0;
  pid_t session = 0;
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  // Of the children that it has waited for:
  std::uint64_t children_minor_faults = 0;
  std::uint64_t children_major_faults = 0;
  std::uint64_t children_ticks = 0;  ///< processor time
  std::uint64_t threads = 0;
  std::uint64_t start = 0;  ///< in ticks since boot: distinguishes tasks with the same id

  /// False if it has ended, and its parent has not waited for it yet.
  bool running() const noexcept { return state != 'Z' && state != 'X' && state != 'x'; }
};
std::optional<TaskStat> parse_task_stat(std::string_view text) noexcept;

/// The time during which a task was ready to run but had no CPU: the second number of its `schedstat`, in
/// nanoseconds.
std::optional<std::uint64_t> parse_run_queue_wait(std::string_view text) noexcept;

/// Voluntary and involuntary context switches of a task: lines of its `status`.
struct ContextSwitches {
  std::uint64_t voluntary = 0;
  std::uint64_t involuntary = 0;
};
std::optional<ContextSwitches> parse_switches(std::string_view text) noexcept;

/// Whether a process ignores this signal, by the `status` of one of its threads; false if that is not there.
bool ignores_signal(std::string_view status, int signal) noexcept;

/// `read_bytes` of a task's `io`: bytes read from storage for it.
std::optional<std::uint64_t> parse_read_bytes(std::string_view text) noexcept;

/// True if /proc shows this process under its own numbers: not where it isn't mounted, or is that of another
/// PID namespace, in which our numbers are other processes'.
bool proc_is_ours() noexcept;

/// The file's text, as far as it fits; empty if it can't be read.
std::string_view read_text(const char* path, std::span<char> room) noexcept;

/// Closes the file at the end, even if `use` throws.
struct OpenFile {
  explicit OpenFile(int file) noexcept : number(file) {}
  ~OpenFile() {
    if (number >= 0) close(number);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  const int number;
};

/// Calls `use` with every number among the names in a folder of /proc. False if the folder can't be read.
/// Uses only system calls: if a program's threads are stopped, one of them may hold malloc's lock.
template <typename Use>
bool for_each_number(const char* path, Use&& use) {
  const OpenFile folder(open_file(path, O_RDONLY | O_DIRECTORY));
  if (folder.number < 0) return false;
  alignas(8) std::array<char, 8192> part;
  for (;;) {
    const long n = syscall(SYS_getdents64, folder.number, part.data(), part.size());
    if (n <= 0) break;
    for (long at = 0; at < n;) {
      // struct linux_dirent64: number and offset of 8 bytes each, length of 2, type of 1, name.
      constexpr long kLength = 16;
      constexpr long kName = 19;
      unsigned short length = 0;
      std::memcpy(&length, part.data() + at + kLength, sizeof length);
      const long number = std::strtol(part.data() + at + kName, nullptr, 10);
      if (number > 0) use(static_cast<pid_t>(number));
      at += length;
    }
  }
  return true;
}

}  // namespace inject
