// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "libinject/config/quantities.h"

namespace inject {

enum class WindowKind : std::uint8_t {
  kAuto,
  kApi,
  kAlways,
  kOff,
  kTime,
  kLaunch,
  kIteration,
  kNvtx,
  kSignal
};

/// When windows open and close: TRIGGER[/EVERY][xN]. The unit of `start`, `count` and `every` is the
/// trigger's own: nanoseconds since cuInit for kTime, launches for kLaunch, iterations for kIteration, starts
/// for kApi, opened ranges for kNvtx, signals for kSignal.
struct WindowSpec {
  WindowKind kind = WindowKind::kAuto;
  std::uint64_t start = 0;
  std::uint64_t count = 0;        ///< length of a window; 0 if the trigger has none
  std::uint64_t every = 0;        ///< distance between the starts of two windows, 0: no repetition
  std::uint32_t max_windows = 0;  ///< 0: unbounded
  std::string name;               ///< kNvtx: the range's name, see glob_matches()
  std::string domain;             ///< kNvtx: the range's domain, empty for the default one
  int signal = 0;                 ///< kSignal: the signal's number

  bool operator==(const WindowSpec&) const = default;
};

/// `error` says what is wrong with the text and is empty if `spec` is valid.
struct WindowSpecResult {
  WindowSpec spec;
  std::string error;
};

WindowSpecResult parse_window_spec(std::string_view text);

/// Whether there is a last window, after which no other one opens by itself; true for kOff.
bool has_last(const WindowSpec& spec);

/// The spec as text; parse_window_spec() converts it back to an equal one.
std::string to_string(const WindowSpec& spec);

}  // namespace inject
