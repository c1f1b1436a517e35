// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/iterations/reported_units.h"

#include <algorithm>

#include "libinject/record/launch_sign.h"

namespace inject {

void ReportedUnits::add(std::uint64_t position, double units) {
  if (!is_units(units)) {
    add_unknown(position, position);
    return;
  }
  if (reported_.size() == kMaxHeld) {
    known_from_ = reported_.front().position + 1;
    reported_.pop_front();
  }
  reported_.push_back({position, units});
}

void ReportedUnits::add_unknown(std::uint64_t first, std::uint64_t last) {
  missing_.push_back({std::min(first, last), std::max(first, last)});
  if (missing_.size() <= kMaxMissing) return;
  // Merge the two oldest, with everything in between.
  const Missing oldest = missing_.front();
  missing_.pop_front();
  missing_.front().first = std::min(missing_.front().first, oldest.first);
  missing_.front().last = std::max(missing_.front().last, oldest.last);
}

std::optional<double> ReportedUnits::between(std::uint64_t first, std::uint64_t end) const {
  if (first < known_from_) return std::nullopt;
  for (const Missing& missing : missing_) {
    if (missing.first < end && missing.last >= first) return std::nullopt;
  }
  auto entry = std::lower_bound(reported_.begin(), reported_.end(), first,
                                [](const Entry& at, std::uint64_t wanted) { return at.position < wanted; });
  if (entry == reported_.end() || entry->position >= end) return std::nullopt;
  double sum = 0;
  for (; entry != reported_.end() && entry->position < end; ++entry) sum += entry->units;
  return sum;
}

void ReportedUnits::clear() {
  reported_.clear();
  missing_.clear();
  known_from_ = 0;
}

}  // namespace inject
