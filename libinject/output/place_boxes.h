// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The timeline's rows of operators, modules and lines of Python (docs/timeline.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "libinject/model/code_place.h"
#include "libinject/record/code_places.h"
#include "libinject/stats/code_times.h"

namespace inject {

/// The rows of a thread, from the top.
enum class PlaceRow : std::uint8_t { kLines, kModules, kOperators };
inline constexpr std::size_t kPlaceRows = 3;

/// Consecutive launches of a thread in one iteration, all made in this line, module or operator.
struct PlaceBox {
  std::uint32_t thread = 0;
  PlaceRow row = PlaceRow::kLines;
  CodePhase phase = CodePhase::kOther;
  std::uint32_t node = 0;  ///< CodePlaces::node()
  std::uint32_t launches = 0;
  Nanoseconds begin = 0;      ///< of the first launch
  Nanoseconds end = 0;        ///< of the last launch
  Nanoseconds innermost = 0;  ///< the first launch made directly in it; 0 if there is none
};

struct PlaceBoxes {
  std::vector<PlaceBox> boxes;  ///< each row's boxes by their begin, outer ones first
  /// A module's box in the forward pass and its box in the backward pass, for modules with exactly one of
  /// each in an iteration.
  std::vector<std::pair<std::size_t, std::size_t>> links;
  std::uint64_t left_out = 0;  ///< beyond `most`
};

/// Finds the boxes of a window's launches, which are in each thread's order.
PlaceBoxes place_boxes(std::span<const PlacedLaunch> launches, const CodePlaces& places, std::size_t most);

}  // namespace inject
