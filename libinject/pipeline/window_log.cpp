// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/pipeline/window_log.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <optional>
#include <utility>

namespace inject {

namespace {
constexpr std::size_t kMaxKept = 10'000;  // of the first windows, and of the latest
constexpr std::uint32_t kLatestListed = 100;

void note_edge(WindowInfo& window, std::optional<std::uint64_t> WindowMemory::*edge,
               const WindowLog::MemoryUsed& used) {
  for (const auto& reading : used) {
    auto known = std::find_if(window.memory.begin(), window.memory.end(),
                              [&](const WindowMemory& memory) { return memory.device == reading.first; });
    if (known == window.memory.end())
      known = window.memory.insert(known, WindowMemory{reading.first, {}, {}});
    (*known).*edge = reading.second;
  }
}

bool is_near(Nanoseconds age, Nanoseconds length) {
  return age <= std::max(WindowLog::kLatestReading, length / 10);
}
}  // namespace

WindowInfo* WindowLog::find(std::uint32_t number) {
  if (windows_.empty() || number < windows_.front().number || number > windows_.back().number) return nullptr;
  return &windows_[number - windows_.front().number];
}

std::uint32_t WindowLog::open(std::string reason, Nanoseconds begin, HostDrops dropped) {
  const MutexLock lock(mutex_);
  if (windows_.size() == kMaxKept) {
    if (first_.size() < kMaxKept) {
      first_.push_back(std::move(windows_.front()));
    } else {
      losses_outside_.add(windows_.front().losses);
    }
    windows_.pop_front();
    more_.pop_front();
  }
  WindowInfo window;
  window.number = opened_ + 1;
  window.reason = std::move(reason);
  window.start = begin;
  more_.push_back({begin, false, false, dropped, 0, {}});
  try {
    windows_.push_back(std::move(window));
  } catch (...) {
    more_.pop_back();
    throw;
  }
  return ++opened_;
}

void WindowLog::end(std::uint32_t number, Nanoseconds end) {
  const MutexLock lock(mutex_);
  WindowInfo* window = find(number);
  if (window == nullptr || window->state != WindowState::kOpen) return;
  window->end = end;
  window->state = WindowState::kClosing;
  ended_ = std::max(ended_, number);
  total_time_ += end - window->start;
  More& more = more_[number - windows_.front().number];
  try {
    if (is_near(more.late_by, end - window->start)) note_edge(*window, &WindowMemory::at_start, more.late);
  } catch (const std::bad_alloc&) {
    // Without memory for it, the value is not known. A thread of the program may be closing the window.
  }
  more.late = {};
}

void WindowLog::end_without_times(std::uint32_t number) {
  const MutexLock lock(mutex_);
  WindowInfo* window = find(number);
  if (window == nullptr || window->state != WindowState::kOpen) return;
  window->start = 0;
  window->state = WindowState::kClosing;
  ended_ = std::max(ended_, number);
  More& more = more_[number - windows_.front().number];
  more.start_read = more.end_read = true;
  more.late = {};
  window->memory.clear();
  ++without_times_;
}

void WindowLog::settle(Nanoseconds detached, Nanoseconds last_activity, std::uint32_t last) {
  const MutexLock lock(mutex_);
  for (std::size_t i = ended_until(last); i-- > 0 && windows_[i].state != WindowState::kClosed;) {
    if (windows_[i].state != WindowState::kClosing) continue;
    windows_[i].state = WindowState::kClosed;
    windows_[i].detached = detached;
    windows_[i].last_activity = last_activity;
  }
}

std::size_t WindowLog::ended_until(std::uint32_t last) const {
  const std::uint32_t until = std::min(last, ended_);
  return windows_.empty() || until < windows_.front().number ? 0 : until - windows_.front().number + 1;
}

void WindowLog::add_losses(std::uint32_t number, const Losses& losses) {
  const MutexLock lock(mutex_);
  if (WindowInfo* window = find(number)) {
    window->losses.add(losses);
  } else {
    losses_outside_.add(losses);
  }
}

std::vector<WindowLog::Share> WindowLog::shares(HostDrops before, HostDrops dropped) const {
  const auto take = [](std::uint64_t from, std::uint64_t& until) {
    const std::uint64_t part = until > from ? until - from : 0;
    until -= part;
    return part;
  };
  const MutexLock lock(mutex_);
  std::vector<Share> shares;
  for (std::size_t i = windows_.size(); i-- > 0;) {
    if (dropped.calls <= before.calls && dropped.ranges <= before.ranges) return shares;
    const HostDrops drops{take(std::max(before.calls, more_[i].dropped.calls), dropped.calls),
                          take(std::max(before.ranges, more_[i].dropped.ranges), dropped.ranges)};
    if (drops != HostDrops{}) shares.push_back({windows_[i].number, drops});
  }
  if (const HostDrops rest{take(before.calls, dropped.calls), take(before.ranges, dropped.ranges)};
      rest != HostDrops{})
    shares.push_back({0, rest});
  return shares;
}

void WindowLog::note_ended_by(std::uint32_t number, std::string who) {
  const MutexLock lock(mutex_);
  if (WindowInfo* window = find(number)) window->ended_by = std::move(who);
}

void WindowLog::note_untraced(std::uint32_t number, std::string why) {
  const MutexLock lock(mutex_);
  if (WindowInfo* window = find(number)) window->untraced = std::move(why);
}

bool WindowLog::lacks_memory() const {
  const MutexLock lock(mutex_);
  for (std::size_t i = windows_.size(); i-- > 0 && windows_[i].number > all_read_until_;) {
    if (windows_[i].end == 0 ? !more_[i].start_read : !more_[i].end_read) return true;
  }
  return false;
}

void WindowLog::note_memory(Nanoseconds begin, Nanoseconds end, const MemoryUsed& used) {
  const MutexLock lock(mutex_);
  std::uint32_t all_read = opened_;
  for (std::size_t i = windows_.size(); i-- > 0 && windows_[i].number > all_read_until_;) {
    WindowInfo& window = windows_[i];
    More& more = more_[i];
    const bool ended = window.end != 0 && window.end <= begin;
    if (!more.start_read && !ended && window.start <= begin) {
      const Nanoseconds age = end - window.start;
      // The window may end while it is being read.
      if (is_near(age, window.end == 0 ? 0 : window.end - window.start)) {
        note_edge(window, &WindowMemory::at_start, used);
      } else if (window.end == 0) {
        more.late_by = age;
        more.late = used;
      }
      more.start_read = true;
    }
    if (!more.end_read && ended) {
      if (is_near(end - window.end, window.end - window.start))
        note_edge(window, &WindowMemory::at_end, used);
      more.end_read = true;
    }
    if (!more.end_read) all_read = window.number - 1;
  }
  all_read_until_ = all_read;
}

RangeTracker::Span WindowLog::span(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  const WindowInfo* window = find(number);
  return window == nullptr ? RangeTracker::Span{} : RangeTracker::Span{window->start, window->end};
}

/// The latest window with known times that had opened by then.
const WindowInfo* WindowLog::latest(Nanoseconds time) const {
  const auto after =
      std::upper_bound(more_.begin(), more_.end(), time,
                       [](Nanoseconds wanted, const More& more) { return wanted < more.opened; });
  for (auto i = after - more_.begin(); i-- > 0;) {
    const WindowInfo& window = windows_[static_cast<std::size_t>(i)];
    if (window.times_known() && time >= window.start) return &window;
  }
  return nullptr;
}

std::uint32_t WindowLog::at(Nanoseconds time) const {
  const MutexLock lock(mutex_);
  const WindowInfo* window = latest(time);
  return window != nullptr && (window->end == 0 || time <= window->end) ? window->number : 0;
}

std::uint32_t WindowLog::opened_by(Nanoseconds time) const {
  const MutexLock lock(mutex_);
  const WindowInfo* window = latest(time);
  return window == nullptr ? 0 : window->number;
}

std::uint32_t WindowLog::ended_by(Nanoseconds time) const {
  const MutexLock lock(mutex_);
  const WindowInfo* window = latest(time);
  if (window == nullptr) return 0;
  return window->end != 0 && window->end <= time ? window->number : window->number - 1;
}

std::uint32_t WindowLog::opened() const {
  const MutexLock lock(mutex_);
  return opened_;
}

std::vector<std::uint32_t> WindowLog::closing(std::uint32_t last) const {
  const MutexLock lock(mutex_);
  std::vector<std::uint32_t> numbers;
  for (std::size_t i = ended_until(last); i-- > 0 && windows_[i].state != WindowState::kClosed;) {
    if (windows_[i].state == WindowState::kClosing) numbers.push_back(windows_[i].number);
  }
  return numbers;
}

std::string WindowLog::reason(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  const WindowInfo* window = find(number);
  return window == nullptr ? std::string() : window->reason;
}

bool WindowLog::is_listed(std::uint32_t number) const {
  return number <= kMaxKept || number + kLatestListed > opened_;
}

std::vector<WindowInfo> WindowLog::copy() const {
  const MutexLock lock(mutex_);
  std::vector<WindowInfo> listed(first_.begin(), first_.end());
  std::copy_if(windows_.begin(), windows_.end(), std::back_inserter(listed),
               [this](const WindowInfo& window) INJECT_REQUIRES(mutex_) { return is_listed(window.number); });
  return listed;
}

std::vector<WindowInfo> WindowLog::from(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  if (windows_.empty() || number > windows_.back().number) return {};
  const std::size_t skipped = number > windows_.front().number ? number - windows_.front().number : 0;
  return {windows_.begin() + static_cast<std::ptrdiff_t>(skipped), windows_.end()};
}

std::uint64_t WindowLog::not_listed() const {
  const MutexLock lock(mutex_);
  const std::uint64_t listed = kMaxKept + kLatestListed;
  return opened_ > listed ? opened_ - listed : 0;
}

Losses WindowLog::losses_outside() const {
  const MutexLock lock(mutex_);
  Losses losses = losses_outside_;
  for (const WindowInfo& window : windows_) {
    if (!is_listed(window.number)) losses.add(window.losses);
  }
  return losses;
}

Nanoseconds WindowLog::total_time() const {
  const MutexLock lock(mutex_);
  return total_time_;
}

std::uint64_t WindowLog::without_times() const {
  const MutexLock lock(mutex_);
  return without_times_;
}

}  // namespace inject
