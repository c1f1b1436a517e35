// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// INJECT_METRICS=auto on every chip that the real CUPTI knows; its host API needs no device. Exits with 77 if
// that CUPTI is not available.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/capture/metrics/metric_host.h"

using namespace inject;

namespace {

// Quantities that do not fit into one pass with CUPTI 13.0.
struct Expected {
  const char* chip;
  const char* left_out;
};
constexpr Expected kChips[] = {
    {"TU102", "Tensor Pipe (%)"},
    {"TU104", "Tensor Pipe (%)"},
    {"TU106", "Tensor Pipe (%)"},
    {"TU116", "NVLink Receive (MB/s), NVLink Transmit (MB/s)"},
    {"TU117", "NVLink Receive (MB/s), NVLink Transmit (MB/s)"},
    {"GA100", ""},
    {"GA102", "FP64 Pipe (%)"},
    {"GA103", "FP64 Pipe (%)"},
    {"GA104", "FP64 Pipe (%)"},
    {"GA106", "FP64 Pipe (%)"},
    {"GA107", "FP64 Pipe (%)"},
    {"GA10B",
     "DRAM Read (%), DRAM Write (%), FP64 Pipe (%), PCIe Read (MB/s), PCIe Write (MB/s), NVLink Receive "
     "(MB/s), NVLink Transmit (MB/s)"},
    {"GH100", ""},
    {"AD102", "FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s)"},
    {"AD103", "FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s)"},
    {"AD104", "FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s)"},
    {"AD106", "FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s)"},
    {"AD107", "FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s)"},
    {"GB100", ""},
    {"GB102", ""},
    {"GB110", ""},
    {"GB10B",
     "DRAM Read (%), DRAM Write (%), FP64 Pipe (%), PCIe Read (MB/s), PCIe Write (MB/s), NVLink Receive "
     "(MB/s), NVLink Transmit (MB/s)"},
    {"GB202",
     "Warps Active (%), FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s), Occupancy (%)"},
    {"GB203",
     "Warps Active (%), FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s), Occupancy (%)"},
    {"GB205",
     "Warps Active (%), FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s), Occupancy (%)"},
    {"GB206",
     "Warps Active (%), FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s), Occupancy (%)"},
    {"GB207",
     "Warps Active (%), FP64 Pipe (%), NVLink Receive (MB/s), NVLink Transmit (MB/s), Occupancy (%)"},
    {"GB20B",
     "Warps Active (%), DRAM Read (%), DRAM Write (%), FP64 Pipe (%), PCIe Read (MB/s), PCIe Write (MB/s), "
     "NVLink Receive (MB/s), NVLink Transmit (MB/s), Occupancy (%)"},
};
constexpr std::uint32_t kOldest = 130000;
constexpr std::uint32_t kNewest = 130099;

int failures = 0;

void check(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("FAILED: %s\n", what.c_str());
}

std::string joined(const std::vector<std::string>& texts) {
  std::string line;
  for (const std::string& text : texts) line += (line.empty() ? "" : ", ") + text;
  return line;
}

void check_chip(const PmApi& api, const Expected& expected, bool exactly) {
  MetricHost host(api, expected.chip);
  std::vector<std::string> names;
  check(host.base_names(names) == CUPTI_SUCCESS, std::string(expected.chip) + " is known");
  const ChipMetrics chip = chip_metrics(host, names);
  const MetricChoice choice = choose_metrics(chip);
  std::printf("%s: %zu in one pass; left out: %s\n", expected.chip, choice.measured.size(),
              joined(choice.left_out).c_str());
  check(choice.error.empty() && chip.passes(choice.measured) == 1, std::string(expected.chip) + ": one pass");
  check(!choice.metrics.empty() && choice.metrics[0].quantity == Quantity::kSmActive,
        std::string(expected.chip) + ": SM active");
  // A TPC counter counts the warps of two SMs, relative to an undocumented peak.
  for (const std::string& name : choice.measured) {
    check(name.find("tpc__") == std::string::npos, std::string(expected.chip) + ": by SM, not " + name);
    if (std::string_view(expected.chip) == "GH100" && name.find("warps") != std::string::npos)
      check(name == "sm__warps_active.avg.pct_of_peak_sustained_elapsed", "GH100: warps as ncu has them");
  }
  if (exactly) {
    check(joined(choice.left_out) == expected.left_out,
          std::string(expected.chip) + ": left out, expected: " + expected.left_out);
  }
  std::vector<std::uint8_t> config;
  check(host.open(choice.measured, config) == CUPTI_SUCCESS && !config.empty(),
        std::string(expected.chip) + ": a configuration");
}

void check_errors(const PmApi& api) {
  MetricHost host(api, "GH100");
  const ChipMetrics chip = chip_metrics(host, {});
  const std::string active = "TPC.TriageCompute.sm__cycles_active.avg.pct_of_peak_sustained_elapsed";
  check(check_metrics(chip, {active}).error.empty(), "a user's own metric");
  // The metrics that tests/gpu/metrics_collection.py compares.
  const std::string percent = ".avg.pct_of_peak_sustained_elapsed";
  const std::string warps =
      check_metrics(chip, {active, "sm__warps_active" + percent,
                           "TPC.TriageCompute.tpc__warps_active_shader_cs_realtime" + percent})
          .error;
  check(warps.empty(), "counters of warps, one beside the other: " + warps);
  for (const char* unknown :
       {"sm__nonsense.avg", "sm__cycles_active.avg.nonsense", "sm__cycles_active.sum."}) {
    const std::string error = check_metrics(chip, {active, unknown}).error;
    check(error.find(unknown) != std::string::npos, "it is said that there is no " + std::string(unknown));
  }
  const std::string error =
      check_metrics(chip, {"sm__warps_active.avg", "sm__inst_executed_pipe_lsu.sum",
                           "sm__pipe_tensor_cycles_active.avg", "sm__pipe_fp64_cycles_active.avg",
                           "smsp__inst_executed.sum", "sm__inst_executed_pipe_alu.sum"})
          .error;
  check(error.find("passes") != std::string::npos, "too many counters for one pass: " + error);
  MetricHost unknown(api, "GV100");
  std::vector<std::string> names;
  check(unknown.base_names(names) != CUPTI_SUCCESS, "a chip that is too old");
}

}  // namespace

int main() {
  CuptiApi cupti;
  PmApi api;
  std::string error;
  if (!load_cupti(cupti, error) || !find_pm_api(cupti, api, error)) {
    std::printf("SKIP: %s\n", error.c_str());
    return 77;
  }
  std::vector<std::string> names;
  if (const CUptiResult result = MetricHost(api, "GH100").base_names(names); result != CUPTI_SUCCESS) {
    // The vendor's libnvperf_host.so is a separate file.
    std::printf("SKIP: the host API of %s does not work here: %s\n", cupti.path.c_str(),
                cupti.describe(result).c_str());
    return 77;
  }
  const bool exactly = cupti.version >= kOldest && cupti.version <= kNewest;
  std::printf("%s, version %u%s\n", cupti.path.c_str(), cupti.version,
              exactly ? "" : ": not the one that the table was read from");
  for (const Expected& expected : kChips) check_chip(api, expected, exactly);
  check_errors(api);
  return failures == 0 ? 0 : 1;
}
