// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Records that are not yet in the journal: in the threads' queues and in CUPTI's buffers.
#include <cupti.h>

#include <cupti_activity.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "libinject/pipeline/decode.h"
#include "libinject/replay/replay.h"

namespace inject::recovery {

namespace {

const CUpti_Activity& activity_of(const std::array<std::uint8_t, 4096>& bytes) {
  return reinterpret_cast<const CUpti_Activity&>(bytes);
}

}  // namespace

void Replay::take_queues() {
  for (const Image::QueueBlock& block : image_.queue_blocks()) {
    const auto taken = taken_.find(block.sequence);
    const BlockPosition from = taken == taken_.end() ? 0 : taken->second;
    if (from >= block.published) continue;
    each_record(block.slots, from, block.published, [&](const Slot& slot) {
      if (slot.kind() == RecordKind::kSign) return;
      if (block.thread < kMaxThreads && take_slot(block.thread, slot)) {
        ++recovered_.queue_records;
      } else {
        ++recovered_.refused;
      }
    });
  }
}

// The size seen by the process, or that in the headers of its CUPTI version. All sizes include the fields
// that are read (cupti/decode).
std::uint32_t Replay::record_size(std::uint32_t kind) const {
  const LiveWords& live = image_.live();
  if (kind < live.record_bytes.size() && live.record_bytes[kind] != 0) return live.record_bytes[kind];
  const bool newest = live.cupti_version >= CUPTI_API_VERSION;
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
#if CUPTI_API_VERSION >= 130000
      if (newest) return sizeof(CUpti_ActivityKernel10);
#endif
      return sizeof(CUpti_ActivityKernel9);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
#if CUPTI_API_VERSION >= 130000
      if (newest) return sizeof(CUpti_ActivityMemcpy6);
#endif
      return sizeof(CUpti_ActivityMemcpy5);
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
      return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    default:
      (void)newest;
      return 0;
  }
}

void Replay::take_buffers() {
  recovered_.unread_bytes += image_.overlapping_bytes();
  for (const Image::Buffer& buffer : image_.buffers()) {
    if (taken_buffers_.count(buffer.sequence) != 0) continue;
    std::span<const std::uint8_t> left = buffer.records;
    while (!left.empty()) {
      const std::size_t size = take_record(left, buffer.generation);
      if (size == 0) break;
      left = left.subspan(size);
    }
    recovered_.unread_bytes += left.size();
  }
}

// Number of kernels, copies and memsets.
std::uint64_t Replay::records_in(std::span<const std::uint8_t> left) const {
  std::uint64_t count = 0;
  for (std::uint32_t kind = 0; left.size() >= sizeof kind; ++count) {
    std::memcpy(&kind, left.data(), sizeof kind);
    const std::uint32_t size = record_size(kind);
    if (size == 0 || size > left.size()) break;
    left = left.subspan(size);
  }
  return count;
}

// The size of the first record, which is copied; 0 if unknown.
std::size_t Replay::copy_record(std::span<const std::uint8_t> left, RecordCopy& copy) const {
  std::uint32_t kind = 0;
  if (left.size() < sizeof kind) return 0;
  std::memcpy(&kind, left.data(), sizeof kind);
  const std::uint32_t size = record_size(kind);
  if (size == 0 || size > left.size() || size > copy.bytes.size()) return 0;
  std::memcpy(copy.bytes.data(), left.data(), size);
  return size;
}

Nanoseconds Replay::our_time(Nanoseconds time) const {
  return time == 0 ? 0 : time - image_.live().clock_ahead;
}

// Start of the first kernel, copy or memset; the largest possible time if there is none.
Nanoseconds Replay::first_in_buffers() const {
  Nanoseconds first = ~Nanoseconds{0};
  for (const Image::Buffer& buffer : image_.buffers()) {
    std::span<const std::uint8_t> left = buffer.records;
    RecordCopy copy;
    for (std::size_t size; (size = copy_record(left, copy)) != 0; left = left.subspan(size)) {
      const ActivityKind kind = activity_kind(activity_of(copy.bytes));
      const Nanoseconds start =
          kind == ActivityKind::kKernel     ? decode_kernel(activity_of(copy.bytes)).event.start
          : kind == ActivityKind::kTransfer ? decode_transfer(activity_of(copy.bytes)).start
                                            : 0;
      if (start != 0) first = std::min(first, our_time(start));
    }
  }
  return first;
}

// The size of the record; 0 if unknown.
std::size_t Replay::take_record(std::span<const std::uint8_t> left, std::uint16_t generation) {
  RecordCopy copy;
  const std::size_t size = copy_record(left, copy);
  if (size == 0) return 0;
  const CUpti_Activity& record = activity_of(copy.bytes);
  const auto ours = [this](Nanoseconds time) { return our_time(time); };
  switch (activity_kind(record)) {
    case ActivityKind::kKernel: {
      KernelActivity kernel = decode_kernel(record);
      kernel.event.start = ours(kernel.event.start);
      kernel.event.end = ours(kernel.event.end);
      // The address of the name in the other process, used here as a number.
      const auto name = pointers_.find(reinterpret_cast<std::uintptr_t>(kernel.name));
      if (name == pointers_.end()) ++recovered_.names_missing;
      if (!note_end(kernel.event.start, kernel.event.end)) break;
      drain_.take(kernel.event, name == pointers_.end() ? kUnknown : kernel_name(name->second), generation);
      ++recovered_.buffer_records;
      break;
    }
    case ActivityKind::kTransfer: {
      TransferEvent transfer = decode_transfer(record);
      transfer.start = ours(transfer.start);
      transfer.end = ours(transfer.end);
      if (!note_end(transfer.start, transfer.end)) break;
      drain_.take(transfer, generation);
      ++recovered_.buffer_records;
      break;
    }
    case ActivityKind::kOther:
      break;
  }
  return size;
}

}  // namespace inject::recovery
