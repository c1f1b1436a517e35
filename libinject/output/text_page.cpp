// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/text_page.h"

#include <algorithm>

#include "libinject/base/csv.h"
#include "libinject/base/format.h"
#include "libinject/report/display_text.h"

namespace inject {

std::string TextTable::text(std::size_t rows) const {
  if (rows_.empty()) return {};
  std::vector<std::size_t> widths;
  std::size_t used = 2;
  for (std::size_t i = 0; i < titles_.size(); ++i) {
    std::size_t width = titles_[i].size();
    for (const Row& row : rows_) width = std::max(width, row.cells[i].size());
    widths.push_back(width);
    used += width + 2;
  }
  std::string text = "\n";
  const auto cell = [&](std::string_view content, std::size_t width) {
    text.append(2 + width - content.size(), ' ').append(content);
  };
  for (std::size_t i = 0; i < titles_.size(); ++i) cell(titles_[i], widths[i]);
  text.append("  ").append(name_title_) += '\n';
  for (const Row& row : rows_) {
    for (std::size_t i = 0; i < titles_.size(); ++i) cell(row.cells[i], widths[i]);
    text.append("  ").append(shortened(row.name, kPageColumns - used)) += '\n';
  }
  if (rows > kMaxRows) text += str_format("  ... and {} more\n", rows - kMaxRows);
  return text;
}

void TextPage::line(std::string_view text) {
  text_.append(shortened(text, kPageColumns)) += '\n';
}

void TextPage::paragraph(std::string_view indent, std::string_view text) {
  const std::string all = printable(text);
  std::string_view left = all;
  std::string begin(indent);
  while (true) {
    const std::size_t room = kPageColumns - begin.size();
    std::string_view part = beginning(left, room);
    if (part.size() < left.size()) {
      if (const std::size_t space = part.rfind(' '); space != std::string_view::npos && space > room / 2)
        part = part.substr(0, space);
    }
    if (part.empty()) return;
    text_.append(begin).append(part) += '\n';
    left.remove_prefix(part.size());
    while (!left.empty() && left.front() == ' ') left.remove_prefix(1);
    if (left.empty()) return;
    begin = std::string(indent.size() + 2, ' ');
  }
}

void TextPage::whole_line(std::string_view text) {
  append_utf8(text_, text);
  text_ += '\n';
}

std::string with_name(std::string text, std::string_view name) {
  const std::size_t used = text.size();
  return std::move(text) + shortened(name, kPageColumns - used);
}

}  // namespace inject
