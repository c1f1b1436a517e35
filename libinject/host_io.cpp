// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/host_io.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace inject {

namespace {

constinit std::atomic<bool> started_without_stderr{false};

}  // namespace

int open_file(const char* path, int flags, mode_t mode) noexcept {
  int descriptor;
  do {
    descriptor = ::open(path, flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int higher = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int saved_errno = errno;
  ::close(descriptor);
  errno = saved_errno;
  return higher;
}

QuietSignals::QuietSignals() noexcept {
  sigset_t blocked;
  sigset_t waiting;
  sigemptyset(&blocked);
  sigemptyset(&waiting);
  sigemptyset(&ours_);
  sigpending(&waiting);
  for (const int number : {SIGPIPE, SIGXFSZ}) {
    sigaddset(&blocked, number);
    if (sigismember(&waiting, number) == 0) sigaddset(&ours_, number);
  }
  pthread_sigmask(SIG_BLOCK, &blocked, &previous_);
}

QuietSignals::~QuietSignals() {
  const int saved_errno = errno;
  const timespec none{0, 0};
  while (sigtimedwait(&ours_, nullptr, &none) > 0 || errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  errno = saved_errno;
}

void note_stderr() noexcept {
  const int saved_errno = errno;
  if (::fcntl(STDERR_FILENO, F_GETFD) < 0) started_without_stderr.store(true, std::memory_order_relaxed);
  errno = saved_errno;
}

void write_quietly(int descriptor, std::string_view text) noexcept {
  // The descriptor may be any file of the program's by now.
  if (descriptor == STDERR_FILENO && started_without_stderr.load(std::memory_order_relaxed)) return;
  const int saved_errno = errno;
  const QuietSignals quiet;
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n > 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      break;
    }
  }
  errno = saved_errno;
}

}  // namespace inject
