// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/record/intern_table.h"

namespace inject {

enum class RangeStyle : std::uint8_t { kPushPop = 0, kStartEnd = 1 };

/// Every distinct path of nested NVTX ranges that any thread has opened, as a tree: a node is (parent, name,
/// domain, style), and its id means "these ranges are open, in this order". Lock-free to enter and to read;
/// bounded memory, reserved but not touched. Node 0 is "no range". A path that does not fit becomes its
/// parent (counted).
class RangeTree {
 public:
  struct Node {
    std::uint32_t parent = 0;
    std::uint32_t name = 0;    ///< NameTable id of "domain:message"
    std::uint32_t domain = 0;  ///< NameTable id of the domain's name, 0 for the default domain
    RangeStyle style = RangeStyle::kPushPop;
    // Push/pop ranges on the path, including this one:
    std::uint32_t level = 0;  ///< of this domain
    std::uint32_t depth = 0;  ///< of all domains
  };

  explicit RangeTree(std::uint32_t max_nodes) noexcept : nodes_(max_nodes) {}

  /// The node of a range inside `parent`, entered if new.
  std::uint32_t child(std::uint32_t parent, std::uint32_t name, std::uint32_t domain,
                      RangeStyle style) noexcept;
  /// The path of `id` without its innermost range of this name, domain and style; `id` if there is none. With
  /// `any_name`, removes the innermost range of this domain and style and sets `name` to its name.
  std::uint32_t without(std::uint32_t id, std::uint32_t& name, std::uint32_t domain, RangeStyle style,
                        bool any_name) noexcept;
  Node node(std::uint32_t id) const noexcept { return nodes_.item(id); }
  /// How many push/pop ranges of this domain are on the path of `id`. Searches past at most kMaxDepth ranges
  /// of other domains: a program that pushes and never pops has a path of any length.
  std::uint32_t level(std::uint32_t id, std::uint32_t domain) const noexcept;
  std::uint64_t overflows() const noexcept { return nodes_.overflows(); }

 private:
  // Ranges of other domains or styles that were opened later than the one searched for.
  static constexpr unsigned kMaxDepth = 1024;

  InternTable<Node> nodes_;
};

}  // namespace inject
