// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/grace_period.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"
#include "libinject/base/proc_files.h"

namespace inject {

namespace {

// A hundred times as long as such a piece of code takes.
constexpr Nanoseconds kRunsFor = 100 * kMicrosecond;
constexpr Nanoseconds kPause = 200 * kMicrosecond;
// If the machine is suspended for a while, as virtual ones may be, so are the other threads: the time may be
// over before this thread has checked them once.
constexpr int kFewestLooks = 10;

struct Thread {
  pid_t id = 0;
  Nanoseconds ran = 0;
};

// True if the thread is asleep or gone. Not if it is running, waiting for a CPU or for a disk, which may hold
// a page of the code, or stopped by a debugger.
bool sleeps(pid_t thread) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/task/%d/stat", thread);
  const int file = open_file(path.data(), O_RDONLY);
  if (file < 0) return errno == ENOENT;
  std::array<char, 128> text{};
  const ssize_t length = ::read(file, text.data(), text.size() - 1);
  const bool gone = length < 0 && errno == ESRCH;
  ::close(file);
  // The name, in parentheses, may itself contain some.
  const char* end = length > 0 ? std::strrchr(text.data(), ')') : nullptr;
  return gone || (end != nullptr && end[1] == ' ' && std::strchr("SIZX", end[2]) != nullptr);
}

// Nothing if /proc does not show this process's threads.
std::optional<std::vector<Thread>> other_threads() {
  if (!proc_is_ours()) return std::nullopt;
  std::vector<Thread> threads;
  const auto mine = static_cast<pid_t>(syscall(SYS_gettid));
  const bool listed = for_each_number("/proc/self/task", [&](pid_t id) {
    if (id == mine) return;
    if (const auto ran = cpu_time_of_thread(id)) threads.push_back({id, *ran});
  });
  if (!listed) return std::nullopt;
  return threads;
}

}  // namespace

GracePeriod wait_grace_period(Nanoseconds most) noexcept {
  const Nanoseconds deadline = now() + most;
  try {
    auto threads = other_threads();
    if (!threads) return GracePeriod::kUnknown;
    std::vector<Thread>& inside = *threads;
    for (int looks = 1;; ++looks) {
      sleep_for(kPause);
      std::erase_if(inside, [](const Thread& thread) {
        const auto ran = cpu_time_of_thread(thread.id);
        return !ran || *ran - thread.ran >= kRunsFor || sleeps(thread.id);
      });
      if (inside.empty()) return GracePeriod::kOver;
      if (looks >= kFewestLooks && now() >= deadline) return GracePeriod::kTooLong;
    }
  } catch (...) {
    return GracePeriod::kUnknown;  // out of memory
  }
}

}  // namespace inject
