// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/journal/record_place.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <functional>
#include <utility>

#include "libinject/base/format.h"
#include "libinject/base/host_io.h"
#include "libinject/base/process.h"
#include "libinject/base/safe_path.h"
#include "libinject/base/text.h"

namespace inject::recovery {

namespace {

constexpr std::string_view kTitle = "libinject records\n";
constexpr std::string_view kPrefix = "records-";

/// Gets what follows `key` on the first line of `text`, and removes the line.
bool take_line(std::string_view& text, std::string_view key, std::string_view& value) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(key)) return false;
  value = text.substr(key.size(), end - key.size());
  text.remove_prefix(end + 1);
  return !value.empty();
}

bool is_one_line(std::string_view path) {
  return std::none_of(path.begin(), path.end(), [](unsigned char c) { return c < ' ' || c == 0x7F; });
}

/// The last path component of the folder for this user's record files.
std::string folder_name(uid_t user) {
  return str_format("libinject-{}", user);
}

constexpr std::time_t kNew = 60;  // seconds

/// Whether the file belongs to a process that has ended.
bool is_left_over(int folder, const char* name, pid_t pid) {
  if (pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH) return false;
  const int file = open_file_at(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  struct stat found {};
  const bool free = fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                    found.st_mtime + kNew < std::time(nullptr) && flock(file, LOCK_EX | LOCK_NB) == 0;
  close(file);
  return free;
}

std::uint64_t size_of(int folder, const char* name) {
  struct stat found {};
  return fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0 ? static_cast<std::uint64_t>(found.st_size)
                                                                 : 0;
}

}  // namespace

std::string pointer_text(const RecordPointer& pointer) {
  return str_format("{}host {}\npath {}\npid {}\nstart {}\n", kTitle, pointer.host, pointer.path, pointer.pid,
                    pointer.base_utc);
}

std::optional<RecordPointer> read_pointer(std::string_view text) {
  if (!text.starts_with(kTitle)) return std::nullopt;
  text.remove_prefix(kTitle.size());
  std::string_view host;
  std::string_view path;
  std::string_view pid;
  std::string_view start;
  RecordPointer pointer;
  if (!take_line(text, "host ", host) || !take_line(text, "path ", path) || !take_line(text, "pid ", pid) ||
      !take_line(text, "start ", start) || !text.empty() || path.front() != '/' || !is_one_line(path) ||
      !is_one_line(host) || !read_number(pid, pointer.pid) || !read_number(start, pointer.base_utc)) {
    return std::nullopt;
  }
  pointer.host = host;
  pointer.path = path;
  return pointer;
}

std::vector<std::string> local_folders() {
  std::vector<std::string> places;
  const auto add = [&places](const std::string& place) {
    const std::string folder = place + "/" + folder_name(geteuid());
    if (!place.empty() && place.front() == '/' && is_one_line(place) &&
        std::find(places.begin(), places.end(), folder) == places.end()) {
      places.push_back(folder);
    }
  };
  add(environment_variable("TMPDIR").value_or(""));
  for (const char* place : {"/tmp", "/var/tmp", "/dev/shm"}) add(place);
  return places;
}

std::string local_name(std::int64_t pid, std::uint64_t base_utc) {
  return str_format("{}{}-{}", kPrefix, base_utc, pid);
}

bool is_local_path(const RecordPointer& pointer, uid_t user) {
  return pointer.path.ends_with("/" + folder_name(user) + "/" + local_name(pointer.pid, pointer.base_utc));
}

void mark_in_use(int file) noexcept {
  // Does not wait. Without the lock, the process is recognised only by its id.
  [[maybe_unused]] const int locked = flock(file, LOCK_SH | LOCK_NB);
}

void remove_left_over(const std::string& folder) {
  const ParentFolder parent(folder + "/.");
  const int opened =
      parent.is_open() ? openat(parent.descriptor(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  DIR* files = opened < 0 ? nullptr : fdopendir(opened);
  if (files == nullptr) {
    if (opened >= 0) close(opened);
    return;
  }
  struct statvfs disk {};
  const std::uint64_t most =
      fstatvfs(opened, &disk) == 0 ? std::uint64_t{disk.f_blocks} * disk.f_frsize / kKeptShare : 0;
  std::vector<std::pair<std::uint64_t, std::string>> dead;
  while (const dirent* file = readdir(files)) {
    const std::string_view name(file->d_name);
    const std::size_t dash = name.rfind('-');
    std::uint64_t start = 0;
    pid_t pid = 0;
    if (!name.starts_with(kPrefix) || dash < kPrefix.size() ||
        !read_number(name.substr(kPrefix.size(), dash - kPrefix.size()), start) ||
        !read_number(name.substr(dash + 1), pid)) {
      continue;
    }
    if (is_left_over(opened, file->d_name, pid)) dead.emplace_back(start, name);
  }
  std::sort(dead.begin(), dead.end(), std::greater<>());
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < dead.size(); ++i) {
    const char* const name = dead[i].second.c_str();
    bytes += size_of(opened, name);
    if (i >= kMinKept && bytes > most) unlinkat(opened, name, 0);
  }
  closedir(files);
}

}  // namespace inject::recovery
