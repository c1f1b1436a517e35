// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a process and injectctl make of the bytes that the other end sends (endpoint.h has the protocol):
// whatever they are, what is kept is bounded, and what is shown is text of one line. Shared by the library
// and injectctl.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace inject {

/// A request out of what has come so far. No more than kMaxControlRequestLength + 1 bytes have to be kept
/// until it is one.
struct ControlRequest {
  enum class State { kIncomplete, kComplete, kTooLong };
  State state = State::kIncomplete;
  std::string_view text;  ///< without the line's end
};
ControlRequest read_request(std::string_view received);

/// A line `key: value` of an answer; control characters in the value become ?, and long values are cut.
void add_answer_line(std::string& answer, std::string_view key, std::string_view value);
/// The answer as it is sent: bounded, with its last line.
std::string framed_answer(std::string answer);

/// Why the first line of a process is not process `pid`'s greeting, or nothing.
std::string greeting_problem(std::string_view line, pid_t pid);

/// What the process said, without its last line and without `ok`; `error` says why there is nothing.
struct ControlAnswer {
  std::string text;
  std::string error;
};
/// `received` ends in a line and kControlEnd.
ControlAnswer read_answer(std::string_view received);
/// The value of a line of an answer; `?` where there is none.
std::string answer_value(std::string_view answer, std::string_view key);
/// The answer for a terminal: a line each.
std::string printable_answer(std::string_view answer);

}  // namespace inject
