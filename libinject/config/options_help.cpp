// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The text printed by INJECT_HELP=1.

#include <algorithm>

#include "libinject/base/format.h"
#include "libinject/config/options.h"

namespace inject {

namespace {

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

std::string options_help() {
  constexpr std::size_t kColumns = 110;
  std::size_t name_width = 0;
  std::size_t default_width = 0;
  for (const OptionInfo& info : option_table()) {
    name_width = std::max(name_width, info.variable.size());
    default_width = std::max(default_width, info.default_value.size());
  }
  const std::size_t indent = name_width + default_width + 4;
  std::string text = "libinject is activated by LD_PRELOAD and configured by these environment variables:\n";
  const auto cell = [&text](std::string_view content, std::size_t width) {
    text.append(content);
    text.append(width - content.size() + 2, ' ');
  };
  cell("variable", name_width);
  cell("default", default_width);
  text += "meaning\n";
  for (const OptionInfo& info : option_table()) {
    cell(info.variable, name_width);
    cell(info.default_value.empty() ? "-" : info.default_value, default_width);
    text += wrapped(str_format("{} [{}]", info.help, info.accepted), kColumns - indent, indent) + "\n";
  }
  return text;
}

}  // namespace inject
