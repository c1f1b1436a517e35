// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Kernels, copies and memsets as words for RecordCoder. `launch` and everything derived from it is left out:
// the drain determines it again.
#pragma once

#include <cstring>

#include "libinject/journal/codec.h"
#include "libinject/model/events.h"
#include "libinject/record/block_pool.h"

namespace inject::recovery {

inline constexpr std::size_t kSlotWords = sizeof(Slot) / 4;
inline constexpr std::size_t kKernelWords = 22;
inline constexpr std::size_t kTransferWords = 15;
using SlotCoder = RecordCoder<kSlotWords>;
using KernelCoder = RecordCoder<kKernelWords>;
using TransferCoder = RecordCoder<kTransferWords>;

inline SlotCoder::Words words_of(const Slot& slot) {
  SlotCoder::Words words;
  std::memcpy(words.data(), slot.bytes, sizeof slot.bytes);
  return words;
}

inline Slot slot_of(const SlotCoder::Words& words) {
  Slot slot;
  std::memcpy(slot.bytes, words.data(), sizeof slot.bytes);
  return slot;
}

inline std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
inline std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}
inline std::uint64_t whole(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}

/// `name`: number of the driver's name for the kernel.
inline KernelCoder::Words words_of(const KernelEvent& e, std::uint32_t name) {
  const auto bits = [](std::int32_t value) { return static_cast<std::uint32_t>(value); };
  return {name,
          low(e.start),
          high(e.start),
          low(e.end),
          high(e.end),
          e.device,
          e.context,
          e.stream,
          e.correlation,
          bits(e.grid[0]),
          bits(e.grid[1]),
          bits(e.grid[2]),
          bits(e.block[0]),
          bits(e.block[1]),
          bits(e.block[2]),
          e.registers_per_thread,
          e.static_shared_bytes,
          e.dynamic_shared_bytes,
          e.local_bytes_per_thread,
          e.graph,
          low(e.graph_node),
          high(e.graph_node)};
}

inline KernelEvent kernel_of(const KernelCoder::Words& w, std::uint32_t& name) {
  const auto number = [](std::uint32_t bits) { return static_cast<std::int32_t>(bits); };
  KernelEvent e;
  name = w[0];
  e.start = whole(w[1], w[2]);
  e.end = whole(w[3], w[4]);
  e.device = w[5];
  e.context = w[6];
  e.stream = w[7];
  e.correlation = w[8];
  e.grid = {number(w[9]), number(w[10]), number(w[11])};
  e.block = {number(w[12]), number(w[13]), number(w[14])};
  e.registers_per_thread = w[15];
  e.static_shared_bytes = w[16];
  e.dynamic_shared_bytes = w[17];
  e.local_bytes_per_thread = w[18];
  e.graph = w[19];
  e.graph_node = whole(w[20], w[21]);
  return e;
}

inline TransferCoder::Words words_of(const TransferEvent& e) {
  return {low(e.start),
          high(e.start),
          low(e.end),
          high(e.end),
          low(e.bytes),
          high(e.bytes),
          e.device,
          e.context,
          e.stream,
          e.correlation,
          e.source_device,
          e.target_device,
          std::uint32_t{e.memset} | std::uint32_t{e.peer} << 1,
          e.copy_kind,
          std::uint32_t{e.source_memory} | std::uint32_t{e.target_memory} << 8};
}

inline TransferEvent transfer_of(const TransferCoder::Words& w) {
  TransferEvent e;
  e.start = whole(w[0], w[1]);
  e.end = whole(w[2], w[3]);
  e.bytes = whole(w[4], w[5]);
  e.device = w[6];
  e.context = w[7];
  e.stream = w[8];
  e.correlation = w[9];
  e.source_device = w[10];
  e.target_device = w[11];
  e.memset = (w[12] & 1) != 0;
  e.peer = (w[12] & 2) != 0;
  e.copy_kind = static_cast<std::uint8_t>(w[13]);
  e.source_memory = static_cast<std::uint8_t>(w[14]);
  e.target_memory = static_cast<std::uint8_t>(w[14] >> 8);
  return e;
}

}  // namespace inject::recovery
