// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/journal/format.h"
#include "libinject/record/block_pool.h"
#include "libinject/record/buffers.h"
#include "libinject/record/thread_registry.h"

namespace inject::recovery {

/// The words of Live when the process ended.
struct LiveWords {
  bool journal_full = false;
  bool written_beyond = false;
  std::uint64_t beyond_submissions = 0;
  std::uint64_t beyond_records = 0;
  std::uint64_t written_block = 0;
  std::uint64_t written_calls = 0;
  std::uint64_t cupti_version = 0;
  std::uint64_t clock_ahead = 0;
  std::uint64_t alive = 0;
  std::array<std::uint32_t, 64> record_bytes{};
};

/// Totals of what the process's threads published and dropped in windows.
struct CountedRecords {
  std::uint64_t published_calls = 0;
  HostDrops dropped;
};

/// A record file's parsed contents. Makes no assumptions: every offset and length is checked before it is
/// used.
class Image {
 public:
  /// Keeps a reference to `bytes`. False, with the reason in `problem`, if they are not a record file that
  /// this build can read.
  bool open(std::span<const std::uint8_t> bytes, std::string& problem);

  const Header& header() const { return header_; }
  const LiveWords& live() const { return live_; }
  const CountedRecords& counted() const { return counted_; }
  /// The latest information on the run as a whole; empty if there is none.
  std::string_view info() const { return info_; }
  /// There was some, and no copy of it is intact.
  bool info_is_damaged() const { return info_damaged_; }

  /// The contents of the journal's blocks, up to the first that is damaged or has been lost …
  const std::vector<std::string_view>& blocks() const { return blocks_; }
  /// … and whether there is such a one.
  bool is_cut() const { return cut_; }

  struct QueueBlock {
    std::uint64_t sequence = 0;
    std::uint32_t thread = 0;
    BlockPosition published = 0;
    const Slot* slots = nullptr;
  };
  /// The blocks of the threads' queues, in the order in which they were taken into use.
  std::vector<QueueBlock> queue_blocks() const;

  struct Buffer {
    std::uint64_t sequence = 0;
    std::uint16_t generation = 0;
    std::span<const std::uint8_t> records;
  };
  /// CUPTI's completed buffers, in the same order.
  const std::vector<Buffer>& buffers() const { return buffers_; }
  /// Bytes of buffers that are left out, since they begin inside another one.
  std::uint64_t overlapping_bytes() const { return overlapping_bytes_; }

 private:
  bool check_parts(std::string& problem) const;
  void read_live();
  void read_counts();
  void read_info();
  void read_blocks();
  bool has_block_after(std::size_t at, std::uint64_t number) const;
  void read_buffers();
  std::span<const std::uint8_t> part(const Part& part) const {
    return bytes_.subspan(part.offset, part.bytes);
  }

  std::span<const std::uint8_t> bytes_;
  Header header_;
  LiveWords live_;
  CountedRecords counted_;
  std::string_view info_;
  std::vector<std::string_view> blocks_;
  std::vector<Buffer> buffers_;
  std::uint64_t overlapping_bytes_ = 0;
  bool info_damaged_ = false;
  bool cut_ = false;
};

}  // namespace inject::recovery
