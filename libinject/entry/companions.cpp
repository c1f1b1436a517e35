// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/entry/companions.h"

#include <atomic>
#include <string_view>

#include "libinject/base/log.h"
#include "libinject/control/listener.h"
#include "libinject/entry/commands.h"
#include "libinject/session/session.h"
#include "libinject/shutdown/ending.h"

namespace inject {

namespace {

// Created with the session and leaked like it.
constinit std::atomic<ControlListener*> control{nullptr};
constinit std::atomic<Ending*> ending{nullptr};

void remove_control_socket() noexcept {
  if (ControlListener* listener = control.load(std::memory_order_acquire)) listener->remove_socket();
}

void make(Session& session) noexcept {
  try {
    ending.store(new Ending(session.options(), session.base()), std::memory_order_release);
    if (!session.options().control) return;
    control.store(new ControlListener(
                      [&session](std::string_view request) { return answer_request(session, request); }),
                  std::memory_order_release);
  } catch (...) {
    Log::error_without_allocation(
        "INJECT_AFTER, INJECT_TIMEOUT and INJECT_CONTROL do nothing: out of memory");
  }
}

void start(Session& session) noexcept {
  if (Ending* following = ending.load(std::memory_order_acquire))
    following->start(session, &remove_control_socket);
  if (ControlListener* listener = control.load(std::memory_order_acquire)) listener->start();
}

void note_last_window() noexcept {
  if (Ending* following = ending.load(std::memory_order_acquire)) following->note_last_window();
}

void close_in_child() noexcept {
  if (ControlListener* listener = control.load(std::memory_order_relaxed)) listener->close_in_child();
}

}  // namespace

void register_companions() noexcept {
  session_companions = {&make, &start, &note_last_window, &remove_control_socket, &close_in_child};
}

}  // namespace inject
