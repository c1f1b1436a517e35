// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"
#include "libinject/base/mutex.h"

namespace inject {

/// Listens for injectctl, on a thread of its own, until the process ends (INJECT_CONTROL=1). Serves several
/// clients at once, each with two seconds for its request. Never destroyed.
class ControlListener {
 public:
  /// Answers `status`, `start` or `stop` with "ok" or "error: TEXT", and lines `key: value`.
  using Answer = std::function<std::string(std::string_view request)>;

  explicit ControlListener(Answer answer) : answer_(std::move(answer)) {}
  ControlListener(const ControlListener&) = delete;
  ControlListener& operator=(const ControlListener&) = delete;

  /// Returns false, and logs a warning, if no thread can be created.
  bool start() noexcept;
  /// The process ends: removes its socket.
  void remove_socket() noexcept;
  /// In a child after fork(), which may come at any time: closes the parent's connections, as far as their
  /// numbers are still theirs. Makes system calls only.
  void close_in_child() noexcept;

 private:
  static constexpr std::size_t kMaxClients = 8;
  struct Client {
    Descriptor socket;
    Nanoseconds deadline = 0;
    std::string request;
  };

  static void* entry(void* listener) noexcept;
  bool listen();
  void serve();
  void accept_client();
  bool read_request(Client& client);  // false if the client is finished
  void read_late_request(Client& client);
  void drop(Client& client) noexcept;

  Answer answer_;
  Descriptor listening_;
  std::array<Client, kMaxClients> clients_;
  Mutex mutex_;
  bool ended_ INJECT_GUARDED_BY(mutex_) = false;
  std::string folder_ INJECT_GUARDED_BY(mutex_);  // of the socket, empty if there is none
};

}  // namespace inject
