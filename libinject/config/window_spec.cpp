// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/config/window_spec.h"

#include <signal.h>

#include <array>
#include <limits>

#include "libinject/base/format.h"
#include "libinject/base/text.h"

namespace inject {

namespace {

struct Trigger {
  std::string_view name;
  WindowKind kind;
};
constexpr std::array<Trigger, 9> kTriggers{{{"auto", WindowKind::kAuto},
                                            {"api", WindowKind::kApi},
                                            {"always", WindowKind::kAlways},
                                            {"off", WindowKind::kOff},
                                            {"time", WindowKind::kTime},
                                            {"launch", WindowKind::kLaunch},
                                            {"iter", WindowKind::kIteration},
                                            {"nvtx", WindowKind::kNvtx},
                                            {"signal", WindowKind::kSignal}}};

std::string_view trigger_name(WindowKind kind) {
  for (const Trigger& trigger : kTriggers) {
    if (trigger.kind == kind) return trigger.name;
  }
  return "?";
}

/// Parses a name up to the first of `stops`, or a quoted one in which \" and \\ stand for the second
/// character. Advances `text`.
bool take_name(std::string_view& text, std::string_view stops, std::string& name, std::string& error) {
  name.clear();
  if (text.empty() || text.front() != '"') {
    const std::size_t end = text.find_first_of(stops);
    name = text.substr(0, end);
    text.remove_prefix(name.size());
    return true;
  }
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      text.remove_prefix(i + 1);
      return true;
    }
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\')) ++i;
    name += text[i];
  }
  error = "the closing quote is missing";
  return false;
}

std::string quote_name(std::string_view name) {
  std::string text = "\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

/// Parses an unquoted `xN` and removes it from the end of `text`.
bool take_repeat(std::string_view& text, std::uint32_t& windows, std::string& error) {
  std::size_t digits = text.size();
  while (digits > 0 && is_digit(text[digits - 1])) --digits;
  if (digits == text.size() || digits == 0 || text[digits - 1] != 'x') return true;
  std::uint64_t value = 0;
  if (!parse_count(text.substr(digits), "the number of windows", value, error)) return false;
  if (value == 0 || value > std::numeric_limits<std::uint32_t>::max()) {
    error = str_format("x{} is not a number of windows", text.substr(digits));
    return false;
  }
  windows = static_cast<std::uint32_t>(value);
  text.remove_suffix(text.size() - digits + 1);
  return true;
}

bool parse_amount(WindowKind kind, std::string_view text, std::string_view what, std::uint64_t& value,
                  std::string& error) {
  if (text.empty()) {
    error = str_format("{} is missing", what);
    return false;
  }
  return kind == WindowKind::kTime ? parse_duration(text, value, error)
                                   : parse_count(text, what, value, error);
}

/// START+COUNT[/EVERY], as after `time:`, `launch:` and `iter:`.
bool parse_span(std::string_view text, WindowSpec& spec, std::string& error) {
  const bool time = spec.kind == WindowKind::kTime;
  const std::string_view start_name = time ? "DELAY" : "START";
  const std::string_view count_name = time ? "DURATION" : "COUNT";
  std::string_view every;
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    every = text.substr(slash + 1);
    text = text.substr(0, slash);
  }
  const std::size_t plus = text.find('+');
  if (plus == std::string_view::npos) {
    error =
        str_format("+{} is missing ({}:{}+{})", count_name, trigger_name(spec.kind), start_name, count_name);
    return false;
  }
  if (!parse_amount(spec.kind, text.substr(0, plus), start_name, spec.start, error)) return false;
  if (!parse_amount(spec.kind, text.substr(plus + 1), count_name, spec.count, error)) return false;
  if (spec.count == 0) {
    error = str_format("{} is 0", count_name);
    return false;
  }
  if (slash == std::string_view::npos) {
    if (spec.max_windows > 1) {
      error = str_format("x{} needs an /EVERY", spec.max_windows);
      return false;
    }
    spec.max_windows = 1;
    return true;
  }
  if (!parse_amount(spec.kind, every, "EVERY", spec.every, error)) return false;
  if (spec.every < spec.count) {
    error = str_format("/EVERY is shorter than {} (it is counted from one window's start to the next one's)",
                       count_name);
    return false;
  }
  return true;
}

/// Parses EVERY of a trigger that counts something; it must be at least `least`.
bool parse_every(std::string_view text, std::uint64_t least, std::string_view too_short, WindowSpec& spec,
                 std::string& error) {
  if (!parse_count(text, "EVERY", spec.every, error)) return false;
  if (spec.every < least) error = str_format("/EVERY is {}", spec.every == 0 ? "0" : too_short);
  return spec.every >= least;
}

/// A window takes two signals.
bool parse_signal_every(std::string_view text, WindowSpec& spec, std::string& error) {
  return parse_every(text, 2, "less than the two signals of a window", spec, error);
}

/// NAME[@DOMAIN][/EVERY][xN]; a quoted name may hold any of those characters.
bool parse_nvtx(std::string_view text, WindowSpec& spec, std::string& error) {
  // xN is removed from the end first, so an unquoted name cannot end in xN. A quoted one ends in a quote and
  // is not affected.
  if (!take_repeat(text, spec.max_windows, error)) return false;
  if (!take_name(text, "@/", spec.name, error)) return false;
  if (spec.name.empty()) {
    error = "the range's name is missing";
    return false;
  }
  if (!text.empty() && text.front() == '@') {
    text.remove_prefix(1);
    if (!take_name(text, "/", spec.domain, error)) return false;
    if (spec.domain.empty()) {
      error = "the domain's name is missing after @";
      return false;
    }
  }
  if (!text.empty() && text.front() == '/') {
    if (!parse_every(text.substr(1), 1, "0", spec, error)) return false;
    text = {};
  }
  if (!text.empty()) {
    error = "unexpected " + quoted(text) + " after the range's name";
    return false;
  }
  return true;
}

bool parse_trigger(std::string_view text, WindowSpec& spec, std::string& error) {
  // The trigger's word ends at the first character that is not a lower-case letter; x3 of `apix3` is a
  // schedule.
  const std::size_t colon = text.find(':');
  std::string_view word = text.substr(0, colon);
  std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  const bool has_argument = colon != std::string_view::npos;
  std::string_view every;
  bool has_every = false;
  if (!has_argument) {
    if (!take_repeat(word, spec.max_windows, error)) return false;
    const std::size_t slash = word.find('/');
    if (slash != std::string_view::npos) {
      has_every = true;
      every = word.substr(slash + 1);
      word = word.substr(0, slash);
    }
  }
  const Trigger* trigger = nullptr;
  for (const Trigger& known : kTriggers) {
    if (known.name == word) trigger = &known;
  }
  if (trigger == nullptr) {
    error = quoted(word) + " is not a trigger";
    return false;
  }
  spec.kind = trigger->kind;
  const bool needs_argument = spec.kind == WindowKind::kTime || spec.kind == WindowKind::kLaunch ||
                              spec.kind == WindowKind::kIteration || spec.kind == WindowKind::kNvtx;
  if (needs_argument && !has_argument) {
    error = spec.kind == WindowKind::kNvtx   ? "nvtx needs a range: nvtx:NAME[@DOMAIN]"
            : spec.kind == WindowKind::kTime ? "time needs a span: time:DELAY+DURATION"
                                             : str_format("{} needs a span: {}:START+COUNT", word, word);
    return false;
  }
  if (has_argument && !needs_argument && spec.kind != WindowKind::kSignal) {
    error = str_format("{} takes no argument", word);
    return false;
  }
  if (has_every && spec.kind != WindowKind::kApi && spec.kind != WindowKind::kSignal) {
    error = str_format("{}: {} does not take /EVERY", quoted(str_format("/{}", every)), word);
    return false;
  }
  switch (spec.kind) {
    case WindowKind::kAuto:
    case WindowKind::kAlways:
    case WindowKind::kOff:
      if (spec.max_windows != 0) {
        error = str_format("{} does not take xN", word);
        return false;
      }
      // `always` is one window; the trigger that replaces `auto` has its own limit.
      if (spec.kind == WindowKind::kAlways) spec.max_windows = 1;
      return true;
    case WindowKind::kApi:
      return !has_every || parse_every(every, 1, "0", spec, error);
    case WindowKind::kTime:
    case WindowKind::kLaunch:
    case WindowKind::kIteration:
      if (!take_repeat(rest, spec.max_windows, error)) return false;
      return parse_span(rest, spec, error);
    case WindowKind::kNvtx:
      return parse_nvtx(rest, spec, error);
    case WindowKind::kSignal:
      spec.signal = SIGUSR2;
      if (!has_argument) return !has_every || parse_signal_every(every, spec, error);
      if (!take_repeat(rest, spec.max_windows, error)) return false;
      if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
        if (!parse_signal_every(rest.substr(slash + 1), spec, error)) return false;
        rest = rest.substr(0, slash);
      }
      return parse_signal(rest, spec.signal, error);
  }
  return false;
}

}  // namespace

WindowSpecResult parse_window_spec(std::string_view text) {
  WindowSpecResult result;
  if (text.empty()) {
    result.error = "the value is empty";
    return result;
  }
  if (!parse_trigger(text, result.spec, result.error)) result.spec = {};
  return result;
}

bool has_last(const WindowSpec& spec) {
  if (spec.max_windows != 0) return true;
  switch (spec.kind) {
    case WindowKind::kApi:
    case WindowKind::kNvtx:
    case WindowKind::kSignal:
      return false;
    default:
      return spec.every == 0;
  }
}

std::string to_string(const WindowSpec& spec) {
  const auto amount = [&](std::uint64_t value) {
    return spec.kind == WindowKind::kTime ? duration_text(value) : std::to_string(value);
  };
  std::string text(trigger_name(spec.kind));
  bool repeats = false;
  switch (spec.kind) {
    case WindowKind::kAuto:
    case WindowKind::kAlways:
    case WindowKind::kOff:
      break;
    case WindowKind::kApi:
      repeats = spec.max_windows != 0;
      break;
    case WindowKind::kTime:
    case WindowKind::kLaunch:
    case WindowKind::kIteration:
      text += ":" + amount(spec.start) + "+" + amount(spec.count);
      repeats = spec.every != 0 && spec.max_windows != 0;
      break;
    case WindowKind::kNvtx:
      text += ":" + quote_name(spec.name);
      if (!spec.domain.empty()) text += "@" + quote_name(spec.domain);
      repeats = spec.max_windows != 0;
      break;
    case WindowKind::kSignal:
      text += ":" + signal_name(spec.signal);
      repeats = spec.max_windows != 0;
      break;
  }
  if (spec.every != 0) text += "/" + amount(spec.every);
  if (repeats) text += "x" + std::to_string(spec.max_windows);
  return text;
}

}  // namespace inject
