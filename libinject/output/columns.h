// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Typed columns: a column's header, unit, meaning and cell are defined in one place, from which headers, rows
// and docs/columns.md are generated.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "libinject/base/csv.h"
#include "libinject/base/uint128.h"

namespace inject {

/// How a column's numbers are printed and what values they can have.
struct Unit {
  std::string_view name;   ///< as shown in docs/columns.md
  std::string_view range;  ///< of all values that are not empty
  int decimals = 0;        ///< for cells that are not whole numbers
};

namespace units {
inline constexpr Unit kText{"text", ""};
inline constexpr Unit kNumber{"", ""};
inline constexpr Unit kCount{"", "≥ 0"};
inline constexpr Unit kFlag{"", "0 or 1"};
inline constexpr Unit kTime{"ns", "≥ 0"};
inline constexpr Unit kMeanTime{"ns", "≥ 0", 1};
inline constexpr Unit kMoment{"ns since `time_zero`", ""};
inline constexpr Unit kPercent{"%", "0 … 100", 1};
/// A share that may exceed 100 %: of a peak, which is inexact, or of things that run concurrently.
inline constexpr Unit kRateShare{"%", "≥ 0", 1};
inline constexpr Unit kMegabytes{"MB", "≥ 0", 3};
inline constexpr Unit kBytes{"bytes", "≥ 0"};
inline constexpr Unit kFlop{"FLOP", "≥ 0"};
inline constexpr Unit kTeraflops{"10^12 FLOP/s", "≥ 0", 3};
inline constexpr Unit kIntensity{"FLOP/byte", "≥ 0", 2};
inline constexpr Unit kBandwidth{"GB/s", "≥ 0", 3};
inline constexpr Unit kRate{"1/s", "≥ 0", 3};
inline constexpr Unit kUnits{"units of work", "≥ 0", 6};
inline constexpr Unit kUnitRate{"units of work/s", "≥ 0", 3};
}  // namespace units

/// The result of a column's function if the type differs between rows: nothing, a whole number, a number with
/// the unit's decimals, or text.
class Cell {
 public:
  // Implicit, so that a column's function can return whatever it has.
  // NOLINTBEGIN(misc-explicit-constructor)
  Cell() = default;
  template <std::integral T>
  Cell(T value) {
    if constexpr (std::signed_integral<T>) {
      value_ = static_cast<std::int64_t>(value);
    } else {
      value_ = static_cast<std::uint64_t>(value);
    }
  }
  Cell(Uint128 value) : value_(value) {}
  Cell(double value) : value_(value) {}
  Cell(std::string_view text) : value_(text) {}
  Cell(const char* text) : value_(std::string_view(text)) {}
  Cell(std::string text) : value_(std::move(text)) {}
  template <typename T>
  Cell(const std::optional<T>& value) {
    if (value) *this = Cell(*value);
  }
  // NOLINTEND(misc-explicit-constructor)

  void append_to(CsvRow& row, int decimals) const;

 private:
  std::variant<std::monostate, std::int64_t, std::uint64_t, Uint128, double, std::string_view, std::string>
      value_;
};

template <std::integral T>
void append_cell(CsvRow& row, T value, int /*decimals*/) {
  row.number(value);
}
inline void append_cell(CsvRow& row, Uint128 value, int /*decimals*/) {
  row.number(value);
}
inline void append_cell(CsvRow& row, double value, int decimals) {
  row.decimal(value, decimals);
}
inline void append_cell(CsvRow& row, std::string_view text, int /*decimals*/) {
  row.text(text);
}
template <std::same_as<Cell> T>
void append_cell(CsvRow& row, const T& cell, int decimals) {
  cell.append_to(row, decimals);
}
template <typename T>
void append_cell(CsvRow& row, const std::optional<T>& value, int decimals) {
  if (value) {
    append_cell(row, *value, decimals);
  } else {
    row.empty();
  }
}

/// What docs/columns.md says about a column.
struct ColumnInfo {
  std::string header;
  Unit unit;
  std::string_view meaning;
  std::string_view empty;  ///< when a cell has no value; empty if every row has one
};

template <typename Row>
struct Column : ColumnInfo {
  std::function<void(CsvRow&, const Row&)> append;
};

template <typename Row, typename Part>
class PartColumns;

/// The columns of one table, in order.
template <typename Row>
class Columns {
 public:
  /// `cell`, a function or a member of the row, returns the column's cell, of any type that append_cell()
  /// accepts.
  template <typename Function>
  Columns& add(std::string header, const Unit& unit, Function cell, std::string_view meaning,
               std::string_view empty = {}) {
    columns_.push_back({{std::move(header), unit, meaning, empty},
                        [cell = std::move(cell), decimals = unit.decimals](CsvRow& row, const Row& value) {
                          append_cell(row, std::invoke(cell, value), decimals);
                        }});
    return *this;
  }
  /// For columns about a part of the row, returned by `part`, a function or a member. If that is a pointer or
  /// an optional, the cells of rows without one are empty; `empty` says when, for columns that do not say so
  /// themselves.
  template <typename Part>
  PartColumns<Row, Part> of(Part part, std::string_view empty = {}) {
    return {*this, std::move(part), empty};
  }
  /// Leaves the cells of a column empty in rows for which `when` is true; `empty` replaces the column's note
  /// about empty cells.
  void leave_out(std::string_view header, const std::function<bool(const Row&)>& when,
                 std::string_view empty) {
    for (Column<Row>& column : columns_) {
      if (column.header != header) continue;
      column.empty = empty;
      column.append = [when, append = std::move(column.append)](CsvRow& row, const Row& value) {
        if (when(value)) {
          row.empty();
        } else {
          append(row, value);
        }
      };
    }
  }
  void append_row(std::string& text, const Row& value) const {
    CsvRow row(text);
    for (const Column<Row>& column : columns_) column.append(row, value);
    row.end();
  }
  std::vector<ColumnInfo> infos() const { return {columns_.begin(), columns_.end()}; }

  auto begin() const { return columns_.begin(); }
  auto end() const { return columns_.end(); }

 private:
  std::vector<Column<Row>> columns_;
};

/// Adds columns to a table; see Columns::of().
template <typename Row, typename Part>
class PartColumns {
 public:
  PartColumns(Columns<Row>& columns, Part part, std::string_view empty)
      : columns_(columns), part_(std::move(part)), empty_(empty) {}

  /// `cell` is a function or a member of the part.
  template <typename Function>
  const PartColumns& add(std::string header, const Unit& unit, Function cell, std::string_view meaning,
                         std::string_view empty = {}) const {
    columns_.add(
        std::move(header), unit,
        [part = part_, cell = std::move(cell)](const Row& row) {
          const auto& found = std::invoke(part, row);
          if constexpr (requires { *found; }) {
            return found ? Cell(std::invoke(cell, *found)) : Cell();
          } else {
            return Cell(std::invoke(cell, found));
          }
        },
        meaning, empty.empty() ? empty_ : empty);
    return *this;
  }

 private:
  Columns<Row>& columns_;
  Part part_;
  std::string_view empty_;
};

/// A line of CSV without its line break. Headers may need quoting, since users can give metrics any name.
std::string header_line(const std::vector<ColumnInfo>& columns);

}  // namespace inject
