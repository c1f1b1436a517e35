// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where a run's record file is: in the output folder or, if that is on another machine, on a disk or in the
// memory of this one; the output folder then has a small file with its location.
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

/// Its contents.
struct RecordPointer {
  std::string host;
  std::string path;
  std::int64_t pid = 0;        ///< Header::pid
  std::uint64_t base_utc = 0;  ///< Header::base_utc
};

std::string pointer_text(const RecordPointer& pointer);
/// Empty if `text` is not in the format of pointer_text().
std::optional<RecordPointer> read_pointer(std::string_view text);

/// This user's folders for record files on this machine, in order of preference: in $TMPDIR, /tmp, /var/tmp,
/// /dev/shm.
std::vector<std::string> local_folders();
/// The name of a process's record file there.
std::string local_name(std::int64_t pid, std::uint64_t base_utc);
/// Whether the path is that of the process's record file in one of the user's folders.
bool is_local_path(const RecordPointer& pointer, uid_t user);
/// Marks the record file as in use with a lock, for as long as the process, or a child that it forked, has it
/// open. If a program closes all descriptors, the file's mapping keeps the lock, except on an overlay.
void mark_in_use(int file) noexcept;
/// Removes files left there by killed processes that nobody has recovered, the oldest first, except for the
/// latest kMinKept and those that together take at most a share of the disk. (A killed job leaves one for
/// each rank.) Containers may share the folder and have process ids of their own: a file is kept if its
/// process is found here or its lock is held, and for one minute, as its process may not have locked it yet.
void remove_left_over(const std::string& folder);
inline constexpr std::size_t kMinKept = 8;
inline constexpr std::uint64_t kKeptShare = 10;  ///< a tenth

}  // namespace inject::recovery
