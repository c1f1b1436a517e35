// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "libinject/analysis/idle_time.h"
#include "libinject/analysis/sample_stats.h"
#include "libinject/model/events.h"
#include "libinject/stats/key_index.h"
#include "libinject/stats/overlap.h"

namespace inject {

/// Copies of one kind on one device, between memory of the same kinds.
struct CopyRow {
  bool other = false;           ///< kinds that did not fit: fields up to target_device are meaningless
  std::uint32_t device = 0;     ///< that made the copy
  std::uint32_t operation = 0;  ///< CUpti_ActivityMemcpyKind, 0 if it has none; see direction_name()
  std::uint8_t source_memory = 0;
  std::uint8_t target_memory = 0;
  bool peer = false;
  std::uint32_t source_device = 0;  ///< of peer copies
  std::uint32_t target_device = 0;
  Totals time;
  std::uint64_t bytes = 0;
  std::uint64_t small = 0;          ///< smaller than kSmallCopy
  std::uint64_t synchronizing = 0;  ///< copies that the host waited for: see CopyStatistics::call()
  std::uint64_t small_synchronizing = 0;
  OverlapStatistics::Times overlap;  ///< with kernels of the same window on `device`
};

/// Bytes and rates of copies, and what ran meanwhile. Bounded: kinds beyond kMaxRows share a row, and of the
/// waits for copies whose records are pending only the latest kMaxWaits are kept. One thread at a time; may
/// throw std::bad_alloc.
class CopyStatistics {
 public:
  static constexpr std::uint32_t kMaxRows = 10'000;
  static constexpr std::size_t kMaxWaits = 65'536;

  CopyStatistics() { overlap_.expect_work(); }

  /// A copy, not a memset; `operation` as in CopyRow.
  void add(const TransferEvent& event, std::uint32_t operation);
  /// An outermost call. A thread's calls come in order, each before the work it submits. The host has waited
  /// for a copy if the copy's call returns after the copy ended, or if the thread synchronizes before it
  /// submits anything else and that synchronization returns after the copy ended: PyTorch's blocking copies
  /// and reads of values work that way.
  void call(const CallEvent& event, HostState state);
  void kernel(std::uint32_t window, std::uint32_t device, Nanoseconds start, Nanoseconds end) {
    overlap_.beside(window, device, start, end);
  }
  /// Nothing more will come for this window or any before it.
  void settle_window(std::uint32_t window);

  /// By descending time, then by kind.
  std::vector<CopyRow> rows() const;
  /// Device work of that window has no record: its copies are not judged for overlap.
  void lost_work(std::uint32_t window) { overlap_.lost_work(window); }
  /// Records that came too late, at least in part, to be judged for overlap.
  std::uint64_t late() const { return overlap_.late(); }

 private:
  // device, operation, kinds of memory, whether between peers, source and target device
  using Keys = KeyIndex<6>;
  /// A thread's last submission, if it is a copy.
  struct LastCopy {
    std::uint32_t window = 0;
    Nanoseconds begin = 0;  // of the call
    bool recorded = false;  // the copy's record arrived before the next call's …
    std::uint32_t row = 0;  // … and was counted in this row as not waited for
    Nanoseconds end = 0;
    bool small = false;
  };
  CopyRow& row_at(std::uint32_t index) { return index == Keys::kOther ? other_ : rows_[index]; }

  Keys keys_{kMaxRows};
  std::vector<CopyRow> rows_;
  CopyRow other_;
  OverlapStatistics overlap_{true};
  std::unordered_map<std::uint32_t, LastCopy> last_copies_;  // by thread
  // When the synchronization after a copy returned, by window, begin of the copy's call, and thread.
  std::map<std::tuple<std::uint32_t, Nanoseconds, std::uint32_t>, Nanoseconds> waits_;
};

}  // namespace inject
