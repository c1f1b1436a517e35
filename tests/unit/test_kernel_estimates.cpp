// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_estimates.h"

#include <array>
#include <limits>
#include <vector>

#include "tests/unit/catch.h"

using namespace inject;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::uint64_t kLength = 100'000;

const MetricInfo kActive{"sm__cycles_active", "SM Active (%)", Quantity::kSmActive};
const MetricInfo kIpc{"sm__inst_executed", "IPC", Quantity::kIpc};
const MetricInfo kPcie{"pcie__read_bytes", "PCIe Read (MB/s)", Quantity::kPcieRead};

/// A sample in which one row ran for part of the time; `values` are its contribution to the sample.
void add(KernelEstimates& estimates, std::uint32_t row, double share, std::vector<float> values) {
  const auto time = static_cast<std::uint64_t>(share * kLength);
  const std::uint32_t rows[] = {row};
  const JoinedSample::RowPart part{row, time, 0};
  const SampleMixture::Part states[] = {{estimates.mixture(0).state(rows, 0), share},
                                        {SampleMixture::kIdle, 1 - share}};
  estimates.add(0, {{&part, 1}, states, values, kLength});
}

}  // namespace

TEST_CASE("Kinds of metrics", "[metrics]") {
  const MetricKinds kinds({kIpc, kActive, kPcie});
  CHECK(kinds.size() == 3);
  CHECK(kinds.sm_active() == 1);
  CHECK(kinds.percentage(1));
  CHECK_FALSE(kinds.percentage(0));
  CHECK(kinds.per_active_cycle(0));
  CHECK(kinds.of_link(2));
  CHECK_FALSE(kinds.of_link(0));
  // Active cycles are unknown.
  CHECK_FALSE(MetricKinds({kIpc}).per_active_cycle(0));
  CHECK(MetricKinds().size() == 0);
}

TEST_CASE("A kernel that fills its samples has their mean", "[metrics]") {
  KernelEstimates estimates({kActive, kIpc});
  estimates.add(4, 0, 20 * kLength);
  for (int i = 0; i < 20; ++i) add(estimates, 4, 1, {50, 1});  // active in half of the cycles, two in each
  REQUIRE(estimates.entries().size() == 1);
  const KernelMetricEntry& entry = estimates.entry(4);
  CHECK(entry.row == 4);
  CHECK(entry.instances == 1);
  CHECK(entry.whole_samples == 20);
  CHECK(entry.metrics[0].value == Approx(50));
  CHECK(entry.metrics[1].value == Approx(2));
  CHECK(entry.reliable());
}

TEST_CASE("Nine samples tell nothing", "[metrics]") {
  KernelEstimates estimates({kActive});
  estimates.add(0, 0, 9 * kLength);
  for (int i = 0; i < 9; ++i) add(estimates, 0, 1, {50});
  CHECK(estimates.entry(0).metrics[0].measured);
  CHECK_FALSE(estimates.entry(0).reliable());
  add(estimates, 0, 1, {50});
  CHECK(estimates.entry(0).reliable());
}

TEST_CASE("A kernel that never runs alone is bounded by what the rest of its samples can be", "[metrics]") {
  KernelEstimates estimates({kActive});
  estimates.add(0, 0, kLength);
  // It always has the same share, so nothing distinguishes it from the rest.
  for (int i = 0; i < 40; ++i) add(estimates, 0, 0.5, {70});
  const MetricEstimate& metric = estimates.entry(0).metrics[0];
  CHECK(metric.bounded);
  // The rest contributed between 0 and 100 %, so it did 40 to 100.
  CHECK(metric.value == Approx(70));
  CHECK(metric.error == Approx(30));
  CHECK_FALSE(metric.reliable);
}

TEST_CASE("A kernel with varying parts of its samples is taken apart from the rest", "[metrics]") {
  KernelEstimates estimates({kActive});
  for (int i = 0; i < 200; ++i) {
    const double share = 0.2 + 0.1 * (i % 7);
    estimates.add(0, 0, static_cast<std::uint64_t>(share * kLength));
    add(estimates, 0, share, {static_cast<float>(80 * share)});
  }
  const MetricEstimate& metric = estimates.entry(0).metrics[0];
  CHECK_FALSE(metric.bounded);
  CHECK(metric.value == Approx(80).margin(0.1));
  CHECK(metric.reliable);
  CHECK(metric.error >= 80 * KernelEstimates::kCarriedOver);
}

TEST_CASE("Rows without samples and metrics without values", "[metrics]") {
  KernelEstimates estimates({kActive, kPcie});
  estimates.add(2, 0, 500);
  estimates.add(2, 1, 500);
  CHECK(estimates.entries().size() == 1);
  CHECK(estimates.entry(2).instances == 2);
  CHECK_FALSE(estimates.entry(2).reliable());
  for (int i = 0; i < 20; ++i) add(estimates, 2, 1, {60, kNan});
  const KernelMetricEntry& entry = estimates.entry(2);
  CHECK(entry.samples == 20);
  CHECK_FALSE(entry.metrics[1].measured);
  CHECK(entry.metrics[1].of_link);
  CHECK(entry.reliable());
  CHECK(estimates.crowded() == 0);
}
