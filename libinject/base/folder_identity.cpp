// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/folder_identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "libinject/base/time.h"

namespace inject {

namespace {

// statfs(2): FUSE, SMB, and overlayfs whose layers are on different file systems.
constexpr std::uint32_t kRenumbering[] = {0x65735546, 0xFF534D42, 0xFE534D42, 0x517B, 0x794C7630};

bool may_renumber(const char* path) noexcept {
  struct statfs system {};
  return statfs(path, &system) == 0 &&
         std::find(std::begin(kRenumbering), std::end(kRenumbering),
                   static_cast<std::uint32_t>(system.f_type)) != std::end(kRenumbering);
}

}  // namespace

void FolderIdentity::note(std::string path) {
  path_ = std::move(path);
  marks_ = marks_of(path_.c_str());
}

std::optional<FolderIdentity::Marks> FolderIdentity::marks_of(const char* path) noexcept {
  struct statx found {};
  if (statx(AT_FDCWD, path, 0, STATX_TYPE | STATX_INO | STATX_BTIME, &found) != 0) return std::nullopt;
  if (!S_ISDIR(found.stx_mode)) {
    errno = ENOTDIR;
    return std::nullopt;
  }
  Marks marks;
  marks.inode = found.stx_ino;
  if ((found.stx_mask & STATX_BTIME) != 0) {
    marks.born = static_cast<std::uint64_t>(found.stx_btime.tv_sec) * kSecond + found.stx_btime.tv_nsec;
  }
  return marks;
}

// Not by the device: its number is another one once a file system has been mounted again, as automounters do.
// The number of an inode that is removed may be given to the next one, which is born later; and some file
// systems give a folder another number once they have forgotten it.
bool FolderIdentity::is_in_place() const noexcept {
  if (!marks_) return true;
  const std::optional<Marks> found = marks_of(path_.c_str());
  // After another error, whoever writes there finds out.
  if (!found) return errno != ENOENT && errno != ENOTDIR;
  if (marks_->born && found->born && *marks_->born != *found->born) return false;
  return marks_->inode == found->inode || may_renumber(path_.c_str());
}

}  // namespace inject
