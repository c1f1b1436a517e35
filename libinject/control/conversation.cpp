// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/control/conversation.h"

#include <algorithm>

#include "libinject/base/format.h"
#include "libinject/base/text.h"
#include "libinject/control/endpoint.h"

namespace inject {

namespace {

constexpr std::size_t kMaxValueLength = 2'000;
constexpr std::size_t kMaxShownLength = 500;
constexpr std::string_view kError = "error: ";
constexpr std::string_view kOk = "ok\n";

}  // namespace

ControlRequest read_request(std::string_view received) {
  // The request's end, even if it has not arrived yet.
  const std::size_t end = std::min(received.find('\n'), received.size());
  if (end > kMaxControlRequestLength) return {ControlRequest::State::kTooLong, {}};
  if (end == received.size()) return {};
  return {ControlRequest::State::kComplete, received.substr(0, end)};
}

void add_answer_line(std::string& answer, std::string_view key, std::string_view value) {
  answer.append(key).append(": ").append(one_line(value, kMaxValueLength)).append(1, '\n');
}

std::string framed_answer(std::string answer) {
  if (answer.size() > kMaxControlAnswerLength) answer = std::string(kError) + "the answer is too long\n";
  return answer.append(kControlEnd);
}

std::string greeting_problem(std::string_view line, pid_t pid) {
  if (line == str_format("{}{}\n", kControlGreeting, pid)) return {};
  if (line.ends_with('\n')) line.remove_suffix(1);
  return "it uses another version of the protocol: " + one_line(line, 80);
}

ControlAnswer read_answer(std::string_view received) {
  if (received.ends_with(kControlEnd)) received.remove_suffix(kControlEnd.size());
  if (received.starts_with(kError)) {
    received.remove_prefix(kError.size());
    return {"", one_line(received.substr(0, received.find('\n')), kMaxShownLength)};
  }
  if (!received.starts_with(kOk)) return {"", "its answer is not understood"};
  return {std::string(received.substr(kOk.size())), ""};
}

std::string answer_value(std::string_view answer, std::string_view key) {
  const std::string start = "\n" + std::string(key) + ": ";
  const std::string lines = "\n" + std::string(answer);
  const std::size_t found = lines.find(start);
  if (found == std::string::npos) return "?";
  const std::size_t begin = found + start.size();
  return one_line(std::string_view(lines).substr(begin, lines.find('\n', begin) - begin), kMaxShownLength);
}

std::string printable_answer(std::string_view answer) {
  std::string text;
  for (std::size_t begin = 0; begin < answer.size();) {
    const std::size_t end = std::min(answer.find('\n', begin), answer.size());
    text += one_line(answer.substr(begin, end - begin), kMaxControlAnswerLength) + "\n";
    begin = end + 1;
  }
  return text;
}

}  // namespace inject
