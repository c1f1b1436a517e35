// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Graphs and their nodes, and what cuptiFinalize does to those that it has seen launched.
#include <map>
#include <mutex>

#include "tests/sim/core/device/shared.h"
#include "tests/sim/core/trace.h"

namespace inject::sim {
namespace {

std::uint64_t next_node = 1;
std::uint32_t next_graph = 1;
std::size_t traced_graphs = 0;
bool graphs_broken = false;
std::atomic<CUresult> error_left{CUDA_SUCCESS};

}  // namespace

std::uint32_t next_graph_id() {
  std::lock_guard lock(world());
  return next_graph++;
}

Graph* create_graph() {
  auto* graph = new Graph;
  graph->id = next_graph_id();
  CUpti_GraphData data{};
  data.graph = graph->handle();
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPH_CREATED, current_context_handle(), nullptr, &data);
  return graph;
}

void destroy_graph(Graph* graph) {
  CUpti_GraphData data{};
  data.graph = graph->handle();
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, current_context_handle(), nullptr, &data);
  delete graph;
}

// The caller holds world().
Node* add_node(Graph* graph, CUgraphNodeType type, std::vector<Node*> after) {
  auto node = std::make_unique<Node>();
  node->id = next_node++;
  node->type = type;
  node->graph = graph;
  node->after = std::move(after);
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

void announce_node(Node* node) {
  CUpti_GraphData data{};
  data.graph = node->graph->handle();
  data.node = node->handle();
  data.nodeType = node->type;
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, current_context_handle(), nullptr, &data);
}

Graph* clone_graph(const Graph& graph, std::map<const Node*, Node*>& copies, bool executable) {
  auto* clone = new Graph;
  clone->id = next_graph_id();
  {
    std::lock_guard lock(world());
    for (const auto& node : graph.nodes) {
      Node* copy = add_node(clone, node->type, {});
      std::uint64_t id = copy->id;
      *copy = *node;
      copy->id = id;
      copy->graph = clone;
      copies[node.get()] = copy;
    }
    for (const auto& node : clone->nodes)
      for (Node*& previous : node->after) previous = copies[previous];
  }
  for (const auto& node : graph.nodes) {
    Node* copy = copies[node.get()];
    if (node->child != nullptr) copy->child = clone_graph(*node->child, copies, executable);
    // The driver makes an executable graph's nodes and copies the others' into them: CUPTI tells of both.
    if (executable) announce_node(copy);
    CUpti_GraphData data{};
    data.graph = clone->handle();
    data.originalGraph = const_cast<Graph&>(graph).handle();
    data.node = copy->handle();
    data.originalNode = node->handle();
    data.nodeType = node->type;
    trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, current_context_handle(), nullptr, &data);
  }
  return clone;
}

void internal::note_graph_launch(GraphExec& graph) {
  if (graph.traced || !trace::recording_kernels()) return;
  graph.traced = true;
  ++traced_graphs;
}

void forget_graph(GraphExec& graph) {
  std::lock_guard lock(world());
  if (graph.traced) --traced_graphs;
}

void break_traced_graphs() {
  std::lock_guard lock(world());
  if (traced_graphs > 0) graphs_broken = true;
}

void touch_broken_graphs() {
  std::lock_guard lock(world());
  if (graphs_broken) error_left = CUDA_ERROR_LAUNCH_FAILED;
}

CUresult sticky_error() {
  return error_left.load(std::memory_order_relaxed);
}

}  // namespace inject::sim
