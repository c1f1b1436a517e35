// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/pipeline.h"

#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "libinject/base/clock.h"
#include "tests/unit/catch.h"
#include "tests/unit/temporary_folder.h"
#include "tests/unit/write_files.h"

using namespace inject;

namespace {

/// Without CUPTI: the records are those of this thread's queue, which is in this process's registry.
struct Running {
  Running() {
    core.threads.drain([](std::uint32_t, const Slot&) {});  // left over from an earlier test
    options.out = temporary.path() + "/run";
    options.summary = SummaryTarget::kOff;
    options.recover = false;
  }
  /// Created with the options as set at the first call.
  Pipeline& pipeline() {
    if (!pipeline_) {
      pipeline_.emplace(options,
                        Pipeline::Sources{core, windows, profiled, buffers, tracer, sampler,
                                          [this] {
                                            ++noted;
                                            if (opens) windows.open("launch:0+1", 900);
                                            opens = false;
                                          },
                                          [](RunInfo& run) { run.overhead.attachments = 4321; },
                                          [] { return "callbacks"; }},
                        RunWriter::Clock{500, 77});
    }
    return *pipeline_;
  }
  void launch(std::uint32_t window, bool graph = false) {
    CallRecord record;
    record.function = find_function(graph ? "cudaGraphLaunch" : "cudaLaunchKernel");
    record.flags = graph ? kCallGraph : 0;
    record.correlation = ++correlation;
    record.begin = 1000;
    record.end = 1100;
    record.window = window;
    record.generation = 1;
    record.call = correlation;
    ThreadRegistry::push(*ThreadRegistry::current(), record);
  }
  bool has_folder() const { return std::filesystem::exists(options.out); }
  nlohmann::json run_json() const { return nlohmann::json::parse(temporary.read("run/run.json")); }

  TemporaryFolder temporary;
  Options options;
  Core& core = *Core::get();
  WindowLog windows;
  ProfiledTimes profiled;
  ActivityBuffers buffers{std::size_t{1} << 20};
  Tracer tracer{buffers, {}};
  PmSampler sampler{{}};
  int noted = 0;
  bool opens = false;
  std::uint32_t correlation = 0;

 private:
  std::optional<Pipeline> pipeline_;
};

}  // namespace

TEST_CASE_METHOD(Running, "a launch waits for its record until its window is settled", "[pipeline]") {
  windows.open("api", 900);
  launch(1);
  launch(1);
  {
    Pipeline::Locked locked(pipeline());
    REQUIRE(locked.owns_lock());
    CHECK(locked.outstanding().launches == 0);
    locked.pass();
    CHECK(locked.outstanding().launches == 2);
    CHECK_FALSE(locked.outstanding().graphs);
    locked.settle_times(2000);
    CHECK(locked.outstanding().launches == 2);
  }
  windows.end(1, 2000);
  Pipeline::Locked locked(pipeline());
  locked.settle(true, 2500);
  CHECK(locked.outstanding().launches == 0);
  const WindowInfo window = windows.copy()[0];
  CHECK(window.state == WindowState::kClosed);
  CHECK(window.detached == 2500);
  CHECK(window.losses.missing_records == 2);
}

TEST_CASE_METHOD(Running, "a window that opened by itself is entered with its first record", "[pipeline]") {
  // Losses of earlier tests are also assigned to windows.
  const bool lost = core.threads.host_drops() != HostDrops{};
  {
    Pipeline::Locked locked(pipeline());
    locked.pass();
    CHECK(noted == (lost ? 1 : 0));
    CHECK(has_folder() == lost);
    opens = true;
    launch(1);
    locked.pass();
  }
  CHECK(noted == (lost ? 2 : 1));
  CHECK(windows.opened() == 1);
  // Raw records go into it.
  CHECK(has_folder());
  REQUIRE(pipeline().shown_folder() != nullptr);
  CHECK(pipeline().shown_folder() == options.out);
  CHECK_FALSE(pipeline().folder_failed());
}

TEST_CASE_METHOD(Running, "the files are made of what has passed", "[pipeline]") {
  windows.open("api", 900);
  launch(1);
  pipeline().restart_search(0, 900);
  CHECK(pipeline().search_restarting());
  Pipeline::Locked locked(pipeline());
  locked.pass();
  CHECK_FALSE(pipeline().search_restarting());
  windows.end(1, 2000);
  locked.settle(true, 2500);
  REQUIRE(locked.writer().may_write());
  write_files(locked.writer(), "open");
  CHECK_FALSE(pipeline().closed_on_disk());
  write_files(locked.writer(), "closed");
  CHECK(pipeline().closed_on_disk());
  CHECK(pipeline().write_interval() >= RunWriter::kInterval);
  const nlohmann::json run = run_json();
  CHECK(run["windows"][0]["state"] == "closed");
  CHECK(run["iterations"]["source"] == "callbacks");
  CHECK_FALSE(run["versions"].contains("cupti"));
  CHECK(temporary.read("run/cuda_api_sum.csv").find("cudaLaunchKernel") != std::string::npos);
  // External contributors are asked as well.
  CHECK(run.dump().find("4321") != std::string::npos);
}

TEST_CASE_METHOD(Running, "signs may be held while a window's end waits", "[pipeline][iterations]") {
  {
    Pipeline::Locked locked(pipeline());
    pipeline().restart_search(begin_sign_pass().sequence, now());
    for (std::uint64_t i = 0; i < 4; ++i) emit_sign(SignKind::kKernel, 10 + i, 20, 7, false);
    locked.pass(true);
    CHECK(locked.tracker().found().events == 0);
    CHECK(locked.tracker().report().rfind("0 launches", 0) == 0);
    locked.pass();
    CHECK(locked.tracker().found().events == 4);
  }
  // From any thread.
  CHECK(pipeline().search_gaps().add(begin_sign_pass().sequence, false));
  pipeline().hold_iteration(1000, 2000);
  pipeline().set_clock_window(3);
  CHECK(pipeline().clock_window() == 3);
  pipeline().set_clock_ended_search(true);
  CHECK(pipeline().clock_ended_search());
}

TEST_CASE_METHOD(Running, "a window that is settled has the iteration that it ended with",
                 "[pipeline][iterations]") {
  pipeline().restart_search(begin_sign_pass().sequence, 1);
  emit_name(500, "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18FusedAdam");
  Nanoseconds time = kSecond;
  Nanoseconds last = 0;
  for (int step = 0; step < 20; ++step) {
    last = time + 50'000;
    for (std::uint64_t function = 480; function <= 500; ++function)
      emit_sign(SignKind::kKernel, function, function + 1000, 7, false, time += 50'000);
  }
  windows.open("iter:0+20", kSecond);
  Pipeline::Locked locked(pipeline());
  locked.pass();
  REQUIRE(locked.tracker().found().begun == 20);
  windows.end(1, time + 1);
  locked.begin_settling();
  locked.settle(true, time + 1);
  REQUIRE(locked.writer().may_write());
  write_files(locked.writer(), "closed");
  const std::string table = temporary.read("run/iteration_sum.csv");
  CAPTURE(table);
  // Its end has been reported, as the last row shows.
  CHECK(table.find("," + std::to_string(last - 500) + ",") != std::string::npos);
}

TEST_CASE_METHOD(Running, "metrics that nobody samples leave no trace", "[pipeline][metrics]") {
  options.metrics = options.metrics_timeline = true;
  windows.open("api", 900);
  launch(1);
  Pipeline::Locked locked(pipeline());
  locked.pass();
  windows.end(1, 2000);
  locked.settle(true, 2500);
  locked.writer().may_write();
  write_files(locked.writer(), "closed");
  CHECK_FALSE(std::filesystem::exists(options.out + "/kernel_metrics.csv"));
  CHECK(temporary.read("run/metric_samples.csv").empty());
}

TEST_CASE_METHOD(Running, "one thread at a time has the pipeline", "[pipeline]") {
  const auto free = [this] {
    bool owned = false;
    std::thread([&] { owned = Pipeline::Locked(pipeline(), std::try_to_lock).owns_lock(); }).join();
    return owned;
  };
  CHECK(free());
  {
    const Pipeline::Locked locked(pipeline());
    CHECK_FALSE(free());
  }
  CHECK(free());
}

TEST_CASE_METHOD(Running, "a pass of graphs says that one launch has many records", "[pipeline]") {
  windows.open("api", 900);
  launch(1, true);
  Pipeline::Locked locked(pipeline());
  locked.pass();
  // No kernel record of a graph has arrived.
  CHECK_FALSE(locked.outstanding().graphs);
}
