// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/replay.h"

#include <cupti.h>

#include <cupti_activity.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "libinject/journal/events.h"
#include "libinject/journal/run_state.h"
#include "libinject/model/functions.h"
#include "libinject/pipeline/decode.h"
#include "libinject/record/control.h"
#include "libinject/replay/shape_check.h"

namespace inject::recovery {

namespace {

constexpr std::uint32_t kMaxThreads = ThreadRegistry::kMaxEver;
// More windows than that have opened by themselves between two looks at them is no file of ours.
constexpr std::uint32_t kMaxUnknownWindows = EdgeTimes::kPlaces;
constexpr std::uint32_t kMaxWindowsSkipped = 10'000;
// … of a whole file: they take memory, whatever the file's size.
constexpr std::uint32_t kMaxWindowsSkippedInAll = 1u << 20;
constexpr std::size_t kMaxIds = std::size_t{1} << 18;
constexpr std::size_t kMaxNameLength = 16 * 1024;
constexpr FunctionId kDriverFunctions = 2048;
constexpr const char* kUnknown = "[not recovered]";
constexpr const char* kUnknownRange = ":[not recovered]";  // in the default domain

ParseResult small_ring() {
  ParseResult parsed;
  parsed.options.ring_bytes = 64 * 1024;
  return parsed;
}

}  // namespace

Replay::Replay(const Image& image)
    : image_(image),
      core_(std::make_unique<Core>(small_ring())),
      statistics_(core_->names, core_->ranges, core_->shapes),
      drain_(*core_, windows_, statistics_, [] {}) {
  statistics_.threads_are_named_by([this](std::uint32_t index) { return thread(index).name; });
}

Replay::~Replay() = default;

ThreadInfo Replay::thread(std::uint32_t index) const {
  return index < threads_.size() ? threads_[index] : ThreadInfo{};
}

void Replay::run() {
  for (const std::string_view block : image_.blocks()) {
    if (!replay_block(block)) {
      recovered_.journal_cut = true;
      break;
    }
    ++recovered_.journal_blocks;
  }
  recovered_.journal_cut = recovered_.journal_cut || image_.is_cut();
  recovered_.journal_full = image_.live().journal_full;
  if (!recovered_.journal_full && !recovered_.journal_cut) {
    // Where the journal lacks a block, what it had is neither known to be taken nor not to be.
    take_queues();
    drain_.retry_pending();
    take_buffers();
  }
  recovered_.beyond_submissions = image_.live().beyond_submissions;
  recovered_.beyond_records = image_.live().beyond_records;
  end_all();
  drain_.settle(0, false);
  windows_.settle(0, drain_.last_in_window_end());
  recovered_.unattributed = drain_.unattributed();
}

bool Replay::replay_block(std::string_view block) {
  Decoder from(block);
  // As a pass of the drain thread begins.
  drain_.retry_pending();
  while (from.ok() && !from.at_end()) {
    // Any byte; those that are none are refused there.
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
  const auto number = static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu));
  const Nanoseconds time = from.number();
  const std::string_view reason =
      entry == Entry::kWindowOpen ? from.text(kMaxNameLength) : std::string_view();
  if (!from.ok() || number == 0 || number > known_windows_.size() + kMaxWindowsSkipped) return false;
  if (entry == Entry::kWindowEnd) {
    if (number > known_windows_.size()) return false;
    Window& window = known_windows_[number - 1];
    if (time == 0) {
      window.without_times = true;
    } else {
      window.end = std::max(time, window.begin);
    }
    return true;
  }
  // Of more windows than the log keeps the first are not known by the time that they are written down.
  for (; known_windows_.size() + 1 < number; ++skipped_windows_) {
    if (skipped_windows_ == kMaxWindowsSkippedInAll) return false;
    known_windows_.push_back({0, 0, kUnknown, true});
  }
  if (known_windows_.size() < number) known_windows_.emplace_back();
  known_windows_[number - 1] = {time, 0, std::string(reason), time == 0};
  return true;
}

bool Replay::read_range(Decoder& from) {
  const auto id = static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu));
  const auto parent = static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu));
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
  const auto id = static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu));
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
    const auto name = static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu));
    if (!from.ok() || pointers_.size() >= kMaxIds) return false;
    pointers_[id] = name;
    return true;
  }
  const std::string name(from.text(kMaxNameLength));
  if (!from.ok()) return false;
  if (entry == Entry::kKernelName) {
    if (id > 0xFFFF'FFFFu || kernel_names_.size() >= kMaxIds) return false;
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
  call.owner = static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu));
  call.shape = shape_of(static_cast<std::uint32_t>(from.number(0xFFFF'FFFFu)));
  call.function = static_cast<FunctionId>(from.number(0xFFFFu));
  for (unsigned level = 0; level < 4; ++level)
    if (chain_at(call.chain, level) != kNoFunction && !is_function(chain_at(call.chain, level))) return false;
  if (!from.ok() || (call.function != kNoFunction && !is_function(call.function))) return false;
  core_->graph_nodes.add(node, call);
  return true;
}

bool Replay::read_run(Decoder& from) {
  const std::uint64_t sequence = from.number();
  const auto end = static_cast<std::uint32_t>(from.number(Block::kSlots));
  const auto thread = static_cast<std::uint32_t>(from.number(kMaxThreads - 1));
  const std::uint64_t count = from.number(end);
  SlotCoder coder;
  for (std::uint64_t i = 0; i < count && from.ok(); ++i) {
    const Slot slot = slot_of(coder.decode(from));
    if (from.ok() && !take_slot(thread, slot)) ++recovered_.refused;
  }
  if (from.ok()) taken_[sequence] = std::max(taken_[sequence], end);
  return from.ok();
}

bool Replay::read_buffer(Decoder& from) {
  const std::uint64_t sequence = from.number();
  const auto generation = static_cast<std::uint16_t>(from.number(0xFFFFu));
  // At least two bytes each.
  const std::uint64_t count = from.number(from.left());
  KernelCoder kernels;
  TransferCoder transfers;
  for (std::uint64_t i = 0; i < count && from.ok(); ++i) {
    if (from.number(1) == 0) {
      std::uint32_t name = 0;
      const KernelEvent event = kernel_of(kernels.decode(from), name);
      if (from.ok()) drain_.take(event, kernel_name(name), generation);
    } else {
      const TransferEvent event = transfer_of(transfers.decode(from));
      if (from.ok()) drain_.take(event, generation);
    }
  }
  taken_buffers_.insert(sequence);
  return from.ok();
}

bool Replay::read_drops(Decoder& from) {
  const auto window = static_cast<std::uint32_t>(from.number(known_windows_.size()));
  HostDrops drops;
  drops.calls = from.number();
  drops.ranges = from.number();
  if (!from.ok()) return false;
  open_until(window, 0);
  drain_.take_drops(window, drops);
  return true;
}

bool Replay::read_settle(Entry entry, Decoder& from) {
  const auto window = static_cast<std::uint32_t>(from.number(known_windows_.size()));
  const std::uint64_t first = from.number();
  const std::uint64_t second = entry == Entry::kSettled ? from.number() : 0;
  if (!from.ok()) return false;
  open_until(window, 0);
  end_until(window);
  if (entry == Entry::kSettleTimes) drain_.settle_times(first);
  if (entry == Entry::kSettle) drain_.settle(first, std::exchange(delivered_, false));
  if (entry == Entry::kSettled) windows_.settle(first, second);
  return true;
}

bool Replay::read_boundary(Decoder& from) {
  IterationBoundary boundary;
  boundary.number = from.number();
  boundary.begin = from.number();
  boundary.window = static_cast<std::uint32_t>(from.number(known_windows_.size()));
  boundary.window_before = static_cast<std::uint32_t>(from.number(known_windows_.size()));
  boundary.label =
      static_cast<IterationLabel>(from.number(static_cast<std::uint64_t>(IterationLabel::kCheckpoint)));
  boundary.followed = from.number(1) != 0;
  if (from.ok()) drain_.iteration_boundary(boundary);
  return from.ok();
}

bool Replay::is_function(FunctionId function) {
  if ((function & kDriverFunction) == 0) return function != kNoFunction && function < kFunctionEnd;
  if ((function & 0x7FFFu) >= kDriverFunctions) return false;
  if (function_name(function).empty()) {
    ++recovered_.names_missing;
    set_driver_function_name(function, kUnknown);
  }
  return true;
}

std::uint32_t Replay::range_of(std::uint32_t id) {
  if (id == 0) return 0;
  const auto found = ranges_.find(id);
  if (found != ranges_.end()) return found->second;
  ++recovered_.names_missing;
  if (ranges_.size() >= kMaxIds) return 0;
  return ranges_[id] = core_->ranges.child(0, core_->names.intern(kUnknownRange), 0, RangeStyle::kPushPop);
}

std::uint32_t Replay::shape_of(std::uint32_t id) {
  if (id <= ShapeTable::kOther) return id;
  const auto found = shapes_.find(id);
  if (found != shapes_.end()) return found->second;
  ++recovered_.names_missing;
  return ShapeTable::kOther;
}

std::string_view Replay::kernel_name(std::uint32_t id) {
  if (id == NameTable::kEmpty) return {};
  const auto found = kernel_names_.find(id);
  if (found != kernel_names_.end()) return found->second;
  ++recovered_.names_missing;
  return kUnknown;
}

bool Replay::open_until(std::uint32_t window, Nanoseconds begin) {
  if (window > known_windows_.size() + kMaxUnknownWindows) return false;
  for (; known_windows_.size() < window; ++skipped_windows_) {
    if (skipped_windows_ == kMaxWindowsSkippedInAll) return false;
    const bool skipped = known_windows_.size() + 1 < window;
    known_windows_.push_back({skipped ? 0 : begin, 0, kUnknown, skipped});
  }
  while (windows_.opened() < window) {
    const Window& next = known_windows_[windows_.opened()];
    windows_.open(next.reason, next.begin);
  }
  return true;
}

void Replay::end_until(std::uint32_t window) {
  for (; ended_ < window; ++ended_) {
    const Window& known = known_windows_[ended_];
    if (known.without_times) {
      windows_.end_without_times(ended_ + 1);
    } else if (known.end != 0) {
      windows_.end(ended_ + 1, known.end);
    } else {
      return;
    }
  }
}

// What was still open ended with the process, or where the next one began.
void Replay::end_all() {
  open_until(static_cast<std::uint32_t>(known_windows_.size()), 0);
  for (std::size_t i = 0; i < known_windows_.size(); ++i) {
    Window& window = known_windows_[i];
    if (window.end != 0 || window.without_times) continue;
    const bool last = i + 1 == known_windows_.size();
    window.without_times = !last && known_windows_[i + 1].without_times;
    const Nanoseconds end = last ? std::max(image_.live().alive, latest_) : known_windows_[i + 1].begin;
    if (!window.without_times) window.end = std::max({end, window.begin, Nanoseconds{1}});
  }
  end_until(static_cast<std::uint32_t>(known_windows_.size()));
}

bool Replay::take_call(std::uint32_t thread, Slot slot) {
  CallRecord record;
  std::memcpy(&record, slot.bytes, sizeof record);
  if (record.end < record.begin || !is_function(record.function)) return false;
  bool ended = false;
  for (unsigned level = 0; level < 4; ++level) {
    const FunctionId function = chain_at(record.chain, level);
    if (function == kNoFunction) {
      ended = true;
    } else if (ended || !is_function(function)) {
      return false;
    }
  }
  if (!open_until(record.window, record.begin)) return false;
  record.range = range_of(record.range);
  record.shape = shape_of(record.shape);
  latest_ = std::max(latest_, record.end);
  std::memcpy(slot.bytes, &record, sizeof record);
  drain_.take(thread, slot);
  return true;
}

bool Replay::take_slot(std::uint32_t thread, Slot slot) {
  switch (slot.kind()) {
    case RecordKind::kCall:
      return take_call(thread, slot);
    case RecordKind::kRange: {
      RangeRecord record;
      std::memcpy(&record, slot.bytes, sizeof record);
      if (record.edge < RangeEdge::kPush || record.edge > RangeEdge::kEnd ||
          !open_until(record.window, record.time))
        return false;
      record.node = range_of(record.node);
      latest_ = std::max(latest_, record.time);
      std::memcpy(slot.bytes, &record, sizeof record);
      drain_.take(thread, slot);
      return true;
    }
    case RecordKind::kProcessorTime: {
      ProcessorTimeRecord record;
      std::memcpy(&record, slot.bytes, sizeof record);
      if (!open_until(record.window, record.time)) return false;
      drain_.take(thread, slot);
      return true;
    }
    default:
      return false;
  }
}

void Replay::take_queues() {
  for (const Image::QueueBlock& block : image_.queue_blocks()) {
    const auto taken = taken_.find(block.sequence);
    for (std::uint32_t i = taken == taken_.end() ? 0 : taken->second; i < block.published; ++i) {
      Slot slot;
      std::memcpy(slot.bytes, block.slots + i * sizeof(Slot), sizeof slot.bytes);
      if (slot.kind() == RecordKind::kSign) continue;
      if (block.thread < kMaxThreads && take_slot(block.thread, slot)) {
        ++recovered_.queue_records;
      } else {
        ++recovered_.refused;
      }
    }
  }
}

// As it was seen, or as it is in the headers of that version. All have the fields that are read
// (cupti/decode).
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

// The size of the record, 0 if it is not known.
std::size_t Replay::take_record(std::span<const std::uint8_t> left, std::uint16_t generation) {
  std::uint32_t kind = 0;
  if (left.size() < sizeof kind) return 0;
  std::memcpy(&kind, left.data(), sizeof kind);
  const std::uint32_t size = record_size(kind);
  alignas(8) std::array<std::uint8_t, 4096> copy{};
  if (size == 0 || size > left.size() || size > copy.size()) return 0;
  std::memcpy(copy.data(), left.data(), size);
  const auto& record = reinterpret_cast<const CUpti_Activity&>(copy);
  const auto ours = [this](Nanoseconds time) { return time == 0 ? 0 : time - image_.live().clock_ahead; };
  switch (activity_kind(record)) {
    case ActivityKind::kKernel: {
      KernelActivity kernel = decode_kernel(record);
      kernel.event.start = ours(kernel.event.start);
      kernel.event.end = ours(kernel.event.end);
      // Where the name was in the other process: a number, here.
      const auto name = pointers_.find(reinterpret_cast<std::uintptr_t>(kernel.name));
      if (name == pointers_.end()) ++recovered_.names_missing;
      drain_.take(kernel.event, name == pointers_.end() ? kUnknown : kernel_name(name->second), generation);
      ++recovered_.buffer_records;
      break;
    }
    case ActivityKind::kTransfer: {
      TransferEvent transfer = decode_transfer(record);
      transfer.start = ours(transfer.start);
      transfer.end = ours(transfer.end);
      drain_.take(transfer, generation);
      ++recovered_.buffer_records;
      break;
    }
    case ActivityKind::kOther:
      break;
  }
  return size;
}

RunInfo Replay::run_info() const {
  RunInfo run;
  decode_run(image_.info(), run);
  run.state = "recovered";
  run.pid = static_cast<int>(image_.header().pid);
  run.base = image_.header().base;
  run.base_utc = image_.header().base_utc;
  run.threads = threads_;
  run.windows = windows_.copy();
  run.windows_not_listed = windows_.not_listed();
  run.windows_time = windows_.total_time();
  run.windows_without_times = windows_.without_times();
  run.losses_outside = windows_.losses_outside();
  run.repeated_records = drain_.repeated();
  run.iteration_records_lost = statistics_.iterations().lost();
  run.busy_records_late = statistics_.late_for_busy_time();
  run.device_time_records_lost = statistics_.left_out_of_device_times();
  run.graph_kernels_without_call = drain_.graph_kernels_without_call();
  run.graph_launches_without_records = drain_.graph_launches_without_records();
  run.recovered = recovered_;
  return run;
}

}  // namespace inject::recovery
