// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace inject {

/// The units of work that the program reported, by position in the stream of signs: a number applies to the
/// next event, whichever thread reports it and whichever launches. It therefore belongs to the iteration
/// containing that event, and one reported before an iteration's first launch counts for that iteration.
///
/// Bounded: only the latest kMaxHeld numbers are kept.
class ReportedUnits {
 public:
  static constexpr std::size_t kMaxHeld = 65'536;
  static constexpr std::size_t kMaxMissing = 64;

  /// `position`: of the next event, in ascending order. An invalid number of units (see is_units()) makes the
  /// number for its iteration unknown.
  void add(std::uint64_t position, double units);
  /// Unknown numbers were reported for these events, and perhaps for any in between.
  void add_unknown(std::uint64_t first, std::uint64_t last);
  /// Their sum over the events in [first, end); empty if none was reported, or one is unknown.
  std::optional<double> between(std::uint64_t first, std::uint64_t end) const;
  /// Position of the latest number; 0 if there is none.
  std::uint64_t latest() const { return reported_.empty() ? 0 : reported_.back().position; }
  void clear();

 private:
  struct Entry {
    std::uint64_t position;
    double units;
  };
  struct Missing {
    std::uint64_t first;
    std::uint64_t last;
  };

  std::deque<Entry> reported_;
  std::deque<Missing> missing_;
  std::uint64_t known_from_ = 0;
};

}  // namespace inject
