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

  /// Another job, which holds so many bytes until it is done. `done` is called after it by run(), and not by
  /// the others: it may take its time. False: it waits until somebody calls run().
  bool add(std::size_t bytes, Job job, Job done = nullptr);
  /// Who can leave something out looks here first: jobs hold less than kMaxBytes, or else are done now where
  /// there is time for it.
  bool has_room() {
    if (bytes_.load(std::memory_order_relaxed) < kMaxBytes) return true;
    if (!patient_.load(std::memory_order_relaxed)) return false;
    static_cast<void>(finish());
    return true;
  }
  /// Rather wait than leave something out: nothing else is held up any more.
  void be_patient() noexcept { patient_.store(true, std::memory_order_relaxed); }
  /// Does what there is, in turn with other threads.
  void run();
  /// No thread does anything from here on, after the job that it is at, until the lock is given back.
  [[nodiscard]] std::unique_lock<std::mutex> stop() { return std::unique_lock(running_); }
  /// The same, with everything done that there is.
  [[nodiscard]] std::unique_lock<std::mutex> finish();

 private:
  struct Waiting {
    std::size_t bytes;
    Job job;
    Job done;
  };
  bool run_next(Job& done);

  const std::function<bool()> wake_;
  std::mutex running_;  // whoever does jobs
  Mutex mutex_;
  std::deque<Waiting> jobs_ INJECT_GUARDED_BY(mutex_);
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> patient_{false};
};

}  // namespace inject
