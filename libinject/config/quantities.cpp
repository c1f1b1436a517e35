// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/config/quantities.h"

#include <signal.h>

#include <array>
#include <charconv>
#include <limits>

#include "libinject/base/format.h"
#include "libinject/base/text.h"

namespace inject {

namespace {

// Half of the 64-bit range, so that a start and a length can always be added.
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max() / 2;

struct Unit {
  std::string_view name;
  std::uint64_t nanoseconds;
};
// Longest first: duration_text() takes the first unit that divides the value.
constexpr std::array<Unit, 4> kUnits{
    {{"h", 3'600'000'000'000u}, {"m", 60'000'000'000u}, {"s", 1'000'000'000u}, {"ms", 1'000'000u}}};

struct SignalName {
  std::string_view name;
  int number;
};
// Signals that do not end a program that handles them, and that debuggers and shells do not use.
constexpr std::array<SignalName, 7> kSignals{{{"SIGUSR1", SIGUSR1},
                                              {"SIGUSR2", SIGUSR2},
                                              {"SIGHUP", SIGHUP},
                                              {"SIGURG", SIGURG},
                                              {"SIGPROF", SIGPROF},
                                              {"SIGWINCH", SIGWINCH},
                                              {"SIGCONT", SIGCONT}}};
constexpr int kRealTimeSignals = 30;

bool all_digits(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (!is_digit(c)) return false;
  }
  return true;
}

}  // namespace

bool parse_count(std::string_view text, std::string_view what, std::uint64_t& value, std::string& error) {
  if (!all_digits(text)) {
    error = text.empty() ? std::string(what) + " is missing" : quoted(text) + " is not a whole number";
    return false;
  }
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value > kMax) {
    error = quoted(text) + " is too large";
    return false;
  }
  return true;
}

bool parse_duration(std::string_view text, std::uint64_t& nanoseconds, std::string& error) {
  std::size_t digits = 0;
  while (digits < text.size() && (is_digit(text[digits]) || text[digits] == '.')) ++digits;
  const std::string_view number = text.substr(0, digits);
  const std::string_view unit_name = text.substr(digits);
  const std::size_t dot = number.find('.');
  const std::string_view whole = number.substr(0, dot);
  const std::string_view fraction =
      dot == std::string_view::npos ? std::string_view{} : number.substr(dot + 1);
  if (!all_digits(whole) || (dot != std::string_view::npos && !all_digits(fraction))) {
    error = quoted(text) + " is not a time such as 500ms, 20s, 1.5m or 2h";
    return false;
  }
  std::uint64_t unit = 0;
  for (const Unit& known : kUnits) {
    if (known.name == unit_name) unit = known.nanoseconds;
  }
  if (unit == 0) {
    if (unit_name.empty() && number == "0") {
      nanoseconds = 0;
      return true;
    }
    error = quoted(text) + (unit_name.empty() ? " has no unit" : " has an unknown unit") + " (ms, s, m or h)";
    return false;
  }
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  if (code != std::errc() || value > kMax / unit) {
    error = quoted(text) + " is too large";
    return false;
  }
  nanoseconds = value * unit;
  std::uint64_t scale = unit;
  for (const char digit : fraction) {
    // Every unit is a multiple of 10^6 ns, so only fractions of a nanosecond are truncated.
    nanoseconds += static_cast<std::uint64_t>(digit - '0') * scale / 10;
    scale /= 10;
  }
  return true;
}

std::string duration_text(std::uint64_t nanoseconds) {
  if (nanoseconds == 0) return "0s";
  for (const Unit& unit : kUnits) {
    if (nanoseconds % unit.nanoseconds == 0)
      return str_format("{}{}", nanoseconds / unit.nanoseconds, unit.name);
  }
  std::string text = str_format("{}.{:06}", nanoseconds / 1'000'000u, nanoseconds % 1'000'000u);
  while (text.back() == '0') text.pop_back();
  return text + "ms";
}

bool parse_signal(std::string_view text, int& number, std::string& error) {
  std::string name(text);
  if (name.rfind("SIG", 0) != 0) name.insert(0, "SIG");
  for (const SignalName& known : kSignals) {
    if (known.name == name) {
      number = known.number;
      return true;
    }
  }
  constexpr std::string_view kRealTime = "SIGRTMIN+";
  if (name.rfind(kRealTime, 0) == 0) {
    std::uint64_t offset = 0;
    if (parse_count(std::string_view(name).substr(kRealTime.size()), "the number", offset, error) &&
        offset <= kRealTimeSignals) {
      number = SIGRTMIN + static_cast<int>(offset);
      return true;
    }
  }
  error = quoted(text) +
          " is not a signal that can toggle windows (SIGUSR1, SIGUSR2, SIGHUP, SIGURG, SIGPROF, SIGWINCH, "
          "SIGCONT, SIGRTMIN+0 ... SIGRTMIN+30)";
  return false;
}

std::string signal_name(int number) {
  for (const SignalName& known : kSignals) {
    if (known.number == number) return std::string(known.name);
  }
  return str_format("SIGRTMIN+{}", number - SIGRTMIN);
}

}  // namespace inject
