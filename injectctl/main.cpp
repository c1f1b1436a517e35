// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Opens and closes windows in processes that run under libinject with INJECT_CONTROL=1, and makes the tables
// of those that were killed.
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/base/format.h"
#include "libinject/base/out_path.h"
#include "libinject/base/text.h"
#include "libinject/config/options.h"
#include "libinject/control/conversation.h"
#include "libinject/control/endpoint.h"
#include "libinject/replay/recover.h"

namespace {

using namespace inject;

// The process answers at once, except to `start`, which waits up to a second for CUPTI to be attached.
constexpr std::chrono::seconds kPatience{5};

constexpr const char* kUsage =
    "usage: injectctl list           processes of yours that listen (INJECT_CONTROL=1), and what they are "
    "doing\n"
    "       injectctl status PID     state, window, trigger, output folder and losses of one\n"
    "       injectctl start PID      opens a window\n"
    "       injectctl stop PID       closes the open window, whoever opened it; its files follow within "
    "moments\n"
    "       injectctl recover [--keep] FOLDER\n"
    "                                makes the tables of a run whose process was killed, in its output "
    "folder;\n"
    "                                --keep leaves the file `records` there\n"
    "       injectctl check          checks the INJECT_ variables that are set: a line for each that is\n"
    "                                invalid or unknown, and for each folder that can't be written to\n"
    "       injectctl --help\n"
    "Exit status: 0; 1 if the process can't be reached or refuses, the tables can't be made, or profiling "
    "would be off;\n2 if the command line is wrong, or the output can't be written.\n";

struct Folder {
  std::string path;
  int descriptor = -1;
};

std::vector<Folder> folders() {
  std::vector<Folder> open;
  for (const std::string& path : control_folders(std::getenv("XDG_RUNTIME_DIR"), geteuid())) {
    std::string error;
    const int folder = open_control_folder(path, false, error);
    if (folder >= 0) open.push_back({path, folder});
    if (!error.empty()) std::fprintf(stderr, "injectctl: %s; skipped\n", error.c_str());
  }
  return open;
}

bool wait_for(int connection, short event, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd wanted{connection, event, 0};
    const int ready = poll(&wanted, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

/// Reads until `text` ends with `last`.
bool read_until(int connection, std::string& text, std::string_view last,
                std::chrono::steady_clock::time_point deadline) {
  std::array<char, 4096> part;
  while (!text.ends_with(last)) {
    if (text.size() > 2 * kMaxControlAnswerLength || !wait_for(connection, POLLIN, deadline)) return false;
    const ssize_t n = recv(connection, part.data(), part.size(), 0);
    if (n > 0) text.append(part.data(), static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
  }
  return true;
}

ControlAnswer talk(int connection, pid_t pid, const std::string& request) {
  ControlAnswer answer;
  uid_t user = 0;
  pid_t listener = 0;
  if (!peer_of(connection, user, listener) || user != geteuid()) {
    answer.error = "the socket is another user's";
    return answer;
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::string greeting;
  if (!read_until(connection, greeting, "\n", deadline)) {
    answer.error = "it does not answer";
    return answer;
  }
  answer.error = greeting_problem(greeting, pid);
  if (!answer.error.empty()) return answer;
  const std::string line = request + "\n";
  if (send(connection, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()) ||
      !read_until(connection, answer.text, "\n" + std::string(kControlEnd), deadline)) {
    answer.error = "it does not answer";
    return answer;
  }
  return read_answer(answer.text);
}

ControlAnswer ask(const std::vector<Folder>& where, pid_t pid, const std::string& request) {
  for (const Folder& folder : where) {
    int connection = -1;
    const SocketState state = connect_control_socket(folder.descriptor, control_socket_name(pid), connection);
    if (connection >= 0) {
      ControlAnswer answer = talk(connection, pid, request);
      close(connection);
      return answer;
    }
    if (state == SocketState::kAlive) return {"", "it can't be reached now"};
    if (state == SocketState::kDead) {
      control_sockets(folder.descriptor);  // removes the socket
      return {"", "it has ended"};
    }
  }
  return {"",
          "it does not listen, or is another user's: INJECT_CONTROL=1 must be set when it starts, and it "
          "listens only once CUDA is initialised"};
}

int list(const std::vector<Folder>& where) {
  bool any = false;
  for (const Folder& folder : where) {
    for (const pid_t pid : control_sockets(folder.descriptor)) {
      if (!any) std::printf("%8s  %-8s  %7s  %s\n", "PID", "STATE", "WINDOWS", "COMMAND");
      any = true;
      const ControlAnswer answer = ask({folder}, pid, "status");
      if (answer.error.empty()) {
        std::printf("%8d  %-8s  %7s  %s\n", static_cast<int>(pid), answer_value(answer.text, "state").c_str(),
                    answer_value(answer.text, "windows_opened").c_str(),
                    answer_value(answer.text, "command").c_str());
      } else {
        std::printf("%8d  %-8s  %7s  (%s)\n", static_cast<int>(pid), "?", "?", answer.error.c_str());
      }
    }
  }
  if (!any) std::fprintf(stderr, "injectctl: none of your processes is listening (INJECT_CONTROL=1)\n");
  return 0;
}

// The record file is mapped and read in place, so truncation or a disk error raises SIGBUS.
void end_on_bus_error(int) {
  static constexpr char kText[] =
      "injectctl: recover: the file `records` was truncated, or its disk can't be read\n";
  _exit(write(STDERR_FILENO, kText, sizeof kText - 1) < 0 ? 2 : 1);
}

int recover_folder(const std::string& folder, bool keep) {
  std::signal(SIGBUS, end_on_bus_error);
  std::signal(SIGXFSZ, SIG_IGN);  // writing past the file size limit is then an ordinary error
  const recovery::Outcome outcome = recovery::recover(folder, keep);
  if (!outcome.done) {
    std::fprintf(stderr, "injectctl: recover: %s\n", outcome.message.c_str());
    return 1;
  }
  std::printf("%s%s\n", outcome.summary.c_str(), outcome.message.c_str());
  return 0;
}

std::string expand_here(const std::string& pattern) {
  const EnvironmentLookup lookup = [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? "later" : value;
  };
  return expand_path(pattern, {getpid(), "host", lookup}, "").path;
}

// Checks whether INJECT_OUT can be created on this machine. `error`: certainly not, a file is in the way.
// `warning`: this user may not write there, which may differ on the machine where the program will run.
void check_output(const std::string& pattern, std::string& error, std::string& warning) {
  const std::string path = expand_here(pattern);
  for (std::size_t end = path.rfind('/');; end = path.rfind('/', end - 1)) {
    const std::string folder = end == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(end, 1));
    struct stat found {};
    const bool exists = stat(folder.c_str(), &found) == 0;
    if (exists && !S_ISDIR(found.st_mode)) error = quoted(folder) + " is not a folder";
    if (!exists && errno == ELOOP) error = quoted(folder) + " is a symbolic link loop";
    if (exists && S_ISDIR(found.st_mode) && access(folder.c_str(), W_OK | X_OK) != 0)
      warning = "this user may not write to " + quoted(folder);
    // If the folder does not exist yet, or its path contains a file, the parent folder decides.
    if (exists || !error.empty() || end == std::string::npos || end == 0) return;
  }
}

// What would keep a file from being written on this machine; empty if nothing. Profiling does not depend on
// it. A folder whose name has placeholders may be made later.
std::string file_problem(const std::string& pattern) {
  const std::string path = expand_here(pattern);
  struct stat found {};
  if (stat(path.c_str(), &found) == 0) {
    if (S_ISDIR(found.st_mode)) return "it is a folder";
    if (access(path.c_str(), W_OK) == 0) return {};  // a device, or a file that is written over
  }
  const std::size_t end = path.rfind('/');
  const std::string folder = end == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(end, 1));
  if (stat(folder.c_str(), &found) != 0) {
    const bool later = pattern.substr(0, pattern.rfind('/')).find('%') != std::string::npos;
    return later ? std::string() : "there is no folder " + quoted(folder);
  }
  if (!S_ISDIR(found.st_mode)) return quoted(folder) + " is not a folder";
  return access(folder.c_str(), W_OK | X_OK) != 0 ? "this user may not write to " + quoted(folder)
                                                  : std::string();
}

int check() {
  const ParseResult result = parse_options(environ, UnsetVariable::kMayComeLater);
  std::string error = result.error;
  std::string warning;
  const Options& options = result.options;
  if (error.empty() && options.window.kind != WindowKind::kOff) {
    const std::string& out = options.out;
    check_output(out, error, warning);
    for (std::string* text : {&error, &warning}) {
      if (!text->empty()) *text = str_format("INJECT_OUT={}: {}", quoted(out), *text);
    }
    if (!error.empty()) error += "; accepted: a folder to create";
  }
  if (!error.empty()) std::printf("error: %s\n", error.c_str());
  for (const std::string& each : result.warnings) std::printf("warning: %s\n", each.c_str());
  if (!warning.empty()) std::printf("warning: %s\n", warning.c_str());
  if (error.empty() && options.window.kind != WindowKind::kOff) {
    for (const auto& [name, file] :
         {std::pair<const char*, const std::string&>{"SUMMARY", options.summary_file},
          {"PROM", options.prometheus_file},
          {"LOG_FILE", options.log_file},
          {"ITER_RECORD", options.iteration_record}}) {
      const std::string problem = file.empty() ? std::string() : file_problem(file);
      if (!problem.empty())
        std::printf("warning: INJECT_%s=%s: %s\n", name, quoted(file).c_str(), problem.c_str());
    }
  }
  return error.empty() ? 0 : 1;
}

int usage_error(const std::string& problem) {
  std::fprintf(stderr, "injectctl: %s\n%s", problem.c_str(), kUsage);
  return 2;
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) return usage_error("no command");
  const std::string& command = words[0];
  if (command == "--help" || command == "-h" || command == "help") {
    std::printf("%s", kUsage);
    return 0;
  }
  if (command == "recover") {
    const bool keep = words.size() == 3 && words[1] == "--keep";
    if (words.size() != 2 && !keep) return usage_error("recover takes one folder");
    if (words.back() == "--help" || words.back() == "-h") {
      std::printf("%s", kUsage);
      return 0;
    }
    if (words.back().empty() || words.back().starts_with("--"))
      return usage_error(quoted(words.back()) + " is not a folder");
    try {
      return recover_folder(words.back(), keep);
    } catch (const std::bad_alloc&) {
      std::fprintf(stderr, "injectctl: recover: out of memory\n");
      return 1;
    }
  }
  if (command == "check") {
    if (words.size() != 1) return usage_error("check takes no arguments");
    try {
      return check();
    } catch (const std::bad_alloc&) {
      std::fprintf(stderr, "injectctl: check: out of memory\n");
      return 1;
    }
  }
  if (command == "list") return words.size() == 1 ? list(folders()) : usage_error("list takes no arguments");
  if (command != "status" && command != "start" && command != "stop") {
    return usage_error(quoted(command) + " is not a command");
  }
  if (words.size() != 2) return usage_error(command + " takes one process id");
  pid_t pid = 0;
  const std::string& number = words[1];
  if (!read_number(number, pid) || pid <= 0) {
    return usage_error(quoted(number) + " is not a process id");
  }
  const ControlAnswer answer = ask(folders(), pid, command);
  if (!answer.error.empty()) {
    std::fprintf(stderr, "injectctl: %s %d: %s\n", command.c_str(), static_cast<int>(pid),
                 answer.error.c_str());
    return 1;
  }
  std::fputs(printable_answer(answer.text).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int status = run({argv + std::min(argc, 1), argv + argc});
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "injectctl: the output can't be written\n");
  return status == 0 ? 2 : status;
}
