// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/overlap.h"

#include <algorithm>

namespace inject {

void OverlapStatistics::Timeline::join_others() {
  if (others.empty()) return;
  std::sort(others.begin(), others.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::size_t last = 0;
  for (const Interval& interval : others) {
    if (interval.begin <= others[last].end) {
      others[last].end = std::max(others[last].end, interval.end);
    } else {
      others[++last] = interval;
    }
  }
  others.resize(last + 1);
}

/// The time before which half of what is held began.
Nanoseconds OverlapStatistics::Timeline::middle() const {
  std::vector<Nanoseconds> begins;
  begins.reserve(held());
  for (const Interval& interval : others) begins.push_back(interval.begin);
  for (const Work& work : works) begins.push_back(work.begin);
  const auto half = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
  std::nth_element(begins.begin(), half, begins.end());
  return *half;
}

/// Judges what lies before `until`, and drops it. `others` must have been joined.
void OverlapStatistics::Timeline::judge(Nanoseconds until, Rows& rows) {
  std::size_t kept = 0;
  for (const Work& work : works) {
    const Nanoseconds begin = std::max(work.begin, judged_from);
    const Nanoseconds end = std::min(work.end, until);
    if (begin < end) {
      Times& times = rows[work.row];
      times.time += end - begin;
      auto at =
          std::upper_bound(others.begin(), others.end(), begin,
                           [](Nanoseconds time, const Interval& interval) { return time < interval.end; });
      for (; at != others.end() && at->begin < end; ++at)
        times.overlapped += std::min(at->end, end) - std::max(at->begin, begin);
    }
    if (work.end > until) works[kept++] = {std::max(work.begin, until), work.end, work.row};
  }
  works.resize(kept);
  const auto first =
      std::upper_bound(others.begin(), others.end(), until,
                       [](Nanoseconds time, const Interval& interval) { return time < interval.end; });
  others.erase(others.begin(), first);
  if (!others.empty()) others.front().begin = std::max(others.front().begin, until);
  floor = until;
}

OverlapStatistics::Timeline* OverlapStatistics::timeline(std::uint32_t window, std::uint32_t device,
                                                         Nanoseconds& start, Nanoseconds end) {
  if (!expected_ || end <= start) return nullptr;
  if (window <= settled_through_) {
    ++late_;
    return nullptr;
  }
  if (lost_.contains(window)) return nullptr;
  const auto [place, is_new] = timelines_.try_emplace({window, device});
  Timeline& found = place->second;
  if (is_new && from_first_beside_) found.judged_from = kForever;
  if (start >= found.floor) return &found;
  ++late_;
  start = found.floor;
  return start < end ? &found : nullptr;
}

void OverlapStatistics::work(std::uint32_t window, std::uint32_t device, std::uint32_t row, Nanoseconds start,
                             Nanoseconds end) {
  expected_ = true;
  Timeline* found = timeline(window, device, start, end);
  if (found == nullptr) return;
  found->works.push_back({start, end, row});
  if (++held_ > kMaxHeld) bound();
}

void OverlapStatistics::beside(std::uint32_t window, std::uint32_t device, Nanoseconds start,
                               Nanoseconds end) {
  Timeline* found = timeline(window, device, start, end);
  if (found == nullptr) return;
  found->others.push_back({start, end});
  found->judged_from = std::min(found->judged_from, start);
  if (++held_ > kMaxHeld) bound();
}

void OverlapStatistics::bound() {
  // The largest timelines first and, of equal ones, the oldest: with many devices, the others keep what they
  // have. A quarter of everything goes, so that finding them costs little per piece, even with many windows
  // of a few pieces each.
  std::vector<Timeline*> largest;
  for (auto& [key, timeline] : timelines_) {
    if (timeline.held() != 0) largest.push_back(&timeline);
  }
  std::stable_sort(largest.begin(), largest.end(),
                   [](const Timeline* a, const Timeline* b) { return a->held() > b->held(); });
  for (Timeline* timeline : largest) {
    const std::size_t before = timeline->held();
    timeline->halve(rows_);
    held_ -= before - timeline->held();
    if (held_ <= kMaxHeld / 4 * 3) return;
  }
}

/// Judges the older half of what is held, or everything if that is not half.
void OverlapStatistics::Timeline::halve(Rows& rows) {
  const std::size_t before = held();
  join_others();
  // Joining may have left so little that nothing has to be judged yet.
  if (held() > before / 2) judge(middle(), rows);
  // Almost everything is from the same time.
  if (held() > before / 4 * 3) {
    Nanoseconds last = floor;
    for (const Interval& interval : others) last = std::max(last, interval.end);
    for (const Work& work : works) last = std::max(last, work.end);
    judge(last, rows);
  }
}

void OverlapStatistics::lost_work(std::uint32_t window) {
  if (window <= settled_through_ || !lost_.insert(window).second) return;
  std::erase_if(timelines_, [&](const auto& entry) {
    if (entry.first.first != window) return false;
    held_ -= entry.second.held();
    return true;
  });
}

void OverlapStatistics::settle_window(std::uint32_t window) {
  settled_through_ = std::max(settled_through_, window);
  lost_.erase(lost_.begin(), lost_.upper_bound(settled_through_));
  while (!timelines_.empty() && timelines_.begin()->first.first <= settled_through_) {
    Timeline& timeline = timelines_.begin()->second;
    held_ -= timeline.held();
    timeline.join_others();
    timeline.judge(kForever, rows_);
    timelines_.erase(timelines_.begin());
  }
}

std::unordered_map<std::uint32_t, OverlapStatistics::Times> OverlapStatistics::rows() const {
  Rows result = rows_;
  for (const auto& [key, timeline] : timelines_) {
    Timeline whole = timeline;
    whole.join_others();
    whole.judge(kForever, result);
  }
  return result;
}

}  // namespace inject
