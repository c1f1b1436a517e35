// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/base/safe_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "libinject/base/host_io.h"

namespace inject {

namespace {

constexpr int kFolder = O_PATH | O_DIRECTORY | O_CLOEXEC;
constexpr mode_t kFolderMode = 0700;
constexpr int kMaxLinks = 40;
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

std::string reason(int code) {
  return std::generic_category().message(code);
}

/// True if `found`, an entry of `folder`, belongs to this user or the administrator.
bool is_trusted(const struct stat& found, const struct stat& folder) {
  if (found.st_uid == geteuid() || found.st_uid == 0) return true;
  if ((folder.st_mode & kOthersWrite) != 0) return false;
  // In a container that does not map the host's administrator, his files belong to nobody.
  struct stat system {};
  return stat("/proc/sys", &system) == 0 && found.st_uid == system.st_uid;
}

/// Appends the names of `path`, the first one last, so that they are taken before those already waiting.
void add_names(std::string_view path, std::vector<std::string>& waiting) {
  while (!path.empty()) {
    const std::size_t slash = path.rfind('/');
    const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
    if (!name.empty() && name != ".") waiting.emplace_back(name);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
}

/// Why an existing file must not be written to; empty if it may. A device, such as /dev/null, must belong to
/// the administrator.
std::string why_not(int file, bool shared) {
  struct stat found {};
  if (fstat(file, &found) != 0) return reason(errno);
  if (!shared || (S_ISCHR(found.st_mode) && found.st_uid == 0)) return {};
  if (found.st_uid != geteuid()) return "it belongs to another user";
  if (S_ISREG(found.st_mode) && found.st_nlink == 1) return {};
  return "it is not a regular file, or has other hard links, in a folder that others may write to";
}

/// Truncates the file if requested, and makes it blocking from here on.
bool prepare(int file, int flags) {
  struct stat found {};
  if (fstat(file, &found) != 0) return false;
  if (S_ISREG(found.st_mode)) return (flags & O_TRUNC) == 0 || ftruncate(file, 0) == 0;
  const int status = fcntl(file, F_GETFL);
  return status >= 0 && fcntl(file, F_SETFL, status & ~O_NONBLOCK) == 0;
}

}  // namespace

// Through the other constructor, so that no descriptor stays open if memory runs out.
ParentFolder::ParentFolder(const std::string& path, Missing missing) : ParentFolder() {
  walk(path, missing);
}

ParentFolder::~ParentFolder() {
  move_to(-1);
}

void ParentFolder::move_to(int descriptor) {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = descriptor;
}

bool ParentFolder::fail(const std::string& problem) {
  move_to(-1);
  problem_ = problem;
  return false;
}

void ParentFolder::walk(const std::string& path, Missing missing) {
  const std::size_t slash = path.rfind('/');
  name_ = path.substr(slash == std::string::npos ? 0 : slash + 1);
  std::vector<std::string> waiting;
  if (slash != std::string::npos) add_names(std::string_view(path).substr(0, slash), waiting);
  std::string from = path;
  for (int links = 0;;) {
    if (!from.empty() && (from[0] == '/' || descriptor_ < 0)) {
      walked_ = from[0] == '/' ? "" : ".";
      move_to(open(from[0] == '/' ? "/" : ".", kFolder));
      if (descriptor_ < 0) {
        fail(reason(errno));
        return;
      }
    }
    if (waiting.empty()) return;
    const std::string name = std::move(waiting.back());
    waiting.pop_back();
    from.clear();
    if (!enter(name, missing, from)) return;
    if (from.empty()) continue;
    if (++links > kMaxLinks) {
      fail(reason(ELOOP));
      return;
    }
    add_names(from, waiting);
  }
}

/// Goes one folder down; if it is a link instead, sets `link` to its target and stays.
bool ParentFolder::enter(const std::string& name, Missing missing, std::string& link) {
  int next = openat(descriptor_, name.c_str(), kFolder | O_NOFOLLOW);
  if (next < 0 && errno == ENOENT && missing == Missing::kMake &&
      (mkdirat(descriptor_, name.c_str(), kFolderMode) == 0 || errno == EEXIST)) {
    next = openat(descriptor_, name.c_str(), kFolder | O_NOFOLLOW);
  }
  const int code = errno;
  struct stat here {};
  struct stat found {};
  if (fstat(descriptor_, &here) != 0) {
    if (next >= 0) close(next);
    return fail(reason(errno));
  }
  const std::string path = walked_ + "/" + name;
  if (next < 0) {
    if (fstatat(descriptor_, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISLNK(found.st_mode))
      return fail(reason(code));
    if (!is_trusted(found, here)) return fail(path + " is a link that another user has made");
    std::array<char, PATH_MAX> target;
    const ssize_t length = readlinkat(descriptor_, name.c_str(), target.data(), target.size());
    if (length <= 0) return fail(reason(length == 0 ? ENOENT : errno));
    link.assign(target.data(), static_cast<std::size_t>(length));
    return true;
  }
  const bool like_tmp = (here.st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH);
  if (like_tmp && (fstat(next, &found) != 0 || !is_trusted(found, here))) {
    close(next);
    return fail(path + " belongs to another user, in a folder that everybody may write to");
  }
  move_to(next);
  walked_ = path;
  return true;
}

bool ParentFolder::is_shared() const {
  struct stat here {};
  return fstat(descriptor_, &here) != 0 || (here.st_mode & kOthersWrite) != 0 ||
         (here.st_uid != geteuid() && here.st_uid != 0);
}

int open_output(const ParentFolder& folder, int flags, std::string& problem) {
  if (!folder.is_open()) {
    problem = folder.problem();
    return -1;
  }
  const int access = (flags & O_RDWR) != 0 ? O_RDWR : O_WRONLY;
  const int how = access | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK | (flags & O_APPEND);
  const char* name = folder.name().c_str();
  // What is created here need not be checked.
  int file = open_file_at(folder.descriptor(), name, how | O_CREAT | O_EXCL);
  if (file >= 0) return file;
  if (errno == EEXIST && (flags & O_EXCL) == 0) file = open_file_at(folder.descriptor(), name, how);
  if (file < 0) {
    problem = errno == ELOOP ? "it is a link" : reason(errno);
    return -1;
  }
  problem = why_not(file, folder.is_shared());
  if (problem.empty() && !prepare(file, flags)) problem = reason(errno);
  if (problem.empty()) return file;
  close(file);
  return -1;
}

int open_output(const std::string& path, int flags, std::string& problem) {
  return open_output(ParentFolder(path), flags, problem);
}

}  // namespace inject
