// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libinject/journal/codec.h"
#include "libinject/model/run_info.h"
#include "libinject/pipeline/drain.h"
#include "libinject/pipeline/window_log.h"
#include "libinject/record/core.h"
#include "libinject/replay/image.h"
#include "libinject/replay/replayed_windows.h"
#include "libinject/stats/statistics.h"

namespace inject::recovery {

/// Runs what a killed process left behind through the same drain and statistics as in a live one: first the
/// journal, then records published in the threads' queues, and complete in CUPTI's buffers, that are not in
/// the journal.
class Replay {
 public:
  explicit Replay(const Image& image);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Raw events are also passed to `sink`.
  void add_sink(EventSink& sink) { drain_.add_sink(sink); }
  /// To be called once.
  void run();

  const Statistics& statistics() const { return statistics_; }
  /// Information on the run as far as known, including state and `recovered`.
  RunInfo run_info() const;
  /// The process's own tables are kept, since they have more.
  void keep_tables();
  /// Number of the journal's blocks that could be read.
  std::uint64_t blocks() const { return recovered_.journal_blocks; }
  Core& core() { return *core_; }
  ThreadInfo thread(std::uint32_t index) const;

 private:
  static constexpr std::uint32_t kMaxThreads = ThreadRegistry::kMaxEver;
  static constexpr std::size_t kMaxIds = std::size_t{1} << 18;
  static constexpr FunctionId kDriverFunctions = 2048;

  // The journal (replay_journal.cpp).
  bool replay_block(std::string_view block);
  bool replay_entry(Entry entry, Decoder& from);
  bool read_thread(Decoder& from);
  bool read_window(Entry entry, Decoder& from);
  bool read_range(Decoder& from);
  bool read_shape(Decoder& from);
  bool read_name(Entry entry, Decoder& from);
  bool read_graph_node(Decoder& from);
  bool read_run(Decoder& from);
  bool read_buffer(Decoder& from);
  bool read_drops(Decoder& from);
  bool read_settle(Entry entry, Decoder& from);
  bool read_boundary(Decoder& from);
  // What is not in the journal (replay_leftovers.cpp).
  void take_queues();
  void take_buffers();
  std::uint64_t records_in(std::span<const std::uint8_t> left) const;
  void count_lost();
  /// Not in the future.
  bool is_possible(Nanoseconds time) const { return time <= latest_possible_; }
  /// The process was alive at the end of the latest activity from CUPTI, and so was the window that it left
  /// open. False: counted as refused.
  bool note_end(Nanoseconds start, Nanoseconds end) {
    if (!is_possible(std::max(start, end))) {
      ++recovered_.refused;
      return false;
    }
    if (start <= end) latest_ = std::max(latest_, end);
    return true;
  }
  struct RecordCopy {
    alignas(8) std::array<std::uint8_t, 4096> bytes{};
  };
  std::size_t copy_record(std::span<const std::uint8_t> left, RecordCopy& copy) const;
  Nanoseconds our_time(Nanoseconds time) const;
  Nanoseconds first_in_buffers() const;
  std::size_t take_record(std::span<const std::uint8_t> left, std::uint16_t generation);
  std::uint32_t record_size(std::uint32_t kind) const;
  bool take_slot(std::uint32_t thread, Slot slot);
  bool take_call(std::uint32_t thread, Slot slot);
  bool take_short_calls(std::uint32_t thread, const Slot& slot);
  std::uint32_t range_of(std::uint32_t id);
  std::uint32_t shape_of(std::uint32_t id);
  std::string_view kernel_name(std::uint32_t id);
  bool is_function(FunctionId function);

  const Image& image_;
  std::unique_ptr<Core> core_;
  WindowLog window_log_;
  Statistics statistics_;
  Drain drain_;
  RecoveredInfo recovered_;
  ReplayedWindows windows_;
  const Nanoseconds latest_possible_;
  Nanoseconds latest_ = 0;
  std::optional<std::uint32_t> settling_;  // the last window of a settlement that is not over
  std::uint64_t calls_ = 0;                // calls found in windows
  HostDrops drops_;                        // drops recorded in the journal
  std::vector<ThreadInfo> threads_;
  std::unordered_map<std::uint32_t, std::uint32_t> ranges_;  // by id in the killed process, id here
  std::unordered_map<std::uint32_t, std::uint32_t> shapes_;
  std::unordered_map<std::uint32_t, std::string> kernel_names_;
  std::unordered_map<std::uint64_t, std::uint32_t> pointers_;
  std::unordered_map<std::uint64_t, BlockPosition> taken_;  // position up to which it was taken, by sequence
  std::unordered_set<std::uint64_t> taken_buffers_;
  bool delivered_ = false;  // all records have been delivered before the next settlement
};

}  // namespace inject::recovery
