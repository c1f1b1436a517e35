// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/metrics/metric_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "libinject/base/format.h"
#include "libinject/base/text.h"

namespace inject {

namespace {

constexpr std::string_view kElapsed = ".avg.pct_of_peak_sustained_elapsed";
constexpr std::string_view kPerCycle = ".avg.per_cycle_elapsed";
constexpr std::string_view kPerSecond = ".sum.per_second";
constexpr double kMega = 1e-6;

struct Entry {
  Quantity quantity;
  const char* title;
  std::string_view rollup;
  double scale;
  // Base names in order of preference: chips have different names for the same thing, or have it only in a
  // form that does not fit beside the rest. If the preferred ones of all entries do not fit together,
  // `_realtime` counters come first, because they leave room for others.
  std::array<std::string_view, 5> names;
};

// The most important first: what does not fit beside the earlier ones is left out.
constexpr Entry kEntries[] = {
    {Quantity::kSmActive, "SM Active (%)", kElapsed, 1, {"sm__cycles_active"}},
    {Quantity::kTensor,
     "Tensor Pipe (%)",
     kElapsed,
     1,
     {"sm__pipe_tensor_cycles_active_realtime", "sm__pipe_tensor_cycles_active",
      "smsp__pipe_tensor_cycles_active", "sm__inst_executed_pipe_tensor"}},
    {Quantity::kFma,
     "FMA Pipe (%)",
     kElapsed,
     1,
     {"sm__inst_executed_pipe_fma_realtime", "sm__pipe_fma_cycles_active_realtime",
      "smsp__inst_executed_pipe_fma", "sm__inst_executed_pipe_fma", "sm__pipe_fma_cycles_active"}},
    // The SM's, whose peak is the number of warps that it can hold; first the counter that profilers of
    // single kernels read. In a CUDA program, all warps are those of compute shaders. Not the TPC's: on an
    // H200 (CUDA 13.0) tpc__warps_active_realtime gives a percentage of one SM's warps, and too small a value
    // if the TPC has more.
    {Quantity::kWarpsActive,
     "Warps Active (%)",
     kElapsed,
     1,
     {"sm__warps_active", "sm__warps_active_realtime", "sm__warps_active_shader_cs_realtime"}},
    {Quantity::kDramRead, "DRAM Read (%)", kElapsed, 1, {"dramc__read_throughput", "dram__read_throughput"}},
    {Quantity::kDramWrite,
     "DRAM Write (%)",
     kElapsed,
     1,
     {"dramc__write_throughput", "dram__write_throughput"}},
    // Divided by SM Active below: CUPTI's own quotient counts the active cycles again.
    {Quantity::kIpc, "IPC", kPerCycle, 1, {"sm__inst_executed_realtime", "sm__inst_executed"}},
    {Quantity::kFp64,
     "FP64 Pipe (%)",
     kElapsed,
     1,
     {"sm__pipe_fp64_cycles_active_realtime", "sm__pipe_fp64_cycles_active", "sm__inst_executed_pipe_fp64"}},
    // Throughput consists of several counters, which differ from chip to chip, and takes twice the room.
    {Quantity::kL2, "L2 (%)", kElapsed, 1, {"lts__t_sectors", "lts__throughput"}},
    {Quantity::kPcieRead, "PCIe Read (MB/s)", kPerSecond, kMega, {"pcie__read_bytes"}},
    {Quantity::kPcieWrite, "PCIe Write (MB/s)", kPerSecond, kMega, {"pcie__write_bytes"}},
    {Quantity::kNvlinkReceive, "NVLink Receive (MB/s)", kPerSecond, kMega, {"nvlrx__bytes"}},
    {Quantity::kNvlinkTransmit, "NVLink Transmit (MB/s)", kPerSecond, kMega, {"nvltx__bytes"}},
};
constexpr const char* kOccupancyTitle = "Occupancy (%)";

// The vendor's groups of counters that can be measured together in one pass precede the base name:
// `TPC.TriageCompute.sm__cycles_active`. The same counter may be in several groups.
int rank_of_group(std::string_view prefix) {
  if (prefix.find("TriageCompute") != std::string_view::npos) return 0;
  if (prefix.find("TriageSCG") != std::string_view::npos) return 1;
  if (prefix.find("Triage") != std::string_view::npos) return 2;
  return 3;
}

/// The names of an entry's metric on a chip, the best first, with their rollup.
std::vector<std::string> candidates(const ChipMetrics& chip, const Entry& entry) {
  std::vector<std::string> found;
  for (const std::string_view wanted : entry.names) {
    if (wanted.empty()) break;
    std::vector<std::string_view> same;
    for (const std::string_view name : chip.base_names) {
      const std::size_t dot = name.rfind('.');
      if (name.substr(dot == std::string_view::npos ? 0 : dot + 1) == wanted) same.push_back(name);
    }
    std::stable_sort(same.begin(), same.end(), [](std::string_view a, std::string_view b) {
      return rank_of_group(a) < rank_of_group(b);
    });
    for (const std::string_view name : same) found.push_back(std::string(name).append(entry.rollup));
  }
  return found;
}

bool one_pass(const ChipMetrics& chip, std::vector<std::string> names, const std::string& further) {
  names.push_back(further);
  return chip.passes(names) == 1;
}

bool is_realtime(std::string_view name) {
  return name.find("_realtime.") != std::string_view::npos;
}

/// The index of the candidate measured for each entry; kNone for none.
std::vector<std::size_t> fit(const ChipMetrics& chip, const std::vector<std::vector<std::string>>& names) {
  std::vector<std::size_t> taken(names.size(), MetricChoice::kNone);
  // Usually the best names of all entries fit together. A query takes milliseconds.
  std::vector<std::string> best;
  for (const auto& of_entry : names) {
    if (!of_entry.empty()) best.push_back(of_entry.front());
  }
  if (!best.empty() && chip.passes(best) == 1) {
    for (std::size_t i = 0; i < names.size(); ++i) taken[i] = names[i].empty() ? MetricChoice::kNone : 0;
    return taken;
  }
  best.clear();
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const bool realtime : {true, false}) {
      for (std::size_t k = 0; k < names[i].size() && taken[i] == MetricChoice::kNone; ++k) {
        if (is_realtime(names[i][k]) != realtime || !one_pass(chip, best, names[i][k])) continue;
        best.push_back(names[i][k]);
        taken[i] = k;
      }
    }
  }
  return taken;
}

}  // namespace

MetricChoice choose_metrics(const ChipMetrics& chip) {
  std::vector<std::vector<std::string>> names;
  for (const Entry& entry : kEntries) names.push_back(candidates(chip, entry));
  const std::vector<std::size_t> taken = fit(chip, names);

  MetricChoice choice;
  struct Column {
    MetricInfo info;
    MetricChoice::Source source;
  };
  std::vector<Column> columns;
  for (std::size_t i = 0; i < std::size(kEntries); ++i) {
    const Entry& entry = kEntries[i];
    if (taken[i] == MetricChoice::kNone) {
      choice.left_out.emplace_back(entry.title);
      continue;
    }
    columns.push_back({{names[i][taken[i]], entry.title, entry.quantity},
                       {choice.measured.size(), entry.scale, MetricChoice::kNone}});
    choice.measured.push_back(names[i][taken[i]]);
  }
  const auto place = [&columns](Quantity quantity) {
    return std::find_if(columns.begin(), columns.end(),
                        [quantity](const Column& column) { return column.info.quantity == quantity; });
  };
  // Per cycle in which the SM was active: a count over all cycles, divided by SM Active.
  const auto by_active = [&](const Column& over_all, const char* title, Quantity quantity) {
    const auto active = place(Quantity::kSmActive);
    if (active == columns.end()) return std::optional<Column>();
    return std::optional<Column>({{over_all.info.name + " / " + active->info.name, title, quantity},
                                  {over_all.source.measured, 100, active->source.measured}});
  };
  const auto warps = place(Quantity::kWarpsActive);
  std::optional<Column> occupancy;
  if (warps != columns.end()) occupancy = by_active(*warps, kOccupancyTitle, Quantity::kOccupancy);
  if (occupancy) {
    columns.push_back(std::move(*occupancy));
  } else {
    choice.left_out.emplace_back(kOccupancyTitle);
  }
  if (const auto ipc = place(Quantity::kIpc); ipc != columns.end()) {
    std::optional<Column> per_active = by_active(*ipc, ipc->info.title.c_str(), Quantity::kIpc);
    if (per_active) {
      *ipc = std::move(*per_active);
    } else {
      choice.left_out.push_back(ipc->info.title);
      columns.erase(ipc);
    }
  }
  std::sort(columns.begin(), columns.end(),
            [](const Column& a, const Column& b) { return a.info.quantity < b.info.quantity; });
  for (Column& column : columns) {
    choice.metrics.push_back(std::move(column.info));
    choice.sources.push_back(column.source);
  }
  if (choice.metrics.empty()) {
    const std::string problem = chip.problem == nullptr ? std::string() : chip.problem();
    choice.temporary = !problem.empty();
    choice.error = choice.temporary ? "its metrics can't be checked: " + problem
                                    : "it has none of the metrics that INJECT_METRICS=auto samples";
  }
  return choice;
}

MetricChoice check_metrics(const ChipMetrics& chip, const std::vector<std::string>& names) {
  MetricChoice choice;
  for (const std::string& name : names) {
    const std::size_t alone = chip.passes({name});
    if (alone == 0) {
      const std::string problem = chip.problem == nullptr ? std::string() : chip.problem();
      choice.temporary = !problem.empty();
      choice.error = quoted(name) + (choice.temporary ? " can't be checked: " + problem
                                                      : " is not a metric that this chip can sample");
      return choice;
    }
    if (alone > 1) {
      choice.error =
          str_format("{} alone needs {} passes; all sampled metrics must fit into one", quoted(name), alone);
      return choice;
    }
    choice.measured.push_back(name);
    const std::size_t passes = choice.measured.size() == 1 ? alone : chip.passes(choice.measured);
    if (passes != 1) {
      choice.error =
          str_format("{} does not fit into one pass with the metrics named before it ({} passes together)",
                     quoted(name), passes);
      return choice;
    }
    choice.sources.push_back({choice.metrics.size(), 1, MetricChoice::kNone});
    choice.metrics.push_back({name, name, Quantity::kUser});
  }
  return choice;
}

std::vector<std::string> leave_out_least_important(MetricChoice& choice) {
  constexpr std::array<std::array<Quantity, 2>, 5> kMinFirst{{
      {Quantity::kNvlinkReceive, Quantity::kNvlinkTransmit},
      {Quantity::kPcieRead, Quantity::kPcieWrite},
      {Quantity::kL2, Quantity::kL2},
      {Quantity::kDramRead, Quantity::kDramWrite},
      {Quantity::kFp64, Quantity::kIpc},
  }};
  constexpr std::size_t kNone = MetricChoice::kNone;
  for (const auto& group : kMinFirst) {
    std::vector<std::string> titles;
    for (std::size_t i = 0; i < choice.sources.size(); ++i) {
      const Quantity quantity = choice.metrics[i].quantity;
      if (choice.sources[i].measured == kNone || (quantity != group[0] && quantity != group[1])) continue;
      choice.sources[i] = {kNone, 1, kNone};
      titles.push_back(choice.metrics[i].title);
    }
    if (titles.empty()) continue;
    // A metric from which no value is computed any more is not measured.
    std::vector<std::string> measured;
    std::vector<std::size_t> places(choice.measured.size(), kNone);
    const auto place = [&](std::size_t& index) {
      if (index == kNone) return;
      if (places[index] == kNone) {
        places[index] = measured.size();
        measured.push_back(choice.measured[index]);
      }
      index = places[index];
    };
    for (MetricChoice::Source& source : choice.sources) {
      place(source.measured);
      place(source.share_of);
    }
    if (measured.empty()) return {};
    choice.measured = std::move(measured);
    choice.left_out.insert(choice.left_out.end(), titles.begin(), titles.end());
    return titles;
  }
  return {};
}

MetricChoice with_columns_of(const MetricChoice& first, const MetricChoice& choice) {
  MetricChoice mapped = choice;
  mapped.metrics = first.metrics;
  mapped.sources.assign(first.metrics.size(), {MetricChoice::kNone, 1, MetricChoice::kNone});
  for (std::size_t i = 0; i < first.metrics.size(); ++i) {
    const MetricInfo& wanted = first.metrics[i];
    for (std::size_t k = 0; k < choice.metrics.size(); ++k) {
      const MetricInfo& own = choice.metrics[k];
      if (own.quantity == wanted.quantity && (own.quantity != Quantity::kUser || own.name == wanted.name))
        mapped.sources[i] = choice.sources[k];
    }
  }
  return mapped;
}

std::array<float, kMaxMetrics> MetricChoice::values(std::span<const double> of_measured) const {
  std::array<float, kMaxMetrics> values;
  values.fill(std::numeric_limits<float>::quiet_NaN());
  for (std::size_t i = 0; i < sources.size() && i < values.size(); ++i) {
    const Source& source = sources[i];
    if (source.measured >= of_measured.size()) continue;
    double value = of_measured[source.measured] * source.scale;
    if (source.share_of != kNone) {
      const double whole = of_measured[source.share_of];
      // A share of nothing is undefined. Values above the possible maximum are recognised where they are
      // used.
      value = whole > 0 ? value / whole : std::numeric_limits<double>::quiet_NaN();
    }
    if (std::isfinite(value)) values[i] = static_cast<float>(value);
  }
  return values;
}

bool MetricChoice::contradictory(std::span<const float> values) const {
  constexpr float kRounded = 1.01F;
  const auto active = std::find_if(metrics.begin(), metrics.end(), [](const MetricInfo& metric) {
    return metric.quantity == Quantity::kSmActive;
  });
  if (active == metrics.end()) return false;
  // A value that was not measured compares as neither more nor less.
  const float most = values[static_cast<std::size_t>(active - metrics.begin())] * kRounded;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    const Quantity quantity = metrics[i].quantity;
    const bool of_sm = quantity == Quantity::kWarpsActive || quantity == Quantity::kFma ||
                       quantity == Quantity::kFp64 || quantity == Quantity::kTensor;
    if (of_sm && values[i] > most) return true;
  }
  return false;
}

}  // namespace inject
