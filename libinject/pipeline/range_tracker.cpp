// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/pipeline/range_tracker.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace inject {

namespace {
// A pop ends one of the innermost ranges of its thread: RangeTree::without() looks no further than that. Here
// there may also be some whose pop found the ring full.
constexpr std::ptrdiff_t kMaxSearched = 1024;
}  // namespace

RangeTracker::RangeTracker(const RangeTree& tree, WindowSpan windows, Emit emit)
    : tree_(tree), windows_(std::move(windows)), emit_(std::move(emit)) {}

RangeTracker::Thread& RangeTracker::enter_window(std::uint32_t thread, std::uint32_t window) {
  Thread& state = threads_[thread];
  if (state.window != window) {
    clip_all(thread, state);
    state.window = window;
    state.last_context = 0;
  }
  return state;
}

void RangeTracker::emit(std::uint32_t thread, std::uint32_t window, const Open& open, Nanoseconds end,
                        bool cut) {
  RangeEvent event;
  event.node = open.node;
  event.window = window;
  event.thread = thread;
  event.begin = open.begin;
  event.end = std::max(open.begin, end);
  event.clipped = open.clipped || cut;
  emit_(event);
}

void RangeTracker::clip_all(std::uint32_t thread, Thread& state) {
  if (state.window == 0) return;
  const Nanoseconds end = windows_(state.window).end;
  for (const Open& open : state.stack) emit(thread, state.window, open, end, true);
  std::map<std::uint64_t, Open> in_order;
  for (const auto& [key, open] : state.started) {
    in_order.emplace(key.second, open);
    starters_.erase({{state.window, key.first}, thread});
  }
  for (const auto& [number, open] : in_order) emit(thread, state.window, open, end, true);
  open_ -= state.stack.size() + state.started.size();
  state.stack.clear();
  state.started.clear();
  state.known.clear();
  state.beyond = 0;
}

bool RangeTracker::has_room(std::uint32_t thread, const RangeRecord& record) {
  if (open_ < kMaxOpen) {
    ++open_;
    return true;
  }
  emit(thread, record.window, {record.node, 0, true}, 0, true);
  return false;
}

void RangeTracker::push(std::uint32_t thread, Thread& state, const RangeRecord& record) {
  // The ranges around it first: they may have been open before the window was.
  context(thread, record.window, tree_.node(record.node).parent);
  if (has_room(thread, record)) {
    state.stack.push_back({record.node, record.time, false});
  } else {
    ++state.beyond;
  }
}

void RangeTracker::pop(std::uint32_t thread, Thread& state, const RangeRecord& record) {
  if (state.beyond != 0) {
    --state.beyond;
    return;
  }
  context(thread, record.window, record.node);
  // By name from the top: domains have stacks of their own, so the range that ends need not be the innermost.
  const RangeTree::Node ended = tree_.node(record.node);
  const auto last = state.stack.rbegin() + std::min(std::ssize(state.stack), kMaxSearched);
  const auto found = std::find_if(state.stack.rbegin(), last, [&](const Open& open) {
    const RangeTree::Node node = tree_.node(open.node);
    return node.name == ended.name && node.domain == ended.domain;
  });
  if (found == last) return;
  emit(thread, record.window, *found, record.time, false);
  state.stack.erase(std::next(found).base());
  --open_;
}

RangeTracker::Name RangeTracker::name_of(std::uint32_t node) const {
  const RangeTree::Node found = tree_.node(node);
  return {found.name, found.domain};
}

void RangeTracker::start(std::uint32_t thread, Thread& state, const RangeRecord& record) {
  const Name name = name_of(record.node);
  state.known.insert(name);
  const Open open{record.node, record.time, false};
  if (ended_already(thread, record.window, open) || !has_room(thread, record)) return;
  state.started.emplace(std::make_pair(name, ++starts_), open);
  starters_.insert({{record.window, name}, thread});
}

bool RangeTracker::finish_started(std::uint32_t thread, Thread& state, const RangeRecord& record) {
  const Name name = name_of(record.node);
  const auto found = state.started.lower_bound({name, 0});
  if (found == state.started.end() || found->first.first != name || found->second.begin > record.time)
    return false;
  emit(thread, record.window, found->second, record.time, false);
  const auto next = state.started.erase(found);
  if (next == state.started.end() || next->first.first != name)
    starters_.erase({{record.window, name}, thread});
  --open_;
  return true;
}

bool RangeTracker::finish_of_another(const RangeRecord& record) {
  const NameInWindow key{record.window, name_of(record.node)};
  const auto found = starters_.lower_bound({key, 0});
  return found != starters_.end() && found->first == key &&
         finish_started(found->second, threads_[found->second], record);
}

void RangeTracker::keep_end(std::uint32_t thread, const RangeRecord& record) {
  if (open_ >= kMaxOpen) {
    emit(thread, record.window, {record.node, windows_(record.window).begin, true}, record.time, true);
    return;
  }
  ++open_;
  ends_[{record.window, name_of(record.node)}].emplace(record.time, Ended{record.node, thread});
}

bool RangeTracker::ended_already(std::uint32_t thread, std::uint32_t window, const Open& open) {
  const auto of_name = ends_.find({window, name_of(open.node)});
  if (of_name == ends_.end()) return false;
  const auto end = of_name->second.lower_bound(open.begin);
  if (end == of_name->second.end()) return false;
  emit(thread, window, open, end->first, false);
  of_name->second.erase(end);
  if (of_name->second.empty()) ends_.erase(of_name);
  --open_;
  return true;
}

// Start/end ranges on the path of which the window has seen no start: they were open before it.
void RangeTracker::restore_started(std::uint32_t thread, Thread& state, std::uint32_t node) {
  std::ptrdiff_t left = kMaxSearched;
  std::vector<std::uint32_t> older;
  std::set<Name> names;
  for (std::uint32_t at = node; at != 0 && left > 0; at = tree_.node(at).parent, --left) {
    if (tree_.node(at).style != RangeStyle::kStartEnd || state.known.count(name_of(at)) != 0) continue;
    older.push_back(at);
    names.insert(name_of(at));
  }
  if (older.empty()) return;
  state.known.merge(names);
  const Nanoseconds begin = windows_(state.window).begin;
  for (auto at = older.rbegin(); at != older.rend(); ++at) {
    const Open open{*at, begin, true};
    if (open_ >= kMaxOpen || ended_already(thread, state.window, open)) continue;
    ++open_;
    state.started.emplace(std::make_pair(name_of(*at), ++starts_), open);
    starters_.insert({{state.window, name_of(*at)}, thread});
  }
}

void RangeTracker::edge(std::uint32_t thread, const RangeRecord& record) {
  if (record.window == 0) return;
  Thread& state = enter_window(thread, record.window);
  switch (record.edge) {
    case RangeEdge::kPush:
      push(thread, state, record);
      break;
    case RangeEdge::kPop:
      pop(thread, state, record);
      break;
    case RangeEdge::kStart:
      start(thread, state, record);
      break;
    case RangeEdge::kEnd:
      if (!finish_started(thread, state, record) && !finish_of_another(record)) keep_end(thread, record);
      break;
  }
  state.last_context = 0;
}

void RangeTracker::context(std::uint32_t thread, std::uint32_t window, std::uint32_t node) {
  if (window == 0 || node == 0) return;
  Thread& state = enter_window(thread, window);
  if (state.last_context == node) return;
  state.last_context = node;
  restore_started(thread, state, node);
  // The path's push/pop ranges beyond what this window saw pushed were open before it.
  std::size_t depth = tree_.node(node).depth;
  const std::size_t seen = state.stack.size() + state.beyond;
  if (depth <= seen) return;
  std::vector<Open> older(depth - seen);
  const Nanoseconds begin = windows_(window).begin;
  for (std::uint32_t at = node; depth != 0; at = tree_.node(at).parent) {
    if (tree_.node(at).style != RangeStyle::kPushPop) continue;
    if (--depth < older.size()) older[depth] = {at, begin, true};
  }
  open_ += older.size();
  state.stack.insert(state.stack.begin(), older.begin(), older.end());
}

void RangeTracker::close_windows(std::span<const std::uint32_t> windows) {
  // What is kept of a thread goes with its window: a program may have thousands of them, one after another.
  for (auto at = threads_.begin(); at != threads_.end();) {
    if (!std::binary_search(windows.begin(), windows.end(), at->second.window)) {
      ++at;
      continue;
    }
    clip_all(at->first, at->second);
    at = threads_.erase(at);
  }
  // Started before the window.
  for (auto at = ends_.begin(); at != ends_.end();) {
    const std::uint32_t window = at->first.first;
    if (!std::binary_search(windows.begin(), windows.end(), window)) {
      ++at;
      continue;
    }
    const Nanoseconds begin = windows_(window).begin;
    for (const auto& [time, ended] : at->second)
      emit(ended.thread, window, {ended.node, begin, true}, time, true);
    open_ -= at->second.size();
    at = ends_.erase(at);
  }
}

}  // namespace inject
