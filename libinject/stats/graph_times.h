// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "libinject/model/events.h"
#include "libinject/stats/key_index.h"

namespace inject {

/// Finds kernels of CUDA graphs whose recorded end cannot be their own. On an H100, some kernels of 1.3 us in
/// the last replay of a window had one instance as long as an iteration: it had its own start, but the end of
/// the same node in the next replay, which ran before the record was read. Each node's latest kernel is held
/// until it is known not to be such a case:
///
/// - Launches of an executable graph run one after the other (cudaGraphLaunch): a kernel does not end after
///   its node's next kernel began. (Each executable graph has nodes of its own, copies of the graph's.)
/// - Work launched later into a stream does not run, from start to end, within an earlier kernel.
/// - The next replay has no record if it was launched after the window. A kernel that ends after the window
///   did, and took several times as long as its node ever did before, is taken to have that replay's end.
///   Collectives are exempt: they may wait for other ranks that long.
///
/// Kernels may come in any order. One thread; may throw std::bad_alloc.
class GraphTimes {
 public:
  /// Number of nodes whose kernels are held; kernels of further nodes are judged as they come.
  static constexpr std::uint32_t kMaxNodes = 1u << 16;
  static constexpr std::size_t kMaxStreams = 4096;
  /// Replays needed to know how long a node takes, and how many times longer is too long.
  static constexpr std::uint32_t kMinReplays = 2;
  static constexpr std::uint64_t kTooLong = 4;
  static constexpr Nanoseconds kMin = 10 * kMicrosecond;

  struct Callbacks {
    /// Receives each kernel; `usable`: whether its times are valid.
    std::function<void(KernelEvent&, std::uint16_t generation, bool usable)> taker;
    /// When a window ended; 0 while it is open.
    std::function<Nanoseconds(std::uint32_t window)> window_end;
    /// Whether a kernel of that name is a collective.
    std::function<bool(std::uint32_t name)> is_collective;
  };

  explicit GraphTimes(Callbacks callbacks) : callbacks_(std::move(callbacks)) {}

  /// A kernel of a graph, with valid times.
  void kernel(const KernelEvent& event, std::uint16_t generation);
  /// Any other work. Ignored until the first graph kernel.
  void work(std::uint32_t device, std::uint32_t context, std::uint32_t stream, std::uint32_t correlation,
            std::uint16_t generation, Nanoseconds start, Nanoseconds end);

  /// No further records will come for work launched in these windows, or for work that ended by `ended`.
  void release_windows(std::uint32_t through);
  void release_ended(Nanoseconds ended);
  void release_all();

  /// The earliest start of the held kernels.
  Nanoseconds first_start() const;

 private:
  struct Node {
    KernelEvent event;
    std::uint16_t generation = 0;
    std::uint32_t replays = 0;
    Nanoseconds longest = 0;
  };
  /// The last launch into a stream.
  struct Last {
    std::uint16_t generation = 0;
    std::uint32_t correlation = 0;
    Nanoseconds start = 0;
    Nanoseconds end = 0;
  };
  static constexpr Nanoseconds kNone = std::numeric_limits<Nanoseconds>::max();

  bool runs_into_later(const KernelEvent& event, std::uint16_t generation) const;
  bool too_long(const Node& node) const;
  void release(std::size_t index);

  Callbacks callbacks_;
  KeyIndex<4> keys_{kMaxNodes};  // device, graph, node
  std::vector<Node> nodes_;
  std::vector<Nanoseconds> starts_;  // of the held kernels; kNone for nodes without one
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Last> streams_;  // device, context, id
};

}  // namespace inject
