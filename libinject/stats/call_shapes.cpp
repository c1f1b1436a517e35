// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/call_shapes.h"

#include <algorithm>
#include <utility>

#include "libinject/record/shape_table.h"

namespace inject {

namespace {

constexpr std::size_t kMaxNames = CallShapeStatistics::kMaxNames;

void add_name(std::vector<KernelShare>& names, const KernelShare& more, std::size_t most) {
  for (KernelShare& known : names) {
    if (known.name != more.name) continue;
    known.count += more.count;
    known.time += more.time;
    return;
  }
  if (names.size() < most) {
    names.push_back(more);
  } else {
    add_name(names, {0, more.count, more.time}, most + 1);
  }
}

}  // namespace

void add_share(std::vector<KernelShare>& names, const KernelShare& more) {
  add_name(names, more, kMaxNames);
}

CallShapeStatistics::Key CallShapeStatistics::key_of(const KernelEvent& event) {
  const ReplayedCall& replayed = event.replayed;
  if (replayed.call == 0) return key_of(event.launch.thread, event.launch.owner);
  Key key = key_of(replayed.thread, replayed.call);
  // Correlation ids are unique while CUPTI is attached, which it is during a window.
  key.launch = std::uint64_t{event.launch.window} << 32 | event.correlation;
  return key;
}

CallShapeStatistics::Call& CallShapeStatistics::call_of(const Key& key, std::uint32_t shape,
                                                        std::uint32_t window) {
  const auto [place, is_new] = calls_.try_emplace(key);
  if (is_new) {
    order_.push_back(key);
    if (order_.size() > kMaxCalls) {
      const auto oldest = calls_.find(order_.front());
      flush(oldest->second);
      calls_.erase(oldest);
      order_.pop_front();
    }
  }
  place->second.shape = shape;
  place->second.window = window;
  in_order_ = false;
  return place->second;
}

void CallShapeStatistics::add(const CallEvent& event) {
  if (event.shape == 0) return;
  if (!event.owns_shape) {
    if (event.captured && event.owner != 0)
      call_of(key_of(event.thread, event.owner), event.shape, event.window).captured = true;
    return;
  }
  Call& call = call_of(key_of(event.thread, event.call), event.shape, event.window);
  call.function = event.function;
  call.host = event.end > event.begin ? event.end - event.begin : 0;
  call.failed = event.status != 0;
  call.shared = event.shared;
  call.captured = call.captured || event.captured;
}

bool CallShapeStatistics::add(const KernelEvent& event) {
  if (!event.launch.known || event.launch.shape == 0) return false;
  Call& call = call_of(key_of(event), event.launch.shape, event.launch.window);
  const bool first_replayed = event.replayed.call != 0 && call.kernels == 0;
  if (first_replayed) {
    call.function = event.replayed.function;
    call.replayed = true;
  }
  const std::uint64_t time = event.end > event.start ? event.end - event.start : 0;
  if (call.kernels++ == 0) call.device = event.device;
  call.gpu += time;
  add_name(call.names, {event.name, 1, time}, kMaxNames);
  return first_replayed;
}

void CallShapeStatistics::lost_work(const Attribution& launch) {
  // Which captured calls a graph's launch ran is known by its kernels.
  if (!launch.known || launch.graph != 0) {
    lost_windows_.insert(launch.window);
    for (CallShapeEntry& row : rows_) row.incomplete = row.incomplete || row.last_window >= launch.window;
  } else if (launch.shape != 0) {
    call_of(key_of(launch.thread, launch.owner), launch.shape, launch.window).incomplete = true;
  }
}

bool CallShapeStatistics::is_captured(const CallEvent& event) const {
  const auto call = calls_.find(key_of(event.thread, event.call));
  return call != calls_.end() && call->second.captured;
}

void CallShapeStatistics::flush(const Call& call) {
  if (call.incomplete && call.function == kNoFunction && call.kernels == 0) {
    // The call itself is no longer, or never was, among the pending ones.
    for (CallShapeEntry& row : rows_) row.incomplete = row.incomplete || row.shape == call.shape;
    return;
  }
  // Shapes that did not fit in the shape table cannot be told apart.
  const std::uint32_t index =
      call.shape == ShapeTable::kOther ? KeyIndex<2>::kOther : keys_.find_or_add({call.function, call.shape});
  if (index == rows_.size()) {
    CallShapeEntry& made = rows_.emplace_back();
    made.function = call.function;
    made.shape = call.shape;
    made.device = call.device;
  }
  const bool other = index == KeyIndex<2>::kOther;
  CallShapeEntry& row = other ? others_[function_category(call.function)] : rows_[index];
  if (other && row.function == kNoFunction) row.function = call.function;
  row.last_window = std::max(row.last_window, call.window);
  row.incomplete = row.incomplete || call.incomplete || lost_windows_.contains(call.window);
  row.failed_ran = row.failed_ran || (call.failed && call.kernels != 0);
  if (call.replayed) {
    ++row.replayed;
  } else if (call.function != kNoFunction) {
    row.host.add(call.host);
    (call.failed ? row.failed : row.calls) += 1;
    if (!call.failed) {
      row.captured += call.captured;
      row.shared += call.shared;
    }
  }
  if (call.kernels == 0) return;
  if (row.kernels == 0) row.device = call.device;
  row.kernels += call.kernels;
  row.gpu.add(call.gpu);
  for (const KernelShare& name : call.names) add_name(row.names, name, kMaxNames);
}

// Sorts the calls only once, however many windows are settled in a row.
void CallShapeStatistics::settle(std::uint32_t window) {
  if (!std::exchange(in_order_, true)) put_in_order();
  for (; !order_.empty(); order_.pop_front()) {
    const auto call = calls_.find(order_.front());
    if (call->second.window > window) break;
    flush(call->second);
    calls_.erase(call);
  }
  lost_windows_.erase(lost_windows_.begin(), lost_windows_.upper_bound(window));
}

void CallShapeStatistics::put_in_order() {
  std::vector<std::pair<std::uint32_t, Key>> calls;
  calls.reserve(order_.size());
  for (const Key& key : order_) calls.emplace_back(calls_.at(key).window, key);
  const auto earlier = [](const auto& a, const auto& b) { return a.first < b.first; };
  if (std::is_sorted(calls.begin(), calls.end(), earlier)) return;
  std::stable_sort(calls.begin(), calls.end(), earlier);
  std::transform(calls.begin(), calls.end(), order_.begin(), [](const auto& call) { return call.second; });
}

std::vector<CallShapeEntry> CallShapeStatistics::rows() const {
  CallShapeStatistics settled = *this;
  settled.settle(~std::uint32_t{0});
  std::vector<CallShapeEntry> rows = std::move(settled.rows_);
  for (auto& [category, other] : settled.others_) {
    rows.push_back(std::move(other));
    rows.back().other = true;
  }
  for (CallShapeEntry& row : rows) {
    std::sort(row.names.begin(), row.names.end(), [](const KernelShare& a, const KernelShare& b) {
      return a.time != b.time ? a.time > b.time : a.name < b.name;
    });
  }
  std::stable_sort(rows.begin(), rows.end(), [](const CallShapeEntry& a, const CallShapeEntry& b) {
    if (a.other != b.other) return b.other;
    return a.gpu.sum != b.gpu.sum ? a.gpu.sum > b.gpu.sum : a.host.sum > b.host.sum;
  });
  return rows;
}

}  // namespace inject
