// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/capture/cupti/tracer.h"

namespace inject {

/// Whether the sampling thread has to leave CUPTI, which it checks between calls. Any thread requests it;
/// begin() and what depends on it are used only by the sampling thread.
class SamplingStop {
 public:
  void request() noexcept { requests_.fetch_add(1, std::memory_order_release); }
  /// Number of requests so far.
  std::uint64_t requests() const noexcept { return requests_.load(); }
  /// One of our calls has not returned while the program finalizes CUPTI: once it does, nothing more is
  /// called, and its results are not touched.
  void abandon(bool abandoned) noexcept { abandoned_ = abandoned; }
  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_acquire); }

  /// Earlier requests and failures no longer count.
  void begin() noexcept {
    followed_ = requests_.load();
    failures_before_ = Tracer::failures();
    abandoned_ = false;
  }
  bool requested() const noexcept { return requests_.load(std::memory_order_acquire) != followed_; }
  /// CUPTI gave up with an error since begin(): it has finalized itself, and must not be called any more,
  /// even if it has been attached again since.
  bool cupti_failed() const noexcept { return Tracer::failures() != failures_before_; }
  bool must_stop() const noexcept { return requested() || cupti_failed(); }

 private:
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<bool> abandoned_{false};
  std::uint64_t followed_ = 0;  // requests() when CUPTI was attached
  std::uint32_t failures_before_ = 0;
};

}  // namespace inject
