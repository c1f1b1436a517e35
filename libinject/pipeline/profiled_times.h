// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "libinject/base/mutex.h"
#include "libinject/base/time.h"

namespace inject {

/// The periods in which CUPTI slowed down the program: from when it is attached for a window until it has
/// been finalized or, if its launch callbacks are used to find iterations, until only these are left. Any
/// time before the latest kMost such periods counts as slowed down. Any thread.
class ProfiledTimes {
 public:
  static constexpr std::size_t kMost = 1024;

  /// begin() does nothing during such a period, and end() does nothing outside of one.
  void begin(Nanoseconds time) {
    const MutexLock lock(mutex_);
    if (!spans_.empty() && spans_.back().end == kOpen) return;
    if (spans_.size() == kMost) {
      known_from_ = spans_.front().end;
      spans_.pop_front();
    }
    spans_.push_back({time, kOpen});
  }
  void end(Nanoseconds time) {
    const MutexLock lock(mutex_);
    if (!spans_.empty() && spans_.back().end == kOpen) spans_.back().end = time;
  }

  bool going_on() const {
    const MutexLock lock(mutex_);
    return !spans_.empty() && spans_.back().end == kOpen;
  }
  /// Whether any such period overlaps [begin, end).
  bool overlap(Nanoseconds begin, Nanoseconds end) const {
    const MutexLock lock(mutex_);
    if (begin < known_from_) return true;
    const auto span = std::partition_point(spans_.begin(), spans_.end(),
                                           [begin](const Span& one) { return one.end <= begin; });
    return span != spans_.end() && span->begin < end;
  }

 private:
  static constexpr Nanoseconds kOpen = ~Nanoseconds{0};
  struct Span {
    Nanoseconds begin;
    Nanoseconds end;
  };

  mutable Mutex mutex_;
  std::deque<Span> spans_ INJECT_GUARDED_BY(mutex_);
  Nanoseconds known_from_ INJECT_GUARDED_BY(mutex_) = 0;
};

}  // namespace inject
