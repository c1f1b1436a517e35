// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/diagnosis.h"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "libinject/output/run_json.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/output/tables.h"
#include "libinject/report/report.h"
#include "tests/unit/catch.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

/// A window of 1,000 ns, in which a kernel runs for `kernel`.
DeviceTimes times_of(std::uint64_t kernel, std::initializer_list<std::pair<IdleCause, std::uint64_t>> idle,
                     std::uint64_t copy_only = 0, std::uint64_t exposed = 0) {
  DeviceTimes times;
  times.span = 1000;
  times.kernel_busy = times.kernel_time = kernel;
  times.compute_busy = kernel - exposed;
  times.copy_only = copy_only;
  for (const auto& [cause, time] : idle) times.idle_by_cause[static_cast<std::size_t>(cause)] = {time, 1};
  REQUIRE(times.kernel_busy + times.copy_only + times.idle() == times.span);
  return times;
}

}  // namespace

TEST_CASE("The verdict is what takes most of the time that is not computed in", "[diagnosis]") {
  const KernelLimits limits{700, 200, 100, 0, 350, 0};
  const auto verdict = [&](const DeviceTimes& times) { return diagnose(times, limits).verdict; };
  CHECK(verdict(times_of(300, {{IdleCause::kLaunchCall, 300}, {IdleCause::kHostCompute, 400}})) ==
        Bottleneck::kLaunch);
  CHECK(verdict(times_of(500, {{IdleCause::kSynchronization, 400}, {IdleCause::kQueue, 100}})) ==
        Bottleneck::kSynchronization);
  // The gaps within a graph are no other launch's to save.
  CHECK(verdict(times_of(700, {{IdleCause::kGraph, 250}, {IdleCause::kLaunchCall, 50}})) ==
        Bottleneck::kGpuCompute);
  CHECK(verdict(times_of(500, {{IdleCause::kHostWait, 500}})) == Bottleneck::kInput);
  CHECK(verdict(times_of(500, {{IdleCause::kCopyCall, 100}}, 400)) == Bottleneck::kCopy);
  CHECK(verdict(times_of(950, {{IdleCause::kCollective, 50}}, 0, 400)) == Bottleneck::kCommunication);
  CHECK(verdict(times_of(400, {{IdleCause::kHostWait, 350}, {IdleCause::kLaunchCall, 250}})) ==
        Bottleneck::kMixed);
  CHECK(verdict(times_of(800, {{IdleCause::kHostWait, 200}})) == Bottleneck::kGpuCompute);
  DeviceTimes own_work = times_of(500, {{IdleCause::kHostCompute, 500}});
  CHECK(verdict(own_work) == Bottleneck::kLaunch);
  own_work.own_work = 450;
  CHECK(verdict(own_work) == Bottleneck::kInput);
  // Time for which no remedy is known is not held against the program.
  CHECK(verdict(times_of(500, {{IdleCause::kStartUp, 450}, {IdleCause::kHostWait, 50}})) ==
        Bottleneck::kGpuCompute);
  CHECK(verdict(times_of(500, {{IdleCause::kOtherStream, 450}, {IdleCause::kHostWait, 50}})) ==
        Bottleneck::kUndetermined);
  // But if such time is most of the window, the rest is too little to judge by.
  CHECK(verdict(times_of(501, {{IdleCause::kStartUp, 499}})) == Bottleneck::kGpuCompute);
  CHECK(verdict(times_of(500, {{IdleCause::kStartUp, 500}})) == Bottleneck::kTooShort);
  CHECK(verdict(times_of(150, {{IdleCause::kStartUp, 650}, {IdleCause::kHostWait, 200}})) ==
        Bottleneck::kTooShort);
  CHECK(verdict(DeviceTimes{}) == Bottleneck::kNone);
}

TEST_CASE("What a remedy can win at most", "[diagnosis]") {
  const KernelLimits limits{700, 200, 100, 0, 350, 0};
  CHECK(diagnose(times_of(300, {{IdleCause::kLaunchCall, 300},
                                {IdleCause::kHostWait, 100},
                                {IdleCause::kHostCompute, 300}}),
                 limits)
            .gain == 600);
  const Diagnosis mixed =
      diagnose(times_of(400, {{IdleCause::kHostWait, 350}, {IdleCause::kLaunchCall, 250}}), limits);
  CHECK(mixed.gain == 600);
  CHECK(mixed.leading == 2);
  CHECK(mixed.parts.front().kind == Bottleneck::kInput);
  // Half of the compute-bound time is on tensor cores already, where lower precision may help as well.
  CHECK(diagnose(times_of(1000, {}), limits).verdict == Bottleneck::kGpuCompute);
  CHECK(diagnose(times_of(1000, {}), limits).gain == std::nullopt);
  CHECK(diagnose(times_of(1000, {}), {700, 200, 100, 0, 0, 0}).gain == std::nullopt);
  CHECK(diagnose(times_of(1000, {}), {700, 200, 100, 0, 629, 0}).gain == std::nullopt);
  CHECK(diagnose(times_of(1000, {}), {700, 200, 100, 0, 630, 0}).gain == 700);
  CHECK(diagnose(times_of(1000, {}), {700, 200, 100, 0, 700, 0}).gain == 700);
  CHECK(diagnose(times_of(1000, {}), {100, 700, 200, 0, 0}).verdict == Bottleneck::kGpuMemory);
  CHECK(diagnose(times_of(1000, {}), {100, 700, 200, 0, 0}).gain == 700);
  CHECK(diagnose(times_of(1000, {}), {100, 200, 700, 0, 0}).verdict == Bottleneck::kGpuLatency);
  CHECK(diagnose(times_of(1000, {}), {100, 200, 100, 900, 0}).verdict == Bottleneck::kGpu);
  // The gain of a window that nothing bounds is blank, not 0.
  CHECK(diagnose(times_of(1000, {}), {100, 200, 100, 900, 0}).gain == std::nullopt);
  CHECK(diagnose(times_of(1000, {}), {}).gain == std::nullopt);
  CHECK(diagnose(times_of(500, {{IdleCause::kOtherStream, 450}, {IdleCause::kHostWait, 50}}), limits).gain ==
        std::nullopt);
  CHECK(diagnose(times_of(500, {{IdleCause::kStartUp, 500}}), limits).gain == std::nullopt);
  CHECK(diagnose(DeviceTimes{}, limits).gain == std::nullopt);
  // A known gain of 0 is shown: only a collective's kernel ran in this window, so other kernels can't be
  // shorter.
  const Diagnosis collective_alone = diagnose(times_of(15,
                                                       {{IdleCause::kStartUp, 490},
                                                        {IdleCause::kLaunchCall, 99},
                                                        {IdleCause::kSynchronization, 99},
                                                        {IdleCause::kHostWait, 99},
                                                        {IdleCause::kCopyCall, 99},
                                                        {IdleCause::kCollective, 84},
                                                        {IdleCause::kOtherStream, 15}},
                                                       0, 15),
                                              {100, 700, 200, 0, 0});
  CHECK(collective_alone.verdict == Bottleneck::kGpuMemory);
  CHECK(collective_alone.gain == 0);
  // 80 of 132 multiprocessors for 132 ns beside other kernels.
  DeviceTimes shared = times_of(950, {{IdleCause::kCollective, 50}}, 0, 400);
  shared.collective_block_time = 80 * 132;
  CHECK(diagnose(shared, limits).gain == 450);
  CHECK(diagnose(shared, limits, 132).gain == 530);
  CHECK(diagnose(shared, limits, 132).parts.front().time == 450);
}

TEST_CASE("A gain that nothing bounds is left out, and not told as 0", "[diagnosis]") {
  struct Told {
    std::string table;
    nlohmann::json run;
    std::string summary;
  };
  const auto told = [](std::string_view kernel) {
    StatsRun run;
    KernelEvent event = run.kernel(kernel, 100'000);
    event.grid = {1000, 1, 1};
    run.statistics.add(event);
    run.statistics.settle_window(1, 1000, 101'000);
    RunInfo info;
    WindowInfo window;
    window.number = 1;
    window.state = WindowState::kClosed;
    window.start = 1000;
    window.end = 101'000;
    info.windows = {window};
    const Report report = build_report(run.statistics, info);
    return Told{table_text(window_table(), report),
                nlohmann::json::parse(run_json_text(info, {}, {}, report.diagnoses)).at("diagnosis").at(0),
                summary_text(report, "/out")};
  };
  const Told unknown = told("mine");
  CHECK(unknown.run.at("verdict") == "GPU-bound");
  CHECK(unknown.run.count("potential_gain_ns") == 0);
  CHECK(unknown.table.find(",GPU-bound,,") != std::string::npos);
  const Told on_tensor_cores = told("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NTT");
  CHECK(on_tensor_cores.run.at("verdict") == "GPU-bound (compute)");
  CHECK(on_tensor_cores.run.count("potential_gain_ns") == 0);
  CHECK(on_tensor_cores.table.find(",GPU-bound (compute),,") != std::string::npos);
  CHECK(on_tensor_cores.summary.find("-> limited by arithmetic") != std::string::npos);
  CHECK(on_tensor_cores.summary.find("at most") == std::string::npos);
  const Told off_them = told("ampere_sgemm_128x64_nn");
  CHECK(off_them.run.at("verdict") == "GPU-bound (compute)");
  CHECK(off_them.run.at("potential_gain_ns") == 100'000);
  CHECK(off_them.table.find(",GPU-bound (compute),100.0,") != std::string::npos);
  CHECK(off_them.summary.find("most 100.0% of the time)") != std::string::npos);
}

TEST_CASE("What limits a kernel", "[diagnosis]") {
  CHECK(kernel_limit(Family::kGemm, 1e6, 1) == Bottleneck::kGpuCompute);
  CHECK(kernel_limit(Family::kConvWinogradForward, 1e6, 1) == Bottleneck::kGpuCompute);
  CHECK(kernel_limit(Family::kConvGemm, 1e6, 1) == Bottleneck::kGpuCompute);
  CHECK(kernel_limit(Family::kElementwise, 1e6, 1) == Bottleneck::kGpuMemory);
  CHECK(kernel_limit(Family::kLayoutChange, 1e6, 1) == Bottleneck::kGpuMemory);
  CHECK(kernel_limit(Family::kGemm, 2000, 1) == Bottleneck::kGpuLatency);
  CHECK(kernel_limit(Family::kGemm, 1e6, 0.1) == Bottleneck::kGpuLatency);
  CHECK(kernel_limit(Family::kOther, 1e6, 1) == Bottleneck::kGpu);
  CHECK(measured_limit(1e6, 0.99, 0.6, 0.5) == Bottleneck::kGpuCompute);
  CHECK(measured_limit(1e6, 0.99, 0.2, 0.5) == Bottleneck::kGpuMemory);
  CHECK(measured_limit(1e6, 0.49, 0.6, 0.5) == Bottleneck::kGpuLatency);
  CHECK(measured_limit(4e3, 0.99, 0.6, 0.5) == Bottleneck::kGpuLatency);
  CHECK(measured_limit(1e6, 0.99, 0.09, 0.05) == Bottleneck::kGpu);
}

TEST_CASE("What a device's kernels are limited by leaves collectives out", "[diagnosis]") {
  StatsRun run;
  RunInfo info;
  const auto kernel = [&](std::string_view name, Nanoseconds duration) {
    KernelEvent event = run.kernel(name, duration);
    event.grid = {1000, 1, 1};
    run.statistics.add(event);
  };
  kernel("void at::native::vectorized_elementwise_kernel<4, float>(int, float*)", 100'000);
  kernel("mine", 30'000);
  // These kernels wait for other ranks, for longer than any computation takes.
  kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 500'000);
  const KernelLimits limits = build_report(run.statistics, info).limits_of(0);
  CHECK(limits.memory == 100'000);
  CHECK(limits.unknown == 30'000);
  CHECK(limits.total() == 130'000);
}

TEST_CASE("Each verdict has a name, and what has a remedy an advice", "[diagnosis]") {
  for (std::size_t i = 1; i < kBottlenecks; ++i) {
    const auto kind = static_cast<Bottleneck>(i);
    CHECK_FALSE(bottleneck_name(kind).empty());
    CHECK(bottleneck_advice(kind).empty() ==
          (kind == Bottleneck::kGpu || kind == Bottleneck::kMixed || kind == Bottleneck::kUndetermined ||
           kind == Bottleneck::kTooShort));
  }
}

namespace {

/// A launch by thread 1 that takes 1 us, and its kernel.
void launch_on_thread(StatsRun& run, Nanoseconds begin, Nanoseconds start, Nanoseconds end) {
  CallEvent call = call_event("cudaLaunchKernel", 0);
  call.thread = 1;
  call.begin = begin;
  call.end = begin + 1000;
  run.statistics.add(call);
  KernelEvent event = run.kernel("sgemm", 0);
  event.launch.thread = 1;
  event.launch.host_begin = begin;
  event.launch.host_end = begin + 1000;
  event.start = start;
  event.end = end;
  run.statistics.add(event);
}

}  // namespace

TEST_CASE("A diagnosis names the calls and threads that say so", "[diagnosis]") {
  StatsRun run;
  RunInfo info;
  info.threads = {{}, {4711, "python"}};
  launch_on_thread(run, 0, 0, 100'000);
  CallEvent wait = call_event("cudaStreamSynchronize", 0);
  wait.thread = 1;
  wait.begin = 2000;
  wait.end = 105'000;
  run.statistics.add(wait);
  launch_on_thread(run, 150'000, 160'000, 200'000);
  CHECK(build_report(run.statistics, info).diagnoses.empty());
  run.statistics.settle_window(1, 0, 200'000);
  const auto diagnoses = build_report(run.statistics, info).diagnoses;
  REQUIRE(diagnoses.size() == 1);
  CHECK(diagnoses[0].device == 0);
  CHECK(diagnoses[0].diagnosis.verdict == Bottleneck::kSynchronization);
  REQUIRE(!diagnoses[0].evidence.empty());
  CHECK(diagnoses[0].evidence[0].time == 60'000);
  CHECK(diagnoses[0].evidence[0].text == "cudaStreamSynchronize on thread 4711 (python): 1 gap, 60.000us");
}

namespace {

/// The evidence of a device that waited 10 ms for the launching thread's own work.
std::string input_evidence(std::initializer_list<FetchEvent> fetches, RunInfo info = {}) {
  StatsRun run;
  info.threads = {{}, {4711, "python"}};
  for (const Nanoseconds begin : {0u, 10'000'000u}) launch_on_thread(run, begin, begin + 1000, begin + 2000);
  for (FetchEvent fetch : fetches) {
    fetch.window = 1;
    run.statistics.add(fetch);
  }
  run.statistics.settle_window(1, 0, 10'002'000);
  const auto diagnoses = build_report(run.statistics, info).diagnoses;
  REQUIRE(diagnoses.size() == 1);
  CHECK(diagnoses[0].diagnosis.verdict == Bottleneck::kInput);
  REQUIRE(!diagnoses[0].evidence.empty());
  return diagnoses[0].evidence[0].text;
}

}  // namespace

TEST_CASE("What waits for input says for how much of it the loader was asked", "[diagnosis]") {
  const std::string before = "own work on thread 4711 (python): 1 gap, 9.999ms";
  const auto fetch = [](std::uint32_t thread, FetchKind kind, Nanoseconds begin, Nanoseconds end) {
    return FetchEvent{1, thread, kind, FetchThread::kAny, begin, end};
  };
  CHECK(input_evidence({}) == before);
  CHECK(input_evidence({fetch(1, FetchKind::kWaiting, 2000, 4'900'000)}) == before);
  CHECK(input_evidence({fetch(2, FetchKind::kWaiting, 2000, 9'999'000)}) == before);
  CHECK(input_evidence({fetch(1, FetchKind::kWaiting, 2000, 9'901'010)}) ==
        "in DataLoader.__next__, 99.0% of it waiting for the workers; " + before);
  CHECK(input_evidence({fetch(1, FetchKind::kProcessing, 2000, 9'901'010)}) ==
        "in DataLoader.__next__, 99.0% of it processing without workers; " + before);
  CHECK(input_evidence({fetch(1, FetchKind::kWaiting, 0, 2'001'800),
                        fetch(1, FetchKind::kProcessing, 2'001'800, 20'000'000)}) ==
        "in DataLoader.__next__, 20.0% of it waiting for the workers, 80.0% of it processing without "
        "workers; " +
            before);
}

TEST_CASE("What the main thread did is evidence only if it is the one that launches", "[diagnosis]") {
  HostWindow window;
  window.end = kSecond;
  window.workers = 2;
  window.worker_life = 2 * kSecond;
  window.worker_time = kSecond / 2;
  for (const HostRole role : {HostRole::kMain, HostRole::kProcess}) {
    HostRoleUse& row = window.roles.emplace_back(HostRoleUse{role, 1, {}});
    row.use.of(HostAmount::kProcessorTime) = kSecond / 10;
    row.use.of(HostAmount::kRunQueueWait) = kSecond / 5;
  }
  RunInfo info;
  info.host_windows = {window};
  info.pid = 4700;
  const auto is_in = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(is_in(input_evidence({}, info),
              "; by the launching thread's own work: 2 loader workers computed 25.0% of their time; process "
              "and children used 0.10 processors"));
  info.pid = 4711;
  CHECK(
      is_in(input_evidence({}, info),
            "; by too few processors: the main thread waited 20.0% of the time for one and computed 10.0%"));
  info.host_windows[0].roles[0].use.of(HostAmount::kRunQueueWait) = 0;
  CHECK(is_in(input_evidence({}, info),
              "; by the launching thread's own work: the main thread computed 10.0% of the time; 2 loader "
              "workers computed 25.0% of their time; process and children used 0.10 processors"));
}
