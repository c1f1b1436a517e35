// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <atomic>
#include <cstdint>

namespace inject {

/// What hooks have to do beyond forwarding. Every hook reads control_word first; 0 means: forward at once.
enum ControlBits : std::uint32_t {
  kControlRecord = 1u << 0,  ///< a window is open: record calls
  kControlCount = 1u << 1,   ///< a trigger counts launches
  kControlGate = 1u << 2,    ///< CUPTI is being attached or detached: hold new launches for a moment
};

/// Constant-initialised: hooks run before our static initialisers do. Written by the window controller alone.
extern std::atomic<std::uint32_t> control_word;

}  // namespace inject
