// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The control socket, at both ends: what comes from a client in parts of any size, values that the program
// chose in an answer, and a server that is not libinject.
#include "libinject/control/conversation.h"

#include <string>

#include "libinject/base/text.h"
#include "libinject/control/endpoint.h"
#include "tests/fuzz/fuzz.h"

using namespace inject;

namespace {

constexpr pid_t kPid = 4711;

/// As the listener does it; the answer says what was understood.
std::string answer_to(std::string_view sent, std::size_t part) {
  std::string received;
  for (std::size_t at = 0; at < sent.size(); at += part) {
    received.append(sent.substr(at, part));
    const ControlRequest request = read_request(received);
    if (request.state == ControlRequest::State::kIncomplete) {
      fuzz::require(received.size() <= kMaxControlRequestLength, "what is kept of a request is bounded");
      continue;
    }
    if (request.state == ControlRequest::State::kTooLong) return "too long";
    fuzz::require(request.text.size() <= kMaxControlRequestLength, "a request is bounded");
    fuzz::require(request.text.find('\n') == std::string_view::npos, "a request is one line");
    return "error: " + quoted(request.text);
  }
  return "nothing";
}

void check_request(std::string_view sent, std::size_t part) {
  const std::string answer = answer_to(sent, sent.size() + 1);
  fuzz::require(fuzz::is_one_line(answer), "a refusal is one line");
  fuzz::require(answer_to(sent, part) == answer, "a request is the same in whatever parts it comes");
}

void check_values(std::string_view first, std::string_view second) {
  std::string text = "ok\n";
  add_answer_line(text, "first", first);
  add_answer_line(text, "second", second);
  const std::string sent = framed_answer(text);
  fuzz::require(sent.size() <= kMaxControlAnswerLength + kControlEnd.size(), "an answer is bounded");
  fuzz::require(
      sent.find(kControlEnd) == sent.size() - kControlEnd.size() || sent.find("\nend\n") == sent.size() - 5,
      "an answer ends once");
  const ControlAnswer answer = read_answer(sent);
  fuzz::require(answer.error.empty(), "an answer is read back");
  for (const auto& [key, value] : {std::pair("first", first), std::pair("second", second)})
    fuzz::require(answer_value(answer.text, key) == one_line(one_line(value, 2000), 500),
                  "… with its values");
}

void check_server(std::string_view greeting, std::string_view reply) {
  fuzz::require(fuzz::is_one_line(greeting_problem(greeting, kPid)), "a greeting's problem is one line");
  const ControlAnswer answer = read_answer(reply);
  fuzz::require(fuzz::is_one_line(answer.error) && answer.error.size() <= 503, "an error is one line");
  const std::string shown = printable_answer(answer.text);
  for (std::size_t begin = 0; begin < shown.size();) {
    const std::size_t end = shown.find('\n', begin);
    fuzz::require(end != std::string::npos, "lines have an end");
    fuzz::require(fuzz::is_one_line(std::string_view(shown).substr(begin, end - begin)),
                  "what is shown is text");
    begin = end + 1;
  }
  fuzz::require(fuzz::is_one_line(answer_value(answer.text, "state")), "a value is one line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t part = 1 + input.number<std::uint8_t>() % 70;
  const std::string_view first = input.until('\0');
  const std::string_view second = input.rest();
  check_request(first, part);
  check_request(second, part);
  check_values(first, second);
  check_server(first, second);
  fuzz::require(greeting_problem(std::string(kControlGreeting) + std::to_string(kPid) + "\n", kPid).empty(),
                "its own greeting is understood");
  return 0;
}
