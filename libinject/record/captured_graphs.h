// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libinject/base/mutex.h"

namespace inject {

/// A kernel's node in a CUDA graph that was captured.
struct CapturedKernel {
  std::uint32_t name = 0;  ///< in Core::mangled
  std::array<std::uint32_t, 3> grid{};
  std::array<std::uint32_t, 3> block{};
  std::uint32_t place = 0;  ///< the place captured with it, in Core::places; 0: not known

  bool operator==(const CapturedKernel&) const = default;
};

/// The graph produced by a capture.
struct CapturedGraph {
  /// If is_chain, in the order in which they run.
  std::vector<CapturedKernel> kernels;
  /// Pairs of kernels of which the second waits for the first.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> waits;
  std::size_t nodes = 0;  ///< of all kinds, without those of child graphs
  bool is_chain = false;  ///< each node waits for the one before it
  bool as_made = false;   ///< the kernels are listed in the order in which the nodes were made
};

/// The captured graphs, by the program's handles, and a number for each executable graph instantiated from
/// one, which its launches carry. A number is reused after 32,000 others. Bounded: graphs that do not fit are
/// unknown, and counted by lost(). Any thread; takes a lock, except for number().
class CapturedGraphs {
 public:
  /// Numbers are less than this. 0: none.
  static constexpr std::uint16_t kNumbers = 1u << 15;
  static constexpr std::size_t kMaxKernels = std::size_t{1} << 18;
  static constexpr std::size_t kMaxGraphs = 2048;
  /// Executable graphs that have been destroyed: records of their launches may still arrive.
  static constexpr std::size_t kMaxGone = 256;

  using Graph = std::shared_ptr<const CapturedGraph>;

  CapturedGraphs() noexcept = default;
  CapturedGraphs(const CapturedGraphs&) = delete;
  CapturedGraphs& operator=(const CapturedGraphs&) = delete;

  // These may throw std::bad_alloc.
  /// From now on, `handle` means this graph; null: nothing is known about it.
  void set(const void* handle, std::unique_ptr<CapturedGraph> graph) INJECT_EXCLUDES(mutex_);
  /// The graph of one handle is a copy of another's.
  void copy(const void* handle, const void* original) INJECT_EXCLUDES(mutex_);
  /// `executable` was instantiated from the graph of `handle`, which now has `nodes` nodes.
  void set_executable(const void* executable, const void* handle, std::size_t nodes) INJECT_EXCLUDES(mutex_);
  /// The graph, or executable graph, is destroyed.
  void forget(const void* handle) noexcept INJECT_EXCLUDES(mutex_);
  void forget_executable(const void* executable) noexcept INJECT_EXCLUDES(mutex_);

  /// The number of an executable graph; 0 if nothing is known about it. No lock.
  std::uint16_t number(const void* executable) const noexcept;
  /// The graph with this number; null if it is not known any more.
  Graph find(std::uint16_t number) const noexcept INJECT_EXCLUDES(mutex_);

  /// Number of kernels in graphs that did not fit.
  std::uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }
  void note_lost(std::uint64_t kernels) noexcept { lost_.fetch_add(kernels, std::memory_order_relaxed); }
  /// Number of kernels kept.
  std::size_t kernels() const noexcept { return held_->load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kSlots = 2 * kMaxGraphs;
  static constexpr std::uintptr_t kGone = 1;

  /// What number() searches. Written with the lock.
  struct Slot {
    std::atomic<std::uintptr_t> executable;  // 0: free since the table was cleared; kGone: free again
    std::atomic<std::uint16_t> number;
  };

  Slot* slot_of(std::uintptr_t executable) noexcept INJECT_REQUIRES(mutex_);
  void enter(std::uintptr_t executable, std::uint16_t number) noexcept INJECT_REQUIRES(mutex_);
  void leave(const void* executable) noexcept INJECT_REQUIRES(mutex_);
  std::uint16_t next_number() noexcept INJECT_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::shared_ptr<std::atomic<std::size_t>> held_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::unordered_map<const void*, Graph> graphs_ INJECT_GUARDED_BY(mutex_);
  std::unordered_map<std::uint16_t, Graph> numbers_ INJECT_GUARDED_BY(mutex_);
  std::unordered_map<const void*, std::uint16_t> executables_ INJECT_GUARDED_BY(mutex_);
  std::array<std::uint16_t, kMaxGone> gone_ INJECT_GUARDED_BY(mutex_){};  // a ring
  std::size_t next_gone_ INJECT_GUARDED_BY(mutex_) = 0;
  std::uint16_t last_number_ INJECT_GUARDED_BY(mutex_) = 0;
  std::size_t used_slots_ INJECT_GUARDED_BY(mutex_) = 0;  // slots that are not 0
  std::array<Slot, kSlots> slots_{};
  std::atomic<std::uint64_t> lost_{0};
};

}  // namespace inject
