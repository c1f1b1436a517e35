// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The energy that a device used over a period of time, and its clocks, from readings at irregular times.
// docs/energy.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "libinject/model/device_readings.h"

namespace inject {

struct EnergyAmount {
  double joules = 0;
  double error = 0;  ///< the true value is within this of it

  /// Worth showing: the error is a third of it at most.
  bool is_sharp() const { return joules > 0 && 3 * error <= joules; }
};

/// Upper bound on a GPU's power, in milliwatts: twice its power limit, since short peaks exceed
/// that; if the limit is not known, more than any board can draw.
double greatest_power(std::uint64_t limit_mw);

/// Whether `point` can be the counter's next change after `before`: the counter never falls, and a GPU never
/// exceeds its greatest power in between. (When the counter reached the first point is not known.)
/// If not, the counter was reset.
bool can_follow(const EnergyPoint& point, const EnergyPoint& before, std::uint64_t limit_mw);

/// The energy counter of one device over time. Its value is known where it changed; in between, it is
/// bounded by two facts: it never falls, and it never rises faster than greatest_power().
class EnergyCounter {
 public:
  EnergyCounter(std::span<const EnergyPoint> points, std::uint64_t limit_mw)
      : points_(points), most_(greatest_power(limit_mw)) {}

  /// Empty where the counter was not read, or was reset between the readings around that time.
  std::optional<EnergyAmount> between(Nanoseconds begin, Nanoseconds end) const;

 private:
  /// In millijoules.
  struct Level {
    double low = 0;
    double likely = 0;
    double high = 0;
  };
  std::optional<Level> at(Nanoseconds time, std::uint32_t epoch) const;

  std::span<const EnergyPoint> points_;
  double most_;  // mW
};

/// Time without a kernel in a window.
struct KernelPauses {
  struct Pause {
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
  };
  std::vector<Pause> longer;  ///< kLong and longer
  std::uint64_t rest = 0;     ///< the shorter ones together
  bool complete = true;       ///< false: there were too many to keep
  static constexpr Nanoseconds kLong = 5 * kMillisecond;
  static constexpr std::size_t kMax = 4096;

  void add(Nanoseconds begin, Nanoseconds end);
};

/// Energy in a window's pauses: in the longer ones by the counter; in the others as in the rest of the
/// window, with an error that allows for anything from none to the greatest power. Empty where one is not
/// known.
std::optional<EnergyAmount> energy_in_pauses(const EnergyCounter& counter, std::uint64_t limit_mw,
                                             const KernelPauses& pauses, Nanoseconds begin, Nanoseconds end);

/// Readings of clocks in a stretch of time, each of which counts the same. Figures of fewer than kFewest
/// readings are empty.
struct ClockUse {
  static constexpr std::size_t kFewest = 3;
  std::size_t readings = 0;
  std::optional<double> sm_mhz;
  std::optional<std::uint32_t> sm_min_mhz;
  std::optional<double> memory_mhz;
  std::optional<std::uint32_t> memory_min_mhz;
  std::optional<std::uint32_t> temperature;
  std::optional<double> watts;
  // Shares of the readings, 0 … 1.
  std::optional<double> held;  ///< for one of the reasons
  std::optional<double> held_by_power;
  std::optional<double> held_by_heat;
  std::optional<double> held_by_hardware;
  std::optional<double> held_sm_mhz;  ///< mean while it was held down
  /// The share of the time that would be saved at most if the clock had been at its highest whenever it was
  /// held down: as if all work became faster with it.
  std::optional<double> held_cost;
};

class ClockSums {
 public:
  explicit ClockSums(std::uint32_t max_sm_mhz) : max_sm_mhz_(max_sm_mhz) {}

  void add(const ClockReading& reading);
  /// Those from `begin` to `end`.
  void add(std::span<const ClockReading> readings, Nanoseconds begin, Nanoseconds end);
  ClockUse use() const;

 private:
  struct Sum {
    std::size_t count = 0;
    std::uint64_t sum = 0;
    std::uint32_t min = 0;
    std::uint32_t max = 0;
    void add(const std::optional<std::uint32_t>& value);
  };
  std::uint32_t max_sm_mhz_;
  std::size_t readings_ = 0;
  Sum sm_;
  Sum memory_;
  Sum temperature_;
  Sum power_;
  std::size_t reasons_ = 0;  // readings that have them
  std::size_t held_ = 0;
  std::size_t by_power_ = 0;
  std::size_t by_heat_ = 0;
  std::size_t by_hardware_ = 0;
  Sum held_sm_;
  double cost_ = 0;
  bool cost_known_ = true;
};

/// The longest time known between two changes of an energy counter: 100 ms on the slowest GPUs, and
/// occasionally a little more.
inline constexpr Nanoseconds kLongestStep = 120 * kMillisecond;

/// Readings of a device's energy counter, in order of time. A change found by a reading is assumed to be at
/// most kLongestStep older than the reading, unless readings show that this counter is slower.
class EnergyReadings {
 public:
  /// A reading that began and returned at these times.
  void add(Nanoseconds begin, Nanoseconds end, std::uint64_t millijoules, std::uint64_t limit_mw);
  /// Readings have paused: the next change says nothing about the time between two changes.
  void pause() { moved_at_ = 0; }

  const std::vector<EnergyPoint>& points() const { return points_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t resets() const { return resets_; }
  std::uint64_t left_out() const { return left_out_; }
  /// Makes room: drops every second point of the older half, except those next to an edge of a window
  /// (`edges`, in order), whose energy would become less exact.
  void thin_out(std::span<const Nanoseconds> edges);

  /// The time from one move of the counter to the next: the median of the latest that were seen sharply, by
  /// readings less than half as far apart. 0 while there are none.
  Nanoseconds step() const;

 private:
  static constexpr std::size_t kMaxSteps = 16;

  void find_slow();

  std::vector<EnergyPoint> points_;
  std::deque<Nanoseconds> steps_;  // the latest
  Nanoseconds read_at_ = 0;        // the latest reading began; 0: there was none
  std::uint64_t read_ = 0;         // what it found
  Nanoseconds moved_at_ = 0;       // the latest move was found; 0: not since the pause
  Nanoseconds moved_within_ = 0;   // … and how sharply
  bool slow_ = false;              // it stayed for longer than kLongestStep
  std::uint64_t count_ = 0;
  std::uint64_t resets_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace inject
