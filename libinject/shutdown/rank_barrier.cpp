// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/shutdown/rank_barrier.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <initializer_list>
#include <optional>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/host_io.h"
#include "libinject/base/text.h"
#include "libinject/shutdown/process_tree.h"

namespace inject {

namespace {

constexpr unsigned kMaxRanks = 1024;

/// True if nothing has been written to the file for longer than `age`.
bool is_older(int file, Nanoseconds age) {
  struct stat status {};
  if (fstat(file, &status) != 0 || status.st_size == 0) return false;
  const std::int64_t seconds = static_cast<std::int64_t>(realtime() / kSecond) - status.st_mtim.tv_sec;
  return seconds > static_cast<std::int64_t>(age / kSecond) + 1;
}

/// A rank that is killed while it waits leaves its byte for the launcher's next job: such bytes are removed.
bool write_byte(int file, Nanoseconds patience) {
  constexpr int kTries = 100;  // nobody holds the lock for longer than this takes
  bool locked = false;
  for (int i = 0; i < kTries && !locked; ++i) {
    locked = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!locked) sleep_for(kMillisecond);
  }
  const bool written =
      (!locked || !is_older(file, patience) || ftruncate(file, 0) == 0) && ::write(file, "x", 1) == 1;
  if (locked) flock(file, LOCK_UN);
  return written;
}

}  // namespace

unsigned ranks_of_this_host(const EnvironmentLookup& environment) {
  for (const std::string_view name :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"}) {
    const std::optional<std::string> value = environment(name);
    unsigned count = 0;
    if (!value) continue;
    if (read_number(*value, count) && count >= 1 && count <= kMaxRanks) return count;
  }
  return 1;
}

std::string rank_barrier_name(const EnvironmentLookup& environment) {
  ProcessInfo launcher;
  const pid_t parent = getppid();
  if (!read_process(parent, launcher)) launcher.start = 0;
  // A launcher may restart its ranks after a failure.
  const std::optional<std::string> restarts = environment("TORCHELASTIC_RESTART_COUNT");
  std::string name = str_format("ending-{}-{}-", parent, launcher.start);
  for (const char c : restarts.value_or("0").substr(0, 10)) name += c >= '0' && c <= '9' ? c : '_';
  return name;
}

// The file has one byte for each rank that has arrived. The last one removes it; the others have it open.
bool wait_at_rank_barrier(int folder, const std::string& name, unsigned count, Nanoseconds patience) {
  const std::string path = str_format("/proc/self/fd/{}/{}", folder, name);
  const int file = open_file(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
  if (file < 0) return false;
  bool arrived = false;
  if (write_byte(file, patience)) {
    const Nanoseconds deadline = now() + patience;
    for (;;) {
      struct stat status {};
      arrived = fstat(file, &status) == 0 && static_cast<std::uint64_t>(status.st_size) >= count;
      if (arrived || now() >= deadline) break;
      sleep_for(2 * kMillisecond);
    }
  }
  unlinkat(folder, name.c_str(), 0);
  close(file);
  return arrived;
}

}  // namespace inject
