// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Layout of human-readable text: lines of limited width, paragraphs, tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inject {

inline constexpr std::size_t kPageColumns = 120;
/// The minimum width of every page.
inline constexpr std::size_t kLeastColumns = 80;

/// Right-aligned cells, then a name that takes the rest of the line. On a narrow page, the last cells are
/// dropped in favour of it.
class TextTable {
 public:
  static constexpr std::size_t kMaxRows = 10;

  TextTable(std::vector<std::string_view> titles, std::string_view name_title)
      : titles_(std::move(titles)), name_title_(name_title) {}

  /// One cell for each title. `name` has to outlive the table.
  void row(std::vector<std::string> cells, std::string_view name) {
    rows_.push_back({std::move(cells), name});
  }
  /// The table with an empty line before it; nothing if there are no rows. `rows`: their total number; those
  /// beyond kMaxRows are left out.
  std::string text(std::size_t rows, std::size_t columns = kPageColumns) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string_view name;
  };

  std::vector<std::string_view> titles_;
  std::string_view name_title_;
  std::vector<Row> rows_;
};

class TextPage {
 public:
  explicit TextPage(std::size_t columns = kPageColumns) : columns_(columns) {}

  /// One line; if it is wider than the page, a paragraph of a few lines with the same indentation.
  void line(std::string_view text);
  /// One line, truncated to the width.
  void cut_line(std::string_view text);
  /// `text`, then as much of `name` as fits in the line.
  void named_line(const std::string& text, std::string_view name);
  /// `text` in lines of at most the width, broken at spaces; lines after the first are indented further.
  void paragraph(std::string_view indent, std::string_view text);
  void empty_line() { text_ += '\n'; }
  /// One line that is never shortened, because it is meant to be copied.
  void whole_line(std::string_view text);
  /// `rows`: as for TextTable::text().
  void table(const TextTable& table, std::size_t rows) { text_ += table.text(rows, columns_); }

  const std::string& text() const { return text_; }

 private:
  std::size_t columns_;
  std::string text_;
};

}  // namespace inject
