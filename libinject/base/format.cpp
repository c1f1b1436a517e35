// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#define FMT_HEADER_ONLY  // here, and in log.cpp for spdlog: once for all files
#include <spdlog/fmt/fmt.h>

#include <iterator>

#include "libinject/base/format.h"

namespace inject {

void append_formatted(std::string& out, fmt::string_view format, fmt::format_args arguments) {
  fmt::vformat_to(std::back_inserter(out), format, arguments);
}

std::string str_join(std::span<const std::string> texts, std::string_view separator) {
  std::string out;
  for (const std::string& text : texts) {
    if (&text != texts.data()) out += separator;
    out += text;
  }
  return out;
}

}  // namespace inject
