// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/shutdown/process_tree.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"

namespace inject {

namespace {

constexpr Nanoseconds kFreezeWait = 50 * kMillisecond;
constexpr Nanoseconds kTerminateWait = 2'000 * kMillisecond;
constexpr Nanoseconds kKillWait = 1'000 * kMillisecond;
constexpr std::size_t kMaxProcesses = 65'536;

constinit std::atomic<unsigned> frozen_threads{0};

void sleep_for(Nanoseconds time) noexcept {
  const timespec pause{0, static_cast<long>(time)};
  nanosleep(&pause, nullptr);
}

/// Calls `use` with every number among the names in a folder of /proc. System calls alone: while the
/// program's threads are stopped, one of them may hold the lock of malloc.
template <typename Use>
void for_each_number(const char* path, Use&& use) noexcept {
  const int folder = open_file(path, O_RDONLY | O_DIRECTORY);
  if (folder < 0) return;
  alignas(8) std::array<char, 8192> part;
  for (;;) {
    const long n = syscall(SYS_getdents64, folder, part.data(), part.size());
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
  close(folder);
}

// The other threads wait here for the end of the process.
void freeze(int) noexcept {
  frozen_threads.fetch_add(1, std::memory_order_acq_rel);
  for (;;) pause();
}

void freeze_other_threads() noexcept {
  // Few programs block or use it; those that block everything do not look after child processes.
  const int number = SIGRTMAX - 1;
  struct sigaction action {};
  action.sa_handler = &freeze;
  sigfillset(&action.sa_mask);
  if (sigaction(number, &action, nullptr) != 0) return;
  const auto self = static_cast<pid_t>(syscall(SYS_gettid));
  const pid_t process = getpid();
  // Twice: a thread may have been made meanwhile.
  for (int round = 0; round < 2; ++round) {
    unsigned told = 0;
    for_each_number("/proc/self/task", [&](pid_t thread) {
      if (thread != self && syscall(SYS_tgkill, process, thread, number) == 0) ++told;
    });
    // Our own threads, and some of the driver's, block all signals and are not waited for any longer than
    // this.
    const Nanoseconds deadline = now() + kFreezeWait;
    while (frozen_threads.load(std::memory_order_acquire) < told && now() < deadline) sleep_for(kMillisecond);
  }
}

void terminate_descendants() noexcept {
  // Grandchildren whose parent ends before them become children of ours, and are found again.
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const Nanoseconds begin = now();
  Nanoseconds told_at = 0;
  for (;;) {
    const Descendants left;
    const Nanoseconds time = now();
    if (left.size() == 0 || time - begin > kTerminateWait + kKillWait) return;
    const bool patient = time - begin < kTerminateWait;
    // Again twice a second: a process may be forked between two looks.
    if (!patient || told_at == 0 || time - told_at > 500 * kMillisecond) {
      told_at = time;
      for (const ProcessInfo& process : left) kill(process.pid, patient ? SIGTERM : SIGKILL);
      // Stopped processes take SIGTERM when they go on.
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
  const int file = open_file(path.data(), O_RDONLY);
  if (file < 0) return false;
  std::array<char, 1024> text;
  const ssize_t n = read(file, text.data(), text.size() - 1);
  close(file);
  if (n <= 0) return false;
  text[static_cast<std::size_t>(n)] = 0;
  // PID (NAME) STATE PARENT GROUP SESSION …, the 22nd is the start; a name may hold anything.
  const std::size_t name_end = std::string_view(text.data()).rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= static_cast<std::size_t>(n)) return false;
  const char* at = text.data() + name_end + 2;
  const char state = *at;
  std::array<std::uint64_t, 20> fields{};
  at += 1;
  for (std::uint64_t& field : fields) {
    char* next = nullptr;
    field = std::strtoull(at, &next, 10);
    if (next == at) break;
    at = next;
  }
  info.pid = pid;
  info.parent = static_cast<pid_t>(fields[0]);
  info.session = static_cast<pid_t>(fields[2]);
  info.start = fields[18];
  info.running = state != 'Z' && state != 'X' && state != 'x';
  return true;
}

Descendants::Descendants() noexcept {
  void* room = mmap(nullptr, kMaxProcesses * sizeof(ProcessInfo), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return;
  processes_ = static_cast<ProcessInfo*>(room);
  std::size_t all = 0;
  for_each_number("/proc", [&](pid_t pid) {
    if (all < kMaxProcesses && read_process(pid, processes_[all])) ++all;
  });
  // Those found come to the front, generation by generation.
  const pid_t self = getpid();
  const pid_t session = getsid(0);
  const auto take = [&](pid_t parent) {
    for (std::size_t i = count_; i < all; ++i) {
      if (processes_[i].parent != parent || processes_[i].session != session || processes_[i].pid == self)
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

void end_descendants() noexcept {
  if (Descendants().size() == 0) return;
  freeze_other_threads();
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &plain, nullptr);
  terminate_descendants();
}

}  // namespace inject
