// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/device_time.h"

#include <algorithm>
#include <utility>

namespace inject {

namespace {

// Such calls are far too many to hold.
bool is_part_of_computing(const HostCall& call, const HostCall& before) {
  return call.state == HostState::kOther && !call.asks && call.end - call.begin < kShortCall &&
         call.begin - before.end < kProcessorTimeApart;
}

/// Merges consecutive calls of one function, as a polling thread makes them, if the pause between them is no
/// longer than the call. Returns the new end. Calls that wait for the device are kept: how long each waited
/// matters.
std::vector<HostCall>::iterator join_alike(std::vector<HostCall>::iterator begin,
                                           std::vector<HostCall>::iterator end) {
  if (begin == end) return end;
  auto last = begin;
  for (auto at = std::next(begin); at != end; ++at) {
    const bool waits = at->state == HostState::kSynchronization || at->state == HostState::kCopy;
    if (!waits && at->function == last->function && at->begin - last->end <= at->end - at->begin) {
      last->end = at->end;
    } else {
      *++last = *at;
    }
  }
  return std::next(last);
}

/// Drops what no gap from `needed` on depends on. Of the calls over by then the last one stays, as a pause
/// begins with it, and so does the last reading, from which CPU time is counted.
void forget(HostThread& thread, Nanoseconds needed) {
  const auto call =
      std::upper_bound(thread.calls.begin(), thread.calls.end(), needed,
                       [](Nanoseconds time, const HostCall& candidate) { return time < candidate.end; });
  if (call != thread.calls.begin()) thread.calls.erase(thread.calls.begin(), std::prev(call));
  const auto reading =
      std::lower_bound(thread.readings.begin(), thread.readings.end(), needed,
                       [](const ProcessorReading& one, Nanoseconds time) { return one.time < time; });
  if (reading != thread.readings.begin()) thread.readings.erase(thread.readings.begin(), std::prev(reading));
  const auto fetch = std::upper_bound(thread.fetches.begin(), thread.fetches.end(), needed,
                                      [](Nanoseconds time, const HostFetch& one) { return time < one.end; });
  thread.fetches.erase(thread.fetches.begin(), fetch);
  const Nanoseconds from = thread.calls.empty() ? needed : thread.calls.front().begin;
  std::vector<Nanoseconds>& downloads = thread.small_downloads;
  downloads.erase(downloads.begin(), std::lower_bound(downloads.begin(), downloads.end(), from));
}

/// Returns how many were dropped.
template <typename Record>
std::size_t drop_older_half(std::vector<Record>& records) {
  const std::size_t half = records.size() / 2;
  records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(half));
  return half;
}

}  // namespace

DeviceTimeStatistics::Window* DeviceTimeStatistics::window(std::uint32_t number) {
  if (number == last_number_ && last_window_ != nullptr) return last_window_;
  if (number <= settled_through_) {
    ++left_out_;
    return nullptr;
  }
  if (windows_.size() >= kMaxUnsettled && windows_.count(number) == 0) {
    settled_through_ = windows_.begin()->first;
    drop(windows_.begin());
  }
  last_window_ = &windows_[number];
  last_number_ = number;
  return last_window_;
}

void DeviceTimeStatistics::drop(Windows::iterator window) {
  held_ -= window->second.held;
  left_out_ += window->second.held;
  windows_.erase(window);
}

void DeviceTimeStatistics::hold(Window& window) {
  ++window.held;
  if (++held_ > max_held_) bound();
}

void DeviceTimeStatistics::work(std::uint32_t number, std::uint32_t device, const TimedWork& work) {
  Window* found = window(number);
  if (found == nullptr) return;
  DeviceTimeline& timeline = found->devices[device];
  if (on_gap_) timeline.keep_gaps();
  if (!timeline.add(work)) {
    ++left_out_;
    return;
  }
  if (work.launch_known) found->threads[work.thread].launches = true;
  hold(*found);
}

void DeviceTimeStatistics::call(std::uint32_t number, std::uint32_t thread, const HostCall& call) {
  Window* found = window(number);
  if (found == nullptr) return;
  HostThread& host = found->threads[thread];
  std::vector<HostCall>& calls = host.calls;
  // A signal handler of the program may make calls in the middle of another.
  if (!calls.empty() && (call.begin < calls.back().end || is_part_of_computing(call, calls.back()))) return;
  calls.push_back(call);
  if (call.waited_for_all && host.waited_for_all == 0) host.waited_for_all = call.end;
  hold(*found);
}

void DeviceTimeStatistics::fetch(std::uint32_t number, std::uint32_t thread, const HostFetch& fetch) {
  Window* found = window(number);
  if (found != nullptr && add_fetch(found->threads[thread].fetches, fetch)) hold(*found);
}

void DeviceTimeStatistics::reading(std::uint32_t number, std::uint32_t thread,
                                   const ProcessorReading& reading) {
  Window* found = window(number);
  if (found == nullptr) return;
  found->threads[thread].readings.push_back(reading);
  hold(*found);
}

void DeviceTimeStatistics::small_download(std::uint32_t number, std::uint32_t thread,
                                          Nanoseconds call_begin) {
  Window* found = window(number);
  if (found == nullptr) return;
  // One graph launch may make many copies.
  std::vector<Nanoseconds>& downloads = found->threads[thread].small_downloads;
  if (!downloads.empty() && downloads.back() == call_begin) return;
  downloads.push_back(call_begin);
  hold(*found);
}

/// Too many records are held. The fullest windows release some until an eighth of all is gone, so that
/// finding them costs little per record.
void DeviceTimeStatistics::bound() {
  std::vector<std::pair<std::uint32_t, Window*>> fullest;
  fullest.reserve(windows_.size());
  for (auto& [number, window] : windows_) fullest.emplace_back(number, &window);
  std::stable_sort(fullest.begin(), fullest.end(),
                   [](const auto& a, const auto& b) { return a.second->held > b.second->held; });
  for (const auto& [number, window] : fullest) {
    release(*window);
    hand_on_gaps(number, *window, true);
    if (held_ <= max_held_ / 8 * 7) return;
  }
}

/// If work is a large part of what the window holds, its older half is judged; calls in which no gap can
/// begin any more are dropped. Releases at least an eighth of the window's records.
void DeviceTimeStatistics::release(Window& window) {
  const std::vector<DeviceWait> waits = waits_of(window.threads);
  std::vector<Nanoseconds> starts;
  for (const auto& [device, timeline] : window.devices) {
    for (const TimedWork& work : timeline.pending()) starts.push_back(work.start);
  }
  if (starts.size() >= window.held / 4) {
    const auto middle = starts.begin() + static_cast<std::ptrdiff_t>(starts.size() / 2);
    std::nth_element(starts.begin(), middle, starts.end());
    for (auto& [device, timeline] : window.devices) timeline.judge(window.threads, waits, *middle + 1);
  }
  // A device without pending work does not keep the calls held for the others: its next work may never come.
  constexpr Nanoseconds kNone = ~Nanoseconds{0};
  Nanoseconds needed = kNone;
  Nanoseconds latest = 0;
  for (const auto& [device, timeline] : window.devices) {
    latest = std::max(latest, timeline.end());
    if (!timeline.pending().empty()) needed = std::min(needed, timeline.earliest_gap());
  }
  forget_calls(window, waits, needed == kNone ? latest : needed);
  recount(window);
}

void DeviceTimeStatistics::forget_calls(Window& window, std::span<const DeviceWait> waits,
                                        Nanoseconds needed) {
  for (auto& [device, timeline] : window.devices) timeline.add_waits(waits, needed);
  for (auto& [number, thread] : window.threads) forget(thread, needed);
  // Too many calls are still needed: first merge similar ones, then drop the older half.
  const auto too_many = [&window] {
    std::size_t held = 0;
    for (const auto& [number, thread] : window.threads) held += thread.held();
    return held > window.held / 2;
  };
  if (!too_many()) return;
  for (auto& [number, thread] : window.threads)
    thread.calls.erase(join_alike(thread.calls.begin(), thread.calls.end()), thread.calls.end());
  if (!too_many()) return;
  for (auto& [number, thread] : window.threads) {
    left_out_ += drop_older_half(thread.calls);
    if (!thread.calls.empty()) forget(thread, std::max(needed, thread.calls.front().begin));
  }
  if (!too_many()) return;
  // Mostly readings of calls that are not recorded are left.
  for (auto& [number, thread] : window.threads)
    left_out_ += drop_older_half(thread.readings) + drop_older_half(thread.fetches);
}

void DeviceTimeStatistics::recount(Window& window) {
  std::size_t held = 0;
  for (auto& [device, timeline] : window.devices) held += timeline.pending().size();
  for (auto& [number, thread] : window.threads) held += thread.held();
  held_ = held_ - window.held + held;
  window.held = held;
}

void DeviceTimeStatistics::hand_on_gaps(std::uint32_t number, Window& window, bool whole) {
  if (!on_gap_) return;
  for (auto& [device, timeline] : window.devices) {
    for (IdleGap& gap : timeline.take_gaps()) {
      gap.device = device;
      // What ends with the part that is judged does not end with the window.
      gap.is_closing = gap.is_closing && whole;
      on_gap_(number, gap);
    }
  }
}

std::vector<DeviceTimeRow> DeviceTimeStatistics::totals() const {
  std::vector<DeviceTimeRow> result;
  result.reserve(totals_.size());
  for (const auto& [device, total] : totals_) {
    if (total.times.span != 0) result.push_back({0, device, total.times, total.shares.largest(), {}});
  }
  return result;
}

void DeviceTimeStatistics::lost_work(std::uint32_t number, Nanoseconds launch) {
  if (number > settled_through_) {
    Nanoseconds& first = lost_.try_emplace(number, launch).first->second;
    first = std::min(first, launch);
    return;
  }
  std::erase_if(rows_, [this, number](const DeviceTimeRow& row) {
    if (row.window != number) return false;
    Total& total = totals_[row.device];
    total.times.remove(row.times);
    total.shares = {};  // some of them were this window's
    ++removed_;
    pauses_ -= row.pauses.longer.size();
    return true;
  });
}

/// For a window whose work launched at `lost` or later is missing: the end of the part that can be judged, 0
/// if none can.
Nanoseconds DeviceTimeStatistics::cut(Window& window, Nanoseconds begin, Nanoseconds end, Nanoseconds lost) {
  if (lost <= begin) return 0;
  if (lost >= end) return end;
  bool possible = true;
  for (auto& [device, timeline] : window.devices) possible = timeline.cut(lost) && possible;
  return possible ? lost : 0;
}

/// When the device is known to have finished all work launched before the window, which may run beside the
/// window's own on any stream. Which device a call waited for is known only if there is no choice.
Nanoseconds DeviceTimeStatistics::earlier_work_over(const Window& window) {
  Nanoseconds over = ~Nanoseconds{0};
  if (window.devices.size() != 1) return over;
  for (const auto& [number, thread] : window.threads) {
    if (thread.launches && thread.waited_for_all != 0) over = std::min(over, thread.waited_for_all);
  }
  return over;
}

void DeviceTimeStatistics::settle_window(std::uint32_t number, Nanoseconds begin, Nanoseconds end) {
  if (number <= settled_through_) return;
  settled_through_ = number;
  last_window_ = nullptr;
  const auto losing = lost_.find(number);
  const Nanoseconds lost = losing == lost_.end() ? ~Nanoseconds{0} : losing->second;
  lost_.erase(lost_.begin(), lost_.upper_bound(number));
  while (!windows_.empty() && windows_.begin()->first < number) drop(windows_.begin());
  const auto found = windows_.find(number);
  if (found == windows_.end()) return;
  if (end == 0) {
    drop(found);
    return;
  }
  Window& window = found->second;
  const Nanoseconds until = cut(window, begin, end, lost);
  for (auto& [thread, host] : window.threads) host.closing = end;
  const std::vector<DeviceWait> waits = waits_of(window.threads);
  for (auto& [device, timeline] : window.devices) {
    const auto times = until == 0 ? std::nullopt : timeline.settle(window.threads, waits, begin, until);
    if (!times) continue;
    Total& total = totals_[device];
    total.times.merge(*times);
    total.shares.merge(timeline.shares());
    if (rows_.size() == kMaxRows) continue;
    KernelPauses pauses = timeline.take_pauses();
    pauses.doubt(earlier_work_over(window));
    if (pauses_ + pauses.longer.size() > kMaxPauses) {
      pauses.longer = {};
      pauses.complete = false;
    }
    pauses_ += pauses.longer.size();
    rows_.push_back({number, device, *times, timeline.shares().largest(), std::move(pauses)});
  }
  hand_on_gaps(number, window, until == end);
  held_ -= window.held;
  windows_.erase(found);
}

const DeviceTimeRow* DeviceTimeStatistics::row(std::uint32_t window, std::uint32_t device) const {
  const auto key = [](const DeviceTimeRow& row) { return std::make_pair(row.window, row.device); };
  const auto found =
      std::lower_bound(rows_.begin(), rows_.end(), std::make_pair(window, device),
                       [&](const DeviceTimeRow& row, const auto& wanted) { return key(row) < wanted; });
  return found != rows_.end() && key(*found) == std::make_pair(window, device) ? &*found : nullptr;
}

}  // namespace inject
