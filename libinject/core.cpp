// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/core.h"

#include <utility>

namespace inject {

namespace {

constexpr std::uint32_t kMostNames = 1u << 17;
constexpr std::size_t kMostNameBytes = std::size_t{64} << 20;
constexpr std::uint32_t kMostShapes = 1u << 15;
// Some thirty graphs of a thousand kernels, each once as captured and once as instantiated.
constexpr std::uint32_t kMostGraphNodes = 1u << 16;
constexpr std::uint32_t kMostRangeNodes = 1u << 17;

}  // namespace

Core::Core(ParseResult parsed)
    : configuration(std::move(parsed)),
      names(kMostNames, kMostNameBytes),
      mangled(kMostNames, kMostNameBytes),
      shapes(kMostShapes),
      graph_nodes(kMostGraphNodes),
      ranges(kMostRangeNodes),
      ring(configuration.options.ring_bytes),
      threads(ring),
      nvtx_trigger(configuration.options.window) {}

}  // namespace inject
