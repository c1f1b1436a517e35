// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The table of options, and the functions that read their values.
#include "libinject/config/option_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include "libinject/base/format.h"
#include "libinject/base/text.h"
#include "libinject/model/metric_samples.h"

namespace inject {

namespace {

// The file name ending that the node exporter's textfile collector requires.
constexpr std::string_view kPrometheusEnding = ".prom";

template <typename Value>
using Choice = std::pair<std::string_view, Value>;

/// Empty if `text` is none of the choices.
template <typename Value, std::size_t kCount>
std::optional<Value> chosen(std::string_view text, const Choice<Value> (&choices)[kCount]) {
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
  }
  return std::nullopt;
}

/// The items of a comma-separated list.
std::vector<std::string_view> items_of(std::string_view list) {
  std::vector<std::string_view> items;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

template <bool Options::*flag>
Problem parse_flag(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  if (value != "0" && value != "1") return "neither 0 nor 1";
  options.*flag = value == "1";
  return {};
}

/// The process's own values are filled in later; whether the pattern is valid and its variables are set is
/// known now.
template <std::string Options::*path>
Problem parse_path(std::string_view value, Options& options, const EnvironmentLookup& environment) {
  const PathResult result = expand_path(value, {1, "host", environment}, "");
  if (!result.error.empty()) return result.error;
  options.*path = value;
  return {};
}

Problem parse_out(std::string_view value, Options& options, const EnvironmentLookup& environment) {
  const PathResult result = expand_path(value, {1, "host", environment}, "");
  const std::string_view name = std::string_view(result.path).substr(result.path.rfind('/') + 1);
  if (result.error.empty() && (name.empty() || name == "." || name == ".."))
    return "a new folder cannot have this name";
  return parse_path<&Options::out>(value, options, environment);
}

Problem parse_window(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  WindowSpecResult result = parse_window_spec(value);
  if (!result.error.empty()) return result.error;
  options.window = std::move(result.spec);
  return {};
}

Problem parse_after(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  constexpr Choice<AfterAction> kActions[] = {{"continue", AfterAction::kContinue},
                                              {"interrupt", AfterAction::kInterrupt},
                                              {"exit", AfterAction::kExit}};
  const auto action = chosen(value, kActions);
  if (!action) return "not a known action";
  options.after = *action;
  return {};
}

Problem parse_timeout(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  options.timeout = 0;
  if (value == "off") return {};
  std::string error;
  if (!parse_duration(value, options.timeout, error)) return error;
  if (options.timeout == 0) return "the time is 0";
  return {};
}

Problem parse_api(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  constexpr Choice<ApiStatistics> kChoices[] = {
      {"cuda", ApiStatistics::kCuda}, {"full", ApiStatistics::kFull}, {"off", ApiStatistics::kOff}};
  const auto api = chosen(value, kChoices);
  if (!api) return "not a known choice";
  options.api = *api;
  return {};
}

Problem parse_hooks(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  constexpr Choice<HookGroups> kGroups[] = {
      {"cudart", kHookCudart}, {"cublas", kHookCublas}, {"cublaslt", kHookCublasLt}, {"cudnn", kHookCudnn},
      {"nccl", kHookNccl},     {"torch", kHookTorch},   {"python", kHookPython}};
  unsigned hooks = value == "all" ? kHookAll : 0;
  if (hooks == 0) {
    for (const std::string_view name : items_of(value)) {
      const auto group = chosen(name, kGroups);
      if (!group) return quoted(name) + " is not a group of hooks";
      hooks |= *group;
    }
  }
  options.hooks = static_cast<std::uint8_t>(hooks);
  return {};
}

Problem parse_batch(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  if (value == "auto") {
    options.loader_batches = true;
    return {};
  }
  if (value.starts_with("nvtx:")) {
    WindowSpecResult ranges = parse_window_spec(value);
    if (!ranges.error.empty()) return ranges.error;
    if (ranges.spec.every != 0 || ranges.spec.max_windows != 0)
      return "a name that ends in /EVERY or xN must be quoted: nvtx:\"NAME\"";
    options.unit_ranges = std::move(ranges.spec);
    return {};
  }
  constexpr std::uint64_t kMax = 1'000'000'000;
  std::uint64_t samples = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), samples);
  if (code == std::errc::invalid_argument || end != value.data() + value.size()) return "not a whole number";
  if (code != std::errc() || samples > kMax) return "too large";
  if (samples == 0) return "too small";
  options.batch = samples;
  return {};
}

// Base name and rollup, such as sm__cycles_active.avg.pct_of_peak_sustained_elapsed; groups may precede it.
bool is_metric_name(std::string_view name) {
  for (const char c : name) {
    const bool known =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!known) return false;
  }
  const std::size_t unit = name.find("__");
  return unit != std::string_view::npos && unit != 0 && name.find('.', unit) != std::string_view::npos &&
         name.back() != '.';
}

Problem parse_metrics(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  options.metrics = value != "off";
  std::vector<std::string>& names = options.metric_names;
  names.clear();
  if (value == "off" || value == "auto") return {};
  for (const std::string_view name : items_of(value)) {
    if (!is_metric_name(name)) return quoted(name) + " is not a metric's full name";
    if (std::find(names.begin(), names.end(), name) != names.end()) return quoted(name) + " is named twice";
    if (names.size() == kMaxMetrics) return str_format("more than {} metrics", kMaxMetrics);
    names.emplace_back(name);
  }
  return {};
}

Problem parse_metrics_interval(std::string_view value, Options& options,
                               const EnvironmentLookup& /*environment*/) {
  std::uint64_t time = 0;
  if (value.size() > 2 && value.substr(value.size() - 2) == "us") {
    const char* const end_of_number = value.data() + value.size() - 2;
    const auto [end, code] = std::from_chars(value.data(), end_of_number, time);
    if (code == std::errc::invalid_argument || end != end_of_number)
      return "not a time such as 50us or 0.5ms";
    if (code != std::errc() || time > 1'000) return "too long";
    time *= kMicrosecond;
  } else if (std::string error; !parse_duration(value, time, error)) {
    return "not a time such as 50us or 0.5ms";
  }
  if (time < 10 * kMicrosecond) return "too short";
  if (time > 1'000 * kMicrosecond) return "too long";
  options.metrics_interval = time;
  return {};
}

Problem parse_trace(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  constexpr Choice<TraceFormats> kFormats[] = {{"csv", kTraceCsv}, {"chrome", kTraceChrome}};
  unsigned formats = 0;
  if (value != "off") {
    for (const std::string_view name : items_of(value)) {
      const auto format = chosen(name, kFormats);
      if (!format) return name == value ? "not a known format" : quoted(name) + " is not a known format";
      formats |= *format;
    }
  }
  options.trace = static_cast<std::uint8_t>(formats);
  return {};
}

Problem parse_summary(std::string_view value, Options& options, const EnvironmentLookup& environment) {
  options.summary_file.clear();
  // Not files of these names, which nobody intends; ./stdout would be one.
  std::string lower(value);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (lower == "stdout") return "stdout is the program's own";
  if ((lower == "stderr" || lower == "off") && lower != value) return lower + " is written in lower case";
  options.summary = value == "stderr" ? SummaryTarget::kStderr
                    : value == "off"  ? SummaryTarget::kOff
                                      : SummaryTarget::kFile;
  if (options.summary != SummaryTarget::kFile) return {};
  return parse_path<&Options::summary_file>(value, options, environment);
}

constexpr std::size_t kKilobyte = std::size_t{1} << 10;
constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kGigabyte = std::size_t{1} << 30;

template <std::size_t Options::*size, std::size_t smallest>
Problem parse_size(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  constexpr std::size_t kLargest = 4 * kGigabyte;
  std::string_view digits = value;
  unsigned shift = 0;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k':
      case 'K':
        shift = 10;
        break;
      case 'm':
      case 'M':
        shift = 20;
        break;
      case 'g':
      case 'G':
        shift = 30;
        break;
      default:
        break;
    }
    if (shift != 0) digits.remove_suffix(1);
  }
  std::size_t number = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || end != digits.data() + digits.size() || code == std::errc::invalid_argument) {
    return "not a size such as 65536, 512K, 16M or 1G";
  }
  if (code != std::errc() || number > (std::numeric_limits<std::size_t>::max() >> shift) ||
      (number << shift) > kLargest) {
    return "too large";
  }
  if ((number << shift) < smallest) return "too small";
  options.*size = number << shift;
  return {};
}

Problem parse_prom(std::string_view value, Options& options, const EnvironmentLookup& environment) {
  const PathResult result = expand_path(value, {1, "host", environment}, "");
  // The node exporter silently ignores any other name.
  if (result.error.empty() && !result.path.ends_with(kPrometheusEnding))
    return "the name does not end in .prom";
  return parse_path<&Options::prometheus_file>(value, options, environment);
}

Problem parse_log(std::string_view value, Options& options, const EnvironmentLookup& /*environment*/) {
  constexpr Choice<LogLevel> kLevels[] = {
      {"trace", LogLevel::kTrace}, {"debug", LogLevel::kDebug},       {"info", LogLevel::kInfo},
      {"warn", LogLevel::kWarn},   {"warning", LogLevel::kWarn},      {"error", LogLevel::kError},
      {"err", LogLevel::kError},   {"critical", LogLevel::kCritical}, {"off", LogLevel::kOff}};
  const auto level = chosen(value, kLevels);
  if (!level) return "not a level";
  options.log_level = *level;
  return {};
}

constexpr auto kParseLogFile = parse_path<&Options::log_file>;
constexpr auto kParseIterRecord = parse_path<&Options::iteration_record>;
constexpr auto kParseRecover = parse_flag<&Options::recover>;
constexpr auto kParseControl = parse_flag<&Options::control>;
constexpr auto kParseMetricsTimeline = parse_flag<&Options::metrics_timeline>;
constexpr auto kParseHelp = parse_flag<&Options::help>;
constexpr auto kParseRing = parse_size<&Options::ring_bytes, 64 * kKilobyte>;
constexpr auto kParseBuffers = parse_size<&Options::buffer_bytes, kMegabyte>;

constexpr Option kOptions[] = {
#define INJECT_OPTION(variable, parse, default_value, accepted, help) \
  {{#variable, default_value, accepted, help}, parse},
#include "libinject/config/options.def"
};

constexpr auto kInfos = [] {
  std::array<OptionInfo, std::size(kOptions)> infos{};
  for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = kOptions[i].info;
  return infos;
}();

}  // namespace

std::span<const Option> options() {
  return kOptions;
}

std::span<const OptionInfo> option_table() {
  return kInfos;
}

}  // namespace inject
