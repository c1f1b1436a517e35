// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace inject {

enum class RangeStyle : std::uint8_t { kPushPop = 0, kStartEnd = 1 };

/// Every distinct path of nested NVTX ranges that any thread has opened, as a tree: a node is (parent, name,
/// domain, style) and its id stands for "these ranges are open, in this order". Lock-free to enter and to
/// read; bounded, reserved but untouched memory. Node 0 is "no range". A path that no longer fits becomes its
/// parent (counted).
class RangeTree {
 public:
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t name = 0;    ///< NameTable id of "domain:message"
    std::uint32_t domain = 0;  ///< NameTable id of the domain's name, 0 for the default domain
    RangeStyle style = RangeStyle::kPushPop;
    // Push/pop ranges on the path, this one included:
    std::uint32_t level = 0;  ///< of this domain
    std::uint32_t depth = 0;  ///< of all domains
  };

  explicit RangeTree(std::uint32_t max_nodes) noexcept;
  ~RangeTree();
  RangeTree(const RangeTree&) = delete;
  RangeTree& operator=(const RangeTree&) = delete;

  /// The node of a range inside `parent`, entered if new.
  std::uint32_t child(std::uint32_t parent, std::uint32_t name, std::uint32_t domain,
                      RangeStyle style) noexcept;
  /// The path of `node` without its innermost range of that name, domain and style; `node` if there is none.
  /// With `any_name` the innermost range of that domain and style goes, and `name` receives its name.
  std::uint32_t without(std::uint32_t node, std::uint32_t& name, std::uint32_t domain, RangeStyle style,
                        bool any_name) noexcept;
  Node node(std::uint32_t id) const noexcept;
  /// How many push/pop ranges of that domain are on the path of `node`. Looks no further than kMaxDepth
  /// ranges of other domains for one: a program that pushes and never pops has a path of any length.
  std::uint32_t level(std::uint32_t node, std::uint32_t domain) const noexcept;
  std::uint64_t overflows() const noexcept { return overflows_.load(std::memory_order_relaxed); }

 private:
  // Ranges of other domains or styles that were opened later than the one that is looked for.
  static constexpr unsigned kMaxDepth = 64;

  std::uint32_t max_nodes_;
  std::uint32_t slot_mask_ = 0;
  std::size_t mapped_ = 0;
  std::atomic<std::uint32_t>* slots_ = nullptr;
  Node* nodes_ = nullptr;
  std::atomic<std::uint32_t> count_{1};
  std::atomic<std::uint64_t> overflows_{0};
};

}  // namespace inject
