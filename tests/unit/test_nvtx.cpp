// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <array>
#include <vector>

#include "libinject/pipeline/range_tracker.h"
#include "libinject/record/range_tree.h"
#include "tests/unit/catch.h"

using namespace inject;

TEST_CASE("a range tree enters each path once") {
  RangeTree tree(100);
  const std::uint32_t a = tree.child(0, 10, 0, RangeStyle::kPushPop);
  const std::uint32_t b = tree.child(a, 11, 0, RangeStyle::kPushPop);
  CHECK(tree.child(0, 10, 0, RangeStyle::kPushPop) == a);
  CHECK(tree.child(a, 11, 0, RangeStyle::kPushPop) == b);
  CHECK(tree.child(a, 11, 0, RangeStyle::kStartEnd) != b);
  CHECK(tree.child(a, 11, 5, RangeStyle::kPushPop) != b);
  CHECK(tree.node(b).parent == a);
  CHECK(tree.node(b).name == 11);
}

TEST_CASE("a range's level counts those of its domain") {
  RangeTree tree(100'100);
  const std::uint32_t a = tree.child(0, 10, 0, RangeStyle::kPushPop);
  const std::uint32_t started = tree.child(a, 10, 0, RangeStyle::kStartEnd);
  const std::uint32_t d = tree.child(started, 20, 5, RangeStyle::kPushPop);
  const std::uint32_t b = tree.child(d, 11, 0, RangeStyle::kPushPop);
  CHECK(tree.level(0, 0) == 0);
  CHECK(tree.level(a, 0) == 1);
  CHECK(tree.level(started, 0) == 1);
  CHECK(tree.level(d, 5) == 1);
  CHECK(tree.level(d, 0) == 1);
  CHECK(tree.level(b, 0) == 2);
  CHECK(tree.level(b, 5) == 1);
  // Pushed, but never popped.
  std::uint32_t deep = b;
  for (int i = 0; i < 100'000; ++i) deep = tree.child(deep, 12, 0, RangeStyle::kPushPop);
  CHECK(tree.level(deep, 0) == 100'002);
  CHECK(tree.level(tree.child(deep, 21, 5, RangeStyle::kPushPop), 5) == 1);
}

TEST_CASE("a full range tree falls back to the parent and counts") {
  RangeTree tree(3);
  const std::uint32_t a = tree.child(0, 1, 0, RangeStyle::kPushPop);
  const std::uint32_t b = tree.child(a, 2, 0, RangeStyle::kPushPop);
  CHECK(tree.child(b, 3, 0, RangeStyle::kPushPop) == b);
  CHECK(tree.overflows() == 1);
}

TEST_CASE("taking a range out of the middle of a path keeps the ranges above it") {
  RangeTree tree(100);
  const std::uint32_t a = tree.child(0, 10, 0, RangeStyle::kPushPop);
  const std::uint32_t d = tree.child(a, 20, 5, RangeStyle::kPushPop);  // in another domain
  const std::uint32_t b = tree.child(d, 11, 0, RangeStyle::kPushPop);
  std::uint32_t name = 0;
  const std::uint32_t rest = tree.without(b, name, 5, RangeStyle::kPushPop, true);
  CHECK(name == 20);
  CHECK(rest == tree.child(a, 11, 0, RangeStyle::kPushPop));
  name = 99;
  CHECK(tree.without(b, name, 0, RangeStyle::kStartEnd, false) == b);
}

namespace {

struct Tracked {
  RangeTree tree{1000};
  std::vector<RangeTracker::Span> spans{{}, {1000, 2000}, {3000, 4000}};
  std::vector<RangeEvent> events;
  RangeTracker tracker{tree, [this](std::uint32_t window) { return spans.at(window); },
                       [this](const RangeEvent& event) { events.push_back(event); }};

  void edge(RangeEdge edge, std::uint32_t node, Nanoseconds time, std::uint32_t window = 1,
            std::uint32_t thread = 1, std::uint32_t owner = 1) {
    RangeRecord record;
    record.edge = edge;
    record.node = node;
    record.time = time;
    record.window = window;
    record.owner = owner;
    tracker.edge(thread, record);
  }
  std::uint32_t push_pop(std::uint32_t parent, std::uint32_t name, std::uint32_t domain = 0) {
    return tree.child(parent, name, domain, RangeStyle::kPushPop);
  }
};

}  // namespace

TEST_CASE("nested ranges in a window come out with their full times") {
  Tracked t;
  const auto outer = t.push_pop(0, 10);
  const auto inner = t.push_pop(outer, 11);
  t.edge(RangeEdge::kPush, outer, 1100);
  t.edge(RangeEdge::kPush, inner, 1200);
  t.edge(RangeEdge::kPop, inner, 1300);
  t.edge(RangeEdge::kPop, outer, 1400);
  REQUIRE(t.events.size() == 2);
  CHECK(t.events[0].node == inner);
  CHECK(t.events[0].begin == 1200);
  CHECK(t.events[0].end == 1300);
  CHECK(t.events[1].node == outer);
  CHECK(t.events[1].end == 1400);
  CHECK_FALSE(t.events[1].clipped);
}

TEST_CASE("ranges that cross a window's edge are cut there and marked") {
  Tracked t;
  const auto epoch = t.push_pop(0, 10);
  const auto step = t.push_pop(epoch, 11);
  // "epoch" was pushed before the window opened; a launch inside "step" shows both.
  t.tracker.context(1, 1, step);
  t.edge(RangeEdge::kPop, step, 1500);
  const auto next = t.push_pop(epoch, 12);
  t.edge(RangeEdge::kPush, next, 1600);
  t.tracker.close_windows(std::array{1u});
  REQUIRE(t.events.size() == 3);
  CHECK(t.events[0].node == step);
  CHECK(t.events[0].begin == 1000);
  CHECK(t.events[0].end == 1500);
  CHECK(t.events[0].clipped);
  CHECK(t.events[1].node == epoch);
  CHECK(t.events[1].begin == 1000);
  CHECK(t.events[1].end == 2000);
  CHECK(t.events[2].node == next);
  CHECK(t.events[2].begin == 1600);
  CHECK(t.events[2].end == 2000);
  CHECK(t.events[2].clipped);
}

TEST_CASE("records of the next window end what the last one left open") {
  Tracked t;
  const auto step = t.push_pop(0, 11);
  t.edge(RangeEdge::kPush, step, 1600);
  t.edge(RangeEdge::kPop, step, 3100, 2);
  REQUIRE(t.events.size() == 2);
  CHECK(t.events[0].window == 1);
  CHECK(t.events[0].end == 2000);
  CHECK(t.events[1].window == 2);
  CHECK(t.events[1].begin == 3000);
  CHECK(t.events[1].end == 3100);
  CHECK(t.events[1].clipped);
}

TEST_CASE("a domain's pop ends that domain's range, not the innermost one") {
  Tracked t;
  const auto a = t.push_pop(0, 10, 1);
  const auto b = t.push_pop(a, 11, 2);
  t.edge(RangeEdge::kPush, a, 1100);
  t.edge(RangeEdge::kPush, b, 1200);
  t.edge(RangeEdge::kPop, t.push_pop(0, 10, 1), 1300);
  REQUIRE(t.events.size() == 1);
  CHECK(t.tree.node(t.events[0].node).name == 10);
  CHECK(t.events[0].begin == 1100);
  t.edge(RangeEdge::kPop, t.push_pop(0, 11, 2), 1400);
  REQUIRE(t.events.size() == 2);
  CHECK(t.events[1].begin == 1200);
}

TEST_CASE("a start/end range may end on another thread, or have begun before the window") {
  Tracked t;
  const auto node = t.tree.child(0, 10, 0, RangeStyle::kStartEnd);
  t.edge(RangeEdge::kStart, node, 1100, 1, 1);
  t.edge(RangeEdge::kEnd, node, 1200, 1, 2);
  REQUIRE(t.events.size() == 1);
  CHECK(t.events[0].thread == 1);
  CHECK(t.events[0].begin == 1100);
  CHECK_FALSE(t.events[0].clipped);
  t.edge(RangeEdge::kEnd, node, 1300, 1, 2, 2);
  REQUIRE(t.events.size() == 2);
  CHECK(t.events[1].begin == 1000);
  CHECK(t.events[1].end == 1300);
  CHECK(t.events[1].clipped);
}
