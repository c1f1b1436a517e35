// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/control/endpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "libinject/base/format.h"
#include "libinject/base/host_io.h"
#include "libinject/base/text.h"

namespace inject {

namespace {

constexpr std::string_view kSuffix = ".sock";
// Used until the socket listens.
constexpr std::string_view kUnfinishedSuffix = ".new";

/// Through the folder's descriptor: a link that has replaced the folder since it was checked is not followed,
/// and a long path fits.
bool address_in(int folder, const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const int length =
      std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, name.c_str());
  return length > 0 && static_cast<std::size_t>(length) < sizeof address.sun_path;
}

/// The PID in `PID<suffix>`, 0 if `name` does not have this form.
pid_t pid_of(std::string_view name, std::string_view suffix) {
  if (name.size() <= suffix.size() || name.substr(name.size() - suffix.size()) != suffix) return 0;
  name.remove_suffix(suffix.size());
  pid_t pid = 0;
  return read_number(name, pid) && pid > 0 ? pid : 0;
}

bool is_socket(int folder, const char* name) {
  struct stat file {};
  return fstatat(folder, name, &file, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(file.st_mode);
}

std::string failure(std::string_view what) {
  const int code = errno;
  return std::string(what) + ": " + std::strerror(code);
}

int open_socket() {
  const StandardDescriptors standard;
  return above_standard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

std::vector<std::string> control_folders(const char* xdg_runtime_dir, uid_t user) {
  std::vector<std::string> folders;
  if (xdg_runtime_dir != nullptr && xdg_runtime_dir[0] == '/') {
    folders.push_back(std::string(xdg_runtime_dir) + "/libinject");
  }
  const std::string usual = str_format("/run/user/{}/libinject", user);
  if (std::find(folders.begin(), folders.end(), usual) == folders.end()) folders.push_back(usual);
  folders.push_back(str_format("/tmp/libinject-{}", user));
  return folders;
}

int open_control_folder(const std::string& path, bool create, std::string& error) {
  error.clear();
  const bool made = create && mkdir(path.c_str(), 0700) == 0;
  if (create && !made && errno != EEXIST) {
    error = failure(path);
    return -1;
  }
  const int folder = open_file(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (folder < 0) {
    if (errno == ENOENT) return -1;  // NOLINT(clang-analyzer-unix.Errno): of open(), or of what moved it
    error = errno == ELOOP || errno == ENOTDIR ? path + " is not a folder" : failure(path);
    return -1;
  }
  struct stat found {};
  if (fstat(folder, &found) != 0) {
    error = failure(path);
  } else if (found.st_uid != geteuid()) {
    error = path + " belongs to another user";
  } else if ((found.st_mode & 077) != 0) {
    error = path + " is open to other users";
  } else {
    return folder;
  }
  close(folder);
  return -1;
}

std::string control_socket_name(pid_t pid) {
  return str_format("{}{}", pid, kSuffix);
}

SocketState connect_control_socket(int folder, const std::string& name, int& connection) {
  connection = -1;
  sockaddr_un address;
  if (!address_in(folder, name, address)) return SocketState::kGone;
  // Nonblocking: a process whose queue is full is alive, and nobody waits for it.
  const int made = open_socket();
  if (made < 0) return SocketState::kAlive;
  if (connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    connection = made;
    return SocketState::kAlive;
  }
  const int code = errno;
  close(made);
  if (code == ENOENT) return SocketState::kGone;
  return code == ECONNREFUSED ? SocketState::kDead : SocketState::kAlive;
}

int listen_control_socket(int folder, pid_t pid, std::string& error) {
  const std::string name = control_socket_name(pid);
  int other = -1;
  if (connect_control_socket(folder, name, other) == SocketState::kAlive) {
    // The process is in another PID namespace, such as a container's, with the same /tmp.
    if (other >= 0) close(other);
    error = name + " belongs to another process";
    return -1;
  }
  const std::string unfinished = str_format("{}{}", pid, kUnfinishedSuffix);
  unlinkat(folder, unfinished.c_str(), 0);
  sockaddr_un address;
  const int made = open_socket();
  constexpr int kWaiting = 16;
  if (made >= 0 && address_in(folder, unfinished, address) &&
      bind(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      fchmodat(folder, unfinished.c_str(), 0600, 0) == 0 && listen(made, kWaiting) == 0 &&
      renameat(folder, unfinished.c_str(), folder, name.c_str()) == 0) {
    return made;
  }
  error = failure(name);
  if (made >= 0) close(made);
  unlinkat(folder, unfinished.c_str(), 0);
  return -1;
}

std::vector<pid_t> control_sockets(int folder) {
  std::vector<pid_t> alive;
  // Needs its own descriptor, since closedir() closes it.
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = copy < 0 ? nullptr : fdopendir(copy);
  if (entries == nullptr) {
    if (copy >= 0) close(copy);
    return alive;
  }
  while (const dirent* entry = readdir(entries)) {
    const std::string name = entry->d_name;
    if (!is_socket(folder, name.c_str())) continue;
    if (const pid_t pid = pid_of(name, kSuffix); pid != 0) {
      int connection = -1;
      const SocketState state = connect_control_socket(folder, name, connection);
      if (connection >= 0) close(connection);
      if (state == SocketState::kAlive) alive.push_back(pid);
      if (state == SocketState::kDead) unlinkat(folder, name.c_str(), 0);
    } else if (const pid_t maker = pid_of(name, kUnfinishedSuffix); maker != 0) {
      if (kill(maker, 0) != 0 && errno == ESRCH) unlinkat(folder, name.c_str(), 0);
    }
  }
  closedir(entries);
  std::sort(alive.begin(), alive.end());
  return alive;
}

bool peer_of(int connection, uid_t& user, pid_t& pid) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || length != sizeof peer)
    return false;
  user = peer.uid;
  pid = peer.pid;
  return true;
}

}  // namespace inject
