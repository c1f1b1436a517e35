// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/shutdown/process_tree.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/proc_files.h"

namespace inject {

namespace {

constexpr Nanoseconds kFreezeWait = 50 * kMillisecond;
constexpr Nanoseconds kTerminateWait = 2'000 * kMillisecond;
constexpr Nanoseconds kKillWait = 1'000 * kMillisecond;
constexpr std::size_t kMaxProcesses = 65'536;

constinit std::atomic<unsigned> frozen_threads{0};

// The other threads wait here for the end of the process.
void freeze(int) noexcept {
  frozen_threads.fetch_add(1, std::memory_order_acq_rel);
  for (;;) pause();
}

void freeze_other_threads() noexcept {
  // Few programs block or use this signal; those that block all signals do not monitor child processes.
  const int number = SIGRTMAX - 1;
  struct sigaction action {};
  action.sa_handler = &freeze;
  sigfillset(&action.sa_mask);
  if (sigaction(number, &action, nullptr) != 0) return;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  const pid_t process = getpid();
  // Twice, because a thread may have been created in the meantime.
  for (int round = 0; round < 2; ++round) {
    unsigned told = 0;
    for_each_number("/proc/self/task", [&](pid_t thread) {
      if (thread != self && syscall(SYS_tgkill, process, thread, number) == 0) ++told;
    });
    // Our own threads, and some of the driver's, block all signals and are not waited for beyond this.
    const Nanoseconds deadline = now() + kFreezeWait;
    while (frozen_threads.load(std::memory_order_acquire) < told && now() < deadline) sleep_for(kMillisecond);
  }
}

void terminate_descendants() noexcept {
  // Grandchildren whose parent ends before them become our children, and are found again.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const Nanoseconds begin = now();
  Nanoseconds told_at = 0;
  for (;;) {
    const Descendants left;
    const Nanoseconds time = now();
    if (left.size() == 0 || time - begin > kTerminateWait + kKillWait) return;
    const bool patient = time - begin < kTerminateWait;
    // Again twice a second, because a process may be forked between two scans.
    if (!patient || told_at == 0 || time - told_at > 500 * kMillisecond) {
      told_at = time;
      for (const ProcessInfo& process : left) kill(process.pid, patient ? SIGTERM : SIGKILL);
      // Stopped processes receive SIGTERM when they continue.
      if (patient) {
        for (const ProcessInfo& process : left) kill(process.pid, SIGCONT);
      }
    }
    sleep_for(5 * kMillisecond);
  }
}

}  // namespace

bool read_process(pid_t pid, ProcessInfo& info) noexcept {
  std::array<char, 64> path;
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", static_cast<int>(pid));
  std::array<char, 1024> room;
  const std::optional<TaskStat> stat = parse_task_stat(read_text(path.data(), room));
  if (!stat) return false;
  info = {pid, stat->parent, stat->session, stat->start, stat->running()};
  return true;
}

Descendants::Descendants() noexcept {
  if (!proc_is_ours()) return;
  void* room = mmap(nullptr, kMaxProcesses * sizeof(ProcessInfo), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return;
  processes_ = static_cast<ProcessInfo*>(room);
  std::size_t all = 0;
  for_each_number("/proc", [&](pid_t pid) {
    if (all < kMaxProcesses && read_process(pid, processes_[all])) ++all;
  });
  // Moves those found to the front, generation by generation.
  const pid_t self = getpid();
  const pid_t session = getsid(0);
  const auto take = [&](pid_t parent) {
    for (std::size_t i = count_; i < all; ++i) {
      if (processes_[i].parent != parent || processes_[i].session != session || processes_[i].pid == self ||
          processes_[i].pid <= 1)
        continue;
      std::swap(processes_[i], processes_[count_]);
      ++count_;
    }
  };
  take(self);
  for (std::size_t i = 0; i < count_; ++i) take(processes_[i].pid);
  std::size_t running = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    if (processes_[i].running) processes_[running++] = processes_[i];
  }
  count_ = running;
}

Descendants::~Descendants() {
  if (processes_ != nullptr) munmap(processes_, kMaxProcesses * sizeof(ProcessInfo));
}

bool end_descendants() noexcept {
  if (!proc_is_ours()) {
    siginfo_t child{};
    return waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 && errno == ECHILD;
  }
  if (Descendants().size() == 0) return true;
  freeze_other_threads();
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &plain, nullptr);
  terminate_descendants();
  return true;
}

}  // namespace inject
