// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/columns.h"

#include <type_traits>

namespace inject {

void Cell::append_to(CsvRow& row, int decimals) const {
  std::visit(
      [&row, decimals](const auto& value) {
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::monostate>) {
          row.empty();
        } else if constexpr (std::is_same_v<Value, double>) {
          row.decimal(value, decimals);
        } else if constexpr (std::is_integral_v<Value> || std::is_same_v<Value, Uint128>) {
          row.number(value);
        } else {
          row.text(value);
        }
      },
      value_);
}

std::string header_line(const std::vector<ColumnInfo>& columns) {
  std::string line;
  CsvRow row(line);
  for (const ColumnInfo& column : columns) row.text(column.header);
  return line;
}

}  // namespace inject
