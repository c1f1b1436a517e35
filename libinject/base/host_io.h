// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Files and signals inside the program's process.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string_view>

namespace inject {

/// How often an interrupted system call is made: a system call filter that returns EINTR does so every time.
inline constexpr int kMaxTries = 64;

/// open() with close-on-exec, repeated on EINTR (kMaxTries), and never as descriptor 0, 1 or 2: a program
/// that was started without them must find them closed, and its output must not end up in our files. -1 and
/// errno on failure.
int open_file(const char* path, int flags, mode_t mode = 0600) noexcept;
/// The same with a path relative to the folder open as `folder`.
int open_file_at(int folder, const char* path, int flags, mode_t mode = 0600) noexcept;

/// posix_fallocate() from the file's beginning, repeated on EINTR (kMaxTries). Returns 0, or an error number.
/// If the file system does not support it, the C library writes to every block.
int allocate_file(int descriptor, std::size_t bytes) noexcept;

/// While one exists, newly opened files get descriptors above 2. If the program has closed descriptor 0, 1 or
/// 2, a file that can't be read or written holds its place: the program's attempts fail with EBADF, as they
/// do without us. (A file that is opened there and then moved would briefly be the program's stdout.)
class StandardDescriptors {
 public:
  StandardDescriptors() noexcept;
  ~StandardDescriptors();
  StandardDescriptors(const StandardDescriptors&) = delete;
  StandardDescriptors& operator=(const StandardDescriptors&) = delete;

 private:
  std::array<bool, 3> held_{};
};

/// `descriptor`, or, if it is 0, 1 or 2, the same file under a higher number; -1 and errno on failure.
int above_standard(int descriptor) noexcept;

/// A descriptor of a file that stays open, verified before each use: a program that closes all descriptors
/// may have reused the number for a file of its own.
class Descriptor {
 public:
  Descriptor() = default;
  /// `number` as returned by open_file().
  explicit Descriptor(int number) noexcept;
  bool is_open() const noexcept { return number_ >= 0; }
  /// The number, or -1 and errno: EBADF if it is no longer the file that it was.
  int get() const noexcept;

 private:
  int number_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

/// While it exists, a write by this thread that hits a closed pipe or RLIMIT_FSIZE is an error of that write,
/// not a signal to the program.
class QuietSignals {
 public:
  QuietSignals() noexcept;
  ~QuietSignals();
  QuietSignals(const QuietSignals&) = delete;
  QuietSignals& operator=(const QuietSignals&) = delete;

 private:
  sigset_t previous_;
  sigset_t ours_;  // to be consumed: not pending before
};

/// Records with which stderr the program was started, if any, before it can open anything else in its place.
void note_stderr() noexcept;

/// Writes `text`, without raising a signal; writes nothing if the program was started without stderr, or has
/// reused its number for a file of its own. Takes a second at most: what does not fit into a pipe that nobody
/// reads is dropped.
void write_quietly(int descriptor, std::string_view text) noexcept;

}  // namespace inject
