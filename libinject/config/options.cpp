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

/// How many letters of a name may be wrong: a third, since any short name is close to another one.
std::size_t most_typos(std::size_t letters) {
  return std::max<std::size_t>(1, letters / 3);
}

/// The option that a name was probably meant to be; empty if none is close.
std::string_view nearest_option(std::string_view name) {
  std::string word(name.substr(kPrefix.size()));
  for (char& c : word) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::string_view nearest;
  std::size_t nearest_distance = std::string_view::npos;
  std::string_view beginning;
  for (const OptionInfo& info : option_table()) {
    const std::string_view option = info.variable.substr(kPrefix.size());
    // For example INJECT_OUTPUT, INJECT_LOGGING.
    if (word.starts_with(option) && info.variable.size() > beginning.size()) beginning = info.variable;
    const std::size_t most = most_typos(std::min(word.size(), option.size()));
    // The distance is at least the difference in length, so very long names cost nothing.
    if (std::max(word.size(), option.size()) - std::min(word.size(), option.size()) > most) continue;
    const std::size_t distance = edit_distance(word, option);
    if (distance <= most && distance < nearest_distance) {
      nearest_distance = distance;
      nearest = info.variable;
    }
  }
  return nearest.empty() ? beginning : nearest;
}

std::string unknown_variable(std::string_view name) {
  const std::string_view nearest = nearest_option(name);
  return str_format("{} is not an option of libinject{} (INJECT_HELP=1 lists them all)", quoted(name),
                    nearest.empty() ? "" : str_format("; did you mean {}?", nearest));
}

/// Warns about metric options that differ from the defaults although no metrics are collected.
void warn_of_metrics_options(const Options& options, std::vector<std::string>& warnings) {
  if (options.metrics) return;
  const std::string ignored = " has no effect without INJECT_METRICS=auto, or a list of metrics";
  if (options.metrics_interval != Options().metrics_interval)
    warnings.push_back("INJECT_METRICS_INTERVAL" + ignored);
  if (options.metrics_timeline) warnings.push_back("INJECT_METRICS_TIMELINE" + ignored);
}

/// Warns if INJECT_AFTER never applies.
void warn_without_last_window(const Options& options, std::vector<std::string>& warnings) {
  if (options.after == AfterAction::kContinue || options.timeout != 0 || has_last(options.window)) return;
  warnings.push_back(str_format(
      "INJECT_AFTER has no effect: with INJECT_WINDOW={0} there is no last window; use {0}x1, or set "
      "INJECT_TIMEOUT",
      to_string(options.window)));
}

}  // namespace

ParseResult parse_options(std::span<const std::string_view> environment, UnsetVariable unset) {
  ParseResult result;
  const EnvironmentLookup lookup = [environment](std::string_view name) -> std::optional<std::string> {
    for (const std::string_view entry : environment) {
      if (entry.size() > name.size() && entry[name.size()] == '=' && entry.substr(0, name.size()) == name) {
        return std::string(entry.substr(name.size() + 1));
      }
    }
    return std::nullopt;
  };
  const EnvironmentLookup variable = [&](std::string_view name) -> std::optional<std::string> {
    std::optional<std::string> value = lookup(name);
    if (!value && unset == UnsetVariable::kMayComeLater) value = "later";
    return value;
  };
  for (const Option& option : options()) {
    const std::optional<std::string> given = lookup(option.info.variable);
    const std::string value = given && !given->empty() ? *given : std::string(option.info.default_value);
    result.options.in_force.emplace_back(option.info.variable, value);
    if (value.empty()) continue;
    const Problem problem = option.parse(value, result.options, variable);
    if (problem && result.error.empty()) {
      result.error = str_format("{}={}: {}; accepted: {}", option.info.variable, quoted(value), *problem,
                                option.info.accepted);
    }
  }
  for (const std::string_view entry : environment) {
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.size() == entry.size() || name.substr(0, kPrefix.size()) != kPrefix) continue;
    bool known = false;
    for (const OptionInfo& info : option_table()) known = known || info.variable == name;
    if (!known) result.warnings.push_back(unknown_variable(name));
  }
  if (result.error.empty()) {
    warn_of_metrics_options(result.options, result.warnings);
    warn_without_last_window(result.options, result.warnings);
  }
  return result;
}

ParseResult parse_options(const char* const* environment, UnsetVariable unset) {
  std::vector<std::string_view> entries;
  for (; environment != nullptr && *environment != nullptr; ++environment) entries.emplace_back(*environment);
  return parse_options(std::span<const std::string_view>(entries), unset);
}

}  // namespace inject
