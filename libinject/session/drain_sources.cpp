// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/drain_sources.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "libinject/base/clock.h"
#include "libinject/capture/cupti/tracer.h"
#include "libinject/pipeline/decode.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

DrainSources::DrainSources(Core& core, ActivityBuffers& buffers, WindowLog& windows, Drain& drain,
                           std::function<void()> note_windows)
    : core_(core),
      buffers_(buffers),
      windows_(windows),
      drain_(drain),
      note_windows_(std::move(note_windows)) {}

void DrainSources::log_to(IntakeLog& log) {
  log_ = &log;
  drain_.log_to(log);
}

void DrainSources::pass(const CuptiApi* cupti, bool hold_signs) {
  drain_.begin_pass(now());
  // A sign that is published from here on may be older than one that is not: both wait for the next pass.
  const SignPass pass = begin_sign_pass();
  // Buffers that are complete before the rings are read hold few device records whose launch is not known
  // yet. Buffers completed later wait for the next pass: at a million launches a second, reading the rings
  // takes time.
  const ActivityBuffers::Completed completed =
      cupti != nullptr ? buffers_.take_completed() : ActivityBuffers::Completed{};
  core_.threads.drain([this](std::uint32_t thread, const Slot& slot) { drain_.take(thread, slot); },
                      [this](std::uint32_t thread, const Block& block, BlockPosition from, BlockPosition to,
                             bool done) { log_->take_run(thread, block, from, to, done); });
  drain_.advance_search(pass, hold_signs);
  drain_.retry_pending();
  note_drops();  // before the device records of lost calls
  if (cupti != nullptr) {
    buffers_.handle(completed, [&](std::uint8_t* buffer, std::size_t valid, std::uint16_t generation,
                                   std::uint64_t sequence) {
      log_->begin_buffer(sequence, generation);
      take_buffer(*cupti, buffer, valid, generation);
      log_->end_buffer();
    });
  }
  drain_.end_pass();
  log_->commit();
}

// Another process that reads the buffers has no CUPTI to iterate over them.
void DrainSources::keep_size(const CUpti_Activity& record, const CUpti_Activity& next) {
  const std::ptrdiff_t bytes = reinterpret_cast<const char*>(&next) - reinterpret_cast<const char*>(&record);
  log_->keep_record_size(static_cast<std::uint32_t>(record.kind), static_cast<std::uint64_t>(bytes));
}

void DrainSources::take_buffer(const CuptiApi& cupti, std::uint8_t* buffer, std::size_t valid,
                               std::uint16_t generation) {
  const std::unique_lock use = Tracer::use();
  CUpti_Activity* record = nullptr;
  const CUpti_Activity* before = nullptr;
  while (cupti.ActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS && record != nullptr) {
    if (before != nullptr) keep_size(*before, *record);
    before = record;
    switch (activity_kind(*record)) {
      case ActivityKind::kKernel: {
        KernelActivity kernel = decode_kernel(*record);
        kernel.event.start = Tracer::to_our_clock(kernel.event.start);
        kernel.event.end = Tracer::to_our_clock(kernel.event.end);
        const char* name = kernel.name == nullptr ? "" : kernel.name;
        const std::uint32_t number = drain_.take(kernel.event, name, generation);
        log_->take(kernel.event, kernel.name, number);
        break;
      }
      case ActivityKind::kTransfer: {
        TransferEvent transfer = decode_transfer(*record);
        transfer.start = Tracer::to_our_clock(transfer.start);
        transfer.end = Tracer::to_our_clock(transfer.end);
        drain_.take(transfer, generation);
        log_->take(transfer);
        break;
      }
      case ActivityKind::kOther:
        break;
    }
  }
}

void DrainSources::note_drops() {
  const HostDrops dropped = core_.threads.host_drops();
  if (dropped == seen_drops_) return;
  // A window that the program has just opened may be entered later than its first losses.
  note_windows_();
  for (const WindowLog::Share& share : windows_.shares(std::exchange(seen_drops_, dropped), dropped))
    drain_.take_drops(share.window, share.drops);
}

void DrainSources::note_activity_drops() noexcept {
  activity_drops_ = Tracer::dropped_records();
}

void DrainSources::settle(bool delivered, std::uint32_t last) {
  drain_.settle(activity_drops_ - std::exchange(told_activity_drops_, activity_drops_), delivered, last);
}

}  // namespace inject
