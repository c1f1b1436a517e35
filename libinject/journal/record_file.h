// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "libinject/base/host_io.h"
#include "libinject/base/safe_path.h"
#include "libinject/journal/format.h"
#include "libinject/journal/journal.h"
#include "libinject/record/buffers.h"
#include "libinject/record/control.h"
#include "libinject/record/core.h"

namespace inject::recovery {

/// The record file of a run, DIR/records, or a file on this machine if DIR is on another (record_place.h):
/// created, mapped, and removed at a clean exit. All of its blocks are allocated on the disk when it is
/// created, because a write to a mapping for which the disk has no room ends the process (SIGBUS). Used by
/// the drain thread, or whoever stands in for it.
class RecordFile {
 public:
  RecordFile() = default;
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  struct Times {
    Nanoseconds base = 0;  ///< CLOCK_MONOTONIC at CUDA's initialisation
    std::uint64_t base_utc = 0;
  };
  /// Creates the file in `folder` and moves ring, counts, buffers and journal into it. Returns false, with no
  /// file left there and the reason in `problem`, on failure. For threads with all signals blocked
  /// (RLIMIT_FSIZE).
  bool open(const std::string& folder, Core& core, ActivityBuffers& buffers, Journal& journal, Times times,
            std::string& problem);
  bool is_open() const { return live_ != nullptr; }
  Live& live() { return *live_; }
  /// Drain thread, periodically: pre-faults some more of the memory that is used first. Returns false once
  /// all of it is ready.
  bool warm();
  /// Drain thread, periodically. If a copy of the file shares its blocks (cp --reflink), the next store to a
  /// page needs a new block, and ends the process if the disk is full: so new blocks are allocated
  /// immediately, while there are some. Checks once a second. Returns false, for the first time only, if it
  /// can't.
  bool unshare_blocks();

  /// Replaces the information on the run as a whole (run_state.h) for the outputs; text longer than
  /// kInfoBytes is not kept.
  void write_info(std::string_view text);

  /// Nothing needs to be recovered. The mapping stays: threads may still write to it.
  void remove();

 private:
  bool may_make(int folder, std::size_t bytes, std::string& problem);
  /// Creates and maps the file; returns -1 on failure, see `problem`.
  int make(const ParentFolder& where, std::size_t bytes, std::string& problem);
  int make_elsewhere(const std::string& folder, std::size_t bytes, Times times, std::string& problem);

  bool unfit_ = false;  // whether the file system checked last is unsuitable
  std::string path_;
  std::string pointer_path_;  // file with the records' location; empty: there is none
  Descriptor lock_;  // of a file elsewhere, which others may take for a dead process's (mark_in_use())
  std::optional<OwnProcess> owner_;
  std::uint8_t* base_ = nullptr;
  std::uint8_t* info_ = nullptr;
  std::uint64_t info_number_ = 0;
  Live* live_ = nullptr;
  std::array<std::span<std::uint8_t>, 4> cold_{};
  // For unshare_blocks():
  bool has_reflinks_ = false;  // the file system supports them
  bool said_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t unshared_to_ = 0;  // 0: no unsharing in progress
  Nanoseconds next_look_ = 0;
};

/// Why no record file is created on a filesystem that keeps it in memory or on another machine; empty: it can
/// be created.
std::string filesystem_problem(std::uint64_t magic);

}  // namespace inject::recovery
