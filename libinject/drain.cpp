// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/drain.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "libinject/cupti/decode.h"
#include "libinject/cupti/tracer.h"
#include "libinject/output/demangle.h"

namespace inject {

namespace {
// As many launches as CUPTI's default buffers hold records, and more: some 20 MB when full.
constexpr std::size_t kMostLaunches = 1u << 18;
// Device records kept while their launch is still on its way through its thread (a blocking copy publishes
// its record when it returns, after its activity may have come).
constexpr std::size_t kMostPending = 1u << 16;
}  // namespace

Drain::Drain(Core& core, ActivityBuffers& buffers, WindowLog& windows, Statistics& statistics,
             std::function<void()> note_windows)
    : core_(core),
      buffers_(buffers),
      windows_(windows),
      statistics_(statistics),
      note_windows_(std::move(note_windows)),
      launches_(kMostLaunches),
      ranges_(
          core.ranges, [&windows](std::uint32_t number) { return windows.span(number); },
          [this](const RangeEvent& event) { statistics_.add(event); }) {}

void Drain::pass(const CuptiApi* cupti) {
  // Rings before buffers: most launches are then known before their device records come by.
  core_.threads.drain([this](std::uint32_t thread, const Slot& slot) {
    if (slot.kind() == RecordKind::kCall) {
      CallRecord record;
      std::memcpy(&record, slot.bytes, sizeof record);
      on_call(thread, record);
    } else if (slot.kind() == RecordKind::kRange) {
      RangeRecord record;
      std::memcpy(&record, slot.bytes, sizeof record);
      know_window(record.window);
      ranges_.edge(thread, record);
    }
  });
  retry_pending();
  if (cupti != nullptr) {
    buffers_.drain([&](std::uint8_t* buffer, std::size_t valid, std::uint16_t generation) {
      on_buffer(*cupti, buffer, valid, generation);
    });
  }
  note_drops();
}

void Drain::know_window(std::uint32_t window) {
  if (window <= known_windows_) return;
  note_windows_();
  known_windows_ = windows_.opened();
}

void Drain::on_call(std::uint32_t thread, const CallRecord& record) {
  know_window(record.window);
  if (record.correlation != 0) {
    Attribution launch;
    launch.function = record.function;
    launch.window = record.window;
    launch.thread = thread;
    launch.range = record.range;
    launch.owner = record.owner;
    launch.chain = record.chain;
    launch.stream_handle = record.stream;
    launch.host_begin = record.begin;
    launch.host_end = record.end;
    launches_.add(record.generation, record.correlation, launch,
                  record.status == 0 && (record.flags & kCallCaptured) == 0);
  }
  if (record.window == 0) return;
  ranges_.context(thread, record.window, record.range);
  CallEvent event;
  event.function = record.function;
  event.status = record.status;
  event.window = record.window;
  event.thread = thread;
  event.range = record.range;
  event.correlation = record.correlation;
  event.chain = record.chain;
  event.begin = record.begin;
  event.end = record.end;
  statistics_.add(event);
  if (trace_ != nullptr) trace_->add(event);
}

std::uint32_t Drain::kernel_name(const char* mangled) {
  if (mangled == nullptr) return NameTable::kEmpty;
  const std::uint32_t id = core_.mangled.intern(mangled);
  if (id == NameTable::kOther) return id;
  if (id >= demangled_.size()) demangled_.resize(id + 1, 0);
  if (demangled_[id] == 0) demangled_[id] = core_.names.intern(demangle(core_.mangled.name(id)));
  return demangled_[id];
}

void Drain::on_buffer(const CuptiApi& cupti, std::uint8_t* buffer, std::size_t valid,
                      std::uint16_t generation) {
  CUpti_Activity* record = nullptr;
  while (cupti.ActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS && record != nullptr) {
    switch (activity_kind(*record)) {
      case ActivityKind::kKernel: {
        KernelActivity kernel = decode_kernel(*record);
        kernel.event.name = kernel_name(kernel.name);
        saw_graphs_ = saw_graphs_ || kernel.event.graph != 0;
        on_activity(kernel.event, generation);
        break;
      }
      case ActivityKind::kTransfer: {
        TransferEvent transfer = decode_transfer(*record);
        on_activity(transfer, generation);
        break;
      }
      case ActivityKind::kOther:
        break;
    }
  }
}

template <typename Event>
void Drain::on_activity(Event& event, std::uint16_t generation) {
  if (const Attribution* launch = launches_.find(generation, event.correlation); launch != nullptr) {
    event.launch = *launch;
    deliver(event);
    return;
  }
  if (pending_.size() < kMostPending) {
    pending_.push_back({generation, event});
  } else {
    deliver_by_time(event);
  }
}

template <typename Event>
void Drain::deliver(Event& event) {
  const std::uint32_t window = event.launch.window;
  if (window == 0) return;  // launched outside
  if (!times_valid(event.start, event.end)) {
    Losses losses;
    losses.invalid_times = 1;
    windows_.add_losses(window, losses);
    return;
  }
  last_in_window_end_ = std::max(last_in_window_end_, event.end);
  statistics_.add(event);
  if (trace_ != nullptr) trace_->add(event);
}

template <typename Event>
void Drain::deliver_by_time(Event& event) {
  if (!times_valid(event.start, event.end)) {
    Losses losses;
    losses.invalid_times = 1;
    windows_.add_losses(windows_.opened(), losses);
    return;
  }
  event.launch = Attribution{};
  event.launch.window = windows_.at(event.start);
  if (event.launch.window == 0) return;
  ++unattributed_;
  deliver(event);
}

void Drain::retry_pending() {
  std::erase_if(pending_, [this](Pending& pending) {
    return std::visit(
        [&](auto& event) {
          const Attribution* launch = launches_.find(pending.generation, event.correlation);
          if (launch == nullptr) return false;
          event.launch = *launch;
          deliver(event);
          return true;
        },
        pending.event);
  });
}

void Drain::note_drops() {
  const std::uint64_t host = core_.threads.dropped();
  const std::uint64_t activity = Tracer::dropped_records();
  if (host == seen_host_drops_ && activity == seen_activity_drops_) return;
  Losses losses;
  losses.host_records = host - seen_host_drops_;
  losses.activity_records = activity - seen_activity_drops_;
  windows_.add_losses(windows_.opened(), losses);
  seen_host_drops_ = host;
  seen_activity_drops_ = activity;
}

void Drain::settle() {
  saw_graphs_ = false;
  retry_pending();
  for (Pending& pending : pending_) {
    std::visit([this](auto& event) { deliver_by_time(event); }, pending.event);
  }
  pending_.clear();
  if (const std::size_t missing = launches_.give_up_waiting(); missing != 0) {
    Losses losses;
    losses.missing_records = missing;
    windows_.add_losses(windows_.opened(), losses);
  }
  for (const std::uint32_t window : windows_.closing()) ranges_.close_window(window);
}

}  // namespace inject
