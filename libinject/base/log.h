// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inject {

/// spdlog's levels, with its numbers.
enum class LogLevel : std::uint8_t { kTrace, kDebug, kInfo, kWarn, kError, kCritical, kOff };

/// libinject's own messages, one line each with its prefix, through a separate logger (spdlog's default one
/// writes to stdout and belongs to the host if the host uses spdlog too). Never raises SIGPIPE or an
/// exception in the caller.
class Log {
 public:
  /// If `file` is empty, uses stderr. If the file can't be opened, logs that on stderr, and uses stderr.
  static void open(LogLevel level, const std::string& file) noexcept;
  /// Control characters are written as ?, and long messages truncated.
  static void write(LogLevel level, std::string_view message) noexcept;

  static void info(std::string_view message) noexcept { write(LogLevel::kInfo, message); }
  static void warn(std::string_view message) noexcept { write(LogLevel::kWarn, message); }
  static void error(std::string_view message) noexcept { write(LogLevel::kError, message); }
  static void debug(std::string_view message) noexcept { write(LogLevel::kDebug, message); }

  /// Logs an error, to stderr if there was no memory for open().
  static void error_without_allocation(std::string_view message) noexcept;

  /// Warnings and errors so far, for run.json; at most the first hundred.
  static std::vector<std::string> notable();
};

/// "LOST: a thread can't be started (REASON)". Without allocation: memory may be the reason.
class ThreadProblem {
 public:
  /// `code`: pthread_create's.
  ThreadProblem(const char* lost, int code) noexcept;
  const char* text() const noexcept { return text_.data(); }

 private:
  std::array<char, 192> text_;
};

}  // namespace inject
