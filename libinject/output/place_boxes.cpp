// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/place_boxes.h"

#include <algorithm>
#include <map>

namespace inject {

namespace {

std::uint32_t node_in(const CodePlace& place, PlaceRow row) {
  return row == PlaceRow::kLines ? place.stack : row == PlaceRow::kModules ? place.module : place.op;
}

/// Builds one row of one thread.
class RowOfBoxes {
 public:
  RowOfBoxes(PlaceRow row, const CodePlaces& places, PlaceBoxes& found, std::size_t most)
      : row_(row), places_(places), found_(found), most_(most) {}

  void add(const PlacedLaunch& launch, CodePhase phase, std::uint32_t innermost) {
    const bool goes_on = launch.iteration == iteration_ && phase == phase_;
    if (!goes_on || innermost != innermost_) enter(launch, phase, innermost, goes_on);
    iteration_ = launch.iteration;
    phase_ = phase;
    ++launches_;
    end_ = launch.end;
  }
  void finish() { close(0, ~Nanoseconds{0}); }

 private:
  PlaceBox& box(std::size_t level) { return found_.boxes[open_[level]]; }
  void enter(const PlacedLaunch& launch, CodePhase phase, std::uint32_t innermost, bool goes_on) {
    chain_.clear();
    for (std::uint32_t node = innermost; node != 0; node = places_.node(node).parent) chain_.push_back(node);
    std::reverse(chain_.begin(), chain_.end());
    std::size_t same = 0;
    if (goes_on) {
      while (same < open_.size() && same < chain_.size() && box(same).node == chain_[same]) ++same;
    }
    close(same, launch.begin);
    innermost_ = innermost;
    // If the enclosing box was left out, this one would be on its level.
    for (std::size_t level = same; level < chain_.size(); ++level) {
      if (found_.boxes.size() >= most_) {
        ++found_.left_out;
        continue;
      }
      open_.push_back(found_.boxes.size());
      found_.boxes.push_back({launch.thread, row_, phase, chain_[level], launches_, launch.begin, 0, 0});
    }
    if (open_.empty() || open_.size() != chain_.size()) return;
    if (PlaceBox& last = box(open_.size() - 1); last.innermost == 0) last.innermost = launch.begin;
  }
  /// A launching call may contain other launching calls.
  void close(std::size_t level, Nanoseconds until) {
    for (; open_.size() > level; open_.pop_back()) {
      PlaceBox& closed = found_.boxes[open_.back()];
      closed.end = std::max(closed.begin, std::min(end_, until));
      closed.launches = launches_ - closed.launches;
    }
  }

  PlaceRow row_;
  const CodePlaces& places_;
  PlaceBoxes& found_;
  std::size_t most_;
  std::vector<std::size_t> open_;  // boxes, the outermost first
  std::vector<std::uint32_t> chain_;
  std::uint32_t iteration_ = 0;
  CodePhase phase_ = CodePhase::kOther;
  std::uint32_t innermost_ = 0;
  std::uint32_t launches_ = 0;  // so far; an open box has the number before it
  Nanoseconds end_ = 0;
};

/// The boxes of a module in an iteration.
struct ModulePasses {
  std::size_t forward = 0;
  std::size_t backward = 0;
  unsigned forwards = 0;
  unsigned backwards = 0;
};

}  // namespace

PlaceBoxes place_boxes(std::span<const PlacedLaunch> launches, const CodePlaces& places, std::size_t most) {
  PlaceBoxes found;
  std::map<std::pair<std::uint32_t, std::uint32_t>, ModulePasses> passes;  // by iteration and module
  std::vector<std::uint32_t> iterations;                                   // of the boxes
  for (std::size_t from = 0; from < launches.size();) {
    std::size_t to = from;
    while (to < launches.size() && launches[to].thread == launches[from].thread) ++to;
    for (std::size_t row = 0; row < kPlaceRows; ++row) {
      RowOfBoxes boxes(static_cast<PlaceRow>(row), places, found, most);
      for (std::size_t i = from; i < to; ++i) {
        // All launches of one call have the same place.
        if (i != from && launches[i].begin == launches[i - 1].begin) continue;
        const CodePlace place = places.place(launches[i].place);
        boxes.add(launches[i], place.phase,
                  launches[i].place == 0 ? 0 : node_in(place, static_cast<PlaceRow>(row)));
        iterations.resize(found.boxes.size(), launches[i].iteration);
      }
      boxes.finish();
    }
    from = to;
  }
  for (std::size_t i = 0; i < found.boxes.size(); ++i) {
    const PlaceBox& box = found.boxes[i];
    if (box.row != PlaceRow::kModules || box.innermost == 0) continue;
    ModulePasses& module = passes[{iterations[i], box.node}];
    if (box.phase == CodePhase::kForward && ++module.forwards == 1) module.forward = i;
    if (box.phase == CodePhase::kBackward && ++module.backwards == 1) module.backward = i;
  }
  for (const auto& [key, module] : passes) {
    if (module.forwards == 1 && module.backwards == 1 && found.left_out == 0)
      found.links.emplace_back(module.forward, module.backward);
  }
  return found;
}

}  // namespace inject
