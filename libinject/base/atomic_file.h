// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/base/host_io.h"

namespace inject {

/// An open file with a buffer in front of it. Every failure is remembered: later calls do nothing, and
/// error() returns the first failure. Writing past RLIMIT_FSIZE raises SIGXFSZ, which ends a process that
/// does not expect it: use this on threads that have all signals blocked or within QuietSignals, where the
/// write fails with EFBIG instead.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile() { close(); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  enum class Existing { kEmpty, kRefuse, kReplace, kOverwrite };
  /// Creates `path` for this user alone (safe_path.h). `existing`: what to do with a file of that name;
  /// kOverwrite keeps its length until cut().
  bool open(std::string path, Existing existing = Existing::kEmpty);
  bool is_open() const { return descriptor_.is_open(); }
  /// Text appended to buffer() is written when write_if_full() finds enough of it, and by flush().
  std::string& buffer() { return buffer_; }
  void write_if_full() {
    if (buffer_.size() >= kBufferBytes) flush();
  }
  /// True if the open file is the one that has this path.
  bool is_at(const std::string& path) const noexcept;
  /// False if none of the buffer's contents are in the file.
  bool flush();
  /// Makes the file readable for other users, whatever the umask.
  bool let_others_read();
  /// Flushes and waits until the data is on the device.
  bool sync();
  /// Truncates the file to `bytes`: the next text is written there.
  bool cut(std::uint64_t bytes);
  bool close();
  /// Marks the file as failed, for a reason given by the caller. Returns false.
  bool fail(std::string problem) noexcept;

  const std::string& error() const { return error_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kBufferBytes = 64 * 1024;
  bool cannot(std::string_view action, int code);
  bool cannot(std::string_view action, const std::string& reason);

  Descriptor descriptor_;
  std::string path_;
  std::string buffer_;
  std::string error_;
  std::uint64_t bytes_ = 0;
};

/// A file that appears completely or not at all: written beside its place, synced, then renamed. Until then,
/// the previous file stays.
class AtomicFile {
 public:
  AtomicFile(const std::string& folder, std::string_view name);
  /// Uses a temporary name given by the caller, in the same folder: if several processes may write `name`.
  AtomicFile(const std::string& folder, std::string_view name, std::string_view temporary);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  OutputFile& file() { return file_; }
  /// Everything has been appended: makes it durable. False on failure: see error().
  bool finish();
  /// Puts the finished file in its place.
  bool commit() noexcept;
  const std::string& error() const { return error_.empty() ? file_.error() : error_; }

 private:
  std::string path_;
  std::string temporary_;
  OutputFile file_;
  std::string error_;
  bool finished_ = false;
  bool committed_ = false;
};

}  // namespace inject
