// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Columns shared by the tables of windows and iterations: both have rows for one device and for all together.
#pragma once

#include <string_view>

#include "libinject/output/table_cells.h"
#include "libinject/report/report.h"

namespace inject {

inline constexpr std::string_view kAllDevices = "rows of one device";

template <typename Row>
void add_device(Columns<Row>& columns) {
  columns.add(
      "Device", units::kText, [](const Row& row) { return row.device ? Cell(*row.device) : Cell("all"); },
      "The GPU, as the process numbers them; `all`: all of them together, and the host.");
}

/// Adds FLOPs, their rate and its share of the peaks; `rate` gives the FlopRate, or null.
template <typename Row, typename Rate>
void add_flop_columns(Columns<Row>& columns, Rate rate) {
  using namespace units;
  columns.of(rate)
      .add("FLOPs", kFlops, &FlopRate::flops, "Of the library calls of known shape.", kAllDevices)
      .add("TFLOP/s", kTeraflops, &FlopRate::teraflops, "FLOPs by Duration.",
           "rows of one device; nothing is known to be computed; a rate that can't be (peaks.md)")
      .add(
          "Peak (%)", kRateShare, [](const FlopRate& of) { return percent(of.peak_share.value); },
          "Time that the first device needs for the FLOPs at its peaks, by Duration.",
          "rows of one device; the rate or a peak is not known");
}

}  // namespace inject
