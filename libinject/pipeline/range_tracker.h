// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "libinject/model/events.h"
#include "libinject/model/records.h"
#include "libinject/record/range_tree.h"

namespace inject {

/// Puts the edges of NVTX ranges together to ranges, window by window, on the drain thread. What began before
/// its window opened or was open when it closed is cut at the window's edge and marked as clipped. A range
/// that was open all the window long is known only if the thread did something in it (a launch or another
/// range).
class RangeTracker {
 public:
  using Emit = std::function<void(const RangeEvent&)>;
  /// Begin and end of a window; the end may be 0 while it is open.
  struct Span {
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
  };
  using WindowSpan = std::function<Span(std::uint32_t window)>;

  RangeTracker(const RangeTree& tree, WindowSpan windows, Emit emit);

  void edge(std::uint32_t thread, const RangeRecord& record);
  /// A launch or call of `thread` in `window` had the NVTX context `node`.
  void context(std::uint32_t thread, std::uint32_t window, std::uint32_t node);
  /// `window` is over and all its records have been seen: clips what is still open in it.
  void close_window(std::uint32_t window);

 private:
  struct Open {
    std::uint32_t node;
    Nanoseconds begin;
    bool clipped;
  };
  struct Thread {
    std::uint32_t window = 0;
    std::uint32_t last_context = 0;
    std::vector<Open> stack;    // push/pop, outermost first
    std::vector<Open> started;  // start/end
  };

  Thread& enter_window(std::uint32_t thread, std::uint32_t window);
  void clip_all(std::uint32_t thread, Thread& state);
  void emit(std::uint32_t thread, std::uint32_t window, const Open& open, Nanoseconds end, bool cut);
  bool finish_started(std::uint32_t thread, Thread& state, const RangeRecord& record);

  const RangeTree& tree_;
  WindowSpan windows_;
  Emit emit_;
  std::unordered_map<std::uint32_t, Thread> threads_;
};

}  // namespace inject
