// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace inject {

/// The units of work that the program has reported, by position in the stream of signs: a number applies to
/// the next event, whichever thread reports it and whichever launches. So it belongs to the iteration that
/// this event is part of, and one reported before an iteration's first launch counts for that iteration.
///
/// Bounded: numbers older than the latest kMaxHeld are forgotten.
class SaidUnits {
 public:
  static constexpr std::size_t kMaxHeld = 65'536;
  static constexpr std::size_t kMaxMissing = 64;

  /// `position`: that of the next event. In ascending order. An invalid number of units (see is_units())
  /// makes that of its iteration unknown.
  void say(std::uint64_t position, double units);
  /// Numbers were reported for these events, and perhaps for all in between, that are not known.
  void miss(std::uint64_t first, std::uint64_t last);
  /// Their sum over the events from `first` up to `end`, which is not one of them; empty if none has been
  /// reported, or one is not known.
  std::optional<double> between(std::uint64_t first, std::uint64_t end) const;
  /// Position of the latest one; 0 if there is none.
  std::uint64_t latest() const { return said_.empty() ? 0 : said_.back().position; }
  void clear();

 private:
  struct Said {
    std::uint64_t position;
    double units;
  };
  struct Missing {
    std::uint64_t first;
    std::uint64_t last;
  };

  std::deque<Said> said_;
  std::deque<Missing> missing_;
  std::uint64_t known_from_ = 0;
};

}  // namespace inject
