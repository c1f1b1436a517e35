// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "libinject/analysis/sample_stats.h"
#include "libinject/base/mapping.h"
#include "libinject/model/events.h"
#include "libinject/model/functions.h"
#include "libinject/stats/key_index.h"

namespace inject {

/// A row's kernels of one name.
struct KernelShare {
  std::uint32_t name = 0;
  std::uint64_t count = 0;
  std::uint64_t time = 0;
};

/// Adds `more` to its name's share, or to that of name 0 if there are too many names.
void add_share(std::vector<KernelShare>& names, const KernelShare& more);

/// Calls of one function with one shape.
struct CallShapeEntry {
  FunctionId function = kNoFunction;  ///< kNoFunction: the calls' own records were lost
  std::uint32_t shape = 0;
  std::uint32_t device = 0;  ///< the one its first kernel ran on
  bool other = false;        ///< row for shapes that did not fit: all functions of this one's category
  std::uint64_t calls = 0;   ///< successful ones
  std::uint64_t failed = 0;
  std::uint64_t captured = 0;  ///< of `calls`, those captured into a CUDA graph
  std::uint64_t replayed = 0;  ///< captured calls executed by graph launches, counted once per launch
  std::uint64_t shared = 0;    ///< of `calls`, those that share an operand with the previous one
  std::uint64_t kernels = 0;
  Totals host;                     ///< of all calls
  Totals gpu;                      ///< kernel time per call, over calls that had kernels
  bool incomplete = false;         ///< a kernel of these calls may have no record
  bool failed_ran = false;         ///< a failed call ran kernels
  std::uint32_t last_window = 0;   ///< of its calls that are no longer pending
  std::vector<KernelShare> names;  ///< by descending time; those that did not fit are under name 0

  /// Whether `gpu` is the time of executed().
  bool is_timed() const { return !incomplete && !failed_ran; }
  /// Calls whose work was submitted to the device.
  std::uint64_t executed() const { return calls - captured + replayed; }
};

/// Joins library calls of known shape to the kernels launched inside them. A call's kernels arrive after it,
/// from several streams: the latest 65,536 calls are kept, and a kernel of an older one counts as a call
/// without a record of its own.
class CallShapeStatistics {
 public:
  static constexpr std::uint32_t kMaxRows = 10'000;
  static constexpr std::size_t kMaxCalls = 65'536;
  static constexpr std::size_t kMaxNames = 16;

  /// A call that owns its shape, or that submitted work inside one that does.
  void add(const CallEvent& event);
  /// True for the first kernel of a call replayed by a graph launch.
  bool add(const KernelEvent& event);
  /// A kernel submitted by this launch has no usable record; if the launch is unknown, or a graph's, any call
  /// of its window may lack one.
  void lost_work(const Attribution& launch);
  /// Whether the work of this call, whose record has just arrived, was captured into a graph.
  bool is_captured(const CallEvent& event) const;
  /// Everything launched in windows up to this one has arrived.
  void settle(std::uint32_t window);

  /// By descending GPU time; calls that are still pending are included as they stand.
  std::vector<CallShapeEntry> rows() const;

 private:
  struct Call {
    FunctionId function = kNoFunction;
    std::uint32_t shape = 0;
    std::uint32_t window = 0;
    std::uint32_t device = 0;
    std::uint32_t kernels = 0;
    std::uint64_t gpu = 0;
    bool captured = false;
    bool replayed = false;
    bool failed = false;
    bool shared = false;
    bool incomplete = false;  // a kernel of it has no record
    std::uint64_t host = 0;
    std::vector<KernelShare> names;
  };
  /// A call on its thread and, if a graph launch replays it, that launch: each launch replays the call again.
  struct Key {
    std::uint64_t call = 0;
    std::uint64_t launch = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return hash_mix(key.call * kHashSeed ^ key.launch); }
  };
  static Key key_of(std::uint32_t thread, std::uint32_t call) {
    return {std::uint64_t{thread} << 32 | call, 0};
  }
  static Key key_of(const KernelEvent& event);
  Call& call_of(const Key& key, std::uint32_t shape, std::uint32_t window);
  void flush(const Call& call);
  void put_in_order();

  std::unordered_map<Key, Call, KeyHash> calls_;
  std::deque<Key> order_;
  bool in_order_ = true;  // order_ is sorted by window
  KeyIndex<2> keys_{kMaxRows};
  std::vector<CallShapeEntry> rows_;
  std::set<std::uint32_t> lost_windows_;  // in which any call may lack a kernel; only unsettled ones
  std::map<Category, CallShapeEntry> others_;
};

}  // namespace inject
