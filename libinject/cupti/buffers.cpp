// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/cupti/buffers.h"

#include <algorithm>
#include <cstring>

#include "libinject/record/mapping.h"

namespace inject {

namespace {
// Room for some 5,000 kernel records: at 300,000 launches a second a thread asks for one every 16 ms. Small,
// because the last, partly filled buffer of every thread is what a closing window waits for.
constexpr std::size_t kBufferBytes = 1024 * 1024;
constexpr std::size_t kSmallestBuffer = 64 * 1024;
}  // namespace

ActivityBuffers::ActivityBuffers(std::size_t total_bytes) noexcept {
  // At least 16 buffers out of a small total: threads hold one each.
  buffer_bytes_ = std::clamp(total_bytes / 16, kSmallestBuffer, kBufferBytes) & ~std::size_t{4095};
  count_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(total_bytes / buffer_bytes_, 1, kMost));
  base_ = static_cast<std::uint8_t*>(map_memory(count_ * buffer_bytes_));
  if (base_ == nullptr) count_ = 0;
  for (std::uint32_t i = count_; i-- > 0;) push_free(i);
}

ActivityBuffers::~ActivityBuffers() {
  unmap_memory(base_, count_ * buffer_bytes_);
}

void ActivityBuffers::push_free(std::uint32_t index) noexcept {
  std::uint64_t head = free_.load(std::memory_order_relaxed);
  std::uint64_t mine;
  do {
    states_[index].link.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    mine = (head & 0xFFFF'FFFF'0000'0000u) | (index + 1);
  } while (!free_.compare_exchange_weak(head, mine, std::memory_order_release, std::memory_order_relaxed));
}

std::uint8_t* ActivityBuffers::take(std::uint16_t generation) noexcept {
  std::uint64_t head = free_.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(head) != 0) {
    const std::uint32_t index = static_cast<std::uint32_t>(head) - 1;
    const std::uint64_t next = ((head >> 32) + 1) << 32 | states_[index].link.load(std::memory_order_relaxed);
    if (free_.compare_exchange_weak(head, next, std::memory_order_acq_rel, std::memory_order_acquire)) {
      states_[index].generation = generation;
      states_[index].taken.store(1, std::memory_order_relaxed);
      outstanding_.fetch_add(1, std::memory_order_acq_rel);
      return base_ + index * buffer_bytes_;
    }
  }
  refusals_.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

bool ActivityBuffers::complete(std::uint8_t* buffer, std::size_t valid) noexcept {
  if (buffer < base_ || buffer >= base_ + count_ * buffer_bytes_) return false;
  const auto index = static_cast<std::uint32_t>(static_cast<std::size_t>(buffer - base_) / buffer_bytes_);
  if (states_[index].taken.exchange(0, std::memory_order_acq_rel) == 0) return false;
  states_[index].valid = std::min(valid, buffer_bytes_);
  std::uint32_t head = completed_.load(std::memory_order_relaxed);
  do {
    states_[index].link.store(head, std::memory_order_relaxed);
  } while (!completed_.compare_exchange_weak(head, index + 1, std::memory_order_release,
                                             std::memory_order_relaxed));
  outstanding_.fetch_sub(1, std::memory_order_acq_rel);
  return true;
}

std::uint32_t ActivityBuffers::reversed(std::uint32_t chain) noexcept {
  std::uint32_t result = 0;
  while (chain != 0) {
    const std::uint32_t next = states_[chain - 1].link.load(std::memory_order_relaxed);
    states_[chain - 1].link.store(result, std::memory_order_relaxed);
    result = chain;
    chain = next;
  }
  return result;
}

void ActivityBuffers::recycle(std::uint32_t index) noexcept {
  // The whole buffer: an unfinished record may have been written past the valid part.
  std::memset(base_ + index * buffer_bytes_, 0, buffer_bytes_);
  handled_.fetch_add(1, std::memory_order_relaxed);
  push_free(index);
}

void ActivityBuffers::reclaim_outstanding() noexcept {
  for (std::uint32_t i = 0; i < count_; ++i) {
    if (states_[i].taken.exchange(0, std::memory_order_acq_rel) == 0) continue;
    outstanding_.fetch_sub(1, std::memory_order_acq_rel);
    recycle(i);
  }
}

}  // namespace inject
