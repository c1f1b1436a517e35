// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>

#include "libinject/base/clock.h"
#include "libinject/base/time.h"

namespace inject {

/// While it lives, this thread is at work on files of the output, which may take any time: a server does not
/// answer, a disk is slow. Whoever waits for that thread can tell, and how far it has come.
class FileWork {
 public:
  FileWork() noexcept {
    if (depth.fetch_add(1, std::memory_order_relaxed) == 0) since.store(now(), std::memory_order_relaxed);
  }
  ~FileWork() {
    if (depth.fetch_sub(1, std::memory_order_relaxed) == 1) since.store(0, std::memory_order_relaxed);
  }
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;

  static bool lasts(Nanoseconds longer_than = 0) noexcept {
    const Nanoseconds begin = since.load(std::memory_order_relaxed);
    return begin != 0 && now() - begin >= longer_than;
  }

  /// Of the files of the latest write, how many there are to be, and how many are in their place.
  static void begin_files(unsigned count) noexcept {
    done.store(0, std::memory_order_relaxed);
    total.store(count, std::memory_order_relaxed);
  }
  static void file_done() noexcept { done.fetch_add(1, std::memory_order_relaxed); }
  static unsigned files_done() noexcept { return done.load(std::memory_order_relaxed); }
  static unsigned files() noexcept { return total.load(std::memory_order_relaxed); }

 private:
  static constinit inline std::atomic<int> depth{0};
  static constinit inline std::atomic<Nanoseconds> since{0};
  static constinit inline std::atomic<unsigned> done{0};
  static constinit inline std::atomic<unsigned> total{0};
};

}  // namespace inject
