// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Launches of graphs: their nodes' work, each behind what it depends on.
#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "tests/sim/core/device/shared.h"
#include "tests/sim/core/device/work.h"

namespace inject::sim {
namespace {

using internal::carry_out;
using internal::Destination;

// Nodes in an order that respects their dependencies: by insertion unless edges were added afterwards.
std::vector<Node*> in_order(const Graph& graph) {
  std::vector<Node*> order;
  std::set<const Node*> placed;
  while (order.size() < graph.nodes.size()) {
    std::size_t before = order.size();
    for (const auto& node : graph.nodes) {
      if (placed.count(node.get()) != 0) continue;
      bool ready = std::all_of(node->after.begin(), node->after.end(),
                               [&](const Node* previous) { return placed.count(previous) != 0; });
      if (!ready) continue;
      order.push_back(node.get());
      placed.insert(node.get());
    }
    if (order.size() == before) break;  // a cycle, which instantiation refuses
  }
  return order;
}

// Submits the graph's work behind `roots`; returns the ends of its last nodes.
std::vector<OpRef> launch_graph(const Graph& graph, std::uint32_t graph_id, Stream* stream,
                                const std::vector<OpRef>& roots, Nanoseconds host) {
  std::map<const Node*, std::vector<OpRef>> ends;
  std::set<const Node*> inner;
  for (Node* node : in_order(graph)) {
    Destination to{stream, host, 0, {graph_id, node->id}, {}};
    for (const Node* previous : node->after) {
      inner.insert(previous);
      to.after.insert(to.after.end(), ends[previous].begin(), ends[previous].end());
    }
    if (node->after.empty()) to.after = roots;
    std::vector<OpRef>& node_ends = ends[node];
    switch (node->enabled ? node->type : CU_GRAPH_NODE_TYPE_EMPTY) {
      case CU_GRAPH_NODE_TYPE_KERNEL:
        node_ends = {carry_out(node->kernel, std::move(to))};
        break;
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        node_ends = {carry_out(node->copy, std::move(to))};
        break;
      case CU_GRAPH_NODE_TYPE_MEMSET:
        node_ends = {carry_out(node->set, std::move(to))};
        break;
      case CU_GRAPH_NODE_TYPE_HOST:
        node_ends = {carry_out(node->host, std::move(to))};
        break;
      case CU_GRAPH_NODE_TYPE_GRAPH:
        node_ends = launch_graph(*node->child, graph_id, stream, to.after, host);
        break;
      default:
        node_ends = std::move(to.after);
        break;
    }
  }
  std::vector<OpRef> last;
  for (const auto& node : graph.nodes)
    if (inner.count(node.get()) == 0)
      last.insert(last.end(), ends[node.get()].begin(), ends[node.get()].end());
  return last;
}

}  // namespace

CUresult enqueue(Stream* stream, GraphExec& graph) {
  if (Node* node = internal::capture_node(stream, CU_GRAPH_NODE_TYPE_GRAPH)) {
    std::map<const Node*, Node*> copies;
    node->child = clone_graph(*graph.graph, copies);
    announce_node(node);
    return CUDA_SUCCESS;
  }
  Nanoseconds host = now_ns();
  std::vector<OpRef> roots;
  {
    std::lock_guard lock(world());
    roots = internal::dependencies(*stream, host);
    internal::note_graph_launch(graph);
  }
  std::vector<OpRef> last =
      launch_graph(*graph.graph, graph.id, stream, roots, host + settings().launch_latency);
  if (last.empty()) last = std::move(roots);
  OpRef join = timeline::submit(host, 0, std::move(last));
  std::lock_guard lock(world());
  stream->tail = join;
  return CUDA_SUCCESS;
}

}  // namespace inject::sim
