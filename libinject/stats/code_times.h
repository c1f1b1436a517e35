// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/analysis/place_join.h"
#include "libinject/analysis/sample_stats.h"
#include "libinject/analysis/shape_work.h"
#include "libinject/model/events.h"
#include "libinject/record/captured_graphs.h"
#include "libinject/record/code_places.h"
#include "libinject/record/name_table.h"
#include "libinject/record/shape_table.h"
#include "libinject/stats/code_gaps.h"
#include "libinject/stats/key_index.h"

namespace inject {

/// A launch in a window, with the place that it was attributed to.
struct PlacedLaunch {
  Nanoseconds begin = 0;  ///< of the call
  Nanoseconds end = 0;
  std::uint32_t thread = 0;
  std::uint32_t iteration = 0;
  std::uint32_t place = 0;  ///< 0: unknown
};

/// Kernels and copies of windows by the place in the program that launched them (docs/code.md). Places are
/// known for the kernels of the iterations that follow a window; when the window is settled, its own kernels
/// are matched with these (analysis/place_join.h), those of a library call as one. Memory is bounded: up to
/// kMaxHeld launches of a window are kept until then, and the last kMaxBoundaries iterations; further ones
/// have no place. One thread at a time; may throw std::bad_alloc.
class CodeTimes {
 public:
  static constexpr std::size_t kMaxHeld = std::size_t{1} << 19;
  static constexpr std::size_t kMaxNamed = std::size_t{1} << 18;
  static constexpr std::size_t kMaxBoundaries = kMaxHeld;
  static constexpr std::size_t kMaxIterations = 10'000;
  static constexpr std::uint32_t kNoDetail = KeyIndex<8>::kNone;

  CodeTimes(const NameTable& names, const ShapeTable& shapes) : names_(&names), shapes_(&shapes) {}

  /// Announces that launches may be named: kernels are then kept until their window is settled, otherwise not
  /// at all.
  void expect(CodePlaces& places) { places_ = &places; }

  /// Graph `number` was launched in a window; its kernels follow. `demangled` returns the id of a demangled
  /// name.
  void graph(std::uint32_t window, std::uint16_t number, const CapturedGraph& graph,
             const std::function<std::uint32_t(std::uint32_t)>& demangled);
  bool wants_graph(std::uint32_t window, std::uint16_t number) const;

  void kernel(const KernelEvent& event, std::uint32_t detail = kNoDetail);
  void copy(const TransferEvent& event);
  void gap(std::uint32_t window, const IdleGap& gap);
  // The same for a named iteration; the `range` of its launch is its place.
  void named(const KernelEvent& event);
  void named(const TransferEvent& event);
  void named_wait(std::uint32_t thread, Nanoseconds begin, Nanoseconds end, std::uint32_t place);
  void sample(std::uint32_t thread, Nanoseconds time, std::uint32_t stack);
  /// An iteration begins. Calls must be in ascending order of time.
  void boundary(Nanoseconds begin);
  void settle_window(std::uint32_t window);

  /// Called for each window whose launches may have places, with all of its launches, by thread and time.
  using TellPlaces = std::function<void(std::span<const PlacedLaunch>)>;
  void tell_places(TellPlaces tell) { tell_places_ = std::move(tell); }

  /// Kernels of one place, name and row of kernel_detail.csv.
  struct Kernel {
    std::uint32_t place = 0;  ///< 0: unknown
    std::uint32_t name = 0;
    std::uint32_t detail = kNoDetail;  ///< DetailRow::number

    auto operator<=>(const Kernel&) const = default;
  };
  using Sums = std::map<Kernel, Totals>;
  const Sums& sums() const { return sums_; }
  /// FLOPs of library calls and operators of known shape, by the place of their kernels. An operator is
  /// counted only if no library call inside it is.
  struct Flops {
    FlopCount flops;
    std::uint64_t time = 0;  ///< of these calls' kernels
  };
  const std::map<std::uint32_t, Flops>& flops() const { return flops_; }
  /// The same for one iteration.
  struct IterationFlops {
    Nanoseconds end = 0;  ///< where the next one begins
    FlopCount flops;
    /// The iteration matches the named ones, so the work of its operators is known.
    bool operators_known = true;
  };
  /// FLOPs of the iteration at that time; null if not all of its kernels were held, or its end is unknown.
  const IterationFlops* iteration_flops(Nanoseconds time) const;
  /// Whether any operator's FLOPs were counted.
  bool any_operator_flops() const { return any_operator_flops_; }
  /// Copies and memsets, by place.
  const std::map<std::uint32_t, Totals>& copies() const { return copies_; }
  const std::map<GapPlace, GapTimes>& gaps() const { return gaps_.sums(); }
  /// Work that did not fit and therefore has no place.
  std::uint64_t left_out() const { return left_out_; }
  /// Whether any launch, or the capture of any kernel, has been named.
  bool any_places() const { return any_named() || any_captured_; }

 private:
  struct Held {
    std::uint32_t exact;
    std::uint32_t coarse;
    std::uint32_t family;
    std::uint32_t name;
    std::uint32_t detail;
    std::uint32_t thread;
    std::uint32_t order;  // correlation id: ascends from launch to launch
    std::uint32_t place;  // of named work
    std::uint32_t shape;  // of the library call; 0: unknown
    std::uint64_t duration;
    Nanoseconds launched;
    Nanoseconds returned;  // when the call that launched it returned
    std::uint64_t call;    // identifies the library call
    std::uint64_t inside;  // of named work: a packed OperatorCall
    std::uint64_t node;    // graph node
    Nanoseconds start;     // on the device
    std::uint16_t graph;   // number of the captured graph; 0: none
    std::uint16_t device;
    std::uint8_t transfer;  // 0: a kernel
    bool is_small;          // a copy, of less than kSmallCopy
  };

  /// A captured graph: its kernels, and the places where they were captured.
  struct Graph {
    std::vector<std::uint32_t> exact;
    std::vector<std::uint32_t> places;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> waits;
    bool is_chain = false;
    bool as_made = false;
  };
  using GraphNodePlaces = std::unordered_map<std::uint64_t, std::uint32_t>;  // node: its index in `exact`
  using Launch = std::vector<const Held*>;

  bool any_named() const { return !named_units_.launched.empty(); }
  Held held(const KernelEvent& event);
  Held held(const TransferEvent& event);
  static bool follows_order(const Launch& launch, const Graph& graph);
  static bool has_kernels(const Launch& launch, const Graph& graph);
  GraphNodePlaces nodes_of(const std::vector<Launch>& launches, const Graph& graph);
  std::vector<std::uint32_t> captured_places(std::uint32_t window, const std::vector<Held>& timed);
  static void note_launch(Held& work, const Attribution& launch, std::uint32_t device);
  template <typename Event>
  void hold(const Event& event, std::uint32_t detail = kNoDetail);
  template <typename Event>
  void hold_named(const Event& event);
  void count(const Held& work, std::uint32_t place);
  struct NameClass {
    std::uint32_t size = 0;  ///< LaunchedKernel::coarse
    std::uint32_t family = 0;
  };
  NameClass class_of(std::uint32_t name);
  /// What is joined: each launch outside of library calls, and each library call with all of its kernels. A
  /// library chooses its kernels and their number by the call's size, and all of them have the call's place.
  struct Units {
    std::vector<LaunchedKernel> launched;  ///< in launch order
    std::vector<std::uint32_t> of;         ///< the unit of each launch
    std::vector<std::uint32_t> rank;       ///< how many launches of its unit come before each launch
    std::vector<std::uint32_t> first;      ///< by unit, and the end: where its launches begin in `launches`
    std::vector<std::uint32_t> launches;

    /// The launch of that rank; JoinedPlace::kNone if there are fewer.
    std::uint32_t launch(std::uint32_t unit, std::uint32_t at) const {
      return at < first[unit + 1] - first[unit] ? launches[first[unit] + at] : JoinedPlace::kNone;
    }
  };
  static bool is_of_call(const Held& work);
  Units units_of(std::vector<Held>& work);
  std::vector<std::uint32_t> first_alike_launches() const;
  static std::vector<CodeLaunch> code_launches(const std::vector<Held>& work);
  void take_named();
  std::vector<std::uint32_t> named_works() const;
  void join(std::uint32_t window, std::vector<Held>& timed);
  static void agree_in_calls(const std::vector<Held>& timed, std::vector<std::uint32_t>& places);
  std::vector<JoinedPlace> joined_launches(const Units& timed) const;
  void tell(const std::vector<Held>& timed, const Units& units, const std::vector<JoinedPlace>& joined) const;
  void add_flops(const std::vector<Held>& timed, const Units& units, const std::vector<JoinedPlace>& joined,
                 const std::vector<std::uint32_t>& own_places, Nanoseconds held_until);

  const NameTable* names_;
  const ShapeTable* shapes_;
  std::unordered_map<std::uint32_t, NameClass> classes_;  // by name
  CodePlaces* places_ = nullptr;                          // null: launches are not named
  std::uint64_t left_out_ = 0;
  KeyIndex<8> exact_{1u << 20};
  std::map<std::uint32_t, std::vector<Held>> timed_;     // by window
  std::map<std::uint32_t, Nanoseconds> first_left_out_;  // likewise: the earliest launch that was not held
  std::map<std::uint32_t, std::unordered_map<std::uint16_t, Graph>> graphs_;  // likewise, by number
  bool any_captured_ = false;
  bool nodes_ascend_ = true;  // no graph has been seen whose nodes are not numbered in the order of creation
  std::vector<Held> named_;   // until their window is settled; from then on:
  Units named_units_;
  std::vector<std::uint32_t> named_places_;  // by unit
  std::vector<std::uint32_t> named_works_;   // likewise
  std::uint32_t named_window_ = 0;
  std::deque<Nanoseconds> boundaries_;
  bool boundaries_dropped_ = false;  // the oldest ones
  Sums sums_;
  std::map<std::uint32_t, Totals> copies_;
  std::map<std::uint32_t, Flops> flops_;
  std::map<Nanoseconds, IterationFlops> iteration_flops_;  // by their beginnings
  bool any_operator_flops_ = false;
  CodeGaps gaps_;
  TellPlaces tell_places_;
};

}  // namespace inject
