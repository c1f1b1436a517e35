// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>

#include "libinject/model/events.h"
#include "libinject/record/block_pool.h"
#include "libinject/record/thread_registry.h"

namespace inject {

/// Keeps what the drain is told, in that order, so that another process can tell a drain of its own the same.
/// This one keeps nothing.
class IntakeLog {
 public:
  IntakeLog() = default;
  IntakeLog(const IntakeLog&) = delete;
  IntakeLog& operator=(const IntakeLog&) = delete;
  virtual ~IntakeLog() = default;

  /// What lies between two positions in a queue's block. `done`: the block is about to be used again.
  virtual void take_run(std::uint32_t /*thread*/, const Block& /*block*/, BlockPosition /*from*/,
                        BlockPosition /*to*/, bool /*done*/) {}
  /// A buffer of CUPTI's, its records in order, its end.
  virtual void begin_buffer(std::uint64_t /*sequence*/, std::uint16_t /*generation*/) {}
  /// `pointer` and `name`: what CUPTI calls the kernel, and the number of that name in Core::mangled.
  virtual void take(const KernelEvent& /*event*/, const char* /*pointer*/, std::uint32_t /*name*/) {}
  virtual void take(const TransferEvent& /*event*/) {}
  virtual void end_buffer() {}
  /// Records of that CUpti_ActivityKind have that size.
  virtual void keep_record_size(std::uint32_t /*kind*/, std::uint64_t /*bytes*/) {}

  virtual void drops(std::uint32_t /*window*/, HostDrops /*drops*/) {}
  virtual void boundary(const IterationBoundary& /*boundary*/) {}
  virtual void settle_times(Nanoseconds /*until*/) {}
  virtual void settle(std::uint64_t /*dropped_by_cupti*/, bool /*delivered*/, std::uint32_t /*last*/) {}
  /// Commits what is not yet.
  virtual void commit() {}
};

}  // namespace inject
