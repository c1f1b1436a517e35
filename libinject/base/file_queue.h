// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "libinject/base/mutex.h"

namespace inject {

/// Work on the files of a folder, which may be slow or never answer: another thread does it, in order, and
/// whoever asks for it goes on.
class FileQueue {
 public:
  using Job = std::function<void()>;  ///< must not throw
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20;

  /// `wake` has run() called by that thread; false where it can't be started.
  explicit FileQueue(std::function<bool()> wake) : wake_(std::move(wake)) {}
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  /// Another job, which holds so many bytes until it is done. False: it waits until somebody calls run().
  bool add(std::size_t bytes, Job job);
  /// Jobs hold less than kMaxBytes: who can leave something out looks here first.
  bool has_room() const noexcept { return bytes_.load(std::memory_order_relaxed) < kMaxBytes; }
  /// Does what there is, after what another thread is at.
  void run();
  /// No thread does anything from here on, after what it is at, until the lock is given back.
  [[nodiscard]] std::unique_lock<std::mutex> stop() { return std::unique_lock(running_); }
  /// The same, with everything done that there is.
  [[nodiscard]] std::unique_lock<std::mutex> finish();

 private:
  struct Waiting {
    std::size_t bytes;
    Job job;
  };
  void run_all();

  const std::function<bool()> wake_;
  std::mutex running_;  // whoever does jobs
  Mutex mutex_;
  std::deque<Waiting> jobs_ INJECT_GUARDED_BY(mutex_);
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace inject
