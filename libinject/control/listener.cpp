// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/control/listener.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/host_io.h"
#include "libinject/base/log.h"
#include "libinject/control/conversation.h"
#include "libinject/control/endpoint.h"
#include "libinject/record/internal_thread.h"

namespace inject {

namespace {

constexpr Nanoseconds kPatience = 2'000 * kMillisecond;

// An answer always fits into the empty buffer of a new connection, so this never waits.
void send_line(const Descriptor& socket, std::string_view text) noexcept {
  const int number = socket.get();
  if (number >= 0) (void)!::send(number, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

bool ControlListener::start() noexcept {
  const int failed = start_internal_thread(&entry, this);
  if (failed != 0) Log::warn(ThreadProblem("injectctl cannot reach this process", failed).text());
  return failed == 0;
}

void* ControlListener::entry(void* listener) noexcept {
  enter_internal_thread();
  auto* self = static_cast<ControlListener*>(listener);
  try {
    if (self->listen()) {
      self->serve();
      self->remove_socket();
      Log::warn("the program has closed the control socket: injectctl can no longer reach this process");
    }
  } catch (...) {
    self->remove_socket();  // no memory
  }
  return nullptr;
}

bool ControlListener::listen() {
  std::string problems;
  for (const std::string& path : control_folders(std::getenv("XDG_RUNTIME_DIR"), geteuid())) {
    std::string error;
    const int folder = open_control_folder(path, true, error);
    if (folder >= 0) {
      control_sockets(folder);  // removes those of dead processes
      const MutexLock lock(mutex_);
      if (!ended_) listening_ = Descriptor(listen_control_socket(folder, getpid(), error));
      close(folder);
      if (ended_) return false;
      if (listening_.is_open()) {
        folder_ = path;
        return true;
      }
    }
    problems.append(problems.empty() ? "" : "; ").append(error);
  }
  Log::warn("injectctl cannot reach this process: " + problems);
  return false;
}

void ControlListener::serve() {
  std::array<pollfd, kMaxClients + 1> wanted;
  for (int tries = 0; tries < kMaxTries;) {
    const Nanoseconds time = now();
    Nanoseconds wake = ~Nanoseconds{0};
    bool room = false;
    for (std::size_t i = 0; i < kMaxClients; ++i) {
      Client& client = clients_[i];
      if (client.socket.is_open() && (client.socket.get() < 0 || time >= client.deadline)) {
        read_late_request(client);
        drop(client);
      }
      // poll() ignores negative descriptors.
      wanted[i] = {client.socket.is_open() ? client.socket.get() : -1, POLLIN, 0};
      if (client.socket.is_open()) {
        wake = std::min(wake, client.deadline);
      } else {
        room = true;
      }
    }
    const int listening = listening_.get();
    if (listening < 0) return;
    // If there is no room, further clients wait in the socket's queue.
    wanted[kMaxClients] = {room ? listening : -1, POLLIN, 0};
    const int timeout =
        wake == ~Nanoseconds{0} ? -1 : static_cast<int>((wake - time + kMillisecond - 1) / kMillisecond);
    if (poll(wanted.data(), wanted.size(), timeout) < 0) {
      if (errno != EINTR) return;
      ++tries;
      continue;
    }
    tries = 0;
    for (std::size_t i = 0; i < kMaxClients; ++i) {
      if (clients_[i].socket.is_open() && wanted[i].revents != 0 && !read_request(clients_[i]))
        drop(clients_[i]);
    }
    if ((wanted[kMaxClients].revents & POLLIN) != 0) {
      accept_client();
    } else if (wanted[kMaxClients].revents != 0) {
      return;
    }
  }
}

// For a client whose time is over: its request may have arrived in time while another client's answer took
// long.
void ControlListener::read_late_request(Client& client) {
  pollfd wanted{client.socket.get(), POLLIN, 0};
  // A client that has given up has hung up.
  if (poll(&wanted, 1, 0) > 0 && wanted.revents == POLLIN) read_request(client);
}

void ControlListener::accept_client() {
  const int listening = listening_.get();
  if (listening < 0) return;
  const int number = [listening] {
    const StandardDescriptors standard;
    return above_standard(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }();
  if (number < 0) {
    // Usually out of descriptors: the client stays in the queue, and poll() would return immediately.
    if (errno != EAGAIN && errno != ECONNABORTED) sleep_for(100 * kMillisecond);
    return;
  }
  uid_t user = 0;
  pid_t pid = 0;
  const auto free = std::find_if(clients_.begin(), clients_.end(),
                                 [](const Client& client) { return !client.socket.is_open(); });
  // The folder keeps other users out; anyone who got past it, including root, is not answered.
  if (!peer_of(number, user, pid) || user != geteuid() || free == clients_.end()) {
    close(number);
    return;
  }
  free->socket = Descriptor(number);
  free->deadline = now() + kPatience;
  free->request.clear();
  send_line(free->socket, str_format("{}{}\n", kControlGreeting, getpid()));
}

bool ControlListener::read_request(Client& client) {
  std::array<char, kMaxControlRequestLength + 2> part;
  const int number = client.socket.get();
  const ssize_t n = number < 0 ? 0 : recv(number, part.data(), part.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) return false;
  client.request.append(part.data(), static_cast<std::size_t>(n));
  const ControlRequest request = ::inject::read_request(client.request);
  if (request.state == ControlRequest::State::kIncomplete) return true;
  send_line(client.socket, framed_answer(request.state == ControlRequest::State::kComplete
                                             ? answer_(request.text)
                                             : "error: the request is too long\n"));
  return false;
}

void ControlListener::drop(Client& client) noexcept {
  const int number = client.socket.get();
  client.socket = Descriptor();
  if (number >= 0) close(number);
}

void ControlListener::close_in_child() noexcept {
  const auto close_own = [](const Descriptor& socket) {
    if (const int number = socket.is_open() ? socket.get() : -1; number >= 0) close(number);
  };
  for (const Client& client : clients_) close_own(client.socket);
  close_own(listening_);
}

void ControlListener::remove_socket() noexcept {
  try {
    const MutexLock lock(mutex_);
    ended_ = true;
    if (folder_.empty()) return;
    std::string error;
    const int folder = open_control_folder(folder_, false, error);
    if (folder >= 0) {
      unlinkat(folder, control_socket_name(getpid()).c_str(), 0);
      close(folder);
    }
    folder_.clear();
  } catch (...) {
    // It stays, and whoever finds it removes it.
  }
}

}  // namespace inject
