// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/place_boxes.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/catch.h"

namespace inject {
namespace {

struct Launched {
  NameTable names{1024, 1 << 20};
  CodePlaces places{names};
  std::vector<PlacedLaunch> launches;
  Nanoseconds time = 1000;

  std::uint32_t node(CodeNodeKind kind, std::uint32_t parent, const std::string& name) {
    return places.node({kind, parent, names.intern(name), 0, 0});
  }
  /// `path`: one letter per module, the outermost first; "" for a launch without a place.
  void in(const std::string& path, CodePhase phase = CodePhase::kForward, std::uint32_t thread = 1,
          std::uint32_t iteration = 1) {
    CodePlace place;
    for (const char module : path)
      place.module = node(CodeNodeKind::kModule, place.module, std::string(1, module));
    place.op = node(CodeNodeKind::kOperator, 0, "op");
    place.phase = phase;
    launches.push_back({time, time + 10, thread, iteration, path.empty() ? 0 : places.place(place)});
    time += 100;
  }
  PlaceBoxes found(std::size_t most = 1000) const { return place_boxes(launches, places, most); }
  std::string name(const PlaceBox& box) const { return std::string(names.name(places.node(box.node).name)); }
  /// `a 1000+210 x3` for each.
  std::vector<std::string> modules(const PlaceBoxes& boxes) const {
    std::vector<std::string> texts;
    for (const PlaceBox& box : boxes.boxes) {
      if (box.row != PlaceRow::kModules) continue;
      texts.push_back(name(box) + " " + std::to_string(box.begin) + "+" +
                      std::to_string(box.end - box.begin) + " x" + std::to_string(box.launches));
    }
    return texts;
  }
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("A box is from the first to the last of the launches in a module, one after the other",
          "[place_boxes]") {
  Launched run;
  for (const char* path : {"a", "ab", "ab", "ac", "a", "d"}) run.in(path);
  const PlaceBoxes found = run.found();
  CHECK(run.modules(found) == Texts{"a 1000+410 x5", "b 1100+110 x2", "c 1300+10 x1", "d 1500+10 x1"});
  CHECK(found.left_out == 0);
  // All were launched in one operator, on no line.
  std::map<PlaceRow, std::size_t> rows;
  for (const PlaceBox& box : found.boxes) ++rows[box.row];
  CHECK(rows == std::map<PlaceRow, std::size_t>{{PlaceRow::kModules, 4}, {PlaceRow::kOperators, 1}});
}

TEST_CASE("A launch without a place ends the boxes; so does another iteration, phase or thread",
          "[place_boxes]") {
  Launched run;
  run.in("ab");
  run.in("");
  run.in("ab");
  run.in("ab", CodePhase::kRecompute);
  run.in("ab", CodePhase::kRecompute, 1, 2);
  run.in("ab", CodePhase::kRecompute, 2, 2);
  const Texts texts = run.modules(run.found());
  CHECK(texts.size() == 10);
  for (const std::string& text : texts) CHECK(text.ends_with("+10 x1"));
}

TEST_CASE("What one call launches is one launch, and a call may have others inside", "[place_boxes]") {
  Launched run;
  run.in("a");
  run.launches.push_back(run.launches.back());
  run.launches.front().end = run.launches.back().end = 1150;
  run.in("b");
  CHECK(run.modules(run.found()) == Texts{"a 1000+100 x1", "b 1100+10 x1"});
}

TEST_CASE("Modules are linked to their backward pass where there is one of each", "[place_boxes]") {
  Launched run;
  for (std::uint32_t iteration = 1; iteration <= 2; ++iteration) {
    run.in("n", CodePhase::kForward, 1, iteration);
    run.in("na", CodePhase::kForward, 1, iteration);
    run.in("nb", CodePhase::kForward, 1, iteration);
    if (iteration == 2) run.in("na", CodePhase::kForward, 1, iteration);  // a second time
  }
  for (std::uint32_t iteration = 1; iteration <= 2; ++iteration) {
    run.in("nb", CodePhase::kBackward, 2, iteration);
    run.in("na", CodePhase::kBackward, 2, iteration);
  }
  const PlaceBoxes found = run.found();
  Texts links;
  for (const auto& [from, to] : found.links) {
    const PlaceBox& forward = found.boxes[from];
    const PlaceBox& backward = found.boxes[to];
    CHECK(forward.phase == CodePhase::kForward);
    CHECK(backward.phase == CodePhase::kBackward);
    CHECK(forward.node == backward.node);
    links.push_back(run.name(forward) + " " + std::to_string(forward.innermost) + " " +
                    std::to_string(backward.innermost));
  }
  std::sort(links.begin(), links.end());
  // n launched nothing in the backward pass itself, and a has two boxes in the second iteration.
  CHECK(links == Texts{"a 1100 1800", "b 1200 1700", "b 1500 1900"});
}

TEST_CASE("Boxes beyond the bound are counted, and leave no link", "[place_boxes]") {
  Launched run;
  for (int i = 0; i < 4; ++i) run.in(i % 2 == 0 ? "ab" : "c");
  run.in("c", CodePhase::kBackward, 2);
  const PlaceBoxes all = run.found();
  for (std::size_t most = 0; most < all.boxes.size(); ++most) {
    const PlaceBoxes some = run.found(most);
    CHECK(some.boxes.size() == most);
    CHECK(some.left_out >= all.boxes.size() - most);
    CHECK(some.links.empty());
  }
}

TEST_CASE("Generated launches: boxes nest, and hold the launches made in them", "[place_boxes]") {
  std::mt19937 random(11);
  for (int turn = 0; turn < 200; ++turn) {
    Launched run;
    for (std::uint32_t thread = 1; thread <= 2; ++thread) {
      for (int i = 0; i < 60; ++i) {
        std::string path;
        for (unsigned depth = random() % 4; depth > 0; --depth) path += static_cast<char>('a' + random() % 3);
        run.in(path, random() % 5 == 0 ? CodePhase::kBackward : CodePhase::kForward, thread,
               static_cast<std::uint32_t>(i / 20));
        run.launches.back().end += random() % 300;
      }
    }
    const PlaceBoxes found = run.found();
    std::map<std::uint32_t, std::uint64_t> expected;
    std::map<std::uint32_t, std::uint64_t> counted;
    for (const PlacedLaunch& launch : run.launches) {
      for (std::uint32_t node = run.places.place(launch.place).module; node != 0;
           node = run.places.node(node).parent)
        ++expected[node];
    }
    std::map<std::pair<std::uint32_t, PlaceRow>, std::vector<const PlaceBox*>> around;
    for (const PlaceBox& box : found.boxes) {
      if (box.row == PlaceRow::kModules) counted[box.node] += box.launches;
      std::vector<const PlaceBox*>& stack = around[{box.thread, box.row}];
      while (!stack.empty() && stack.back()->end <= box.begin) stack.pop_back();
      if (!stack.empty()) CHECK(box.end <= stack.back()->end);
      const std::uint32_t parent = run.places.node(box.node).parent;
      CHECK((parent == 0 ? stack.empty() : !stack.empty() && stack.back()->node == parent));
      stack.push_back(&box);
    }
    CHECK(counted == expected);
  }
}

}  // namespace inject
