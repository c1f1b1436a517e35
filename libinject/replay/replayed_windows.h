// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/model/records.h"
#include "libinject/pipeline/window_log.h"

namespace inject::recovery {

/// Shown for a name that the process did not write down in time.
inline constexpr const char* kUnknown = "[not recovered]";

/// The windows of the process that was killed, as far as they are known, on their way into a log. Their
/// number and what is skipped is bounded: the file may be anybody's.
class ReplayedWindows {
 public:
  explicit ReplayedWindows(WindowLog& log) : log_(log) {}

  /// Those that are known by now, numbered from 1.
  std::size_t known() const { return windows_.size(); }
  /// From the journal; `begin` is 0 if the process did not know it. False: not something libinject writes.
  bool add(std::uint32_t number, Nanoseconds begin, std::string_view reason);
  bool add_end(std::uint32_t number, Nanoseconds end);

  /// Something of the first window ran at `time`, whatever calls of it are known. Of no window that is known.
  void first_begins(Nanoseconds time) { first_ = time; }
  /// Opens all up to `window` in the log. One that nothing is known of begins with `begin`. False: as above.
  bool open_until(std::uint32_t window, Nanoseconds begin);
  /// What follows the window was running at `time`.
  void over_by(std::uint32_t window, Nanoseconds time);
  /// Ends them in the log, up to the first whose end is not known.
  void end_until(std::uint32_t window);
  /// Ends all. What was still open ended with the process, `last`, or where the next one began.
  void end_all(Nanoseconds last);

 private:
  struct Window {
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
    std::string reason;
    bool without_times = false;  // the process did not know them
  };

  bool skip();

  WindowLog& log_;
  std::vector<Window> windows_;  // number - 1
  Nanoseconds first_ = ~Nanoseconds{0};
  std::uint32_t skipped_ = 0;
  std::uint32_t ended_ = 0;
};

}  // namespace inject::recovery
