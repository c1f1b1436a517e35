// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/grace_period.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"

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
  std::vector<Thread> threads;
  const int file = open_file("/proc/self/task", O_RDONLY | O_DIRECTORY);
  if (file < 0) return std::nullopt;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(fdopendir(file), &closedir);
  if (folder == nullptr) {
    ::close(file);
    return std::nullopt;
  }
  const auto mine = static_cast<pid_t>(syscall(SYS_gettid));
  bool listed = false;
  while (const dirent* entry = readdir(folder.get())) {
    const auto id = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (id == mine) listed = true;
    if (id <= 0 || id == mine) continue;
    if (const auto ran = cpu_time_of_thread(id)) threads.push_back({id, *ran});
  }
  if (!listed) return std::nullopt;
  return threads;
}

}  // namespace

bool wait_grace_period(Nanoseconds most) noexcept {
  const Nanoseconds deadline = now() + most;
  try {
    auto threads = other_threads();
    if (!threads) return false;
    std::vector<Thread>& inside = *threads;
    for (int looks = 1;; ++looks) {
      sleep_for(kPause);
      std::erase_if(inside, [](const Thread& thread) {
        const auto ran = cpu_time_of_thread(thread.id);
        return !ran || *ran - thread.ran >= kRunsFor || sleeps(thread.id);
      });
      if (inside.empty()) return true;
      if (looks >= kFewestLooks && now() >= deadline) return false;
    }
  } catch (...) {
    return false;
  }
}

}  // namespace inject
