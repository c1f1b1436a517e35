// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/pipeline/decode.h"

#include <cupti_activity_deprecated.h>

#include <cstddef>

#include "libinject/analysis/copies.h"

namespace inject {

namespace {

// One binary reads the records of CUPTI 12 and 13: the fields used here have not moved since the oldest
// layout below, and later layouts only append. If a header is newer than these names, its newest layout is
// checked by the same asserts, through the names that it keeps.
#define INJECT_SAME_OFFSET(Old, New, field) static_assert(offsetof(Old, field) == offsetof(New, field))
using Kernel = CUpti_ActivityKernel5;
using KernelNewest = CUpti_ActivityKernel9;
INJECT_SAME_OFFSET(Kernel, KernelNewest, registersPerThread);
INJECT_SAME_OFFSET(Kernel, KernelNewest, start);
INJECT_SAME_OFFSET(Kernel, KernelNewest, end);
INJECT_SAME_OFFSET(Kernel, KernelNewest, deviceId);
INJECT_SAME_OFFSET(Kernel, KernelNewest, streamId);
INJECT_SAME_OFFSET(Kernel, KernelNewest, gridX);
INJECT_SAME_OFFSET(Kernel, KernelNewest, blockZ);
INJECT_SAME_OFFSET(Kernel, KernelNewest, staticSharedMemory);
INJECT_SAME_OFFSET(Kernel, KernelNewest, dynamicSharedMemory);
INJECT_SAME_OFFSET(Kernel, KernelNewest, localMemoryPerThread);
INJECT_SAME_OFFSET(Kernel, KernelNewest, correlationId);
INJECT_SAME_OFFSET(Kernel, KernelNewest, name);
INJECT_SAME_OFFSET(Kernel, KernelNewest, graphNodeId);
INJECT_SAME_OFFSET(Kernel, KernelNewest, graphId);
using Memcpy = CUpti_ActivityMemcpy4;
using MemcpyNewest = CUpti_ActivityMemcpy5;
INJECT_SAME_OFFSET(Memcpy, MemcpyNewest, bytes);
INJECT_SAME_OFFSET(Memcpy, MemcpyNewest, start);
INJECT_SAME_OFFSET(Memcpy, MemcpyNewest, correlationId);
INJECT_SAME_OFFSET(Memcpy, MemcpyNewest, streamId);
using PeerCopy = CUpti_ActivityMemcpyPtoP3;
using Memset = CUpti_ActivityMemset3;
#if CUPTI_API_VERSION >= 130000
INJECT_SAME_OFFSET(Kernel, CUpti_ActivityKernel10, name);
INJECT_SAME_OFFSET(Kernel, CUpti_ActivityKernel10, graphId);
INJECT_SAME_OFFSET(Memcpy, CUpti_ActivityMemcpy6, correlationId);
#endif
INJECT_SAME_OFFSET(PeerCopy, CUpti_ActivityMemcpyPtoP4, correlationId);
INJECT_SAME_OFFSET(Memset, CUpti_ActivityMemset4, correlationId);
INJECT_SAME_OFFSET(Memset, CUpti_ActivityMemset4, memoryKind);
#undef INJECT_SAME_OFFSET

}  // namespace

ActivityKind activity_kind(const CUpti_Activity& record) noexcept {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return ActivityKind::kKernel;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return ActivityKind::kTransfer;
    default:
      return ActivityKind::kOther;
  }
}

KernelActivity decode_kernel(const CUpti_Activity& record) noexcept {
  const auto& from = reinterpret_cast<const Kernel&>(record);
  KernelActivity to;
  to.name = from.name;
  KernelEvent& event = to.event;
  event.start = from.start;
  event.end = from.end;
  event.device = from.deviceId;
  event.context = from.contextId;
  event.stream = from.streamId;
  event.correlation = from.correlationId;
  event.grid = {from.gridX, from.gridY, from.gridZ};
  event.block = {from.blockX, from.blockY, from.blockZ};
  event.registers_per_thread = from.registersPerThread;
  event.static_shared_bytes = static_cast<std::uint32_t>(from.staticSharedMemory);
  event.dynamic_shared_bytes = static_cast<std::uint32_t>(from.dynamicSharedMemory);
  event.local_bytes_per_thread = from.localMemoryPerThread;
  event.graph = from.graphId;
  event.graph_node = from.graphNodeId;
  return to;
}

// The values that stats/ and analysis/ assume in these records.
static_assert(
    kHostToDevice == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD && kDeviceToHost == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH &&
    kHostToArray == CUPTI_ACTIVITY_MEMCPY_KIND_HTOA && kArrayToHost == CUPTI_ACTIVITY_MEMCPY_KIND_ATOH &&
    kArrayToArray == CUPTI_ACTIVITY_MEMCPY_KIND_ATOA && kArrayToDevice == CUPTI_ACTIVITY_MEMCPY_KIND_ATOD &&
    kDeviceToArray == CUPTI_ACTIVITY_MEMCPY_KIND_DTOA && kDeviceToDevice == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD &&
    kPeerToPeer == CUPTI_ACTIVITY_MEMCPY_KIND_PTOP &&
    kPageableMemory == CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE &&
    kPinnedMemory == CUPTI_ACTIVITY_MEMORY_KIND_PINNED);

TransferEvent decode_transfer(const CUpti_Activity& record) noexcept {
  TransferEvent to;
  if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& from = reinterpret_cast<const Memset&>(record);
    to.memset = true;
    to.bytes = from.bytes;
    to.start = from.start;
    to.end = from.end;
    to.device = from.deviceId;
    to.context = from.contextId;
    to.stream = from.streamId;
    to.correlation = from.correlationId;
    to.target_memory = static_cast<std::uint8_t>(from.memoryKind);
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
    const auto& from = reinterpret_cast<const PeerCopy&>(record);
    to.peer = true;
    to.copy_kind = from.copyKind;
    to.source_memory = from.srcKind;
    to.target_memory = from.dstKind;
    to.bytes = from.bytes;
    to.start = from.start;
    to.end = from.end;
    to.device = from.deviceId;
    to.context = from.contextId;
    to.stream = from.streamId;
    to.source_device = from.srcDeviceId;
    to.target_device = from.dstDeviceId;
    to.correlation = from.correlationId;
  } else {
    const auto& from = reinterpret_cast<const Memcpy&>(record);
    to.copy_kind = from.copyKind;
    to.source_memory = from.srcKind;
    to.target_memory = from.dstKind;
    to.bytes = from.bytes;
    to.start = from.start;
    to.end = from.end;
    to.device = from.deviceId;
    to.context = from.contextId;
    to.stream = from.streamId;
    to.correlation = from.correlationId;
  }
  return to;
}

}  // namespace inject
