// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The runtime's calls on graphs.
#include "tests/sim/cudart/arguments.h"
#include "tests/sim/cudart/impl.h"
#include "tests/sim/cudart/registration.h"

namespace inject::sim::rt::impl {

cudaError_t cudaGraphCreate(cudaGraph_t* pGraph, unsigned int flags) {
  return from_driver(drv::cuGraphCreate(pGraph, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return from_driver(drv::cuGraphDestroy(graph));
}

cudaError_t cudaGraphClone(cudaGraph_t* pGraphClone, cudaGraph_t originalGraph) {
  return from_driver(drv::cuGraphClone(pGraphClone, originalGraph));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* numNodes) {
  return from_driver(drv::cuGraphGetNodes(graph, nodes, numNodes));
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaKernelNodeParams* pNodeParams) {
  Kernel* kernel = find_kernel(pNodeParams->func);
  if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  CUDA_KERNEL_NODE_PARAMS node{};
  node.func = reinterpret_cast<CUfunction>(kernel);
  node.gridDimX = pNodeParams->gridDim.x;
  node.gridDimY = pNodeParams->gridDim.y;
  node.gridDimZ = pNodeParams->gridDim.z;
  node.blockDimX = pNodeParams->blockDim.x;
  node.blockDimY = pNodeParams->blockDim.y;
  node.blockDimZ = pNodeParams->blockDim.z;
  node.sharedMemBytes = pNodeParams->sharedMemBytes;
  return from_driver(drv::cuGraphAddKernelNode_v2(pGraphNode, graph, pDependencies, numDependencies, &node));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemsetParams* pMemsetParams) {
  CUDA_MEMSET_NODE_PARAMS node{};
  node.dst = address(pMemsetParams->dst);
  node.pitch = pMemsetParams->pitch;
  node.value = pMemsetParams->value;
  node.elementSize = pMemsetParams->elementSize;
  node.width = pMemsetParams->width;
  node.height = pMemsetParams->height;
  return from_driver(drv::cuGraphAddMemsetNode(pGraphNode, graph, pDependencies, numDependencies, &node,
                                               current_context_handle()));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                  const cudaGraphNode_t* pDependencies, size_t numDependencies) {
  return from_driver(drv::cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies));
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                   const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                   const cudaMemcpy3DParms* pCopyParams) {
  CUDA_MEMCPY3D copy = copy_3d(*pCopyParams);
  return from_driver(drv::cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &copy,
                                               current_context_handle()));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t* pDependencies, size_t numDependencies, void* dst,
                                     const void* src, size_t count, cudaMemcpyKind) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = address(src);
  copy.dstDevice = address(dst);
  copy.WidthInBytes = count;
  copy.Height = copy.Depth = 1;
  return from_driver(drv::cuGraphAddMemcpyNode(pGraphNode, graph, pDependencies, numDependencies, &copy,
                                               current_context_handle()));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                 const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                 const cudaHostNodeParams* pNodeParams) {
  CUDA_HOST_NODE_PARAMS node{};
  node.fn = pNodeParams->fn;
  node.userData = pNodeParams->userData;
  return from_driver(drv::cuGraphAddHostNode(pGraphNode, graph, pDependencies, numDependencies, &node));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* pGraphNode, cudaGraph_t graph,
                                       const cudaGraphNode_t* pDependencies, size_t numDependencies,
                                       cudaGraph_t childGraph) {
  return from_driver(
      drv::cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies, numDependencies, childGraph));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* pType) {
  return from_driver(drv::cuGraphNodeGetType(node, reinterpret_cast<CUgraphNodeType*>(pType)));
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                    unsigned int isEnabled) {
  return from_driver(drv::cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph, unsigned long long flags) {
  return from_driver(drv::cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return from_driver(drv::cuGraphInstantiateWithFlags(pGraphExec, graph, flags));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  return from_driver(drv::cuGraphExecDestroy(graphExec));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                cudaGraphExecUpdateResultInfo* resultInfo) {
  return from_driver(drv::cuGraphExecUpdate_v2(hGraphExec, hGraph,
                                               reinterpret_cast<CUgraphExecUpdateResultInfo*>(resultInfo)));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  return from_driver(drv::cuGraphUpload(graphExec, driver_stream(stream)));
}

cudaError_t cudaGraphLaunch(bool per_thread, cudaGraphExec_t graphExec, cudaStream_t stream) {
  return from_driver(drv::cuGraphLaunch(per_thread, graphExec, driver_stream(stream)));
}

}  // namespace inject::sim::rt::impl
