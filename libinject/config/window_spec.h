// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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
  std::uint64_t count = 0;        ///< length of a window; 0 where the trigger has none
  std::uint64_t every = 0;        ///< distance between the starts of two windows, 0: no repetition
  std::uint32_t max_windows = 0;  ///< 0: unbounded
  std::string name;               ///< kNvtx: the range's name, see glob_matches()
  std::string domain;             ///< kNvtx: its domain's, empty for the default one
  int signal = 0;                 ///< kSignal: the signal's number

  bool operator==(const WindowSpec&) const = default;
};

/// `error` says what is wrong with the text and is empty if `spec` is valid.
struct WindowSpecResult {
  WindowSpec spec;
  std::string error;
};

/// Reads the whole grammar, including triggers that window_built() rejects.
WindowSpecResult parse_window_spec(std::string_view text);

/// Whether this build can serve the trigger.
bool window_built(WindowKind kind);

/// The spec in its own grammar; parse_window_spec() reads it back to an equal one.
std::string to_string(const WindowSpec& spec);

/// "SIGUSR2", of a signal that a spec can name.
std::string signal_name(int number);

/// `text` as a time with a unit (ms, s, m, h), decimals allowed, in nanoseconds; 0 needs no unit. On failure
/// returns false and says why in `error`.
bool parse_duration(std::string_view text, std::uint64_t& nanoseconds, std::string& error);

}  // namespace inject
