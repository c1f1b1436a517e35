// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where a process and injectctl meet, and what they say to each other. Shared by the library and injectctl:
// nothing here needs the rest of libinject.
//
// A stream socket PID.sock in a folder that its user alone can enter. The process speaks first, one line:
//   libinject-control 1 PID
// the client answers with one of `status`, `start` and `stop`, a line; then come
//   ok  or  error: TEXT
// lines `key: value`, and a last line `end`; and the connection is closed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace inject {

constexpr std::string_view kControlGreeting = "libinject-control 1 ";
constexpr std::string_view kControlEnd = "end\n";
constexpr std::size_t kMaxControlRequestLength = 64;
constexpr std::size_t kMaxControlAnswerLength = 16 * 1024;

/// Folders that sockets may be in, the preferred one first: in $XDG_RUNTIME_DIR where that is an absolute
/// path, in /run/user/UID, in /tmp. A job often has another environment than the shell that looks for it.
std::vector<std::string> control_folders(const char* xdg_runtime_dir, uid_t user);

/// Opens `path` and makes sure that it is a folder (no link) that belongs to this user and that nobody else
/// can enter; with `create` it is made where there is none. The descriptor, or -1 with the reason in `error`,
/// which is empty where there is no such folder.
int open_control_folder(const std::string& path, bool create, std::string& error);

std::string control_socket_name(pid_t pid);

enum class SocketState { kAlive, kDead, kGone };
/// Connects to `name` in the folder. `connection` is the socket, to be closed by the caller, or -1.
SocketState connect_control_socket(int folder, const std::string& name, int& connection);

/// Makes a listening socket `name` in the folder: nobody can find it before it listens, so that a socket that
/// refuses a connection is a dead process's. The socket, or -1 and `error`.
int listen_control_socket(int folder, pid_t pid, std::string& error);

/// Processes whose sockets are in the folder, ascending; removes what dead processes have left there.
std::vector<pid_t> control_sockets(int folder);

/// The user at the other end, as the kernel knows it; false where it can't be told.
bool peer_of(int connection, uid_t& user, pid_t& pid);

}  // namespace inject
