// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libinject/journal/codec.h"
#include "libinject/journal/events.h"
#include "libinject/journal/format.h"
#include "libinject/pipeline/intake_log.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/core.h"

namespace inject::recovery {

/// Everything that the drain thread has taken out of the threads' queues and CUPTI's buffers, with the names
/// that it refers to, in the order in which the statistics received it. Written in blocks: a block is
/// committed before the memory of its records is reused, so each record is either here or still there.
/// Duplicates are recognised by sequence numbers: a queue's block and a buffer get a new one for each use.
///
/// Bounded: the journal ends at the first block that does not fit; later ones are only counted. One thread at
/// a time; does nothing until start().
class Journal final : public IntakeLog {
 public:
  Journal(Core& core, WindowLog& windows) : core_(core), windows_(windows) {}

  /// `region` must be zeroed.
  void start(std::uint8_t* region, std::size_t bytes, Live& live);
  bool running() const { return live_ != nullptr; }
  /// Whether a block did not fit.
  bool full() const { return full_; }

  void take_run(std::uint32_t thread, const Block& block, BlockPosition from, BlockPosition to,
                bool done) override;

  /// The beginning of a buffer of CUPTI's; its records in order and its end follow.
  void begin_buffer(std::uint64_t sequence, std::uint16_t generation) override;
  /// `pointer`: the address of the kernel's name in CUPTI's record; `name`: its number in Core::mangled.
  void take(const KernelEvent& event, const char* pointer, std::uint32_t name) override;
  void take(const TransferEvent& event) override;
  void end_buffer() override;

  /// Records of that CUpti_ActivityKind have this size.
  void keep_record_size(std::uint32_t kind, std::uint64_t bytes) override {
    if (running() && kind < live_->record_bytes.size())
      live_->record_bytes[kind].store(bytes, std::memory_order_relaxed);
  }
  void drops(std::uint32_t window, HostDrops drops) override;
  void settle_times(Nanoseconds until) override;
  void settle(std::uint64_t dropped_by_cupti, bool delivered, std::uint32_t last) override;
  void settled(Nanoseconds detached, Nanoseconds last_activity, std::uint32_t last);
  void boundary(const IterationBoundary& boundary) override;
  /// Threads are often named after their first call.
  void renew_thread_names();
  /// How far the journal has got.
  struct Position {
    std::uint64_t block = 0;
    std::uint64_t calls = 0;
    bool full = false;
    std::uint64_t submissions_beyond = 0;
    std::uint64_t records_beyond = 0;
  };
  Position position();
  /// The tables on disk include everything up to `position`.
  void written(const Position& position);
  /// Commits what has not been committed yet.
  void commit() override;

 private:
  void release_pages();
  void note_thread(std::uint32_t thread);
  void put_thread(std::uint32_t thread, const std::string& name);
  void note_windows();
  void note_range(std::uint32_t node);
  void note_shape(std::uint32_t shape);
  void note_driver_call(FunctionId function);
  void note_call(const CallRecord& record);
  void note_kernel_name(const char* pointer, std::uint32_t name);
  void note_graph_node(std::uint64_t node);
  void count_beyond(std::uint64_t submissions, std::uint64_t records);

  Core& core_;
  WindowLog& windows_;
  Live* live_ = nullptr;
  std::uint8_t* at_ = nullptr;
  std::size_t room_ = 0;
  std::uint8_t* resident_ = nullptr;  // pages from here on may be in memory
  std::uint64_t number_ = 0;
  bool full_ = false;

  Encoder notes_;  // names that the body refers to, written before it
  Encoder body_;
  Encoder slots_;
  Encoder events_;
  std::uint64_t calls_ = 0;        // calls in windows that were taken, or recorded as dropped
  std::uint64_t submissions_ = 0;  // not yet committed
  std::uint64_t records_ = 0;

  std::uint64_t buffer_sequence_ = 0;
  std::uint16_t buffer_generation_ = 0;
  std::uint64_t buffer_events_ = 0;
  KernelCoder kernels_;
  TransferCoder transfers_;

  std::uint32_t noted_windows_ = 0;
  std::uint32_t first_open_ = 1;                  // the first window whose end has not been recorded
  std::uint32_t ended_ = 0;                       // the last one whose end has been
  std::map<std::uint32_t, std::string> threads_;  // with the names recorded for them
  std::vector<bool> ranges_;
  std::vector<std::uint32_t> range_chain_;  // of the range being recorded, innermost first
  std::vector<bool> shapes_;
  std::vector<bool> driver_calls_;
  std::vector<bool> kernel_names_;
  std::unordered_map<const char*, std::uint32_t> pointers_;
  std::unordered_set<std::uint64_t> nodes_;
  std::uint32_t generation_ = 0;
};

}  // namespace inject::recovery
