// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "tests/unit/catch.h"

namespace {

std::map<std::string, std::string> options_of_the_source() {
  std::map<std::string, std::string> defaults;
#define INJECT_OPTION(variable, parse, default_value, accepted, help) defaults[#variable] = default_value;
#include "libinject/config/options.def"
  return defaults;
}

/// The default from each row `| INJECT_NAME | `default` | meaning |`; a dash stands for an empty default.
std::map<std::string, std::string> options_of_the_page() {
  std::ifstream page(INJECT_SOURCE_DIR "/docs/variables.md");
  REQUIRE(page);
  const std::regex row("\\| (INJECT_[A-Z_]+) \\| (?:`([^`]*)`|–) \\| .+ \\|");
  std::map<std::string, std::string> defaults;
  for (std::string line; std::getline(page, line);) {
    if (std::smatch match; std::regex_match(line, match, row)) defaults[match[1]] = match[2];
  }
  return defaults;
}

}  // namespace

TEST_CASE("docs/variables.md lists every option with its default", "[readme]") {
  CHECK(options_of_the_page() == options_of_the_source());
}
