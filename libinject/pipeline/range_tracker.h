// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/model/events.h"
#include "libinject/model/records.h"
#include "libinject/record/range_tree.h"

namespace inject {

/// Pairs the edges of NVTX ranges into ranges, window by window, on the drain thread. A range that began
/// before its window opened, or was open when it closed, is cut at the window's edge and marked as clipped. A
/// range that was open during the whole window is known only if its thread did something in it (a launch or
/// another range). Threads are drained one after the other, so the end of a range started by another thread
/// may arrive before its start. At most kMaxOpen ranges can be open at once in windows that are not closed;
/// further ones have no times.
class RangeTracker {
 public:
  static constexpr std::size_t kMaxOpen = 1u << 20;

  using Emit = std::function<void(const RangeEvent&)>;
  /// Begin and end of a window; the end is 0 while it is open.
  struct Span {
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
  };
  using WindowSpan = std::function<Span(std::uint32_t window)>;

  RangeTracker(const RangeTree& tree, WindowSpan windows, Emit emit);

  void edge(std::uint32_t thread, const RangeRecord& record);
  /// A launch or call by `thread` in `window` had the NVTX context `node`.
  void context(std::uint32_t thread, std::uint32_t window, std::uint32_t node);
  /// These windows, by ascending number, are over and all their records have been seen: clips the ranges
  /// still open in them.
  void close_windows(std::span<const std::uint32_t> windows);

 private:
  struct Open {
    std::uint32_t node;
    Nanoseconds begin;
    bool clipped;
  };
  /// Push/pop ranges of a thread in the window of its latest records.
  struct Thread {
    std::uint32_t window = 0;
    std::uint32_t last_context = 0;
    std::vector<Open> stack;   // outermost first
    std::uint64_t beyond = 0;  // pushed inside of those, but did not fit
  };
  /// A start/end range that has not ended yet.
  struct Started {
    std::uint32_t owner;
    Open open;
  };
  /// An end whose start has not been seen: it may be in its owner's queue, or precede the window.
  struct Ended {
    std::uint32_t node;
    std::uint32_t owner;
    Nanoseconds time;
  };
  using Name = std::pair<std::uint32_t, std::uint32_t>;  // with its domain
  /// A thread's start/end ranges that were open before a window.
  struct Earlier {
    std::multimap<Name, Open> open;
    // Includes the names of those started in the window: the path does not distinguish them.
    std::set<Name> known;
  };
  using InWindow = std::pair<std::uint32_t, std::uint32_t>;  // a window, and a number in it

  Thread& enter_window(std::uint32_t thread, std::uint32_t window);
  void clip_stack(std::uint32_t thread, Thread& state);
  void emit(std::uint32_t thread, std::uint32_t window, const Open& open, Nanoseconds end, bool cut);
  bool has_room(std::uint32_t thread, const RangeRecord& record);
  void push(std::uint32_t thread, Thread& state, const RangeRecord& record);
  void pop(std::uint32_t thread, Thread& state, const RangeRecord& record);
  void start(std::uint32_t thread, const RangeRecord& record);
  void end(std::uint32_t thread, const RangeRecord& record);
  void end_earlier(std::uint32_t window, const Ended& ended);
  void restore_started(std::uint32_t thread, std::uint32_t window, std::uint32_t node);
  void know(Earlier& earlier, const Name& name);
  void close_started(std::uint32_t window);
  Name name_of(std::uint32_t node) const;

  const RangeTree& tree_;
  WindowSpan windows_;
  Emit emit_;
  std::unordered_map<std::uint32_t, Thread> threads_;
  std::map<InWindow, Started> started_;  // by serial
  std::map<InWindow, Ended> ends_;       // by serial
  std::map<InWindow, Earlier> earlier_;  // by thread
  std::size_t open_ = 0;
};

}  // namespace inject
