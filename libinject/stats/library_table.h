// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstdint>
#include <vector>

#include "libinject/stats/key_index.h"
#include "libinject/stats/statistics.h"
#include "libinject/stats/table_rows.h"

namespace inject {

/// The path of library calls that an activity was launched in; 0: none.
CallChain library_path(const Attribution& launch);

/// Library calls by the path of library calls around them, with the work they launched.
class LibraryTable {
 public:
  void add_call(const CallEvent& event, std::uint64_t duration);
  /// Where to count work launched by the innermost call of a path.
  DeviceWork& work(CallChain path) { return rows_.at(row(path)).work; }

  std::vector<LibraryRow> rows() const;

 private:
  struct Entry {
    Totals host;
    std::uint64_t failed = 0;
    DeviceWork work;
  };

  std::uint32_t row(CallChain path);

  KeyIndex<2> keys_{Statistics::kMaxRows};
  Rows<Entry> rows_{{}};
  CallChain last_path_ = 0;
  std::uint32_t last_row_ = kNoIndex;
};

}  // namespace inject
