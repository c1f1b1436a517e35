// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/iterations.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace inject {

namespace {

constexpr std::size_t kMaxBoundaries = 65'536;
// Held by all rows together. The intervals of the oldest rows are collapsed into sums first.
constexpr std::size_t kMaxIntervals = 262'144;
// Many boundaries at once, as when the search has just locked, share one pass over the waiting records.
constexpr std::size_t kWaitingPerBoundary = 1024;

std::uint64_t duration(Nanoseconds begin, Nanoseconds end) {
  return end > begin ? end - begin : 0;
}

/// Sets the gaps between the work of `row` and that of `next`.
void add_gaps(IterationRow& row, const IterationRow& next) {
  Nanoseconds last = 0;
  Nanoseconds first = std::numeric_limits<Nanoseconds>::max();
  for (const IterationDeviceRow& after : next.devices) first = std::min(first, after.first);
  for (IterationDeviceRow& device : row.devices) {
    last = std::max(last, device.last);
    for (const IterationDeviceRow& after : next.devices) {
      if (after.device != device.device) continue;
      device.gap = duration(device.last, after.first);
      device.overlapped = after.first + (device.last - device.first) / 10 < device.last;
    }
  }
  if (!row.devices.empty() && !next.devices.empty()) row.gap = duration(last, first);
}

}  // namespace

void IterationStatistics::count(DeviceWork& work, const IterationActivity& activity) {
  const std::uint64_t time = duration(activity.start, activity.end);
  switch (activity.kind) {
    case WorkKind::kKernel:
      work.kernels.add(time);
      break;
    case WorkKind::kCopy:
      ++work.copies;
      work.copy_time += time;
      work.copy_bytes += activity.bytes;
      break;
    case WorkKind::kMemset:
      ++work.memsets;
      work.memset_time += time;
      work.memset_bytes += activity.bytes;
      break;
  }
  if (activity.launch_begin == 0) ++work.unattributed;
}

/// Whether no boundary at or before the launch can still come.
bool IterationStatistics::is_final(std::uint32_t window, Nanoseconds launch) const {
  return launch == 0 || window <= final_through_ ||
         (!boundaries_.empty() && launch < boundaries_.back().begin);
}

void IterationStatistics::activity(const IterationActivity& activity) {
  if (is_final(activity.window, activity.launch_begin)) {
    account(key_of(activity.window, activity.launch_begin), activity);
    return;
  }
  if (waiting_.size() + waiting_launches_.size() >= kMaxWaiting) spill();
  waiting_.push_back(activity);
  in_order_ = false;
}

void IterationStatistics::lost_work(std::uint32_t window, Nanoseconds launch) {
  if (window <= settled_through_) return;
  if (launch != 0 && lost_work_.size() < kMaxLost) {
    lost_work_.emplace_back(window, launch);
  } else {
    wholly_lost_.insert(window);
  }
}

void IterationStatistics::launch(std::uint32_t window, Nanoseconds begin) {
  note({begin, window, std::nullopt, 0});
}

void IterationStatistics::flops(std::uint32_t window, Nanoseconds end, std::optional<Arithmetic> arithmetic,
                                std::uint64_t flops) {
  if (flops != 0) note({end, window, arithmetic, flops});
}

void IterationStatistics::note(const WaitingLaunch& launch) {
  if (is_final(launch.window, launch.begin)) {
    launch.count(row(key_of(launch.window, launch.begin)).host);
    return;
  }
  if (waiting_.size() + waiting_launches_.size() >= kMaxWaiting) spill();
  waiting_launches_.push_back(launch);
  in_order_ = false;
}

/// The number of the latest boundary that is not after `time`; 0 if there is none, or if iterations were not
/// tracked at that time.
std::uint64_t IterationStatistics::boundary_at(Nanoseconds time) {
  if (time >= cache_.begin && time < cache_.end) return cache_.found;
  const auto next = std::upper_bound(
      boundaries_.begin(), boundaries_.end(), time,
      [](Nanoseconds wanted, const IterationBoundary& boundary) { return wanted < boundary.begin; });
  cache_.begin = next == boundaries_.begin() ? 0 : (next - 1)->begin;
  cache_.end = next == boundaries_.end() ? std::numeric_limits<Nanoseconds>::max() : next->begin;
  cache_.found = next == boundaries_.begin() || !(next - 1)->followed
                     ? 0
                     : first_ + static_cast<std::uint64_t>(next - boundaries_.begin()) - 1;
  return cache_.found;
}

IterationStatistics::Key IterationStatistics::key_of(std::uint32_t window, Nanoseconds launch) {
  const Key key{window, launch == 0 ? 0 : boundary_at(launch)};
  // The rows of a settled window are final: none is added.
  if (window <= settled_through_ && !rows_.contains(key)) return {window, 0};
  return key;
}

IterationStatistics::Row& IterationStatistics::row(const Key& key) {
  if (latest_row_ != nullptr && latest_key_ == key) return *latest_row_;
  if (key <= dropped_through_) {
    any_older_ = true;
    return older_;
  }
  const auto [place, is_new] = rows_.try_emplace(key);
  Row& made = place->second;
  latest_key_ = key;
  latest_row_ = &made;
  if (!is_new) return made;
  if (key.second != 0) {
    const auto index = static_cast<std::size_t>(key.second - first_);
    made.number = boundaries_[index].number;
    made.label = boundaries_[index].label;
    made.begin = boundaries_[index].begin;
    if (index + 1 < boundaries_.size()) made.end = boundaries_[index + 1].begin;
  }
  if (rows_.size() <= kMaxRows) return made;
  drop_oldest();
  return row(key);
}

IterationStatistics::Part& IterationStatistics::part(Row& row, std::uint32_t device) {
  for (Part& part : row.parts) {
    if (part.device == device) return part;
  }
  Part& made = row.parts.emplace_back();
  made.device = device;
  return made;
}

void IterationStatistics::account(const Key& key, const IterationActivity& activity) {
  Row& target = row(key);
  Part& sums = part(target, activity.device);
  count(sums.work, activity);
  if (key.second == 0) return;
  if (&target == &older_) {
    ++late_;
    return;
  }
  const std::uint64_t late = sums.busy.late();
  work(sums.busy, activity.start, activity.end);
  late_ += sums.busy.late() - late;
  if (activity.kind == WorkKind::kKernel) work(sums.kernel_busy, activity.start, activity.end);
  if (intervals_held_ > kMaxIntervals) bound_busy_times();
}

void IterationStatistics::work(BusyTime& busy, Nanoseconds start, Nanoseconds end) {
  const std::size_t held = busy.held();
  busy.add(start, end);
  intervals_held_ += busy.held() - held;
}

void IterationStatistics::settle(Part& part) {
  for (BusyTime* busy : {&part.busy, &part.kernel_busy}) {
    intervals_held_ -= busy->held();
    busy->settle();
  }
}

void IterationStatistics::bound_busy_times() {
  for (auto place = rows_.upper_bound(busy_settled_through_);
       place != rows_.end() && intervals_held_ > kMaxIntervals / 2; ++place) {
    for (Part& part : place->second.parts) {
      settle(part);
    }
    busy_settled_through_ = place->first;
  }
}

void IterationStatistics::assign() {
  unassigned_boundaries_ = 0;
  std::erase_if(waiting_, [this](const IterationActivity& activity) {
    if (!is_final(activity.window, activity.launch_begin)) return false;
    account(key_of(activity.window, activity.launch_begin), activity);
    return true;
  });
  std::erase_if(waiting_launches_, [this](const WaitingLaunch& launch) {
    if (!is_final(launch.window, launch.begin)) return false;
    launch.count(row(key_of(launch.window, launch.begin)).host);
    return true;
  });
}

/// Assigns records of windows up to this one. Sorts the waiting records only once, however many windows are
/// settled in a row.
void IterationStatistics::assign_through(std::uint32_t window) {
  const auto earlier = [](const auto& a, const auto& b) { return a.window < b.window; };
  const auto put_in_order = [&earlier](auto& waiting) {
    if (!std::is_sorted(waiting.begin(), waiting.end(), earlier))
      std::stable_sort(waiting.begin(), waiting.end(), earlier);
  };
  if (!std::exchange(in_order_, true)) {
    put_in_order(waiting_);
    put_in_order(waiting_launches_);
  }
  for (; !waiting_.empty() && waiting_.front().window <= window; waiting_.pop_front()) {
    const IterationActivity& activity = waiting_.front();
    account(key_of(activity.window, activity.launch_begin), activity);
  }
  for (; !waiting_launches_.empty() && waiting_launches_.front().window <= window;
       waiting_launches_.pop_front()) {
    const WaitingLaunch& launch = waiting_launches_.front();
    launch.count(row(key_of(launch.window, launch.begin)).host);
  }
}

void IterationStatistics::spilled(std::uint32_t window, Nanoseconds launch, std::uint64_t records) {
  spilled_.first = spilled_.any ? std::min(spilled_.first, launch) : launch;
  spilled_.last = std::max(spilled_.last, launch);
  spilled_.window = std::max(spilled_.window, window);
  spilled_.records += records;
  spilled_.any = true;
}

/// Makes room among the waiting records: the older half is counted as outside of iterations.
void IterationStatistics::spill() {
  assign();
  if (waiting_.size() + waiting_launches_.size() < kMaxWaiting - kMaxWaiting / 8) return;
  const auto half = [](const auto& waiting) {
    return waiting.begin() + static_cast<std::ptrdiff_t>((waiting.size() + 1) / 2);
  };
  for (auto activity = waiting_.begin(); activity != half(waiting_); ++activity) {
    account({activity->window, 0}, *activity);
    spilled(activity->window, activity->launch_begin, 1);
  }
  for (auto launch = waiting_launches_.begin(); launch != half(waiting_launches_); ++launch) {
    launch->count(row({launch->window, 0}).host);
    spilled(launch->window, launch->begin, 0);
  }
  waiting_.erase(waiting_.begin(), half(waiting_));
  waiting_launches_.erase(waiting_launches_.begin(), half(waiting_launches_));
}

void IterationStatistics::add_unprofiled(const UnprofiledStep& step) {
  unprofiled_times_.add(step.duration);
  if (unprofiled_steps_.size() == kMaxUnprofiled) unprofiled_steps_.pop_front();
  unprofiled_steps_.push_back(step);
}

void IterationStatistics::boundary(const IterationBoundary& boundary) {
  if (boundary.anew) {
    unprofiled_times_ = SampleStats();
    unprofiled_steps_.clear();
  }
  if (!boundaries_.empty()) {
    const IterationBoundary& before = boundaries_.back();
    if (boundary.begin <= before.begin) {
      ++lost_;
      return;
    }
    if (boundary.unprofiled_before)
      add_unprofiled(
          {before.number, before.begin, duration(before.begin, boundary.begin), boundary.units_before});
    // The iteration that ends here, in the window that it began in and in the one that it ends in.
    const std::uint64_t ended = first_ + boundaries_.size() - 1;
    for (const std::uint32_t window : {before.window, boundary.window_before}) {
      const auto place = rows_.find({window, ended});
      if (window == 0 || place == rows_.end()) continue;
      Row& row = place->second;
      if (!row.settled) row.end = boundary.begin;
      if (row.complete || row.past_window) continue;
      if (window != before.window || window != boundary.window_before) continue;
      row.units = boundary.units_before;
      row.complete = !row.incomplete;
      if (row.settled && row.complete) {
        if (row.label == IterationLabel::kIteration) --incomplete_;
        count_complete(place->first, row);
      }
    }
  }
  boundaries_.push_back(boundary);
  if (boundaries_.size() > kMaxBoundaries) {
    boundaries_.pop_front();
    ++first_;
  }
  cache_ = {};
  if (boundary.window > settled_through_) row({boundary.window, first_ + boundaries_.size() - 1});
  ++unassigned_boundaries_;
  if (unassigned_boundaries_ * kWaitingPerBoundary >= waiting_.size() + waiting_launches_.size()) assign();
}

void IterationStatistics::count_complete(const Key& key, const Row& row) {
  if (row.label != IterationLabel::kIteration) return;
  step_times_.add(duration(row.begin, row.end));
  recent_step_times_.push_back(duration(row.begin, row.end));
  if (recent_step_times_.size() > kMaxRecent) recent_step_times_.pop_front();
  // Only for the first windows, as in the table of windows.
  if (windows_.size() < kMaxWindows || windows_.contains(key.first))
    windows_.try_emplace(key.first, &window_budget_).first->second.add(duration(row.begin, row.end));
}

SampleStats IterationStatistics::recent_step_times(std::uint64_t count) const {
  SampleStats recent;
  const std::size_t known = recent_step_times_.size();
  for (std::size_t i = known - std::min<std::uint64_t>(count, known); i < known; ++i)
    recent.add(recent_step_times_[i]);
  return recent;
}

void IterationStatistics::settle_row(const Key& key, Row& row) {
  if (row.settled) return;
  row.settled = true;
  for (Part& part : row.parts) {
    settle(part);
  }
  if (key.second == 0 || row.past_window) return;
  ++phases_[static_cast<std::size_t>(row.label)];
  if (spilled_.any && row.begin <= spilled_.last && spilled_.first < row.end) {
    row.incomplete = true;
    row.complete = false;
    lost_ += spilled_.records - spilled_.counted;
    spilled_.counted = spilled_.records;
  }
  if (row.complete) {
    count_complete(key, row);
  } else if (row.label == IterationLabel::kIteration) {
    ++incomplete_;
  }
}

void IterationStatistics::settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end) {
  if (window <= settled_through_) return;
  final_through_ = window;
  assign_through(window);
  std::erase_if(lost_work_, [this, window](const auto& lost) {
    if (lost.first > window) return false;
    if (const auto place = rows_.find(key_of(lost.first, lost.second)); place != rows_.end()) {
      place->second.incomplete = true;
      place->second.complete = false;
    }
    return true;
  });
  for (auto place = rows_.lower_bound({settled_through_ + 1, 0});
       place != rows_.end() && place->first.first <= window; ++place) {
    Row& row = place->second;
    if (wholly_lost_.contains(place->first.first)) {
      row.incomplete = true;
      row.complete = false;
    }
    if (end == 0 && place->first.second != 0 && !row.settled && !row.complete) {
      // The part of it that lay in the window is unknown.
      row.begin = row.end = 0;
      row.incomplete = true;
    } else if (end != 0 && place->first.second != 0 && !row.settled) {
      // Calls belong to a window until it has closed on all threads, which is some time after its end.
      row.past_window = row.begin >= end;
      row.begin = std::max(row.begin, begin);
      row.end = std::max(row.begin, row.end == 0 ? end : std::min(row.end, end));
    }
    settle_row(place->first, row);
  }
  wholly_lost_.erase(wholly_lost_.begin(), wholly_lost_.upper_bound(window));
  settled_through_ = window;
  if (waiting_.empty()) waiting_.shrink_to_fit();
  if (waiting_launches_.empty()) waiting_launches_.shrink_to_fit();
  if (spilled_.window <= window) spilled_ = {};
  // Later launches are all after the last boundary before the window's end.
  while (boundaries_.size() > 1 && boundaries_[1].begin <= end) {
    boundaries_.pop_front();
    ++first_;
  }
  cache_ = {};
}

void IterationStatistics::drop_oldest() {
  const auto oldest = rows_.begin();
  Row& row = oldest->second;
  settle_row(oldest->first, row);
  any_older_ = true;
  older_.host.merge(row.host);
  older_.incomplete = older_.incomplete || row.incomplete;
  for (const Part& from : row.parts) {
    Part& to = part(older_, from.device);
    to.work.merge(from.work);
    to.more_busy += from.busy.busy();
    to.more_kernel_busy += from.kernel_busy.busy();
  }
  dropped_through_ = oldest->first;
  latest_row_ = nullptr;
  rows_.erase(oldest);
}

const SampleStats* IterationStatistics::window_step_times(std::uint32_t window) const {
  const auto place = windows_.find(window);
  return place == windows_.end() ? nullptr : &place->second;
}

IterationRow IterationStatistics::shown(const Key& key, const Row& row) {
  IterationRow result;
  result.kind = key.second == 0 ? IterationRow::Kind::kOutside : IterationRow::Kind::kPhase;
  result.window = key.first;
  result.number = row.number;
  result.label = row.label;
  result.complete = row.complete && row.settled;
  result.lost = row.incomplete;
  result.begin = row.begin;
  // Until the window is settled, an iteration that continues after it may end at any time.
  result.end = row.settled || row.complete ? row.end : 0;
  result.launches = row.host.launches;
  if (result.complete) result.units = row.units;
  result.flops = row.host.flops;
  for (const Part& part : row.parts) {
    result.devices.push_back({part.device, part.work, part.busy.busy() + part.more_busy,
                              part.kernel_busy.busy() + part.more_kernel_busy, part.busy.first(),
                              part.busy.last(), std::nullopt, false});
  }
  std::sort(result.devices.begin(), result.devices.end(),
            [](const IterationDeviceRow& a, const IterationDeviceRow& b) { return a.device < b.device; });
  return result;
}

std::vector<IterationRow> IterationStatistics::rows_of(std::uint32_t window) const {
  std::vector<IterationRow> result;
  Key before{0, 0};
  for (auto place = rows_.lower_bound({window, 1}); place != rows_.end() && place->first.first == window;
       ++place) {
    if (place->second.past_window) continue;
    result.push_back(shown(place->first, place->second));
    if (result.size() > 1 && before.second + 1 == place->first.second)
      add_gaps(result[result.size() - 2], result.back());
    before = place->first;
  }
  return result;
}

std::vector<IterationRow> IterationStatistics::rows() const {
  // Waiting records count as outside for now, so that the rows add up to the window's work at any time.
  std::map<Key, Row> waiting;
  for (const IterationActivity& activity : waiting_) {
    count(part(waiting[{activity.window, 0}], activity.device).work, activity);
  }
  for (const WaitingLaunch& launch : waiting_launches_) launch.count(waiting[{launch.window, 0}].host);
  const auto add = [](Row& row, const Row& more) {
    row.host.merge(more.host);
    row.incomplete = row.incomplete || more.incomplete;
    for (const Part& from : more.parts) part(row, from.device).work.merge(from.work);
  };
  for (const auto& [key, row] : rows_) {
    if (row.past_window && (!row.host.empty() || !row.parts.empty())) add(waiting[{key.first, 0}], row);
  }
  for (auto& [key, row] : waiting) {
    if (const auto place = rows_.find(key); place != rows_.end()) add(row, place->second);
  }

  std::vector<IterationRow> result;
  result.reserve(rows_.size() + waiting.size() + 1);
  auto outside = waiting.begin();
  for (const auto& [key, row] : rows_) {
    for (; outside != waiting.end() && outside->first < key; ++outside) {
      result.push_back(shown(outside->first, outside->second));
    }
    if ((outside != waiting.end() && outside->first == key) || row.past_window) continue;
    result.push_back(shown(key, row));
    // The gap before this row belongs to the previous row, if that is the previous boundary's.
    const auto before = key.second > 1 ? rows_.find({key.first, key.second - 1}) : rows_.end();
    if (before != rows_.end()) add_gaps(result[result.size() - 2], result.back());
  }
  for (; outside != waiting.end(); ++outside) result.push_back(shown(outside->first, outside->second));
  if (any_older_) {
    result.push_back(shown({0, 0}, older_));
    result.back().kind = IterationRow::Kind::kOlder;
  }
  for (IterationRow& row : result) row.lost = row.lost || wholly_lost_.contains(row.window);
  return result;
}

}  // namespace inject
