// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/replayed_windows.h"

#include <algorithm>

#include "libinject/record/control.h"

namespace inject::recovery {

namespace {

// If more windows than this opened by themselves between two checks, it is not a file of ours.
constexpr std::uint32_t kMaxUnknown = EdgeTimes::kPlaces;
constexpr std::uint32_t kMaxSkipped = 10'000;
// … in a whole file: they take memory, regardless of the file's size.
constexpr std::uint32_t kMaxSkippedInAll = 1u << 20;

}  // namespace

bool ReplayedWindows::add(std::uint32_t number, Nanoseconds begin, std::string_view reason) {
  if (number == 0 || number > known() + kMaxSkipped) return false;
  // If there are more windows than the log keeps, it has lost the first ones by the time they are recorded.
  for (; known() + 1 < number; ++skipped_) {
    if (skipped_ == kMaxSkippedInAll) return false;
    windows_.push_back({0, 0, kUnknown, true});
  }
  if (known() < number) windows_.emplace_back();
  windows_[number - 1] = {begin, 0, std::string(reason), begin == 0};
  return true;
}

bool ReplayedWindows::add_end(std::uint32_t number, Nanoseconds end) {
  if (number == 0 || number > known()) return false;
  Window& window = windows_[number - 1];
  if (end == 0) {
    window.without_times = true;
  } else {
    window.end = std::max(end, window.begin);
  }
  return true;
}

bool ReplayedWindows::open_until(std::uint32_t window, Nanoseconds begin) {
  if (window > known() + kMaxUnknown) return false;
  for (; known() < window; ++skipped_) {
    if (skipped_ == kMaxSkippedInAll) return false;
    const bool skipped = known() + 1 < window;
    const Nanoseconds known_begin = known() == 0 ? std::min(begin, first_) : begin;
    windows_.push_back({skipped ? 0 : known_begin, 0, kUnknown, skipped});
  }
  while (log_.opened() < window) {
    const Window& next = windows_[log_.opened()];
    log_.open(next.reason, next.begin);
  }
  return true;
}

void ReplayedWindows::over_by(std::uint32_t window, Nanoseconds time) {
  if (window == 0 || window > known() || windows_[window - 1].without_times) return;
  Window& over = windows_[window - 1];
  if (over.end == 0) over.end = std::max(time, over.begin);
}

void ReplayedWindows::end_until(std::uint32_t window) {
  for (; ended_ < window; ++ended_) {
    const Window& known = windows_[ended_];
    if (known.without_times) {
      log_.end_without_times(ended_ + 1);
    } else if (known.end != 0) {
      log_.end(ended_ + 1, known.end);
    } else {
      return;
    }
  }
}

void ReplayedWindows::end_all(Nanoseconds last) {
  const auto all = static_cast<std::uint32_t>(known());
  open_until(all, 0);
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    Window& window = windows_[i];
    if (window.end != 0 || window.without_times) continue;
    const Window* const next = i + 1 < windows_.size() ? &windows_[i + 1] : nullptr;
    window.without_times = next != nullptr && next->without_times;
    if (!window.without_times)
      window.end = std::max({next == nullptr ? last : next->begin, window.begin, Nanoseconds{1}});
  }
  end_until(all);
}

}  // namespace inject::recovery
