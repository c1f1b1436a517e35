// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/graph_times.h"

#include <algorithm>
#include <utility>

namespace inject {

void GraphTimes::work(std::uint32_t device, std::uint32_t context, std::uint32_t stream,
                      std::uint32_t correlation, std::uint16_t generation, Nanoseconds start,
                      Nanoseconds end) {
  if (nodes_.empty()) return;
  const auto key = std::make_tuple(device, context, stream);
  if (streams_.size() == kMaxStreams && !streams_.contains(key)) streams_.clear();
  Last& last = streams_[key];
  if (last.generation != generation || last.correlation < correlation) {
    last = {generation, correlation, start, end};
  } else if (last.correlation == correlation) {
    // For a graph, the first of its nodes: if any node has its own end, that one does.
    last.start = std::min(last.start, start);
    last.end = std::min(last.end, end);
  }
}

void GraphTimes::kernel(const KernelEvent& event, std::uint16_t generation) {
  const std::uint32_t index =
      keys_.find_or_add({event.device, event.graph, static_cast<std::uint32_t>(event.graph_node),
                         static_cast<std::uint32_t>(event.graph_node >> 32)});
  work(event.device, event.context, event.stream, event.correlation, generation, event.start, event.end);
  if (index == KeyIndex<4>::kOther) {
    KernelEvent passed = event;
    callbacks_.taker(passed, generation, !runs_into_later(event, generation));
    return;
  }
  if (index == nodes_.size()) {
    nodes_.emplace_back();
    starts_.push_back(kNone);
  }
  Node& node = nodes_[index];
  if (node.generation != generation) {
    // A different attachment, in which the same number may be a different node.
    release(index);
    node = Node{};
    node.generation = generation;
  }
  KernelEvent newer = event;
  if (starts_[index] != kNone) {
    Node older = node;
    if (newer.start < older.event.start) std::swap(newer, older.event);
    // A node may run several times in one launch, and a record may arrive twice.
    const bool same_launch = older.event.correlation == newer.correlation;
    const bool usable =
        (same_launch || older.event.end <= newer.start) && !runs_into_later(older.event, generation);
    if (usable) {
      ++node.replays;
      node.longest = std::max(node.longest, older.event.end - older.event.start);
    }
    starts_[index] = kNone;
    callbacks_.taker(older.event, generation, usable);
  }
  node.event = newer;
  starts_[index] = newer.start;
}

bool GraphTimes::runs_into_later(const KernelEvent& event, std::uint16_t generation) const {
  const auto found = streams_.find(std::make_tuple(event.device, event.context, event.stream));
  if (found == streams_.end()) return false;
  const Last& last = found->second;
  return last.generation == generation && last.correlation > event.correlation && last.start > event.start &&
         last.end < event.end;
}

bool GraphTimes::too_long(const Node& node) const {
  const KernelEvent& event = node.event;
  if (event.launch.window == 0) return false;
  const Nanoseconds end = callbacks_.window_end(event.launch.window);
  return end != 0 && event.end > end && node.replays >= kMinReplays &&
         event.end - event.start > kTooLong * node.longest + kMin && !callbacks_.is_collective(event.name);
}

void GraphTimes::release(std::size_t index) {
  if (std::exchange(starts_[index], kNone) == kNone) return;
  Node& node = nodes_[index];
  const bool usable = !runs_into_later(node.event, node.generation) && !too_long(node);
  if (usable) {
    ++node.replays;
    node.longest = std::max(node.longest, node.event.end - node.event.start);
  }
  callbacks_.taker(node.event, node.generation, usable);
}

void GraphTimes::release_windows(std::uint32_t through) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (starts_[i] != kNone && nodes_[i].event.launch.window <= through) release(i);
  }
}

void GraphTimes::release_ended(Nanoseconds ended) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (starts_[i] != kNone && starts_[i] < ended && nodes_[i].event.end <= ended) release(i);
  }
}

void GraphTimes::release_all() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) release(i);
  // For programs that keep creating graphs, drop the old ones to make room.
  if (nodes_.size() <= kMaxNodes / 2) return;
  keys_ = KeyIndex<4>(kMaxNodes);
  nodes_.clear();
  starts_.clear();
  streams_.clear();
}

Nanoseconds GraphTimes::first_start() const {
  return starts_.empty() ? kNone : *std::min_element(starts_.begin(), starts_.end());
}

}  // namespace inject
