// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Parses the bytes that a process and injectctl send each other (endpoint.h has the protocol): whatever they
// are, what is kept is bounded, and what is shown is text of one line. Shared by the library and injectctl.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace inject {

/// A request from the bytes received so far. At most kMaxControlRequestLength + 1 bytes have to be kept until
/// it is complete.
struct ControlRequest {
  enum class State { kIncomplete, kComplete, kTooLong };
  State state = State::kIncomplete;
  std::string_view text;  ///< without the newline
};
ControlRequest read_request(std::string_view received);

/// Adds a line `key: value` to an answer; control characters in the value become ?, and long values are
/// truncated.
void add_answer_line(std::string& answer, std::string_view key, std::string_view value);
/// The answer as sent: bounded, and with its last line.
std::string framed_answer(std::string answer);

/// Why a process's first line is not the greeting of process `pid`; empty if it is.
std::string greeting_problem(std::string_view line, pid_t pid);

/// The process's answer, without its last line and without `ok`; `error` says why there is none.
struct ControlAnswer {
  std::string text;
  std::string error;
};
/// `received` must end in a newline and kControlEnd.
ControlAnswer read_answer(std::string_view received);
/// The value of a line of an answer; `?` if there is none.
std::string answer_value(std::string_view answer, std::string_view key);
/// The answer for a terminal, one line per value.
std::string printable_answer(std::string_view answer);

}  // namespace inject
