// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "libinject/model/records.h"

namespace inject {

/// The call whose kernel launch became a node of a CUDA graph when it was captured.
struct CapturedCall {
  CallChain chain = 0;                ///< the hooked calls around the launch
  std::uint32_t thread = 0;           ///< that captured; with `owner`, identifies the call
  std::uint32_t owner = 0;            ///< as CallRecord::owner of the launch
  std::uint32_t shape = 0;            ///< as CallRecord::shape of the launch
  FunctionId function = kNoFunction;  ///< to which `shape` belongs
};

/// Captured calls by CUPTI's node id. Any thread may add and find without a lock; memory is reserved, not
/// touched. Nodes are kept, because clones may be made as long as the program runs.
class GraphNodes {
 public:
  explicit GraphNodes(std::uint32_t capacity) noexcept;
  ~GraphNodes();
  GraphNodes(const GraphNodes&) = delete;
  GraphNodes& operator=(const GraphNodes&) = delete;

  /// A node was created. Does nothing if it is known already; counted in overflows() if there is no room.
  void add(std::uint64_t node, const CapturedCall& call) noexcept;
  /// A node was copied into another graph or an executable one: the copy gets the same call.
  void add_clone(std::uint64_t node, std::uint64_t original) noexcept;
  /// True if the node is known; then fills in `call`.
  bool find(std::uint64_t node, CapturedCall& call) const noexcept;
  /// Forgets all nodes, because their ids are about to be reused. No other thread may add in the meantime.
  void clear() noexcept;

  std::uint32_t size() const noexcept { return count_.load(std::memory_order_relaxed); }
  /// Number of nodes that did not fit.
  std::uint64_t overflows() const noexcept { return overflows_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    std::atomic<std::uint64_t> node;  // 0: free; with kFilling: `call` is not readable yet
    CapturedCall call;
  };
  static constexpr std::uint64_t kFilling = std::uint64_t{1} << 63;

  std::uint32_t capacity_;
  std::uint32_t slot_mask_ = 0;
  std::size_t mapped_ = 0;
  Slot* slots_ = nullptr;  // open addressing
  std::atomic<std::uint32_t> count_{0};
  std::atomic<std::uint64_t> overflows_{0};
};

}  // namespace inject
