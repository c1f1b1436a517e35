// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Captured graphs, and the places of their kernels in a window.
#include "libinject/record/captured_graphs.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "libinject/record/code_places.h"
#include "libinject/stats/code_times.h"
#include "tests/unit/catch.h"

namespace inject {
namespace {

const void* handle(std::uintptr_t number) {
  return reinterpret_cast<const void*>(number * 64);
}

std::unique_ptr<CapturedGraph> graph_of(std::size_t kernels) {
  auto graph = std::make_unique<CapturedGraph>();
  graph->kernels.resize(kernels);
  graph->nodes = kernels;
  return graph;
}

/// The place where the first kernel was captured.
std::uint32_t place_of(const CapturedGraphs& graphs, const void* executable) {
  const CapturedGraphs::Graph graph = graphs.find(graphs.number(executable));
  return graph == nullptr ? 0 : graph->kernels.front().place;
}

void set(CapturedGraphs& graphs, const void* graph, std::uint32_t place) {
  auto captured = graph_of(1);
  captured->kernels.front().place = place;
  graphs.set(graph, std::move(captured));
}

/// A window with launches of graphs whose kernels differ only by name.
struct Replays {
  NameTable names{1024, 1 << 20};
  CodePlaces places{names};
  ShapeTable shapes{64};
  CodeTimes times{names, shapes};
  std::uint32_t correlation = 0;
  Nanoseconds time = 1000;

  Replays() { times.expect(places); }

  std::uint32_t place(std::uint32_t line) {
    return places.place(
        {places.node({CodeNodeKind::kFrame, 0, names.intern("f"), names.intern("x.py"), line}), 0, 0,
         CodePhase::kForward});
  }
  static CapturedKernel kernel(std::uint32_t name, std::uint32_t place) {
    CapturedKernel kernel;
    kernel.name = name;
    kernel.grid = kernel.block = {1, 1, 1};
    kernel.place = place;
    return kernel;
  }
  /// A graph of kernels of those names, each captured on its own line: 1, 2, …
  CapturedGraph captured(const std::vector<std::string>& list, bool is_chain, bool as_made = true) {
    CapturedGraph graph;
    for (std::uint32_t line = 1; line <= list.size(); ++line)
      graph.kernels.push_back(kernel(names.intern(list[line - 1]), place(line)));
    graph.is_chain = is_chain;
    graph.as_made = as_made;
    return graph;
  }
  void add(std::uint16_t number, const CapturedGraph& graph) {
    if (times.wants_graph(1, number))
      times.graph(1, number, graph, [](std::uint32_t mangled) { return mangled; });
    CHECK_FALSE(times.wants_graph(1, number));
  }
  struct Ran {
    std::string name;
    std::uint64_t node;
    std::uint64_t duration;
  };
  /// The kernels in order of start; their records arrive in another order.
  void launch(std::uint16_t number, const std::vector<Ran>& list) {
    ++correlation;
    std::vector<KernelEvent> events;
    for (const Ran& ran : list) {
      KernelEvent event;
      event.launch.known = true;
      event.launch.window = 1;
      event.launch.thread = 1;
      event.launch.host_begin = time;
      event.launch.graph = number;
      event.name = names.intern(ran.name);
      event.correlation = correlation;
      event.graph = 1;
      event.graph_node = ran.node;
      event.start = ++time;
      event.end = time + ran.duration;
      event.grid = event.block = {1, 1, 1};
      events.push_back(event);
    }
    std::reverse(events.begin(), events.end());
    for (const KernelEvent& event : events) times.kernel(event);
  }
  /// Time by line; 0 for kernels without a place.
  std::map<std::uint32_t, std::uint64_t> lines() {
    times.settle_window(1);
    std::map<std::uint32_t, std::uint64_t> sums;
    for (const auto& [kernel, totals] : times.sums())
      sums[places.node(places.place(kernel.place).stack).line] += totals.sum;
    return sums;
  }
};

using Lines = std::map<std::uint32_t, std::uint64_t>;

}  // namespace

TEST_CASE("an executable graph is what was captured as it was made or updated", "[captured_graphs]") {
  CapturedGraphs graphs;
  set(graphs, handle(1), 11);
  set(graphs, handle(2), 22);
  CHECK(graphs.number(handle(7)) == 0);
  graphs.set_executable(handle(7), handle(1), 1);
  const std::uint16_t first = graphs.number(handle(7));
  CHECK(place_of(graphs, handle(7)) == 11);
  graphs.forget(handle(1));
  CHECK(place_of(graphs, handle(7)) == 11);
  graphs.set_executable(handle(7), handle(2), 1);
  CHECK(graphs.number(handle(7)) != first);
  CHECK(place_of(graphs, handle(7)) == 22);
  CHECK(graphs.find(first)->kernels.front().place == 11);  // its launches may still be on their way
  graphs.copy(handle(3), handle(2));
  graphs.set_executable(handle(8), handle(3), 1);
  CHECK(place_of(graphs, handle(8)) == 22);
  graphs.forget_executable(handle(7));
  CHECK(graphs.number(handle(7)) == 0);
  // A graph with an additional node, one of which nothing is known, and one whose second capture failed.
  graphs.set_executable(handle(9), handle(2), 2);
  CHECK(graphs.number(handle(9)) == 0);
  graphs.set_executable(handle(8), handle(1), 1);
  CHECK(graphs.number(handle(8)) == 0);
  graphs.set(handle(2), nullptr);
  graphs.set_executable(handle(8), handle(2), 1);
  CHECK(graphs.number(handle(8)) == 0);
  CHECK(graphs.number(nullptr) == 0);
  CHECK(graphs.find(0) == nullptr);
  CHECK(graphs.lost() == 0);
}

TEST_CASE("graphs that are made and destroyed for ever take no more room", "[captured_graphs]") {
  CapturedGraphs graphs;
  set(graphs, handle(500), 500);
  graphs.set_executable(handle(501), handle(500), 1);
  const std::uint16_t kept = graphs.number(handle(501));
  std::set<std::uint16_t> numbers;
  for (std::uint32_t i = 1; i <= 100'000; ++i) {
    const void* graph = handle(1000 + i % 7);
    const void* executable = handle(2000 + i);
    set(graphs, graph, i);
    graphs.set_executable(executable, graph, 1);
    graphs.forget(graph);
    REQUIRE(place_of(graphs, executable) == i);
    const std::uint16_t number = graphs.number(executable);
    REQUIRE(number < CapturedGraphs::kNumbers);
    if (i < CapturedGraphs::kNumbers - 2) REQUIRE(numbers.insert(number).second);
    REQUIRE(number != kept);
    graphs.forget_executable(executable);
  }
  CHECK(graphs.kernels() <= CapturedGraphs::kMaxGone + 1);
  CHECK(place_of(graphs, handle(501)) == 500);
  CHECK(graphs.lost() == 0);
}

TEST_CASE("graphs beyond the limits are counted", "[captured_graphs]") {
  CapturedGraphs graphs;
  graphs.set(handle(1), graph_of(CapturedGraphs::kMaxKernels));
  graphs.set(handle(2), graph_of(3));
  CHECK(graphs.lost() == 3);
  graphs.set_executable(handle(9), handle(2), 3);
  CHECK(graphs.number(handle(9)) == 0);
  graphs.forget(handle(1));
  CHECK(graphs.kernels() == 0);
  for (std::size_t i = 0; i < CapturedGraphs::kMaxGraphs + 2; ++i) set(graphs, handle(10'000 + i), 1);
  CHECK(graphs.lost() == 5);
  for (std::size_t i = 0; i < CapturedGraphs::kMaxGraphs + 4; ++i)
    graphs.set_executable(handle(50'000 + i), handle(10'000), 1);
  CHECK(graphs.lost() == 9);
  CHECK(place_of(graphs, handle(50'000 + CapturedGraphs::kMaxGraphs - 1)) == 1);
}

TEST_CASE("a launch finds its graph's number while others come and go", "[captured_graphs]") {
  CapturedGraphs graphs;
  set(graphs, handle(1), 1);
  graphs.set_executable(handle(5), handle(1), 1);
  const std::uint16_t number = graphs.number(handle(5));
  std::atomic<bool> done{false};
  std::atomic<unsigned> wrong{0};
  std::thread reader([&] {
    while (!done.load()) {
      const std::uint16_t found = graphs.number(handle(5));
      // It may be missing while the table is cleared of forgotten graphs.
      if (found != number && found != 0) ++wrong;
    }
  });
  for (std::uint32_t i = 0; i < 50'000; ++i) {
    graphs.set_executable(handle(100 + i), handle(1), 1);
    graphs.forget_executable(handle(100 + i));
  }
  done = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(graphs.number(handle(5)) == number);
}

TEST_CASE("what a graph's launch is around, and its capture inside", "[captured_graphs]") {
  NameTable names{1024, 1 << 20};
  CodePlaces places{names};
  const auto node = [&](CodeNodeKind kind, std::uint32_t parent, const char* name) {
    return places.node({kind, parent, names.intern(name), 0, 0});
  };
  const std::uint32_t call = node(CodeNodeKind::kOperator, 0, "CompiledFunction");
  const std::uint32_t product = node(CodeNodeKind::kOperator, 0, "aten::mm");
  const std::uint32_t loop = node(CodeNodeKind::kFrame, 0, "loop");
  const std::uint32_t layer = node(CodeNodeKind::kFrame, 0, "layer");
  const std::uint32_t net = node(CodeNodeKind::kModule, 0, "Net");
  const std::uint32_t linear = node(CodeNodeKind::kModule, net, "linear");
  const auto replayed = [&](const CodePlace& captured, const CodePlace& launch) {
    return places.place(places.replayed(places.place(captured), places.place(launch)));
  };
  const CodePlace whole{loop, 0, 0, CodePhase::kOther};
  // A graph of a whole step: the place of its launch adds nothing.
  for (const CodePhase phase : {CodePhase::kForward, CodePhase::kBackward, CodePhase::kOptimizer}) {
    const CodePlace captured{layer, linear, product, phase};
    CHECK(replayed(captured, whole) == captured);
  }
  // A function whose passes are separate graphs.
  const CodePlace captured{layer, linear, product, CodePhase::kForward};
  CodePlace found = replayed(captured, {loop, net, call, CodePhase::kForward});
  CHECK(found.stack == layer);
  CHECK(found.module == linear);
  CHECK(places.node(found.op).parent == call);
  CHECK(places.node(found.op).name == names.intern("aten::mm"));
  CHECK(found.phase == CodePhase::kForward);
  // Operators that were open when the capture began are in both.
  const std::uint32_t inside = places.node({CodeNodeKind::kOperator, call, names.intern("aten::mm"), 0, 0});
  CHECK(replayed({layer, linear, inside, CodePhase::kForward}, {loop, net, call, CodePhase::kForward}).op ==
        inside);
  // Captured without the backward pass in which it is launched.
  found = replayed({layer, 0, product, CodePhase::kForward}, {loop, net, call, CodePhase::kBackward});
  CHECK(found.phase == CodePhase::kBackward);
  CHECK(found.module == net);
  CHECK(found.stack == loop);
  found = replayed({layer, linear, product, CodePhase::kForward}, {loop, net, call, CodePhase::kRecompute});
  CHECK(found.phase == CodePhase::kRecompute);
  CHECK(found.stack == layer);
  found = replayed({layer, linear, product, CodePhase::kBackward}, {loop, net, call, CodePhase::kForward});
  CHECK(found.phase == CodePhase::kBackward);
  // One of the two is unknown.
  const std::uint32_t number = places.place(captured);
  CHECK(places.replayed(number, 0) == number);
  CHECK(places.replayed(0, number) == number);
  CHECK(places.replayed(0, 0) == 0);
}

TEST_CASE("a chain's kernels are told apart by the order in which they run", "[captured_graphs]") {
  Replays run;
  // Node numbers are in arbitrary order.
  const CapturedGraph graph = run.captured({"a", "a", "b", "a"}, true, false);
  run.add(5, graph);
  run.launch(5, {{"a", 40, 1}, {"a", 10, 2}, {"b", 30, 4}, {"a", 20, 8}});
  run.add(5, graph);
  // One kernel's record is missing, and one kernel began early.
  run.launch(5, {{"a", 10, 32}, {"a", 40, 16}, {"b", 30, 64}});
  CHECK(run.lines() == Lines{{1, 17}, {2, 34}, {3, 68}, {4, 8}});
  CHECK(run.times.any_places());
}

TEST_CASE("kernels beside each other are told apart by their nodes' numbers", "[captured_graphs]") {
  SECTION("as they were made") {
    Replays run;
    run.add(5, run.captured({"a", "a", "a"}, false));
    run.launch(5, {{"a", 11, 1}, {"a", 13, 2}, {"a", 12, 4}});
    CHECK(run.lines() == Lines{{1, 1}, {2, 4}, {3, 2}});
  }
  SECTION("unless it is not known which was made first") {
    Replays run;
    run.add(5, run.captured({"a", "a", "a"}, false, false));
    run.launch(5, {{"a", 11, 1}, {"a", 13, 2}, {"a", 12, 4}});
    CHECK(run.lines() == Lines{{0, 7}});
    CHECK_FALSE(run.times.any_places());
  }
  SECTION("or a chain shows that they are numbered otherwise") {
    Replays run;
    run.add(5, run.captured({"a", "a"}, false));
    run.launch(5, {{"a", 11, 1}, {"a", 12, 2}});
    run.add(6, run.captured({"a", "b"}, true));
    run.launch(6, {{"a", 22, 4}, {"b", 21, 8}});
    CHECK(run.lines() == Lines{{0, 3}, {1, 4}, {2, 8}});
  }
  SECTION("or one runs before what it waits for") {
    Replays run;
    CapturedGraph graph = run.captured({"a", "a", "a"}, false);
    graph.waits = {{0, 1}, {0, 2}};
    run.add(5, graph);
    run.launch(5, {{"a", 13, 1}, {"a", 11, 2}, {"a", 12, 4}});
    CHECK(run.lines() == Lines{{0, 7}});
  }
}

TEST_CASE("kernels that are not those that were captured have no place", "[captured_graphs]") {
  Replays run;
  run.add(5, run.captured({"a", "b"}, true));
  run.launch(5, {{"a", 1, 1}, {"c", 2, 2}});
  run.add(6, run.captured({"a", "b"}, true));
  run.launch(6, {{"a", 3, 4}});
  run.launch(6, {{"a", 3, 8}, {"b", 4, 16}, {"b", 5, 32}});
  run.launch(7, {{"a", 6, 64}});
  // All nodes have the same number.
  run.add(8, run.captured({"a", "b"}, true));
  run.launch(8, {{"a", 7, 128}, {"b", 7, 256}});
  CHECK(run.lines() == Lines{{0, 511}});
}

TEST_CASE("a compiled kernel is an operator inside of the compiled function", "[captured_graphs]") {
  NameTable names{1024, 1 << 20};
  CodePlaces places{names};
  const auto node = [&](std::uint32_t parent, const char* name) {
    return places.node({CodeNodeKind::kOperator, parent, names.intern(name), NameTable::kEmpty, 0});
  };
  const auto place_in = [&](std::uint32_t op) { return places.place({1, 2, op, CodePhase::kForward}); };
  const std::uint32_t call = node(0, "CompiledFunction");
  const std::uint32_t place = place_in(call);
  const std::uint32_t inside = places.fused(place, "triton_poi_fused_add_native_layer_norm_2");
  CHECK(inside == place_in(node(call, "triton_poi_fused_add_native_layer_norm")));
  CHECK(places.fused(place, "triton_poi_fused_add_native_layer_norm_13") == inside);
  CHECK(places.fused(place | kIncompletePlace, "triton_poi_fused_add_native_layer_norm_2") ==
        (inside | kIncompletePlace));
  // Kernels of the program itself, and of operators that Inductor leaves to PyTorch.
  CHECK(places.fused(place, "triton_softmax") == place);
  CHECK(places.fused(place, "my_fused_kernel_2") == place);
  const std::uint32_t of_torch = place_in(node(call, "aten::mm"));
  CHECK(places.fused(of_torch, "triton_poi_fused_add_2") == of_torch);
  CHECK(places.fused(0, "triton_poi_fused_add_2") == 0);
  CHECK(places.fused(place_in(0), "triton_poi_fused_add_2") == place_in(0));
}

}  // namespace inject
