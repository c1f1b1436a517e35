// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <condition_variable>
#include <functional>

#include "libinject/base/mutex.h"

namespace inject {

/// The thread that puts files into the output folder, which may be slow, or never answer: windows open and
/// end meanwhile. It is there only while files are written every few seconds.
class FileThread {
 public:
  FileThread() noexcept = default;
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  /// Has `work`, which must not throw, done by the thread, after what it is at. False, and nothing is done:
  /// the thread can't be started, or something else waits for it already.
  bool start(std::function<void()> work) noexcept;

 private:
  static void* entry(void* self) noexcept;
  void run();

  Mutex mutex_;
  std::condition_variable wake_;
  std::function<void()> work_ INJECT_GUARDED_BY(mutex_);
  bool running_ INJECT_GUARDED_BY(mutex_) = false;
};

}  // namespace inject
