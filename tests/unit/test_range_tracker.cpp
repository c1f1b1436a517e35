// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/pipeline/range_tracker.h"

#include <algorithm>
#include <string>
#include <vector>

#include "libinject/record/name_table.h"
#include "libinject/record/unplaced_pushes.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr std::uint32_t kWindow = 1;
constexpr Nanoseconds kBegin = 100;
constexpr Nanoseconds kEnd = 1'000;

struct Tracking {
  RangeTree tree{1'000};
  std::vector<std::string> told;
  RangeTracker tracker{tree,
                       [](std::uint32_t) {
                         return RangeTracker::Span{kBegin, kEnd};
                       },
                       [this](const RangeEvent& event) {
                         told.push_back(std::to_string(tree.node(event.node).name) + " " +
                                        std::to_string(event.begin) + " … " + std::to_string(event.end) +
                                        (event.clipped ? " clipped" : ""));
                       }};

  std::uint32_t alone(std::uint32_t name) { return tree.child(0, name, 0, RangeStyle::kStartEnd); }
  /// An edge of thread 1's range of that number; all have name 7.
  void edge(std::uint32_t thread, RangeEdge edge, std::uint32_t serial, Nanoseconds time,
            std::uint32_t owner = 1) {
    RangeRecord record;
    record.edge = edge;
    record.node = alone(7);
    record.time = time;
    record.window = kWindow;
    record.serial = serial;
    record.owner = owner;
    tracker.edge(thread, record);
  }
  void close() {
    const std::uint32_t window = kWindow;
    tracker.close_windows({&window, 1});
    std::sort(told.begin(), told.end());  // their order has no meaning
  }
};

using Told = std::vector<std::string>;

}  // namespace

TEST_CASE_METHOD(Tracking, "a range that another thread ends may be seen to end first", "[nvtx]") {
  edge(2, RangeEdge::kEnd, 31, 300);
  edge(2, RangeEdge::kEnd, 32, 500);
  CHECK(told.empty());
  edge(1, RangeEdge::kStart, 31, 200);
  edge(1, RangeEdge::kStart, 32, 400);
  CHECK(told == Told{"7 200 … 300", "7 400 … 500"});
  // The next range has both ends in place.
  edge(1, RangeEdge::kStart, 33, 600);
  edge(2, RangeEdge::kEnd, 33, 700);
  close();
  CHECK(told == Told{"7 200 … 300", "7 400 … 500", "7 600 … 700"});
}

TEST_CASE_METHOD(Tracking, "ranges of one name keep their own ends", "[nvtx]") {
  // Thread 1 was in a range when the window opened.
  edge(1, RangeEdge::kEnd, 30, 510);
  CHECK(told == Told{"7 100 … 510 clipped"});
  edge(2, RangeEdge::kStart, 31, 300, 2);
  edge(3, RangeEdge::kStart, 32, 200, 3);
  edge(2, RangeEdge::kEnd, 31, 400, 2);
  edge(4, RangeEdge::kEnd, 32, 350, 3);
  CHECK(told == Told{"7 100 … 510 clipped", "7 300 … 400", "7 200 … 350"});
  close();
  CHECK(told.size() == 3);
}

TEST_CASE_METHOD(Tracking, "a range's thread may be in the next window before its end is seen", "[nvtx]") {
  edge(1, RangeEdge::kStart, 31, 200);
  tracker.context(1, kWindow + 1, tree.child(0, 8, 0, RangeStyle::kPushPop));
  edge(2, RangeEdge::kEnd, 31, 300);
  close();
  CHECK(told == Told{"7 200 … 300"});
}

TEST_CASE_METHOD(Tracking, "an end without a start is that of a range from before the window", "[nvtx]") {
  edge(2, RangeEdge::kEnd, 31, 300);
  edge(1, RangeEdge::kStart, 32, 400);
  CHECK(told.empty());
  close();
  CHECK(told == Told{"7 100 … 300 clipped", "7 400 … 1000 clipped"});
}

TEST_CASE_METHOD(Tracking, "a start/end range that is open all the window long", "[nvtx]") {
  const std::uint32_t path = tree.child(alone(7), 8, 0, RangeStyle::kPushPop);
  SECTION("it does not end") {
    tracker.context(1, kWindow, path);
    tracker.context(1, kWindow, alone(7));
    close();
    CHECK(told == Told{"7 100 … 1000 clipped", "8 100 … 1000 clipped"});
  }
  SECTION("it ends in the window") {
    tracker.context(1, kWindow, path);
    edge(1, RangeEdge::kEnd, 31, 300);
    close();
    CHECK(told == Told{"7 100 … 300 clipped", "8 100 … 1000 clipped"});
  }
  SECTION("another thread has ended it") {
    edge(2, RangeEdge::kEnd, 31, 300);
    tracker.context(1, kWindow, path);
    close();
    CHECK(told == Told{"7 100 … 300 clipped", "8 100 … 1000 clipped"});
  }
  SECTION("it was started in the window") {
    edge(1, RangeEdge::kStart, 31, 200);
    edge(2, RangeEdge::kEnd, 31, 300);
    // Launched before the range ended.
    tracker.context(1, kWindow, path);
    close();
    CHECK(told == Told{"7 200 … 300", "8 100 … 1000 clipped"});
  }
}

TEST_CASE("a pop is that of a push that found no room, if its domain has any", "[nvtx]") {
  UnplacedPushes pushes;
  CHECK_FALSE(pushes.take(1));
  pushes.add(1);
  pushes.add(1);
  pushes.add(2);
  CHECK(pushes.count(1) == 2);
  CHECK(pushes.take(1));
  CHECK(pushes.take(2));
  CHECK_FALSE(pushes.take(2));
  CHECK(pushes.take(1));
  CHECK_FALSE(pushes.take(1));
  for (std::uint32_t domain = 0; domain < 20; ++domain) pushes.add(domain);
  CHECK(pushes.count(0) == 1);
  CHECK(pushes.count(19) == 12);  // of those beyond eight together
  CHECK(pushes.take(0));
  CHECK(pushes.count(0) == 12);
  for (std::uint32_t domain = 1; domain < 20; ++domain) CHECK(pushes.take(domain));
  for (std::uint32_t domain = 0; domain < 20; ++domain) CHECK_FALSE(pushes.take(domain));
  pushes.add(3);
  pushes.clear();
  CHECK(pushes.count(3) == 0);
}

TEST_CASE("Names of which there may be any number leave room for others", "[nvtx]") {
  NameTable names(1'000, 1 << 20);
  for (int i = 0; i < 2'000; ++i) names.intern("step " + std::to_string(i), NameTable::Room::kMost);
  CHECK(names.size() == 750);
  CHECK(names.overflows() != 0);
  CHECK(names.name(names.intern("step 0", NameTable::Room::kMost)) == "step 0");
  CHECK(names.intern("step 1999", NameTable::Room::kMost) == NameTable::kOther);
  for (int i = 0; i < 200; ++i) {
    const std::string kernel = "kernel " + std::to_string(i);
    CHECK(names.name(names.intern(kernel)) == kernel);
  }
}

TEST_CASE("A range leaves a path of any usual depth", "[nvtx]") {
  RangeTree tree(10'000);
  std::uint32_t path = tree.child(0, 1, 0, RangeStyle::kStartEnd);
  for (std::uint32_t i = 0; i < 200; ++i) path = tree.child(path, 2 + i, 0, RangeStyle::kStartEnd);
  std::uint32_t name = 1;
  std::uint32_t rest = tree.without(path, name, 0, RangeStyle::kStartEnd, false);
  CHECK(rest != path);
  for (; rest != 0; rest = tree.node(rest).parent) CHECK(tree.node(rest).name != 1);
}
