// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// std::mutex with Clang's thread-safety annotations: data for which INJECT_GUARDED_BY names a lock can't be
// accessed without it. The linter checks that (-Wthread-safety); other compilers see plain locks.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "libinject/base/lock_within.h"
#include "libinject/base/time.h"

#if defined(__clang__)
#define INJECT_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define INJECT_THREAD_ANNOTATION(x)
#endif
#define INJECT_GUARDED_BY(x) INJECT_THREAD_ANNOTATION(guarded_by(x))
#define INJECT_REQUIRES(...) INJECT_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define INJECT_EXCLUDES(...) INJECT_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
/// For functions that take a lock conditionally, or release it for a while: the analysis does not follow
/// those.
#define INJECT_NO_THREAD_ANALYSIS INJECT_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace inject {

class INJECT_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() INJECT_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() INJECT_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  /// False if it is not free within `most`.
  bool try_lock_within(Nanoseconds most) noexcept INJECT_THREAD_ANNOTATION(try_acquire_capability(true)) {
    std::unique_lock lock = lock_within(mutex_, most);
    const bool held = lock.owns_lock();
    lock.release();
    return held;
  }
  std::mutex& native() noexcept { return mutex_; }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for its lifetime.
class INJECT_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) INJECT_THREAD_ANNOTATION(acquire_capability(mutex))
      : lock_(mutex.native()) {}
  /// Takes over a Mutex that is locked already.
  MutexLock(Mutex& mutex, std::adopt_lock_t) INJECT_REQUIRES(mutex)
      : lock_(mutex.native(), std::adopt_lock) {}
  ~MutexLock() INJECT_THREAD_ANNOTATION(release_capability()) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() INJECT_THREAD_ANNOTATION(acquire_capability()) { lock_.lock(); }
  void unlock() INJECT_THREAD_ANNOTATION(release_capability()) { lock_.unlock(); }

  template <typename Predicate>
  void wait(std::condition_variable& condition, Predicate done) {
    condition.wait(lock_, done);
  }
  std::cv_status wait_for(std::condition_variable& condition, Nanoseconds most) {
    return condition.wait_for(lock_, std::chrono::nanoseconds(most));
  }
  template <typename Predicate>
  bool wait_for(std::condition_variable& condition, Nanoseconds most, Predicate done) {
    return condition.wait_for(lock_, std::chrono::nanoseconds(most), done);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace inject
