// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/pipeline/range_tracker.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace inject {

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
  for (const Open& open : state.started) emit(thread, state.window, open, end, true);
  state.stack.clear();
  state.started.clear();
}

bool RangeTracker::finish_started(std::uint32_t thread, Thread& state, const RangeRecord& record) {
  const auto found = std::find_if(state.started.begin(), state.started.end(),
                                  [&](const Open& open) { return open.node == record.node; });
  if (found == state.started.end()) return false;
  emit(thread, record.window, *found, record.time, false);
  state.started.erase(found);
  return true;
}

void RangeTracker::edge(std::uint32_t thread, const RangeRecord& record) {
  if (record.window == 0) return;
  Thread& state = enter_window(thread, record.window);
  const Nanoseconds window_begin = windows_(record.window).begin;
  switch (record.edge) {
    case RangeEdge::kPush:
      // The ranges around it first: they may have been open before the window was.
      context(thread, record.window, tree_.node(record.node).parent);
      state.stack.push_back({record.node, record.time, false});
      break;
    case RangeEdge::kPop: {
      context(thread, record.window, record.node);
      // By name from the top: domains have stacks of their own, so the range that ends need not be the
      // innermost.
      const RangeTree::Node ended = tree_.node(record.node);
      const auto found = std::find_if(state.stack.rbegin(), state.stack.rend(), [&](const Open& open) {
        const RangeTree::Node node = tree_.node(open.node);
        return node.name == ended.name && node.domain == ended.domain;
      });
      if (found != state.stack.rend()) {
        emit(thread, record.window, *found, record.time, false);
        state.stack.erase(std::next(found).base());
      }
      break;
    }
    case RangeEdge::kStart:
      state.started.push_back({record.node, record.time, false});
      break;
    case RangeEdge::kEnd:
      if (!finish_started(thread, state, record)) {
        // Ended by another thread than the one that started it, or started before the window.
        bool found = false;
        for (auto& [other, other_state] : threads_) {
          if (other_state.window == record.window && finish_started(other, other_state, record)) {
            found = true;
            break;
          }
        }
        if (!found) emit(thread, record.window, {record.node, window_begin, true}, record.time, true);
      }
      break;
  }
  state.last_context = 0;
}

void RangeTracker::context(std::uint32_t thread, std::uint32_t window, std::uint32_t node) {
  if (window == 0 || node == 0) return;
  Thread& state = enter_window(thread, window);
  if (state.last_context == node) return;
  state.last_context = node;
  // The path's push/pop ranges, innermost first. Those beyond what this window saw pushed were open before
  // it.
  std::vector<std::uint32_t> path;
  for (std::uint32_t at = node; at != 0; at = tree_.node(at).parent) {
    if (tree_.node(at).style == RangeStyle::kPushPop) path.push_back(at);
  }
  if (path.size() <= state.stack.size()) return;
  const Nanoseconds begin = windows_(window).begin;
  std::vector<Open> older;
  for (std::size_t i = path.size(); i > state.stack.size(); --i) older.push_back({path[i - 1], begin, true});
  state.stack.insert(state.stack.begin(), older.begin(), older.end());
}

void RangeTracker::close_window(std::uint32_t window) {
  // What is kept of a thread goes with it: a program may have thousands of them, one after another.
  for (auto at = threads_.begin(); at != threads_.end();) {
    if (at->second.window != window) {
      ++at;
      continue;
    }
    clip_all(at->first, at->second);
    at = threads_.erase(at);
  }
}

}  // namespace inject
