// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/range_tree.h"

#include "libinject/base/mapping.h"

namespace inject {

std::uint32_t RangeTree::child(std::uint32_t parent, std::uint32_t name, std::uint32_t domain,
                               RangeStyle style) noexcept {
  const std::uint64_t hash =
      hash_mix((static_cast<std::uint64_t>(parent) << 32 | name) * kHashSeed ^
               (static_cast<std::uint64_t>(domain) * 2u + static_cast<std::uint64_t>(style)));
  const std::uint32_t id = nodes_.intern(
      hash,
      [&](const Node& node) {
        return node.parent == parent && node.name == name && node.domain == domain && node.style == style;
      },
      [&] {
        const std::uint32_t pushed = style == RangeStyle::kPushPop ? 1 : 0;
        return Node{parent, name, domain, style, level(parent, domain) + pushed, node(parent).depth + pushed};
      });
  return id != 0 ? id : parent;
}

std::uint32_t RangeTree::without(std::uint32_t id, std::uint32_t& name, std::uint32_t domain,
                                 RangeStyle style, bool any_name) noexcept {
  std::uint32_t above[kMaxDepth];
  unsigned count = 0;
  for (std::uint32_t at = id; at != 0; at = node(at).parent) {
    const Node here = node(at);
    if (here.domain == domain && here.style == style && (any_name || here.name == name)) {
      name = here.name;
      std::uint32_t result = here.parent;
      while (count-- > 0) {
        const Node again = nodes_.item(above[count]);
        result = child(result, again.name, again.domain, again.style);
      }
      return result;
    }
    if (count == kMaxDepth) return id;
    above[count++] = at;
  }
  return id;
}

std::uint32_t RangeTree::level(std::uint32_t id, std::uint32_t domain) const noexcept {
  for (unsigned passed = 0; id != 0 && passed <= kMaxDepth; ++passed) {
    const Node here = node(id);
    if (here.domain == domain) return here.level;
    id = here.parent;
  }
  return 0;
}

}  // namespace inject
