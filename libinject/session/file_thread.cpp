// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/file_thread.h"

#include <utility>

#include "libinject/base/file_work.h"
#include "libinject/base/time.h"
#include "libinject/record/internal_thread.h"

namespace inject {

namespace {

// How long the thread waits for further work.
constexpr Nanoseconds kThreadLinger = 5 * kSecond;

}  // namespace

FileThread::~FileThread() {
  MutexLock lock(mutex_);
  ending_ = true;
  changed_.notify_all();
  lock.wait(changed_, [this]() INJECT_REQUIRES(mutex_) { return !running_; });
}

bool FileThread::wake() noexcept {
  const MutexLock lock(mutex_);
  if (!running_ && start_internal_thread(&entry, this) != 0) return false;
  running_ = woken_ = true;
  changed_.notify_all();
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
  const auto wanted = [this]() INJECT_REQUIRES(mutex_) { return woken_ || ending_; };
  while (lock.wait_for(changed_, kThreadLinger, wanted) && std::exchange(woken_, false)) {
    lock.unlock();
    work_();
    lock.lock();
  }
  running_ = false;
  changed_.notify_all();
}

}  // namespace inject
