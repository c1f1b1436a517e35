// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/journal/journal.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "libinject/base/clock.h"
#include "libinject/model/code_place.h"
#include "libinject/model/functions.h"

namespace inject::recovery {

namespace {

/// Returns true the first time.
bool mark(std::vector<bool>& noted, std::size_t id) {
  if (id >= noted.size()) noted.resize(std::max(id + 1, 2 * noted.size()));
  if (noted[id]) return false;
  noted[id] = true;
  return true;
}

// Kernels have few names, and as many pointers; a driver that makes a new one for each launch must not fill
// the memory.
constexpr std::size_t kMaxPointers = 1u << 17;
constexpr std::size_t kMaxNodes = 1u << 18;

}  // namespace

void Journal::start(std::uint8_t* region, std::size_t bytes, Live& live) {
  at_ = resident_ = region;
  room_ = bytes;
  live_ = &live;
}

void Journal::count_beyond(std::uint64_t submissions, std::uint64_t records) {
  live_->beyond_submissions.fetch_add(submissions, std::memory_order_relaxed);
  live_->beyond_records.fetch_add(records, std::memory_order_relaxed);
}

void Journal::note_thread(std::uint32_t thread) {
  if (threads_.count(thread) == 0) put_thread(thread, core_.threads.thread_name(thread));
}

void Journal::put_thread(std::uint32_t thread, const std::string& name) {
  threads_[thread] = name;
  notes_.entry(Entry::kThread);
  notes_.number(thread);
  notes_.number(static_cast<std::uint64_t>(core_.threads.tid(thread)));
  notes_.text(name);
}

void Journal::renew_thread_names() {
  constexpr std::size_t kMax = 256;  // one system call each
  if (!running() || full_ || threads_.size() > kMax) return;
  for (auto& [thread, known] : threads_) {
    const std::string name = core_.threads.thread_name(thread);
    if (name != known) put_thread(thread, name);
  }
}

void Journal::note_windows() {
  const std::vector<WindowInfo> windows = windows_.from(first_open_);
  for (const WindowInfo& window : windows) {
    if (window.number > noted_windows_) {
      notes_.entry(Entry::kWindowOpen);
      notes_.number(window.number);
      notes_.number(window.start);
      notes_.text(window.reason);
      noted_windows_ = window.number;
    }
    if (window.state == WindowState::kOpen || window.number < first_open_) continue;
    notes_.entry(Entry::kWindowEnd);
    notes_.number(window.number);
    notes_.number(window.end);  // 0: its times are unknown
    ended_ = window.number;
    first_open_ = window.number + 1;
  }
}

void Journal::note_range(std::uint32_t id) {
  // A program that pushes and never pops nests ranges by the hundred thousand.
  range_chain_.clear();
  for (; id != 0 && mark(ranges_, id); id = core_.ranges.node(id).parent) range_chain_.push_back(id);
  for (; !range_chain_.empty(); range_chain_.pop_back()) {
    const RangeTree::Node node = core_.ranges.node(range_chain_.back());
    notes_.entry(Entry::kRangeNode);
    notes_.number(range_chain_.back());
    notes_.number(node.parent);
    notes_.number(static_cast<std::uint64_t>(node.style));
    notes_.text(core_.names.name(node.name));
    notes_.text(core_.names.name(node.domain));
  }
}

void Journal::note_shape(std::uint32_t shape) {
  if (shape <= ShapeTable::kOther || !mark(shapes_, shape)) return;
  notes_.entry(Entry::kShape);
  notes_.number(shape);
  const CallShape found = core_.shapes.shape(shape);
  for (const std::uint64_t word : found.words()) notes_.number(word);
}

void Journal::note_driver_call(FunctionId function) {
  if ((function & kDriverFunction) == 0 || !mark(driver_calls_, function & ~kDriverFunction & 0xFFFFu))
    return;
  notes_.entry(Entry::kDriverCall);
  notes_.number(function);
  notes_.text(function_name(function));
}

void Journal::note_call(const CallRecord& record) {
  note_driver_call(record.function);
  for (unsigned level = 0; level < chain_depth(record.chain); ++level)
    note_driver_call(chain_at(record.chain, level));
  // While launches are named, it is their place, which is meaningless in other processes.
  if (!is_naming(record.window)) note_range(record.range);
  note_shape(record.shape);
}

void Journal::take_run(std::uint32_t thread, const Block& block, BlockPosition from, BlockPosition to,
                       bool done) {
  if (!running()) return;
  std::uint64_t count = 0;
  std::uint64_t submissions = 0;
  SlotCoder coder;
  slots_.clear();
  each_record(block.slots, from, to, [&](const Slot& slot) {
    if (slot.kind() == RecordKind::kSign || slot.kind() == RecordKind::kNone) return;
    ++count;
    if (slot.kind() == RecordKind::kCall) {
      const auto record = slot.as<CallRecord>();
      if (record.window != 0) ++calls_;
      if (record.window != 0 && record.correlation != 0) ++submissions;
      if (!full_) note_call(record);
    } else if (slot.kind() == RecordKind::kShortCalls) {
      calls_ += slot.bytes[offsetof(ShortCallsRecord, count)];
    } else if (slot.kind() == RecordKind::kRange && !full_) {
      const auto record = slot.as<RangeRecord>();
      note_range(record.node);
    }
    if (!full_) coder.encode(slots_, words_of(slot));
  });
  if (full_) {
    count_beyond(submissions, 0);
    return;
  }
  if (count != 0) {
    note_thread(thread);
    submissions_ += submissions;
    body_.entry(Entry::kRun);
    body_.number(block.sequence.load(std::memory_order_relaxed));
    body_.number(to);
    body_.number(thread);
    body_.number(count);
    body_.raw(slots_.bytes());
  }
  if (done) commit();
}

void Journal::begin_buffer(std::uint64_t sequence, std::uint16_t generation) {
  if (!running()) return;
  buffer_sequence_ = sequence;
  buffer_generation_ = generation;
  buffer_events_ = 0;
  events_.clear();
  kernels_ = {};
  transfers_ = {};
}

void Journal::note_kernel_name(const char* pointer, std::uint32_t name) {
  if (mark(kernel_names_, name)) {
    notes_.entry(Entry::kKernelName);
    notes_.number(name);
    notes_.text(core_.mangled.name(name));
  }
  if (pointer == nullptr) return;
  const auto known = pointers_.find(pointer);
  if (known != pointers_.end() ? known->second == name : pointers_.size() >= kMaxPointers) return;
  pointers_[pointer] = name;
  notes_.entry(Entry::kKernelPointer);
  notes_.number(reinterpret_cast<std::uintptr_t>(pointer));
  notes_.number(name);
}

void Journal::note_graph_node(std::uint64_t node) {
  if (node == 0) return;
  if (generation_ != buffer_generation_) {
    generation_ = buffer_generation_;
    nodes_.clear();
    notes_.entry(Entry::kGeneration);
  }
  CapturedCall call;
  if (nodes_.size() >= kMaxNodes || nodes_.count(node) != 0 || !core_.graph_nodes.find(node, call)) return;
  nodes_.insert(node);
  note_driver_call(call.function);
  for (unsigned level = 0; level < chain_depth(call.chain); ++level)
    note_driver_call(chain_at(call.chain, level));
  note_shape(call.shape);
  notes_.entry(Entry::kGraphNode);
  notes_.number(node);
  notes_.number(call.chain);
  notes_.number(call.thread);
  notes_.number(call.owner);
  notes_.number(call.shape);
  notes_.number(call.function);
}

void Journal::take(const KernelEvent& event, const char* pointer, std::uint32_t name) {
  if (!running()) return;
  ++buffer_events_;
  if (full_) return;
  note_kernel_name(pointer, name);
  note_graph_node(event.graph_node);
  events_.number(0);
  kernels_.encode(events_, words_of(event, name));
}

void Journal::take(const TransferEvent& event) {
  if (!running()) return;
  ++buffer_events_;
  if (full_) return;
  events_.number(1);
  transfers_.encode(events_, words_of(event));
}

void Journal::end_buffer() {
  if (!running()) return;
  if (full_) {
    count_beyond(0, buffer_events_);
    return;
  }
  records_ += buffer_events_;
  body_.entry(Entry::kBuffer);
  body_.number(buffer_sequence_);
  body_.number(buffer_generation_);
  body_.number(buffer_events_);
  body_.raw(events_.bytes());
  commit();
}

void Journal::drops(std::uint32_t window, HostDrops drops) {
  if (!running()) return;
  calls_ += drops.calls;
  if (full_) return;
  body_.entry(Entry::kDrops);
  body_.number(window);
  body_.number(drops.calls);
  body_.number(drops.ranges);
}

void Journal::settle_times(Nanoseconds until) {
  if (!running() || full_) return;
  note_windows();
  body_.entry(Entry::kSettleTimes);
  body_.number(ended_);
  body_.number(until);
}

void Journal::settle(std::uint64_t dropped_by_cupti, bool delivered, std::uint32_t last) {
  if (!running() || full_) return;
  note_windows();
  if (delivered) body_.entry(Entry::kDelivered);
  body_.entry(Entry::kSettle);
  body_.number(std::min(ended_, last));
  body_.number(dropped_by_cupti);
}

void Journal::settled(Nanoseconds detached, Nanoseconds last_activity, std::uint32_t last) {
  if (!running() || full_) return;
  note_windows();
  body_.entry(Entry::kSettled);
  body_.number(std::min(ended_, last));
  body_.number(detached);
  body_.number(last_activity);
  commit();
}

void Journal::boundary(const IterationBoundary& boundary) {
  if (!running() || full_) return;
  body_.entry(Entry::kBoundary);
  body_.number(boundary.number);
  body_.number(boundary.begin);
  body_.number(boundary.window);
  body_.number(boundary.window_before);
  body_.number(static_cast<std::uint64_t>(boundary.label));
  body_.number(boundary.followed ? 1 : 0);
  // Flags, decoded by read_boundary() (replay/replay_journal.cpp).
  body_.number((boundary.unprofiled_before ? 1u : 0u) | (boundary.anew ? 2u : 0u) |
               (boundary.units_before ? 4u : 0u));
  if (boundary.units_before) body_.number(std::bit_cast<std::uint64_t>(*boundary.units_before));
}

Journal::Position Journal::position() {
  if (!running()) return {};
  commit();
  return {number_, calls_, full_, live_->beyond_submissions.load(std::memory_order_relaxed),
          live_->beyond_records.load(std::memory_order_relaxed)};
}

void Journal::written(const Position& position) {
  if (!running()) return;
  live_->written_block.store(position.block, std::memory_order_release);
  live_->written_calls.store(position.calls, std::memory_order_release);
  if (!position.full) return;
  // Must come first: if killed in between, contents of the tables may be counted as missing from them. In the
  // opposite order, the journal would be considered complete, and what came after it would be counted
  // nowhere.
  live_->written_beyond.store(1, std::memory_order_relaxed);
  live_->beyond_submissions.fetch_sub(position.submissions_beyond, std::memory_order_release);
  live_->beyond_records.fetch_sub(position.records_beyond, std::memory_order_release);
}

// Written blocks are only for the recovery: they are in the file, and the program does not need their pages.
// With a shared mapping, nothing is lost (madvise(2)).
void Journal::release_pages() {
  constexpr std::ptrdiff_t kAtOnce = std::ptrdiff_t{1} << 20;
  for (; at_ - resident_ > kAtOnce; resident_ += kAtOnce) madvise(resident_, kAtOnce, MADV_DONTNEED);
}

void Journal::commit() {
  if (!running()) return;
  live_->passes.fetch_add(1, std::memory_order_relaxed);
  if (full_) return;
  note_windows();
  live_->alive.store(now(), std::memory_order_relaxed);
  if (notes_.empty() && body_.empty()) return;
  const std::size_t bytes = notes_.bytes().size() + body_.bytes().size();
  const std::size_t needed = sizeof(BlockHeader) + (bytes + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
  // There must be room for the next block's length, which must be zero.
  if (needed + sizeof(BlockHeader) > room_) {
    full_ = true;
    live_->journal_full.store(1, std::memory_order_release);
    count_beyond(submissions_, records_);
  } else {
    auto* header = reinterpret_cast<BlockHeader*>(at_);
    std::uint8_t* contents = at_ + sizeof(BlockHeader);
    std::memcpy(contents, notes_.bytes().data(), notes_.bytes().size());
    std::memcpy(contents + notes_.bytes().size(), body_.bytes().data(), body_.bytes().size());
    header->number = ++number_;
    header->checksum = block_checksum(contents, bytes, number_);
    // Release: a reader that sees the length sees the block.
    header->bytes.store(bytes, std::memory_order_release);
    at_ += needed;
    room_ -= needed;
    release_pages();
  }
  notes_.clear();
  body_.clear();
  submissions_ = records_ = 0;
}

}  // namespace inject::recovery
