// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where a run's record file is. In the output folder, or, where that is on another machine, on a disk or in
// the memory of this one; the output folder then has a small file that says where.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inject::recovery {

/// In the output folder, in place of the file `records`.
inline constexpr const char* kPointerName = "records.at";

/// What it says.
struct RecordPointer {
  std::string host;
  std::string path;
  std::int64_t pid = 0;        ///< Header::pid
  std::uint64_t base_utc = 0;  ///< Header::base_utc
};

std::string pointer_text(const RecordPointer& pointer);
/// Nothing if `text` is not as pointer_text() has it.
std::optional<RecordPointer> read_pointer(std::string_view text);

/// This user's folders for record files on this machine, the best first: in $TMPDIR, /tmp, /var/tmp,
/// /dev/shm.
std::vector<std::string> local_folders();
/// The name of a process's record file there.
std::string local_name(std::int64_t pid, std::uint64_t base_utc);
/// Whether the path is that of the process's record file in such a folder of the user's.
bool is_local_path(const RecordPointer& pointer, uid_t user);
/// Says that the record file is in use, as long as the process, or a child that it forked, has it open: by a
/// lock. Where a program closes all descriptors the file's mapping keeps it, but on an overlay.
void mark_in_use(int file) noexcept;
/// Removes files there that killed processes have left and nobody has recovered: the oldest, until the others
/// take a share of the disk, or are kMinKept. (Of a job that is killed there is one for each rank.)
/// Containers may share the folder and have process ids of their own: a file is left where its process is
/// found here or its lock is held, and for a minute, as its process may not have locked it yet.
void remove_left_over(const std::string& folder);
inline constexpr std::size_t kMinKept = 8;
inline constexpr std::uint64_t kKeptShare = 10;  ///< a tenth

}  // namespace inject::recovery
