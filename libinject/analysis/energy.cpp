// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/energy.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace inject {

namespace {

constexpr double kNoBoard = 10e6;  // mW
// A change may have gone unread for a long time before a reading: it is unlikely to be older than this.
constexpr Nanoseconds kUsualStep = 50 * kMillisecond;
// Points on either side considered as bounds of the counter. More would hardly be tighter; they would never
// be wrong.
constexpr std::ptrdiff_t kNeighbours = 3;
// Readings stand for a period of time if they stand for this share of it, and if none of the times without
// one is longer than both this and this share.
constexpr double kFewestRead = 0.9;
constexpr Nanoseconds kLongestUnread = kSecond;
constexpr Nanoseconds kLongestUnreadPart = 10;

double seconds_between(Nanoseconds begin, Nanoseconds end) {
  return static_cast<double>(end - begin) * 1e-9;
}

/// The most likely time of the counter's change.
Nanoseconds likely_time(const EnergyPoint& point) {
  return point.after == 0 ? point.by : point.by - std::min((point.by - point.after) / 2, kUsualStep / 2);
}

double value(const EnergyPoint& point) {
  return static_cast<double>(point.millijoules);
}

}  // namespace

double greatest_power(std::uint64_t limit_mw) {
  return limit_mw == 0 ? kNoBoard : 2 * static_cast<double>(limit_mw);
}

bool can_follow(const EnergyPoint& point, const EnergyPoint& before, std::uint64_t limit_mw) {
  if (point.millijoules < before.millijoules) return false;
  return value(point) - value(before) <=
         greatest_power(limit_mw) * seconds_between(before.after, point.by) + 1;
}

std::optional<EnergyCounter::Level> EnergyCounter::at(Nanoseconds time, std::uint32_t epoch) const {
  // The first point whose value the counter may have reached after `time`.
  const auto next = std::upper_bound(points_.begin(), points_.end(), time,
                                     [](Nanoseconds at, const EnergyPoint& point) { return at < point.by; });
  auto from = next - std::min(kNeighbours, next - points_.begin());
  auto until = next + std::min(kNeighbours, points_.end() - next);
  while (from != until && from->epoch != epoch) ++from;
  while (from != until && std::prev(until)->epoch != epoch) --until;
  Level level;
  bool low = false;
  bool high = false;
  const auto at_least = [&](double bound) {
    level.low = low ? std::max(level.low, bound) : bound;
    low = true;
  };
  const auto at_most = [&](double bound) {
    level.high = high ? std::min(level.high, bound) : bound;
    high = true;
  };
  for (auto point = from; point != until; ++point) {
    at_least(point->by <= time ? value(*point) : value(*point) - most_ * seconds_between(time, point->by));
    // The counter has no fractions of a millijoule.
    if (point->after >= time) {
      at_most(value(*point) + 1);
    } else if (point->after != 0) {
      at_most(value(*point) + 1 + most_ * seconds_between(point->after, time));
    }
  }
  if (!low || !high || level.low > level.high) return std::nullopt;
  // On the line through the changes before and after `time`.
  auto second =
      std::find_if(from, until, [&](const EnergyPoint& point) { return likely_time(point) > time; });
  if (second == from) ++second;
  if (second == until) --second;
  level.likely = value(*second);
  if (second != from && second != until) {
    const auto first = std::prev(second);
    const auto begin = static_cast<double>(likely_time(*first));
    const auto end = static_cast<double>(likely_time(*second));
    if (end > begin)
      level.likely = value(*first) +
                     (value(*second) - value(*first)) * (static_cast<double>(time) - begin) / (end - begin);
  }
  level.likely = std::clamp(level.likely, level.low, level.high);
  return level;
}

std::optional<EnergyAmount> EnergyCounter::between(Nanoseconds begin, Nanoseconds end) const {
  if (points_.size() < 2 || end <= begin) return std::nullopt;
  // A reset before the first change after `begin` does not matter: the energy used in between is bounded all
  // the same. After a later one there are no points of this epoch.
  const auto next = std::upper_bound(points_.begin(), points_.end(), begin,
                                     [](Nanoseconds at, const EnergyPoint& point) { return at < point.by; });
  const std::uint32_t epoch = (next == points_.end() ? std::prev(next) : next)->epoch;
  const std::optional<Level> first = at(begin, epoch);
  const std::optional<Level> last = at(end, epoch);
  if (!first || !last) return std::nullopt;
  const double least = std::max(0.0, last->low - first->high);
  const double most = std::min(last->high - first->low, most_ * seconds_between(begin, end));
  if (least > most) return std::nullopt;
  const double likely = std::clamp(last->likely - first->likely, least, most);
  return EnergyAmount{likely / 1e3, std::max(likely - least, most - likely) / 1e3};
}

void KernelPauses::add(Nanoseconds begin, Nanoseconds end) {
  if (end <= begin) return;
  if (end - begin < kLong) {
    rest += end - begin;
  } else if (longer.size() < kMax) {
    longer.push_back({begin, end});
  } else {
    complete = false;
  }
}

void KernelPauses::doubt(Nanoseconds until) {
  for (Pause& pause : longer) {
    const Nanoseconds begin = std::clamp(until, pause.begin, pause.end);
    rest += begin - pause.begin;
    pause.begin = begin;
  }
  std::erase_if(longer, [](const Pause& pause) { return pause.begin == pause.end; });
}

std::optional<EnergyAmount> energy_in_pauses(const EnergyCounter& counter, std::uint64_t limit_mw,
                                             const KernelPauses& pauses, Nanoseconds begin, Nanoseconds end) {
  const std::optional<EnergyAmount> all = counter.between(begin, end);
  if (!all || !pauses.complete) return std::nullopt;
  double joules = 0;
  double least = 0;
  double most = 0;
  Nanoseconds time = 0;
  for (const KernelPauses::Pause& pause : pauses.longer) {
    const Nanoseconds from = std::max(begin, pause.begin);
    const Nanoseconds until = std::min(end, pause.end);
    if (until <= from) continue;
    const std::optional<EnergyAmount> amount = counter.between(from, until);
    if (!amount) return std::nullopt;
    joules += amount->joules;
    least += std::max(0.0, amount->joules - amount->error);
    most += amount->joules + amount->error;
    time += until - from;
  }
  const Nanoseconds other = end - begin - std::min(end - begin, time);
  const Nanoseconds rest = std::min(other, pauses.rest);
  if (rest != 0) {
    most += greatest_power(limit_mw) / 1e3 * static_cast<double>(rest) * 1e-9;
    joules += std::max(0.0, all->joules - joules) * static_cast<double>(rest) / static_cast<double>(other);
  }
  most = std::min(most, all->joules + all->error);
  joules = std::clamp(joules, std::min(least, most), most);
  return EnergyAmount{joules, std::max(joules - least, most - joules)};
}

void ClockSums::Sum::add(const std::optional<std::uint32_t>& value, double duration) {
  if (!value) return;
  min = count == 0 ? *value : std::min(min, *value);
  max = std::max(max, *value);
  ++count;
  time += duration;
  sum += *value * duration;
}

void ClockSums::WholeSum::pass(Nanoseconds duration) {
  unread += duration;
  longest = std::max(longest, unread);
}

void ClockSums::WholeSum::read(const std::optional<std::uint32_t>& value, double duration) {
  add(value, duration);
  if (value) unread = 0;
}

void ClockSums::pass(Nanoseconds duration) {
  time_ += duration;
  for (WholeSum* sum : {&sm_, &memory_, &temperature_, &power_, &throttled_}) sum->pass(duration);
}

void ClockSums::add(const ClockReading& reading, double time) {
  ++readings_;
  sm_.read(reading.sm_mhz, time);
  memory_.read(reading.memory_mhz, time);
  temperature_.read(reading.temperature, time);
  power_.read(reading.milliwatts, time);
  const auto is_throttled = [&reading](unsigned reasons) -> std::optional<std::uint32_t> {
    if (!reading.throttle_reasons) return std::nullopt;
    return (*reading.throttle_reasons & reasons) != 0 ? 1u : 0u;
  };
  throttled_.read(is_throttled(~0u), time);
  by_power_.add(is_throttled(kThrottlePower), time);
  by_heat_.add(is_throttled(kThrottleHeat), time);
  by_hardware_.add(is_throttled(kThrottleHardware), time);
  if (is_throttled(~0u).value_or(0) == 0) return;
  throttled_sm_.add(reading.sm_mhz, time);
  if (!reading.sm_mhz || max_sm_mhz_ == 0) {
    cost_known_ = false;
  } else if (*reading.sm_mhz < max_sm_mhz_) {
    cost_ += time * (1 - static_cast<double>(*reading.sm_mhz) / max_sm_mhz_);
  }
}

void ClockSums::add(std::span<const ClockReading> readings, Nanoseconds begin, Nanoseconds end) {
  auto reading = std::lower_bound(readings.begin(), readings.end(), begin,
                                  [](const ClockReading& one, Nanoseconds time) { return one.time < time; });
  Nanoseconds from = begin;
  Nanoseconds passed = begin;
  while (reading != readings.end() && reading->time <= end) {
    const auto next = std::next(reading);
    const bool is_last = next == readings.end() || next->time > end;
    const Nanoseconds until = is_last ? end : reading->time + (next->time - reading->time) / 2;
    pass(reading->time - passed);
    add(*reading, static_cast<double>(until - from));
    passed = reading->time;
    read_time_ += until - from;
    from = until;
    reading = next;
  }
  pass(end - passed);
}

bool ClockSums::is_known(const WholeSum& sum) const {
  return sum.count >= ClockUse::kFewest && sum.time > 0 &&
         sum.time >= kFewestRead * static_cast<double>(read_time_) &&
         sum.longest <= std::max(kLongestUnread, time_ / kLongestUnreadPart);
}

ClockUse ClockSums::use() const {
  ClockUse use;
  use.readings = readings_;
  if (is_known(sm_)) {
    use.sm_mhz = sm_.mean();
    use.sm_min_mhz = sm_.min;
  }
  if (is_known(memory_)) {
    use.memory_mhz = memory_.mean();
    use.memory_min_mhz = memory_.min;
  }
  if (is_known(temperature_)) use.temperature = temperature_.max;
  if (is_known(power_)) use.watts = power_.mean() / 1e3;
  if (!is_known(throttled_)) return use;
  use.throttled = throttled_.mean();
  use.throttled_by_power = by_power_.mean();
  use.throttled_by_heat = by_heat_.mean();
  use.throttled_by_hardware = by_hardware_.mean();
  if (throttled_sm_.count >= ClockUse::kFewest && throttled_sm_.time >= kFewestRead * throttled_.sum)
    use.throttled_sm_mhz = throttled_sm_.mean();
  if (cost_known_ && max_sm_mhz_ != 0 && sm_.count != 0) use.throttle_cost = cost_ / throttled_.time;
  return use;
}

void EnergyReadings::add(Nanoseconds begin, Nanoseconds end, std::uint64_t millijoules,
                         std::uint64_t limit_mw) {
  ++count_;
  const bool first = read_at_ == 0;
  const Nanoseconds before = std::exchange(read_at_, begin);
  if (!first && millijoules == read_) {
    if (!slow_ && begin > points_.back().by + kLongestStep) find_slow();
    return;
  }
  read_ = millijoules;
  const Nanoseconds earliest = slow_ ? 0 : begin - std::min(begin, kLongestStep);
  EnergyPoint point{std::max(before, earliest), end, millijoules, static_cast<std::uint32_t>(resets_)};
  const Nanoseconds within = end - before;
  if (first) {
    points_.push_back(point);
    return;
  }
  if (!can_follow(point, points_.back(), limit_mw)) {
    ++resets_;
    ++point.epoch;
    moved_at_ = 0;
  }
  if (moved_at_ != 0) {
    const Nanoseconds step = end - moved_at_;
    if (2 * std::max(within, moved_within_) <= step) steps_.push_back(step);
    if (steps_.size() > kMaxSteps) steps_.pop_front();
  }
  moved_at_ = end;
  moved_within_ = within;
  points_.push_back(point);
}

// The changes so far are then bounded only by the readings that found the preceding ones.
void EnergyReadings::find_slow() {
  slow_ = true;
  for (std::size_t i = points_.size(); i-- > 1;) points_[i].after = points_[i - 1].after;
  points_.front().after = 0;
}

Nanoseconds EnergyReadings::step() const {
  if (steps_.empty()) return 0;
  std::vector<Nanoseconds> steps(steps_.begin(), steps_.end());
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

void EnergyReadings::thin_out(std::span<const Nanoseconds> edges) {
  std::vector<bool> kept(points_.size(), false);
  for (const Nanoseconds edge : edges) {
    const auto next = std::upper_bound(points_.begin(), points_.end(), edge,
                                       [](Nanoseconds at, const EnergyPoint& one) { return at < one.by; });
    const auto place = next - points_.begin();
    const auto until = std::min<std::ptrdiff_t>(place + 2, static_cast<std::ptrdiff_t>(points_.size()));
    for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(0, place - 2); i < until; ++i)
      kept[static_cast<std::size_t>(i)] = true;
  }
  std::size_t size = 0;
  bool skipped = false;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    skipped = i < points_.size() / 2 && !kept[i] && !skipped;
    if (!skipped) points_[size++] = points_[i];
  }
  points_.resize(size);
  // Mostly edges: drop the oldest.
  if (size > kept.size() / 8 * 7)
    points_.erase(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(size / 4));
  left_out_ += kept.size() - points_.size();
}

}  // namespace inject
