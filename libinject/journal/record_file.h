// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "libinject/base/host_io.h"
#include "libinject/base/safe_path.h"
#include "libinject/journal/format.h"
#include "libinject/journal/journal.h"
#include "libinject/record/buffers.h"
#include "libinject/record/core.h"

namespace inject::recovery {

/// The file DIR/records of a run, or one on this machine if DIR is on another (record_place.h): made, mapped,
/// and removed at a clean end. Made whole, every block of it
/// allocated on the disk, because a write to a mapping for which the disk has no room ends the process
/// (SIGBUS). Used by the drain thread, or whoever stands in for it.
class RecordFile {
 public:
  RecordFile() = default;
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  struct Times {
    Nanoseconds base = 0;  ///< CLOCK_MONOTONIC at CUDA's initialisation
    std::uint64_t base_utc = 0;
  };
  /// Makes the file in `folder` and has ring, counts, buffers and journal live in it. False, with no file
  /// there, and why. For threads with all signals blocked (RLIMIT_FSIZE).
  bool open(const std::string& folder, Core& core, ActivityBuffers& buffers, Journal& journal, Times times,
            std::string& problem);
  bool is_open() const { return live_ != nullptr; }
  Live& live() { return *live_; }
  /// Drain thread, now and then: makes some more of the memory that is used first ready to be written to.
  /// False once all of it is.
  bool warm();
  /// Drain thread, now and then. Where a copy of the file shares its blocks (cp --reflink), the next store to
  /// a page needs a new block, and ends the process if the disk has none: so blocks are taken at once, while
  /// there are some. It looks once a second. False, for the first time only, if it can't.
  bool unshare_blocks();

  /// What the outputs say of the run as a whole (run_state.h), instead of what was said before; what is
  /// longer than kInfoBytes is not kept.
  void write_info(std::string_view text);

  /// Nothing needs to be recovered. The mapping stays: threads may still write to it.
  void remove();

 private:
  bool may_make(int folder, std::size_t bytes, std::string& problem);
  /// The file, made and mapped; -1: see `problem`.
  int make(const FolderAbove& where, std::size_t bytes, std::string& problem);
  int make_elsewhere(const std::string& folder, std::size_t bytes, Times times, std::string& problem);

  bool unfit_ = false;  // the file system that was looked at last
  std::string path_;
  std::string pointer_path_;  // of the file that says where the records are; empty: beside it
  Descriptor lock_;  // of a file elsewhere, which others may take for a dead process's (mark_in_use())
  pid_t owner_ = 0;
  std::uint8_t* base_ = nullptr;
  std::uint8_t* info_ = nullptr;
  std::uint64_t info_number_ = 0;
  Live* live_ = nullptr;
  std::array<std::span<std::uint8_t>, 4> cold_{};
  // Of unshare_blocks().
  bool has_reflinks_ = false;  // the file system has them
  bool said_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t unshared_to_ = 0;  // 0: nothing is under way
  Nanoseconds next_look_ = 0;
};

/// Why no record file is made on a filesystem that keeps it in memory or on another machine; empty: it is
/// made.
std::string filesystem_problem(std::uint64_t magic);

}  // namespace inject::recovery
