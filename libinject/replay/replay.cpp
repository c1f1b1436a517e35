// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/replay.h"

#include <algorithm>
#include <bit>

#include "libinject/base/clock.h"
#include "libinject/journal/run_state.h"
#include "libinject/model/code_place.h"
#include "libinject/model/functions.h"

namespace inject::recovery {

namespace {

constexpr const char* kUnknownRange = ":[not recovered]";  // in the default domain

ParseResult small_ring() {
  ParseResult parsed;
  parsed.options.ring_bytes = 64 * 1024;
  return parsed;
}

// A time after this is not one at which the process ran. The file's last change would be closer, but a store
// to a mapped page does not always show there. For a file from another boot or machine, allows for clocks
// that have been set.
Nanoseconds latest_possible(const Header& header) {
  constexpr Nanoseconds kDay = 86'400 * kSecond;
  const Nanoseconds utc = realtime();
  const Nanoseconds since = utc > header.base_utc ? utc - header.base_utc : 0;
  return std::max(header.base + since + kDay, now());
}

}  // namespace

Replay::Replay(const Image& image)
    : image_(image),
      core_(std::make_unique<Core>(small_ring())),
      statistics_(core_->names, core_->ranges, core_->shapes),
      drain_(*core_, window_log_, statistics_, [] {}),
      windows_(window_log_),
      latest_possible_(latest_possible(image.header())) {
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
    // If the journal lacks a block, it is unknown whether that block's records were taken, so they are
    // skipped.
    // Killed before the journal had its first block: calls may be missing before the first known one.
    const bool beginning_unknown = windows_.known() == 0;
    windows_.first_begins(std::max(first_in_buffers(), image_.header().base));
    take_queues();
    if (beginning_unknown) drain_.forget_first_launches();
    drain_.retry_pending();
    take_buffers();
  }
  recovered_.beyond_submissions = image_.live().beyond_submissions;
  recovered_.beyond_records = image_.live().beyond_records;
  count_lost();
  Nanoseconds alive = image_.live().alive;
  if (!is_possible(alive)) {
    ++recovered_.refused;
    alive = 0;
  }
  windows_.end_all(std::max(alive, latest_));
  drain_.settle(0, false);
  window_log_.settle(0, drain_.last_in_window_end());
  recovered_.unattributed = drain_.unattributed();
}

// Drops since the last pass belong to the window that was open. Records that were published, but are neither
// in the journal nor in the file's queues, came after a full or damaged journal, or were still elsewhere.
void Replay::count_lost() {
  const CountedRecords& counted = image_.counted();
  const auto rest = [](std::uint64_t all, std::uint64_t known) { return all > known ? all - known : 0; };
  const HostDrops late{rest(counted.dropped.calls, drops_.calls),
                       rest(counted.dropped.ranges, drops_.ranges)};
  if (late != HostDrops{}) drain_.take_drops(window_log_.opened(), late);
  recovered_.calls_not_kept = rest(counted.published_calls, calls_);
  if (!recovered_.journal_full) return;
  for (const Image::Buffer& buffer : image_.buffers()) {
    if (taken_buffers_.count(buffer.sequence) == 0) recovered_.beyond_records += records_in(buffer.records);
  }
}

void Replay::keep_tables() {
  const std::uint64_t all = image_.counted().published_calls + image_.counted().dropped.calls;
  const std::uint64_t written = image_.live().written_calls;
  recovered_.tables_kept = true;
  recovered_.calls_not_kept = all > written ? all - written : 0;
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

bool Replay::take_call(std::uint32_t thread, Slot slot) {
  auto record = slot.as<CallRecord>();
  if (record.window != 0) ++calls_;
  if (record.end < record.begin || !is_possible(record.end) || !is_function(record.function)) return false;
  bool ended = false;
  for (unsigned level = 0; level < 4; ++level) {
    const FunctionId function = chain_at(record.chain, level);
    if (function == kNoFunction) {
      ended = true;
    } else if (ended || !is_function(function)) {
      return false;
    }
  }
  if (is_naming(record.window)) {
    windows_.over_by(record.window & ~kNamingWindow, record.begin);
    record.range = 0;
  } else {
    if (!windows_.open_until(record.window, record.begin)) return false;
    record.range = range_of(record.range);
  }
  record.shape = shape_of(record.shape);
  latest_ = std::max(latest_, record.end);
  slot = std::bit_cast<Slot>(record);
  drain_.take(thread, slot);
  return true;
}

bool Replay::take_short_calls(std::uint32_t thread, const Slot& slot) {
  const auto record = slot.as<ShortCallsRecord>();
  if (record.count > ShortCallsRecord::kMost || record.window == 0) return false;
  calls_ += record.count;
  if (is_naming(record.window)) return true;
  for (const ShortCallsRecord::Call& call : std::span(record.calls, record.count))
    if (!is_bookkeeping(call.function)) return false;
  // Short calls do not show when the window opened: their thread's first call in it does, which has a record
  // of its own.
  if (record.window > windows_.known() || !windows_.open_until(record.window, 0)) return false;
  drain_.take(thread, slot);
  return true;
}

bool Replay::take_slot(std::uint32_t thread, Slot slot) {
  switch (slot.kind()) {
    case RecordKind::kCall:
      return take_call(thread, slot);
    case RecordKind::kShortCalls:
      return take_short_calls(thread, slot);
    case RecordKind::kRange: {
      auto record = slot.as<RangeRecord>();
      if (is_naming(record.window)) return true;
      if (record.edge < RangeEdge::kPush || record.edge > RangeEdge::kEnd || !is_possible(record.time) ||
          !windows_.open_until(record.window, record.time))
        return false;
      record.node = range_of(record.node);
      latest_ = std::max(latest_, record.time);
      slot = std::bit_cast<Slot>(record);
      drain_.take(thread, slot);
      return true;
    }
    case RecordKind::kProcessorTime: {
      const auto record = slot.as<ProcessorTimeRecord>();
      if (is_naming(record.window)) return true;
      if (!is_possible(record.time) || !windows_.open_until(record.window, record.time)) return false;
      drain_.take(thread, slot);
      return true;
    }
    case RecordKind::kFetch: {
      const auto record = slot.as<FetchRecord>();
      if (is_naming(record.window)) return true;
      const Nanoseconds time = std::max(record.begin, record.end);
      if (record.fetch > FetchKind::kProcessing || record.by > FetchThread::kOther || !is_possible(time) ||
          !windows_.open_until(record.window, time))
        return false;
      latest_ = std::max(latest_, time);
      drain_.take(thread, slot);
      return true;
    }
    default:
      return false;
  }
}

RunInfo Replay::run_info() const {
  RunInfo run;
  const bool whole = decode_run(image_.info(), run);
  run.state = "recovered";
  run.pid = static_cast<int>(image_.header().pid);
  run.base = image_.header().base;
  run.base_utc = image_.header().base_utc;
  run.threads = threads_;
  run.windows = window_log_.copy();
  run.windows_not_listed = window_log_.not_listed();
  run.windows_time = window_log_.total_time();
  run.windows_without_times = window_log_.without_times();
  run.losses_outside = window_log_.losses_outside();
  run.repeated_records = drain_.repeated();
  run.iteration_records_lost = statistics_.iterations().lost();
  run.busy_records_late = statistics_.late_for_busy_time();
  run.device_time_records_lost = statistics_.left_out_of_device_times();
  run.graph_kernels_without_call = drain_.graph_kernels_without_call();
  run.graph_launches_without_records = drain_.graph_launches_without_records();
  run.recovered = recovered_;
  // A run.json that is kept has it all.
  run.recovered->info_damaged =
      !recovered_.tables_kept && (image_.info_is_damaged() || (!whole && !image_.info().empty()));
  return run;
}

}  // namespace inject::recovery
