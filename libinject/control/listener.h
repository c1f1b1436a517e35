// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "libinject/base/clock.h"
#include "libinject/base/host_io.h"
#include "libinject/base/mutex.h"

namespace inject {

/// Listens for injectctl, on a thread of its own, to the end of the process (INJECT_CONTROL=1). Several
/// clients at once, each with two seconds for its request. Never destroyed.
class ControlListener {
 public:
  /// Answers `status`, `start` or `stop`: "ok" or "error: TEXT", and lines `key: value`.
  using Answer = std::function<std::string(std::string_view request)>;

  explicit ControlListener(Answer answer) : answer_(std::move(answer)) {}
  ControlListener(const ControlListener&) = delete;
  ControlListener& operator=(const ControlListener&) = delete;

  /// False, and said so, if there can be no thread.
  bool start() noexcept;
  /// The process ends: its socket is removed.
  void remove_socket() noexcept;
  /// In a child after fork(): the parent's connections are none of its. Makes system calls only.
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
  bool read_request(Client& client);  // false if the client is done with
  void read_late_request(Client& client);
  void drop(Client& client) noexcept;
  void note_sockets() noexcept;

  Answer answer_;
  Descriptor listening_;
  std::array<Client, kMaxClients> clients_;
  // The numbers of the above, for the child of a fork at any time.
  std::array<std::atomic<int>, kMaxClients + 1> numbers_ = {};
  Mutex mutex_;
  bool ended_ INJECT_GUARDED_BY(mutex_) = false;
  std::string folder_ INJECT_GUARDED_BY(mutex_);  // of the socket, empty while there is none
};

}  // namespace inject
