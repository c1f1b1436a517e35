// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "libinject/analysis/idle_time.h"
#include "libinject/output/prometheus_file.h"
#include "libinject/output/prometheus_metrics.h"
#include "libinject/output/prometheus_text.h"
#include "libinject/output/purpose_names.h"
#include "tests/unit/devices.h"
#include "tests/unit/stats_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

constexpr MetricFamily kGauge{"libinject_a", MetricType::kGauge, "Some help."};
constexpr MetricFamily kCounter{"libinject_b_total", MetricType::kCounter, "More help."};
constexpr std::uint64_t kTime = 1'800'000'000'250'000'000;

std::string escaped(std::string_view text) {
  std::string result;
  append_label_value(result, text);
  return result;
}

/// A run of windows, each 100 us long and beginning at its number times 1 ms.
struct Monitored : StatsRun {
  RunInfo info;
  PrometheusMetrics metrics;

  Monitored() {
    info.version = "0.1.0";
    info.host = "node7";
    info.pid = 77;
    info.base_utc = 1'790'000'000'000'000'000;
    info.devices = {h200(0), h200(1)};
  }

  static Nanoseconds begin_of(std::uint32_t window) { return Nanoseconds{window} * 1'000'000; }

  void work(std::uint32_t window, std::string_view name, std::uint64_t duration, std::uint32_t device = 0) {
    KernelEvent event = kernel(name, 0);
    event.launch.window = window;
    event.launch.host_begin = begin_of(window) + 10;
    event.device = static_cast<std::uint16_t>(device);
    event.start = begin_of(window) + 1000;
    event.end = event.start + duration;
    statistics.add(event);
  }

  void copy(std::uint32_t window, std::uint8_t kind, std::uint64_t bytes, std::uint64_t duration) {
    TransferEvent event = copy_event(kind, bytes, duration);
    event.launch.window = window;
    event.start = begin_of(window) + 60'000;
    event.end = event.start + duration;
    statistics.add(event);
  }

  void gemm(std::uint32_t window, std::uint64_t flops) {
    GemmShape shape;
    shape.m = shape.n = shape.k = 1;
    shape.flops = flops;
    CallEvent call = call_event("cublasGemmEx", 10);
    call.window = window;
    call.shape = shapes.intern(shape);
    call.owns_shape = true;
    statistics.add(call);
  }

  void open(std::uint32_t window) {
    WindowInfo opened;
    opened.number = window;
    opened.start = begin_of(window);
    info.windows.push_back(opened);
  }

  void close(std::uint32_t window) {
    info.windows.back().end = begin_of(window) + 100'000;
    info.windows.back().state = WindowState::kClosed;
    info.windows_time += 100'000;
    statistics.settle_window(window, begin_of(window), begin_of(window) + 100'000);
  }

  std::string text(PrometheusState state = PrometheusState::kWaiting) {
    return metrics.text(build_report(statistics, info), state, kTime, 0);
  }
};

/// Samples by name and own labels.
std::map<std::string, std::string> samples_of(const std::string& text) {
  std::map<std::string, std::string> samples;
  std::istringstream lines(text);
  const std::regex sample("(libinject_[a-z0-9_]+)\\{pid=\"\\d+\",rank=\"[^\"]*\",?(.*)\\} ([^ ]+)");
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#') continue;
    INFO(line);
    std::smatch match;
    REQUIRE(std::regex_match(line, match, sample));
    const std::string labels = match[2];
    CHECK(samples.emplace(labels.empty() ? match[1].str() : match[1].str() + "{" + labels + "}", match[3])
              .second);
  }
  return samples;
}

double value_of(const std::map<std::string, std::string>& samples, const std::string& name) {
  const auto found = samples.find(name);
  if (found == samples.end()) FAIL("no sample " << name);
  return std::stod(found->second);
}

MemoryPurposes purposes() {
  DevicePurposes device;
  device.device = 1;
  device.in_use = 1000;
  for (std::size_t purpose = 0; purpose < kMemoryPurposes; ++purpose) device.bytes[purpose] = purpose + 1;
  device.peak_allocated = 100;
  MemoryPurposes memory;
  memory.devices.push_back(device);
  return memory;
}

/// A window of 100 ns, on eight CPUs.
HostWindow host_window(std::uint32_t number, std::uint64_t time, std::uint64_t wait) {
  HostWindow window;
  window.window = number;
  window.end = 100;
  window.affinity = 8;
  for (const HostRole role : {HostRole::kMain, HostRole::kProcess}) {
    HostRoleUse use;
    use.role = role;
    use.use.of(HostAmount::kProcessorTime) = time;
    use.use.of(HostAmount::kRunQueueWait) = wait;
    window.roles.push_back(use);
  }
  return window;
}

}  // namespace

TEST_CASE("Values of labels are escaped, and are UTF-8", "[prometheus]") {
  CHECK(escaped("plain <T*, 3> {x=1}") == "plain <T*, 3> {x=1}");
  CHECK(escaped("a\\b\"c\nd") == "a\\\\b\\\"c\\nd");
  CHECK(escaped("\\n") == "\\\\n");
  CHECK(escaped("\r\x1b[31m\t\x7f") == "\xef\xbf\xbd\xef\xbf\xbd[31m\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(escaped("caf\xc3\xa9 \xe2\x82\xac") == "caf\xc3\xa9 \xe2\x82\xac");
  CHECK(escaped("\xff\xc3") == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(escaped("\xc2\x9b \xc2\xa0") == "\xef\xbf\xbd \xc2\xa0");
  CHECK(escaped(std::string_view("\0x", 2)) == "\xef\xbf\xbdx");
}

TEST_CASE("A family's lines", "[prometheus]") {
  std::string out;
  PrometheusText text(out, {{"pid", "7"}});
  text.family(kGauge).number(0.5).number(2, {{"x", "a\"b"}, {"y", ""}});
  text.family(kCounter).count(std::numeric_limits<std::uint64_t>::max());
  CHECK(out ==
        "# HELP libinject_a Some help.\n# TYPE libinject_a gauge\nlibinject_a{pid=\"7\"} 0.5\n"
        "libinject_a{pid=\"7\",x=\"a\\\"b\",y=\"\"} 2\n"
        "# HELP libinject_b_total More help.\n# TYPE libinject_b_total counter\n"
        "libinject_b_total{pid=\"7\"} 18446744073709551615\n");
}

TEST_CASE("A family without a sample leaves nothing, nor does what is no number", "[prometheus]") {
  std::string out;
  PrometheusText text(out, {});
  text.family(kCounter);
  text.family(kGauge)
      .number(std::numeric_limits<double>::quiet_NaN())
      .number(std::numeric_limits<double>::infinity());
  CHECK(out.empty());
  text.count(1);
  CHECK(out == "# HELP libinject_a Some help.\n# TYPE libinject_a gauge\nlibinject_a 1\n");
}

TEST_CASE("Seconds are exact", "[prometheus]") {
  const auto text_of = [](std::uint64_t nanoseconds) {
    std::string out;
    PrometheusText(out, {}).family({"s", MetricType::kGauge, "h"}).seconds(nanoseconds);
    return out.substr(out.rfind(' ') + 1);
  };
  CHECK(text_of(0) == "0\n");
  CHECK(text_of(1) == "0.000000001\n");
  CHECK(text_of(1'500'000'000) == "1.5\n");
  CHECK(text_of(2'000'000'000) == "2\n");
  CHECK(text_of(10'000'000'010) == "10.00000001\n");
  CHECK(text_of(std::numeric_limits<std::uint64_t>::max()) == "18446744073.709551615\n");
}

TEST_CASE("Names follow Prometheus' conventions", "[prometheus]") {
  std::set<std::string_view> names;
  for (const MetricFamily& family : prometheus_families()) {
    INFO(family.name);
    const std::string name(family.name);
    CHECK(names.insert(family.name).second);
    CHECK(std::regex_match(name, std::regex("libinject(_[a-z0-9]+)+")));
    CHECK((family.type == MetricType::kCounter) ==
          (name.size() > 6 && name.substr(name.size() - 6) == "_total"));
    CHECK_FALSE(
        std::regex_search(name, std::regex("_(ms|us|ns|milliseconds|kilobytes|mb|percent|count|sum)(_|$)")));
    CHECK(family.help.find_first_of("\\\n") == std::string_view::npos);
    CHECK(family.help.back() == '.');
  }
}

TEST_CASE("The guide has every metric, with its type", "[prometheus]") {
  std::ifstream guide(INJECT_SOURCE_DIR "/docs/prometheus.md");
  REQUIRE(guide);
  const std::regex row("\\| `(libinject_[a-z0-9_]+)` \\| (gauge|counter) \\|.*");
  std::map<std::string, std::string> told;
  for (std::string line; std::getline(guide, line);) {
    if (std::smatch match; std::regex_match(line, match, row)) told[match[1]] = match[2];
  }
  std::map<std::string, std::string> known;
  for (const MetricFamily& family : prometheus_families())
    known[std::string(family.name)] = family.type == MetricType::kCounter ? "counter" : "gauge";
  CHECK(told == known);
}

TEST_CASE("Memory by purpose, where it is known", "[prometheus]") {
  Monitored run;
  CHECK(samples_of(run.text()).count("libinject_torch_peak_bytes{device=\"1\"}") == 0);
  run.info.memory_purposes = purposes();
  const auto of = [](std::string_view purpose) {
    return "libinject_memory_purpose_bytes{device=\"1\",purpose=\"" + std::string(purpose) + "\"}";
  };
  auto samples = samples_of(run.text());
  CHECK(value_of(samples, of("parameters")) == 1);
  CHECK(value_of(samples, of("[outside of the allocator]")) == kMemoryPurposes);
  CHECK(value_of(samples, "libinject_torch_peak_bytes{device=\"1\"}") == 100);
  const auto activations = activations_at_peak(purposes(), purposes().devices[0]);
  CHECK(value_of(samples, "libinject_activations_at_peak_bytes{device=\"1\"}") == activations);
  run.info.memory_purposes->unplaced[1] = 1;
  run.info.memory_purposes->devices[0].in_use = 0;
  samples = samples_of(run.text());
  CHECK(value_of(samples, of("parameters")) == 1);
  CHECK(samples.count(of("gradients")) == 0);
  CHECK(samples.count(of("[outside of the allocator]")) == 0);
  CHECK(samples.count("libinject_activations_at_peak_bytes{device=\"1\"}") == 0);
}

TEST_CASE("The most that was in use of each GPU", "[prometheus]") {
  Monitored run;
  MemoryInterval low, high;
  low.highest = 5;
  high.highest = 9;
  run.info.memory_lines = {{0, MemoryLine::Of::kAllocated, {MemoryInterval{0, 0, 0, 1000, 0, 0, 0}}},
                           {0, MemoryLine::Of::kTorchReserved, {MemoryInterval{0, 0, 0, 900, 0, 800, 0}}},
                           {0, MemoryLine::Of::kTorchAllocated, {MemoryInterval{0, 0, 0, 700, 0, 600, 0}}}};
  run.info.energy.memory = {{0, MemoryLine::Of::kInUse, {low, high, low}},
                            {1, MemoryLine::Of::kInUse, {low}}};
  const std::string first = "libinject_gpu_memory_used_peak_bytes{device=\"0\"}";
  const std::string second = "libinject_gpu_memory_used_peak_bytes{device=\"1\"}";
  auto samples = samples_of(run.text());
  CHECK(value_of(samples, "libinject_torch_reserved_bytes{device=\"0\"}") == 800);
  CHECK(value_of(samples, "libinject_torch_allocated_bytes{device=\"0\"}") == 600);
  CHECK(value_of(samples, first) == 9);
  CHECK(value_of(samples, second) == 5);
  // Readings at a window's edges count: the maximum is never below the memory in use.
  run.open(1);
  run.close(1);
  run.info.windows[0].memory = {{0, 11, 3}, {1, 1, 12}, {2, {}, 4}};
  samples = samples_of(run.text());
  CHECK(value_of(samples, first) == 11);
  CHECK(value_of(samples, second) == 12);
  CHECK(value_of(samples, "libinject_gpu_memory_used_peak_bytes{device=\"2\"}") == 4);
}

TEST_CASE("Processors are of the latest windows, and of no earlier ones", "[prometheus]") {
  Monitored run;
  run.open(1);
  run.close(1);
  run.info.host_windows = {host_window(1, 50, 25)};
  auto samples = samples_of(run.text());
  CHECK(value_of(samples, "libinject_processors_used") == 0.5);
  CHECK(value_of(samples, "libinject_processors_wanted") == 0.75);
  CHECK(value_of(samples, "libinject_processors_allowed") == 8);
  run.open(2);
  run.close(2);
  // The second window's host use has not been read.
  CHECK(samples_of(run.text()).count("libinject_processors_used") == 0);
  run.info.host_windows.push_back(host_window(2, 150, 25));
  samples = samples_of(run.text());
  CHECK(value_of(samples, "libinject_processors_used") == 1.5);
  // How long threads waited is unknown.
  run.info.host_windows[1].roles[1].use.of(HostAmount::kRunQueueWait) = std::nullopt;
  samples = samples_of(run.text());
  CHECK(value_of(samples, "libinject_processors_used") == 1.5);
  CHECK(samples.count("libinject_processors_wanted") == 0);
}

TEST_CASE("Before the first window has ended", "[prometheus]") {
  Monitored run;
  run.open(1);
  run.gemm(1, 1000);
  const auto samples = samples_of(run.text(PrometheusState::kOpen));
  CHECK(value_of(samples, "libinject_windows_total") == 0);
  CHECK(value_of(samples, "libinject_flop_total") == 0);
  CHECK(value_of(samples, "libinject_lost_total{kind=\"host_records\"}") == 0);
  CHECK(value_of(samples, "libinject_state{state=\"open\"}") == 1);
  CHECK(value_of(samples, "libinject_state{state=\"closed\"}") == 0);
  CHECK(samples.at("libinject_last_update_timestamp_seconds") == "1800000000.25");
  CHECK(samples.count("libinject_last_window_end_timestamp_seconds") == 0);
  CHECK(samples.count("libinject_flop_per_second") == 0);
}

TEST_CASE("Families come in their order, each once, and no sample has a timestamp", "[prometheus]") {
  Monitored run;
  run.info.batch = 8;
  run.info.unit_source = UnitSource::kStated;
  run.open(1);
  run.work(1, "k", 50'000);
  run.copy(1, 1, 1000, 100);
  run.gemm(1, 1000);
  for (std::uint64_t i = 0; i < 3; ++i) {
    run.statistics.iteration_boundary(
        {i, Monitored::begin_of(1) + i * 1000, 1, i == 0 ? 0u : 1u, IterationLabel::kIteration});
  }
  run.close(1);
  run.info.windows[0].memory = {{0, 5, 7}};
  run.info.memory = {{0, {}, {}}};
  run.info.memory_lines = {{0, MemoryLine::Of::kTorchReserved, {MemoryInterval{}}},
                           {0, MemoryLine::Of::kTorchAllocated, {MemoryInterval{}}}};
  run.info.energy.memory = {{0, MemoryLine::Of::kInUse, {MemoryInterval{}}}};
  run.info.memory_purposes = purposes();
  run.info.host_windows = {host_window(1, 50, 0)};
  // 500 W, read every 10 ns because the test's windows are short.
  DeviceReadings readings;
  for (std::uint64_t i = 0; i < 200'000; i += 10) {
    readings.energy.push_back(
        {Monitored::begin_of(1) + i, Monitored::begin_of(1) + i + 10, 1'000'000 + i / 2000, 0});
    if (i % 1000 == 0) {
      ClockReading clocks;
      clocks.time = Monitored::begin_of(1) + i;
      clocks.throttle_reasons = kThrottlePower;
      readings.clocks.push_back(clocks);
    }
  }
  run.info.energy.devices.push_back(readings);
  const std::string text = run.text();
  std::vector<std::string> order;
  const std::regex type("# TYPE (\\S+) (gauge|counter)");
  for (std::sregex_iterator at(text.begin(), text.end(), type), end; at != end; ++at)
    order.push_back((*at)[1]);
  std::vector<std::string> expected;
  for (const MetricFamily& family : prometheus_families()) {
    // These need iterations outside of windows.
    if (family.name != "libinject_overhead_ratio" && family.name != "libinject_unprofiled_step_time_seconds")
      expected.emplace_back(family.name);
  }
  CHECK(order == expected);
  CHECK(text.back() == '\n');
  samples_of(text);  // one value each, and no duplicate labels
}

TEST_CASE("Counters are of the run, gauges of the latest windows", "[prometheus]") {
  Monitored run;
  run.open(1);
  run.work(1, "k", 10'000);
  run.copy(1, 1, 4000, 1000);
  run.gemm(1, 500'000);
  run.close(1);
  auto samples = samples_of(run.text());
  CHECK(value_of(samples, "libinject_gpu_utilization_ratio{device=\"0\"}") == Approx(0.1));
  CHECK(value_of(samples, "libinject_copy_bytes_per_second{device=\"0\",direction=\"Host-to-Device\"}") ==
        Approx(4e9));
  CHECK(value_of(samples, "libinject_flop_per_second") == Approx(5e9));
  CHECK(value_of(samples, "libinject_latest_windows") == 1);

  // Nothing new has settled, so nothing changes, whatever the open window has done.
  run.open(2);
  run.gemm(2, 300'000);
  CHECK(samples_of(run.text()) == samples);

  // Nor does a window that has ended but whose records are still arriving.
  run.info.windows.back().end = Monitored::begin_of(2) + 100'000;
  run.info.windows_time += 100'000;
  CHECK(samples_of(run.text()) == samples);
  run.info.windows_time -= 100'000;

  run.work(2, "k", 30'000);
  run.work(2, "k", 40'000, 1);
  run.copy(2, 2, 8000, 1000);
  run.close(2);
  run.open(3);
  run.work(3, "k", 20'000);
  run.close(3);
  samples = samples_of(run.text(PrometheusState::kClosed));
  CHECK(value_of(samples, "libinject_latest_windows") == 2);
  CHECK(value_of(samples, "libinject_windows_total") == 3);
  CHECK(value_of(samples, "libinject_window_time_seconds_total") == Approx(3e-4));
  CHECK(value_of(samples, "libinject_gpu_utilization_ratio{device=\"0\"}") == Approx(0.25));
  CHECK(value_of(samples, "libinject_gpu_utilization_ratio{device=\"1\"}") == Approx(0.4));
  CHECK(value_of(samples, "libinject_gpu_kernel_busy_seconds_total{device=\"0\"}") == Approx(6e-5));
  CHECK(value_of(samples, "libinject_gpu_time_seconds_total{device=\"0\"}") == Approx(3e-4));
  CHECK(value_of(samples, "libinject_kernels_total{device=\"0\"}") == 3);
  CHECK(value_of(samples, "libinject_flop_total") == 800'000);
  CHECK(value_of(samples, "libinject_flop_per_second") == Approx(1.5e9));
  // The counters of the direction without copies continue.
  CHECK(samples.count("libinject_copy_bytes_per_second{device=\"0\",direction=\"Host-to-Device\"}") == 0);
  CHECK(value_of(samples, "libinject_copy_bytes_total{device=\"0\",direction=\"Host-to-Device\"}") == 4000);
  CHECK(value_of(samples, "libinject_copy_bytes_per_second{device=\"0\",direction=\"Device-to-Host\"}") ==
        Approx(8e9));
  double share = value_of(samples, "libinject_gpu_utilization_ratio{device=\"0\"}");
  for (std::size_t i = 0; i < kIdleCauses; ++i) {
    share += value_of(samples, "libinject_gpu_idle_ratio{device=\"0\",cause=\"" +
                                   std::string(idle_cause_name(static_cast<IdleCause>(i))) + "\"}");
  }
  CHECK(share == Approx(1 - 1000 / 200'000.0));  // the copy's share
}

TEST_CASE("Step times in windows are none where the host ran ahead", "[prometheus]") {
  const std::array<const char*, 4> names{"libinject_step_time_mean_seconds",
                                         "libinject_step_time_median_seconds",
                                         "libinject_step_time_p95_seconds", "libinject_samples_per_second"};
  // Iterations of 2 us on the host, with one kernel each.
  for (const std::uint64_t took : {500u, 15'000u}) {
    CAPTURE(took);
    Monitored run;
    run.info.batch = 8;
    run.open(1);
    for (std::uint64_t number = 0; number < 6; ++number) {
      IterationBoundary boundary;
      boundary.window = boundary.window_before = 1;
      boundary.number = number;
      boundary.begin = Monitored::begin_of(1) + number * 2'000;
      run.statistics.iteration_boundary(boundary);
      KernelEvent event = run.kernel("k", 0);
      event.launch.window = 1;
      event.launch.host_begin = boundary.begin + 100;
      event.start = Monitored::begin_of(1) + 1'000 + number * std::max<std::uint64_t>(took, 2'000);
      event.end = event.start + took;
      run.statistics.add(event);
    }
    run.close(1);
    Report report = build_report(run.statistics, run.info);
    report.steps.time = MedianInterval{5'000'000, 4'000'000, 6'000'000};
    const auto samples = samples_of(run.metrics.text(report, PrometheusState::kWaiting, kTime, 0));
    CHECK(value_of(samples, "libinject_latest_steps") == 5);
    CHECK(value_of(samples, "libinject_unprofiled_step_time_seconds") == Approx(5e-3));
    if (took < 2'000) {
      CHECK(value_of(samples, names[1]) == Approx(2e-6));
      CHECK(value_of(samples, names[3]) == Approx(4e6));
    } else {
      for (const char* name : names) CHECK(samples.count(name) == 0);
    }
  }
}

TEST_CASE("A verdict whose gain nothing bounds has no sample of it", "[prometheus]") {
  Monitored run;
  run.info.devices.clear();  // so that no grid is too small for them
  run.open(1);
  run.work(1, "mine", 99'000);
  run.work(1, "void at::native::vectorized_elementwise_kernel<4, float>(int, float*)", 99'000, 1);
  run.close(1);
  const auto samples = samples_of(run.text());
  CHECK(samples.count("libinject_verdict{device=\"0\",verdict=\"GPU-bound\"}") == 1);
  CHECK(samples.count("libinject_potential_gain_ratio{device=\"0\"}") == 0);
  CHECK(samples.count("libinject_verdict{device=\"1\",verdict=\"GPU-bound (memory)\"}") == 1);
  CHECK(value_of(samples, "libinject_potential_gain_ratio{device=\"1\"}") == Approx(0.99));
}

TEST_CASE("Windows that have no row any longer have their gauges", "[prometheus]") {
  Monitored run;
  const std::uint32_t last = Statistics::kMaxRows + 5;
  for (std::uint32_t window = 1; window < last; ++window) {
    run.open(window);
    run.work(window, "k", 10'000);
    run.copy(window, 1, 4000, 1000);
    run.close(window);
  }
  run.text();
  run.open(last);
  run.work(last, "k", 90'000);
  run.copy(last, 1, 4000, 4000);
  run.close(last);
  const auto samples = samples_of(run.text());
  CHECK(value_of(samples, "libinject_latest_windows") == 1);
  CHECK(value_of(samples, "libinject_gpu_utilization_ratio{device=\"0\"}") == Approx(0.9));
  CHECK(value_of(samples, "libinject_kernels_total{device=\"0\"}") == last);
  CHECK(value_of(samples, "libinject_copy_bytes_per_second{device=\"0\",direction=\"Host-to-Device\"}") ==
        Approx(1e9));
}

TEST_CASE("Ten kernels at most, by their time, with names of bounded length", "[prometheus]") {
  Monitored run;
  run.open(1);
  for (std::uint64_t i = 0; i < 100; ++i) run.work(1, "k" + std::to_string(i), 100 + i);
  const auto kernels = [&run] {
    std::vector<std::string> lines;
    std::istringstream text(run.text());
    for (std::string line; std::getline(text, line);) {
      if (line.rfind("libinject_top_kernel_time_ratio{", 0) == 0) lines.push_back(line);
    }
    return lines;
  };
  std::vector<std::string> lines = kernels();
  REQUIRE(lines.size() == PrometheusMetrics::kMaxKernels);
  for (std::size_t i = 0; i < lines.size(); ++i)
    CHECK(lines[i].find("kernel=\"k" + std::to_string(99 - i) + "\"} 0.01") != std::string::npos);

  // Names that differ only in the middle, or in bytes that are replaced, would give duplicate labels.
  std::string long_name;
  for (int i = 0; i < 100; ++i) long_name += "\xe2\x82\xac";
  for (const char middle : {'a', 'b'}) run.work(1, long_name + std::string(500, middle) + long_name, 50'000);
  for (const char* name : {"twin\x01", "twin\x02"}) run.work(1, name, 20'000);
  lines = kernels();
  REQUIRE(lines.size() == PrometheusMetrics::kMaxKernels);
  CHECK(std::set<std::string>(lines.begin(), lines.end()).size() == lines.size());
  CHECK(lines[0].find("...") != std::string::npos);
  CHECK(lines[0].size() < PrometheusMetrics::kMaxNameLength + 100);
  CHECK(lines[1].find("kernel=\"twin\xef\xbf\xbd\"} ") != std::string::npos);
  const double total = 100 * 100 + 99 * 50 + 2 * 50'000 + 2 * 20'000;
  CHECK(std::stod(lines[0].substr(lines[0].rfind(' '))) == Approx(100'000 / total));
  CHECK(std::stod(lines[1].substr(lines[1].rfind(' '))) == Approx(40'000 / total));
  samples_of(run.text());
}

TEST_CASE("Files of several ranks can be read together", "[prometheus]") {
  std::map<std::string, std::string> headers;
  std::set<std::string> series;
  for (const char* rank : {"", "1", "2"}) {
    for (const int pid : {70, 71}) {
      Monitored run;
      run.info.rank = rank;
      run.info.pid = pid;
      run.open(1);
      run.work(1, "k", 50'000);
      run.close(1);
      std::istringstream text(run.text());
      for (std::string line; std::getline(text, line);) {
        INFO(line);
        if (line[0] == '#') {
          const std::string key = line.substr(0, line.find(' ', 8));
          CHECK(headers.emplace(key, line).first->second == line);
        } else {
          CHECK(series.insert(line.substr(0, line.rfind(' '))).second);
        }
      }
    }
  }
  CHECK(std::any_of(series.begin(), series.end(), [](const std::string& labels) {
    return labels.find("rank=\"0\"") != std::string::npos;  // outside of a job, as for %r
  }));
}

TEST_CASE("The file is put in place whole, for others to read", "[prometheus]") {
  const TemporaryFolder folder;
  Monitored run;
  PrometheusFile file;
  CHECK_FALSE(file.is_on());
  file.open(folder.path() + "/a.prom", 77);
  REQUIRE(file.is_on());
  const mode_t mask = ::umask(077);
  CHECK(file.write(file.text(build_report(run.statistics, run.info), PrometheusState::kOpen)));
  CHECK(file.write(file.text(build_report(run.statistics, run.info), PrometheusState::kClosed)));
  ::umask(mask);
  struct stat found {};
  REQUIRE(::stat((folder.path() + "/a.prom").c_str(), &found) == 0);
  CHECK((found.st_mode & 07777) == 0644);
  CHECK(folder.read("a.prom").find("state=\"closed\"} 1\n") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK((file.info().written == 2 && file.info().failed == 0));
}

TEST_CASE("A Prometheus file that can't be written is counted, and replaces nothing", "[prometheus]") {
  const TemporaryFolder folder;
  Monitored run;
  const auto refused = [&](const std::string& path) {
    PrometheusFile file;
    file.open(path, 77);
    CHECK_FALSE(file.write(file.text(build_report(run.statistics, run.info), PrometheusState::kOpen)));
    CHECK_FALSE(file.write(file.text(build_report(run.statistics, run.info), PrometheusState::kOpen)));
    CHECK((file.info().written == 0 && file.info().failed == 2));
    CHECK(file.error().find(path.substr(path.rfind('/') + 1)) != std::string::npos);
    return file.error();
  };
  refused(folder.path() + "/none/a.prom");
  std::filesystem::create_directory(folder.path() + "/folder.prom");
  refused(folder.path() + "/folder.prom");
  std::ofstream(folder.path() + "/target") << "mine";
  std::filesystem::create_symlink("target", folder.path() + "/link.prom");
  refused(folder.path() + "/link.prom");
  CHECK(folder.read("target") == "mine");
  CHECK(std::filesystem::is_symlink(folder.path() + "/link.prom"));
  REQUIRE(::mkfifo((folder.path() + "/pipe.prom").c_str(), 0600) == 0);
  CHECK(refused(folder.path() + "/pipe.prom").find("other than a regular file") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 4);

  // A failure is reported by the next successful write.
  PrometheusFile file;
  file.open(folder.path() + "/later/a.prom", 77);
  CHECK_FALSE(file.write(file.text(build_report(run.statistics, run.info), PrometheusState::kOpen)));
  std::filesystem::create_directory(folder.path() + "/later");
  CHECK(file.write(file.text(build_report(run.statistics, run.info), PrometheusState::kOpen)));
  CHECK(folder.read("later/a.prom").find("libinject_write_errors_total{pid=\"77\",rank=\"0\"} 1\n") !=
        std::string::npos);
}
