// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>

#include "libinject/base/clock.h"
#include "libinject/base/time.h"

namespace inject {

/// While one exists, its thread is working on output files, which may take any time: a server does not
/// respond, a disk is slow. A thread that waits for it can see that, and how many files are done.
class FileWork {
  class Account {
   public:
    void begin() noexcept {
      if (depth_.fetch_add(1, std::memory_order_relaxed) == 0) since_.store(now(), std::memory_order_relaxed);
    }
    void end() noexcept {
      if (depth_.fetch_sub(1, std::memory_order_relaxed) == 1) since_.store(0, std::memory_order_relaxed);
    }
    bool lasts(Nanoseconds longer_than) const noexcept {
      const Nanoseconds begin = since_.load(std::memory_order_relaxed);
      return begin != 0 && now() - begin >= longer_than;
    }

   private:
    std::atomic<int> depth_;
    std::atomic<Nanoseconds> since_;
  };

 public:
  FileWork() noexcept : account_(nobody_waits ? aside : waited_for) { account_.begin(); }
  ~FileWork() { account_.end(); }
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;

  /// The calling thread does nothing else: nobody waits for it until the last files are written.
  static void on_thread_of_its_own() noexcept { nobody_waits = true; }

  static bool lasts(Nanoseconds longer_than = 0) noexcept {
    return keeps_waiting(longer_than) || aside.lasts(longer_than);
  }
  /// The same, counting only threads that have other things to do.
  static bool keeps_waiting(Nanoseconds longer_than) noexcept { return waited_for.lasts(longer_than); }

  /// How many files the latest write consists of, and how many of them are in place.
  static void begin_files(unsigned count) noexcept {
    done.store(0, std::memory_order_relaxed);
    total.store(count, std::memory_order_relaxed);
  }
  static void file_done() noexcept { done.fetch_add(1, std::memory_order_relaxed); }
  static unsigned files_done() noexcept { return done.load(std::memory_order_relaxed); }
  static unsigned files() noexcept { return total.load(std::memory_order_relaxed); }

 private:
  Account& account_;
  static constinit inline Account waited_for;
  static constinit inline Account aside;
  static constinit inline thread_local bool nobody_waits = false;
  static constinit inline std::atomic<unsigned> done{0};
  static constinit inline std::atomic<unsigned> total{0};
};

}  // namespace inject
