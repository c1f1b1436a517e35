// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/text_page.h"

#include <algorithm>

#include "libinject/base/csv.h"
#include "libinject/base/format.h"
#include "libinject/report/display_text.h"

namespace inject {

std::string TextTable::text(std::size_t rows, std::size_t columns) const {
  if (rows_.empty()) return {};
  std::vector<std::size_t> widths;
  std::size_t used = 2;
  for (std::size_t i = 0; i < titles_.size(); ++i) {
    std::size_t width = titles_[i].size();
    for (const Row& row : rows_) width = std::max(width, row.cells[i].size());
    widths.push_back(width);
    used += width + 2;
  }
  constexpr std::size_t kNameColumns = 32;
  constexpr std::size_t kLeastCells = 2;
  std::size_t cells = titles_.size();
  while (cells > kLeastCells && used + kNameColumns > columns) used -= widths[--cells] + 2;
  std::string text = "\n";
  const auto cell = [&](std::string_view content, std::size_t width) {
    text.append(2 + width - content.size(), ' ').append(content);
  };
  for (std::size_t i = 0; i < cells; ++i) cell(titles_[i], widths[i]);
  text.append("  ").append(beginning(name_title_, columns - used)) += '\n';
  for (const Row& row : rows_) {
    for (std::size_t i = 0; i < cells; ++i) cell(row.cells[i], widths[i]);
    text.append("  ").append(shortened(row.name, columns - used)) += '\n';
  }
  if (rows > kMaxRows) text += str_format("  ... and {} more\n", rows - kMaxRows);
  return text;
}

void TextPage::line(std::string_view text) {
  constexpr std::size_t kMostLines = 3;
  if (const std::string all = printable(text); beginning(all, columns_).size() == all.size()) {
    text_.append(all) += '\n';
    return;
  }
  const std::size_t indent = std::min(text.find_first_not_of(' '), text.size());
  paragraph(text.substr(0, indent), shortened(text.substr(indent), kMostLines * (columns_ - indent - 2)));
}

void TextPage::cut_line(std::string_view text) {
  text_.append(shortened(text, columns_)) += '\n';
}

void TextPage::named_line(const std::string& text, std::string_view name) {
  constexpr std::size_t kNameColumns = 24;
  if (text.size() + kNameColumns <= columns_) {
    text_.append(text).append(shortened(name, columns_ - text.size())) += '\n';
    return;
  }
  line(text);
  const std::string indent(std::min(text.find_first_not_of(' '), text.size()) + 2, ' ');
  text_.append(indent).append(shortened(name, columns_ - indent.size())) += '\n';
}

void TextPage::paragraph(std::string_view indent, std::string_view text) {
  const std::string all = printable(text);
  std::string_view left = all;
  std::string begin(indent);
  while (true) {
    const std::size_t room = columns_ - begin.size();
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

}  // namespace inject
