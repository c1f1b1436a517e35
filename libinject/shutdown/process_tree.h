// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The processes that this one has started, to be ended with it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace inject {

/// A line of /proc/PID/stat.
struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t session = 0;
  std::uint64_t start = 0;  ///< distinguishes processes with the same id
  bool running = false;     ///< false for a zombie, for which its parent has not waited yet
};

/// False if there is no such process. No allocation.
bool read_process(pid_t pid, ProcessInfo& info) noexcept;

/// The current descendants of this process that have not ended. Children with a session of their own (setsid)
/// have left the job on purpose: their subtrees are skipped. No allocation except a mapping; empty without
/// memory for that, or if /proc does not show this process (proc_is_ours()).
class Descendants {
 public:
  Descendants() noexcept;
  ~Descendants();
  Descendants(const Descendants&) = delete;
  Descendants& operator=(const Descendants&) = delete;

  const ProcessInfo* begin() const noexcept { return processes_; }
  const ProcessInfo* end() const noexcept { return processes_ + count_; }
  std::size_t size() const noexcept { return count_; }

 private:
  ProcessInfo* processes_ = nullptr;
  std::size_t count_ = 0;
};

/// Ends the descendants: SIGTERM, then SIGKILL for those left after two seconds. If there are any, the
/// program's other threads are stopped first, permanently: they would otherwise see their workers die, and
/// report it or replace them. False if there are child processes and /proc does not show which they are: no
/// process is ended then.
bool end_descendants() noexcept;

}  // namespace inject
