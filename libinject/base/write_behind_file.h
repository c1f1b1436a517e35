// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "libinject/base/atomic_file.h"
#include "libinject/base/file_queue.h"

namespace inject {

/// A file that grows row by row. With a FileQueue, its thread writes and callers do not wait; a failure is
/// then reported later. The first failure closes the file. For one thread in addition to the queue's; both
/// have all signals blocked (OutputFile).
class WriteBehindFile {
 public:
  /// Reports a failure by OutputFile::fail().
  using Step = std::function<void(OutputFile&)>;

  /// Call before open(). Null: writes are synchronous.
  void write_behind(FileQueue* queue) { queue_ = queue; }
  /// Call before open(). `tidy` is called once, by the thread on which the file fails, and with
  /// the file still open.
  void on_failure(std::function<void(const OutputFile&)> tidy) { on_failure_ = std::move(tidy); }
  /// Synchronous, with a queue or without.
  bool open(std::string path, OutputFile::Existing existing);
  bool was_opened() const { return open_; }
  /// True if it is open, and has not failed.
  bool is_open() const { return open_ && !closed_ && !failed(); }
  /// False if the disk is too far behind: rows then have to be dropped.
  bool has_room() { return queue_ == nullptr || queue_->has_room(); }

  std::string& buffer() { return buffer_; }
  /// Ends a row, as counted by rows_lost().
  void end_row() {
    ++rows_;
    write_if_full();
  }
  void write_if_full() {
    if (buffer_.size() >= kBufferBytes) flush();
  }
  /// False if it has failed.
  bool flush();
  /// Further text is written at `bytes`.
  bool cut(std::uint64_t bytes);
  /// Runs `step` after everything flushed so far, even if the file has failed.
  bool then(Step step);
  /// Flushes; nothing can be added from here on.
  bool close();

  /// True if anything has failed since it was opened.
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// The first failure; empty if there was none.
  std::string error() const { return !open_ ? file_.error() : failed() ? error_ : std::string(); }
  /// Number of bytes flushed so far.
  std::uint64_t bytes() const noexcept { return bytes_; }
  /// Rows that were flushed, or would have been, but are not in the file.
  std::uint64_t rows_lost() const noexcept { return rows_lost_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kBufferBytes = 64 * 1024;

  void add(std::size_t bytes, FileQueue::Job job);
  void write(std::string& text, std::uint64_t rows) noexcept;
  void settle() noexcept;

  FileQueue* queue_ = nullptr;
  std::function<void(const OutputFile&)> on_failure_;
  std::string buffer_;
  std::uint64_t rows_ = 0;  // in it
  std::uint64_t bytes_ = 0;
  bool open_ = false;
  bool closed_ = false;
  OutputFile file_;    // touched only by jobs, once there is a queue
  std::string error_;  // set before failed_, constant after
  std::atomic<bool> failed_{false};
  std::atomic<std::uint64_t> rows_lost_{0};
};

}  // namespace inject
