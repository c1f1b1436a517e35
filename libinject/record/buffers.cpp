// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/record/buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "libinject/base/mapping.h"

namespace inject {

namespace {
// Room for some 5,000 kernel records: at 300,000 launches a second, a thread requests one every 16 ms. Small,
// because a closing window waits for the last, partly filled buffer of every thread.
constexpr std::size_t kBufferBytes = 1024 * 1024;
constexpr std::size_t kMinBuffer = 64 * 1024;
constexpr std::size_t kParts = 4;
constexpr std::uint32_t kNone = 0;
}  // namespace

ActivityBuffers::ActivityBuffers(std::size_t total_bytes) noexcept {
  // At least 16 buffers out of a small total: threads hold one each.
  const std::size_t bytes = std::clamp(total_bytes / 16, kMinBuffer, kBufferBytes) & ~std::size_t{4095};
  units_per_buffer_ = bytes / kParts >= kMinBuffer ? kParts : 1;
  unit_bytes_ = bytes / units_per_buffer_ & ~std::size_t{4095};
  units_ = static_cast<std::uint32_t>(std::max<std::size_t>(total_bytes / bytes, 1)) * units_per_buffer_;
  base_ = static_cast<std::uint8_t*>(map_memory(units_ * unit_bytes_));
  states_ = static_cast<State*>(map_memory(units_ * sizeof(State)));
  if (base_ == nullptr || states_ == nullptr) units_ = 0;
  for (std::uint32_t i = units_; i != 0;) {
    i -= units_per_buffer_;
    states_[i].units = units_per_buffer_;
    push(i);
  }
}

ActivityBuffers::~ActivityBuffers() {
  unmap_memory(base_, units_ * unit_bytes_);
  unmap_memory(states_, units_ * sizeof(State));
}

std::span<std::uint8_t> ActivityBuffers::used_first() noexcept {
  constexpr std::size_t kUsedFirst = std::size_t{8} << 20;
  const std::size_t bytes = std::min(total_bytes(), kUsedFirst);
  // At the beginning, until move_to() has reversed the free list.
  const bool moved = marks_.load(std::memory_order_relaxed) != nullptr;
  return {moved ? base_ + total_bytes() - bytes : base_, bytes};
}

void ActivityBuffers::push(std::uint32_t index) noexcept {
  const bool whole = states_[index].units == units_per_buffer_;
  FreeList& list =
      states_[index].moved ? (whole ? free_moved_ : free_moved_parts_) : (whole ? free_ : free_parts_);
  std::uint64_t head = list.load(std::memory_order_relaxed);
  std::uint64_t mine;
  do {
    states_[index].link.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
    mine = (head & 0xFFFF'FFFF'0000'0000u) | (index + 1);
  } while (!list.compare_exchange_weak(head, mine, std::memory_order_release, std::memory_order_relaxed));
}

// Returns the index + 1, or kNone.
std::uint32_t ActivityBuffers::pop(FreeList& list) noexcept {
  std::uint64_t head = list.load(std::memory_order_acquire);
  while (static_cast<std::uint32_t>(head) != kNone) {
    const auto found = static_cast<std::uint32_t>(head);
    const std::uint64_t next =
        ((head >> 32) + 1) << 32 | states_[found - 1].link.load(std::memory_order_relaxed);
    if (list.compare_exchange_weak(head, next, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return found;
    }
  }
  return kNone;
}

std::uint32_t ActivityBuffers::pop_whole() noexcept {
  const std::uint32_t moved = pop(free_moved_);
  return moved != kNone ? moved : pop(free_);
}

std::uint32_t ActivityBuffers::pop_part() noexcept {
  const std::uint32_t moved = pop(free_moved_parts_);
  return moved != kNone ? moved : pop(free_parts_);
}

std::uint32_t ActivityBuffers::split_one() noexcept {
  const std::uint32_t whole = pop_whole();
  if (whole == kNone || units_per_buffer_ == 1) return whole;
  states_[whole - 1].units = 1;
  for (std::uint32_t i = 1; i < units_per_buffer_; ++i) {
    states_[whole - 1 + i].units = 1;
    push(whole - 1 + i);
  }
  return whole;
}

ActivityBuffers::Buffer ActivityBuffers::take(std::uint16_t generation) noexcept {
  const bool plenty = in_use_.load(std::memory_order_relaxed) < units_ / kParts;
  std::uint32_t found = plenty ? pop_whole() : kNone;
  if (found == kNone) found = pop_part();
  if (found == kNone) found = split_one();
  if (found == kNone) {
    refusals_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  State& state = states_[found - 1];
  state.generation = generation;
  if (BufferMark* marks = marks_.load(std::memory_order_acquire); marks != nullptr)
    marks[found - 1].sequence.store(0, std::memory_order_relaxed);  // not complete any more
  state.taken.store(1, std::memory_order_relaxed);
  in_use_.fetch_add(state.units, std::memory_order_relaxed);
  outstanding_.fetch_add(state.units, std::memory_order_acq_rel);
  return {base_ + (found - 1) * unit_bytes_, state.units * unit_bytes_};
}

bool ActivityBuffers::complete(std::uint8_t* buffer, std::size_t valid) noexcept {
  if (buffer < base_ || buffer >= base_ + units_ * unit_bytes_) return false;
  const auto index = static_cast<std::uint32_t>(static_cast<std::size_t>(buffer - base_) / unit_bytes_);
  if (states_[index].taken.exchange(0, std::memory_order_acq_rel) == 0) return false;
  // Once it is in the list, it belongs to the drain thread.
  const std::uint32_t units = states_[index].units;
  states_[index].valid = std::min(valid, units * unit_bytes_);
  states_[index].sequence = 1 + sequence_.fetch_add(1, std::memory_order_relaxed);
  if (BufferMark* marks = marks_.load(std::memory_order_acquire); marks != nullptr) {
    BufferMark& mark = marks[index];
    if (!states_[index].moved) {
      std::memcpy(region_.base + index * unit_bytes_, buffer, states_[index].valid);
      states_[index].copied = true;
    }
    mark.units = units;
    mark.generation = states_[index].generation;
    mark.valid = states_[index].valid;
    mark.sequence.store(states_[index].sequence, std::memory_order_release);
  }
  std::uint32_t head = completed_.load(std::memory_order_relaxed);
  do {
    states_[index].link.store(head, std::memory_order_relaxed);
  } while (!completed_.compare_exchange_weak(head, index + 1, std::memory_order_release,
                                             std::memory_order_relaxed));
  outstanding_.fetch_sub(units, std::memory_order_acq_rel);
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
  BufferMark* marks = marks_.load(std::memory_order_acquire);
  if (marks != nullptr) marks[index].sequence.store(0, std::memory_order_release);
  if (std::exchange(states_[index].copied, false))
    std::memset(region_.base + index * unit_bytes_, 0, states_[index].valid);
  // Clear the whole buffer: an unfinished record may have been written past the valid part. A moved one is
  // zero, and the next one to be taken.
  std::uint8_t* const data = base_ + index * unit_bytes_;
  const std::size_t bytes = states_[index].units * unit_bytes_;
  if (marks == nullptr || states_[index].moved || !move(index))
    std::memset(data, 0, bytes);
  else
    warm_pages(data, bytes);
  handled_.fetch_add(1, std::memory_order_relaxed);
  in_use_.fetch_sub(states_[index].units, std::memory_order_relaxed);
  push(index);
}

bool ActivityBuffers::move(std::uint32_t index) noexcept {
  const std::size_t offset = index * unit_bytes_;
  const std::uint32_t units = states_[index].units;
  if (!region_.map_over(base_ + offset, offset, units * unit_bytes_)) return false;
  for (std::uint32_t i = 0; i < units; ++i) states_[index + i].moved = true;
  return true;
}

// A buffer that is being moved is unavailable. They move one at a time, because threads request buffers in
// the meantime, and as many as there are may already be in use.
bool ActivityBuffers::move_to(const SharedRegion& region, BufferMark* marks) noexcept {
  if (units_ == 0 || marks_.load(std::memory_order_relaxed) != nullptr) return false;
  region_ = region;
  marks_.store(marks, std::memory_order_release);
  for (FreeList* list : {&free_, &free_parts_}) {
    for (std::uint32_t found; (found = pop(*list)) != kNone;) {
      const bool done = move(found - 1);
      push(found - 1);
      if (!done) return false;
    }
  }
  return true;
}

void ActivityBuffers::reclaim_outstanding() noexcept {
  for (std::uint32_t i = 0; i < units_; ++i) {
    if (states_[i].taken.exchange(0, std::memory_order_acq_rel) == 0) continue;
    outstanding_.fetch_sub(states_[i].units, std::memory_order_acq_rel);
    recycle(i);
  }
}

}  // namespace inject
