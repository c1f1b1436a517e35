// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The journal's entries, in the order in which the process wrote them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "libinject/journal/events.h"
#include "libinject/journal/run_state.h"
#include "libinject/model/functions.h"
#include "libinject/replay/replay.h"
#include "libinject/replay/shape_check.h"

namespace inject::recovery {

namespace {

constexpr std::uint32_t kMaxNumber = 0xFFFF'FFFFu;
constexpr std::size_t kMaxNameLength = 16 * 1024;

}  // namespace

bool Replay::replay_block(std::string_view block) {
  Decoder from(block);
  // As at the beginning of a pass of the drain thread.
  drain_.retry_pending();
  while (from.ok() && !from.at_end()) {
    // Any byte; invalid values are rejected there.
    // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange)
    if (!replay_entry(static_cast<Entry>(from.byte()), from)) return false;
  }
  return from.ok();
}

bool Replay::replay_entry(Entry entry, Decoder& from) {
  switch (entry) {
    case Entry::kThread:
      return read_thread(from);
    case Entry::kWindowOpen:
    case Entry::kWindowEnd:
      return read_window(entry, from);
    case Entry::kRangeNode:
      return read_range(from);
    case Entry::kShape:
      return read_shape(from);
    case Entry::kDriverCall:
    case Entry::kKernelName:
    case Entry::kKernelPointer:
      return read_name(entry, from);
    case Entry::kGraphNode:
      return read_graph_node(from);
    case Entry::kGeneration:
      core_->graph_nodes.clear();
      return true;
    case Entry::kRun:
      return read_run(from);
    case Entry::kBuffer:
      return read_buffer(from);
    case Entry::kDrops:
      return read_drops(from);
    case Entry::kDelivered:
      delivered_ = true;
      return true;
    case Entry::kSettleTimes:
    case Entry::kSettle:
    case Entry::kSettled:
      return read_settle(entry, from);
    case Entry::kBoundary:
      return read_boundary(from);
  }
  return false;
}

bool Replay::read_thread(Decoder& from) {
  const auto index = static_cast<std::uint32_t>(from.number(kMaxThreads - 1));
  ThreadInfo info;
  info.tid = from.number();
  info.name = from.text(64);
  if (!from.ok()) return false;
  if (index >= threads_.size()) threads_.resize(index + 1);
  threads_[index] = std::move(info);
  return true;
}

bool Replay::read_window(Entry entry, Decoder& from) {
  const auto number = static_cast<std::uint32_t>(from.number(kMaxNumber));
  Nanoseconds time = from.number();
  if (!is_possible(time)) {
    ++recovered_.refused;
    time = 0;
  }
  const std::string_view reason =
      entry == Entry::kWindowOpen ? from.text(kMaxNameLength) : std::string_view();
  if (!from.ok()) return false;
  return entry == Entry::kWindowOpen ? windows_.add(number, time, reason) : windows_.add_end(number, time);
}

bool Replay::read_range(Decoder& from) {
  const auto id = static_cast<std::uint32_t>(from.number(kMaxNumber));
  const auto parent = static_cast<std::uint32_t>(from.number(kMaxNumber));
  const auto style = static_cast<RangeStyle>(from.number(static_cast<std::uint64_t>(RangeStyle::kStartEnd)));
  const std::string_view name = from.text(kMaxNameLength);
  const std::string_view domain = from.text(kMaxNameLength);
  if (!from.ok() || id == 0 || ranges_.size() >= kMaxIds || (parent != 0 && ranges_.count(parent) == 0))
    return false;
  const std::uint32_t above = parent == 0 ? 0 : ranges_[parent];
  ranges_[id] = core_->ranges.child(above, core_->names.intern(name), core_->names.intern(domain), style);
  return true;
}

bool Replay::read_shape(Decoder& from) {
  const auto id = static_cast<std::uint32_t>(from.number(kMaxNumber));
  CallShape::Words words;
  for (std::uint64_t& word : words) word = from.number();
  CallShape shape;
  std::memcpy(static_cast<void*>(&shape), words.data(), sizeof shape);
  if (!from.ok() || shapes_.size() >= kMaxIds || !is_shape(shape)) return false;
  shapes_[id] = core_->shapes.intern(shape);
  return true;
}

bool Replay::read_name(Entry entry, Decoder& from) {
  const std::uint64_t id = from.number();
  if (entry == Entry::kKernelPointer) {
    const auto name = static_cast<std::uint32_t>(from.number(kMaxNumber));
    if (!from.ok() || pointers_.size() >= kMaxIds) return false;
    pointers_[id] = name;
    return true;
  }
  const std::string name(from.text(kMaxNameLength));
  if (!from.ok()) return false;
  if (entry == Entry::kKernelName) {
    if (id > kMaxNumber || kernel_names_.size() >= kMaxIds) return false;
    kernel_names_[static_cast<std::uint32_t>(id)] = name;
    return true;
  }
  if (id > 0xFFFFu || (id & kDriverFunction) == 0 || (id & 0x7FFF) >= kDriverFunctions) return false;
  set_driver_function_name(static_cast<FunctionId>(id), name.c_str());
  return true;
}

bool Replay::read_graph_node(Decoder& from) {
  const std::uint64_t node = from.number();
  CapturedCall call;
  call.chain = from.number();
  call.thread = static_cast<std::uint32_t>(from.number(kMaxThreads - 1));
  call.owner = static_cast<std::uint32_t>(from.number(kMaxNumber));
  call.shape = shape_of(static_cast<std::uint32_t>(from.number(kMaxNumber)));
  call.function = static_cast<FunctionId>(from.number(0xFFFFu));
  for (unsigned level = 0; level < 4; ++level)
    if (chain_at(call.chain, level) != kNoFunction && !is_function(chain_at(call.chain, level))) return false;
  if (!from.ok() || (call.function != kNoFunction && !is_function(call.function))) return false;
  core_->graph_nodes.add(node, call);
  return true;
}

bool Replay::read_run(Decoder& from) {
  const std::uint64_t sequence = from.number();
  const auto to = static_cast<BlockPosition>(from.number(Block::kFull));
  const auto thread = static_cast<std::uint32_t>(from.number(kMaxThreads - 1));
  const std::uint64_t count = from.number(Block::kSlots);
  SlotCoder coder;
  for (std::uint64_t i = 0; i < count && from.ok(); ++i) {
    const Slot slot = slot_of(coder.decode(from));
    if (from.ok() && !take_slot(thread, slot)) ++recovered_.refused;
  }
  if (from.ok()) taken_[sequence] = std::max(taken_[sequence], to);
  return from.ok();
}

bool Replay::read_buffer(Decoder& from) {
  const std::uint64_t sequence = from.number();
  const auto generation = static_cast<std::uint16_t>(from.number(0xFFFFu));
  // At least two bytes per event.
  const std::uint64_t count = from.number(from.left());
  KernelCoder kernels;
  TransferCoder transfers;
  for (std::uint64_t i = 0; i < count && from.ok(); ++i) {
    if (from.number(1) == 0) {
      std::uint32_t name = 0;
      const KernelEvent event = kernel_of(kernels.decode(from), name);
      if (!from.ok()) break;
      if (note_end(event.start, event.end)) drain_.take(event, kernel_name(name), generation);
    } else {
      const TransferEvent event = transfer_of(transfers.decode(from));
      if (!from.ok()) break;
      if (note_end(event.start, event.end)) drain_.take(event, generation);
    }
  }
  taken_buffers_.insert(sequence);
  return from.ok();
}

bool Replay::read_drops(Decoder& from) {
  const auto window = static_cast<std::uint32_t>(from.number(windows_.known()));
  HostDrops drops;
  drops.calls = from.number();
  drops.ranges = from.number();
  if (!from.ok()) return false;
  drops_.calls += drops.calls;
  drops_.ranges += drops.ranges;
  windows_.open_until(window, 0);
  drain_.take_drops(window, drops);
  return true;
}

bool Replay::read_settle(Entry entry, Decoder& from) {
  const auto window = static_cast<std::uint32_t>(from.number(windows_.known()));
  const std::uint64_t first = from.number();
  const std::uint64_t second = entry == Entry::kSettled ? from.number() : 0;
  if (!from.ok()) return false;
  // As the process wrote them, in pairs. Others would have the same windows settled again and again.
  if (entry == Entry::kSettle && std::exchange(settling_, window) == window) return false;
  if (entry == Entry::kSettled && std::exchange(settling_, std::nullopt).value_or(0) > window) return false;
  windows_.open_until(window, 0);
  windows_.end_until(window);
  if (entry == Entry::kSettleTimes) drain_.settle_times(first);
  if (entry == Entry::kSettle) drain_.settle(first, std::exchange(delivered_, false), window);
  if (entry == Entry::kSettled) window_log_.settle(first, second, window);
  return true;
}

bool Replay::read_boundary(Decoder& from) {
  IterationBoundary boundary;
  boundary.number = from.number();
  boundary.begin = from.number();
  boundary.window = static_cast<std::uint32_t>(from.number(windows_.known()));
  boundary.window_before = static_cast<std::uint32_t>(from.number(windows_.known()));
  boundary.label =
      static_cast<IterationLabel>(from.number(static_cast<std::uint64_t>(IterationLabel::kCheckpoint)));
  boundary.followed = from.number(1) != 0;
  const std::uint64_t flags = from.number(7);
  boundary.unprofiled_before = (flags & 1) != 0;
  boundary.anew = (flags & 2) != 0;
  if ((flags & 4) != 0) {
    boundary.units_before = std::bit_cast<double>(from.number());
    if (!std::isfinite(*boundary.units_before) || *boundary.units_before < 0) return false;
  }
  if (from.ok()) drain_.iteration_boundary(boundary);
  return from.ok();
}

}  // namespace inject::recovery
