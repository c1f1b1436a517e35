// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/pipeline/range_tracker.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace inject {

namespace {
// A pop ends one of the innermost ranges of its thread: RangeTree::without() searches no further than this.
// Here there may also be ranges whose pop found the ring full.
constexpr std::ptrdiff_t kMaxSearched = 2048;
// Limits on the ranges of a path that may have been open before the window, and on the names per thread: a
// program may have any number of ranges that it never ends.
constexpr std::uint32_t kMaxRestored = 64;
constexpr std::size_t kMaxKnown = 4096;
}  // namespace

RangeTracker::RangeTracker(const RangeTree& tree, WindowSpan windows, Emit emit)
    : tree_(tree), windows_(std::move(windows)), emit_(std::move(emit)) {}

RangeTracker::Thread& RangeTracker::enter_window(std::uint32_t thread, std::uint32_t window) {
  Thread& state = threads_[thread];
  if (state.window != window) {
    clip_stack(thread, state);
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

void RangeTracker::clip_stack(std::uint32_t thread, Thread& state) {
  if (state.window == 0) return;
  const Nanoseconds end = windows_(state.window).end;
  for (const Open& open : state.stack) emit(thread, state.window, open, end, true);
  open_ -= state.stack.size();
  state.stack.clear();
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
  // First the ranges around it, which may have been open before the window was.
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
  // By name, innermost first: each domain has its own stack, so the range that ends need not be the
  // innermost.
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

void RangeTracker::know(Earlier& earlier, const Name& name) {
  if (earlier.known.size() < kMaxKnown) earlier.known.insert(name);
}

void RangeTracker::start(std::uint32_t thread, const RangeRecord& record) {
  know(earlier_[{record.window, thread}], name_of(record.node));
  const Open open{record.node, record.time, false};
  if (const auto end = ends_.find({record.window, record.serial}); end != ends_.end()) {
    emit(thread, record.window, open, end->second.time, false);
    ends_.erase(end);
    --open_;
  } else if (has_room(thread, record)) {
    started_.insert_or_assign({record.window, record.serial}, Started{thread, open});
  }
}

void RangeTracker::end(std::uint32_t thread, const RangeRecord& record) {
  const InWindow key{record.window, record.serial};
  const Ended ended{record.node, record.owner, record.time};
  if (const auto started = started_.find(key); started != started_.end()) {
    emit(started->second.owner, record.window, started->second.open, record.time, false);
    started_.erase(started);
    --open_;
  } else if (record.owner == thread || open_ >= kMaxOpen) {
    // The queue of its own thread had no start of it.
    end_earlier(record.window, ended);
  } else if (ends_.insert_or_assign(key, ended).second) {
    ++open_;
  }
}

// Ends a range that was started before the window.
void RangeTracker::end_earlier(std::uint32_t window, const Ended& ended) {
  if (const auto found = earlier_.find({window, ended.owner}); found != earlier_.end()) {
    Earlier& earlier = found->second;
    if (const auto open = earlier.open.find(name_of(ended.node)); open != earlier.open.end()) {
      earlier.open.erase(open);
      --open_;
    }
    know(earlier, name_of(ended.node));
  }
  emit(ended.owner, window, {ended.node, windows_(window).begin, true}, ended.time, true);
}

// Start/end ranges on the path whose start was not seen in the window were open before it. If a start with
// that name was seen, this is ambiguous.
void RangeTracker::restore_started(std::uint32_t thread, std::uint32_t window, std::uint32_t node) {
  std::vector<std::uint32_t> path;
  std::uint32_t left = kMaxRestored;
  for (std::uint32_t at = node; at != 0 && left > 0; --left) {
    const RangeTree::Node here = tree_.node(at);
    if (here.style == RangeStyle::kStartEnd) path.push_back(at);
    at = here.parent;
  }
  if (path.empty()) return;
  Earlier& earlier = earlier_[{window, thread}];
  if (earlier.known.size() >= kMaxKnown) return;
  // Two ranges of one name may be on the path: they become known together.
  std::erase_if(path, [&](std::uint32_t at) { return earlier.known.count(name_of(at)) != 0; });
  const Nanoseconds begin = windows_(window).begin;
  for (const std::uint32_t at : path) {
    earlier.known.insert(name_of(at));
    if (open_ >= kMaxOpen) continue;
    ++open_;
    earlier.open.emplace(name_of(at), Open{at, begin, true});
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
      start(thread, record);
      break;
    case RangeEdge::kEnd:
      end(thread, record);
      break;
  }
  state.last_context = 0;
}

void RangeTracker::context(std::uint32_t thread, std::uint32_t window, std::uint32_t node) {
  if (window == 0 || node == 0) return;
  Thread& state = enter_window(thread, window);
  if (state.last_context == node) return;
  state.last_context = node;
  restore_started(thread, window, node);
  // The path's push/pop ranges beyond those pushed in this window were open before it.
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

void RangeTracker::close_started(std::uint32_t window) {
  // Removes a window's entries from a map, and returns their number.
  const auto take = [window](auto& map, const auto& use) {
    const auto begin = map.lower_bound({window, 0});
    const auto end = map.lower_bound({window + 1, 0});
    std::size_t count = 0;
    for (auto at = begin; at != end; ++at, ++count) use(at->first.second, at->second);
    map.erase(begin, end);
    return count;
  };
  // No queue has their starts.
  open_ -= take(ends_, [&](std::uint32_t, const Ended& ended) { end_earlier(window, ended); });
  const Nanoseconds end = windows_(window).end;
  open_ -= take(started_, [&](std::uint32_t, const Started& started) {
    emit(started.owner, window, started.open, end, true);
  });
  take(earlier_, [&](std::uint32_t thread, const Earlier& earlier) {
    for (const auto& [name, open] : earlier.open) emit(thread, window, open, end, true);
    open_ -= earlier.open.size();
  });
}

void RangeTracker::close_windows(std::span<const std::uint32_t> windows) {
  // A thread's state is dropped with its window: a program may have thousands of threads, one after another.
  for (auto at = threads_.begin(); at != threads_.end();) {
    if (!std::binary_search(windows.begin(), windows.end(), at->second.window)) {
      ++at;
      continue;
    }
    clip_stack(at->first, at->second);
    at = threads_.erase(at);
  }
  for (const std::uint32_t window : windows) close_started(window);
}

}  // namespace inject
