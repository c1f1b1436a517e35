// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver's calls on graphs.
#include <algorithm>
#include <map>
#include <mutex>

#include "tests/sim/core/driver/arguments.h"
#include "tests/sim/core/driver/impl.h"
#include "tests/sim/core/trace.h"

namespace inject::sim::drv::impl {
namespace {

Graph* graph_of(CUgraph handle) {
  return reinterpret_cast<Graph*>(handle);
}

GraphExec* exec_of(CUgraphExec handle) {
  return reinterpret_cast<GraphExec*>(handle);
}

// `fill`: gives the new node its work.
template <class Fill>
CUresult add_graph_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                        CUgraphNodeType type, Fill&& fill) {
  if (out == nullptr || graph == nullptr || (count != 0 && after == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> dependencies;
  dependencies.reserve(count);
  for (std::size_t i = 0; i < count; ++i) dependencies.push_back(reinterpret_cast<Node*>(after[i]));
  Node* node = nullptr;
  {
    std::lock_guard lock(world());
    node = add_node(graph_of(graph), type, std::move(dependencies));
    *out = node->handle();
  }
  fill(*node);
  announce_node(node);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuGraphCreate(CUgraph* phGraph, unsigned int) {
  *phGraph = create_graph()->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph hGraph) {
  if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  destroy_graph(graph_of(hGraph));
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  if (originalGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::map<const Node*, Node*> copies;
  *phGraphClone = clone_graph(*graph_of(originalGraph), copies)->handle();
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  if (hGraph == nullptr || numNodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Graph& graph = *graph_of(hGraph);
  if (nodes != nullptr)
    for (std::size_t i = 0; i < std::min(*numNodes, graph.nodes.size()); ++i)
      nodes[i] = graph.nodes[i]->handle();
  *numNodes = nodes != nullptr ? std::min(*numNodes, graph.nodes.size()) : graph.nodes.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                 size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return add_graph_node(
      phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL, [&](Node& node) {
        void* kernel = nodeParams->func != nullptr ? static_cast<void*>(nodeParams->func)
                                                   : static_cast<void*>(nodeParams->kern);
        node.kernel = {static_cast<Kernel*>(kernel),
                       extent(nodeParams->gridDimX, nodeParams->gridDimY, nodeParams->gridDimZ),
                       extent(nodeParams->blockDimX, nodeParams->blockDimY, nodeParams->blockDimZ),
                       nodeParams->sharedMemBytes};
      });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMCPY3D* copyParams, CUcontext) {
  return add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY,
                        [&](Node& node) { node.copy = copy_work(*copyParams); });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                  size_t numDependencies, CUgraph childGraph) {
  if (childGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH,
                        [&](Node& node) {
                          std::map<const Node*, Node*> copies;
                          node.child = clone_graph(*graph_of(childGraph), copies);
                        });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                              size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS* memsetParams,
                              CUcontext) {
  return add_graph_node(
      phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET, [&](Node& node) {
        node.set =
            set_work(memsetParams->dst, memsetParams->value, memsetParams->elementSize, memsetParams->width);
        node.set.height = memsetParams->height;
        node.set.pitch = memsetParams->pitch;
      });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                             size_t numDependencies) {
  return add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY,
                        [](Node&) {});
}

CUresult cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                            size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return add_graph_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST,
                        [&](Node& node) {
                          node.host = {nodeParams->fn, nodeParams->userData};
                        });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  if (hNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = reinterpret_cast<Node*>(hNode)->type;
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  if (hNode == nullptr || numDependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<Node*>& after = reinterpret_cast<Node*>(hNode)->after;
  if (dependencies == nullptr) {
    *numDependencies = after.size();
    return CUDA_SUCCESS;
  }
  *numDependencies = std::min(*numDependencies, after.size());
  for (std::size_t i = 0; i < *numDependencies; ++i) {
    dependencies[i] = after[i]->handle();
    if (edgeData != nullptr) edgeData[i] = {};
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const Node* node = reinterpret_cast<const Node*>(hNode);
  if (node == nullptr || node->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
  const auto number = [](std::int32_t value) { return static_cast<unsigned>(value); };
  *nodeParams = {};
  nodeParams->func = reinterpret_cast<CUfunction>(node->kernel.kernel);
  nodeParams->gridDimX = number(node->kernel.grid.x);
  nodeParams->gridDimY = number(node->kernel.grid.y);
  nodeParams->gridDimZ = number(node->kernel.grid.z);
  nodeParams->blockDimX = number(node->kernel.block.x);
  nodeParams->blockDimY = number(node->kernel.block.y);
  nodeParams->blockDimZ = number(node->kernel.block.z);
  nodeParams->sharedMemBytes = node->kernel.shared_bytes;
  return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  const Node* node = reinterpret_cast<const Node*>(hNode);
  if (node == nullptr || node->child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = node->child->handle();
  return CUDA_SUCCESS;
}

// `hNode` is a node of the graph that was instantiated; its copy is in the same place.
CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  if (hGraphExec == nullptr || hNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& original = reinterpret_cast<Node*>(hNode)->graph->nodes;
  const auto& copies = exec_of(hGraphExec)->graph->nodes;
  for (std::size_t i = 0; i < std::min(original.size(), copies.size()); ++i)
    if (original[i]->handle() == hNode) copies[i]->enabled = isEnabled != 0;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph, unsigned long long) {
  if (hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto* exec = new GraphExec;
  exec->id = next_graph_id();
  exec->context = current_context();
  std::map<const Node*, Node*> copies;
  exec->graph = clone_graph(*graph_of(hGraph), copies, true);
  *phGraphExec = reinterpret_cast<CUgraphExec>(exec);
  CUpti_GraphData data{};
  data.graph = hGraph;
  data.graphExec = *phGraphExec;
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, current_context_handle(), nullptr, &data);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  if (hGraphExec == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUpti_GraphData data{};
  data.graphExec = hGraphExec;
  trace::fire_resource(CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING, current_context_handle(), nullptr,
                       &data);
  forget_graph(*exec_of(hGraphExec));
  delete exec_of(hGraphExec)->graph;
  delete exec_of(hGraphExec);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  if (hGraphExec == nullptr || hGraph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphExec& exec = *exec_of(hGraphExec);
  touch_broken_graphs();
  bool alike = exec.graph->nodes.size() == graph_of(hGraph)->nodes.size();
  if (resultInfo != nullptr)
    *resultInfo = {alike ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
                   nullptr, nullptr};
  if (!alike) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  std::map<const Node*, Node*> copies;
  Graph* fresh = clone_graph(*graph_of(hGraph), copies);
  std::swap(exec.graph, fresh);
  delete fresh;
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream) {
  return hGraphExec != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(bool per_thread, CUgraphExec hGraphExec, CUstream hStream) {
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Stream* stream = find_stream(hStream, per_thread);
  if (hGraphExec == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(stream, *exec_of(hGraphExec));
}

}  // namespace inject::sim::drv::impl
