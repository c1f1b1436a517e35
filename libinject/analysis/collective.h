// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Collectives by what they move (docs/collectives.md): sizes and bandwidths as nccl-tests define them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/analysis/sample_stats.h"
#include "libinject/model/call_shape.h"
#include "libinject/model/collective_bytes.h"

namespace inject {

/// `AllReduce`, …; empty if not known.
std::string_view collective_name(Collective operation);
/// `fp32`, …; `several` in a group of different ones, empty if not known.
std::string_view collective_type_name(unsigned type);
/// `sum`, …, by ncclRedOp_t + 1; `custom` for those that programs make, empty for none.
std::string_view reduction_name(unsigned reduction);

/// What the algorithm bandwidth is multiplied with for the bus bandwidth, which is comparable with the
/// hardware's whatever the number of ranks; nothing where that is not defined.
std::optional<double> bus_factor(Collective operation, std::uint32_t ranks);

struct KernelTime {
  std::string_view name;
  std::uint64_t time = 0;
};

/// Calls of one function and shape.
struct CollectiveInput {
  CollectiveShape shape;
  std::uint64_t calls = 0;  ///< that did not fail
  std::uint64_t failed = 0;
  std::uint64_t captured = 0;  ///< of `calls`, those whose work went into a CUDA graph
  std::uint64_t replayed = 0;  ///< captured ones that graph launches ran
  std::uint64_t host_time = 0;
  Totals gpu;  ///< time of the device's work by call, of the calls that had any
  std::uint64_t kernels = 0;
  std::uint64_t kernel_time = 0;  ///< of the kernels that overlap was looked for
  std::uint64_t overlapped = 0;   ///< … in which another kernel ran on the device
  std::vector<KernelTime> names;  ///< of the kernels
};

/// A row of nccl_sum.csv. Of kernels that are no known call's the operation is not known, and GPU times are
/// theirs.
struct CollectiveRow {
  CollectiveShape shape;
  std::uint64_t calls = 0;  ///< that did not fail, nor did their group
  std::uint64_t failed = 0;
  std::uint64_t captured = 0;
  std::uint64_t replayed = 0;
  std::uint64_t host_time = 0;  ///< with that of the group's end
  /// By call: a group of n calls alike counts as n of an nth of its time.
  Totals gpu;
  std::uint64_t kernels = 0;
  std::uint64_t kernel_time = 0;
  std::uint64_t overlapped = 0;
  std::vector<KernelTime> names;  ///< each once, by descending time

  /// Bytes by second, 10^9; nothing without GPU time, or where some of that is of calls that failed.
  std::optional<double> algorithm_bandwidth() const;
  std::optional<double> bus_bandwidth() const;
  /// Share of the kernels' time, 0 … 1; nothing without kernels.
  std::optional<double> overlap() const;
  bool is_known() const { return shape.operation != Collective::kUnknown; }
  /// `AllReduce`, `Group of 3 AllReduce`, `Group of 3` of different operations, `[unknown]`.
  std::string operation() const;
  /// `no`; `yes`: submitted by the end of a group, of calls alike if there is GPU time; `group`: the end of
  /// a group of different calls, whose own rows are among those with `yes`.
  std::string_view grouped() const;
};

/// One row a shape, ends of groups of calls alike with these calls: by descending GPU time, then by bytes.
std::vector<CollectiveRow> collective_rows(const std::vector<CollectiveInput>& inputs);

}  // namespace inject
