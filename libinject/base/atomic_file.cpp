// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/atomic_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "libinject/base/file_work.h"
#include "libinject/base/host_io.h"
#include "libinject/base/safe_path.h"

namespace inject {

bool OutputFile::cannot(std::string_view action, int code) {
  return cannot(action, std::generic_category().message(code));
}

bool OutputFile::cannot(std::string_view action, const std::string& reason) {
  try {
    return fail("cannot " + std::string(action) + " " + path_ + ": " + reason);
  } catch (...) {
    return fail("out of memory");  // short enough to need no allocation
  }
}

bool OutputFile::fail(std::string problem) noexcept {
  if (error_.empty()) error_ = std::move(problem);
  buffer_.clear();
  return false;
}

bool OutputFile::open(std::string path, Existing existing) {
  const FileWork work;
  path_ = std::move(path);
  const ParentFolder folder(path_);
  if (existing == Existing::kReplace && folder.is_open())
    ::unlinkat(folder.descriptor(), folder.name().c_str(), 0);
  std::string problem;
  const int flags = existing == Existing::kEmpty ? O_TRUNC : existing == Existing::kOverwrite ? 0 : O_EXCL;
  descriptor_ = Descriptor(open_output(folder, flags, problem));
  return descriptor_.is_open() || cannot("create", problem);
}

bool OutputFile::is_at(const std::string& path) const noexcept {
  struct stat open {};
  struct stat there {};
  const int descriptor = descriptor_.is_open() ? descriptor_.get() : -1;
  return descriptor >= 0 && ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

bool OutputFile::flush() {
  if (!descriptor_.is_open() || !error_.empty()) {
    buffer_.clear();
    return false;
  }
  const FileWork work;
  std::string_view rest = buffer_;
  const int descriptor = rest.empty() ? -1 : descriptor_.get();
  const std::uint64_t before = bytes_;
  for (int tries = 0; !rest.empty();) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR && ++tries < kMaxTries) continue;
      cannot("write", errno);
      // Leave no incomplete line in the file.
      if (bytes_ > before && ::ftruncate(descriptor_.get(), static_cast<off_t>(before)) == 0) bytes_ = before;
      return false;
    }
    tries = 0;
    bytes_ += static_cast<std::uint64_t>(written);
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
  return true;
}

bool OutputFile::let_others_read() {
  if (!descriptor_.is_open() || !error_.empty()) return false;
  const int descriptor = descriptor_.get();
  if (descriptor < 0) return cannot("let others read", EBADF);
  return ::fchmod(descriptor, 0644) == 0 || cannot("let others read", errno);
}

bool OutputFile::sync() {
  const FileWork work;
  if (!flush()) return false;
  const int descriptor = descriptor_.get();
  if (descriptor < 0) return cannot("sync", EBADF);
  // Pipes and some network file systems don't support fsync: EINVAL is not a loss.
  if (::fsync(descriptor) != 0 && errno != EINVAL) return cannot("sync", errno);
  return true;
}

bool OutputFile::cut(std::uint64_t bytes) {
  if (!flush()) return false;
  const int descriptor = descriptor_.get();
  if (descriptor < 0) return cannot("truncate", EBADF);
  const auto end = static_cast<off_t>(bytes);
  if (::ftruncate(descriptor, end) != 0 || ::lseek(descriptor, end, SEEK_SET) != end)
    return cannot("truncate", errno);
  bytes_ = bytes;
  return true;
}

bool OutputFile::close() {
  if (!descriptor_.is_open()) return error_.empty();
  const FileWork work;
  flush();
  // Not repeated on EINTR: on Linux the descriptor is gone already.
  if (::close(std::exchange(descriptor_, Descriptor()).get()) != 0 && errno != EINTR) cannot("close", errno);
  return error_.empty();
}

AtomicFile::AtomicFile(const std::string& folder, std::string_view name)
    : AtomicFile(folder, name, "." + std::string(name) + ".new") {}

AtomicFile::AtomicFile(const std::string& folder, std::string_view name, std::string_view temporary)
    : path_(folder + "/" + std::string(name)), temporary_(folder + "/" + std::string(temporary)) {
  // An existing one belongs to a dead process, or is a trap.
  file_.open(temporary_, OutputFile::Existing::kReplace);
}

AtomicFile::~AtomicFile() {
  file_.close();
  if (!committed_) ::unlink(temporary_.c_str());
}

bool AtomicFile::finish() {
  finished_ = file_.sync();
  finished_ = file_.close() && finished_;
  return finished_;
}

// By their paths, which needs no memory. Whoever redirects these in the meantime gains nothing: what is
// renamed has to exist under the temporary name.
bool AtomicFile::commit() noexcept {
  if (!finished_) return false;
  const FileWork work;
  committed_ = ::rename(temporary_.c_str(), path_.c_str()) == 0;
  if (committed_) return true;
  try {
    error_ = "cannot put " + path_ + " in place: " + std::generic_category().message(errno);
  } catch (...) {
    error_ = "out of memory";  // short enough to need no allocation
  }
  return false;
}

}  // namespace inject
