// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/entry/companions.h"

#include <atomic>
#include <string_view>

#include "libinject/base/log.h"
#include "libinject/control/listener.h"
#include "libinject/entry/commands.h"
#include "libinject/session/session.h"
#include "libinject/shutdown/process_terminator.h"

namespace inject {

namespace {

// Created with the session and leaked like it.
constinit std::atomic<ControlListener*> control{nullptr};
constinit std::atomic<ProcessTerminator*> process_terminator{nullptr};

void remove_control_socket() noexcept {
  if (ControlListener* listener = control.load(std::memory_order_acquire)) listener->remove_socket();
}

void make(Session& session) noexcept {
  try {
    process_terminator.store(new ProcessTerminator(session.options(), session.base()),
                             std::memory_order_release);
    if (!session.options().control) return;
    control.store(new ControlListener(
                      [&session](std::string_view request) { return answer_request(session, request); }),
                  std::memory_order_release);
  } catch (...) {
    Log::error_without_allocation(
        "INJECT_AFTER, INJECT_TIMEOUT and INJECT_CONTROL have no effect: out of memory");
  }
}

void start(Session& session) noexcept {
  if (ProcessTerminator* terminator = process_terminator.load(std::memory_order_acquire))
    terminator->start(session, &remove_control_socket);
  if (ControlListener* listener = control.load(std::memory_order_acquire)) listener->start();
}

void note_last_window() noexcept {
  if (ProcessTerminator* terminator = process_terminator.load(std::memory_order_acquire))
    terminator->note_last_window();
}

void close_in_child() noexcept {
  if (ControlListener* listener = control.load(std::memory_order_relaxed)) listener->close_in_child();
}

}  // namespace

void register_companions() noexcept {
  session_companions = {&make, &start, &note_last_window, &remove_control_socket, &close_in_child};
}

}  // namespace inject
