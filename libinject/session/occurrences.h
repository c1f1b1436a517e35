// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/config/window_spec.h"

namespace inject {

/// `/EVERY` of the triggers that the program controls, `api` and `nvtx`: of the potential windows, the first
/// and every EVERYth after it, counted from start to start.
class Occurrences {
 public:
  explicit Occurrences(const WindowSpec& spec) noexcept : every_(spec.every) {}

  /// The program started one; a start inside another one changes nothing. True if it is to be a window.
  bool begin() noexcept {
    if (!inside_) {
      inside_ = true;
      chosen_ = every_ == 0 || count_ % every_ == 0;
      ++count_;
    }
    return chosen_;
  }
  void end() noexcept { inside_ = false; }
  bool inside() const noexcept { return inside_; }

 private:
  std::uint64_t every_;
  std::uint64_t count_ = 0;
  bool inside_ = false;
  bool chosen_ = false;
};

/// `/EVERY` of `signal`: a signal that finds no window open opens one if EVERY signals, including those that
/// closed a window, have arrived since the one that opened the last window.
class SignalCount {
 public:
  explicit SignalCount(const WindowSpec& spec) noexcept : every_(spec.every) {}

  /// A signal came while a window was open: it closes that one.
  void closing() noexcept { ++since_; }
  /// A signal came while none was open; true if it is to open one.
  bool opening() noexcept {
    if (started_ && since_ < every_) {
      ++since_;
      return false;
    }
    started_ = true;
    since_ = 1;
    return true;
  }

 private:
  std::uint64_t every_;
  std::uint64_t since_ = 0;  // the signal that opened the last window is the first
  bool started_ = false;
};

}  // namespace inject
