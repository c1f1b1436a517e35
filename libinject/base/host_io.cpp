// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/host_io.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "libinject/base/caller_state.h"
#include "libinject/base/clock.h"

namespace inject {

namespace {

constexpr Nanoseconds kMaxWrite = kSecond;
constexpr std::size_t kPage = 4096;

constinit std::atomic<bool> started_without_stderr{false};
// A file with which the program was started; set when the library is loaded.
struct StandardFile {
  dev_t device = 0;
  ino_t inode = 0;
};
constinit StandardFile first_stdin;
constinit StandardFile first_stdout;
constinit StandardFile first_stderr;
// Waiting for a message to be written has timed out: the next ones are written only if there is room at once.
constinit std::atomic<bool> waited_in_vain{false};

/// Determines which file is open as `descriptor`. Does not query the server of a network file system, which
/// may take long, or return an error although the file is ours and has to be closed. fstat() always queries
/// it.
bool identify(int descriptor, dev_t& device, ino_t& inode) noexcept {
  struct statx known {};
  if (statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &known) == 0) {
    device = makedev(known.stx_dev_major, known.stx_dev_minor);
    inode = known.stx_ino;
    return true;
  }
  if (errno == EBADF) return false;
  struct stat found {};  // for a kernel before 4.11, or with a system call filter
  if (fstat(descriptor, &found) != 0) return false;
  device = found.st_dev;
  inode = found.st_ino;
  return true;
}

bool is_other_file(int descriptor, const StandardFile& first) noexcept {
  StandardFile now;
  if (!identify(descriptor, now.device, now.inode)) return false;
  if (now.device == first.device && now.inode == first.inode) return false;
  struct stat file {};
  return fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode);
}

/// True if the program has closed its standard descriptors, and files that it opened since have their
/// numbers: all three are regular files. A stderr that it has redirected is a log, which is opened for
/// appending or also has stdout; a daemon's stdin is /dev/null.
bool stderr_is_another_file() noexcept {
  if (!is_other_file(STDERR_FILENO, first_stderr) || !is_other_file(STDIN_FILENO, first_stdin) ||
      !is_other_file(STDOUT_FILENO, first_stdout))
    return false;
  const int flags = ::fcntl(STDERR_FILENO, F_GETFL);
  StandardFile out;
  StandardFile err;
  const bool shared = identify(STDOUT_FILENO, out.device, out.inode) &&
                      identify(STDERR_FILENO, err.device, err.inode) && out.device == err.device &&
                      out.inode == err.inode;
  return flags >= 0 && (flags & O_APPEND) == 0 && !shared;
}

}  // namespace

int open_file(const char* path, int flags, mode_t mode) noexcept {
  return open_file_at(AT_FDCWD, path, flags, mode);
}

int open_file_at(int folder, const char* path, int flags, mode_t mode) noexcept {
  const StandardDescriptors standard;
  int descriptor = -1;
  for (int tries = 0; tries < kMaxTries; ++tries) {
    descriptor = ::openat(folder, path, flags | O_CLOEXEC, mode);
    if (descriptor >= 0 || errno != EINTR) break;
  }
  return above_standard(descriptor);
}

int allocate_file(int descriptor, std::size_t bytes) noexcept {
  int failed = EINTR;
  for (int tries = 0; failed == EINTR && tries < kMaxTries; ++tries)
    failed = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  return failed;
}

StandardDescriptors::StandardDescriptors() noexcept {
  const int saved_errno = errno;
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) >= 0) continue;
    const int place = ::open("/", O_PATH | O_CLOEXEC);
    held_[static_cast<std::size_t>(number)] = place == number;
    if (place >= 0 && place != number) ::close(place);  // taken by another thread in the meantime
  }
  errno = saved_errno;
}

StandardDescriptors::~StandardDescriptors() {
  const int saved_errno = errno;
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (!held_[static_cast<std::size_t>(number)]) continue;
    // The program may have closed it, or opened another file in its place.
    const int flags = ::fcntl(number, F_GETFL);
    if (flags >= 0 && (flags & O_PATH) != 0) ::close(number);
  }
  errno = saved_errno;
}

int above_standard(int descriptor) noexcept {
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
  for (int tries = 0; tries < kMaxTries; ++tries) {
    if (sigtimedwait(&ours_, nullptr, &none) <= 0 && errno != EINTR) break;
  }
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  errno = saved_errno;
}

void note_stderr() noexcept {
  const int saved_errno = errno;
  if (::fcntl(STDERR_FILENO, F_GETFD) < 0) started_without_stderr.store(true, std::memory_order_relaxed);
  identify(STDIN_FILENO, first_stdin.device, first_stdin.inode);
  identify(STDOUT_FILENO, first_stdout.device, first_stdout.inode);
  identify(STDERR_FILENO, first_stderr.device, first_stderr.inode);
  errno = saved_errno;
}

void write_quietly(int descriptor, std::string_view text) noexcept {
  // The descriptor may by now be any file of the program.
  if (descriptor == STDERR_FILENO && started_without_stderr.load(std::memory_order_relaxed)) return;
  const CallerState caller;
  if (descriptor == STDERR_FILENO && stderr_is_another_file()) return;
  const QuietSignals quiet;
  const Nanoseconds begin = now();
  const Nanoseconds patience = waited_in_vain.load(std::memory_order_relaxed) ? 0 : kMaxWrite;
  while (!text.empty()) {
    const Nanoseconds spent = now() - begin;
    const Nanoseconds left = spent < patience ? patience - spent : 0;
    pollfd room{descriptor, POLLOUT, 0};
    const int ready = poll(&room, 1, static_cast<int>((left + kMillisecond - 1) / kMillisecond));
    if (ready < 0 && errno == EINTR && left != 0) continue;
    if (ready == 0) break;
    if (ready < 0 || (room.revents & POLLOUT) == 0) return;
    // In a pipe, poll promises room for one page. Write whole lines, if they fit.
    std::size_t length = std::min(text.size(), kPage);
    if (length < text.size()) {
      const std::size_t line = text.rfind('\n', length - 1);
      if (line != std::string_view::npos) length = line + 1;
    }
    const ssize_t n = ::write(descriptor, text.data(), length);
    if (n > 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (left == 0) break;
    } else {
      return;
    }
  }
  waited_in_vain.store(!text.empty(), std::memory_order_relaxed);
}

Descriptor::Descriptor(int number) noexcept {
  if (number >= 0 && identify(number, device_, inode_)) number_ = number;
}

int Descriptor::get() const noexcept {
  dev_t device = 0;
  ino_t inode = 0;
  if (number_ >= 0 && !identify(number_, device, inode)) return -1;  // errno says why
  if (number_ >= 0 && device == device_ && inode == inode_) return number_;
  errno = EBADF;
  return -1;
}

}  // namespace inject
