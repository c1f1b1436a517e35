// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <condition_variable>
#include <functional>
#include <utility>

#include "libinject/base/mutex.h"

namespace inject {

/// The thread that puts files into the output folder, which may be slow or never respond, while windows open
/// and end. It exists only while there is something to do.
class FileThread {
 public:
  /// `work` is called each time the thread is woken, and must not throw.
  explicit FileThread(std::function<void()> work) : work_(std::move(work)) {}
  /// Waits for the thread.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  /// Any thread. False if the thread can't be started.
  bool wake() noexcept;

 private:
  static void* entry(void* self) noexcept;
  void run();

  const std::function<void()> work_;
  Mutex mutex_;
  std::condition_variable changed_;
  bool woken_ INJECT_GUARDED_BY(mutex_) = false;
  bool running_ INJECT_GUARDED_BY(mutex_) = false;
  bool ending_ INJECT_GUARDED_BY(mutex_) = false;
};

}  // namespace inject
