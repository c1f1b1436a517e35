// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The energy used by a device over a period of time, and its clocks, from readings at irregular times.
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
  double error = 0;  ///< bound: the true value is within joules ± error

  /// Precise enough to be shown: the error is at most a third of the value.
  bool is_precise() const { return joules > 0 && 3 * error <= joules; }
};

/// Upper bound on a GPU's power, in milliwatts: twice its power limit, since short peaks exceed the limit; if
/// the limit is unknown, more than any board can draw.
double greatest_power(std::uint64_t limit_mw);

/// Whether `point` can be the counter's next change after `before`: the counter never falls, and a GPU never
/// exceeds its greatest power in between. (When the counter reached the first point is unknown.) If not, the
/// counter was reset.
bool can_follow(const EnergyPoint& point, const EnergyPoint& before, std::uint64_t limit_mw);

/// The energy counter of one device over time. Its value is known where it changed; in between, it is
/// bounded, since it never falls, and never rises faster than greatest_power().
class EnergyCounter {
 public:
  EnergyCounter(std::span<const EnergyPoint> points, std::uint64_t limit_mw)
      : points_(points), most_(greatest_power(limit_mw)) {}

  /// Empty if the counter was not read, or was reset between the readings around that time.
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

/// Time without a kernel of the window's in a window.
struct KernelPauses {
  struct Pause {
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
  };
  std::vector<Pause> longer;  ///< kLong and longer, or what is left of those
  std::uint64_t rest = 0;     ///< the shorter ones, and doubtful ones, together
  bool complete = true;       ///< false: there were too many to keep
  static constexpr Nanoseconds kLong = 5 * kMillisecond;
  static constexpr std::size_t kMax = 4096;

  void add(Nanoseconds begin, Nanoseconds end);
  /// Other kernels may have run until then.
  void doubt(Nanoseconds until);
};

/// Energy in a window's pauses: for the longer ones from the counter; for the others as for the rest of the
/// window, with an error that allows for anything from zero to the greatest power. Empty if one of them is
/// unknown.
std::optional<EnergyAmount> energy_in_pauses(const EnergyCounter& counter, std::uint64_t limit_mw,
                                             const KernelPauses& pauses, Nanoseconds begin, Nanoseconds end);

/// Clock readings over a period of time, each weighted by the time that it stands for. A value is empty if
/// there are fewer than kFewest readings of it, if they stand for less than nine tenths of the time, or if
/// one did not come for more than a second and a tenth of the time.
struct ClockUse {
  static constexpr std::size_t kFewest = 3;
  std::size_t readings = 0;
  std::optional<double> sm_mhz;
  std::optional<std::uint32_t> sm_min_mhz;
  std::optional<double> memory_mhz;
  std::optional<std::uint32_t> memory_min_mhz;
  std::optional<std::uint32_t> temperature;
  std::optional<double> watts;
  // Shares of the time, 0 … 1.
  std::optional<double> throttled;  ///< for any of the reasons
  std::optional<double> throttled_by_power;
  std::optional<double> throttled_by_heat;
  std::optional<double> throttled_by_hardware;
  std::optional<double> throttled_sm_mhz;  ///< mean while throttled
  /// Upper bound on the share of the time that would be saved if the clock had been at its highest whenever
  /// it was throttled, assuming that all work scales with it.
  std::optional<double> throttle_cost;
};

class ClockSums {
 public:
  explicit ClockSums(std::uint32_t max_sm_mhz) : max_sm_mhz_(max_sm_mhz) {}

  /// Adds the readings from `begin` to `end`, which come at irregular intervals. Each stands for the time
  /// that is nearer to it than to the others, even if one of its values is missing. For times without any,
  /// readings of the other times stand.
  void add(std::span<const ClockReading> readings, Nanoseconds begin, Nanoseconds end);
  ClockUse use() const;

 private:
  struct Sum {
    std::size_t count = 0;
    double time = 0;
    double sum = 0;  // values × time
    std::uint32_t min = 0;
    std::uint32_t max = 0;
    void add(const std::optional<std::uint32_t>& value, double duration);
    double mean() const { return sum / time; }
  };
  /// Of all the time, not of a part that depends on other values.
  struct WholeSum : Sum {
    Nanoseconds unread = 0;  // since the latest reading
    Nanoseconds longest = 0;
    void pass(Nanoseconds duration);
    void read(const std::optional<std::uint32_t>& value, double duration);
  };

  void pass(Nanoseconds duration);
  void add(const ClockReading& reading, double time);
  bool is_known(const WholeSum& sum) const;

  std::uint32_t max_sm_mhz_;
  std::size_t readings_ = 0;
  Nanoseconds time_ = 0;       // at all
  Nanoseconds read_time_ = 0;  // that readings stand for
  WholeSum sm_;
  WholeSum memory_;
  WholeSum temperature_;
  WholeSum power_;
  WholeSum throttled_;  // 0 or 1, for readings that include reasons
  Sum by_power_;
  Sum by_heat_;
  Sum by_hardware_;
  Sum throttled_sm_;
  double cost_ = 0;
  bool cost_known_ = true;
};

/// The longest known time between two changes of an energy counter: 100 ms on the slowest GPUs, and
/// occasionally a little more.
inline constexpr Nanoseconds kLongestStep = 120 * kMillisecond;

/// Readings of a device's energy counter, in order of time. A change found by a reading is assumed to be at
/// most kLongestStep older than the reading, unless readings show that this counter is slower.
class EnergyReadings {
 public:
  /// Adds a reading that began and returned at these times.
  void add(Nanoseconds begin, Nanoseconds end, std::uint64_t millijoules, std::uint64_t limit_mw);
  /// Readings have paused: the next change gives no information on the time between two changes.
  void pause() { moved_at_ = 0; }

  const std::vector<EnergyPoint>& points() const { return points_; }
  std::uint64_t count() const { return count_; }
  std::uint64_t resets() const { return resets_; }
  std::uint64_t left_out() const { return left_out_; }
  /// Makes room: drops every second point of the older half, except those next to an edge of a window
  /// (`edges`, in order), whose energy would become less precise.
  void thin_out(std::span<const Nanoseconds> edges);

  /// The time from one change of the counter to the next: the median of the latest ones that were determined
  /// precisely, by readings less than half as far apart. 0 if there are none.
  Nanoseconds step() const;

 private:
  static constexpr std::size_t kMaxSteps = 16;

  void find_slow();

  std::vector<EnergyPoint> points_;
  std::deque<Nanoseconds> steps_;  // the latest
  Nanoseconds read_at_ = 0;        // begin of the latest reading; 0: none
  std::uint64_t read_ = 0;         // its value
  Nanoseconds moved_at_ = 0;       // when the latest change was found; 0: none since the pause
  Nanoseconds moved_within_ = 0;   // … and the uncertainty of that time
  bool slow_ = false;              // the counter stayed the same for longer than kLongestStep
  std::uint64_t count_ = 0;
  std::uint64_t resets_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace inject
