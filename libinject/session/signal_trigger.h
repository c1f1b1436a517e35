// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// `signal[:NAME]`: a handler that only counts, and a thread of ours that does what the signal asks for.
#pragma once

#include <string>

namespace inject {

class SignalTrigger {
 public:
  /// Called on our own thread when a signal has arrived.
  using Listener = void (*)() noexcept;

  /// Installs our handler in front of the program's, which is called after it, and starts the thread; once in
  /// a process. Logs the reason on failure.
  static bool arm(int signal, Listener listener) noexcept;

  /// Logs once if the program has replaced our handler with its own.
  static void look() noexcept;
  /// Why a run had no window; empty if that has been logged.
  static std::string why_none();

  /// In a forked child: removes every trace of us.
  static void leave_child() noexcept;
};

}  // namespace inject
