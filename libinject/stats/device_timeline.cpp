// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/device_timeline.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace inject {

namespace {

// Longer than the device takes from one piece of work to the next on a stream.
constexpr Nanoseconds kQueueTime = 20 * kMicrosecond;
// CUDA C++ Programming Guide, technical specifications: 128 for each compute capability since 6.x.
constexpr std::size_t kMaxResidentGrids = 128;
// A program copies ahead on one or two streams.
constexpr std::size_t kMaxStreamsAhead = 16;

bool is_kernel(TimedWorkKind kind) {
  return kind == TimedWorkKind::kKernel || kind == TimedWorkKind::kCollective;
}

bool is_copy(TimedWorkKind kind) {
  return kind == TimedWorkKind::kUpload || kind == TimedWorkKind::kDownload ||
         kind == TimedWorkKind::kOtherCopy;
}

bool starts_earlier(const TimedWork& a, const TimedWork& b) {
  // The kernels of one graph launch differ only in their streams.
  const auto key = [](const TimedWork& work) {
    return std::make_tuple(work.start, work.launch_begin, work.stream, !work.launch_known, work.end);
  };
  return key(a) < key(b);
}

bool launched_earlier(const TimedWork& a, const TimedWork& b) {
  return a.launch_begin < b.launch_begin;
}

}  // namespace

std::vector<DeviceWait> waits_of(HostThreads& threads) {
  std::vector<DeviceWait> waits;
  for (auto& [number, thread] : threads) {
    std::sort(thread.small_downloads.begin(), thread.small_downloads.end());
    if (!thread.launches) continue;
    for (const HostCall& call : thread.calls) {
      if (thread.waits_for_device(call)) waits.push_back({call.end, call.end - call.begin});
    }
  }
  std::sort(waits.begin(), waits.end(),
            [](const DeviceWait& a, const DeviceWait& b) { return a.end < b.end; });
  return waits;
}

std::span<const DeviceWait> waits_between(std::span<const DeviceWait> waits, Nanoseconds begin,
                                          Nanoseconds end) {
  const auto after = [&waits](Nanoseconds time) {
    return std::upper_bound(waits.begin(), waits.end(), time,
                            [](Nanoseconds value, const DeviceWait& wait) { return value < wait.end; });
  };
  const auto first = after(begin);
  return {first, std::max(first, after(end))};
}

void DeviceTimeline::Union::add(Nanoseconds begin, Nanoseconds until) {
  if (until <= end) return;
  time += until - std::max(begin, end);
  end = until;
}

bool DeviceTimeline::add(const TimedWork& work) {
  if (work.start < judged_until_) return false;
  pending_.push_back(work);
  pending_.back().end = std::max(work.start, work.end);
  return true;
}

bool DeviceTimeline::cut(Nanoseconds launch) {
  const bool one_stream = std::all_of(pending_.begin(), pending_.end(), [this](const TimedWork& work) {
    return work.stream == pending_.front().stream;
  });
  std::erase_if(pending_, [launch](const TimedWork& work) {
    return (work.launch_known ? work.launch_begin : work.start) >= launch;
  });
  const bool lags = std::any_of(pending_.begin(), pending_.end(),
                                [launch](const TimedWork& work) { return work.end > launch; });
  return judged_until_ <= launch && (one_stream || !lags);
}

Nanoseconds DeviceTimeline::earliest_gap() const {
  return any_ ? all_.end : std::min_element(pending_.begin(), pending_.end(), starts_earlier)->start;
}

void DeviceTimeline::blame(std::uint64_t time, const IdleShare& share, const TimedWork* next,
                           Nanoseconds call) {
  DeviceTimes::Idle& idle = idle_[static_cast<std::size_t>(share.cause)];
  idle.time += time;
  ++idle.gaps;
  if (share.own_work) own_work_ += time;
  shares_.add({share.cause, share.function, share.thread, share.own_work, 1, time});
  if (!keeps_gaps_) return;
  IdleGap gap{time, share.cause, share.thread, call};
  gap.own_work = share.own_work;
  if (next != nullptr) {
    gap.thread = next->thread;
    gap.launched = next->launch_begin;
    gap.is_closing = next->closing;
  }
  gaps_.push_back(gap);
}

void DeviceTimeline::add_waits(std::span<const DeviceWait> waits, Nanoseconds until,
                               std::span<const TimedWork> work) {
  if (until <= lead_until_) return;
  for (const DeviceWait& wait : waits_between(waits, lead_until_, until)) {
    const auto after =
        std::lower_bound(work.begin(), work.end(), wait.end,
                         [](const TimedWork& one, Nanoseconds time) { return one.start < time; });
    lead_.add(started_before_ + static_cast<std::uint64_t>(after - work.begin()), wait.time);
  }
  lead_until_ = until;
}

void DeviceTimeline::gap(const HostThreads& threads, std::span<const DeviceWait> waits, Nanoseconds begin,
                         const TimedWork& next, const TimedWork* launched_before,
                         std::span<const TimedWork> work) {
  const std::uint64_t time = next.start - begin;
  if (!next.launch_known) {
    blame(time, {IdleCause::kUnknown}, &next);
    return;
  }
  if (next.launch_end <= begin) {
    const bool other_stream = last_.stream != next.stream;
    const bool collective = last_.kind == TimedWorkKind::kCollective;
    // Hardly anything but a graph's launch has several pieces of work.
    const bool same_launch =
        last_.launch_known && last_.thread == next.thread && last_.launch_begin == next.launch_begin;
    blame(time,
          {other_stream && collective ? IdleCause::kCollective
           : time > kQueueTime        ? IdleCause::kOtherStream
           : same_launch              ? IdleCause::kGraph
           : other_stream             ? IdleCause::kOtherStream
                                      : IdleCause::kQueue},
          &next);
    return;
  }
  add_waits(waits, next.launch_begin, work);
  lead_.expire(started_);

  LateLaunch launch;
  launch.begin = next.launch_begin;
  launch.function = next.function;
  launch.state = next.copy_call ? HostState::kCopy : HostState::kLaunch;
  if (const auto found = threads.find(next.thread); found != threads.end()) launch.thread = &found->second;
  if (launched_before != nullptr && launched_before->thread != next.thread) {
    if (const auto found = threads.find(launched_before->thread); found != threads.end())
      launch.before = &found->second;
  }
  const LateCause late = late_cause(begin, next.start, launch, lead_);
  const std::uint32_t thread =
      late.on_thread_before && launched_before != nullptr ? launched_before->thread : next.thread;
  blame(time, {late.cause, late.function, thread, late.own_work}, &next, late.call);
  if (launch.thread == nullptr || (late.cause != IdleCause::kHostWait && !late.own_work)) return;
  const FetchTimes fetching = fetch_times(launch.thread->fetches, begin, next.start);
  for (std::size_t kind = 0; kind < kFetchKinds; ++kind) fetch_idle_[kind] += fetching[kind];
}

/// Whether the device was busy with work launched before the window until this, its first kernel, started:
/// the kernel had been launched by then, nothing of the window ran before it on its stream, and it did not
/// wait for a copy, or it would have started right after that.
bool DeviceTimeline::ends_earlier_work(const TimedWork& work) const {
  return is_kernel(work.kind) && kernels_.end == 0 && work.launch_known && work.launch_end <= all_.end &&
         work.start - all_.end > kQueueTime && copied_on_.size() < kMaxStreamsAhead && !told_ &&
         std::find(copied_on_.begin(), copied_on_.end(), work.stream) == copied_on_.end();
}

/// Drops the copies before the kernel, which ran beside work launched before the window, and the gaps between
/// them.
void DeviceTimeline::begin_with(const TimedWork& kernel) {
  first_ = kernel.start;
  for (Union* sum : {&all_, &copies_, &copies_and_kernels_, &uploads_, &downloads_}) sum->time = 0;
  idle_ = {};
  own_work_ = 0;
  fetch_idle_ = {};
  shares_ = {};
  gaps_.clear();
}

std::vector<IdleGap> DeviceTimeline::take_gaps() {
  told_ = told_ || (!gaps_.empty() && kernels_.end == 0);
  return std::exchange(gaps_, {});
}

void DeviceTimeline::count(const TimedWork& work) {
  if (kernels_.end == 0 && copied_on_.size() < kMaxStreamsAhead &&
      std::find(copied_on_.begin(), copied_on_.end(), work.stream) == copied_on_.end())
    copied_on_.push_back(work.stream);
  all_.add(work.start, work.end);
  if (is_kernel(work.kind)) {
    kernel_time_ += work.end - work.start;
    if (kernels_.end == 0) {
      first_kernel_ = work.start;
    } else {
      pauses_.add(kernels_.end, work.start);
    }
    kernels_.add(work.start, work.end);
    if (work.kind == TimedWorkKind::kKernel) {
      compute(work);
    } else {
      collective(work);
    }
  }
  if (is_copy(work.kind)) copies_.add(work.start, work.end);
  if (is_copy(work.kind) || is_kernel(work.kind)) copies_and_kernels_.add(work.start, work.end);
  if (work.kind == TimedWorkKind::kUpload) uploads_.add(work.start, work.end);
  if (work.kind == TimedWorkKind::kDownload) downloads_.add(work.start, work.end);
}

void DeviceTimeline::compute(const TimedWork& kernel) {
  const Nanoseconds begin = std::max(kernel.start, computes_.end);
  for (const Collective& one : collectives_) {
    const Nanoseconds end = std::min(one.end, kernel.end);
    if (end > begin) collective_block_time_ += one.blocks * (end - begin);
  }
  computes_.add(kernel.start, kernel.end);
}

void DeviceTimeline::collective(const TimedWork& kernel) {
  const Nanoseconds end = std::min(kernel.end, computes_.end);
  if (end > kernel.start) collective_block_time_ += kernel.blocks * (end - kernel.start);
  std::erase_if(collectives_, [&](const Collective& one) { return one.end <= kernel.start; });
  if (collectives_.size() < kMaxResidentGrids) collectives_.push_back({kernel.end, kernel.blocks});
}

void DeviceTimeline::judge(const HostThreads& threads, std::span<const DeviceWait> waits, Nanoseconds until) {
  const auto end = std::partition(pending_.begin(), pending_.end(),
                                  [&](const TimedWork& one) { return one.start < until; });
  std::sort(pending_.begin(), end, starts_earlier);
  const std::span<const TimedWork> judged(pending_.data(), static_cast<std::size_t>(end - pending_.begin()));
  started_before_ = started_;
  std::vector<TimedWork> launches;
  if (any_launch_) launches.push_back(last_launch_);
  for (const TimedWork& one : pending_) {
    if (one.launch_known) launches.push_back(one);
  }
  std::sort(launches.begin(), launches.end(), launched_earlier);

  for (const TimedWork& work : judged) {
    if (!any_) {
      first_ = work.start;
    } else if (work.start > all_.end && ends_earlier_work(work)) {
      begin_with(work);
    } else if (work.start > all_.end) {
      const auto after = std::lower_bound(launches.begin(), launches.end(), work, launched_earlier);
      gap(threads, waits, all_.end, work, after == launches.begin() ? nullptr : &*std::prev(after), judged);
    }
    ++started_;
    if (!any_ || work.end >= all_.end) last_ = work;
    any_ = true;
    count(work);
    if (work.launch_known && (!any_launch_ || last_launch_.launch_begin <= work.launch_begin)) {
      last_launch_ = work;
      any_launch_ = true;
    }
  }
  if (any_) add_waits(waits, all_.end, judged);
  lead_.expire(started_);
  pending_.erase(pending_.begin(), end);
  started_before_ = started_;
  judged_until_ = until;
}

std::optional<DeviceTimes> DeviceTimeline::settle(const HostThreads& threads,
                                                  std::span<const DeviceWait> waits, Nanoseconds begin,
                                                  Nanoseconds end) {
  judge(threads, waits, ~Nanoseconds{0});
  if (!any_) return std::nullopt;
  const Nanoseconds last = all_.end;
  // Later than `begin` by the time that the device lags behind the host, but never after its first work.
  Nanoseconds from = begin + (last > end ? last - end : 0);
  from = std::min(from, first_);
  if (first_ > from) blame(first_ - from, {IdleCause::kStartUp});
  if (end > last) {
    TimedWork closing = last_launch_;
    closing.start = closing.launch_begin = closing.end = end;
    closing.launch_end = end;
    closing.launch_known = any_launch_;
    closing.function = kNoFunction;
    closing.closing = true;
    gap(threads, waits, last, closing, nullptr, {});
  }
  if (kernels_.end == 0) {
    pauses_.add(from, end);
  } else {
    pauses_.add(from, first_kernel_);
    pauses_.add(kernels_.end, end);
  }
  DeviceTimes times;
  times.span = std::max(end, last) - from;
  times.kernel_busy = kernels_.time;
  times.compute_busy = computes_.time;
  times.kernel_time = kernel_time_;
  times.copy_only = all_.time - kernels_.time;
  times.copy_busy = copies_.time;
  times.upload_busy = uploads_.time;
  times.download_busy = downloads_.time;
  times.copy_overlapped = copies_.time + kernels_.time - copies_and_kernels_.time;
  times.idle_by_cause = idle_;
  times.own_work = own_work_;
  times.fetch_idle = fetch_idle_;
  times.collective_block_time = collective_block_time_;
  return times;
}

}  // namespace inject
