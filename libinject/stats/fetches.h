// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "libinject/analysis/fetch_times.h"
#include "libinject/model/events.h"
#include "libinject/stats/iterations.h"

namespace inject {

/// How long the thread that trains was in DataLoader.__next__, by iteration and window. It is one thread of
/// each window: of those that fetch, one that steps an optimizer; as long as no thread of the program does,
/// one that launches kernels; of several, the one that launched the most. Memory is bounded: beyond kMaxHeld
/// fetches of windows that are not settled, the older ones of the thread that has the most are dropped, and
/// nothing is said of the time up to the last of these. One thread at a time.
class FetchStatistics {
 public:
  static constexpr std::size_t kMaxHeld = 262'144;
  static constexpr std::size_t kMaxUnsettled = 4096;  ///< windows
  static constexpr std::size_t kMaxKept = 16'384;     ///< iterations, and windows

  explicit FetchStatistics(std::size_t max_held = kMaxHeld) : max_held_(max_held) {}

  /// A thread's fetches come in order.
  void fetch(const FetchEvent& event);
  /// A kernel was launched on that thread.
  void kernel(std::uint32_t window, std::uint32_t thread);
  /// Nothing more will come for this window or any before it. To be called once `iterations` has settled it.
  /// `end` 0: the window's times are not known.
  void settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end,
                     const IterationStatistics& iterations);

  /// Empty until the window is settled, in a run in which no fetch has been seen, and where some are missing.
  std::optional<FetchTimes> of(const IterationRow& row) const;
  std::optional<FetchTimes> of_window(std::uint32_t window) const;
  /// Whether it is known of any settled window.
  bool any() const { return any_; }

 private:
  struct Thread {
    std::vector<HostFetch> fetches;
    Nanoseconds missing_until = 0;
    std::uint64_t kernels = 0;
    bool steps = false;
  };
  struct Window {
    std::map<std::uint32_t, Thread> threads;
    bool any_steps = false;  // on whatever thread
  };
  using Windows = std::map<std::uint32_t, Window>;
  /// Window and begin of the iteration.
  using Key = std::pair<std::uint32_t, Nanoseconds>;
  /// Only what is not 0; empty where some are missing. Up to `erased` nothing is known.
  template <typename Of>
  struct Found : std::map<Of, std::optional<FetchTimes>> {
    std::optional<Of> erased;
  };

  Thread* thread_of(std::uint32_t window, std::uint32_t thread);
  void drop(Windows::iterator window);
  void bound();
  static const Thread* training(const Window& window);
  template <typename Of>
  void keep(Found<Of>& found, const Of& of, const Thread& thread, Nanoseconds begin, Nanoseconds end);
  template <typename Of>
  std::optional<FetchTimes> find(const Found<Of>& found, const Of& of, std::uint32_t window) const;

  std::size_t max_held_;
  Windows windows_;
  std::size_t held_ = 0;
  std::pair<std::uint32_t, std::uint32_t> latest_{};
  Thread* latest_thread_ = nullptr;  // of that window and number
  std::uint32_t settled_through_ = 0;
  std::uint32_t dropped_through_ = 0;  // nothing is said of windows up to this one
  bool any_ = false;
  Found<Key> iterations_;
  Found<std::uint32_t> totals_;  // by window
};

}  // namespace inject
