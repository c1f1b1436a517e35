// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "tests/unit/session_program.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "libinject/base/clock.h"
#include "libinject/capture/hooks/frame.h"
#include "libinject/record/control.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"

namespace inject {

namespace {

constexpr unsigned kMaxSeconds = 200;
constexpr int kNoSession = 90;

/// Whether this process was forked while its parent had other threads.
bool forked_beside_threads = false;

std::string& folder_of_child() {
  static auto* const folder = new std::string;
  return *folder;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// Cells are not quoted in the files that the tests read.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

void forget_variables() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (text.substr(0, 7) == "INJECT_") names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

[[noreturn]] void be_child(const std::string& folder, const std::map<std::string, std::string>& variables,
                           const std::function<void()>& program) {
  alarm(kMaxSeconds);
  forked_beside_threads = !folder_of_child().empty();
  folder_of_child() = folder;
  forget_variables();
  // A ring of one megabyte would have no spare block while its blocks move into the record file, and calls
  // made then would be lost and counted.
  std::map<std::string, std::string> all = {{"INJECT_OUT", folder + "/out"},
                                            {"INJECT_LOG_FILE", folder + "/log"},
                                            {"INJECT_SUMMARY", "off"},
                                            {"INJECT_RING", "8M"},
                                            {"INJECT_BUFFERS", "1M"}};
  for (const auto& [name, value] : variables) all[name] = value;
  for (const auto& [name, value] : all) setenv(name.c_str(), value.c_str(), 1);
  try {
    program();
  } catch (const std::exception& error) {
    expect(false, error.what(), "an exception", 0);
  }
  // Runs the exit handlers, one of which is the session's.
  exit(0);
}

}  // namespace

void expect(bool met, const char* text, const char* file, int line) {
  if (met) return;
  std::ofstream(folder_of_child() + "/unmet", std::ios::app) << file << ':' << line << ": " << text << '\n';
}

bool comes(const std::function<bool()>& condition) {
  for (const Nanoseconds deadline = now() + 60 * kSecond; now() < deadline; usleep(500)) {
    if (condition()) return true;
  }
  return false;
}

Session& session() {
  Session* made = Session::start();
  if (made == nullptr) {
    expect(false, "there is a session", __FILE__, __LINE__);
    exit(kNoSession);
  }
  return *made;
}

void call() {
  if (control_word.load(std::memory_order_acquire) != 0) const CallFrame frame(kFn_cudaMalloc);
}

void start() {
  session().profiler_start(false);
  EXPECT(comes([] { return session().is_open(); }));
}

void stop() {
  session().profiler_stop(false);
  EXPECT(!session().is_open());
}

std::size_t Left::times_said(std::string_view text) const {
  return static_cast<std::size_t>(std::count_if(log.begin(), log.end(), [text](const std::string& line) {
    return line.find(text) != std::string::npos;
  }));
}

std::vector<std::string> Left::reasons() const {
  std::vector<std::string> found;
  if (run.is_object()) {
    for (const auto& one : run.at("windows")) found.push_back(one.at("reason"));
  }
  return found;
}

std::vector<int> Left::by_window(const std::string& column) const {
  std::vector<int> values;
  const auto file = files.find("window_sum.csv");
  if (file == files.end()) return values;
  const std::vector<std::string> lines = lines_of(file->second);
  const std::vector<std::string> headers = cells_of(lines.at(0));
  const auto at =
      static_cast<std::size_t>(std::find(headers.begin(), headers.end(), column) - headers.begin());
  const auto device =
      static_cast<std::size_t>(std::find(headers.begin(), headers.end(), "Device") - headers.begin());
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> cells = cells_of(lines[i]);
    if (cells.at(device) == "all") values.push_back(std::atoi(cells.at(at).c_str()));
  }
  return values;
}

Left play(const std::map<std::string, std::string>& variables, const std::function<void()>& program) {
  const TemporaryFolder folder;
  // Unflushed output would be written by the child as well.
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) be_child(folder.path(), variables, program);
  Left left;
  REQUIRE(child > 0);
  REQUIRE(waitpid(child, &left.status, 0) == child);
  left.unmet = lines_of(folder.read("unmet"));
  left.log = lines_of(folder.read("log"));
  const std::string out = folder.path() + "/out";
  if (std::filesystem::is_directory(out)) {
    for (const auto& entry : std::filesystem::directory_iterator(out))
      left.files[entry.path().filename()] = folder.read("out/" + entry.path().filename().string());
  }
  if (left.files.count("run.json") != 0) left.run = nlohmann::json::parse(left.files["run.json"]);
  return left;
}

Left play(const std::string& window, const std::function<void()>& program) {
  return play(std::map<std::string, std::string>{{"INJECT_WINDOW", window}}, program);
}

void check_end(const Left& left) {
  for (const std::string& unmet : left.unmet) {
    INFO(unmet);
    CHECK(false);
  }
  CHECK(left.status == 0);
}

}  // namespace inject

#ifdef __has_feature
#if __has_feature(address_sanitizer)
// AddressSanitizer's allocator is not prepared for a fork: at exit, LeakSanitizer would wait for a lock that
// one of the parent's other threads held.
extern "C" int __lsan_is_turned_off() {
  return inject::forked_beside_threads ? 1 : 0;
}
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
// glibc frees a thread's dlerror() message when the thread ends. If the process exits at that moment,
// LeakSanitizer no longer knows the thread but still finds the message.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:_dlerror_run\n";
}
#endif
