// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// Ranges of different names nested more deeply are left out of nvtx_kern_sum.
inline constexpr std::size_t kMaxRangeNesting = 64;

/// NVTX ranges, and the kernels launched in them.
class RangeTables {
 public:
  RangeTables(SampleBudget& budget, const NameTable& names, const RangeTree& tree)
      : budget_(&budget), names_(&names), tree_(&tree) {}

  void add(const RangeEvent& event, std::uint64_t duration);
  /// A kernel counts in every range around its launch.
  void add(const KernelEvent& event, std::uint64_t duration);

  std::vector<RangeRow> ranges() const;
  /// None if the program has no ranges.
  std::vector<RangeKernelRow> kernels() const;

 private:
  /// Counts distinct range instances. Kernels arrive nearly in launch order: an instance more than 63 behind
  /// the latest is assumed to have been counted.
  struct InstanceCounter {
    std::uint64_t count = 0;
    std::uint64_t latest = 0;
    std::uint64_t seen = 0;  // bit i: latest - i

    void add(std::uint64_t instance);
  };
  struct KernelEntry {
    explicit KernelEntry(SampleBudget* budget) : time(budget) {}
    SampleStats time;
    InstanceCounter instances;
  };
  /// When the instances of one range on one thread ended, ascending: the instance containing a launch is
  /// given by the number of instances that ended before it.
  struct EndedRanges {
    std::vector<Nanoseconds> ends;
    std::uint64_t dropped = 0;  // older ones, no longer kept
  };
  /// The ranges (of range_keys_) around a node of the range tree, including itself, each once: a slice of
  /// around_ranges_.
  struct Around {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
    bool known = false;
  };
  /// Cached result of a search in EndedRanges: [begin, end) lies in `instance`.
  struct InstanceCache {
    std::uint32_t thread = kNoIndex;
    std::uint32_t range = kNoIndex;
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
    std::uint64_t instance = 0;
  };

  std::uint32_t range_of(const RangeTree::Node& node);
  Around ranges_around(std::uint32_t node);
  Around with_range(const Around& outer, std::uint32_t range);
  InstanceCache& cache_of(std::uint32_t thread, std::uint32_t range);
  void range_ended(std::uint32_t thread, std::uint32_t range, Nanoseconds end);
  std::uint64_t instance_at(std::uint32_t thread, std::uint32_t range, Nanoseconds time);
  KernelEntry& kernel_row(std::uint32_t range, std::uint32_t thread, std::uint32_t name);

  SampleBudget* budget_;
  const NameTable* names_;
  const RangeTree* tree_;

  // name, style
  KeyIndex<2> range_keys_{Statistics::kMaxRows};
  Rows<SampleStats> ranges_{SampleStats(budget_)};
  bool any_range_ = false;

  std::vector<Around> around_;
  std::vector<std::uint32_t> around_ranges_;

  // range, thread, kernel name
  KeyIndex<3> kernel_keys_{Statistics::kMaxRows};
  Rows<KernelEntry> kernels_{KernelEntry(budget_)};

  // thread, range
  KeyIndex<2> ended_keys_{Statistics::kMaxRows};
  std::vector<EndedRanges> ended_;
  std::size_t ends_kept_ = 0;
  std::array<InstanceCache, 16> instance_cache_{};
};

}  // namespace inject
