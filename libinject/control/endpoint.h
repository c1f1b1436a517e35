// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Where a process and injectctl connect, and their protocol. Shared by the library and injectctl: nothing
// here needs the rest of libinject.
//
// A stream socket PID.sock in a folder that only its user can enter. The process sends the first line:
//   libinject-control 1 PID
// The client answers with a line `status`, `start` or `stop`. Then the process sends
//   ok  or  error: TEXT
// lines `key: value`, and a last line `end`, and closes the connection.
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

/// Folders that may contain sockets, in order of preference: in $XDG_RUNTIME_DIR if that is an absolute path,
/// in /run/user/UID, in /tmp. A job often has a different environment from the shell that looks for it.
std::vector<std::string> control_folders(const char* xdg_runtime_dir, uid_t user);

/// Opens `path` and ensures that it is a folder (not a link) that belongs to this user and that nobody else
/// can enter; with `create`, it is created if it does not exist. Returns the descriptor, or -1 with the
/// reason in `error`, which is empty if there is no such folder.
int open_control_folder(const std::string& path, bool create, std::string& error);

std::string control_socket_name(pid_t pid);

enum class SocketState { kAlive, kDead, kGone };
/// Connects to `name` in the folder. `connection` is the socket, to be closed by the caller, or -1.
SocketState connect_control_socket(int folder, const std::string& name, int& connection);

/// Creates a listening socket in the folder: nobody can find it before it listens, so a socket that refuses
/// connections is a dead process's. Returns the socket, or -1 and `error`.
int listen_control_socket(int folder, pid_t pid, std::string& error);

/// Returns the processes whose sockets are in the folder, ascending; removes those of dead processes.
std::vector<pid_t> control_sockets(int folder);

/// The user and process at the other end, according to the kernel; false if unknown.
bool peer_of(int connection, uid_t& user, pid_t& pid);

}  // namespace inject
