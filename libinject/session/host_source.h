// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/base/proc_files.h"
#include "libinject/model/host_use.h"

namespace inject {

/// A thread of the process, or a child process, since it began.
struct HostTask {
  pid_t id = 0;
  std::uint64_t start = 0;  ///< in ticks since boot
  HostRole role = HostRole::kOtherThread;
  pid_t parent = 0;             ///< of a child: the child whose child it is; 0: the process
  bool drops_children = false;  ///< of a child: the kernel forgets what its own children used
  HostUse ended_children;       ///< of a child: use of children it waited for; processor time in whole ticks
  HostUse use;
};

/// All values as of one time, as far as possible.
struct HostReading {
  Nanoseconds begin = 0;
  Nanoseconds time = 0;     ///< when the process itself was read, which comes last
  std::uint64_t ticks = 0;  ///< the same in ticks since boot
  HostUse process;
  HostUse ended_children;  ///< what the children that the process has waited for took
  std::vector<HostTask> threads;
  std::vector<HostTask> children;
  std::uint64_t threads_beyond = 0;
  std::uint64_t children_beyond = 0;
  // Not read by HostSource, which may read another process:
  std::uint64_t affinity = 0;           ///< number of CPUs that the main thread may run on; 0: unknown
  std::uint64_t quota_thousandths = 0;  ///< of a CPU, by control groups; 0: no limit
};

/// The unit of times in /proc.
Nanoseconds kernel_tick();
/// The role of a thread with this name.
HostRole thread_role(std::string_view name, bool is_first) noexcept;

/// Reads what the kernel reports about a process's threads and its descendants. Nothing runs in those, and
/// nothing is kept open. Bounded by kMaxThreads and kMaxChildren; the excess is counted.
class HostSource {
 public:
  static constexpr std::size_t kMaxThreads = 512;
  static constexpr std::size_t kMaxChildren = 128;
  static constexpr std::size_t kMaxTasksOfChild = 64;
  /// A worker with more threads counts as running: numerical libraries start one for each processor.
  static constexpr std::size_t kMostThreads = 512;
  /// Threads whose children are looked up, or processes of the host if the kernel does not list children.
  static constexpr std::size_t kMaxScanned = 8192;

  /// The clocks of threads and processes, and getrusage(); nullopt if they fail.
  struct Clocks {
    std::optional<std::uint64_t> (*thread)(pid_t thread) = &cpu_time_of_thread;
    std::optional<std::uint64_t> (*process)(pid_t process) = &cpu_time_of_process;
    bool (*usage)(int who, rusage& usage) = &resource_usage;
  };

  HostSource();
  /// Reads another process, in another /proc.
  HostSource(std::string root, pid_t process, Clocks clocks);

  /// True if this /proc has the process's own ids: a container may see its host's.
  bool is_own() const;
  /// False if the process has no file descriptors left: tasks may then be missing.
  [[nodiscard]] bool read(HostReading& reading);
  /// The state in /proc of this child: R if any of its threads runs or is ready to, or if it has too many to
  /// look at; otherwise D if any is blocked; otherwise that of its first thread. 0 if it is gone or the id
  /// has been reused.
  char state_of(pid_t process, std::uint64_t start) const;
  /// The state of a thread of this process.
  char thread_state(pid_t thread) const;

 private:
  struct Found {
    pid_t pid = 0;
    pid_t parent = 0;
    TaskStat stat;
  };
  struct Status {
    TaskName name;
    bool drops_children = false;
  };

  static bool resource_usage(int who, rusage& usage);

  const char* path(pid_t process, const char* rest) const;
  const char* task_path(pid_t process, pid_t task, const char* file) const;
  std::optional<TaskStat> stat_at(const char* path) const;
  bool add_switches_and_wait(HostUse& use, pid_t process, pid_t task, Status& status) const;
  void read_threads(HostReading& reading);
  void read_children(HostReading& reading);
  bool is_loader_worker(const Found& child) const;
  void read_child(const Found& child, HostReading& reading);
  void find_children();
  void list_children();
  void add_listed_children(pid_t process, pid_t task);
  void scan_for_children();
  bool is_found(pid_t pid) const;
  void take(pid_t pid, pid_t parent, const TaskStat& stat);

  const std::string root_;
  const pid_t process_;
  const Clocks clocks_;
  TaskName program_;  // the first thread's name
  bool lists_children_ = true;
  std::vector<Found> found_;
  std::vector<Found> found_before_;
  std::uint64_t beyond_ = 0;
  std::vector<pid_t> with_cuda_;  // children that have been seen to use CUDA
  mutable std::array<char, 256> path_{};
  mutable std::array<char, 4096> text_{};
};

}  // namespace inject
