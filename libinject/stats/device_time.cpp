// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/device_time.h"

#include <algorithm>
#include <utility>

namespace inject {

namespace {

// Longer than what the device takes from one piece of work to the next on a stream.
constexpr Nanoseconds kQueueTime = 20'000;
constexpr std::size_t kMaxShareKeys = 1024;
// CUDA C++ Programming Guide, technical specifications: 128 for each compute capability since 6.x.
constexpr std::size_t kMaxResidentGrids = 128;
// Frameworks ask for the current device or the last error ten times a launch: that is part of their
// computing, and far too much to be held.
constexpr Nanoseconds kShortCall = 1'000;

bool is_kernel(TimedWorkKind kind) {
  return kind == TimedWorkKind::kKernel || kind == TimedWorkKind::kCollective;
}

bool is_copy(TimedWorkKind kind) {
  return kind == TimedWorkKind::kUpload || kind == TimedWorkKind::kDownload ||
         kind == TimedWorkKind::kOtherCopy;
}

bool is_part_of_computing(const HostCall& call, const HostCall& before) {
  return call.state == HostState::kOther && !call.asks && call.end - call.begin < kShortCall &&
         call.begin - before.end < kProcessorTimeApart;
}

/// Makes one of calls of one function that follow each other, as a thread makes them that asks the same over
/// and over: pauses no longer than the calls are its own then. Returns the new end. What waits for the
/// device stays: how long each did so matters.
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

/// What no gap from `needed` on has to do with. Of the calls that were over by then the last one stays, as a
/// pause begins with it, and so does the last reading, as the one to count from.
void forget(HostThread& thread, Nanoseconds needed) {
  const auto call =
      std::upper_bound(thread.calls.begin(), thread.calls.end(), needed,
                       [](Nanoseconds time, const HostCall& candidate) { return time < candidate.end; });
  if (call != thread.calls.begin()) thread.calls.erase(thread.calls.begin(), std::prev(call));
  const auto reading =
      std::lower_bound(thread.readings.begin(), thread.readings.end(), needed,
                       [](const ProcessorReading& one, Nanoseconds time) { return one.time < time; });
  if (reading != thread.readings.begin()) thread.readings.erase(thread.readings.begin(), std::prev(reading));
  const Nanoseconds from = thread.calls.empty() ? needed : thread.calls.front().begin;
  std::vector<Nanoseconds>& downloads = thread.small_downloads;
  downloads.erase(downloads.begin(), std::lower_bound(downloads.begin(), downloads.end(), from));
}

/// Returns how many those are.
template <typename Record>
std::size_t drop_older_half(std::vector<Record>& records) {
  const std::size_t half = records.size() / 2;
  records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(half));
  return half;
}

bool starts_earlier(const TimedWork& a, const TimedWork& b) {
  // The kernels of one graph launch have but their streams to tell them apart.
  const auto key = [](const TimedWork& work) {
    return std::make_tuple(work.start, work.launch_begin, work.stream, !work.launch_known, work.end);
  };
  return key(a) < key(b);
}

bool launched_earlier(const TimedWork& a, const TimedWork& b) {
  return a.launch_begin < b.launch_begin;
}

}  // namespace

void DeviceTimeStatistics::Union::add(Nanoseconds begin, Nanoseconds until) {
  if (until <= end) return;
  time += until - std::max(begin, end);
  end = until;
}

DeviceTimeStatistics::Window* DeviceTimeStatistics::window(std::uint32_t number) {
  if (number == last_number_ && last_window_ != nullptr) return last_window_;
  if (number <= settled_through_) {
    ++left_out_;
    return nullptr;
  }
  if (windows_.size() >= kMaxUnsettled && windows_.count(number) == 0) {
    held_ -= windows_.begin()->second.held;
    left_out_ += windows_.begin()->second.held;
    settled_through_ = windows_.begin()->first;
    windows_.erase(windows_.begin());
  }
  last_window_ = &windows_[number];
  last_number_ = number;
  return last_window_;
}

void DeviceTimeStatistics::hold(Window& window) {
  ++window.held;
  if (++held_ > most_held_) bound();
}

void DeviceTimeStatistics::work(std::uint32_t number, std::uint32_t device, const TimedWork& work) {
  Window* found = window(number);
  if (found == nullptr) return;
  Timeline& timeline = found->devices[device];
  if (work.start < timeline.judged_until) {
    ++left_out_;
    return;
  }
  timeline.pending.push_back(work);
  timeline.pending.back().end = std::max(work.start, work.end);
  if (work.launch_known) found->threads[work.thread].launches = true;
  hold(*found);
}

void DeviceTimeStatistics::call(std::uint32_t number, std::uint32_t thread, const HostCall& call) {
  Window* found = window(number);
  if (found == nullptr) return;
  std::vector<HostCall>& calls = found->threads[thread].calls;
  // The program's own handler of a signal may make calls amid another.
  if (!calls.empty() && (call.begin < calls.back().end || is_part_of_computing(call, calls.back()))) return;
  calls.push_back(call);
  hold(*found);
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
  // A graph's launch may copy many.
  std::vector<Nanoseconds>& downloads = found->threads[thread].small_downloads;
  if (!downloads.empty() && downloads.back() == call_begin) return;
  downloads.push_back(call_begin);
  hold(*found);
}

/// Too many records: of the fullest window, work is judged up to its middle if it is what there is much of,
/// and calls are forgotten that no gap can begin in any more. An eighth of what it holds goes at least: this
/// is not to be gone through for each record.
void DeviceTimeStatistics::bound() {
  auto fullest = windows_.begin();
  for (auto at = windows_.begin(); at != windows_.end(); ++at) {
    if (at->second.held > fullest->second.held) fullest = at;
  }
  Window& window = fullest->second;
  std::vector<Nanoseconds> starts;
  for (const auto& [device, timeline] : window.devices) {
    for (const TimedWork& work : timeline.pending) starts.push_back(work.start);
  }
  if (starts.size() >= window.held / 4) {
    const auto middle = starts.begin() + static_cast<std::ptrdiff_t>(starts.size() / 2);
    std::nth_element(starts.begin(), middle, starts.end());
    for (auto& [device, timeline] : window.devices) judge(window, timeline, *middle + 1);
  }
  // A device without work at present does not hold the others' calls: what it waits for may take for ever.
  constexpr Nanoseconds kNone = ~Nanoseconds{0};
  Nanoseconds needed = kNone;
  Nanoseconds latest = 0;
  for (const auto& [device, timeline] : window.devices) {
    latest = std::max(latest, timeline.all.end);
    if (timeline.pending.empty()) continue;
    Nanoseconds from = timeline.all.end;
    if (!timeline.any) {
      from = std::min_element(timeline.pending.begin(), timeline.pending.end(), starts_earlier)->start;
    }
    needed = std::min(needed, from);
  }
  forget_calls(window, needed == kNone ? latest : needed);
  recount(window);
}

void DeviceTimeStatistics::forget_calls(Window& window, Nanoseconds needed) {
  for (auto& [number, thread] : window.threads)
    std::sort(thread.small_downloads.begin(), thread.small_downloads.end());
  for (auto& [device, timeline] : window.devices) add_waits(window, timeline, needed, {});
  for (auto& [number, thread] : window.threads) forget(thread, needed);
  // Those that are needed are what there is too much of: first alike ones are joined, then the older half
  // goes.
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
  // Readings alone, of calls that are not recorded.
  for (auto& [number, thread] : window.threads) left_out_ += drop_older_half(thread.readings);
}

void DeviceTimeStatistics::recount(Window& window) {
  std::size_t held = 0;
  for (auto& [device, timeline] : window.devices) held += timeline.pending.size();
  for (auto& [number, thread] : window.threads) held += thread.held();
  held_ = held_ - window.held + held;
  window.held = held;
}

void DeviceTimeStatistics::add_share(Shares& shares, const ShareKey& key, const Share& share) {
  const auto& [cause, function, thread, own_work] = key;
  const bool room = shares.size() < kMaxShareKeys || shares.count(key) != 0;
  Share& sum = shares[room ? key : ShareKey{cause, kNoFunction, 0, own_work}];
  sum.gaps += share.gaps;
  sum.time += share.time;
}

void DeviceTimeStatistics::blame(Timeline& timeline, std::uint64_t time, const IdleShare& share) {
  DeviceTimes::Idle& idle = timeline.idle[static_cast<std::size_t>(share.cause)];
  idle.time += time;
  ++idle.gaps;
  if (share.own_work) timeline.own_work += time;
  add_share(timeline.shares, {share.cause, share.function, share.thread, share.own_work}, {1, time});
}

/// Waits that were over by `until` give later launches a lead. `work`: what is being judged, by start.
void DeviceTimeStatistics::add_waits(const Window& window, Timeline& timeline, Nanoseconds until,
                                     std::span<const TimedWork> work) {
  if (until <= timeline.lead_until) return;
  for (const auto& [number, thread] : window.threads) {
    if (!thread.launches) continue;
    for (auto call = std::upper_bound(
             thread.calls.begin(), thread.calls.end(), timeline.lead_until,
             [](Nanoseconds time, const HostCall&candidate) { return time < candidate.end; });
         call != thread.calls.end() && call->end <= until; ++call) {
      if (!thread.waits_for_device(*call)) continue;
      const auto after =
          std::lower_bound(work.begin(), work.end(), call->end,
                           [](const TimedWork& one, Nanoseconds time) { return one.start < time; });
      const std::uint64_t position =
          timeline.started_before + static_cast<std::uint64_t>(after - work.begin());
      timeline.lead.add(position, call->end - call->begin);
    }
  }
  timeline.lead_until = until;
}

/// From `begin` on the device had nothing to do, until `next` started. `launched_before`: the launch before
/// that of `next`; may be null.
void DeviceTimeStatistics::gap(Window& window, Timeline& timeline, Nanoseconds begin, const TimedWork& next,
                               const TimedWork* launched_before, std::span<const TimedWork> work) {
  const std::uint64_t time = next.start - begin;
  if (!next.launch_known) {
    blame(timeline, time, {IdleCause::kUnknown});
    return;
  }
  if (next.launch_end <= begin) {
    const bool other_stream = timeline.last.stream != next.stream;
    const bool collective = timeline.last.kind == TimedWorkKind::kCollective;
    blame(timeline, time,
          {other_stream && collective          ? IdleCause::kCollective
           : other_stream || time > kQueueTime ? IdleCause::kOtherStream
                                               : IdleCause::kQueue});
    return;
  }
  add_waits(window, timeline, next.launch_begin, work);
  timeline.lead.expire(timeline.started);

  LateLaunch launch;
  launch.begin = next.launch_begin;
  launch.function = next.function;
  launch.state = next.copy_call ? HostState::kCopy : HostState::kLaunch;
  if (const auto found = window.threads.find(next.thread); found != window.threads.end())
    launch.thread = &found->second;
  if (launched_before != nullptr && launched_before->thread != next.thread) {
    if (const auto found = window.threads.find(launched_before->thread); found != window.threads.end())
      launch.before = &found->second;
  }
  const LateCause late = late_cause(begin, next.start, launch, timeline.lead);
  const std::uint32_t thread =
      late.on_thread_before && launched_before != nullptr ? launched_before->thread : next.thread;
  blame(timeline, time, {late.cause, late.function, thread, late.own_work});
}

/// Of a device's kernels, by start.
void DeviceTimeStatistics::compute(Timeline& timeline, const TimedWork& kernel) {
  const Nanoseconds begin = std::max(kernel.start, timeline.computes.end);
  for (const Timeline::Collective& one : timeline.collectives) {
    const Nanoseconds end = std::min(one.end, kernel.end);
    if (end > begin) timeline.collective_block_time += one.blocks * (end - begin);
  }
  timeline.computes.add(kernel.start, kernel.end);
}

void DeviceTimeStatistics::collective(Timeline& timeline, const TimedWork& kernel) {
  const Nanoseconds end = std::min(kernel.end, timeline.computes.end);
  if (end > kernel.start) timeline.collective_block_time += kernel.blocks * (end - kernel.start);
  std::erase_if(timeline.collectives,
                [&](const Timeline::Collective& one) { return one.end <= kernel.start; });
  if (timeline.collectives.size() < kMaxResidentGrids)
    timeline.collectives.push_back({kernel.end, kernel.blocks});
}

/// Judges the work that started before `until`, and forgets it.
void DeviceTimeStatistics::judge(Window& window, Timeline& timeline, Nanoseconds until) {
  std::vector<TimedWork>& pending = timeline.pending;
  const auto end =
      std::partition(pending.begin(), pending.end(), [&](const TimedWork& one) { return one.start < until; });
  std::sort(pending.begin(), end, starts_earlier);
  const std::span<const TimedWork> judged(pending.data(), static_cast<std::size_t>(end - pending.begin()));
  timeline.started_before = timeline.started;
  std::vector<TimedWork> launches;
  if (timeline.any_launch) launches.push_back(timeline.last_launch);
  for (const TimedWork& one : pending) {
    if (one.launch_known) launches.push_back(one);
  }
  std::sort(launches.begin(), launches.end(), launched_earlier);
  for (auto& [number, thread] : window.threads)
    std::sort(thread.small_downloads.begin(), thread.small_downloads.end());

  for (const TimedWork& work : judged) {
    if (!timeline.any) {
      timeline.first = work.start;
    } else if (work.start > timeline.all.end) {
      const auto after = std::lower_bound(launches.begin(), launches.end(), work, launched_earlier);
      gap(window, timeline, timeline.all.end, work, after == launches.begin() ? nullptr : &*std::prev(after),
          judged);
    }
    ++timeline.started;
    if (!timeline.any || work.end >= timeline.all.end) timeline.last = work;
    timeline.any = true;
    timeline.all.add(work.start, work.end);
    if (is_kernel(work.kind)) {
      timeline.kernel_time += work.end - work.start;
      timeline.kernels.add(work.start, work.end);
      if (work.kind == TimedWorkKind::kKernel) {
        compute(timeline, work);
      } else {
        collective(timeline, work);
      }
    }
    if (is_copy(work.kind)) timeline.copies.add(work.start, work.end);
    if (is_copy(work.kind) || is_kernel(work.kind)) timeline.copies_and_kernels.add(work.start, work.end);
    if (work.kind == TimedWorkKind::kUpload) timeline.uploads.add(work.start, work.end);
    if (work.kind == TimedWorkKind::kDownload) timeline.downloads.add(work.start, work.end);
    if (work.launch_known &&
        (!timeline.any_launch || timeline.last_launch.launch_begin <= work.launch_begin)) {
      timeline.last_launch = work;
      timeline.any_launch = true;
    }
  }
  if (timeline.any) add_waits(window, timeline, timeline.all.end, judged);
  timeline.lead.expire(timeline.started);
  pending.erase(pending.begin(), end);
  timeline.started_before = timeline.started;
  timeline.judged_until = until;
}

std::vector<IdleShare> DeviceTimeStatistics::largest(const Shares& shares) {
  std::vector<IdleShare> result;
  for (const auto& [key, share] : shares) {
    const auto& [cause, function, thread, own_work] = key;
    result.push_back({cause, function, thread, own_work, share.gaps, share.time});
  }
  std::sort(result.begin(), result.end(),
            [](const IdleShare& a, const IdleShare& b) { return a.time > b.time; });
  if (result.size() > kMaxShares) result.resize(kMaxShares);
  return result;
}

std::vector<DeviceTimeRow> DeviceTimeStatistics::totals() const {
  std::vector<DeviceTimeRow> result;
  result.reserve(totals_.size());
  for (const auto& [device, total] : totals_)
    result.push_back({0, device, total.times, largest(total.shares)});
  return result;
}

void DeviceTimeStatistics::settle_window(std::uint32_t number, Nanoseconds begin, Nanoseconds end) {
  if (number <= settled_through_) return;
  settled_through_ = number;
  last_window_ = nullptr;
  while (!windows_.empty() && windows_.begin()->first < number) {
    held_ -= windows_.begin()->second.held;
    left_out_ += windows_.begin()->second.held;
    windows_.erase(windows_.begin());
  }
  const auto found = windows_.find(number);
  if (found == windows_.end()) return;
  Window& window = found->second;
  if (end == 0) {
    left_out_ += window.held;
    held_ -= window.held;
    windows_.erase(found);
    return;
  }
  for (auto& [thread, host] : window.threads) host.closing = end;
  for (auto& [device, timeline] : window.devices) {
    judge(window, timeline, ~Nanoseconds{0});
    if (!timeline.any) continue;
    const Nanoseconds last = timeline.all.end;
    // What the device lags behind the host; never past its first work.
    Nanoseconds from = begin + (last > end ? last - end : 0);
    from = std::min(from, timeline.first);
    if (timeline.first > from) blame(timeline, timeline.first - from, {IdleCause::kStartUp});
    if (end > last) {
      TimedWork closing = timeline.last_launch;
      closing.start = closing.launch_begin = closing.end = end;
      closing.launch_end = end;
      closing.launch_known = timeline.any_launch;
      closing.function = kNoFunction;
      gap(window, timeline, last, closing, nullptr, {});
    }
    DeviceTimeRow row;
    row.window = number;
    row.device = device;
    DeviceTimes& times = row.times;
    times.span = std::max(end, last) - from;
    times.kernel_busy = timeline.kernels.time;
    times.compute_busy = timeline.computes.time;
    times.kernel_time = timeline.kernel_time;
    times.copy_only = timeline.all.time - timeline.kernels.time;
    times.copy_busy = timeline.copies.time;
    times.upload_busy = timeline.uploads.time;
    times.download_busy = timeline.downloads.time;
    times.copy_overlapped = timeline.copies.time + timeline.kernels.time - timeline.copies_and_kernels.time;
    times.idle_by_cause = timeline.idle;
    times.own_work = timeline.own_work;
    times.collective_block_time = timeline.collective_block_time;
    Total& total = totals_[device];
    total.times.merge(times);
    for (const auto& [key, share] : timeline.shares) add_share(total.shares, key, share);
    if (rows_.size() == kMaxRows) continue;
    row.shares = largest(timeline.shares);
    rows_.push_back(std::move(row));
  }
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
