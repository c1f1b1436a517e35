// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Programs for the tests of Session. A process can have only one session, so each program is a child of the
// test's process.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "libinject/session/session.h"

namespace inject {

/// Records a failed expectation in the child, which makes the parent's test fail.
#define EXPECT(condition) inject::expect(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
void expect(bool met, const char* text, const char* file, int line);

/// Waits for the condition, at most one minute; false if it stays false.
bool comes(const std::function<bool()>& condition);

/// The child's session, created on first use.
Session& session();
/// A call of the program that passes a hook.
void call();
/// Waits until the window is open, which may take longer on a busy machine than the program's thread waits.
void start();
void stop();

/// What a program left behind.
struct Left {
  int status = -1;
  std::vector<std::string> unmet;  ///< failed expectations
  std::vector<std::string> log;
  nlohmann::json run;  ///< run.json; null if there is no folder
  std::map<std::string, std::string> files;

  bool said(std::string_view text) const { return times_said(text) != 0; }
  std::size_t times_said(std::string_view text) const;
  std::vector<std::string> reasons() const;
  /// A column of window_sum.csv: one number per window.
  std::vector<int> by_window(const std::string& column) const;
  const nlohmann::json& window(std::size_t number) const { return run.at("windows").at(number - 1); }
};

/// Runs the program in a process of its own, in an empty folder, with these variables. INJECT_ variables of
/// the test's own environment are not passed on. The program ends by exit().
Left play(const std::map<std::string, std::string>& variables, const std::function<void()>& program);
/// Runs it with `window` as the only variable.
Left play(const std::string& window, const std::function<void()>& program);
/// Checks that the program ran to its end and met all its expectations.
void check_end(const Left& left);

}  // namespace inject
