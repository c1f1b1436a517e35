// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Programs for the tests of Session, of which a process can have one: each program is a child of the test's.
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

/// Notes an expectation that is not met, in the child; its parent's test fails by that.
#define EXPECT(condition) inject::expect(static_cast<bool>(condition), #condition, __FILE__, __LINE__)
void expect(bool met, const char* text, const char* file, int line);

/// Waits, for a minute at most.
bool comes(const std::function<bool()>& condition);

/// The session of a child, made if there is none.
Session& session();
/// A call of the program's that passes a hook.
void call();
/// Waits for the window, which may take longer to open on a busy machine than the program's thread waits.
void start();
void stop();

/// What a program has left.
struct Left {
  int status = -1;
  std::vector<std::string> unmet;  ///< expectations
  std::vector<std::string> log;
  nlohmann::json run;  ///< run.json; null if there is no folder
  std::map<std::string, std::string> files;

  bool said(std::string_view text) const { return times_said(text) != 0; }
  std::size_t times_said(std::string_view text) const;
  std::vector<std::string> reasons() const;
  /// A column of window_sum.csv, a number for each window.
  std::vector<int> by_window(const std::string& column) const;
  const nlohmann::json& window(std::size_t number) const { return run.at("windows").at(number - 1); }
};

/// The program in a process of its own, in an empty folder, with these variables; the ones of INJECT_ that
/// the tests were started with are not passed on. The program ends by exit().
Left play(const std::map<std::string, std::string>& variables, const std::function<void()>& program);
/// … with `window` alone.
Left play(const std::string& window, const std::function<void()>& program);
/// Checks that the program has come to its end, and all that it expected.
void check_end(const Left& left);

}  // namespace inject
