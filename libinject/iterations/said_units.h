// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace inject {

/// The units of work that the program has said, by place in the stream of signs: a number is of the event
/// that comes next, whichever thread says it and whichever launches. So it belongs to the iteration which
/// that event is part of, and one that is said before an iteration's first launch counts in this iteration.
///
/// Bounded: what lies further back than the latest kMaxHeld numbers is not known.
class SaidUnits {
 public:
  static constexpr std::size_t kMaxHeld = 65'536;
  static constexpr std::size_t kMaxMissing = 64;

  /// `position`: of the next event. In ascending order. What is no number of units (is_units())
  /// is not known.
  void say(std::uint64_t position, double units);
  /// Others have been said of these events that are not known, and perhaps of all in between.
  void miss(std::uint64_t first, std::uint64_t last);
  /// Their sum over the events from `first` up to `end`, which is not one of them; empty if none has been
  /// said, or one is not known.
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
