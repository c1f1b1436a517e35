// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Building blocks of the collectors of Statistics.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"

namespace inject {

static_assert(KeyIndex<1>::kNone == kNoIndex && KeyIndex<1>::kOther == kOtherIndex);

/// The name of the row of all keys that did not fit.
inline constexpr std::string_view kOtherName = "[other]";

/// Rows of a table, alongside its KeyIndex: one per key, and one for all keys that did not fit.
template <typename Row>
class Rows {
 public:
  explicit Rows(Row empty) : other_(std::move(empty)) {}
  template <typename... Args>
  Row& at(std::uint32_t index, Args&&... args) {
    if (index == kOtherIndex) {
      other_used_ = true;
      return other_;
    }
    if (index == rows_.size()) rows_.emplace_back(std::forward<Args>(args)...);
    return rows_[index];
  }
  bool has(std::uint32_t index) const { return index == kOtherIndex ? other_used_ : index < rows_.size(); }
  /// Adds rows for all indices below `size`.
  template <typename... Args>
  void fill(std::uint32_t size, const Args&... args) {
    while (rows_.size() < size) rows_.emplace_back(args...);
  }
  const Row& operator[](std::uint32_t index) const { return index == kOtherIndex ? other_ : rows_[index]; }
  /// All indices; kOtherIndex comes last, if it was used.
  std::vector<std::uint32_t> indices() const {
    std::vector<std::uint32_t> result(rows_.size());
    for (std::uint32_t i = 0; i < result.size(); ++i) result[i] = i;
    if (other_used_) result.push_back(kOtherIndex);
    return result;
  }

 private:
  std::vector<Row> rows_;
  Row other_;
  bool other_used_ = false;
};

/// Sorts rows with samples by descending total and then by name.
template <typename Row>
void sort_by_total(std::vector<Row>& rows) {
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::make_tuple(b.stats->sum(), a.name) < std::make_tuple(a.stats->sum(), b.name);
  });
}

inline std::uint64_t duration_between(Nanoseconds begin, Nanoseconds end) {
  return end > begin ? end - begin : 0;
}

}  // namespace inject
