// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/client.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>

namespace inject::sim {
namespace {

Client* client = nullptr;
std::size_t buffer_size = 0;
std::mutex mutex;

void check(CUptiResult result, const char* what) {
  if (result != CUPTI_SUCCESS)
    throw std::runtime_error(std::string(what) + " failed: " + std::to_string(result));
}

void requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  std::lock_guard lock(mutex);
  ++client->buffers_requested;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, buffer_size));
  *size = buffer_size;
  *max_records = 0;
}

void take(const CUpti_Activity* activity) {
  switch (activity->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& record = *reinterpret_cast<const CUpti_ActivityKernel9*>(activity);
      client->kernels.push_back({record.name, record.start, record.end, record.correlationId, record.deviceId,
                                 record.contextId, record.streamId, record.graphId, record.graphNodeId,
                                 record.gridX, record.blockX});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& record = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(activity);
      client->transfers.push_back({record.kind, record.start, record.end, record.bytes, record.correlationId,
                                   record.streamId, record.copyKind, record.srcKind, record.dstKind});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& record = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(activity);
      client->transfers.push_back({record.kind, record.start, record.end, record.bytes, record.correlationId,
                                   record.streamId, record.copyKind, record.srcKind, record.dstKind});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& record = *reinterpret_cast<const CUpti_ActivityMemset4*>(activity);
      client->transfers.push_back({record.kind, record.start, record.end, record.bytes, record.correlationId,
                                   record.streamId, 0, 0, static_cast<std::uint8_t>(record.memoryKind)});
      break;
    }
    default:
      break;
  }
}

void completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
               std::size_t valid) {
  std::lock_guard lock(mutex);
  ++client->buffers_completed;
  CUpti_Activity* activity = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) take(activity);
  std::size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
  client->dropped += dropped;
  std::free(buffer);
}

void callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
  std::lock_guard lock(mutex);
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API || domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    client->callbacks.push_back({domain, cbid, call.callbackSite == CUPTI_API_ENTER, call.correlationId,
                                 call.functionName, call.symbolName == nullptr ? "" : call.symbolName});
  } else {
    CallbackEvent event{domain, cbid, true, 0, "", ""};
    if (domain == CUPTI_CB_DOMAIN_RESOURCE && cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
      const auto* graph = static_cast<const CUpti_GraphData*>(
          static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
      check(cuptiGetGraphNodeId(graph->node, &event.node), "cuptiGetGraphNodeId");
      check(cuptiGetGraphNodeId(graph->originalNode, &event.original_node), "cuptiGetGraphNodeId");
    }
    client->callbacks.push_back(event);
  }
}

}  // namespace

Client::Client(std::size_t buffer_bytes) {
  client = this;
  buffer_size = buffer_bytes;
}

Client::~Client() {
  cuptiFinalize();
  client = nullptr;
}

void Client::subscribe() {
  check(cuptiSubscribe(&subscriber, callback, nullptr), "cuptiSubscribe");
}

void Client::enable(CUpti_CallbackDomain domain, std::uint32_t cbid) {
  check(cuptiEnableCallback(1, subscriber, domain, cbid), "cuptiEnableCallback");
}

void Client::trace() {
  check(cuptiActivityRegisterCallbacks(requested, completed), "cuptiActivityRegisterCallbacks");
  for (CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                  CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET})
    check(cuptiActivityEnable(kind), "cuptiActivityEnable");
}

void Client::flush(bool forced) {
  check(cuptiActivityFlushAll(forced ? 1 : 0), "cuptiActivityFlushAll");
}

cudaKernel_t test_kernel(const char* mangled_name) {
  static std::map<std::string, char*> stubs;  // an address of its own stands for each host stub
  char*& stub = stubs[mangled_name];
  if (stub == nullptr) {
    stub = new char(0);
    void** binary = __cudaRegisterFatBinary(nullptr);
    __cudaRegisterFunction(binary, stub, stub, mangled_name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(binary);
  }
  cudaKernel_t kernel = nullptr;
  if (__cudaGetKernel(&kernel, stub) != cudaSuccess) throw std::runtime_error("__cudaGetKernel failed");
  return kernel;
}

cudaError_t launch(cudaKernel_t kernel, cudaStream_t stream, unsigned grid, unsigned block) {
  return __cudaLaunchKernel(kernel, dim3(grid), dim3(block), nullptr, 0, stream);
}

}  // namespace inject::sim
