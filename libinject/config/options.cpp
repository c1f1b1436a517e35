// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/config/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "libinject/base/out_path.h"
#include "libinject/base/text.h"
#include "libinject/model/metric_samples.h"

namespace inject {

namespace {

constexpr std::string_view kPrefix = "INJECT_";
// What the node exporter's textfile collector reads.
constexpr std::string_view kPrometheusEnding = ".prom";
// Farther away than this, a name is not a misspelling of ours.
constexpr std::size_t kFarthestTypo = 4;

/// What a parse function returns: nothing, or what is wrong with the value.
using Problem = std::optional<std::string>;

struct Parsing {
  Options& options;
  const EnvironmentLookup& environment;
};

Problem not_built(std::string_view what) {
  return std::string(what) + " is not built into this version";
}

Problem parse_window(std::string_view value, Parsing& to) {
  WindowSpecResult result = parse_window_spec(value);
  if (!result.error.empty()) return result.error;
  if (!window_built(result.spec.kind)) {
    const std::string_view trigger = value.substr(0, value.find_first_of(":x/"));
    return not_built("the trigger " + std::string(trigger));
  }
  to.options.window = std::move(result.spec);
  return {};
}

Problem parse_after(std::string_view value, Parsing& to) {
  if (value == "continue") {
    to.options.after = AfterAction::kContinue;
  } else if (value == "interrupt") {
    to.options.after = AfterAction::kInterrupt;
  } else if (value == "exit") {
    to.options.after = AfterAction::kExit;
  } else {
    return "not a known action";
  }
  return {};
}

Problem parse_timeout(std::string_view value, Parsing& to) {
  to.options.timeout = 0;
  if (value == "off") return {};
  std::string error;
  if (!parse_duration(value, to.options.timeout, error)) return error;
  if (to.options.timeout == 0) return "the time is 0";
  return {};
}

Problem parse_out(std::string_view value, Parsing& to) {
  // The process's own names come later; whether the pattern is sound, and its variables set, is known now.
  const PathResult result = expand_path(value, {1, "host", to.environment}, "");
  if (!result.error.empty()) return result.error;
  to.options.out = value;
  return {};
}

Problem parse_api(std::string_view value, Parsing& to) {
  if (value == "cuda") {
    to.options.api = ApiStatistics::kCuda;
  } else if (value == "full") {
    to.options.api = ApiStatistics::kFull;
  } else if (value == "off") {
    to.options.api = ApiStatistics::kOff;
  } else {
    return "not a known choice";
  }
  return {};
}

struct HookName {
  std::string_view name;
  HookGroups bit;
};
constexpr std::array<HookName, 5> kHookNames{{{"cudart", kHookCudart},
                                              {"cublas", kHookCublas},
                                              {"cublaslt", kHookCublasLt},
                                              {"cudnn", kHookCudnn},
                                              {"nccl", kHookNccl}}};

Problem parse_hooks(std::string_view value, Parsing& to) {
  if (value == "all") {
    to.options.hooks = kHookAll;
    return {};
  }
  std::uint8_t hooks = 0;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    const std::string_view name = value.substr(begin, end - begin);
    const HookName* found = nullptr;
    for (const HookName& known : kHookNames) {
      if (known.name == name) found = &known;
    }
    if (found == nullptr) return quoted(name) + " is not a group of hooks";
    hooks = static_cast<std::uint8_t>(hooks | found->bit);
    begin = end + 1;
  }
  to.options.hooks = hooks;
  return {};
}

Problem parse_batch(std::string_view value, Parsing& to) {
  constexpr std::uint64_t kMax = 1'000'000'000;
  std::uint64_t samples = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), samples);
  if (code == std::errc::invalid_argument || end != value.data() + value.size()) return "not a whole number";
  if (code != std::errc() || samples > kMax) return "too large";
  if (samples == 0) return "too small";
  to.options.batch = samples;
  return {};
}

// Base name and rollup, such as sm__cycles_active.avg.pct_of_peak_sustained_elapsed; groups may stand before
// it.
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

Problem parse_metrics(std::string_view value, Parsing& to) {
  to.options.metrics = value != "off";
  to.options.metric_names.clear();
  if (value == "off" || value == "auto") return {};
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    const std::string name(value.substr(begin, end - begin));
    std::vector<std::string>& names = to.options.metric_names;
    if (!is_metric_name(name)) return quoted(name) + " is not a metric's full name";
    if (std::find(names.begin(), names.end(), name) != names.end()) return quoted(name) + " is named twice";
    if (names.size() == kMaxMetrics) return "more than " + std::to_string(kMaxMetrics) + " metrics";
    names.push_back(name);
    begin = end + 1;
  }
  return {};
}

Problem parse_metrics_interval(std::string_view value, Parsing& to) {
  constexpr std::uint64_t kMicrosecond = 1'000;
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
  to.options.metrics_interval = time;
  return {};
}

Problem parse_metrics_timeline(std::string_view value, Parsing& to) {
  if (value != "0" && value != "1") return "neither 0 nor 1";
  to.options.metrics_timeline = value == "1";
  return {};
}

Problem parse_trace(std::string_view value, Parsing& to) {
  to.options.trace = 0;
  if (value == "off") return {};
  unsigned formats = 0;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    const std::string_view name = value.substr(begin, end - begin);
    if (name == "csv") {
      formats |= kTraceCsv;
    } else if (name == "chrome") {
      formats |= kTraceChrome;
    } else {
      return name == value ? "not a known format" : quoted(name) + " is not a known format";
    }
    begin = end + 1;
  }
  to.options.trace = static_cast<std::uint8_t>(formats);
  return {};
}

Problem parse_summary(std::string_view value, Parsing& to) {
  to.options.summary_file.clear();
  if (value == "stderr") {
    to.options.summary = SummaryTarget::kStderr;
  } else if (value == "off") {
    to.options.summary = SummaryTarget::kOff;
  } else {
    const PathResult result = expand_path(value, {1, "host", to.environment}, "");
    if (!result.error.empty()) return result.error;
    to.options.summary = SummaryTarget::kFile;
    to.options.summary_file = value;
  }
  return {};
}

Problem parse_size(std::string_view value, std::size_t smallest, std::size_t largest, std::size_t& bytes) {
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
      (number << shift) > largest) {
    return "too large";
  }
  if ((number << shift) < smallest) return "too small";
  bytes = number << shift;
  return {};
}

constexpr std::size_t kKilobyte = std::size_t{1} << 10;
constexpr std::size_t kMegabyte = std::size_t{1} << 20;
constexpr std::size_t kGigabyte = std::size_t{1} << 30;

Problem parse_ring(std::string_view value, Parsing& to) {
  return parse_size(value, 64 * kKilobyte, 4 * kGigabyte, to.options.ring_bytes);
}

Problem parse_buffers(std::string_view value, Parsing& to) {
  return parse_size(value, kMegabyte, 4 * kGigabyte, to.options.buffer_bytes);
}

Problem parse_recover(std::string_view value, Parsing& to) {
  if (value != "0" && value != "1") return "neither 0 nor 1";
  to.options.recover = value == "1";
  return std::nullopt;
}

Problem parse_control(std::string_view value, Parsing& to) {
  if (value != "0" && value != "1") return "neither 0 nor 1";
  to.options.control = value == "1";
  return {};
}

Problem parse_prom(std::string_view value, Parsing& to) {
  const PathResult result = expand_path(value, {1, "host", to.environment}, "");
  if (!result.error.empty()) return result.error;
  // The node exporter passes over any other name without a word.
  if (result.path.size() < kPrometheusEnding.size() ||
      result.path.compare(result.path.size() - kPrometheusEnding.size(), kPrometheusEnding.size(),
                          kPrometheusEnding) != 0)
    return "the name does not end in .prom";
  to.options.prometheus_file = value;
  return {};
}

struct LevelName {
  std::string_view name;
  LogLevel level;
};
constexpr std::array<LevelName, 9> kLevelNames{{{"trace", LogLevel::kTrace},
                                                {"debug", LogLevel::kDebug},
                                                {"info", LogLevel::kInfo},
                                                {"warn", LogLevel::kWarn},
                                                {"warning", LogLevel::kWarn},
                                                {"error", LogLevel::kError},
                                                {"err", LogLevel::kError},
                                                {"critical", LogLevel::kCritical},
                                                {"off", LogLevel::kOff}}};

Problem parse_log(std::string_view value, Parsing& to) {
  for (const LevelName& known : kLevelNames) {
    if (known.name == value) {
      to.options.log_level = known.level;
      return {};
    }
  }
  return "not a level";
}

Problem parse_log_file(std::string_view value, Parsing& to) {
  const PathResult result = expand_path(value, {1, "host", to.environment}, "");
  if (!result.error.empty()) return result.error;
  to.options.log_file = value;
  return {};
}

Problem parse_iter_record(std::string_view value, Parsing& to) {
  const PathResult result = expand_path(value, {1, "host", to.environment}, "");
  if (!result.error.empty()) return result.error;
  to.options.iteration_record = value;
  return {};
}

Problem parse_help(std::string_view value, Parsing& to) {
  if (value != "0" && value != "1") return "neither 0 nor 1";
  to.options.help = value == "1";
  return {};
}

struct Option {
  OptionInfo info;
  Problem (*parse)(std::string_view, Parsing&);
};

constexpr Option kOptions[] = {
#define INJECT_OPTION(variable, parse, default_value, accepted, help) \
  {{#variable, default_value, accepted, help}, parse},
#include "libinject/config/options.def"
};
constexpr std::size_t kOptionCount = std::size(kOptions);

constexpr auto kInfos = [] {
  std::array<OptionInfo, kOptionCount> infos{};
  for (std::size_t i = 0; i < kOptionCount; ++i) infos[i] = kOptions[i].info;
  return infos;
}();

std::string unknown_variable(std::string_view name) {
  std::size_t nearest_distance = kFarthestTypo + 1;
  std::string_view nearest;
  for (const OptionInfo& info : kInfos) {
    // It is their difference in length at least: a name of any length is soon looked at.
    if (std::max(name.size(), info.variable.size()) - std::min(name.size(), info.variable.size()) >
        kFarthestTypo)
      continue;
    const std::size_t distance = edit_distance(name, info.variable);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = info.variable;
    }
  }
  std::string line = quoted(name) + " is not an option of libinject";
  if (!nearest.empty()) line += "; did you mean " + std::string(nearest) + "?";
  return line + " (INJECT_HELP=1 lists them all)";
}

/// What was asked of metrics that are not taken, beyond the defaults.
void warn_of_metrics_options(const Options& options, std::vector<std::string>& warnings) {
  if (options.metrics) return;
  const std::string ignored = " has no effect without INJECT_METRICS=auto, or a list of metrics";
  if (options.metrics_interval != Options().metrics_interval)
    warnings.push_back("INJECT_METRICS_INTERVAL" + ignored);
  if (options.metrics_timeline) warnings.push_back("INJECT_METRICS_TIMELINE" + ignored);
}

/// Breaks `text` at spaces into lines of `width` columns, all but the first indented by `indent`.
std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string result;
  while (text.size() > width) {
    std::size_t cut = text.rfind(' ', width);
    if (cut == std::string_view::npos) cut = width;
    result.append(text.substr(0, cut));
    result += '\n';
    result.append(indent, ' ');
    text.remove_prefix(std::min(text.size(), text[cut] == ' ' ? cut + 1 : cut));
  }
  return result.append(text);
}

}  // namespace

std::span<const OptionInfo> option_table() {
  return kInfos;
}

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
  Parsing parsing{result.options, lookup};
  for (const Option& option : kOptions) {
    const std::optional<std::string> given = lookup(option.info.variable);
    const std::string value = given && !given->empty() ? *given : std::string(option.info.default_value);
    result.options.in_force.emplace_back(option.info.variable, value);
    if (value.empty()) continue;
    const Problem problem = option.parse(value, parsing);
    if (problem && result.error.empty()) {
      result.error = std::string(option.info.variable) + "=" + quoted(value) + ": " + *problem +
                     "; accepted: " + std::string(option.info.accepted) + "; profiling is off";
    }
  }
  for (const std::string_view entry : environment) {
    const std::string_view name = entry.substr(0, entry.find('='));
    if (name.size() == entry.size() || name.substr(0, kPrefix.size()) != kPrefix) continue;
    bool known = false;
    for (const OptionInfo& info : kInfos) known = known || info.variable == name;
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

std::string options_help() {
  constexpr std::size_t kColumns = 110;
  std::size_t name_width = 0;
  std::size_t default_width = 0;
  for (const OptionInfo& info : kInfos) {
    name_width = std::max(name_width, info.variable.size());
    default_width = std::max(default_width, info.default_value.size());
  }
  const std::size_t indent = name_width + default_width + 4;
  std::string text = "libinject is switched on by LD_PRELOAD and set up by these environment variables:\n";
  const auto cell = [&text](std::string_view content, std::size_t width) {
    text.append(content);
    text.append(width - content.size() + 2, ' ');
  };
  cell("variable", name_width);
  cell("default", default_width);
  text += "meaning\n";
  for (const OptionInfo& info : kInfos) {
    cell(info.variable, name_width);
    cell(info.default_value.empty() ? "-" : info.default_value, default_width);
    text +=
        wrapped(std::string(info.help) + " [" + std::string(info.accepted) + "]", kColumns - indent, indent);
    text += '\n';
  }
  return text;
}

}  // namespace inject
