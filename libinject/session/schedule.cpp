// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/schedule.h"

#include <limits>

namespace inject {

Schedule::Schedule(const WindowSpec& spec) : spec_(spec) {}

bool Schedule::done() const {
  if (spec_.count == 0) return true;
  if (spec_.max_windows != 0 && used_ >= spec_.max_windows) return true;
  return spec_.every == 0 && used_ >= 1;
}

std::optional<Schedule::Window> Schedule::next(std::uint64_t position) {
  if (done()) return std::nullopt;
  const auto begin_of = [&](std::uint64_t i) { return spec_.start + i * spec_.every; };
  if (spec_.every != 0 && position >= begin_of(index_) + spec_.count) {
    index_ = (position - spec_.start) / spec_.every;
    if (position >= begin_of(index_) + spec_.count) ++index_;
  }
  Window window{begin_of(index_), begin_of(index_)};
  const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - window.begin;
  window.end += spec_.count < room ? spec_.count : room;
  return window;
}

void Schedule::advance() {
  ++index_;
  ++used_;
}

}  // namespace inject
