// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/chrome_trace.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "libinject/record/memory_use.h"
#include "tests/unit/devices.h"
#include "tests/unit/gunzip.h"
#include "tests/unit/stats_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;
using nlohmann::json;

namespace {

constexpr std::uint64_t kPid = 4242;

/// A timeline of StatsRun's events, in a folder of its own.
struct Timeline {
  TemporaryFolder folder;
  StatsRun run;
  std::vector<DeviceInfo> devices{h200(0), h200(1)};
  ChromeTrace trace;

  explicit Timeline(ChromeTrace::Limits limits = {}, int pid = kPid, const std::string& rank = {},
                    const std::string& size = {})
      : trace(context(pid, rank, size), limits) {
    REQUIRE(trace.open(folder.path()));
  }

  ChromeTrace::Context context(int pid, const std::string& rank, const std::string& size) {
    ChromeTrace::Context context;
    context.names = &run.names;
    context.ranges = &run.tree;
    context.thread = [](std::uint32_t thread) {
      return ThreadInfo{5000 + thread, "worker " + std::to_string(thread)};
    };
    context.devices = [this] { return std::span<const DeviceInfo>(devices); };
    context.program = "train";
    context.pid = pid;
    context.base = 500;
    context.base_utc = 1'700'000'000'123'456'789;
    context.rank = rank;
    context.world_size = size;
    return context;
  }

  std::string text(std::span<const WindowInfo> windows = {}) {
    REQUIRE(trace.complete(windows));
    return gunzip(folder.read(ChromeTrace::kFileName));
  }
  json parsed(std::span<const WindowInfo> windows = {}) { return json::parse(text(windows)); }
  /// Events of a phase, excluding row names.
  std::vector<json> events(const std::string& phase, std::span<const WindowInfo> windows = {}) {
    std::vector<json> found;
    const json whole = parsed(windows);
    for (const json& event : whole["traceEvents"]) {
      if (event["ph"] == phase) found.push_back(event);
    }
    return found;
  }

  KernelEvent kernel(std::uint32_t correlation, std::string_view name = "burn(float*, int)") {
    KernelEvent event = run.kernel(name, 75'200);
    event.correlation = correlation;
    event.grid = {264, 1, 1};
    event.block = {256, 1, 1};
    event.registers_per_thread = 36;
    event.static_shared_bytes = 1024;
    event.dynamic_shared_bytes = 512;
    event.context = 1;
    event.stream = 7;
    event.launch.host_begin = 700;
    event.launch.host_end = 900;
    event.launch.thread = 3;
    return event;
  }
};

}  // namespace

TEST_CASE("A kernel, its call and the arrow between them", "[output]") {
  Timeline timeline;
  CallEvent call = call_event("cudaLaunchKernel", 200);
  call.begin = 700;
  call.end = 900;
  call.thread = 3;
  call.correlation = 12;
  timeline.trace.add(call, 1);
  timeline.trace.add(timeline.kernel(12), 1);
  const std::vector<json> spans = timeline.events("X");
  REQUIRE(spans.size() == 2);
  CHECK(spans[0] ==
        json::parse(R"json({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242,
      "tid": 5003, "ts": 0.2, "dur": 0.2, "args": {"correlation": 12}})json"));
  CHECK(spans[1] ==
        json::parse(R"json({"ph": "X", "cat": "kernel", "name": "burn(float*, int)", "pid": 0, "tid": 7,
      "ts": 0.5, "dur": 75.2, "args": {
    "device" : 0, "context" : 1, "stream" : 7, "correlation" : 12, "registers per thread" : 36,
        "shared memory" : 1536, "grid" : [ 264, 1, 1 ],
                                         "block" : [ 256, 1, 1 ],
                                                   "blocks per SM" : 2.0,
                                                   "warps per SM" : 16.0,
                                                   "est. achieved occupancy %" : 25}
})json"));
  CHECK(timeline.events("s") ==
        std::vector<json>{
            json::parse(R"json({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 12, "pid": 4242, "tid": 5003,
      "ts": 0.2})json")});
  CHECK(timeline.events("f") ==
        std::vector<json>{json::parse(
            R"json({"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 12, "pid": 0, "tid": 7, "ts": 0.5,
      "bp": "e"})json")});
}

TEST_CASE("Copies and memsets have Kineto's names", "[output]") {
  Timeline timeline;
  TransferEvent copy = copy_event(1, 4000, 2000);
  copy.correlation = 13;
  copy.source_memory = 1;
  copy.target_memory = 3;
  copy.device = 1;
  copy.stream = 13;
  copy.start = 600;
  copy.end = 2600;
  timeline.trace.add(copy, 1);
  TransferEvent peer = copy_event(10, 1000, 0);
  peer.peer = true;
  peer.device = 1;
  peer.target_device = 1;
  peer.source_memory = peer.target_memory = 3;
  timeline.trace.add(peer, 1);
  TransferEvent memset = memset_event(262'144, 0);
  memset.target_memory = 3;
  timeline.trace.add(memset, 1);
  const std::vector<json> spans = timeline.events("X");
  REQUIRE(spans.size() == 3);
  CHECK(spans[0] ==
        json::parse(
            R"json({"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 1,
      "tid": 13, "ts": 0.1, "dur": 2.0, "args": {
    "device" : 1, "context" : 0, "stream" : 13, "correlation" : 13, "bytes" : 4000,
        "memory bandwidth (GB/s)" : 2.0}
})json"));
  CHECK(spans[1]["name"] == "Memcpy PtoP (Device -> Device)");
  CHECK(spans[1]["args"]["fromDevice"] == 0);
  CHECK(spans[1]["args"]["toDevice"] == 1);
  CHECK_FALSE(spans[1]["args"].contains("memory bandwidth (GB/s)"));
  CHECK(spans[2]["name"] == "Memset (Device)");
  CHECK(spans[2]["cat"] == "gpu_memset");
  // The calls that launched them are unknown.
  CHECK(timeline.events("s").empty());
}

TEST_CASE("Library calls are operations, and what they launch names them", "[output]") {
  Timeline timeline;
  CallEvent gemm = call_event("cublasGemmEx", 400);
  gemm.call = 77;
  gemm.status = 7;
  gemm.thread = 2;
  timeline.trace.add(gemm, 1);
  CallEvent inside = call_event("cudaMalloc", 10, chain_of({"cublasGemmEx"}));
  inside.owner = 77;
  inside.thread = 2;
  timeline.trace.add(inside, 1);
  KernelEvent kernel = timeline.kernel(5);
  kernel.launch.owner = 77;
  kernel.launch.thread = 2;
  timeline.trace.add(kernel, 1);
  timeline.trace.add(call_event("cuptiSubscribe", 10), 1);
  const std::vector<json> spans = timeline.events("X");
  REQUIRE(spans.size() == 3);
  CHECK(spans[0]["cat"] == "cpu_op");
  CHECK(spans[0]["args"]["status"] == 7);
  const json id = spans[0]["args"]["External id"];
  CHECK(id == (std::uint64_t{2} << 32) + 77);
  CHECK(spans[1]["args"]["External id"] == id);
  CHECK(spans[2]["args"]["External id"] == id);
}

TEST_CASE("What nvcc's code calls has the name that the source has", "[output]") {
  if (find_function("__cudaLaunchKernel") == kNoFunction) return;
  Timeline timeline;
  timeline.trace.add(call_event("__cudaLaunchKernel", 400), 1);
  CHECK(timeline.events("X").at(0)["name"] == "cudaLaunchKernel");
}

TEST_CASE("Correlation ids stay apart after CUPTI was attached anew", "[output]") {
  Timeline timeline;
  timeline.trace.add(timeline.kernel(1), 4);
  timeline.trace.add(timeline.kernel(1), 5);
  std::set<std::uint64_t> ids;
  for (const json& event : timeline.events("s")) ids.insert(event["id"].get<std::uint64_t>());
  CHECK(ids == std::set<std::uint64_t>{1, (std::uint64_t{1} << 32) + 1});
  CHECK(timeline.events("X").at(1)["args"]["correlation"] == (std::uint64_t{1} << 32) + 1);
}

TEST_CASE("A launch of many kernels has one arrow", "[output]") {
  Timeline timeline;
  for (int i = 0; i < 3; ++i) timeline.trace.add(timeline.kernel(8), 1);
  CHECK(timeline.events("X").size() == 3);
  CHECK(timeline.events("s").size() == 1);
  CHECK(timeline.events("f").size() == 1);
}

TEST_CASE("What overlaps on a stream has a row beside it, and is the stream's all the same", "[output]") {
  Timeline timeline;
  KernelEvent first = timeline.kernel(1);
  timeline.trace.add(first, 1);
  KernelEvent early = timeline.kernel(2);  // begins before its predecessor has ended
  early.start = first.end - 100;
  early.end = early.start + 5000;
  timeline.trace.add(early, 1);
  TransferEvent copy = copy_event(100, 4000, first.start + 10);
  copy.correlation = 3;
  copy.stream = first.stream;
  copy.launch = first.launch;
  timeline.trace.add(copy, 1);
  TransferEvent memset = memset_event(64, early.start);
  memset.stream = first.stream;
  timeline.trace.add(memset, 1);
  KernelEvent next = timeline.kernel(4);
  next.start = early.end;
  next.end = next.start + 100;
  timeline.trace.add(next, 1);
  KernelEvent other = early;  // on another stream
  other.correlation = 5;
  other.stream = 13;
  timeline.trace.add(other, 1);
  constexpr std::uint64_t kBeside = StreamRows::kFirstBeside;
  const std::vector<std::uint64_t> expected{7, kBeside, kBeside, kBeside + 1, 7, 13};
  std::vector<std::uint64_t> rows;
  std::map<std::uint64_t, json> spans;
  for (const json& span : timeline.events("X")) {
    rows.push_back(span["tid"].get<std::uint64_t>());
    CHECK(span["args"]["stream"] == (rows.size() == 6 ? 13 : 7));
    spans[span["args"]["correlation"].get<std::uint64_t>()] = span;
  }
  CHECK(rows == expected);
  std::size_t arrows = 0;
  for (const json& end : timeline.events("f")) {
    const json& span = spans.at(end["id"].get<std::uint64_t>());
    CHECK(std::pair(end["tid"], end["ts"]) == std::pair(span["tid"], span["ts"]));
    ++arrows;
  }
  CHECK(arrows == 5);
  std::map<std::uint64_t, json> names;
  std::map<std::uint64_t, json> places;
  for (const json& event : timeline.events("M")) {
    if (event["pid"] != 0) continue;
    if (event["name"] == "thread_name") names[event["tid"].get<std::uint64_t>()] = event["args"]["name"];
    if (event["name"] == "thread_sort_index")
      places[event["tid"].get<std::uint64_t>()] = event["args"]["sort_index"];
  }
  CHECK(names == std::map<std::uint64_t, json>{{7, "stream 7"},
                                               {13, "stream 13"},
                                               {kBeside, "stream 7 (overlapping)"},
                                               {kBeside + 1, "stream 7 (overlapping 2)"}});
  CHECK(places == std::map<std::uint64_t, json>{{7, 7}, {13, 13}, {kBeside, 7}, {kBeside + 1, 7}});
}

TEST_CASE("Ranges nest on their thread's row, or have their own", "[output]") {
  Timeline timeline;
  RangeEvent event;
  event.thread = 1;
  event.node = timeline.run.range(0, ":step");
  event.begin = 1000;
  event.end = 3000;
  timeline.trace.add(event);
  event.node = timeline.run.range(0, "domain:load", RangeStyle::kStartEnd);
  timeline.trace.add(event);
  CHECK(timeline.events("X") == std::vector<json>{json::parse(
                                    R"json({"ph": "X", "cat": "user_annotation", "name": "step", "pid": 4242,
      "tid": 5001, "ts": 0.5, "dur": 2.0})json")});
  CHECK(timeline.events("b").at(0)["name"] == "domain:load");
  CHECK(timeline.events("b").at(0)["ts"] == 0.5);
  CHECK(timeline.events("e").at(0)["ts"] == 2.5);
  CHECK(timeline.events("b").at(0)["id"] == timeline.events("e").at(0)["id"]);
}

TEST_CASE("Ranges that were open before the window do not begin at the same time", "[output]") {
  Timeline timeline;
  const std::uint32_t epoch = timeline.run.range(0, ":epoch");
  RangeEvent event;
  event.begin = 1000;
  event.clipped = true;
  event.node = timeline.run.range(timeline.run.range(epoch, ":step"), ":forward");
  event.end = 1001;
  timeline.trace.add(event);
  event.node = timeline.run.range(epoch, ":step");
  event.end = 2000;
  timeline.trace.add(event);
  event.node = epoch;
  event.end = 3000;
  timeline.trace.add(event);
  std::vector<std::string> found;
  for (const json& span : timeline.events("X"))
    found.push_back(span["name"].get<std::string>() + " " + span["ts"].dump() + " " + span["dur"].dump());
  CHECK(found == std::vector<std::string>{"forward 0.501 0.0", "step 0.501 0.999", "epoch 0.5 2.0"});
}

TEST_CASE("Iterations reach from boundary to boundary, inside windows", "[output]") {
  Timeline timeline;
  timeline.trace.add(IterationBoundary{4, 1000, 0, 0, IterationLabel::kIteration});  // before the window
  timeline.trace.add(IterationBoundary{5, 2000, 1, 0, IterationLabel::kIteration});
  timeline.trace.add(IterationBoundary{6, 3500, 1, 1, IterationLabel::kIteration});
  timeline.trace.add(IterationBoundary{7, 4000, 1, 1, IterationLabel::kValidation});
  timeline.trace.add(IterationBoundary{7, 6000, 0, 1, IterationLabel::kIteration});
  timeline.trace.add(IterationBoundary{8, 9000, 2, 0, IterationLabel::kIteration});
  std::vector<std::string> found;
  for (const json& event : timeline.events("X"))
    found.push_back(event["name"].get<std::string>() + " " + event["ts"].dump() + " " + event["dur"].dump());
  CHECK(found == std::vector<std::string>{"ProfilerStep#5 1.5 1.499", "ProfilerStep#6 3.0 0.499",
                                          "validation 3.5 1.999"});
}

TEST_CASE("Samples of hardware metrics are counters of their device", "[output]") {
  Timeline timeline;
  const std::vector<MetricInfo> columns{{"a", "SM Active (%)", Quantity::kUser},
                                        {"b", "never \"measured\"", Quantity::kUser},
                                        {"c", "IPC", Quantity::kUser}};
  MetricSample sample;
  sample.start = 2500;
  sample.device = 1;
  sample.values[0] = 12.5f;
  sample.values[1] = std::numeric_limits<float>::quiet_NaN();
  sample.values[2] = std::numeric_limits<float>::infinity();
  timeline.trace.add(sample, columns);
  CHECK(timeline.events("C") == std::vector<json>{json::parse(
                                    R"json({"ph": "C", "name": "SM Active (%)", "pid": 1, "ts": 2.0,
      "args": {
    "value" : 12.5}})json")});
}

TEST_CASE("Rows, windows and devices are named", "[output]") {
  Timeline timeline({}, kPid, "3", "8");
  timeline.trace.add(timeline.kernel(1), 1);
  std::vector<WindowInfo> windows(2);
  windows[0].number = 1;
  windows[0].reason = "nvtx:\"x\"";
  windows[0].start = 600;
  windows[0].end = 1600;
  windows[1].number = 2;  // open
  const json whole = timeline.parsed(windows);
  CHECK(whole["schemaVersion"] == 1);
  CHECK(whole["distributedInfo"] == json::parse(R"json({"rank": 3, "world_size": 8})json"));
  CHECK(whole["baseTimeNanoseconds"] == 1'700'000'000'123'456'789);
  REQUIRE(whole["deviceProperties"].size() == 2);
  CHECK(whole["deviceProperties"][1]["name"] == "NVIDIA H200");
  CHECK(whole["deviceProperties"][1]["numSms"] == 132);
  std::map<std::string, json> rows;
  std::vector<json> spans;
  for (const json& event : whole["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "process_name")
      rows[event["pid"].dump()] = event["args"]["name"];
    if (event["ph"] == "M" && event["name"] == "thread_name")
      rows[event["pid"].dump() + "/" + event["tid"].dump()] = event["args"]["name"];
    if (event.value("cat", "") == "Trace") spans.push_back(event);
  }
  CHECK(rows == std::map<std::string, json>{{"0", "NVIDIA H200"},
                                            {"0/7", "stream 7"},
                                            {"4242", "train"},
                                            {"4242/5003", "thread 5003 (worker 3)"},
                                            {"4242/4194305", "windows"}});
  REQUIRE(spans.size() == 1);
  CHECK(spans[0]["name"] == "window 1 (nvtx:\"x\")");
  CHECK(spans[0]["dur"] == 1.0);
  // What HolisticTraceAnalysis looks for, on a line before the events.
  const std::string text = timeline.text();
  CHECK(text.find("\"rank\": 3") < text.find("traceEvents"));
}

TEST_CASE("Devices that are not known in time come at the end, each time", "[output]") {
  Timeline timeline;
  const std::vector<DeviceInfo> known = std::exchange(timeline.devices, {});
  timeline.trace.add(timeline.kernel(1), 1);
  CHECK_FALSE(timeline.parsed().contains("deviceProperties"));
  timeline.devices = known;
  for (int i = 0; i < 2; ++i) CHECK(timeline.parsed()["deviceProperties"].size() == 2);
  // The kernel's next launch gives its occupancy.
  timeline.trace.add(timeline.kernel(2), 1);
  CHECK_FALSE(timeline.events("X").at(0)["args"].contains("blocks per SM"));
  CHECK(timeline.events("X").at(1)["args"]["blocks per SM"] == 2.0);
}

TEST_CASE("Other ranks and process ids", "[output]") {
  {
    Timeline timeline;
    CHECK(timeline.parsed()["distributedInfo"] == json::parse(R"json({"rank": 0, "world_size": 1})json"));
  }
  {
    Timeline timeline({}, kPid, "0007");
    CHECK(timeline.parsed()["distributedInfo"] == json::parse(R"json({"rank": 7})json"));
  }
  for (const char* rank : {"-1", "12345678901", "one", "1,\"x\":2"}) {
    Timeline timeline({}, kPid, rank, rank);
    CHECK(timeline.parsed()["distributedInfo"] == json::parse(R"json({"rank": 0})json"));
  }
  // A process id that could be a device's number.
  Timeline timeline({}, 1);
  timeline.trace.add(call_event("cudaMalloc", 10), 1);
  CHECK(timeline.events("X").at(0)["pid"] == (1u << 22) + 1);
}

TEST_CASE("Names are escaped, whatever they are", "[output]") {
  Timeline timeline;
  const std::string control("a\"b\\c\n\t\x01\x7f/</script>");
  const std::string broken = "\xff\xc3(\xe2\x82x\xed\xa0\x80";
  const std::string longest(20'000, '\x02');
  for (const std::string& name : {control, broken, longest, std::string()})
    timeline.trace.add(timeline.kernel(1, name), 1);
  const std::vector<json> spans = timeline.events("X");
  REQUIRE(spans.size() == 4);
  CHECK(spans[0]["name"] == control);
  CHECK(spans[1]["name"].get<std::string>().find("\xef\xbf\xbd(") != std::string::npos);
  CHECK(spans[2]["name"].get<std::string>().size() <= 16 * 1024);
  CHECK(spans[3]["name"] == "");
  // Each event is on its own line.
  const std::string text = timeline.text();
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = text.find("\n{\"ph\":", at)) != std::string::npos; ++at) ++lines;
  CHECK(lines == timeline.parsed()["traceEvents"].size());
}

TEST_CASE("The timeline is bounded, and stays whole", "[output]") {
  SECTION("in events") {
    Timeline timeline({10, 1u << 30});
    for (std::uint32_t i = 1; i <= 5; ++i) timeline.trace.add(timeline.kernel(i), 1);
    // Three events each; there is room for one more, of one call.
    timeline.trace.add(call_event("cudaMalloc", 1), 1);
    timeline.trace.add(call_event("cudaMalloc", 1), 1);
    CHECK(timeline.trace.left_out() == 3);
    CHECK(timeline.events("X").size() == 4);
    CHECK(timeline.events("f").size() == 3);
  }
  SECTION("in bytes") {
    Timeline timeline({~std::uint64_t{0}, 100'000});
    std::uint32_t added = 0;
    for (; timeline.trace.left_out() == 0 && added < 1'000'000; ++added)
      timeline.trace.add(timeline.kernel(added, "kernel " + std::to_string(added % 5000 * 7919)), 1);
    CHECK(timeline.trace.left_out() == 1);
    CHECK(timeline.events("X").size() == added - 1);
    const std::size_t size = timeline.folder.read(ChromeTrace::kFileName).size();
    CHECK(size > 100'000);
    CHECK(size < 300'000);
  }
}

TEST_CASE("Launch shapes beyond those that are kept are shown all the same", "[output]") {
  Timeline timeline;
  for (std::uint32_t turn = 0; turn < 2; ++turn) {
    for (std::uint32_t i = 0; i < 9000; ++i) {
      KernelEvent kernel = timeline.kernel(turn * 9000 + i + 1, "k" + std::to_string(i % 7));
      kernel.grid[0] = static_cast<std::int32_t>(i + 1);
      timeline.trace.add(kernel, 1);
    }
  }
  std::size_t right = 0;
  std::uint32_t i = 0;
  for (const json& event : timeline.events("X")) {
    if (event["args"]["grid"][0] == i % 9000 + 1 && event["name"] == "k" + std::to_string(i % 9000 % 7))
      ++right;
    ++i;
  }
  CHECK(right == 18'000);
}

TEST_CASE("Damaged events do not harm the timeline", "[output]") {
  Timeline timeline;
  KernelEvent kernel = timeline.kernel(1);
  kernel.name = 0xfffffff0;
  kernel.device = kernel.stream = kernel.launch.thread = 0xfffffff0;
  kernel.end = 0;
  kernel.grid = {-1, 2'147'483'647, 2'147'483'647};
  kernel.block = {-1, 0, 2'147'483'647};
  timeline.trace.add(kernel, 1);
  TransferEvent copy = copy_event(77, ~std::uint64_t{0}, 1);
  copy.source_memory = 99;
  timeline.trace.add(copy, 0);
  CallEvent call = call_event("cudaMalloc", 1);
  call.thread = 0xfffffff0;
  call.begin = 0;
  timeline.trace.add(call, 0xffff);
  RangeEvent range;
  range.node = 0xfffffff0;
  timeline.trace.add(range);
  timeline.trace.add(IterationBoundary{1, ~Nanoseconds{0}, 1, 1, {}});
  timeline.trace.add(IterationBoundary{2, 0, 1, 1, {}});
  MetricSample sample;
  sample.device = 0xfffffff0;
  timeline.trace.add(sample, {});
  CHECK(timeline.events("X").size() == 4);
}

TEST_CASE("A timeline that can't be written says so once and counts what it leaves out", "[output]") {
  StatsRun run;
  ChromeTrace::Context context;
  context.names = &run.names;
  context.ranges = &run.tree;
  ChromeTrace trace(context);
  CHECK_FALSE(trace.open("/nonexistent"));
  CHECK(trace.error().find("cannot create /nonexistent/.trace.json.gz.new") == 0);
  trace.add(run.kernel("k", 1), 1);
  CHECK(trace.left_out() == 1);
  CHECK_FALSE(trace.complete({}));
}

namespace {

/// "name pid ts value" of each counter event, in file order.
std::vector<std::string> counters(Timeline& timeline) {
  std::vector<std::string> found;
  for (const json& event : timeline.events("C")) {
    found.push_back(event["name"].get<std::string>() + " " + std::to_string(event["pid"].get<int>()) + " " +
                    event["ts"].dump() + " " + event["args"]["value"].dump());
  }
  return found;
}

WindowInfo ended_window(std::uint32_t number, Nanoseconds start, Nanoseconds end) {
  WindowInfo window;
  window.number = number;
  window.start = start;
  window.end = end;
  return window;
}

}  // namespace

TEST_CASE("Power and clocks are counters in windows, each reading once", "[output]") {
  Timeline timeline;
  RunInfo run;
  DeviceReadings& device = run.energy.devices.emplace_back();
  device.device = 1;
  for (const Nanoseconds time : {9'500u, 10'500u, 20'500u, 30'500u, 40'500u}) {
    ClockReading reading;
    reading.time = time;
    reading.milliwatts = static_cast<std::uint32_t>(time);
    device.clocks.push_back(reading);
  }
  device.clocks[1].sm_mhz = 1980;
  device.clocks[1].memory_mhz = 3201;
  device.clocks[1].temperature = 41;
  std::vector<WindowInfo> windows{ended_window(1, 10'500, 20'500), ended_window(2, 30'000, 0)};
  timeline.trace.add_readings(run, windows);
  timeline.trace.add_readings(run, windows);
  CHECK(counters(timeline) ==
        std::vector<std::string>{"power (W) 1 10.0 10.5", "SM clock (MHz) 1 10.0 1980.0",
                                 "memory clock (MHz) 1 10.0 3201.0", "temperature (°C) 1 10.0 41.0",
                                 "power (W) 1 20.0 20.5"});
  // The GPU is named although nothing ran on it.
  CHECK(timeline.text().find(R"("name":"process_name","pid":1,)") != std::string::npos);
  windows[1].end = 40'000;
  timeline.trace.add_readings(run, windows);
  CHECK(counters(timeline).size() == 6);
  CHECK(counters(timeline).back() == "power (W) 1 30.0 30.5");
}

TEST_CASE("Memory over time is a counter, from what was there as the window began", "[output]") {
  constexpr std::uint64_t kMb = 1'000'000;
  const auto change = [](Nanoseconds time, std::uint64_t bytes) {
    return MemoryInterval{time, time, bytes, bytes, time, bytes, 0};
  };
  // Changes at 6, 11 and 12 us were merged.
  const std::vector<MemoryInterval> merged{{6'500, 12'500, 2 * kMb, 9 * kMb, 11'500, 4 * kMb, 0}};
  Timeline timeline;
  RunInfo run;
  run.memory_lines = {
      {0, MemoryLine::Of::kAllocated, {change(1'500, kMb), change(5'500, 3 * kMb), change(20'500, 5 * kMb)}},
      {MemoryUse::kHost, MemoryLine::Of::kAllocated, {change(15'500, kMb)}},
      {MemoryUse::kOtherDevice, MemoryLine::Of::kAllocated, {change(15'500, kMb)}}};
  run.energy.memory = {{1, MemoryLine::Of::kInUse, merged}};
  timeline.trace.add_readings(run,
                              std::vector{ended_window(1, 10'500, 20'000), ended_window(2, 20'000, 30'000)});
  CHECK(counters(timeline) ==
        std::vector<std::string>{
            "memory allocated (MB) 0 10.0 3.0", "pinned memory allocated (MB) 4242 15.0 1.0",
            "memory in use (MB) 1 11.0 9.0", "memory in use (MB) 1 12.0 4.0",
            "memory allocated (MB) 0 19.5 3.0", "memory allocated (MB) 0 20.0 5.0",
            "pinned memory allocated (MB) 4242 19.5 1.0", "memory in use (MB) 1 19.5 4.0"});
}

TEST_CASE("A reading of memory in use says nothing of a window much later; what was allocated stays so",
          "[output]") {
  constexpr Nanoseconds kStart = 5 * kSecond;
  for (const Nanoseconds before : {kSecond, kSecond + 1}) {
    Timeline timeline;
    RunInfo run;
    const MemoryInterval interval{kStart - before, kStart - before, 1'000'000, 1'000'000,
                                  kStart - before, 1'000'000,       0};
    run.memory_lines = {{0, MemoryLine::Of::kAllocated, {interval}}};
    run.energy.memory = {{0, MemoryLine::Of::kInUse, {interval}}};
    timeline.trace.add_readings(run, std::vector{ended_window(1, kStart, kStart + 1'000)});
    CHECK(counters(timeline).size() == (before == kSecond ? 2 : 1));
    CHECK(counters(timeline).front().starts_with("memory allocated (MB) 0 "));
  }
}

TEST_CASE("A level that was over at the moment of the highest is told as well", "[output]") {
  Timeline timeline;
  RunInfo run;
  run.memory_lines = {
      {0, MemoryLine::Of::kAllocated, {{1'500, 1'500, 2'000'000, 9'000'000, 1'500, 2'000'000, 0}}}};
  timeline.trace.add_readings(run, std::vector{ended_window(1, 1'000, 9'000)});
  CHECK(counters(timeline) ==
        std::vector<std::string>{"memory allocated (MB) 0 1.0 9.0", "memory allocated (MB) 0 1.0 2.0"});
}

TEST_CASE("Readings for which there is no room are counted", "[output]") {
  Timeline timeline({2, 1 << 20});
  RunInfo run;
  run.memory_lines = {{0, MemoryLine::Of::kAllocated, {}}};
  for (Nanoseconds time = 1'000; time < 6'000; time += 1'000)
    run.memory_lines[0].intervals.push_back({time, time, time, time, time, time, 0});
  timeline.trace.add_readings(run, std::vector{ended_window(1, 900, 10'000)});
  CHECK(counters(timeline).size() == 2);
  CHECK(timeline.trace.left_out() == 3);
}
