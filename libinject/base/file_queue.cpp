// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/file_queue.h"

namespace inject {

bool FileQueue::add(std::size_t bytes, Job job) {
  {
    const MutexLock lock(mutex_);
    jobs_.push_back({bytes, std::move(job)});
  }
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return wake_();
}

void FileQueue::run() {
  const std::lock_guard alone(running_);
  run_all();
}

std::unique_lock<std::mutex> FileQueue::finish() {
  std::unique_lock alone(running_);
  run_all();
  return alone;
}

void FileQueue::run_all() {
  for (;;) {
    Waiting next;
    {
      const MutexLock lock(mutex_);
      if (jobs_.empty()) return;
      next = std::move(jobs_.front());
      jobs_.pop_front();
    }
    next.job();
    bytes_.fetch_sub(next.bytes, std::memory_order_relaxed);
  }
}

}  // namespace inject
