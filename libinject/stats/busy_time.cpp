// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/busy_time.h"

#include <algorithm>
#include <utility>

namespace inject {

void BusyTime::add(Nanoseconds start, Nanoseconds end) {
  end = std::max(start, end);
  first_ = any_ ? std::min(first_, start) : start;
  last_ = std::max(last_, end);
  any_ = true;
  if (end == start) return;
  if (start < floor_) {
    ++late_;
    if (end <= floor_) return;
    start = floor_;
  }
  if (sorted_.empty() || start > sorted_.back().end) {
    sorted_.push_back({start, end});
    sorted_time_ += end - start;
  } else if (start >= sorted_.back().begin) {
    Interval& back = sorted_.back();
    if (end > back.end) {
      sorted_time_ += end - back.end;
      back.end = end;
    }
  } else {
    unsorted_.push_back({start, end});
    if (unsorted_.size() >= kMaxDisordered) sort_in();
  }
  if (held() >= kMaxIntervals) make_room();
}

void BusyTime::sort_in() {
  if (unsorted_.empty()) return;
  const auto earlier = [](const Interval& a, const Interval& b) { return a.begin < b.begin; };
  std::sort(unsorted_.begin(), unsorted_.end(), earlier);
  // Intervals that end before the first of these are unaffected.
  const Nanoseconds from = unsorted_.front().begin;
  const auto touched = static_cast<std::size_t>(
      std::lower_bound(sorted_.begin(), sorted_.end(), from,
                       [](const Interval& interval, Nanoseconds time) { return interval.end < time; }) -
      sorted_.begin());
  const std::size_t middle = sorted_.size();
  sorted_.insert(sorted_.end(), unsorted_.begin(), unsorted_.end());
  unsorted_.clear();
  const auto at = [this](std::size_t i) { return sorted_.begin() + static_cast<std::ptrdiff_t>(i); };
  for (std::size_t i = touched; i < middle; ++i) sorted_time_ -= sorted_[i].end - sorted_[i].begin;
  std::inplace_merge(at(touched), at(middle), sorted_.end(), earlier);
  std::size_t kept = touched;
  for (std::size_t i = touched + 1; i < sorted_.size(); ++i) {
    if (sorted_[i].begin <= sorted_[kept].end) {
      sorted_[kept].end = std::max(sorted_[kept].end, sorted_[i].end);
    } else {
      sorted_[++kept] = sorted_[i];
    }
  }
  sorted_.resize(kept + 1);
  for (std::size_t i = touched; i < sorted_.size(); ++i) sorted_time_ += sorted_[i].end - sorted_[i].begin;
}

void BusyTime::make_room() {
  sort_in();
  if (sorted_.size() >= kMaxIntervals / 2) forget(sorted_.size() - kMaxIntervals / 2);
}

void BusyTime::forget(std::size_t count) {
  if (count == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t length = sorted_[i].end - sorted_[i].begin;
    sorted_time_ -= length;
    forgotten_time_ += length;
  }
  floor_ = sorted_[count - 1].end;
  sorted_.erase(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(count));
}

void BusyTime::settle() {
  sort_in();
  forget(sorted_.size());
  std::vector<Interval>().swap(sorted_);
  std::vector<Interval>().swap(unsorted_);
}

std::uint64_t BusyTime::busy() const {
  if (unsorted_.empty()) return forgotten_time_ + sorted_time_;
  BusyTime whole = *this;
  whole.sort_in();
  return whole.forgotten_time_ + whole.sorted_time_;
}

}  // namespace inject
