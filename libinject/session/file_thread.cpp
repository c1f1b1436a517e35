// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/file_thread.h"

#include <utility>

#include "libinject/base/file_work.h"
#include "libinject/base/time.h"
#include "libinject/record/internal_thread.h"

namespace inject {

namespace {

// The thread stays this long for the next files.
constexpr Nanoseconds kLinger = 5 * kSecond;

}  // namespace

bool FileThread::start(std::function<void()> work) noexcept {
  const MutexLock lock(mutex_);
  if (work_ != nullptr) return false;
  if (!running_ && start_internal_thread(&entry, this) != 0) return false;
  running_ = true;
  work_ = std::move(work);
  wake_.notify_one();
  return true;
}

void* FileThread::entry(void* self) noexcept {
  enter_internal_thread();
  FileWork::on_thread_of_its_own();
  static_cast<FileThread*>(self)->run();
  return nullptr;
}

void FileThread::run() {
  MutexLock lock(mutex_);
  while (lock.wait_for(wake_, kLinger, [this]() INJECT_REQUIRES(mutex_) { return work_ != nullptr; })) {
    const std::function<void()> work = std::exchange(work_, nullptr);
    lock.unlock();
    work();
    lock.lock();
  }
  running_ = false;
}

}  // namespace inject
