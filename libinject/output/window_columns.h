// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Columns shared by the tables of windows and iterations: both have rows for one device and for all together.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "libinject/base/csv.h"
#include "libinject/output/table_cells.h"
#include "libinject/report/report.h"

namespace inject {

inline constexpr std::string_view kAllDevices = "rows of one device";

template <typename Row>
void add_device(Columns<Row>& columns) {
  columns
      .add(
          "Device", units::kText, [](const Row& row) { return row.device ? Cell(*row.device) : Cell("all"); },
          "The GPU's number in the process; `all`: all GPUs together, and the host.")
      .add(
          "Total", units::kText, [](const Row& row) { return row.device ? "no" : "yes"; },
          "`yes`: the row covers all devices and has the host's figures; `no`: it covers one device. Adding "
          "up both kinds counts everything twice.");
}

inline constexpr std::string_view kUnitsMeaning =
    "Units of work: samples, tokens, seconds of audio (units.md).";
inline constexpr std::string_view kUnitSourceMeaning =
    "Where the units come from. `called`: the program, through inject_units(); `payload`: an NVTX range or "
    "mark; `loader`: PyTorch's DataLoader, with INJECT_BATCH=auto; `stated`: INJECT_BATCH.";

/// The number of decimals with which a positive number has `digits` significant ones. Without libm, which is
/// not linked.
inline int decimals_for(double value, int digits) {
  constexpr int kMax = 40;
  double least = 1;
  for (; digits > 1; --digits) least *= 10;
  int decimals = 0;
  while (value < least && decimals < kMax) {
    value *= 10;
    ++decimals;
  }
  return decimals;
}

/// With the unit's decimals, or more for numbers less than 1 that would have fewer than six significant
/// digits: a known value other than 0 is not shown as 0.
inline Cell exact_cell(const std::optional<double>& value, const Unit& unit) {
  if (!value || !(*value > 0 && *value < 1)) return value;
  const int decimals = decimals_for(*value, 6);
  if (decimals <= unit.decimals) return value;
  std::string text;
  append_decimal(text, *value, decimals);
  return text;
}

/// Without decimals if whole: most are samples or tokens.
inline Cell units_cell(const std::optional<double>& units) {
  constexpr double kExact = 9'007'199'254'740'992;  // up to here every whole number is a double
  if (units && *units < kExact && *units == std::floor(*units)) return static_cast<std::uint64_t>(*units);
  return exact_cell(units, units::kUnits);
}

/// Adds the time in fetches from data loaders; `fetches` returns it, or null.
template <typename Row, typename Fetches>
void add_fetch_columns(Columns<Row>& columns, Fetches fetches) {
  using namespace units;
  const auto time = [](FetchKind kind) {
    return [kind](const FetchTimes& of) { return of[static_cast<std::size_t>(kind)]; };
  };
  columns.of(fetches, "rows of one device; not known from PyTorch (iterations.md); not settled yet")
      .add("Fetch: Waiting (ns)", kTime, time(FetchKind::kWaiting),
           "Time the training thread spent in DataLoader.__next__ of a loader with worker processes.")
      .add("Fetch: Processing (ns)", kTime, time(FetchKind::kProcessing),
           "The same for a loader without workers: the thread made the batch itself.");
}

/// Adds FLOPs, their rate and its share of the peaks; `rate` returns the FlopRate, or null.
template <typename Row, typename Rate>
void add_flop_columns(Columns<Row>& columns, Rate rate) {
  using namespace units;
  columns.of(rate)
      .add("FLOPs", kFlop, &FlopRate::flops, "FLOPs of the library calls of known shape.",
           "rows of one device; records of calls, or of work of captured or unknown calls, were lost")
      .add("TFLOP/s", kTeraflops, &FlopRate::teraflops,
           "FLOPs / Duration; of an iteration that the host ran ahead in: / Step Time.",
           "rows of one device; no FLOPs, or not all, are known; an impossible rate (peaks.md); the host ran "
           "ahead of the GPU, or may have while records of its work were lost, and the row is a window's, or "
           "has no Step "
           "Time; no complete iteration, and the work ended long after the window")
      .add(
          "Peak (%)", kRateShare, [](const FlopRate& of) { return percent(of.peak_share.value); },
          "Time the FLOPs would take at the first device's peaks, as a share of that time; with several "
          "devices running kernels, divided by their number.",
          "rows of one device; the rate or a peak is not known");
}

}  // namespace inject
