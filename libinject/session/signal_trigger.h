// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// `signal[:NAME]`: a handler that only counts, and a thread of ours that does what the signal asks for.
#pragma once

#include <string>

namespace inject {

class SignalTrigger {
 public:
  /// On our own thread: a signal came.
  using Listener = void (*)() noexcept;

  /// Puts our handler before the program's, which is called after it, and starts the thread; once in a
  /// process. On failure says why.
  static bool arm(int signal, Listener listener) noexcept;

  /// Says once if the program has put a handler of its own in our handler's place.
  static void look() noexcept;
  /// Of a run without a window; empty where that has been said.
  static std::string why_none();

  /// In a forked child, which is to be as if we had never been there.
  static void leave_child() noexcept;
};

}  // namespace inject
