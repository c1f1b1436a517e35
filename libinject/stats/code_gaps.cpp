// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/code_gaps.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>

#include "libinject/model/code_place.h"

namespace inject {

namespace {

// A thread sampled every millisecond has certainly been sampled in an interval of this length, unless the
// sampling thread had no CPU.
constexpr std::uint64_t kSurelySampled = 2'000'000;

/// By thread and time. Several may be of one launch: a graph's, or that of a call that launches more than
/// once.
std::pair<std::uint32_t, Nanoseconds> launch_key(const CodeLaunch& launch) {
  return {launch.thread, launch.time};
}

/// Finds what was launched by its launch.
class Launches {
 public:
  explicit Launches(std::span<const CodeLaunch> launches) : launches_(launches), order_(launches.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return launch_key(launches_[a]) < launch_key(launches_[b]);
    });
  }

  /// The first one with a place, if any has one; kNone if there is none at all.
  std::uint32_t find(std::uint32_t thread, Nanoseconds time, std::span<const JoinedPlace> joined) const {
    const std::pair key(thread, time);
    auto at = std::lower_bound(order_.begin(), order_.end(), key, [&](std::uint32_t one, const auto& wanted) {
      return launch_key(launches_[one]) < wanted;
    });
    std::uint32_t found = JoinedPlace::kNone;
    for (; at != order_.end() && launch_key(launches_[*at]) == key; ++at) {
      if (joined[*at].place != 0) return *at;
      if (found == JoinedPlace::kNone) found = *at;
    }
    return found;
  }

 private:
  std::span<const CodeLaunch> launches_;
  std::vector<std::uint32_t> order_;
};

/// The longest of the waits between two launches, kept until there are later ones: waits that follow it find
/// the device idle.
struct LongestWait {
  std::uint32_t place = 0;
  std::uint64_t time = 0;
  bool launched = true;  // since then

  void add(std::uint32_t where, std::uint64_t length) {
    if (!launched && length <= time) return;
    place = where;
    time = length;
    launched = false;
  }
};

}  // namespace

void CodeGaps::gap(std::uint32_t window, const IdleGap& gap) {
  std::vector<IdleGap>& held = held_[window];
  if (held.size() < kMaxHeld) {
    held.push_back(gap);
  } else {
    count({GapPlace::Kind::kUnknown, 0, gap.cause, gap.own_work}, 1, gap.time);
  }
}

void CodeGaps::wait(std::uint32_t thread, Nanoseconds begin, Nanoseconds end, std::uint32_t place) {
  if (waits_.size() < kMaxWaits) {
    waits_.push_back({begin, end, thread, place});
  } else {
    lost_waits_ = true;
  }
}

void CodeGaps::sample(std::uint32_t thread, Nanoseconds time, std::uint32_t stack) {
  if (samples_.size() < kMaxSamples) samples_.push_back({time, thread, stack});
}

void CodeGaps::named(std::span<const CodeLaunch> launches, std::span<const std::uint32_t> alike,
                     std::uint32_t window, std::optional<Nanoseconds> end) {
  named_.assign(launches.begin(), launches.end());
  alike_.assign(alike.begin(), alike.end());
  named_window_ = window;
  before_.clear();
  sampled_.clear();
  for (const Sample& sample : samples_) sampled_.insert(sample.thread);
  std::vector<std::uint32_t> order(launches.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(named_[a].time, named_[a].thread) < std::pair(named_[b].time, named_[b].thread);
  });
  // All work of one launch has the same predecessors.
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (launch_key(named_[order[i]]) == launch_key(named_[order[i - 1]]))
      alike_[order[i]] = alike_[order[i - 1]];
  }
  // Waits that did not fit may have been the last before a launch, or have contained samples.
  if (!lost_waits_) {
    for (const CodeLaunch& launch : launches) {
      if (launch.waits) waits_.push_back({launch.time, launch.end, launch.thread, launch.place});
    }
    note_waits(order);
    note_samples(order, end);
  }
  lost_waits_ = false;
  waits_ = {};
  samples_ = {};
}

void CodeGaps::note_waits(const std::vector<std::uint32_t>& order) {
  std::map<std::uint32_t, LongestWait> of_thread;
  for (const CodeLaunch& launch : named_) of_thread[launch.thread];
  LongestWait of_any;
  std::sort(waits_.begin(), waits_.end(), [](const Wait& a, const Wait& b) {
    return std::tie(a.end, a.begin, a.thread) < std::tie(b.end, b.begin, b.thread);
  });
  auto wait = waits_.begin();
  for (const std::uint32_t i : order) {
    const CodeLaunch& launch = named_[i];
    for (; wait != waits_.end() && wait->end <= launch.time; ++wait) {
      // Threads that launch nothing do not hold up the device (docs/diagnosis.md).
      const auto own = of_thread.find(wait->thread);
      if (own == of_thread.end()) continue;
      own->second.add(wait->place, wait->end - wait->begin);
      of_any.add(wait->place, wait->end - wait->begin);
    }
    LongestWait& own = of_thread[launch.thread];
    own.launched = of_any.launched = true;
    if (own.place == 0 && of_any.place == 0) continue;
    Before& before = before_[alike_[i]];
    if (own.place != 0) before.waited.add(own.place);
    if (of_any.place != 0) before.any_waited.add(of_any.place);
  }
}

/// A sample is attributed to the next launch on each device; but a sample in a call that waits or copies is
/// ignored, and one in a launching call is attributed to that launch. After the last launch, the next one
/// would be the next iteration's first, which is like that of the first iteration.
void CodeGaps::note_samples(const std::vector<std::uint32_t>& order, std::optional<Nanoseconds> end) {
  constexpr std::uint32_t kNone = JoinedPlace::kNone;
  struct Call {
    Nanoseconds begin;
    Nanoseconds end;
    std::uint32_t launch;  // kNone: samples in it are ignored
  };
  std::map<std::uint32_t, std::vector<Call>> calls;  // by thread
  for (const std::uint32_t thread : sampled_) calls[thread];
  for (const Wait& wait : waits_) {
    if (const auto of = calls.find(wait.thread); of != calls.end())
      of->second.push_back({wait.begin, wait.end, kNone});
  }
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_device;
  for (const std::uint32_t i : order) {
    const CodeLaunch& launch = named_[i];
    by_device[launch.device].push_back(i);
    if (const auto of = calls.find(launch.thread); of != calls.end())
      of->second.push_back({launch.time, launch.end, launch.is_copy ? kNone : i});
  }
  for (auto& [thread, list] : calls)
    std::stable_sort(list.begin(), list.end(),
                     [](const Call& a, const Call& b) { return a.begin < b.begin; });

  for (const Sample& sample : samples_) {
    const std::vector<Call>& list = calls[sample.thread];
    const auto after = std::upper_bound(list.begin(), list.end(), sample.time,
                                        [](Nanoseconds time, const Call& call) { return time < call.begin; });
    const bool in_call = after != list.begin() && sample.time < std::prev(after)->end;
    const std::uint32_t inside = in_call ? std::prev(after)->launch : kNone;
    if (in_call && inside == kNone) continue;
    for (const auto& [device, launched] : by_device) {
      const auto next =
          std::upper_bound(launched.begin(), launched.end(), sample.time,
                           [&](Nanoseconds time, std::uint32_t one) { return time < named_[one].time; });
      const bool is_own = inside != kNone && named_[inside].device == device;
      const bool is_last = next == launched.end();
      if (!is_own && is_last && !(end && sample.time < *end)) continue;
      const std::uint32_t launch = is_own ? inside : is_last ? launched.front() : *next;
      ++before_[alike_[launch]].samples[{sample.thread, sample.stack}];
    }
  }
}

void CodeGaps::count(const GapPlace& place, std::uint64_t gaps, std::uint64_t time) {
  GapTimes& sum = sums_[place];
  sum.gaps += gaps;
  sum.time += time;
}

/// Splits the gap by the samples taken there on the thread that was late, each with its share of the time.
/// Returns false if there are none.
bool CodeGaps::split(const IdleGap& gap, const Before& before) {
  const auto begin = before.samples.lower_bound({gap.delayed_by, 0});
  const auto end = before.samples.upper_bound({gap.delayed_by, ~std::uint32_t{0}});
  if (begin == end) return false;
  std::uint64_t all = begin->second;
  auto most = begin;
  for (auto one = std::next(begin); one != end; ++one) {
    all += one->second;
    if (one->second > most->second) most = one;
  }
  if (all == 0) return false;
  std::uint64_t left = gap.time;
  for (auto one = begin; one != end; ++one) {
    if (one == most) continue;
    // A gap lasts days at most: no overflow with 65,536 samples.
    const std::uint64_t part = gap.time * one->second / all;
    count({GapPlace::Kind::kStack, one->first.second, gap.cause, gap.own_work}, 0, part);
    left -= part;
  }
  count({GapPlace::Kind::kStack, most->first.second, gap.cause, gap.own_work}, 1, left);
  return true;
}

/// `call_place`: of the call that took the time, if it launched something.
void CodeGaps::attribute(const IdleGap& gap, std::uint32_t place, const CodeLaunch* named,
                         std::uint32_t call_place) {
  const auto at_launch = [&](std::uint32_t number) {
    const GapPlace::Kind kind = number == 0 ? GapPlace::Kind::kUnknown : GapPlace::Kind::kLaunch;
    count({kind, number, gap.cause, gap.own_work}, 1, gap.time);
  };
  const Before* before = nullptr;
  if (named != nullptr) {
    if (const auto found = before_.find(alike_[static_cast<std::size_t>(named - named_.data())]);
        found != before_.end())
      before = &found->second;
  }
  switch (gap.cause) {
    case IdleCause::kOtherStream:
    case IdleCause::kCollective:
    case IdleCause::kQueue:
    case IdleCause::kGraph:
      count({GapPlace::Kind::kDevice, 0, gap.cause}, 1, gap.time);
      return;
    case IdleCause::kStartUp:
    case IdleCause::kUnknown:
      at_launch(0);
      return;
    case IdleCause::kSynchronization: {
      if (call_place != 0 || before == nullptr) {
        at_launch(call_place);
        return;
      }
      const bool is_own = gap.call != 0 && gap.delayed_by == (gap.is_closing ? named->thread : gap.thread);
      at_launch((is_own ? before->waited : before->any_waited).place());
      return;
    }
    case IdleCause::kCopyCall:
      at_launch(call_place);
      return;
    case IdleCause::kLaunchCall:
    case IdleCause::kOtherCall:
    case IdleCause::kHostCompute:
    case IdleCause::kHostWait: {
      if (before != nullptr && split(gap, *before)) return;
      // Something that the named iterations did not do.
      const bool outside_of_calls = gap.cause == IdleCause::kHostCompute || gap.cause == IdleCause::kHostWait;
      const bool elsewhere =
          outside_of_calls && gap.time >= kSurelySampled && sampled_.count(gap.delayed_by) != 0;
      at_launch(elsewhere ? 0 : place);
      return;
    }
  }
}

/// Null if there is none.
const CodeLaunch* CodeGaps::first_named(std::uint32_t device) const {
  const CodeLaunch* first = nullptr;
  for (const CodeLaunch& launch : named_) {
    if (launch.device == device && (first == nullptr || launch.time < first->time)) first = &launch;
  }
  return first;
}

void CodeGaps::settle(std::uint32_t window, std::span<const CodeLaunch> launches,
                      std::span<const JoinedPlace> joined) {
  const auto found = held_.find(window);
  if (found == held_.end()) return;
  const Launches by_launch(launches);
  for (const IdleGap& gap : found->second) {
    std::uint32_t place = 0;
    const CodeLaunch* named = nullptr;
    if (gap.is_closing) {
      // The window's end corresponds to the first launch of the iterations that follow it.
      if (window == named_window_) named = first_named(gap.device);
      if (named != nullptr) place = named->place & ~kIncompletePlace;
    } else if (const std::uint32_t at = by_launch.find(gap.thread, gap.launched, joined);
               at != JoinedPlace::kNone) {
      place = joined[at].place;
      // A launch without a place may have been compared with a different one.
      if (place != 0 && joined[at].named != JoinedPlace::kNone) named = &named_[joined[at].named];
    }
    std::uint32_t call_place = 0;
    if (gap.call != 0) {
      if (const std::uint32_t call = by_launch.find(gap.delayed_by, gap.call, joined);
          call != JoinedPlace::kNone)
        call_place = joined[call].place;
    }
    attribute(gap, place, named, call_place);
  }
  held_.erase(found);
}

}  // namespace inject
