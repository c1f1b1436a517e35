// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/fetches.h"

#include <algorithm>

namespace inject {

FetchStatistics::Thread* FetchStatistics::thread_of(std::uint32_t window, std::uint32_t thread) {
  const std::pair wanted{window, thread};
  if (latest_thread_ != nullptr && latest_ == wanted) return latest_thread_;
  if (window <= settled_through_) return nullptr;
  if (windows_.size() >= kMaxUnsettled && !windows_.contains(window)) {
    const std::uint32_t oldest = windows_.begin()->first;
    drop(windows_.begin());
    settled_through_ = oldest;
    if (window <= settled_through_) return nullptr;
  }
  latest_ = wanted;
  latest_thread_ = &windows_[window].threads[thread];
  return latest_thread_;
}

void FetchStatistics::drop(Windows::iterator window) {
  for (const auto& [number, thread] : window->second.threads) {
    held_ -= thread.fetches.size();
    if (!thread.fetches.empty() && window->first != settled_through_) dropped_through_ = window->first;
  }
  windows_.erase(window);
  latest_thread_ = nullptr;
}

void FetchStatistics::fetch(const FetchEvent& event) {
  Thread* const thread = thread_of(event.window, event.thread);
  if (thread == nullptr) return;
  if (event.by != FetchThread::kAny) windows_[event.window].any_steps = true;
  if (event.by == FetchThread::kSteps) thread->steps = true;
  if (add_fetch(thread->fetches, {event.begin, event.end, event.kind}) && ++held_ > max_held_) bound();
}

void FetchStatistics::bound() {
  Thread* fullest = nullptr;
  for (auto& [number, window] : windows_) {
    for (auto& [index, thread] : window.threads) {
      if (fullest == nullptr || thread.fetches.size() > fullest->fetches.size()) fullest = &thread;
    }
  }
  if (fullest == nullptr) return;
  const auto half = (fullest->fetches.size() + 1) / 2;
  const auto end = fullest->fetches.begin() + static_cast<std::ptrdiff_t>(half);
  fullest->missing_until = std::prev(end)->end;
  fullest->fetches.erase(fullest->fetches.begin(), end);
  held_ -= half;
}

void FetchStatistics::kernel(std::uint32_t window, std::uint32_t thread) {
  if (Thread* const found = thread_of(window, thread); found != nullptr) ++found->kernels;
}

const FetchStatistics::Thread* FetchStatistics::training(const Window& window) {
  const Thread* found = nullptr;
  for (const auto& [index, thread] : window.threads) {
    if (thread.fetches.empty() && thread.missing_until == 0) continue;
    if (window.any_steps ? !thread.steps : thread.kernels == 0) continue;
    if (found == nullptr || thread.kernels > found->kernels) found = &thread;
  }
  return found;
}

template <typename Of>
void FetchStatistics::keep(Found<Of>& found, const Of& of, const Thread& thread, Nanoseconds begin,
                           Nanoseconds end) {
  std::optional<FetchTimes> times;
  if (end != 0 && begin >= thread.missing_until) times = fetch_times(thread.fetches, begin, end);
  if (times && total(*times) == 0) return;
  found[of] = times;
  if (found.size() <= kMaxKept) return;
  found.erased = found.begin()->first;
  found.erase(found.begin());
}

void FetchStatistics::settle_window(std::uint32_t window, Nanoseconds begin, Nanoseconds end,
                                    const IterationStatistics& iterations) {
  if (window <= settled_through_) return;
  while (!windows_.empty() && windows_.begin()->first < window) drop(windows_.begin());
  settled_through_ = window;
  const auto place = windows_.find(window);
  if (place == windows_.end()) return;
  if (const Thread* const thread = training(place->second); thread != nullptr) {
    any_ = true;
    for (const IterationRow& row : iterations.rows_of(window))
      keep(iterations_, Key{window, row.begin}, *thread, row.begin, row.end);
    keep(totals_, window, *thread, begin, end);
  }
  drop(place);
}

template <typename Of>
std::optional<FetchTimes> FetchStatistics::find(const Found<Of>& found, const Of& of,
                                                std::uint32_t window) const {
  if (!any_ || window > settled_through_ || window <= dropped_through_) return std::nullopt;
  if (const auto place = found.find(of); place != found.end()) return place->second;
  // Entries of zeros are not kept; an erased entry is unknown.
  return found.erased && of <= *found.erased ? std::nullopt : std::optional(FetchTimes{});
}

std::optional<FetchTimes> FetchStatistics::of(const IterationRow& row) const {
  if (row.kind != IterationRow::Kind::kPhase || row.end == 0) return std::nullopt;
  return find(iterations_, Key{row.window, row.begin}, row.window);
}

std::optional<FetchTimes> FetchStatistics::of_window(std::uint32_t window) const {
  return find(totals_, window, window);
}

}  // namespace inject
