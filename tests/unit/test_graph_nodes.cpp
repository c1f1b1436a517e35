// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/graph_nodes.h"

#include <thread>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

CapturedCall call_number(std::uint32_t number) {
  CapturedCall call;
  call.chain = number;
  call.thread = 1;
  call.owner = number;
  call.shape = number + 1;
  call.function = static_cast<FunctionId>(number + 2);
  return call;
}

std::uint32_t owner_of(const GraphNodes& nodes, std::uint64_t node) {
  CapturedCall call;
  return nodes.find(node, call) ? call.owner : 0;
}

}  // namespace

TEST_CASE("a graph's node knows the call that it was captured in, and so do its clones", "[graph_nodes]") {
  GraphNodes nodes(16);
  CapturedCall found;
  CHECK_FALSE(nodes.find(7, found));
  nodes.add(7, call_number(3));
  REQUIRE(nodes.find(7, found));
  CHECK(found.chain == 3);
  CHECK(found.thread == 1);
  CHECK(found.owner == 3);
  CHECK(found.shape == 4);
  CHECK(found.function == 5);
  nodes.add_clone(8, 7);
  nodes.add_clone(9, 8);
  CHECK(owner_of(nodes, 9) == 3);
  // A clone of an unknown node is unknown.
  nodes.add_clone(20, 19);
  CHECK(owner_of(nodes, 20) == 0);
  CHECK(nodes.size() == 3);
  CHECK(nodes.overflows() == 0);
}

TEST_CASE("what is known of a graph's node stays until all are forgotten", "[graph_nodes]") {
  GraphNodes nodes(16);
  nodes.add(7, call_number(3));
  nodes.add(7, call_number(4));
  nodes.add(8, call_number(5));
  nodes.add_clone(7, 8);
  CHECK(owner_of(nodes, 7) == 3);
  CHECK(nodes.size() == 2);
  nodes.clear();
  CHECK(nodes.size() == 0);
  CHECK(owner_of(nodes, 7) == 0);
  nodes.add(7, call_number(4));
  CHECK(owner_of(nodes, 7) == 4);
  CHECK(owner_of(nodes, 8) == 0);
}

TEST_CASE("ids that no node can have are not entered", "[graph_nodes]") {
  GraphNodes nodes(16);
  nodes.add(0, call_number(1));
  nodes.add(~std::uint64_t{0}, call_number(1));
  CHECK(nodes.size() == 0);
  CHECK(owner_of(nodes, 0) == 0);
  CHECK(owner_of(nodes, ~std::uint64_t{0}) == 0);
}

TEST_CASE("a full table of graphs' nodes counts what found no room", "[graph_nodes]") {
  GraphNodes nodes(100);
  for (std::uint32_t i = 1; i <= 100; ++i) nodes.add(i * 1000, call_number(i));
  CHECK(nodes.overflows() == 0);
  nodes.add_clone(1, 1000);
  nodes.add(2, call_number(2));
  CHECK(nodes.overflows() == 2);
  nodes.add(1000, call_number(2));  // known
  CHECK(nodes.overflows() == 2);
  CHECK(nodes.size() == 100);
  for (std::uint32_t i = 1; i <= 100; ++i) CHECK(owner_of(nodes, i * 1000) == i);
  CHECK(owner_of(nodes, 1) == 0);

  GraphNodes none(0);
  none.add(1, call_number(1));
  CHECK(none.overflows() == 1);
  CHECK(owner_of(none, 1) == 0);
}

TEST_CASE("threads enter graphs' nodes side by side, the same ones too", "[graph_nodes]") {
  constexpr std::uint32_t kNodes = 4000;
  GraphNodes nodes(2 * kNodes);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&nodes] {
      for (std::uint32_t node = 1; node <= kNodes; ++node) nodes.add(node, call_number(node));
    });
  }
  // Whatever is found meanwhile is consistent.
  bool whole = true;
  for (std::uint32_t node = 1; node <= kNodes; ++node) {
    if (CapturedCall call; nodes.find(node, call)) whole = whole && call.owner == node && call.chain == node;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(whole);
  CHECK(nodes.size() == kNodes);
  CHECK(nodes.overflows() == 0);
  for (std::uint32_t node = 1; node <= kNodes; ++node) {
    if (owner_of(nodes, node) != node) FAIL("node " << node);
  }
}
