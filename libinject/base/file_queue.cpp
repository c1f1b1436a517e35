// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/file_queue.h"

namespace inject {

bool FileQueue::add(std::size_t bytes, Job job, Job done) {
  {
    const MutexLock lock(mutex_);
    jobs_.push_back({bytes, std::move(job), std::move(done)});
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }
  return wake_();
}

void FileQueue::run() {
  for (;;) {
    Job done;
    {
      const std::lock_guard alone(running_);
      if (!run_next(done)) return;
    }
    if (done) done();
  }
}

std::unique_lock<std::mutex> FileQueue::finish() {
  std::unique_lock alone(running_);
  for (Job done; run_next(done);) {
  }
  return alone;
}

bool FileQueue::run_next(Job& done) {
  Waiting next;
  {
    const MutexLock lock(mutex_);
    if (jobs_.empty()) return false;
    next = std::move(jobs_.front());
    jobs_.pop_front();
  }
  next.job();
  bytes_.fetch_sub(next.bytes, std::memory_order_relaxed);
  done = std::move(next.done);
  return true;
}

}  // namespace inject
