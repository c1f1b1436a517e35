// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/model/events.h"
#include "libinject/record/block_pool.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// Logs the drain's input in order, so that another process can pass the same to a drain of its own. This
/// base class logs nothing.
class IntakeLog {
 public:
  IntakeLog() = default;
  IntakeLog(const IntakeLog&) = delete;
  IntakeLog& operator=(const IntakeLog&) = delete;
  virtual ~IntakeLog() = default;

  /// The records between two positions in a queue's block. `done`: the block is about to be reused.
  virtual void take_run(std::uint32_t /*thread*/, const Block& /*block*/, BlockPosition /*from*/,
                        BlockPosition /*to*/, bool /*done*/) {}
  /// The beginning of a buffer of CUPTI's; its records in order and its end follow.
  virtual void begin_buffer(std::uint64_t /*sequence*/, std::uint16_t /*generation*/) {}
  /// `pointer`: the address of the kernel's name in CUPTI's record; `name`: its number in Core::mangled.
  virtual void take(const KernelEvent& /*event*/, const char* /*pointer*/, std::uint32_t /*name*/) {}
  virtual void take(const TransferEvent& /*event*/) {}
  virtual void end_buffer() {}
  /// Records of that CUpti_ActivityKind have this size.
  virtual void keep_record_size(std::uint32_t /*kind*/, std::uint64_t /*bytes*/) {}

  virtual void drops(std::uint32_t /*window*/, HostDrops /*drops*/) {}
  virtual void boundary(const IterationBoundary& /*boundary*/) {}
  virtual void settle_times(Nanoseconds /*until*/) {}
  virtual void settle(std::uint64_t /*dropped_by_cupti*/, bool /*delivered*/, std::uint32_t /*last*/) {}
  /// Commits what has not been committed yet.
  virtual void commit() {}
};

}  // namespace inject
