// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/analysis/place_join.h"
#include "libinject/analysis/sample_stats.h"
#include "libinject/model/events.h"
#include "libinject/record/name_table.h"
#include "libinject/stats/key_index.h"

namespace inject {

/// Kernels of windows by the place in the program that launched them (docs/code.md). Which place that is, is
/// known of the kernels of the iterations that follow a window; those of the window are joined to these when
/// it is settled (analysis/place_join.h). Memory is bounded: of up to kMaxHeld kernels of a window the launch
/// is kept until then; those beyond have no place. One thread at a time; may throw std::bad_alloc.
class CodeTimes {
 public:
  static constexpr std::size_t kMaxHeld = std::size_t{1} << 19;
  static constexpr std::size_t kMaxNamed = std::size_t{1} << 18;
  static constexpr std::size_t kMaxBoundaries = 1024;

  explicit CodeTimes(const NameTable& names) : names_(&names) {}

  /// Launches may be named: kernels are kept until their window is settled. Otherwise nothing is.
  void expect() { expected_ = true; }

  void kernel(const KernelEvent& event);
  /// … of an iteration that is named; its launch's `range` is its place.
  void named(const KernelEvent& event);
  /// An iteration begins. In ascending order of time.
  void boundary(Nanoseconds begin);
  void settle_window(std::uint32_t window);

  /// By place (0: not known) and kernel name.
  using Sums = std::map<std::pair<std::uint32_t, std::uint32_t>, Totals>;
  const Sums& sums() const { return sums_; }
  /// Whether any launch has been named.
  bool any_named() const { return !named_launches_.empty(); }

 private:
  struct Held {
    std::uint32_t exact;
    std::uint32_t coarse;
    std::uint32_t name;
    std::uint32_t thread;
    std::uint32_t order;  // correlation id: ascends from launch to launch
    std::uint32_t place;  // of those that are named
    std::uint64_t duration;
    Nanoseconds launched;
  };

  Held held(const KernelEvent& event);
  std::uint32_t size_class(std::uint32_t name);
  std::vector<LaunchedKernel> launches(std::vector<Held>& kernels) const;
  void take_named();
  void join(std::vector<Held>& timed);

  const NameTable* names_;
  std::unordered_map<std::uint32_t, std::uint32_t> size_classes_;  // by name
  bool expected_ = false;
  KeyIndex<8> exact_{1u << 20};
  std::map<std::uint32_t, std::vector<Held>> timed_;  // by window
  std::vector<Held> named_;                           // until their window is settled; from then on:
  std::vector<LaunchedKernel> named_launches_;
  std::vector<std::uint32_t> named_places_;
  std::deque<Nanoseconds> boundaries_;
  Sums sums_;
};

}  // namespace inject
