// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/reserved_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "libinject/base/file_work.h"
#include "libinject/base/host_io.h"
#include "libinject/base/safe_path.h"

namespace inject {

namespace {

bool write_text(int file, std::string_view text) noexcept {
  for (int tries = 0; !text.empty();) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if ((written < 0 && errno != EINTR) || ++tries == kMaxTries) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::array<std::string, 2> ReservedFile::spare_names(std::string_view name) {
  const std::string hidden = "." + std::string(name);
  return {hidden + ".spare", hidden + ".last"};
}

void ReservedFile::reserve(const std::string& folder, std::string_view name) {
  path_ = folder + "/" + std::string(name);
  const auto names = spare_names(name);
  for (std::size_t i = 0; i < spares_.size(); ++i) spares_[i].path = folder + "/" + names[i];
  renew();
}

void ReservedFile::renew() {
  for (Spare& spare : spares_) {
    if (!spare.path.empty() && !spare.allocated) allocate(spare);
  }
}

void ReservedFile::allocate(Spare& spare) {
  const FileWork work;
  const QuietSignals quiet;  // RLIMIT_FSIZE
  const ParentFolder folder(spare.path);
  if (!folder.is_open()) return;
  ::unlinkat(folder.descriptor(), folder.name().c_str(), 0);
  std::string problem;
  const int file = open_output(folder, O_EXCL, problem);
  if (file < 0) return;
  struct stat made {};
  spare.allocated = allocate_file(file, kBytes) == 0 && ::fstat(file, &made) == 0;
  spare.device = made.st_dev;
  spare.inode = made.st_ino;
  ::close(file);
  // Some of its blocks may have been allocated.
  if (!spare.allocated) ::unlinkat(folder.descriptor(), folder.name().c_str(), 0);
}

// By its path, which needs no memory; that it is the same file shows that nobody has redirected the path.
// Some file systems give it another number later (FUSE, CIFS): then it must at least look like one of ours.
int ReservedFile::open_again(const Spare& spare) noexcept {
  const int file = open_file(spare.path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat found {};
  if (file < 0) return file;
  const bool known = ::fstat(file, &found) == 0 && found.st_dev == spare.device;
  const bool same = found.st_ino == spare.inode;
  const bool alike = S_ISREG(found.st_mode) && found.st_uid == ::geteuid() && found.st_nlink == 1 &&
                     found.st_size == static_cast<off_t>(kBytes);
  if (known && (same || alike)) return file;
  ::close(file);
  return -1;
}

bool ReservedFile::replace(Spare& spare, std::string_view text) noexcept {
  const FileWork work;
  const QuietSignals quiet;  // RLIMIT_FSIZE
  const int file = open_again(spare);
  spare.allocated = false;
  if (file < 0) return false;
  bool written = write_text(file, text) && ::ftruncate(file, static_cast<off_t>(text.size())) == 0;
  // Pipes and some network file systems don't support fsync: EINVAL is not a loss.
  written = written && (::fsync(file) == 0 || errno == EINVAL);
  written = (::close(file) == 0 || errno == EINTR) && written;
  return written && ::rename(spare.path.c_str(), path_.c_str()) == 0;
}

bool ReservedFile::put(std::string_view text, Write write) noexcept {
  if (text.size() > kBytes) return false;
  for (Spare& spare : spares_) {
    const bool kept = write != Write::kLast && &spare == &spares_.back();
    if (!kept && spare.allocated && replace(spare, text)) return true;
  }
  return false;
}

void ReservedFile::remove() {
  for (Spare& spare : spares_) {
    if (!spare.path.empty()) ::unlink(spare.path.c_str());
    spare = Spare();
  }
  path_.clear();
}

}  // namespace inject
