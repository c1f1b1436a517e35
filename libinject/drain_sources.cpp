// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The drain's sources in the process that it observes: threads' queues and CUPTI's buffers.
#include <algorithm>
#include <mutex>
#include <utility>

#include "libinject/cupti/decode.h"
#include "libinject/cupti/tracer.h"
#include "libinject/drain.h"
#include "libinject/record/clock.h"
#include "libinject/window/iteration_watch.h"

namespace inject {

namespace {
// A graph's kernel waits so long for the next replay of its node to say whether its end is its own.
constexpr Nanoseconds kHeldForGraphs = 1'000'000'000;
}  // namespace

void Drain::pass(const CuptiApi* cupti, bool hold_signs) {
  pass_begin_ = now();
  // A sign that is published from here on may be older than one that is not: both wait for the next pass.
  const SignPass pass = begin_sign_pass();
  // Buffers that are complete before the rings are read hold few device records whose launch is not known
  // yet. What completes meanwhile waits: at a million launches a second, reading the rings takes its time.
  const ActivityBuffers::Completed completed =
      cupti != nullptr ? buffers_.take_completed() : ActivityBuffers::Completed{};
  core_.threads.drain(
      [this](std::uint32_t thread, const Slot& slot) { take(thread, slot); },
      [this](std::uint32_t thread, const Block& block, std::uint32_t first, std::uint32_t end, bool done) {
        if (journal_ != nullptr) journal_->take_run(thread, block, first, end, done);
      });
  if (search_ != nullptr) search_->advance(pass, hold_signs);
  retry_pending();
  if (cupti != nullptr) {
    buffers_.handle(completed, [&](std::uint8_t* buffer, std::size_t valid, std::uint16_t generation,
                                   std::uint64_t sequence) {
      if (journal_ != nullptr) journal_->begin_buffer(sequence, generation);
      on_buffer(*cupti, buffer, valid, generation);
      if (journal_ != nullptr) journal_->end_buffer();
    });
  }
  // What a graph that is not launched again has left does not hold up those that wait for earlier work.
  if (pass_begin_ > kHeldForGraphs) graph_times_.release_ended(pass_begin_ - kHeldForGraphs);
  note_drops();
  if (journal_ != nullptr) journal_->commit();
}

// Another process that reads the buffers has no CUPTI to step through them.
void Drain::keep_size(const CUpti_Activity& record, const CUpti_Activity& next) {
  if (journal_ == nullptr) return;
  const std::ptrdiff_t bytes = reinterpret_cast<const char*>(&next) - reinterpret_cast<const char*>(&record);
  journal_->keep_record_size(static_cast<std::uint32_t>(record.kind), static_cast<std::uint64_t>(bytes));
}

void Drain::on_buffer(const CuptiApi& cupti, std::uint8_t* buffer, std::size_t valid,
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
        take(kernel.event, name, generation);
        if (journal_ != nullptr) journal_->take(kernel.event, kernel.name, core_.mangled.intern(name));
        break;
      }
      case ActivityKind::kTransfer: {
        TransferEvent transfer = decode_transfer(*record);
        transfer.start = Tracer::to_our_clock(transfer.start);
        transfer.end = Tracer::to_our_clock(transfer.end);
        take(transfer, generation);
        if (journal_ != nullptr) journal_->take(transfer);
        break;
      }
      case ActivityKind::kOther:
        break;
    }
  }
}

void Drain::note_drops() {
  const HostDrops dropped = core_.threads.host_drops();
  if (dropped == seen_drops_) return;
  // A window that the program has just opened may be noted later than its first losses.
  note_windows_();
  for (const WindowLog::Share& share : windows_.shares(std::exchange(seen_drops_, dropped), dropped))
    take_drops(share.window, share.drops);
}

void Drain::settle(bool delivered) {
  const std::uint64_t dropped = Tracer::dropped_records();
  settle(dropped - std::exchange(told_activity_drops_, dropped), delivered);
}

}  // namespace inject
