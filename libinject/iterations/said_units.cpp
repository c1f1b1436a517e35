// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/said_units.h"

#include <algorithm>

#include "libinject/record/launch_sign.h"

namespace inject {

void SaidUnits::say(std::uint64_t position, double units) {
  if (!is_units(units)) {
    miss(position, position);
    return;
  }
  if (said_.size() == kMaxHeld) {
    known_from_ = said_.front().position + 1;
    said_.pop_front();
  }
  said_.push_back({position, units});
}

void SaidUnits::miss(std::uint64_t first, std::uint64_t last) {
  missing_.push_back({std::min(first, last), std::max(first, last)});
  if (missing_.size() <= kMaxMissing) return;
  // Merge the two oldest, with everything in between.
  const Missing oldest = missing_.front();
  missing_.pop_front();
  missing_.front().first = std::min(missing_.front().first, oldest.first);
  missing_.front().last = std::max(missing_.front().last, oldest.last);
}

std::optional<double> SaidUnits::between(std::uint64_t first, std::uint64_t end) const {
  if (first < known_from_) return std::nullopt;
  for (const Missing& missing : missing_) {
    if (missing.first < end && missing.last >= first) return std::nullopt;
  }
  auto said = std::lower_bound(said_.begin(), said_.end(), first,
                               [](const Said& at, std::uint64_t wanted) { return at.position < wanted; });
  if (said == said_.end() || said->position >= end) return std::nullopt;
  double sum = 0;
  for (; said != said_.end() && said->position < end; ++said) sum += said->units;
  return sum;
}

void SaidUnits::clear() {
  said_.clear();
  missing_.clear();
  known_from_ = 0;
}

}  // namespace inject
