// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/config/options.h"

#include <algorithm>
#include <optional>

#include "libinject/base/format.h"
#include "libinject/base/text.h"
#include "libinject/config/option_table.h"

namespace inject {

namespace {

constexpr std::string_view kPrefix = "INJECT_";
// A name farther away than this is not taken for a misspelling.
constexpr std::size_t kFarthestTypo = 4;

std::string unknown_variable(std::string_view name) {
  std::size_t nearest_distance = kFarthestTypo + 1;
  std::string_view nearest;
  for (const OptionInfo& info : option_table()) {
    // The distance is at least the difference in length, so very long names cost nothing.
    if (std::max(name.size(), info.variable.size()) - std::min(name.size(), info.variable.size()) >
        kFarthestTypo)
      continue;
    const std::size_t distance = edit_distance(name, info.variable);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = info.variable;
    }
  }
  return str_format("{} is not an option of libinject{} (INJECT_HELP=1 lists them all)", quoted(name),
                    nearest.empty() ? "" : str_format("; did you mean {}?", nearest));
}

/// Warns of metric options that differ from the defaults although no metrics are collected.
void warn_of_metrics_options(const Options& options, std::vector<std::string>& warnings) {
  if (options.metrics) return;
  const std::string ignored = " has no effect without INJECT_METRICS=auto, or a list of metrics";
  if (options.metrics_interval != Options().metrics_interval)
    warnings.push_back("INJECT_METRICS_INTERVAL" + ignored);
  if (options.metrics_timeline) warnings.push_back("INJECT_METRICS_TIMELINE" + ignored);
}

}  // namespace

ParseResult parse_options(std::span<const std::string_view> environment) {
  ParseResult result;
  const EnvironmentLookup lookup = [environment](std::string_view name) -> std::optional<std::string> {
    for (const std::string_view entry : environment) {
      if (entry.size() > name.size() && entry[name.size()] == '=' && entry.substr(0, name.size()) == name) {
        return std::string(entry.substr(name.size() + 1));
      }
    }
    return std::nullopt;
  };
  for (const Option& option : options()) {
    const std::optional<std::string> given = lookup(option.info.variable);
    const std::string value = given && !given->empty() ? *given : std::string(option.info.default_value);
    result.options.in_force.emplace_back(option.info.variable, value);
    if (value.empty()) continue;
    const Problem problem = option.parse(value, result.options, lookup);
    if (problem && result.error.empty()) {
      result.error = str_format("{}={}: {}; accepted: {}; profiling is off", option.info.variable,
                                quoted(value), *problem, option.info.accepted);
    }
  }
  for (const std::string_view entry : environment) {
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.size() == entry.size() || name.substr(0, kPrefix.size()) != kPrefix) continue;
    bool known = false;
    for (const OptionInfo& info : option_table()) known = known || info.variable == name;
    if (!known) result.warnings.push_back(unknown_variable(name));
  }
  if (result.error.empty()) warn_of_metrics_options(result.options, result.warnings);
  return result;
}

ParseResult parse_options(const char* const* environment) {
  std::vector<std::string_view> entries;
  for (; environment != nullptr && *environment != nullptr; ++environment) entries.emplace_back(*environment);
  return parse_options(std::span<const std::string_view>(entries));
}

}  // namespace inject
