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

/// Work on the files of a folder that may be slow or never respond: another thread does it, in order, and
/// the caller does not wait.
class FileQueue {
 public:
  using Job = std::function<void()>;  ///< must not throw
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20;

  /// `wake` makes that thread call run(); false if the thread can't be started.
  explicit FileQueue(std::function<bool()> wake) : wake_(std::move(wake)) {}
  FileQueue(const FileQueue&) = delete;
  FileQueue& operator=(const FileQueue&) = delete;

  /// Adds a job, which holds `bytes` bytes until it has run. Then run() calls `done`, which may block, after
  /// its turn; finish() does not call it. False if nothing happens until somebody calls run().
  bool add(std::size_t bytes, Job job, Job done = nullptr);
  /// False if jobs hold kMaxBytes: drop what you can. A patient queue makes room instead.
  bool has_room() {
    if (bytes_.load(std::memory_order_relaxed) < kMaxBytes) return true;
    if (!patient_.load(std::memory_order_relaxed)) return false;
    static_cast<void>(finish());
    return true;
  }
  /// From now on, has_room() waits: nothing is dropped any more.
  void be_patient() noexcept { patient_.store(true, std::memory_order_relaxed); }
  /// Runs the waiting jobs, one thread at a time.
  void run();
  /// Waits for the running job. No other job runs until the lock is released.
  [[nodiscard]] std::unique_lock<std::mutex> stop() { return std::unique_lock(running_); }
  /// The same, after all jobs have run.
  [[nodiscard]] std::unique_lock<std::mutex> finish();

 private:
  struct Waiting {
    std::size_t bytes;
    Job job;
    Job done;
  };
  bool run_next(Job& done);

  const std::function<bool()> wake_;
  std::mutex running_;  // held while a job runs
  Mutex mutex_;
  std::deque<Waiting> jobs_ INJECT_GUARDED_BY(mutex_);
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> patient_{false};
};

}  // namespace inject
