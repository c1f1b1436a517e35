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

/// `AllReduce`, …; empty if unknown.
std::string_view collective_name(Collective operation);
/// `fp32`, …; `several` for a group of different types, empty if unknown.
std::string_view collective_type_name(unsigned type);
/// `sum`, …, by ncclRedOp_t + 1; `custom` for those created by programs, empty for none.
std::string_view reduction_name(unsigned reduction);

/// The factor from algorithm bandwidth to bus bandwidth, which can be compared with the hardware's for any
/// number of ranks; empty where it is undefined.
std::optional<double> bus_factor(Collective operation, std::uint32_t ranks);

struct KernelTime {
  std::string_view name;
  std::uint64_t time = 0;
};

/// Calls of one function and shape.
struct CollectiveInput {
  CollectiveShape shape;
  std::uint64_t calls = 0;  ///< successful ones
  std::uint64_t failed = 0;
  std::uint64_t captured = 0;  ///< of `calls`, those captured into a CUDA graph
  std::uint64_t replayed = 0;  ///< captured calls executed by graph launches
  std::uint64_t host_time = 0;
  Totals gpu;  ///< device time per call, over calls that had device work
  std::uint64_t kernels = 0;
  std::uint64_t kernel_time = 0;  ///< of the kernels checked for overlap …
  std::uint64_t overlapped = 0;   ///< … in which another kernel ran on the device
  std::vector<KernelTime> names;  ///< of the kernels
};

/// A row of nccl_sum.csv. For kernels that belong to no known call, the operation is unknown, and GPU times
/// are per kernel.
struct CollectiveRow {
  CollectiveShape shape;
  std::uint64_t calls = 0;  ///< successful ones, also as part of a group
  std::uint64_t failed = 0;
  std::uint64_t captured = 0;
  std::uint64_t replayed = 0;
  std::uint64_t host_time = 0;  ///< including that of the group's end
  /// Per call: a group of n equal calls counts as n calls with 1/n of its time each.
  Totals gpu;
  std::uint64_t kernels = 0;
  std::uint64_t kernel_time = 0;
  std::uint64_t overlapped = 0;
  std::vector<KernelTime> names;  ///< each once, by descending time

  /// In 10^9 bytes per second; empty without GPU time, or if some of it belongs to failed calls.
  std::optional<double> algorithm_bandwidth() const;
  std::optional<double> bus_bandwidth() const;
  /// Share of the kernels' time, 0 … 1; empty without kernels.
  std::optional<double> overlap() const;
  bool is_known() const { return shape.operation != Collective::kUnknown; }
  /// `AllReduce`, `Group of 3 AllReduce`, `Group of 3` (different operations), `[unknown]`.
  std::string operation() const;
  /// `no`; `yes`: submitted at the end of a group, one of equal calls if there is GPU time; `group`: the end
  /// of a group of different calls, whose own rows are among those with `yes`.
  std::string_view grouped() const;
};

/// One row per shape, by descending GPU time, then by bytes. The row for the end of a group of equal calls is
/// merged with those calls.
std::vector<CollectiveRow> collective_rows(const std::vector<CollectiveInput>& inputs);

}  // namespace inject
