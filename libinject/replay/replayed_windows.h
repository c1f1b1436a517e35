// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/base/time.h"
#include "libinject/pipeline/window_log.h"

namespace inject::recovery {

/// Shown for a name that the process did not record in time.
inline constexpr const char* kUnknown = "[not recovered]";

/// The windows of the killed process, as far as known, on their way into a log. The number of windows, and of
/// skipped ones, is bounded: the file is not trusted.
class ReplayedWindows {
 public:
  explicit ReplayedWindows(WindowLog& log) : log_(log) {}

  /// The windows known so far, numbered from 1.
  std::size_t known() const { return windows_.size(); }
  /// From the journal; `begin` is 0 if unknown to the process. False: not something that libinject writes.
  bool add(std::uint32_t number, Nanoseconds begin, std::string_view reason);
  bool add_end(std::uint32_t number, Nanoseconds end);

  /// Something of the first window ran at `time`, whichever of its calls are known. Ignored for windows
  /// already known.
  void first_begins(Nanoseconds time) { first_ = time; }
  /// Opens all windows up to `window` in the log. One about which nothing is known begins at `begin`. False:
  /// as above.
  bool open_until(std::uint32_t window, Nanoseconds begin);
  /// What follows the window was running at `time`.
  void over_by(std::uint32_t window, Nanoseconds time);
  /// Ends windows in the log, up to the first whose end is unknown.
  void end_until(std::uint32_t window);
  /// Ends all windows. One still open ended with the process, at `last`, or where the next one began.
  void end_all(Nanoseconds last);

 private:
  struct Window {
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
    std::string reason;
    bool without_times = false;  // they were unknown to the process
  };

  bool skip();

  WindowLog& log_;
  std::vector<Window> windows_;  // number - 1
  Nanoseconds first_ = ~Nanoseconds{0};
  std::uint32_t skipped_ = 0;
  std::uint32_t ended_ = 0;
};

}  // namespace inject::recovery
