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

/// How long the training thread was in DataLoader.__next__, by iteration and window. Each window has one
/// training thread: of the threads that fetch, one that steps an optimizer or, if no thread of the program
/// does, one that launches kernels; of several, the one that launched the most. Memory is bounded: beyond
/// kMaxHeld fetches of unsettled windows, the older half of the thread with the most is dropped, and times
/// are unknown up to the last of these. One thread at a time.
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

  /// Empty until the window is settled, if the run has had no fetch, and where fetches are missing.
  std::optional<FetchTimes> of(const IterationRow& row) const;
  std::optional<FetchTimes> of_window(std::uint32_t window) const;
  /// Whether the times of any settled window are known.
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
    bool any_steps = false;  // on any thread
  };
  using Windows = std::map<std::uint32_t, Window>;
  /// Window and begin of the iteration.
  using Key = std::pair<std::uint32_t, Nanoseconds>;
  /// Only nonzero times; empty where fetches are missing. Nothing is known up to `erased`.
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
  Thread* latest_thread_ = nullptr;  // `latest_`
  std::uint32_t settled_through_ = 0;
  std::uint32_t dropped_through_ = 0;  // the times of windows up to this one are unknown
  bool any_ = false;
  Found<Key> iterations_;
  Found<std::uint32_t> totals_;  // by window
};

}  // namespace inject
