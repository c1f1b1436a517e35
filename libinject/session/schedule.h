// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <optional>

#include "libinject/config/window_spec.h"

namespace inject {

/// Where the windows of a spec lie on its own axis (nanoseconds since cuInit, launches, …):
/// START+COUNT[/EVERY][xN]. Pure arithmetic; the session advances it.
class Schedule {
 public:
  struct Window {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;  ///< first position after the window
  };

  explicit Schedule(const WindowSpec& spec);

  /// The next window: the first one that is not over at `position`; nothing if none is left. Windows that
  /// were missed altogether (the position had passed their end) don't count against xN.
  std::optional<Window> next(std::uint64_t position);
  /// A window has been used: the next one starts EVERY later.
  void advance();
  bool done() const;

 private:
  WindowSpec spec_;
  std::uint64_t index_ = 0;  // of the next window, in steps of EVERY
  std::uint32_t used_ = 0;
};

}  // namespace inject
