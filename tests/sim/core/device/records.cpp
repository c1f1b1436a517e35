// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/sim/core/device/records.h"

#include <map>
#include <mutex>

namespace inject::sim::internal {
namespace {

CUpti_ActivityMemoryKind memory_kind(MemoryType type) {
  switch (type) {
    case MemoryType::kPageable:
      return CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    case MemoryType::kPinned:
      return CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
    case MemoryType::kDevice:
      return CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    case MemoryType::kManaged:
      return CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
    case MemoryType::kArray:
      return CUPTI_ACTIVITY_MEMORY_KIND_ARRAY;
  }
  return CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN;
}

// A graph's node has run again: records of it that wait for that get its end. One more may be among them.
void overwrite_ends(const trace::ActivityRef& activity, std::uint64_t node, const OpRef& op) {
  static std::mutex mutex;
  static auto& waiting = *new std::map<std::uint64_t, trace::ActivityRef>;
  const std::lock_guard lock(mutex);
  if (const auto found = waiting.find(node); found != waiting.end()) {
    trace::overwrite_end(found->second, op);
    waiting.erase(found);
  }
  if (activity == nullptr || !Faults::take(faults().overwritten_end)) return;
  activity->overwritten = true;
  waiting.emplace(node, activity);
}

// What the records of all kinds of work have.
template <class Record>
void fill(Record& record, const trace::ActivityRef& activity, const Stream& stream, GraphPlace graph) {
  record.kind = activity->kind;
  record.deviceId = static_cast<std::uint32_t>(stream.context->device);
  record.contextId = stream.context->uid;
  record.streamId = stream.id;
  record.correlationId = trace::current_correlation();
  record.graphNodeId = graph.node;
  record.graphId = graph.graph;
}

}  // namespace

trace::ActivityRef reserve_kernel() {
  if (trace::ActivityRef activity = trace::reserve(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)) return activity;
  return trace::reserve(CUPTI_ACTIVITY_KIND_KERNEL);
}

trace::ActivityRef reserve_copy(const CopyClass& copy) {
  return trace::reserve(copy.peer ? CUPTI_ACTIVITY_KIND_MEMCPY2 : CUPTI_ACTIVITY_KIND_MEMCPY);
}

trace::ActivityRef reserve_set() {
  return trace::reserve(CUPTI_ACTIVITY_KIND_MEMSET);
}

void commit_kernel(const trace::ActivityRef& activity, const KernelWork& work, const Stream& stream,
                   GraphPlace graph, const OpRef& op) {
  if (graph.node != 0) overwrite_ends(activity, graph.node, op);
  if (activity == nullptr) return;
  CUpti_ActivityKernel10 record{};
  fill(record, activity, stream, graph);
  record.registersPerThread = 32;
  record.gridX = work.grid.x;
  record.gridY = work.grid.y;
  record.gridZ = work.grid.z;
  record.blockX = work.block.x;
  record.blockY = work.block.y;
  record.blockZ = work.block.z;
  record.dynamicSharedMemory = static_cast<std::int32_t>(work.shared_bytes);
  record.gridId = static_cast<std::int64_t>(record.correlationId);
  record.name = work.kernel->name;
  record.launchType = CUPTI_ACTIVITY_LAUNCH_TYPE_REGULAR;
  record.clusterX = record.clusterY = record.clusterZ = 0;
  trace::commit(activity, record, op);
}

void commit_copy(const trace::ActivityRef& activity, const CopyWork& work, const CopyClass& copy,
                 const Stream& stream, GraphPlace graph, const OpRef& op) {
  if (activity == nullptr) return;
  auto fill_copy = [&](auto& record) {
    fill(record, activity, stream, graph);
    record.copyKind = static_cast<std::uint8_t>(copy.kind);
    record.srcKind = static_cast<std::uint8_t>(memory_kind(copy.source.type));
    record.dstKind = static_cast<std::uint8_t>(memory_kind(copy.target.type));
    record.flags = work.async ? CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
    record.bytes = work.bytes();
  };
  if (copy.peer) {
    CUpti_ActivityMemcpyPtoP4 record{};
    fill_copy(record);
    record.srcDeviceId = static_cast<std::uint32_t>(copy.source.device);
    record.srcContextId = copy.source.context->uid;
    record.dstDeviceId = static_cast<std::uint32_t>(copy.target.device);
    record.dstContextId = copy.target.context->uid;
    trace::commit(activity, record, op);
    return;
  }
  CUpti_ActivityMemcpy6 record{};
  fill_copy(record);
  record.copyCount = 1;
  trace::commit(activity, record, op);
}

void commit_set(const trace::ActivityRef& activity, const SetWork& work, const Stream& stream,
                GraphPlace graph, const OpRef& op) {
  if (activity == nullptr) return;
  CUpti_ActivityMemset4 record{};
  fill(record, activity, stream, graph);
  record.value = work.value;
  record.bytes = work.bytes();
  record.flags = work.async ? CUPTI_ACTIVITY_FLAG_MEMSET_ASYNC : CUPTI_ACTIVITY_FLAG_NONE;
  record.memoryKind = static_cast<std::uint16_t>(memory_kind(place_of(work.target).type));
  trace::commit(activity, record, op);
}

}  // namespace inject::sim::internal
