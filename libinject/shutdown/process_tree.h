// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The processes that this one has started, for its end.
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
  std::uint64_t start = 0;  ///< tells processes of one number apart
  bool running = false;     ///< false: it is a zombie, not yet waited for by its parent
};

/// False if there is no such process. No allocation.
bool read_process(pid_t pid, ProcessInfo& info) noexcept;

/// The processes that descend from this one and have not ended, as they are now. Children that have made a
/// session of their own (setsid) have left the job on purpose: their subtrees are skipped. No allocation
/// but a mapping; empty without memory for that.
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

/// Ends the descendants: SIGTERM, and SIGKILL for what is left after two seconds. Where there are any the
/// program's other threads are stopped first, for good: they would see their workers die, and report it or
/// replace them.
void end_descendants() noexcept;

}  // namespace inject
