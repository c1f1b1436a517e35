// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The environment, NAME=value lines: whatever it holds, options come out, or one clear line that says why
// not.
#include "libinject/config/options.h"

#include <string>
#include <vector>

#include "libinject/base/out_path.h"
#include "libinject/config/window_spec.h"
#include "tests/fuzz/fuzz.h"

using namespace inject;

namespace {

void check_window(const WindowSpec& spec) {
  const WindowSpecResult again = parse_window_spec(to_string(spec));
  fuzz::require(again.error.empty(), "a window's own text is read");
  fuzz::require(again.spec == spec, "… as the same window");
}

void check_path(std::string_view pattern, std::string_view folder) {
  PathNames names;
  names.pid = 7;
  names.host = "host";
  names.environment = [](std::string_view name) -> std::optional<std::string> {
    if (name.size() % 2 == 0) return std::nullopt;
    return std::string(name);
  };
  const PathResult path = expand_path(pattern, names, folder);
  fuzz::require(path.error.empty() == !path.path.empty(), "a path or an error");
  fuzz::require(fuzz::is_one_line(path.error), "a path's error is one line");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  std::vector<std::string> lines;
  while (!input.empty() && lines.size() < 40) {
    const std::string_view line = input.until('\n');
    // Short inputs get far: a line that names no variable is a window.
    lines.emplace_back(line.find('=') == line.npos ? "INJECT_WINDOW=" : "").append(line);
  }
  const std::vector<std::string_view> environment(lines.begin(), lines.end());
  const ParseResult result = parse_options(environment);
  fuzz::require(fuzz::is_one_line(result.error), "an error is one line");
  for (const std::string& warning : result.warnings) {
    fuzz::require(!warning.empty() && fuzz::is_one_line(warning), "a warning is one line");
  }
  if (!result.error.empty()) {
    fuzz::require(result.error.find("accepted: ") != std::string::npos, "an error says what is accepted");
    return 0;
  }
  check_window(result.options.window);
  check_path(result.options.out, "/home");

  // What is in force is what the same program would be told by it.
  std::vector<std::string> again;
  for (const auto& [name, value] : result.options.in_force) again.push_back(name + "=" + value);
  const ParseResult same = parse_options(std::vector<std::string_view>(again.begin(), again.end()));
  fuzz::require(same.error.empty(), "what is in force is read");
  fuzz::require(same.options.in_force == result.options.in_force, "… as the same options");
  return 0;
}
