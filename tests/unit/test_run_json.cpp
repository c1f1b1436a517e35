// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/run_json.h"

#include <map>
#include <nlohmann/json.hpp>

#include "tests/unit/catch.h"
#include "tests/unit/devices.h"

using namespace inject;

namespace {

nlohmann::json json_of(const RunInfo& run) {
  return nlohmann::json::parse(run_json_text(run, {}, {}));
}

}  // namespace

TEST_CASE("run.json of an empty run", "[output]") {
  const auto json = json_of({});
  CHECK(json["schema_version"] == kRunSchemaVersion);
  CHECK(json["state"] == "");
  CHECK(json["rank"].is_null());
  CHECK(json["job"].is_null());
  CHECK(json["devices"].is_array());
  CHECK(json["options"].is_object());
  CHECK(json["time_zero"]["utc"] == "1970-01-01T00:00:00.000000000Z");
}

TEST_CASE("What is lost is counted alike for run.json and for others", "[output]") {
  RunInfo run;
  run.windows.resize(2);
  run.windows[0].losses.host_records = 1;
  run.windows[1].losses.host_records = 2;
  run.losses_outside.host_records = 4;
  run.metrics.rows_left_out = 9;
  const auto json = json_of(run)["lost"];
  const std::vector<LostCount> counts = lost_counts(run);
  REQUIRE(counts.size() == json.size());
  for (const LostCount& lost : counts) CHECK(json[std::string(lost.kind)] == lost.count);
  CHECK((json["host_records"] == 7 && json["metric_rows"] == 9));
}

TEST_CASE("run.json says how often the Prometheus file was written, where there is one", "[output]") {
  RunInfo run;
  CHECK(json_of(run).count("prometheus") == 0);
  run.prometheus = PrometheusInfo{"/x/a.prom", 3, 1};
  CHECK(json_of(run)["prometheus"] == nlohmann::json{{"file", "/x/a.prom"}, {"written", 3}, {"failed", 1}});
}

TEST_CASE("run.json says of a window who ended it, and why it has no device activity", "[output]") {
  RunInfo run;
  run.windows.resize(3);
  run.windows[1].ended_by = "a \"tool\" subscribes";
  run.windows[2].untraced = "CUPTI is held";
  const auto json = json_of(run)["windows"];
  CHECK(json[1]["ended_by"] == "a \"tool\" subscribes");
  CHECK(json[2]["no_device_activity"] == "CUPTI is held");
  CHECK((json[0].count("ended_by") == 0 && json[0].count("no_device_activity") == 0));
  CHECK((json[1].count("no_device_activity") == 0 && json[2].count("ended_by") == 0));
}

TEST_CASE("run.json of a run", "[output]") {
  RunInfo run;
  run.version = "0.1.0";
  run.state = "closed";
  run.command_line = {"python", "train.py", "--lr=0.1"};
  run.working_directory = "/home/me";
  run.host = "node7";
  run.pid = 4242;
  run.rank = "3";
  run.job = JobPlace{"torchrun", "a \"job\"", 3, 4, 1, {}, {}, 2};
  run.base = 1000;
  run.base_utc = 1'784'597'271'426'118'694u;
  run.versions = {{"driver", "580.159"}, {"cupti", "13.0.1"}};
  run.options = {{"INJECT_WINDOW", "api"}, {"INJECT_PROM", ""}};
  run.groups_left_out = {"nccl"};
  run.repeated_records = 5;
  run.messages = {"another profiler holds CUPTI"};
  DeviceInfo device = h200(0);
  device.registers_per_multiprocessor = 65537;  // to distinguish it from a block's
  device.memory_bytes = 150'000'000'000u;
  device.pcie_generation = 4;
  device.pcie_width = 8;
  device.pcie_max_generation = 5;
  device.pcie_max_width = 16;
  run.devices = {device};
  run.threads = {{0, ""}, {4242, "python"}};
  WindowInfo window;
  window.number = 1;
  window.reason = "api";
  window.state = WindowState::kClosed;
  window.start = 3000;
  window.end = 9000;
  window.losses.activity_records = 7;
  run.windows = {window};
  window.number = 2;
  window.state = WindowState::kOpen;
  window.end = 0;
  run.windows.push_back(window);
  window.number = 3;
  window.state = WindowState::kClosed;
  window.start = 0;  // its times are unknown
  window.losses = {};
  run.windows.push_back(window);
  run.windows_without_times = 1;
  run.losses_outside.activity_records = 1;
  run.overhead.open = 12'000'000;
  run.overhead.gate_holds = 4;
  run.name_overflows = 3;
  run.iteration_records_lost = 8;
  run.iteration_signs_lost = 10;
  run.busy_records_late = 9;
  run.graph_nodes_lost = 11;
  run.graph_kernels_without_call = 12;
  run.graph_launches_without_records = 17;
  run.allocations_not_held = 13;
  run.memory_lines_lost = 2;
  run.unknown_frees = 14;
  run.overhead.device_readings = 15;
  const std::vector<std::string> files{"cuda_gpu_kern_sum.csv"};
  const std::vector<std::string> errors{"cannot write"};

  const std::string text = run_json_text(run, files, errors);
  CHECK(text == nlohmann::ordered_json::parse(text).dump(2) + "\n");
  const auto json = nlohmann::json::parse(text);
  CHECK(json["libinject"] == "0.1.0");
  CHECK(json["state"] == "closed");
  CHECK(json["command_line"] == nlohmann::json({"python", "train.py", "--lr=0.1"}));
  CHECK(json["host"] == "node7");
  CHECK(json["pid"] == 4242);
  CHECK(json["rank"] == "3");
  CHECK(json["job"] ==
        nlohmann::json::parse(R"({"launcher": "torchrun", "id": "a \"job\"", "rank": 3, "world_size": 4,
      "local_rank": 1, "local_size": null, "node": null, "nodes": 2})"));
  CHECK(json["time_zero"]["utc"] == "2026-07-21T01:27:51.426118694Z");
  CHECK(json["time_zero"]["utc_ns"] == 1'784'597'271'426'118'694u);
  CHECK(json["time_zero"]["clock_monotonic_ns"] == 1000);
  CHECK(json["versions"]["driver"] == "580.159");
  CHECK(json["options"]["INJECT_WINDOW"] == "api");
  CHECK(json["hooks_left_out_of_the_build"][0] == "nccl");
  CHECK(json["devices"][0]["name"] == "NVIDIA H200");
  CHECK(json["devices"][0]["compute_capability"] == "9.0");
  CHECK(json["devices"][0]["multiprocessors"] == 132);
  const std::map<std::string, int> limits{{"warp_size", 32},
                                          {"threads_per_block", 1024},
                                          {"threads_per_multiprocessor", 2048},
                                          {"blocks_per_multiprocessor", 32},
                                          {"registers_per_block", 65536},
                                          {"registers_per_multiprocessor", 65537},
                                          {"shared_bytes_per_block", 49152},
                                          {"shared_bytes_per_block_optin", 232448},
                                          {"shared_bytes_per_multiprocessor", 233472},
                                          {"reserved_shared_bytes_per_block", 1024}};
  for (const auto& [name, value] : limits) {
    INFO(name);
    CHECK(json["devices"][0][name] == value);
  }
  CHECK(json["threads"].size() == 1);
  CHECK(json["threads"][0]["tid"] == 4242);
  CHECK(json["windows"].size() == 3);
  CHECK(json["windows"][0]["state"] == "closed");
  CHECK(json["windows"][0]["start_ns"] == 2000);
  CHECK(json["windows"][0]["end_ns"] == 8000);
  CHECK(json["windows"][0]["duration_ns"] == 6000);
  CHECK(json["windows"][0]["lost"]["activity_records"] == 7);
  CHECK(json["windows"][1]["state"] == "open");
  CHECK_FALSE(json["windows"][1].contains("end_ns"));
  CHECK(json["lost"]["activity_records"] == 15);
  CHECK(json["lost"]["names"] == 3);
  CHECK(json["lost"]["iteration_records"] == 8);
  CHECK(json["lost"]["iteration_signs"] == 10);
  CHECK(json["lost"]["busy_time_records"] == 9);
  CHECK(json["lost"]["graph_nodes"] == 11);
  CHECK(json["lost"]["window_times"] == 1);
  CHECK_FALSE(json["windows"][2].contains("start_ns"));
  CHECK_FALSE(json["windows"][2].contains("end_ns"));
  CHECK(json["lost"]["live_allocations"] == 13);
  CHECK(json["lost"]["memory_lines"] == 2);
  CHECK(json["unknown_frees"] == 14);
  CHECK(json["overhead"]["device_readings_ns"] == 15);
  CHECK(json["devices"][0]["pcie_generation"] == 4);
  CHECK(json["devices"][0]["pcie_width"] == 8);
  CHECK(json["devices"][0]["pcie_max_generation"] == 5);
  CHECK(json["devices"][0]["pcie_max_width"] == 16);
  CHECK(json["repeated_activity_records"] == 5);
  CHECK(json["graph_kernels_without_call"] == 12);
  CHECK(json["graph_launches_without_records"] == 17);
  CHECK(json["overhead"]["open_ns"] == 12'000'000);
  CHECK(json["overhead"]["gate_holds"] == 4);
  CHECK(json["messages"][0] == "another profiler holds CUPTI");
  CHECK(json["files"][0] == "cuda_gpu_kern_sum.csv");
  CHECK(json["write_errors"][0] == "cannot write");
}

TEST_CASE("run.json says how iterations were found", "[output]") {
  CHECK_FALSE(json_of({}).contains("iterations"));
  RunInfo run;
  run.iterations.emplace();
  run.iterations->source = "callbacks";
  run.iterations->report = "12 launches were seen";
  CHECK(json_of(run)["iterations"] ==
        nlohmann::json({{"source", "callbacks"}, {"found", false}, {"report", "12 launches were seen"}}));

  run.iterations->found = true;
  run.iterations->optimizer = run.iterations->by_shape = true;
  run.iterations->locked_after = 4;
  run.iterations->changes = 1;
  run.iterations->events = 479;
  run.iterations->begins_with = "a copy to the device";
  run.iterations->anchor = "adam(float*)";
  run.iterations->begun = 80;
  nlohmann::json expected = {{"source", "callbacks"},
                             {"found", true},
                             {"recognised_by", "optimizer"},
                             {"told_apart_by", "function and launch shape"},
                             {"certainty", "medium"},
                             {"locked_after", 4},
                             {"changes", 1},
                             {"events_per_iteration", 479},
                             {"begins_with", "a copy to the device"},
                             {"anchor", "adam(float*)"},
                             {"iterations_run", 80}};
  CHECK(json_of(run)["iterations"] == expected);
  run.iterations->by_shape = false;
  CHECK(json_of(run)["iterations"]["told_apart_by"] == "function");
  CHECK(json_of(run)["iterations"]["certainty"] == "low");

  run.iterations->steps = 3;
  CHECK(json_of(run)["iterations"]["recognised_by"] == "optimizer steps");
  CHECK(json_of(run)["iterations"]["optimizer_steps_per_iteration"] == 3);
  CHECK(json_of(run)["iterations"]["certainty"] == "high");
  run.iterations->doubtful = true;
  CHECK(json_of(run)["iterations"]["certainty"] == "medium");
  run.iterations->steps = 0;
  run.iterations->doubtful = false;

  run.iterations->by_shape = true;
  run.iteration_signs_lost = 1;
  CHECK(json_of(run)["iterations"]["certainty"] == "low");
  run.iterations->rough = true;
  CHECK(json_of(run)["iterations"]["certainty"] == "low");
  run.iterations->rough = run.iterations->optimizer = false;
  CHECK(json_of(run)["iterations"]["certainty"] == "low");
  CHECK(json_of(run)["iterations"]["recognised_by"] == "repetition");
}

TEST_CASE("run.json says how hardware metrics were sampled", "[output]") {
  RunInfo run;
  CHECK_FALSE(json_of(run).contains("metrics"));
  run.metrics.on = true;
  run.metrics.interval = 100'000;
  run.metrics.columns = {{"sm__cycles_active.avg", "SM Active (%)", Quantity::kSmActive}};
  run.metrics.left_out = {"L2 (%)"};
  run.metrics.devices = {0, 3};
  run.metrics.samples = 12;
  run.metrics.lost = 5;
  run.metrics.overflows = 2;
  run.metrics.rows_left_out = 7;
  run.metrics.start = 90;
  run.metrics.stop = 40;
  run.metrics.decode_cpu = 30;
  run.metrics.decode = {6, 17, 1, 2, 8192, 40, 3, 4096, 20, 11, 3, 9, 5};
  run.metrics.lost_by = {0, 1, 0, 4, 0, 0};
  auto json = json_of(run);
  CHECK(json["metrics"] ==
        nlohmann::json({{"interval_ns", 100'000},
                        {"columns", {{{"title", "SM Active (%)"}, {"name", "sm__cycles_active.avg"}}}},
                        {"left_out", {"L2 (%)"}},
                        {"devices", {0, 3}},
                        {"samples", 12},
                        {"overflows", 2},
                        {"start_ns", 90},
                        {"stop_ns", 40},
                        {"decode_cpu_ns", 30},
                        {"decode",
                         {{"calls", 6},
                          {"samples", 17},
                          {"full", 1},
                          {"emptied", 2},
                          {"buffer_bytes", 8192},
                          {"pause_ns", 40},
                          {"shortened", 3},
                          {"image_bytes", 4096},
                          {"image_samples", 20},
                          {"data_cpu_ns", 11},
                          {"times_cpu_ns", 3},
                          {"evaluate_cpu_ns", 9},
                          {"empty_cpu_ns", 5}}},
                        {"lost",
                         {{"incomplete", 0},
                          {"without_times", 1},
                          {"bad_times", 0},
                          {"not_evaluated", 4},
                          {"contradictory", 0},
                          {"queue_full", 0},
                          {"missing", 0}}}}));
  CHECK(json["lost"]["metric_samples"] == 5);
  CHECK(json["lost"]["metric_rows"] == 7);

  // The times of the first used and of the first lost sample, once there are any.
  run.metrics.first = {1010, 1020, 10, 20, 25};
  run.metrics.first_lost = {1030, 1030, 30, 30, 35};
  run.metrics.first_lost_by = MetricLoss::kMistimed;
  run.metrics.first_lost_error = "CUPTI error 999";
  json = json_of(run);
  nlohmann::json times = {{"cupti_start_ns", 1010},
                          {"cupti_end_ns", 1020},
                          {"clock_monotonic_start_ns", 10},
                          {"clock_monotonic_end_ns", 20},
                          {"read_clock_monotonic_ns", 25}};
  CHECK(json["metrics"]["first_sample"] == times);
  times = {{"reason", "bad_times"},        {"error", "CUPTI error 999"},     {"cupti_start_ns", 1030},
           {"cupti_end_ns", 1030},         {"clock_monotonic_start_ns", 30}, {"clock_monotonic_end_ns", 30},
           {"read_clock_monotonic_ns", 35}};
  CHECK(json["metrics"]["first_lost"] == times);
}

TEST_CASE("Bytes that are not UTF-8 do not break run.json", "[output]") {
  RunInfo run;
  run.command_line = {"\xff\xfe", std::string("nul\0byte", 8), "quote\" back\\slash \n\t\r\x1f"};
  run.host = "\xc3";
  run.threads = {{1, "\x80name"}};
  run.options = {{"INJECT_OUT", "\xed\xa0\x80"}};
  const auto json = json_of(run);
  CHECK(json["command_line"][0] == "\xef\xbf\xbd\xef\xbf\xbd");
  CHECK(json["command_line"][1] == std::string("nul\0byte", 8));
  CHECK(json["command_line"][2] == "quote\" back\\slash \n\t\r\x1f");
  CHECK(json["host"] == "\xef\xbf\xbd");
}

TEST_CASE("A short run.json has what was lost and which files there are, however long the rest is",
          "[output]") {
  RunInfo run;
  run.version = "1.2.3";
  run.state = "closed";
  run.pid = 7;
  run.windows_not_listed = 1;
  run.windows.resize(500);
  for (WindowInfo& window : run.windows) window.losses.host_records = 2;
  run.losses_outside.host_records = 4;
  run.threads.resize(500, ThreadInfo{1, "worker"});
  run.command_line = {"python", "train.py"};
  const std::vector<std::string> files{"a.csv", "b.csv"};
  const std::vector<std::string> stale{"b.csv"};
  const std::vector<std::string> errors{"cannot write " + std::string(30'000, 'b'), "cannot write c"};
  constexpr std::size_t kMax = std::size_t{64} << 10;
  const bool long_command = GENERATE(false, true);
  if (long_command) {
    run.command_line.emplace_back(100'000, '\1');
    run.rank = std::string(10'000, '\1');
    run.metrics.on = true;
    run.metrics.lost = 3;
  }
  const std::string text = short_run_json_text(run, files, errors, {}, stale, kMax);
  CHECK(text.size() <= (long_command ? 20'000 : kMax));
  const auto json = nlohmann::json::parse(text);
  CHECK((json["libinject"] == "1.2.3" && json["state"] == "closed" && json["pid"] == 7));
  CHECK((json["windows"].empty() && json["threads"].empty() && json["windows_not_listed"] == 501));
  CHECK((json["files"] == files && json["stale_files"] == stale));
  CHECK(json["lost"]["host_records"] == 1004);
  CHECK(json["lost"]["metric_samples"] == run.metrics.lost);
  CHECK(json["command_line"].empty() == long_command);
  CHECK(json["write_errors"].size() == (long_command ? 2 : 3));
  CHECK(json["write_errors"].back() == "run.json has no room for its windows and threads");
}
