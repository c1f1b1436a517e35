// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// fmt's format strings, checked by the compiler. Formatting itself is compiled once, in format.cpp: with fmt
// as a header-only library, each file that formats anything took 3 seconds longer to compile, and 7 with
// AddressSanitizer (GCC 12).
#pragma once

#include <spdlog/tweakme.h>
#ifdef SPDLOG_FMT_EXTERNAL
#include <fmt/core.h>
#else
#include <spdlog/fmt/bundled/core.h>
#endif

#include <span>
#include <string>
#include <string_view>

namespace inject {

void append_formatted(std::string& out, fmt::string_view format, fmt::format_args arguments);

/// Appends to `out`.
template <typename... Args>
void append_format(std::string& out, fmt::format_string<Args...> format, Args&&... arguments) {
  append_formatted(out, format, fmt::make_format_args(arguments...));
}

template <typename... Args>
std::string str_format(fmt::format_string<Args...> format, Args&&... arguments) {
  std::string out;
  append_formatted(out, format, fmt::make_format_args(arguments...));
  return out;
}

/// `a, b, c`, with ", " as the separator.
std::string str_join(std::span<const std::string> texts, std::string_view separator);

}  // namespace inject
