// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

#include "libinject/capture/cupti/tracer.h"

namespace inject {

/// Whether the sampling thread has to leave CUPTI: it looks here between two calls. Any thread asks it to;
/// begin() and what follows from it are the sampling thread's.
class SamplingStop {
 public:
  void ask() noexcept { asked_.fetch_add(1, std::memory_order_release); }
  /// How often it has been asked to.
  std::uint64_t times_asked() const noexcept { return asked_.load(); }
  /// A call of ours has not returned while the program finalizes CUPTI: nothing more is called once it does,
  /// and what it leaves is not touched.
  void abandon(bool abandoned) noexcept { abandoned_ = abandoned; }
  bool abandoned() const noexcept { return abandoned_.load(std::memory_order_acquire); }

  /// From here on: what was asked, and what failed, before does not count.
  void begin() noexcept {
    followed_ = asked_.load();
    failures_before_ = Tracer::failures();
    abandoned_ = false;
  }
  bool asked() const noexcept { return asked_.load(std::memory_order_acquire) != followed_; }
  /// CUPTI gave up with an error since begin(): it has finalized itself, and no more of it may be called.
  /// Also where it has been attached anew since.
  bool cupti_failed() const noexcept { return Tracer::failures() != failures_before_; }
  bool must_stop() const noexcept { return asked() || cupti_failed(); }

 private:
  std::atomic<std::uint64_t> asked_{0};
  std::atomic<bool> abandoned_{false};
  std::uint64_t followed_ = 0;  // asked_ when CUPTI was attached
  std::uint32_t failures_before_ = 0;
};

}  // namespace inject
