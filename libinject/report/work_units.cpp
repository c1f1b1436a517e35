// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/report/work_units.h"

#include <algorithm>

namespace inject {

namespace {

std::optional<double> rate(double units, std::uint64_t time) {
  if (time == 0) return std::nullopt;
  return units / (static_cast<double>(time) * 1e-9);
}

std::optional<double> stated_units(const RunInfo& run) {
  return run.batch != 0 ? std::optional(static_cast<double>(run.batch)) : std::nullopt;
}

}  // namespace

void WorkUnits::add(const std::optional<double>& more, std::uint64_t duration,
                    std::span<const IterationDeviceRow> devices) {
  if (!more) return;
  ++iterations;
  units += *more;
  time += duration;
  for (const IterationDeviceRow& device : devices) busy[device.device] += device.busy;
}

std::optional<double> WorkUnits::total() const {
  return iterations != 0 ? std::optional(units) : std::nullopt;
}

std::optional<double> WorkUnits::per_second() const {
  return iterations != 0 ? rate(units, time) : std::nullopt;
}

std::optional<double> WorkUnits::per_busy_second() const {
  std::uint64_t busiest = 0;
  for (const auto& [device, time_busy] : busy) busiest = std::max(busiest, time_busy);
  return iterations != 0 ? rate(units, busiest) : std::nullopt;
}

std::optional<double> units_of(const RunInfo& run, const IterationRow& row) {
  if (row.kind != IterationRow::Kind::kPhase || !row.complete) return std::nullopt;
  if (run.unit_source != UnitSource::kStated) return row.units;
  return row.label == IterationLabel::kIteration ? stated_units(run) : std::nullopt;
}

std::optional<double> units_of(const RunInfo& run, const UnprofiledStep& step) {
  return run.unit_source == UnitSource::kStated ? stated_units(run) : step.units;
}

std::string_view unit_source_name(UnitSource source) {
  switch (source) {
    case UnitSource::kCalled:
      return "called";
    case UnitSource::kStated:
      return "stated";
    case UnitSource::kPayload:
      return "payload";
    case UnitSource::kLoader:
      return "loader";
  }
  return {};
}

}  // namespace inject
