// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/code_gaps.h"

#include <algorithm>
#include <numeric>

#include "libinject/model/code_place.h"

namespace inject {

void CodeGaps::gap(std::uint32_t window, const IdleGap& gap) {
  std::vector<IdleGap>& held = held_[window];
  if (held.size() < kMaxHeld) {
    held.push_back(gap);
  } else {
    count({GapPlace::Kind::kUnknown, 0, gap.cause}, 1, gap.time);
  }
}

void CodeGaps::wait(std::uint32_t thread, Nanoseconds begin, Nanoseconds end, std::uint32_t place) {
  if (waits_.size() < kMaxWaits) waits_.push_back({begin, end, thread, place & ~kIncompletePlace});
}

void CodeGaps::sample(std::uint32_t thread, Nanoseconds time, std::uint32_t stack) {
  if (samples_.size() < kMaxSamples) samples_.push_back({time, thread, stack});
}

void CodeGaps::add_sample(Before& before, const Sample& sample) {
  const auto same = std::find_if(before.samples.begin(), before.samples.end(), [&](const Sampled& one) {
    return one.thread == sample.thread && one.stack == sample.stack;
  });
  if (same != before.samples.end()) {
    ++same->count;
  } else {
    before.samples.push_back({sample.thread, sample.stack, 1});
  }
}

void CodeGaps::named(std::span<const CodeLaunch> launches, std::span<const std::uint32_t> alike,
                     std::uint32_t window) {
  named_.assign(launches.begin(), launches.end());
  alike_.assign(alike.begin(), alike.end());
  named_window_ = window;
  before_.clear();
  for (const CodeLaunch& launch : launches) {
    if (launch.waits) wait(launch.thread, launch.time, launch.time, launch.place);
  }
  std::sort(waits_.begin(), waits_.end(), [](const Wait& a, const Wait& b) { return a.begin < b.begin; });
  std::sort(samples_.begin(), samples_.end(),
            [](const Sample& a, const Sample& b) { return a.time < b.time; });
  std::vector<std::size_t> order(launches.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return launches[a].time < launches[b].time; });
  auto wait = waits_.begin();
  auto sample = samples_.begin();
  std::map<std::uint32_t, Nanoseconds> waiting_until;  // by thread
  std::uint32_t waited = 0;
  std::uint32_t copied = 0;
  const auto wait_until = [&](Nanoseconds time) {
    for (; wait != waits_.end() && wait->begin < time; ++wait) {
      waited = wait->place;
      Nanoseconds& until = waiting_until[wait->thread];
      until = std::max(until, wait->end);
    }
  };
  for (const std::size_t i : order) {
    const CodeLaunch& launch = launches[i];
    Before& before = before_[alike[i]];
    for (; sample != samples_.end() && sample->time < launch.time; ++sample) {
      wait_until(sample->time);
      // While it waits for the device, that is busy.
      if (sample->time >= waiting_until[sample->thread]) add_sample(before, *sample);
    }
    wait_until(launch.time);
    if (waited != 0) before.waited = waited;
    if (copied != 0) before.copied = copied;
    if (launch.is_copy) copied = launch.place & ~kIncompletePlace;
  }
  waits_.clear();
  samples_.clear();
}

void CodeGaps::count(const GapPlace& place, std::uint64_t gaps, std::uint64_t time) {
  GapTimes& sum = sums_[place];
  sum.gaps += gaps;
  sum.time += time;
}

/// By the samples taken there on the thread that was late, each with its part of the time. False if there are
/// none.
bool CodeGaps::split(const IdleGap& gap, const Before& before) {
  std::uint64_t all = 0;
  const Sampled* most = nullptr;
  for (const Sampled& one : before.samples) {
    if (one.thread != gap.delayed_by) continue;
    all += one.count;
    if (most == nullptr || one.count > most->count) most = &one;
  }
  if (most == nullptr) return false;
  std::uint64_t left = gap.time;
  for (const Sampled& one : before.samples) {
    if (one.thread != gap.delayed_by || &one == most) continue;
    // Of days at most: no overflow for 65,536 samples.
    const std::uint64_t part = gap.time * one.count / all;
    count({GapPlace::Kind::kStack, one.stack, gap.cause}, 0, part);
    left -= part;
  }
  count({GapPlace::Kind::kStack, most->stack, gap.cause}, 1, left);
  return true;
}

void CodeGaps::attribute(const IdleGap& gap, std::uint32_t place, std::optional<std::uint32_t> named) {
  const auto at_launch = [&](std::uint32_t number) {
    count({number == 0 ? GapPlace::Kind::kUnknown : GapPlace::Kind::kLaunch, number, gap.cause}, 1, gap.time);
  };
  const Before* before = nullptr;
  if (named) {
    if (const auto found = before_.find(alike_[*named]); found != before_.end()) before = &found->second;
  }
  switch (gap.cause) {
    case IdleCause::kOtherStream:
    case IdleCause::kCollective:
    case IdleCause::kQueue:
      count({GapPlace::Kind::kDevice, 0, gap.cause}, 1, gap.time);
      return;
    case IdleCause::kStartUp:
    case IdleCause::kUnknown:
      at_launch(0);
      return;
    case IdleCause::kSynchronization:
      at_launch(before == nullptr ? 0 : before->waited);
      return;
    case IdleCause::kCopyCall:
      at_launch(gap.by_copy ? place : before == nullptr ? 0 : before->copied);
      return;
    case IdleCause::kLaunchCall:
    case IdleCause::kOtherCall:
    case IdleCause::kHostCompute:
    case IdleCause::kHostWait:
      if (before == nullptr || !split(gap, *before)) at_launch(place);
      return;
  }
}

/// The window's end is the first launch of the iterations that follow it.
std::optional<std::uint32_t> CodeGaps::named_for(std::uint32_t window, const IdleGap& gap) const {
  if (window != named_window_ || !gap.is_closing) return std::nullopt;
  const auto first = std::min_element(named_.begin(), named_.end(),
                                      [](const auto& a, const auto& b) { return a.time < b.time; });
  if (first == named_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(first - named_.begin());
}

void CodeGaps::settle(std::uint32_t window, std::span<const CodeLaunch> launches,
                      std::span<const JoinedPlace> joined) {
  const auto found = held_.find(window);
  if (found == held_.end()) return;
  std::map<std::pair<std::uint32_t, Nanoseconds>, std::size_t> by_launch;
  for (std::size_t i = 0; i < launches.size(); ++i)
    by_launch.try_emplace({launches[i].thread, launches[i].time}, i);
  for (const IdleGap& gap : found->second) {
    std::uint32_t place = 0;
    std::optional<std::uint32_t> named = named_for(window, gap);
    if (named) {
      place = named_[*named].place & ~kIncompletePlace;
    } else if (const auto at = by_launch.find({gap.thread, gap.launched});
               !gap.is_closing && at != by_launch.end()) {
      place = joined[at->second].place;
      if (joined[at->second].named != JoinedPlace::kNone) named = joined[at->second].named;
    }
    attribute(gap, place, named);
  }
  held_.erase(found);
}

}  // namespace inject
