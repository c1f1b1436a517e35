// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/kernel_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "tests/unit/catch.h"
#include "tests/unit/synthetic_timeline.h"

using namespace inject;

namespace {

constexpr Nanoseconds kInterval = 20'000;
/// For whole programs: the default interval, so that errors in an execution's edges stay visible.
constexpr Nanoseconds kUsualInterval = 500'000;
constexpr float kNoValue = std::numeric_limits<float>::quiet_NaN();

MetricSample sample_at(Nanoseconds start, float value, std::uint32_t window = 1) {
  MetricSample sample;
  sample.start = start;
  sample.end = start + kInterval;
  sample.window = window;
  sample.values.fill(kNoValue);
  sample.values[0] = value;
  return sample;
}

void add(KernelMetrics& metrics, const std::vector<MetricSample>& samples) {
  for (const MetricSample& sample : samples) metrics.sample(sample);
}

void add(KernelMetrics& metrics, const SyntheticTimeline& timeline) {
  for (const SyntheticTimeline::Kernel& kernel : timeline.kernels)
    metrics.kernel(1, timeline.device, kernel.row, kernel.start, kernel.end);
}

KernelMetrics joined(const SyntheticTimeline& timeline, Nanoseconds phase = 0) {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  add(metrics, timeline);
  add(metrics, timeline.samples(kInterval, phase));
  metrics.settle_window(1);
  return metrics;
}

KernelMetricEntry entry_of(const KernelMetrics& metrics, std::uint32_t row) {
  for (KernelMetricEntry& entry : metrics.rows()) {
    if (entry.row == row) return std::move(entry);
  }
  FAIL("no row " << row);
  return {};
}

/// Kernels of a program, their order, and their metric values.
struct SampledProgram {
  std::vector<double> lengths;
  std::vector<double> values;
  std::vector<std::uint32_t> order;  ///< in a step; empty: random
  double noise = 0;                  ///< of an execution's value, up or down by this much
  double slope = 0;                  ///< the first half is higher by this much than the second
};

struct Coverage {
  int rows = 0;
  int shown = 0;
  int within = 0;
  double worst_error = 0;  ///< largest error shown
};

/// Runs the program for `samples` samples, and compares the shown values with each kernel's true value.
Coverage coverage(const SampledProgram& program, unsigned seed, Nanoseconds samples) {
  std::mt19937 random(seed);
  const auto uniform = [&random] { return static_cast<double>(random()) / 4294967296.0; };
  const std::size_t kernels = program.lengths.size();
  SyntheticTimeline halves;
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  std::vector<double> work(kernels, 0.0);
  std::vector<double> time(kernels, 0.0);
  for (std::size_t i = 0; halves.now < samples * kUsualInterval; ++i) {
    const std::size_t k =
        program.order.empty()
            ? std::min(static_cast<std::size_t>(uniform() * static_cast<double>(kernels)), kernels - 1)
            : program.order[i % program.order.size()];
    const auto half = static_cast<Nanoseconds>(program.lengths[k] * (0.97 + 0.06 * uniform()) / 2);
    const double value = program.values[k] + program.noise * (2 * uniform() - 1);
    const Nanoseconds start = halves.now;
    halves.run(static_cast<std::uint32_t>(k), half, value + program.slope / 2);
    halves.run(static_cast<std::uint32_t>(k), half, value - program.slope / 2);
    metrics.kernel(1, 0, static_cast<std::uint32_t>(k), start, halves.now);
    work[k] += value * static_cast<double>(2 * half);
    time[k] += static_cast<double>(2 * half);
    if (uniform() < 0.3) halves.idle(static_cast<Nanoseconds>(uniform() * 0.15 * double{kUsualInterval}));
  }
  add(metrics, halves.samples(kUsualInterval));
  metrics.settle_window(1);
  Coverage result;
  for (const KernelMetricEntry& entry : metrics.rows()) {
    ++result.rows;
    const MetricEstimate& metric = entry.metrics.at(0);
    if (!metric.reliable) continue;
    ++result.shown;
    // Samples are floats.
    if (std::abs(metric.value - work[entry.row] / time[entry.row]) <= metric.error + 1e-3) ++result.within;
    result.worst_error = std::max(result.worst_error, metric.error);
  }
  return result;
}

/// Lengths from 1/20 of a sample to `longest` samples, values of 20 to 80 %.
SampledProgram short_kernels(std::size_t count, double longest, unsigned seed) {
  std::mt19937 random(seed);
  const auto uniform = [&random] { return static_cast<double>(random()) / 4294967296.0; };
  SampledProgram program;
  for (std::size_t i = 0; i < count; ++i) {
    program.lengths.push_back(0.05 * std::pow(longest / 0.05, uniform()) * double{kUsualInterval});
    program.values.push_back(20 + 60 * uniform());
  }
  return program;
}

std::vector<std::uint32_t> some_order(std::size_t kernels, std::size_t length, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> order;
  for (std::size_t i = 0; i < length; ++i) order.push_back(static_cast<std::uint32_t>(random() % kernels));
  return order;
}

}  // namespace

TEST_CASE("A metric is a percentage by its title", "[metrics]") {
  CHECK(is_percentage(sm_active()));
  CHECK_FALSE(is_percentage({"sm__inst_executed.avg.per_cycle_active", "IPC", Quantity::kIpc}));
  CHECK_FALSE(is_percentage({"x", "", Quantity::kUser}));
}

TEST_CASE("Without metrics nothing is kept", "[metrics]") {
  KernelMetrics metrics;
  metrics.kernel(1, 0, 0, 100, 200);
  metrics.sample(sample_at(0, 50));
  metrics.settle_window(1);
  CHECK_FALSE(metrics.active());
  CHECK(metrics.rows().empty());
  CHECK(metrics.windows().empty());
  CHECK(metrics.held_kernels() + metrics.held_samples() == 0);
}

TEST_CASE("Long kernels have the mean of their samples", "[metrics]") {
  SyntheticTimeline timeline;
  for (int i = 0; i < 5; ++i) {
    timeline.run(0, 20 * kInterval, 90);
    timeline.idle(3 * kInterval / 2);
    timeline.run(1, 15 * kInterval + 777, 25.5);
  }
  for (const Nanoseconds phase : {Nanoseconds{0}, kInterval / 3}) {
    const KernelMetrics metrics = joined(timeline, phase);
    const KernelMetricEntry first = entry_of(metrics, 0);
    CHECK(first.instances == 5);
    CHECK(first.time == 100 * kInterval);
    CHECK(first.whole_samples >= 5 * 19);
    CHECK(first.shared_time == 0);
    CHECK(first.reliable());
    CHECK(first.metrics[0].value == Approx(90));
    CHECK(first.metrics[0].error < 0.01);
    const KernelMetricEntry second = entry_of(metrics, 1);
    CHECK(second.metrics[0].value == Approx(25.5));
    CHECK(second.metrics[0].error < 0.01);
    CHECK(second.reliable());
  }
}

TEST_CASE("The error of a long kernel is that of executions that differ, not of their many samples",
          "[metrics]") {
  std::mt19937 random(7);
  std::normal_distribution<double> value(50, 5);
  int within = 0;
  constexpr int kRuns = 100;
  for (int run = 0; run < kRuns; ++run) {
    SyntheticTimeline timeline;
    for (int i = 0; i < 40; ++i) timeline.run(0, 10 * kInterval, std::clamp(value(random), 0.0, 100.0));
    const KernelMetricEntry entry = entry_of(joined(timeline), 0);
    if (std::abs(entry.metrics[0].value - 50) <= entry.metrics[0].error) ++within;
    // 1.96 * 5 / sqrt(40) is 1.5; 400 samples, if they were independent, would give 0.5.
    CHECK(entry.metrics[0].error < 5);
  }
  CHECK(within >= kRuns * 9 / 10);
}

TEST_CASE("Short kernels in random order are told apart within the stated error in nine of ten cases",
          "[metrics]") {
  Coverage sum;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SampledProgram program = short_kernels(seed % 3 == 0 ? 30 : 8, seed % 2 == 0 ? 2 : 0.5, seed);
    program.noise = 8;
    const Coverage one = coverage(program, seed, 3000);
    sum.rows += one.rows;
    sum.shown += one.shown;
    sum.within += one.within;
    CHECK(one.worst_error <= KernelEstimates::kMaxPoints);
  }
  CAPTURE(sum.rows, sum.shown, sum.within);
  CHECK(sum.shown >= sum.rows * 9 / 10);
  CHECK(sum.within >= sum.shown * 9 / 10);
}

TEST_CASE("So they are in a program whose steps are all alike, and when they begin other than they end",
          "[metrics]") {
  const double slope = GENERATE(0.0, 30.0);
  Coverage sum;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SampledProgram program = short_kernels(10, seed % 2 == 0 ? 2 : 0.7, seed);
    program.order = some_order(10, 35, seed);
    program.noise = 5;
    program.slope = slope;
    const Coverage one = coverage(program, seed, 3000);
    sum.rows += one.rows;
    sum.shown += one.shown;
    sum.within += one.within;
  }
  CAPTURE(slope, sum.rows, sum.shown, sum.within);
  CHECK(sum.shown >= sum.rows * 9 / 10);
  CHECK(sum.within >= sum.shown * 9 / 10);
}

TEST_CASE("Kernels that no sample tells apart are marked", "[metrics]") {
  // Always both halves of each sample, so 80 and 20 look the same as 50 and 50.
  SyntheticTimeline timeline;
  for (int i = 0; i < 500; ++i) {
    timeline.run(0, kInterval / 2, 80);
    timeline.run(1, kInterval / 2, 20);
  }
  const KernelMetrics metrics = joined(timeline);
  for (const std::uint32_t row : {0u, 1u}) {
    const KernelMetricEntry entry = entry_of(metrics, row);
    CHECK(entry.samples == 499);
    CHECK(entry.metrics[0].measured);
    CHECK(entry.metrics[0].bounded);
    CHECK_FALSE(entry.reliable());
    CHECK(std::abs(entry.metrics[0].value - (row == 0 ? 80 : 20)) <= entry.metrics[0].error);
  }
}

TEST_CASE("What no sample tells apart still has bounds, and they may do", "[metrics]") {
  // Each half does 98 %, so at most 2 points remain for what the rest may have contributed.
  SyntheticTimeline timeline;
  for (int i = 0; i < 100; ++i) {
    timeline.run(0, kInterval / 2, 98);
    timeline.run(1, kInterval / 2, 98);
  }
  const KernelMetricEntry entry = entry_of(joined(timeline), 0);
  CHECK(entry.metrics[0].bounded);
  CHECK(entry.metrics[0].reliable);
  CHECK(std::abs(entry.metrics[0].value - 98) <= entry.metrics[0].error + 1e-9);
  CHECK(entry.metrics[0].error == Approx(2).margin(0.01));
}

TEST_CASE("A percentage beyond rounding is no value, and counted", "[metrics]") {
  const auto with = [](float value) {
    KernelMetrics metrics;
    metrics.metrics({sm_active(), {"rate", "Rate (MB/s)", Quantity::kPcieRead}});
    metrics.kernel(1, 0, 0, 0, 20 * kInterval);
    for (Nanoseconds i = 0; i < 20; ++i) {
      MetricSample sample = sample_at(i * kInterval, value);
      sample.values[1] = 5000;  // not a percentage
      metrics.sample(sample);
    }
    metrics.settle_window(1);
    return metrics;
  };
  const KernelMetrics rounded = with(100.9F);
  CHECK(rounded.impossible() == 0);
  CHECK(*rounded.windows().at(0).means[0].value() == 100);
  CHECK(entry_of(rounded, 0).metrics[0].value == 100);
  const KernelMetrics wrong = with(101.5F);
  CHECK(wrong.impossible() == 20);
  CHECK_FALSE(wrong.windows().at(0).means[0].value());
  CHECK_FALSE(entry_of(wrong, 0).metrics[0].measured);
  // The rest of the sample remains valid.
  CHECK(*wrong.windows().at(0).means[1].value() == 5000);
  CHECK(entry_of(wrong, 0).metrics[1].value == 5000);
}

TEST_CASE("Concurrent kernels are said to share, and have what the device did while they ran", "[metrics]") {
  // Rows 0 and 1 overlap for half of row 0's time; the counter has the sum.
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  SyntheticTimeline timeline;
  for (int i = 0; i < 60; ++i) {
    const Nanoseconds start = timeline.now;
    timeline.run(0, 6 * kInterval, 30);
    timeline.kernels.push_back({1, start + 3 * kInterval, start + 6 * kInterval, 40});
    timeline.idle(kInterval / 3);
  }
  const KernelMetrics result = joined(timeline);
  const KernelMetricEntry first = entry_of(result, 0);
  const KernelMetricEntry second = entry_of(result, 1);
  CHECK(static_cast<double>(first.shared_time) / static_cast<double>(first.sampled_time) ==
        Approx(0.5).margin(0.01));
  CHECK(second.shared_time == second.sampled_time);
  CHECK(second.metrics[0].value == Approx(70).margin(0.5));
  CHECK(first.metrics[0].value == Approx(50).margin(2));
  CHECK(std::abs(first.metrics[0].value - 50) <= first.metrics[0].error);
}

TEST_CASE("Executions of one row at the same time do not share", "[metrics]") {
  SyntheticTimeline timeline;
  for (int i = 0; i < 20; ++i) {
    const Nanoseconds start = timeline.now;
    timeline.run(3, 4 * kInterval, 30);
    timeline.kernels.push_back({3, start + kInterval, start + 2 * kInterval, 30});
  }
  const KernelMetricEntry entry = entry_of(joined(timeline), 3);
  CHECK(entry.shared_time == 0);
  CHECK(entry.instances == 40);
  CHECK(entry.metrics[0].value == Approx(37.5).margin(1));
}

TEST_CASE("More than two kernels at once are nobody's figure", "[metrics]") {
  SyntheticTimeline timeline;
  for (int i = 0; i < 50; ++i) {
    const Nanoseconds start = timeline.now;
    timeline.run(0, kInterval / 3, 30);
    timeline.kernels.push_back({1, start, start + kInterval / 3, 10});
    timeline.kernels.push_back({2, start, start + kInterval / 3, 10});
    timeline.idle(kInterval / 7);
  }
  const KernelMetricEntry entry = entry_of(joined(timeline), 0);
  CHECK(entry.shared_time == entry.sampled_time);
  CHECK(entry.metrics[0].bounded);
  CHECK_FALSE(entry.reliable());
}

TEST_CASE("The order in which kernels and samples come does not matter", "[metrics]") {
  SyntheticTimeline timeline;
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto row = static_cast<std::uint32_t>(random() % 5);
    timeline.run(row, 3000 + 4000 * row, 10.0 + 20 * row);
    if (i % 3 == 0) timeline.idle(random() % 5000);
  }
  const std::vector<MetricSample> samples = timeline.samples(kInterval);
  const KernelMetrics plain = joined(timeline);

  KernelMetrics mixed;
  mixed.metrics({sm_active()});
  std::vector<SyntheticTimeline::Kernel> kernels = timeline.kernels;
  std::shuffle(kernels.begin(), kernels.end(), random);
  std::vector<MetricSample> shuffled = samples;
  for (std::size_t i = 0; i + 1 < shuffled.size(); i += 2) std::swap(shuffled[i], shuffled[i + 1]);
  for (std::size_t i = 0; i < std::max(kernels.size(), samples.size()); ++i) {
    if (i < samples.size()) mixed.sample(shuffled[i]);
    if (i < kernels.size()) mixed.kernel(1, 0, kernels[i].row, kernels[i].start, kernels[i].end);
  }
  mixed.settle_window(1);

  const auto a = plain.rows();
  const auto b = mixed.rows();
  REQUIRE(a.size() == b.size());
  CHECK(mixed.late() == 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].samples == b[i].samples);
    CHECK(a[i].sampled_time == b[i].sampled_time);
    CHECK(a[i].metrics[0].value == b[i].metrics[0].value);
    CHECK(a[i].metrics[0].error == b[i].metrics[0].error);
  }
  REQUIRE(plain.windows().size() == 1);
  CHECK(*plain.windows()[0].means[0].value() == Approx(*mixed.windows()[0].means[0].value()));
}

TEST_CASE("Many windows tell as much as one", "[metrics]") {
  SyntheticTimeline timeline;
  for (int i = 0; i < 1500; ++i) {
    timeline.run(static_cast<std::uint32_t>(i % 3), 4000 + 3000 * static_cast<Nanoseconds>(i % 3),
                 20.0 + 30 * (i % 3));
    if (i % 7 == 0) timeline.idle(1234);
  }
  const KernelMetricEntry one = entry_of(joined(timeline), 1);
  KernelMetrics several;
  several.metrics({sm_active()});
  const Nanoseconds each = timeline.now / 6 + 1;
  for (std::uint32_t window = 1; window <= 6; ++window) {
    for (const SyntheticTimeline::Kernel& kernel : timeline.kernels) {
      if (kernel.start / each + 1 == window) several.kernel(window, 0, kernel.row, kernel.start, kernel.end);
    }
    for (MetricSample sample : timeline.samples(kInterval)) {
      sample.window = window;
      if (sample.start / each + 1 == window) several.sample(sample);
    }
    several.settle_window(window);
  }
  const KernelMetricEntry other = entry_of(several, 1);
  CHECK(other.instances == one.instances);
  CHECK(other.metrics[0].value == Approx(one.metrics[0].value).margin(0.01));
  CHECK(other.samples == one.samples);
  CHECK(several.late() == 0);
  CHECK(several.windows().size() == 6);
}

TEST_CASE("Samples of a window that is still open wait for its kernels", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  for (Nanoseconds i = 0; i < 20; ++i) metrics.sample(sample_at(i * kInterval, 60, 1));
  for (Nanoseconds i = 20; i < 40; ++i) metrics.sample(sample_at(i * kInterval, 60, 2));
  // Launched in the first window, it runs on into the second.
  metrics.kernel(1, 0, 0, 0, 25 * kInterval);
  metrics.settle_window(1);
  // The last sample that began in the first window is held as well: it may contain kernels of the next
  // window.
  CHECK(metrics.held_samples() == 21);
  CHECK(entry_of(metrics, 0).whole_samples == 19);
  metrics.kernel(2, 0, 1, 25 * kInterval, 40 * kInterval);
  metrics.settle_window(2);
  CHECK(metrics.held_samples() == 1);
  CHECK(metrics.held_kernels() == 1);
  CHECK(entry_of(metrics, 0).whole_samples == 25);
  CHECK(entry_of(metrics, 1).whole_samples == 14);
  CHECK(metrics.late() == 0);
}

TEST_CASE("Memory is bounded, and what comes too late is counted", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  SECTION("samples, with their kernels in time") {
    constexpr Nanoseconds kCount = KernelMetrics::kMaxSamples * 2;
    for (Nanoseconds i = 0; i < kCount; ++i) {
      if (i % 20 == 0) {
        metrics.kernel(1, 0, 0, i * kInterval, (i + 20) * kInterval);
        if (i % 8000 == 0) metrics.join_until(i * kInterval);
      }
      metrics.sample(sample_at(i * kInterval, 40));
      REQUIRE(metrics.held_samples() <= 8000);
      REQUIRE(metrics.held_kernels() <= 8000 / 20 + 1);
    }
    CHECK(metrics.late() == 0);
    metrics.kernel(1, 0, 1, 10, 20);
    metrics.sample(sample_at(5, 40));
    CHECK(metrics.late() == 2);
    metrics.settle_window(1);
    CHECK(entry_of(metrics, 0).whole_samples == kCount - 1);
    CHECK(entry_of(metrics, 0).metrics[0].value == Approx(40));
  }
  SECTION("kernels without samples") {
    for (Nanoseconds i = 0; i < KernelMetrics::kMaxKernels + 1000; ++i) {
      metrics.kernel(1, 0, 0, i * 100, i * 100 + 60);
      REQUIRE(metrics.held_kernels() <= KernelMetrics::kMaxKernels);
    }
    CHECK(metrics.late() == 0);
    CHECK(entry_of(metrics, 0).instances == KernelMetrics::kMaxKernels + 1000);
    metrics.sample(sample_at(0, 40));
    CHECK(metrics.late() == 1);
  }
  SECTION("kernels in a sample without end") {
    MetricSample endless = sample_at(0, 40);
    endless.end = ~Nanoseconds{0} / 2;
    metrics.sample(endless);
    for (Nanoseconds i = 0; i < KernelMetrics::kMaxKernels + 1000; ++i) {
      metrics.kernel(1, 0, 0, i * 100, i * 100 + 60);
      REQUIRE(metrics.held_kernels() <= KernelMetrics::kMaxKernels);
    }
    CHECK(metrics.late() > 0);
  }
  SECTION("devices") {
    for (std::uint32_t device = 0; device < KernelMetrics::kMaxDevices + 3; ++device)
      metrics.kernel(1, device, device, 100, 200);
    CHECK(metrics.late() == 3);
    CHECK(metrics.rows().size() == KernelMetrics::kMaxDevices + 3);
  }
}

TEST_CASE("Samples with too many kernels to be told apart are counted", "[metrics]") {
  SyntheticTimeline timeline;
  for (std::uint32_t i = 0; i < 1000; ++i) timeline.run(i % 100, kInterval / 100, 50);
  const KernelMetrics metrics = joined(timeline);
  CHECK(metrics.crowded() == 9);
  CHECK_FALSE(entry_of(metrics, 0).reliable());
}

TEST_CASE("What was not measured is left out", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active(), {"never", "Never (%)", Quantity::kUser}, {"ipc", "IPC", Quantity::kIpc}});
  for (Nanoseconds i = 0; i < 60; ++i) {
    MetricSample sample = sample_at(i * kInterval, i % 3 == 0 ? kNoValue : 45);
    sample.values[2] = 2.5;
    metrics.sample(sample);
  }
  metrics.kernel(1, 0, 0, 0, 60 * kInterval);
  // In samples of which nothing is known.
  metrics.kernel(1, 0, 1, 60 * kInterval, 80 * kInterval);
  for (Nanoseconds i = 60; i < 80; ++i) metrics.sample(sample_at(i * kInterval, kNoValue));
  metrics.settle_window(1);
  const KernelMetricEntry entry = entry_of(metrics, 0);
  CHECK(entry.samples == 60);  // the last sample also contains the next kernel
  CHECK(entry.metrics[0].value == Approx(45));
  CHECK(entry.metrics[0].reliable);
  CHECK_FALSE(entry.metrics[1].measured);
  CHECK(entry.metrics[2].value == Approx(2.5));
  CHECK(entry.reliable());
  CHECK_FALSE(entry_of(metrics, 1).metrics[0].measured);
  CHECK_FALSE(entry_of(metrics, 1).reliable());
  const WindowMetrics window = metrics.windows().at(0);
  CHECK(*window.means[0].value() == Approx(45));
  CHECK_FALSE(window.means[1].value().has_value());
  CHECK(*window.means[2].value() == Approx(2.5));
}

TEST_CASE("Short kernels of samples that lack a metric here and there", "[metrics]") {
  SyntheticTimeline timeline;
  std::mt19937 random(11);
  for (int i = 0; i < 4000; ++i) {
    const auto row = static_cast<std::uint32_t>(random() % 3);
    timeline.run(row, 5000 + 2000 * row, 20.0 + 30 * row);
  }
  KernelMetrics metrics;
  metrics.metrics({sm_active(), {"other", "Other (%)", Quantity::kUser}});
  add(metrics, timeline);
  for (MetricSample sample : timeline.samples(kInterval)) {
    sample.values[1] = 100 - sample.values[0];
    if (random() % 4 == 0) sample.values[random() % 2] = kNoValue;
    metrics.sample(sample);
  }
  metrics.settle_window(1);
  for (const std::uint32_t row : {0u, 1u, 2u}) {
    const KernelMetricEntry entry = entry_of(metrics, row);
    CHECK(entry.metrics[0].value == Approx(20.0 + 30 * row).margin(0.1));
    CHECK(entry.metrics[1].value == Approx(80.0 - 30 * row).margin(0.1));
    CHECK(entry.reliable());
  }
}

TEST_CASE("Kernels without samples, or with few, are marked", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  metrics.kernel(1, 0, 0, 0, 500);
  metrics.kernel(1, 0, 1, 10 * kInterval, 15 * kInterval);
  metrics.kernel(1, 0, 2, 15 * kInterval, 15 * kInterval);
  for (Nanoseconds i = 10; i < 15; ++i) metrics.sample(sample_at(i * kInterval, 70));
  metrics.settle_window(1);
  CHECK(entry_of(metrics, 0).samples == 0);
  CHECK_FALSE(entry_of(metrics, 0).metrics[0].measured);
  CHECK(entry_of(metrics, 1).samples == 4);
  CHECK(entry_of(metrics, 1).metrics[0].measured);
  CHECK_FALSE(entry_of(metrics, 1).reliable());
  CHECK(entry_of(metrics, 2).instances == 1);
}

TEST_CASE("Percentages stay between 0 and 100, other figures do not", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active(), {"ipc", "IPC", Quantity::kIpc}});
  for (Nanoseconds i = 0; i < 40; ++i) {
    MetricSample sample = sample_at(i * kInterval, 100.4F);
    sample.values[1] = 250;
    metrics.sample(sample);
  }
  metrics.kernel(1, 0, 0, 0, 40 * kInterval);
  metrics.settle_window(1);
  CHECK(entry_of(metrics, 0).metrics[0].value == 100);
  CHECK(entry_of(metrics, 0).metrics[1].value == Approx(250));
}

TEST_CASE("A window's figures: the samples' mean, and the sum over its kernels", "[metrics]") {
  SyntheticTimeline timeline;
  std::mt19937 random(5);
  double work = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto row = static_cast<std::uint32_t>(random() % 4);
    const Nanoseconds length = row == 0 ? 30 * kInterval : 3000 + 2000 * row;
    timeline.run(row, length, 15.0 + 20 * row);
    work += (15.0 + 20 * row) * static_cast<double>(length);
    timeline.idle(random() % 4000);
  }
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  add(metrics, timeline);
  add(metrics, timeline.samples(kInterval));
  CHECK_FALSE(metrics.windows().at(0).kernel_sums.at(0).has_value());
  metrics.settle_window(1);
  const WindowMetrics window = metrics.windows().at(0);
  CHECK(window.window == 1);
  CHECK(window.device == 0);
  const double time = static_cast<double>(timeline.now - 1000);
  CHECK(*window.means.at(0).value() == Approx(work / time).epsilon(0.002));
  CHECK(*window.kernel_sums.at(0) / time == Approx(work / time).epsilon(0.002));
}

TEST_CASE(
    "The sum over a window's kernels is not more than its samples where most of them do next to nothing",
    "[metrics]") {
  // A step of 40 kernels, one in five of which uses the unit; executions vary, and each has few samples.
  std::mt19937 random(11);
  const auto uniform = [&random] { return static_cast<double>(random()) / 4294967296.0; };
  SyntheticTimeline timeline;
  for (int step = 0; step < 60; ++step) {
    for (std::uint32_t row = 0; row < 40; ++row) {
      const auto length = static_cast<Nanoseconds>((0.3 + 0.05 * ((row * 7) % 10)) * double{kInterval});
      timeline.run(row, length, row % 5 == 0 ? 10 + 80 * uniform() : 0);
    }
    timeline.idle(static_cast<Nanoseconds>(uniform() * double{kInterval}));
  }
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  add(metrics, timeline);
  add(metrics, timeline.samples(kInterval));
  metrics.settle_window(1);
  const WindowMetrics window = metrics.windows().at(0);
  const double mean = *window.means.at(0).value();
  REQUIRE(window.kernel_sums.at(0).has_value());
  const double time = static_cast<double>(timeline.now - 1000);
  CHECK(*window.kernel_sums.at(0) / time == Approx(mean).epsilon(0.02));
}

TEST_CASE("Mean between two times, of windows that are not settled", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  metrics.sample(sample_at(0, 10));
  metrics.sample(sample_at(kInterval, 40));
  metrics.sample(sample_at(2 * kInterval, kNoValue));
  CHECK(*metrics.mean_between(0, 0, 0, 2 * kInterval).value() == Approx(25));
  CHECK(*metrics.mean_between(0, 0, kInterval / 2, 2 * kInterval).value() == Approx(30));
  CHECK(*metrics.mean_between(0, 0, kInterval + 1, 9 * kInterval).value() == Approx(40));
  CHECK_FALSE(metrics.mean_between(0, 0, 2 * kInterval, 9 * kInterval).value().has_value());
  CHECK_FALSE(metrics.mean_between(1, 0, 0, kInterval).value().has_value());
  CHECK_FALSE(metrics.mean_between(0, 1, 0, kInterval).value().has_value());
}

TEST_CASE("Figures per active cycle: of the cycles, not of the time", "[metrics]") {
  // Row 0 keeps all multiprocessors at 4 instructions per cycle and row 1 a tenth of them at 1; with half and
  // a quarter of the possible warps.
  struct Does {
    double active, ipc, occupancy;
  };
  constexpr Does kDoes[] = {{100, 4, 50}, {10, 1, 25}};
  const auto fill = [&](const std::vector<SyntheticTimeline::Kernel>& kernels, MetricSample& sample) {
    double active = 0;
    double instructions = 0;
    double warps = 0;
    for (const SyntheticTimeline::Kernel& kernel : kernels) {
      const Nanoseconds begin = std::max(kernel.start, sample.start);
      const Nanoseconds end = std::min(kernel.end, sample.end);
      if (end <= begin) continue;
      const double share = static_cast<double>(end - begin) / static_cast<double>(sample.end - sample.start);
      const Does& does = kDoes[kernel.row];
      active += share * does.active;
      instructions += share * does.active * does.ipc;
      warps += share * does.active * does.occupancy;
    }
    sample.values[0] = static_cast<float>(active);
    sample.values[1] = active > 0 ? static_cast<float>(instructions / active) : kNoValue;
    sample.values[2] = active > 0 ? static_cast<float>(warps / active) : kNoValue;
  };
  const auto run = [&](const SyntheticTimeline& timeline) {
    KernelMetrics metrics;
    metrics.metrics(
        {sm_active(), {"ipc", "IPC", Quantity::kIpc}, {"o", "Occupancy (%)", Quantity::kOccupancy}});
    add(metrics, timeline);
    for (MetricSample sample : timeline.samples(kInterval)) {
      fill(timeline.kernels, sample);
      metrics.sample(sample);
    }
    return metrics;
  };
  SyntheticTimeline timeline;
  std::mt19937 random(3);
  SECTION("kernels shorter than samples") {
    for (int i = 0; i < 1500; ++i) {
      timeline.run(random() % 2, 3000 + random() % 9000, 0);
      if (random() % 4 == 0) timeline.idle(30'000);
    }
  }
  SECTION("longer ones") {
    for (std::uint32_t i = 0; i < 20; ++i) {
      timeline.run(i % 2, 40 * kInterval + 777, 0);
      timeline.idle(3 * kInterval);
    }
  }
  KernelMetrics metrics = run(timeline);
  double active = 0;
  double instructions = 0;
  for (const SyntheticTimeline::Kernel& kernel : timeline.kernels) {
    const auto cycles = static_cast<double>(kernel.end - kernel.start) * kDoes[kernel.row].active;
    active += cycles;
    instructions += cycles * kDoes[kernel.row].ipc;
  }
  CHECK(*metrics.mean_between(0, 1, 0, timeline.now).value() == Approx(instructions / active).epsilon(0.01));
  metrics.settle_window(1);
  CHECK(*metrics.windows().at(0).means[1].value() == Approx(instructions / active).epsilon(0.01));
  for (std::uint32_t row = 0; row < 2; ++row) {
    const KernelMetricEntry entry = entry_of(metrics, row);
    CHECK(entry.reliable());
    CHECK(entry.metrics[0].value == Approx(kDoes[row].active).margin(0.2));
    CHECK(entry.metrics[1].value == Approx(kDoes[row].ipc).margin(0.05));
    CHECK(entry.metrics[2].value == Approx(kDoes[row].occupancy).margin(0.5));
  }
}

TEST_CASE("Figures per active cycle that nothing tells of are not shown", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active(), {"ipc", "IPC", Quantity::kIpc}});
  // Always the same parts of each sample.
  for (Nanoseconds i = 0; i < 100; ++i) {
    metrics.kernel(1, 0, 0, i * kInterval, i * kInterval + 4000);
    metrics.kernel(1, 0, 1, i * kInterval + 4000, i * kInterval + 9000);
    MetricSample sample = sample_at(i * kInterval, 30);
    sample.values[1] = 2;
    metrics.sample(sample);
  }
  metrics.settle_window(1);
  for (const std::uint32_t row : {0u, 1u}) {
    CHECK(entry_of(metrics, row).metrics[1].measured);
    CHECK_FALSE(entry_of(metrics, row).metrics[1].reliable);
  }
}

TEST_CASE("What a link does is not asked of a kernel's row", "[metrics]") {
  for (const auto& [quantity, reliable] : {std::pair(Quantity::kPcieRead, true), {Quantity::kUser, false}}) {
    KernelMetrics metrics;
    metrics.metrics({sm_active(), {"rate", "Rate (MB/s)", quantity}});
    metrics.kernel(1, 0, 0, 0, 20 * kInterval);
    for (Nanoseconds i = 0; i < 20; ++i) {
      MetricSample sample = sample_at(i * kInterval, 50);
      sample.values[1] = i % 5 == 0 ? 10'000 : 0;  // too scattered for a mean to be shown
      metrics.sample(sample);
    }
    metrics.settle_window(1);
    const KernelMetricEntry entry = entry_of(metrics, 0);
    CHECK(entry.metrics[0].reliable);
    CHECK(entry.metrics[1].measured);
    CHECK_FALSE(entry.metrics[1].reliable);
    CHECK(entry.reliable() == reliable);
  }
}

TEST_CASE("A sample that comes once its window is settled is not taken for an idle device", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  metrics.kernel(1, 0, 0, 0, 20 * kInterval);
  for (Nanoseconds i = 0; i < 15; ++i) metrics.sample(sample_at(i * kInterval, 50));
  metrics.settle_window(1);
  const std::uint64_t before = metrics.late();
  metrics.sample(sample_at(15 * kInterval, 50));
  CHECK(metrics.late() == before + 1);
  CHECK(metrics.windows().at(0).samples == 16);  // the window's mean includes it all the same
}

TEST_CASE("Samples of work that no window launched are joined to nothing", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  // A kernel launched before the window runs on into it at the device's full rate.
  metrics.other_kernel(0, 0, 10 * kInterval + 5);
  metrics.kernel(1, 0, 0, 10 * kInterval + 5, 40 * kInterval);
  metrics.kernel(1, 0, 1, 41 * kInterval, 41 * kInterval + 100);
  for (Nanoseconds i = 0; i < 60; ++i) metrics.sample(sample_at(i * kInterval, i <= 10 ? 100 : 30));
  metrics.settle_window(1);
  const KernelMetricEntry entry = entry_of(metrics, 0);
  CHECK(entry.samples == 29);
  CHECK(entry.whole_samples == 29);
  CHECK(entry.metrics[0].value == Approx(30));
  CHECK(metrics.rows().size() == 2);
  // The window's mean covers everything that ran.
  CHECK(*metrics.windows().at(0).means[0].value() == Approx((11 * 100 + 49 * 30) / 60.0));
  CHECK(metrics.late() == 0);
}

TEST_CASE("After a window's end samples count as long as its kernels run", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  metrics.kernel(1, 0, 0, 0, 30 * kInterval);
  // The window ends at 10; from 30 on, something without a record runs.
  for (Nanoseconds i = 0; i < 60; ++i) {
    MetricSample sample = sample_at(i * kInterval, i < 30 ? 40 : 100, i < 10 ? 1 : 0);
    sample.after = 1;
    metrics.sample(sample);
  }
  // Nor does it become known because the next window has kernels by then.
  for (Nanoseconds i = 60; i < 100; ++i) metrics.sample(sample_at(i * kInterval, i < 80 ? 70 : 0, 2));
  for (Nanoseconds i = 60; i < 80; ++i)
    metrics.kernel(2, 0, 1, i * kInterval + 3000, i * kInterval + 9000 + 300 * i);
  SECTION("settled one by one") {
    metrics.settle_window(1);
    CHECK(entry_of(metrics, 0).whole_samples == 30);
  }
  SECTION("settled together") {}
  metrics.settle_window(2);
  CHECK(entry_of(metrics, 0).whole_samples == 30);
  CHECK(entry_of(metrics, 0).metrics[0].value == Approx(40));
  CHECK(entry_of(metrics, 1).samples == 21);
  CHECK(metrics.late() == 0);
  CHECK(*metrics.windows().at(0).means[0].value() == Approx(40));
}

TEST_CASE("A device that lags behind several windows", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  // Five windows end before the first one's kernels begin; two samples began in one of them.
  for (std::uint32_t window = 1; window <= 5; ++window) {
    const Nanoseconds begin = (10 + 20 * window) * kInterval;
    metrics.kernel(window, 0, window, begin, begin + 15 * kInterval);
    metrics.other_kernel(0, begin + 15 * kInterval, begin + 20 * kInterval);
  }
  for (Nanoseconds i = 0; i < 140; ++i) {
    MetricSample sample = sample_at(i * kInterval, i % 20 >= 10 || i < 30 ? 50 : 100,
                                    i == 2   ? 3
                                    : i == 4 ? 5
                                             : 0);
    sample.after = i < 2 ? 0 : i < 3 ? 3 : 5;
    metrics.sample(sample);
  }
  for (std::uint32_t window = 1; window <= 5; ++window) metrics.settle_window(window);
  for (std::uint32_t window = 1; window <= 5; ++window) {
    CHECK(entry_of(metrics, window).whole_samples == 15);
    CHECK(entry_of(metrics, window).sampled_time == 15 * kInterval);
  }
  CHECK(metrics.late() == 0);
  CHECK(metrics.held_kernels() == 0);
}

TEST_CASE("Samples that wait for their kernels for long become fewer and longer", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active(), {"other", "Other (%)", Quantity::kUser}});
  // A kernel in three quarters of every third sample; all records arrive at the end.
  constexpr Nanoseconds kCount = 5 * KernelMetrics::kMaxSamples / 2;
  for (Nanoseconds i = 0; i < kCount; ++i) {
    MetricSample sample = sample_at(i * kInterval, i % 3 == 0 ? 60 : 0);
    if (i % 2 == 0) sample.values[1] = 7;
    metrics.sample(sample);
    REQUIRE(metrics.held_samples() <= KernelMetrics::kMaxSamples);
  }
  for (Nanoseconds i = 0; i < kCount; i += 3)
    metrics.kernel(1, 0, 0, i * kInterval + 100, i * kInterval + 15'100);
  const std::size_t held = metrics.held_samples();
  metrics.settle_window(1);
  CHECK(metrics.late() == 0);
  const KernelMetricEntry entry = entry_of(metrics, 0);
  CHECK(entry.samples > held / 3);
  CHECK(entry.samples < held);
  CHECK(entry.metrics[0].value == Approx(80).margin(0.1));
  CHECK(entry.metrics[0].reliable);
  CHECK(entry.metrics[1].value == Approx(7).margin(0.1));
}

TEST_CASE("Samples that do not follow each other can't become fewer", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  for (Nanoseconds i = 0; i <= KernelMetrics::kMaxSamples; ++i)
    metrics.sample(sample_at(2 * i * kInterval, 80));
  CHECK(metrics.held_samples() == KernelMetrics::kMaxSamples / 2 + 1);
  CHECK(metrics.late() == KernelMetrics::kMaxSamples / 2);
}

TEST_CASE("Samples whose kernels have all been told of need not wait", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  for (Nanoseconds i = 0; i < 100; ++i) metrics.sample(sample_at(i * kInterval, i < 30 ? 40 : 0));
  metrics.kernel(1, 0, 0, 0, 30 * kInterval);
  metrics.join_until(20 * kInterval + 5);
  CHECK(metrics.held_samples() == 80);
  CHECK(entry_of(metrics, 0).whole_samples == 20);
  metrics.join_until(20 * kInterval);
  CHECK(metrics.held_samples() == 80);
  metrics.join_until(50 * kInterval);
  CHECK(metrics.held_samples() == 50);
  CHECK(metrics.held_kernels() == 0);
  CHECK(entry_of(metrics, 0).whole_samples == 30);
  metrics.kernel(1, 0, 0, 49 * kInterval, 51 * kInterval);
  CHECK(metrics.late() == 1);
  // Nor are they dropped: the window's iterations are not known yet.
  CHECK(*metrics.mean_between(0, 0, 0, 60 * kInterval).value() == Approx(20));
}

TEST_CASE("What many windows have of many kernels is bounded", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  constexpr std::uint32_t kRowsEach = 600;
  constexpr std::uint32_t kWindows = KernelMetrics::kMaxWindowRows / kRowsEach + 20;
  Nanoseconds time = 0;
  for (std::uint32_t window = 1; window <= kWindows; ++window) {
    metrics.kernel(window, 0, 0, time, time + 20 * kInterval);
    for (Nanoseconds i = 0; i < 20; ++i) metrics.sample(sample_at(time + i * kInterval, 64, window));
    time += 21 * kInterval;
    metrics.sample(sample_at(time - kInterval, 0, window));
    for (std::uint32_t row = 1; row < kRowsEach; ++row)
      metrics.kernel(window, 0, row, time - kInterval + row, time - kInterval + row + 1);
    REQUIRE(metrics.window_rows() <= KernelMetrics::kMaxWindowRows);
    if (window % 5 == 0) metrics.settle_window(window);
  }
  metrics.settle_window(kWindows);
  for (const WindowMetrics& window : metrics.windows()) {
    REQUIRE(window.kernel_sums[0].has_value());
    REQUIRE(*window.kernel_sums[0] / (20.0 * kInterval) == Approx(64).epsilon(0.002));
  }
  CHECK(metrics.windows().size() == kWindows);
}

TEST_CASE("History of samples: bounded, and forgotten", "[metrics]") {
  MetricHistory history(2);
  constexpr Nanoseconds kCount = 3 * MetricHistory::kMaxCells;
  for (Nanoseconds i = 0; i < kCount; ++i) {
    // The first half is 10, the second 30; every other sample lacks the second metric.
    const std::array<WeightedMean, 2> means{WeightedMean{100, 100 * (i < kCount / 2 ? 10.0 : 30.0)},
                                            i % 2 == 0 ? WeightedMean{} : WeightedMean{50, 50 * 7.0}};
    history.add(1000 + 100 * i, 1100 + 100 * i, means);
    REQUIRE(history.cells() <= MetricHistory::kMaxCells);
  }
  const Nanoseconds end = 1000 + 100 * kCount;
  const Nanoseconds middle = 1000 + 100 * (kCount / 2);
  CHECK(*history.between(0, 0, end).value() == Approx(20));
  CHECK(*history.between(1, 0, end).value() == Approx(7));
  CHECK(history.between(1, 0, end).weight == Approx(25.0 * static_cast<double>(kCount)).epsilon(0.001));
  CHECK(*history.between(0, 1000, middle - 800).value() == Approx(10));
  CHECK(*history.between(0, middle + 800, end).value() == Approx(30));
  CHECK(*history.between(0, middle - 80'000, middle + 240'000).value() == Approx(25).epsilon(0.01));
  CHECK_FALSE(history.between(0, end, end + 100).value().has_value());
  // Before the last one, so it is skipped.
  history.add(1000, 5000, std::array<WeightedMean, 2>{WeightedMean{1e9, 1e12}, WeightedMean{}});
  CHECK(*history.between(0, 0, end).value() == Approx(20));
  history.forget(middle + 1000);
  CHECK_FALSE(history.between(0, 0, middle).value().has_value());
  CHECK(*history.between(0, middle + 2000, end).value() == Approx(30));
  history.forget(end);
  CHECK(history.cells() == 0);
}

TEST_CASE("Another list of metrics begins anew, the same one does not", "[metrics]") {
  KernelMetrics metrics;
  metrics.metrics({sm_active()});
  metrics.kernel(1, 0, 0, 0, 500);
  metrics.metrics({sm_active()});
  CHECK(metrics.rows().size() == 1);
  metrics.metrics({{"ipc", "IPC", Quantity::kIpc}});
  CHECK(metrics.rows().empty());
  CHECK(metrics.metrics().size() == 1);
  metrics.metrics(std::vector<MetricInfo>(kMaxMetrics + 5, sm_active()));
  CHECK(metrics.metrics().size() == kMaxMetrics);
}
