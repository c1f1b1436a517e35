// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/summary.h"
#include "libinject/record/memory_use.h"

#include "libinject/report/display_text.h"

#include <sstream>

#include "libinject/base/csv.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

/// The number of columns: one per ASCII or other character, except for the wide characters that the tests
/// use.
std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  for (const char c : line) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) ++count;
  }
  return count;
}

std::string valid(const std::string& text) {
  std::string out;
  append_utf8(out, text);
  return out;
}

RunInfo some_run() {
  RunInfo info;
  info.pid = 77;
  info.host = "node7";
  info.command_line = {"python", "train.py"};
  DeviceInfo device;
  device.name = "NVIDIA H200";
  info.devices = {device};
  WindowInfo window;
  window.number = 1;
  window.reason = "api";
  window.state = WindowState::kClosed;
  window.start = 1'000'000;
  window.end = 3'000'000;
  info.windows = {window};
  return info;
}

/// Twenty iterations in a window, with durations from `in_window`, and twenty of 50 us without the profiler.
template <typename InWindow>
void add_steps(StatsRun& run, const InWindow& in_window) {
  IterationBoundary next;
  next.begin = 1'000'000;
  for (std::uint64_t i = 0; i <= 40; ++i) {
    next.number = i;
    next.window = i < 20 ? 1 : 0;
    next.unprofiled_before = i > 20;
    run.statistics.iteration_boundary(next);
    next.window_before = next.window;
    next.begin += i < 20 ? in_window(i) : 50'000;
  }
}

}  // namespace

TEST_CASE("The summary of a small run", "[output]") {
  StatsRun run;
  for (Nanoseconds i = 0; i < 3; ++i) {
    KernelEvent gemm = run.kernel("ampere_sgemm_128x64_tn", 500'000);
    gemm.launch.chain = chain_of({"cublasSgemm_v2"});
    gemm.start += i * 400'000;  // each begins while the one before runs
    gemm.end += i * 400'000;
    run.statistics.add(gemm);
  }
  run.statistics.add(run.kernel("relu(float*, int)", 100'000));
  run.statistics.add(call_event("cublasSgemm_v2", 20'000));
  run.statistics.add(call_event("cudaLaunchKernel", 4'000));
  run.statistics.add(copy_event(1, 4'000'000, 200'000));
  CHECK(summary_text(build_report(run.statistics, some_run()), "/out/inject-node7-77") ==
        R"(libinject: 1 window (api), 2.000ms; process 77 on node7
  python train.py
  GPU 0 NVIDIA H200: 4 kernels 1.600ms, busy 65.0% of the windows' time
    1 copy 200.00us (4.000MB), 0 memsets 0ns

  Time(%)      Time  Calls       Avg       Min       Max  Kernel
    93.8%   1.500ms      3  500.00us  500.00us  500.00us  ampere_sgemm_128x64_tn
     6.2%  100.00us      1  100.00us  100.00us  100.00us  relu(float*, int)

  GPU(%)  GPU time  Kernels  Calls  Host time       Avg  Library call (inclusive)
   93.8%   1.500ms        3      1   20.000us  20.000us  cublasSgemm_v2

      Time  Calls     Size  Avg size  Throughput  Copies and memsets
  200.00us      1  4.000MB   4.000MB  20.000GB/s  [CUDA memcpy Host-to-Device]

  Time(%)     Time  Calls      Avg      Min      Max  API call
   100.0%  4.000us      1  4.000us  4.000us  4.000us  cudaLaunchKernel

  tables: /out/inject-node7-77
  next: inject report /out/inject-node7-77 -o report.html
)");
}

TEST_CASE("A run without GPU work says so", "[output]") {
  const StatsRun run;
  CHECK(summary_text(build_report(run.statistics, some_run()), "/out") ==
        "libinject: 1 window (api), 2.000ms; process 77 on node7\n  python train.py\n"
        "  no GPU work was launched in a window\n\n  tables: /out\n"
        "  next: inject report /out -o report.html\n");
}

TEST_CASE("The summary says how many files could not be written, whether they are old or missing",
          "[output]") {
  const StatsRun run;
  RunInfo info = some_run();
  info.files_not_written = 3;
  info.stale_files = {"gemm_sum.csv"};
  const std::string text = summary_text(build_report(run.statistics, info), "/out");
  CHECK(text.find("  incomplete: 1 stale file that could not be rewritten") != std::string::npos);
  CHECK(text.find("\n  tables: /out (not all: 3 files could not be written)\n") != std::string::npos);
}

TEST_CASE("The command to type next names the folder as it can be typed", "[output]") {
  const StatsRun run;
  RunInfo info = some_run();
  info.working_directory = "/me/my job";
  const auto next = [&](std::string_view folder) {
    const std::string text = summary_text(build_report(run.statistics, info), folder);
    const std::size_t at = text.rfind("  next: inject report ");
    return at == std::string::npos ? std::string() : text.substr(at + 22);
  };
  CHECK(next("/me/my job/result.1") == "result.1 -o report.html\n");
  CHECK(next("/me/my jobs/result") == "'/me/my jobs/result' -o report.html\n");
  CHECK(next("/me/my job/it's") == "'it'\\''s' -o report.html\n");
  CHECK(next("/me/my job/-o") == "./-o -o report.html\n");
  CHECK(next("").empty());
  info.recovered.emplace();
  CHECK(next("/me/my job/result") == "'/me/my job/result' -o report.html\n");
}

TEST_CASE("A line for each device whose memory was used", "[output]") {
  StatsRun run;
  RunInfo info = some_run();
  MemoryCounts counts;
  counts.allocations = 12;
  counts.peak = 1'234'000'000;
  // Rows of a single function, of the host and of an unknown device have no line.
  info.memory = {{0, {}, counts},
                 {0, AllocationApi::kMalloc, counts},
                 {MemoryUse::kUnknownDevice, {}, counts},
                 {MemoryUse::kHost, {}, counts}};
  CHECK(summary_text(build_report(run.statistics, info), "/out")
            .find("  no GPU work was launched in a window\n"
                  "  GPU 0 NVIDIA H200\n"
                  "    memory: peak 1.234GB allocated by 12 calls\n\n") != std::string::npos);
  run.statistics.add(run.kernel("k", 100));
  info.windows[0].memory = {{0, 5'000u, 20'100'000'000u}};
  info.windows.push_back(info.windows[0]);
  info.windows.back().memory = {{0, 6'000u, {}}};  // unknown: the last known one is shown
  counts.allocations = 1;
  counts.failed = 1;
  counts.largest_failed = 3'000'000;
  info.memory.push_back({1, {}, counts});
  counts.failed = 3;
  counts.largest_failed = 80'000'000'000;
  info.memory[0].counts = counts;
  info.allocations_not_held = 4;
  const std::string text = summary_text(build_report(run.statistics, info), "/out");
  CHECK(text.find(
            "    memory: peak 1.234GB allocated by 1 call, 20.100GB in use on the GPU at the end; 3 failed, "
            "the largest of 80.000GB\n") != std::string::npos);
  CHECK(text.find("  GPU 1: no work in a window\n"
                  "    memory: peak 1.234GB allocated by 1 call; 1 failed, of 3.000MB\n") !=
        std::string::npos);
  CHECK(text.find("  incomplete: 4 allocations beyond the limit: not in live and peak bytes\n") !=
        std::string::npos);
  std::istringstream lines(text);
  for (std::string each; std::getline(lines, each);) CHECK(columns(each) <= 120);
}

TEST_CASE("A line for the processors, and one for loader workers that did anything", "[output]") {
  StatsRun run;
  RunInfo info = some_run();
  const auto summary = [&] { return summary_text(build_report(run.statistics, info), "out"); };
  CHECK(summary().find("processors:") == std::string::npos);
  HostWindow window;
  window.begin = 1;
  window.end = 2 * kSecond + 1;
  window.affinity = 8;
  const auto row = [](HostRole role, std::uint64_t count, std::uint64_t time, std::uint64_t wait) {
    HostRoleUse one{role, count, {}};
    one.use.of(HostAmount::kProcessorTime) = time;
    one.use.of(HostAmount::kRunQueueWait) = wait;
    return one;
  };
  window.roles = {row(HostRole::kProcess, 1, 3 * kSecond, kSecond),
                  row(HostRole::kLoaderWorker, 6, kSecond, 0)};
  info.host_windows = {window};
  CHECK(summary().find("  CPU cores: 1.50 used by the process, 0.50 by its children, of 8 allowed; run-queue "
                       "wait: another 0.50\n") != std::string::npos);
  CHECK(summary().find("loader worker") == std::string::npos);
  info.host_windows[0].quota_thousandths = 2'500;
  info.host_windows[0].workers = 2;
  info.host_windows[0].worker_life = 4 * kSecond;
  info.host_windows[0].worker_time = kSecond;
  info.host_windows[0].worker_wait = 2 * kSecond;
  const std::string text = summary();
  CHECK(text.find("of 2.50 allowed") != std::string::npos);
  CHECK(text.find("    2 loader workers: computing 25.0% of the time, waiting for a core 50.0%\n") !=
        std::string::npos);
}

TEST_CASE("A device that lags behind the host was busy up to 100 %", "[output]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 3'000'000);  // in a window of 2 ms
  run.statistics.add(event);
  event.device = 1;
  event.end = event.start + 500'000;
  run.statistics.add(event);
  RunInfo info = some_run();
  WindowInfo idle = info.windows[0];
  idle.number = 2;
  idle.start = 5'000'000;
  idle.end = 8'000'000;
  info.windows.push_back(idle);
  const std::string text = summary_text(build_report(run.statistics, info), "/out");
  CHECK(text.find("GPU 0 NVIDIA H200: 1 kernel 3.000ms, busy 50.0% of the windows' time\n") !=
        std::string::npos);
  CHECK(text.find("GPU 1: 1 kernel 500.00us, busy 10.0% of the windows' time\n") != std::string::npos);
}

TEST_CASE("Step times, with samples per second where the batch size is known", "[output]") {
  StatsRun run;
  IterationBoundary next;
  next.window = next.window_before = 1;
  Nanoseconds time = 1'000'000;
  for (std::uint64_t i = 0; i < 20; ++i) {
    next.number = i;
    next.begin = time;
    next.label = i == 10 ? IterationLabel::kValidation : IterationLabel::kIteration;
    run.statistics.iteration_boundary(next);
    time += i < 18 ? 50'000 : 77'000;
  }
  RunInfo info = some_run();
  CHECK(summary_text(build_report(run.statistics, info), "/out").find("iteration") ==
        std::string::npos);  // not settled
  run.statistics.settle_window(1, 1'000'000, 3'000'000);
  CHECK(summary_text(build_report(run.statistics, info), "/out")
            .find("  in windows: 18 iterations, median 50.000us, mean 51.500us, 95th percentile 77.000us\n"
                  "    also 1 incomplete iteration, 1 validation phase\n") != std::string::npos);
  info.batch = 100;
  CHECK(summary_text(build_report(run.statistics, info), "/out").find("77.000us; 2000000.0 samples/s\n") !=
        std::string::npos);
}

TEST_CASE("The step time is that of steps without the profiler, and what it adds is said", "[output]") {
  StatsRun run;
  const Nanoseconds in_window = GENERATE(62'500u, 52'000u, 50'000u);
  add_steps(run, [&](std::uint64_t) { return in_window; });
  // The device works for 0.5 ms of 1.25 ms; otherwise the run is launch-bound.
  KernelEvent kernel = run.kernel("k", 500'000);
  kernel.start = 1'000'000;
  kernel.end = 1'500'000;
  kernel.launch.host_begin = 1'000'000;
  run.statistics.add(kernel);
  run.statistics.settle_window(1, 1'000'000, 1'000'000 + 20 * in_window);
  const std::string text = summary_text(build_report(run.statistics, some_run()), "/out");
  INFO(text);
  CHECK(
      text.find("  step time 50.000us (50.000us to 50.000us): median of 20 iterations without the profiler\n"
                "    in windows: 20 iterations, median ") != std::string::npos);
  const auto disturbance =
      text.find("  steps in windows took 25.0% (25.0 to 25.0) longer than without the profiler: ");
  // Among the first lines, and only if it is large.
  CHECK((disturbance != std::string::npos) == (in_window == 62'500));
  CHECK((in_window != 62'500 || disturbance < text.find("step time")));
  CHECK((text.find("\n    25.0% (25.0 to 25.0) longer than without the profiler\n") != std::string::npos) ==
        (in_window == 62'500));
  CHECK((text.find("\n    4.0% (4.0 to 4.0) longer than") != std::string::npos) == (in_window == 52'000));
  CHECK((text.find("\n    not measurably longer than") != std::string::npos) == (in_window == 50'000));
  CHECK(
      (text.find("\n    without the profiler: kernels run 50.0% (50.0 to 50.0) of the time; launch-bound ") !=
       std::string::npos) == (in_window != 50'000));
  run.statistics.add(call_event("cudaGraphLaunch", 10));
  const std::string graphs = summary_text(build_report(run.statistics, some_run()), "/out");
  CHECK((graphs.find("kernels run at most 50.0% (50.0 to 50.0) of the time; launch-bound at least ") !=
         std::string::npos) == (in_window != 50'000));
}

TEST_CASE("A few slow steps in the window are said, which its median step does not show", "[output]") {
  StatsRun run;
  add_steps(run, [](std::uint64_t step) { return step % 20 < 9 ? 90'000u : 50'000u; });
  run.statistics.settle_window(1, 1'000'000, 2'700'000);
  const std::string text = summary_text(build_report(run.statistics, some_run()), "/out");
  INFO(text);
  CHECK(text.find("  steps in windows took on average 36.0% (6.7 to 87.6) longer than") != std::string::npos);
  CHECK(text.find("\n    on average 36.0% (6.7 to 87.6) longer than without the profiler\n") !=
        std::string::npos);
}

TEST_CASE("Windows that cut each iteration have no step time", "[output]") {
  StatsRun run;
  IterationBoundary before;
  before.begin = 1;
  run.statistics.iteration_boundary(before);
  CallEvent call = call_event("cudaLaunchKernel", 3);
  call.correlation = 1;
  run.statistics.add(call);
  run.statistics.settle_window(1, 100, 1000);
  CHECK(summary_text(build_report(run.statistics, some_run()), "/out")
            .find("  in windows: no complete iteration\n    also 1 incomplete iteration\n") !=
        std::string::npos);
}

TEST_CASE("What was lost is told, with what to do", "[output]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 10);
  event.launch.known = false;
  run.statistics.add(event);
  RunInfo info = some_run();
  info.windows[0].losses.host_records = 12;
  info.windows[0].losses.missing_records = 1;
  info.losses_outside.host_records = 1;
  info.windows[0].losses.activity_records = 2;
  info.rank = "3";
  info.windows[0].end = 0;
  info.iteration_records_lost = 3;
  info.iteration_signs_lost = 5;
  info.busy_records_late = 1;
  info.graph_nodes_lost = 2;
  info.windows_without_times = 44;
  const std::string text = summary_text(build_report(run.statistics, info), "/out");
  CHECK(
      text.find(
          "incomplete: 3 GPU records not assigned to an iteration: too many arrived before it was known\n") !=
      std::string::npos);
  CHECK(
      text.find("incomplete: 5 calls missed by the iteration search, so iteration numbers may be off: raise "
                "INJECT_RING\n") != std::string::npos);
  CHECK(text.find("incomplete: 44 windows without timestamps: they followed one another too fast\n") !=
        std::string::npos);
  CHECK(text.find("incomplete: 1 GPU record too late for the busy times\n") != std::string::npos);
  CHECK(text.find(
            "incomplete: 2 nodes of CUDA graphs beyond the limit: their kernels have no library call\n") !=
        std::string::npos);
  CHECK(text.find("node7, rank 3\n") != std::string::npos);
  CHECK(text.find("still open") != std::string::npos);
  CHECK(text.find("incomplete: 13 API calls lost: the ring was full, raise INJECT_RING\n") !=
        std::string::npos);
  CHECK(text.find("incomplete: 2 GPU records lost: CUPTI's buffers were full, raise INJECT_BUFFERS\n") !=
        std::string::npos);
  CHECK(text.find("incomplete: 1 launch whose GPU record never arrived\n") != std::string::npos);
  CHECK(text.find("incomplete: 1 GPU record whose launch was not seen (still counted)\n") !=
        std::string::npos);
}

TEST_CASE("Windows that others ended or kept without device activity are told, each reason once",
          "[output]") {
  StatsRun run;
  RunInfo info = some_run();
  info.windows.resize(1);
  info.windows[0].ended_by = "a tool subscribes to CUPTI";
  for (std::uint32_t i = 2; i <= 6; ++i) {
    WindowInfo window;
    window.number = i;
    window.reason = "api";
    window.untraced = i <= 3
                          ? "held by a tool whose name is long: " + std::string(60, 'n') + " (and a remark)"
                          : std::to_string(i);
    info.windows.push_back(window);
  }
  const std::string text = summary_text(build_report(run.statistics, info), "/out");
  CHECK(text.find("  incomplete: 1 window closed early: a tool subscribes to CUPTI\n") != std::string::npos);
  CHECK(text.find("  incomplete: 2 windows without GPU records: held by a tool whose name is long:") !=
        std::string::npos);
  CHECK(text.find("\n    " + std::string(60, 'n') + " (and a remark)\n") != std::string::npos);
  CHECK(text.find("without GPU records: 5\n") != std::string::npos);
  CHECK(text.find("without GPU records: 6\n") == std::string::npos);  // at most three reasons
}

TEST_CASE("Lines fit the columns whatever the names are, and are valid UTF-8", "[output]") {
  StatsRun run;
  const std::string nasty[] = {std::string(500, 'x'), "\x1b[31mred\n\r\t", std::string(200, '\xff'),
                               "k(" + std::string(300, 'a') + ")",
                               "void f<" + std::string(300, 'T') + ">(int)"};
  std::string greek;
  for (int i = 0; i < 200; ++i) greek += "λ";
  std::string chinese;
  for (int i = 0; i < 200; ++i) chinese += "核";
  for (const std::string& name : nasty) run.statistics.add(run.kernel(name, 1000));
  run.statistics.add(run.kernel(greek, 99'999'999'999));
  run.statistics.add(run.kernel(chinese, 1));
  for (int i = 0; i < 20; ++i) run.statistics.add(run.kernel("kernel " + std::to_string(i), 5));
  RunInfo info = some_run();
  info.command_line = {std::string(1000, 'a'), "\xff"};
  info.host = std::string(300, 'h');
  info.stale_files = {"gemm_sum.csv"};
  info.allocations_not_held = info.iteration_signs_lost = info.metric_records_lost = info.graph_nodes_lost =
      7'000'000;
  for (const std::size_t most : {std::size_t{80}, std::size_t{99}, std::size_t{120}}) {
    const std::string text = summary_text(build_report(run.statistics, info), "/out", most);
    CHECK(valid(text) == text);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find("... and 17 more") != std::string::npos);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(columns(line) <= most);
    }
    CHECK(text.find("INJECT_RING\n") != std::string::npos);  // the end of a long line is not cut off
  }
}

TEST_CASE("Names are shortened at their signature first, then in the middle", "[output]") {
  CHECK(shortened("short", 10) == "short");
  CHECK(shortened("void ns::add<float>(float*, int)", 32) == "void ns::add<float>(float*, int)");
  CHECK(shortened("void ns::add<float>(float*, int)", 31) == "ns::add<float>");
  CHECK(shortened("void ns::add<float, int>(float*, int)", 12) == "ns::ad...nt>");
  CHECK(shortened("(anonymous namespace)::k(int, int)", 25) == "(anonymous namespace)::k");
  CHECK(shortened("abcdefghijklmnop", 9) == "abcd...op");
  CHECK(shortened("abcdef", 3) == "abc");
  CHECK(shortened("abcdef", 0).empty());
  CHECK(shortened("核核核核核", 9) == "核核...核");
  CHECK(shortened("f(", 1) == "f");
  CHECK(shortened(")", 1) == ")");
  CHECK(shortened("aaaa)))", 3) == "aaa");
  CHECK(shortened("a\x01"
                  "b\xc2\x85",
                  9) == "a?b?");
}

TEST_CASE("Times and sizes in the unit that suits", "[output]") {
  CHECK(time_text(0) == "0ns");
  CHECK(time_text(999) == "999ns");
  CHECK(time_text(1000) == "1.000us");
  CHECK(time_text(21'040'592) == "21.041ms");
  CHECK(time_text(123'456'789) == "123.46ms");
  CHECK(time_text(999'999'999) == "1.000s");
  CHECK(time_text(7.2e12) == "7200.00s");
  CHECK(size_text(512) == "512B");
  CHECK(size_text(4096) == "4.096kB");
  CHECK(size_text(3.2e12) == "3.200TB");
}
