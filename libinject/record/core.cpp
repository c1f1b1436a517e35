// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/core.h"

#include <utility>

#include "libinject/record/control.h"

namespace inject {

namespace {

constexpr std::uint32_t kMaxNames = 1u << 17;
constexpr std::size_t kMaxNameBytes = std::size_t{64} << 20;
constexpr std::uint32_t kMaxShapes = 1u << 15;
// Some thirty graphs of a thousand kernels, each once as captured and once as instantiated.
constexpr std::uint32_t kMaxGraphNodes = 1u << 16;
constexpr std::uint32_t kMaxRangeNodes = 1u << 17;

}  // namespace

Core::Core(ParseResult parsed)
    : configuration(std::move(parsed)),
      names(kMaxNames, kMaxNameBytes),
      mangled(kMaxNames, kMaxNameBytes),
      shapes(kMaxShapes),
      graph_nodes(kMaxGraphNodes),
      ranges(kMaxRangeNodes),
      places(names),
      ring(configuration.options.ring_bytes),
      threads(ring),
      nvtx_trigger(configuration.options.window),
      unit_ranges(configuration.options.unit_ranges) {}

void Core::set_tick_period() const noexcept {
  TickClock now = clock;
  now.calibrate();
  tick_period.set(now);
}

}  // namespace inject
