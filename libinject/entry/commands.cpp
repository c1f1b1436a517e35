// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/entry/commands.h"

#include <unistd.h>

#include "libinject/base/clock.h"
#include "libinject/base/format.h"
#include "libinject/base/process.h"
#include "libinject/base/text.h"
#include "libinject/control/conversation.h"
#include "libinject/session/session.h"

namespace inject {

namespace {

std::string command_text() {
  std::string text;
  for (const std::string& word : command_line()) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::string losses_text(const Losses& lost) {
  return str_format(
      "host_records {}, range_records {}, activity_records {}, invalid_timestamps {}, "
      "missing_activity_records {}",
      lost.host_records, lost.range_records, lost.activity_records, lost.invalid_times, lost.missing_records);
}

std::string status_text(Session& session) {
  const Session::Status status = session.status();
  std::string text;
  add_answer_line(text, "state", status.state);
  add_answer_line(text, "window",
                  status.window == 0 ? "none" : str_format("{} ({})", status.window, status.reason));
  add_answer_line(text, "windows_opened", std::to_string(status.opened));
  add_answer_line(text, "trigger", status.trigger);
  add_answer_line(text, "output", status.folder.empty() ? "none yet" : status.folder);
  add_answer_line(text, "lost", losses_text(status.losses));
  add_answer_line(text, "seconds", std::to_string((now() - status.base) / 1'000'000'000));
  add_answer_line(text, "pid", std::to_string(getpid()));
  add_answer_line(text, "command", command_text());
  return text;
}

std::string refusal(Session::Opened result, const std::string& trigger) {
  switch (result) {
    case Session::Opened::kYes:
      break;
    case Session::Opened::kIsOpen:
      return "a window is already open";
    case Session::Opened::kByItself:
      return "INJECT_WINDOW=" + trigger + " opens its windows by itself";
    case Session::Opened::kNoMore:
      return "INJECT_WINDOW=" + trigger + " allows no further window";
    case Session::Opened::kEnding:
      return "profiling is over";
    case Session::Opened::kFailed:
      return "no window can be opened; the program's log says why";
  }
  return {};
}

}  // namespace

std::string answer_request(Session& session, std::string_view request) {
  if (request == "status") return "ok\n" + status_text(session);
  if (request == "start") {
    const Session::Opened result = session.request_window("injectctl");
    const std::string problem = refusal(result, session.status().trigger);
    if (!problem.empty()) return "error: " + problem + "\n";
    return "ok\n" + status_text(session);
  }
  if (request == "stop") {
    if (!session.user_stop()) return "error: no window is open\n";
    return "ok\n" + status_text(session);
  }
  return "error: " + quoted(request) + " is not one of status, start, stop\n";
}

}  // namespace inject
