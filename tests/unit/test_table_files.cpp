// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/table_files.h"
#include "libinject/record/memory_use.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/unit/devices.h"
#include "tests/unit/stats_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

std::string text_of(std::string_view file, const StatsRun& run, const RunInfo& info = {}) {
  for (const TableFile& table : table_files()) {
    if (table.name == file) return table_text(table, build_report(run.statistics, info));
  }
  FAIL("no table " << file);
  return {};
}

std::string rows_of(std::string_view file, const StatsRun& run, const RunInfo& info = {}) {
  const std::string text = text_of(file, run, info);
  return text.substr(text.find('\n') + 1);
}

RunInfo some_run() {
  RunInfo info;
  info.pid = 77;
  info.base = 1000;
  info.threads = {{77, "python"}, {78, "pt_autograd_0"}};
  WindowInfo first;
  first.number = 1;
  first.reason = "api";
  first.state = WindowState::kClosed;
  first.start = 3000;
  first.end = 9000;
  first.losses.host_records = 5;
  first.losses.missing_records = 2;
  WindowInfo second;
  second.number = 2;
  second.reason = "time:1s+1s/2s";
  second.start = 20'000;
  info.windows = {first, second};
  info.memory = {{0, AllocationApi::kMalloc, {}}};
  return info;
}

/// The number of tables of a run without metrics.
std::size_t wanted_files() {
  const StatsRun run;
  const RunInfo info;
  const Report report = build_report(run.statistics, info);
  return static_cast<std::size_t>(
      std::count_if(table_files().begin(), table_files().end(),
                    [&report](const TableFile& table) { return is_wanted(table, report); }));
}

}  // namespace

TEST_CASE("Names and headers of the tables", "[output]") {
  // Literal headers, because other people's parsers look for them.
  const std::map<std::string_view, std::string_view> expected{
      {"cuda_gpu_kern_sum.csv",
       "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"},
      {"cuda_gpu_kern_gb_sum.csv",
       "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev "
       "(ns),GridXYZ,BlockXYZ,Name"},
      {"cuda_api_sum.csv",
       "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"},
      {"cuda_gpu_mem_time_sum.csv",
       "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation"},
      {"cuda_gpu_mem_size_sum.csv",
       "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation"},
      {"nvtx_sum.csv",
       "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range"},
      {"nvtx_kern_sum.csv",
       "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (ns),Avg (ns),Med (ns),Min (ns),Max "
       "(ns),StdDev "
       "(ns),Kernel Name"},
  };
  std::size_t found = 0;
  for (const TableFile& table : table_files()) {
    const auto entry = expected.find(table.name);
    if (entry == expected.end()) continue;
    ++found;
    const StatsRun run;
    const RunInfo info;
    CHECK(header_of(table, build_report(run.statistics, info)) == entry->second);
  }
  CHECK(found == expected.size());
  CHECK(wanted_files() == 25);
}

TEST_CASE("Every row has as many fields as its header, also when it has nothing to say", "[output]") {
  StatsRun run;
  if (GENERATE(false, true)) {
    run.statistics.set_metrics(
        {{"a", "SM Active (%)", Quantity::kSmActive}, {"b", "FMA (%)", Quantity::kFma}});
  }
  const std::uint32_t step = run.range(0, "step");
  for (std::uint32_t i = 0; i < Statistics::kMaxRows + 10; ++i) {
    KernelEvent event = run.kernel("k" + std::to_string(i), 10);
    event.launch.range = step;
    event.launch.window = i;
    event.launch.thread = i;
    event.launch.chain = chain_of({"cublasGemmEx"});
    run.statistics.add(event);
  }
  run.add_range(step, 0, 10);
  run.statistics.add(call_event("cudaMalloc", 1));
  run.statistics.add(copy_event(1, 10, 1));
  const auto add_shape = [&](const char* function, const CallShape& shape) {
    CallEvent call = call_event(function, 10);
    call.shape = run.shapes.intern(shape);
    call.owns_shape = true;
    call.call = 100 + call.shape;
    run.statistics.add(call);
    KernelEvent event = run.kernel("k1", 10);
    event.launch.shape = call.shape;
    event.launch.owner = call.call;
    event.launch.thread = call.thread;
    event.launch.window = call.window;
    run.statistics.add(event);
  };
  add_shape("cublasGemmEx", GemmShape{});
  add_shape("cudnnBackendExecute", ConvolutionShape{});
  add_shape("cudnnBackendExecute", AttentionShape{});
  add_shape("cudnnBackendExecute", NormalizationShape{});
  add_shape("cudnnRNNForward", RnnShape{});
  add_shape("ncclAllReduce", CollectiveShape{});
  // Attention that no library launched is recognised by its kernel's name.
  KernelEvent flash = run.kernel("void flash_fwd_kernel<Flash_fwd_kernel_traits<64> >(Flash_fwd_params)", 10);
  run.statistics.add(flash);
  run.statistics.settle_window(1, 0, 3000);
  IterationBoundary boundary;
  for (boundary.begin = 5000; boundary.begin <= 6000; boundary.begin += 1000) {
    run.statistics.iteration_boundary(boundary);
    boundary.unprofiled_before = true;
    ++boundary.number;
  }
  RunInfo info = some_run();
  info.host_windows = {HostWindow{}};
  for (std::size_t role = 0; role < kHostRoles; ++role)
    info.host_windows[0].roles.push_back({static_cast<HostRole>(role), 0, {}});
  info.memory_lines = {{0, MemoryLine::Of::kAllocated, {{}}}};
  const Report report = build_report(run.statistics, info);
  for (const TableFile& table : table_files()) {
    if (table.columns == nullptr) continue;
    const std::string text = table_text(table, report);
    const std::string header = header_of(table, report);
    const auto commas = std::count(header.begin(), header.end(), ',');
    std::size_t lines = 0;
    for (std::size_t begin = 0; begin < text.size(); ++lines) {
      const std::size_t end = text.find('\n', begin);
      const std::string line = text.substr(begin, end - begin);
      // A hundred thousand lines, for each of which Catch2 would take longer than everything else.
      if (std::count(line.begin(), line.end(), ',') != commas) FAIL(table.name << ": " << line);
      begin = end + 1;
    }
    INFO(table.name);
    CHECK(lines >= (is_wanted(table, report) ? 2 : 1));
  }
}

TEST_CASE("Kernel rows", "[output]") {
  StatsRun run;
  run.statistics.add(run.kernel("void add<float>(float*, int)", 1024));
  run.statistics.add(run.kernel("void add<float>(float*, int)", 1313));
  run.statistics.add(run.kernel("void add<float>(float*, int)", 1344));
  run.statistics.add(run.kernel("plain", 1000));
  // 3681 of 4681 is 78.637 %.
  CHECK(rows_of("cuda_gpu_kern_sum.csv", run) ==
        "78.6,3681,3,1227.0,1313.0,1024,1344,176.5,\"void add<float>(float*, int)\"\n"
        "21.4,1000,1,1000.0,1000.0,1000,1000,0.0,plain\n");
}

TEST_CASE("Kernel rows by launch shape", "[output]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 100);
  event.grid = {148, 1, 1};
  event.block = {256, 1, 1};
  run.statistics.add(event);
  event.grid = {14400, 65535, 1};
  event.block = {1024, 1, 1};
  event.end += 200;
  run.statistics.add(event);
  CHECK(rows_of("cuda_gpu_kern_gb_sum.csv", run) ==
        "75.0,300,1,300.0,300.0,300,300,0.0,14400 65535    1,1024    1    1,k\n"
        "25.0,100,1,100.0,100.0,100,100,0.0, 148    1    1, 256    1    1,k\n");
}

TEST_CASE("Kernel detail rows", "[output]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 100);
  event.device = 1;
  event.grid = {4, 2, 1};
  event.block = {128, 1, 1};
  event.registers_per_thread = 40;
  event.static_shared_bytes = 1024;
  event.dynamic_shared_bytes = 49152;
  event.local_bytes_per_thread = 16;
  run.statistics.add(event);
  event.end += 3;
  run.statistics.add(event);
  CHECK(rows_of("kernel_detail.csv", run) ==
        "100.0,203,2,101.5,100,103,1,4,2,1,128,1,1,40,1024,49152,16,,,,,,unknown,,k\n");
  // 50 + 1 KiB of shared memory: four blocks of four warps; 8 of 132 multiprocessors have work.
  RunInfo info;
  info.devices = {DeviceInfo{}, h200(1)};
  CHECK(rows_of("kernel_detail.csv", run, info) ==
        "100.0,203,2,101.5,100,103,1,4,2,1,128,1,1,40,1024,49152,16,25.0,4,shared memory,0.02,6.1,unknown,"
        "191,k\n");
}

TEST_CASE("Kernel detail rows of a device whose limits are not known", "[output]") {
  StatsRun run;
  run.statistics.add(
      run.kernel("void at::native::vectorized_elementwise_kernel<4, float>(int, float*)", 100));
  RunInfo info;
  info.devices = {h200(0)};
  info.devices[0].compute_major = 99;
  CHECK(rows_of("kernel_detail.csv", run, info) ==
        "100.0,100,1,100.0,100,100,0,1,1,1,32,1,1,0,0,0,0,,,,,,no,,"
        "\"void at::native::vectorized_elementwise_kernel<4, float>(int, float*)\"\n");
}

TEST_CASE("API rows", "[output]") {
  StatsRun run;
  run.statistics.add(call_event("cudaMalloc", 300));
  run.statistics.add(call_event("cudaLaunchKernel", 40));
  run.statistics.add(call_event("cudaLaunchKernel", 60));
  CHECK(rows_of("cuda_api_sum.csv", run) ==
        "75.0,300,1,300.0,300.0,300,300,0.0,cudaMalloc\n"
        "25.0,100,2,50.0,50.0,40,60,14.1,cudaLaunchKernel\n");
}

TEST_CASE("Memory rows", "[output]") {
  StatsRun run;
  run.statistics.add(copy_event(1, 4'000'000, 400));
  run.statistics.add(copy_event(1, 8'389'000, 800));
  run.statistics.add(memset_event(1024, 300));
  CHECK(rows_of("cuda_gpu_mem_time_sum.csv", run) ==
        "80.0,1200,2,600.0,600.0,400,800,282.8,[CUDA memcpy Host-to-Device]\n"
        "20.0,300,1,300.0,300.0,300,300,0.0,[CUDA memset]\n");
  CHECK(rows_of("cuda_gpu_mem_size_sum.csv", run) ==
        "12.389,2,6.194,6.194,4.000,8.389,3.103,[CUDA memcpy Host-to-Device]\n"
        "0.001,1,0.001,0.001,0.001,0.001,0.000,[CUDA memset]\n");
}

TEST_CASE("NVTX rows", "[output]") {
  StatsRun run;
  const std::uint32_t step = run.range(0, "step, first");
  const std::uint32_t load = run.range(0, "data:load", RangeStyle::kStartEnd);
  run.add_range(step, 100, 400);
  run.add_range(load, 100, 200);
  KernelEvent event = run.kernel("k", 10);
  event.launch.thread = 1;
  event.launch.range = step;
  event.launch.host_begin = 150;
  run.statistics.add(event);
  event.launch.range = 0;
  run.statistics.add(event);
  event.launch = {};
  event.end += 2;
  run.statistics.add(event);
  CHECK(rows_of("nvtx_sum.csv", run) ==
        "75.0,300,1,300.0,300.0,300,300,0.0,PushPop,\"step, first\"\n"
        "25.0,100,1,100.0,100.0,100,100,0.0,StartEnd,data:load\n");
  CHECK(rows_of("nvtx_kern_sum.csv", run, some_run()) ==
        ",,77,78,0,1,10,10.0,10.0,10,10,0.0,k\n"
        ",,77,,0,1,12,12.0,12.0,12,12,0.0,k\n"
        "\"step, first\",PushPop,77,78,1,1,10,10.0,10.0,10,10,0.0,k\n");
}

TEST_CASE("Library rows", "[output]") {
  StatsRun run;
  run.statistics.add(call_event("cublasGemmEx", 100));
  CallEvent inner = call_event("cublasLtMatmul", 80, chain_of({"cublasGemmEx"}));
  inner.status = 1;
  run.statistics.add(inner);
  KernelEvent event = run.kernel("gemm", 300);
  event.launch.chain = chain_of({"cublasGemmEx", "cublasLtMatmul"});
  run.statistics.add(event);
  event.launch.chain = chain_of({"cublasGemmEx"});
  event.end -= 200;
  run.statistics.add(event);
  TransferEvent memset = memset_event(8, 5);
  memset.launch.chain = chain_of({"cublasGemmEx"});
  run.statistics.add(memset);
  CHECK(
      text_of("library_sum.csv", run) ==
      "GPU Time (%),GPU Time (ns),Kernels,GPU Time incl. Nested (ns),Kernels incl. Nested,Calls,Failed Calls,"
      "Host Time (ns),Host Avg (ns),Host Min (ns),Host Max (ns),Copies,Copy Time (ns),Memsets,Memset Time "
      "(ns),"
      "Depth,Library,Call\n"
      "25.0,100,1,400,2,1,0,100,100.0,100,100,0,0,1,5,0,cublas,cublasGemmEx\n"
      "75.0,300,1,300,1,1,1,80,80.0,80,80,0,0,0,0,1,cublaslt,cublasGemmEx > cublasLtMatmul\n");
}

TEST_CASE("Thread rows", "[output]") {
  StatsRun run;
  KernelEvent event = run.kernel("k", 300);
  event.launch.thread = 1;
  run.statistics.add(event);
  event.launch = {};
  event.end -= 200;
  run.statistics.add(event);
  CHECK(rows_of("thread_kern_sum.csv", run, some_run()) ==
        "75.0,300,1,300.0,300.0,300,300,0.0,0,77,78,pt_autograd_0\n"
        "25.0,100,1,100.0,100.0,100,100,0.0,0,77,,[unknown]\n");
}

TEST_CASE("Window rows: one for the host and all devices, one per device", "[output]") {
  StatsRun run;
  run.statistics.add(run.kernel("k", 100));
  KernelEvent event = run.kernel("k", 50);
  event.device = 1;
  event.launch.known = false;
  run.statistics.add(event);
  run.statistics.add(copy_event(2, 2'000'000, 70));
  run.statistics.add(memset_event(500'000, 7));
  CallEvent launch = call_event("cudaLaunchKernel", 11);
  launch.correlation = 9;
  run.statistics.add(launch);
  run.statistics.add(call_event("ncclAllReduce", 12));
  run.add_range(run.range(0, "r"), 0, 5, 0, true);
  const std::string unsettled = std::string(43, ',') + "\n";
  CHECK(rows_of("window_sum.csv", run, some_run()) ==
        // The copy and, within it, the memset end long before the kernel begins. Two records are lost, so how
        // busy the devices were is unknown.
        "1,api,closed,2000,8000,6000,all,yes,,,,2,150,1,70,2.000,1,7,0.500,1,1,11,1,1,1,1,0,,,0,,,,"
        "0,,,,,"
        ",,5,"
        "0,0,"
        "0,2,0,," +
            unsettled + "1,api,closed,2000,8000,6000,0,no,,,,1,100,1,70,2.000,1,7,0.500,0" +
            std::string(28, ',') + unsettled +
            "1,api,closed,2000,8000,6000,1,no,,,,1,50,0,0,0.000,0,0,0.000,1" + std::string(28, ',') +
            unsettled +
            "2,time:1s+1s/"
            "2s,open,19000,,,all,yes,0,0,,0,0,0,0,0.000,0,0,0.000,0,0,0,0,0,0,0,0,,,0,,,,0,,,,,,,0,0,0,0,0,0,"
            "," +
            unsettled);
  RunInfo whole = some_run();
  whole.windows[0].losses = {};
  const std::string whole_rows = rows_of("window_sum.csv", run, whole);
  for (const char* row :
       {"all,yes,220,1090,1.8,2,150,", "0,no,170,1090,2.8,1,100,", "1,no,50,50,0.8,1,50,"}) {
    INFO(row);
    CHECK(whole_rows.find(row) != std::string::npos);
  }
  whole.windows[0].untraced = "another client has CUPTI";
  CHECK(rows_of("window_sum.csv", run, whole)
            .starts_with("1,api,closed,2000,8000,6000,all,yes,,,,,,,,,,,,,1,11,1,1,"));
  RunInfo info = some_run();
  info.windows[0].memory = {{1, 1'500'000u, 2'000'000u}, {0, 1'000u, {}}};
  const std::string rows = rows_of("window_sum.csv", run, info);
  CHECK(rows.find(",,,,,,,,,,,,,0.001,\n1,api,closed,2000,8000,6000,1,") != std::string::npos);
  CHECK(rows.find(",,,,,,,,,,,,,1.500,2.000\n2,") != std::string::npos);
}

TEST_CASE("Allocation rows", "[output]") {
  const StatsRun run;
  RunInfo info;
  MemoryCounts counts;
  counts.allocations = 3;
  counts.frees = 1;
  counts.allocated = 7'000'000;
  counts.live = 6'000'000;
  counts.peak = 6'500'000;
  counts.peak_at = 5'000;
  counts.largest = 4'000'000;
  info.base = 1'000;
  info.memory = {{0, {}, counts}, {0, AllocationApi::kMallocManaged, counts}};
  counts.failed = 2;
  counts.failed_bytes = 90'000'000;
  counts.largest_failed = 80'000'000;
  counts.last_failed = 10'000'000;
  info.memory.push_back({MemoryUse::kHost, AllocationApi::kHostAlloc, counts});
  info.memory.push_back({MemoryUse::kUnknownDevice, AllocationApi::kMallocAsyncPtsz, {}});
  info.memory.push_back({MemoryUse::kOtherDevice, AllocationApi::kMalloc3DArray, {}});
  CHECK(rows_of("memory_sum.csv", run, info) ==
        "0,[all],[all],yes,3,1,7.000,6.000,6.500,4000,4.000,0,0.000,0.000,0.000\n"
        "0,managed,cudaMallocManaged,no,3,1,7.000,6.000,6.500,4000,4.000,0,0.000,0.000,0.000\n"
        "host,pinned host,cudaHostAlloc,no,3,1,7.000,6.000,6.500,4000,4.000,2,90.000,80.000,10.000\n"
        "[unknown],device,cudaMallocAsync_ptsz,no,0,0,0.000,0.000,0.000,,0.000,0,0.000,0.000,0.000\n"
        "[other],device,cudaMalloc3DArray,no,0,0,0.000,0.000,0.000,,0.000,0,0.000,0.000,0.000\n");
}

TEST_CASE("Rows of memory over time", "[output]") {
  const StatsRun run;
  RunInfo info = some_run();  // window 1 from 3,000 to 9,000
  info.base = 1'000;
  info.memory_until = 12'000;
  // Before the window, in it, and unchanged when it ended; several changes merged into one interval.
  info.memory_lines = {{0,
                        MemoryLine::Of::kAllocated,
                        {{1'500, 1'500, 1'000'000, 1'000'000, 1'500, 1'000'000, 0},
                         {4'000, 4'500, 1'000'000, 5'000'000, 4'200, 2'000'000, 1}}},
                       {MemoryUse::kHost, MemoryLine::Of::kAllocated, {{2'000, 2'000, 7, 7, 2'000, 7, 0}}}};
  info.energy.memory = {
      {0, MemoryLine::Of::kInUse, {{3'100, 3'600, 500'000'000, 600'000'000, 3'200, 600'000'000, 1}}}};
  CHECK(rows_of("memory_timeline.csv", run, info) ==
        "0,allocated,500,1500,,,outside,1.000,1.000,500\n"
        "0,allocated,2000,1000,1,,outside,1.000,1.000,2000\n"
        "0,allocated,3000,5000,1,,outside,1.000,5.000,3200\n"
        "0,allocated,8000,3000,,,outside,2.000,2.000,8000\n"
        "0,in use,2100,500,1,,outside,500.000,600.000,2200\n"
        "host,allocated,1000,1000,,,outside,0.000,0.000,1000\n"
        "host,allocated,2000,6000,1,,outside,0.000,0.000,2000\n"
        "host,allocated,8000,3000,,,outside,0.000,0.000,8000\n");
}

TEST_CASE("Rows of threads and child processes", "[output]") {
  const StatsRun run;
  RunInfo info;
  info.base = 1'000;
  HostWindow window;
  window.window = 3;
  window.begin = 5'000;
  window.end = 2'000'005'000;
  window.reading = 800;
  window.affinity = 4;
  window.quota_thousandths = 1'500;
  window.worker_life = 1'000;
  window.worker_time = 750;
  window.worker_wait = 100;
  window.moments = {9, 8, 7};
  const auto row = [](HostRole role, std::uint64_t count, std::uint64_t time, std::uint64_t wait) {
    HostRoleUse one{role, count, {}};
    one.use.of(HostAmount::kProcessorTime) = time;
    one.use.of(HostAmount::kRunQueueWait) = wait;
    return one;
  };
  window.roles = {row(HostRole::kMain, 1, 500'000'000, 7), row(HostRole::kProcess, 1, 600'000'000, 7),
                  row(HostRole::kLoaderWorker, 2, 3'000'000'000, 1'000'000'000)};
  window.roles[0].use.of(HostAmount::kVoluntarySwitches) = 11;
  window.roles[0].use.of(HostAmount::kInvoluntarySwitches) = 12;
  window.roles[0].use.of(HostAmount::kMinorFaults) = 13;
  window.roles[0].use.of(HostAmount::kMajorFaults) = 14;
  window.roles[0].use.of(HostAmount::kReadBytes) = 1'234'567;
  info.host_windows = {window};
  CHECK(rows_of("host_sum.csv", run, info) ==
        "3,main,no,1,500000000,25.0,7,11,12,13,14,1.235,4000,2000000000,800,,,,,,,,,\n"
        "3,process,yes,1,600000000,30.0,7,,,,,,4000,2000000000,800,4,1.500,1.800,2.300,75.0,10.0,9,8,7\n"
        "3,loader worker,no,2,3000000000,150.0,1000000000,,,,,,4000,2000000000,800,,,,,,,,,\n");
  // No limit, no worker, and an unknown affinity.
  info.host_windows[0].affinity = 0;
  info.host_windows[0].quota_thousandths = 0;
  info.host_windows[0].worker_life = 0;
  info.host_windows[0].roles = {row(HostRole::kProcess, 1, 600'000'000, 7)};
  CHECK(rows_of("host_sum.csv", run, info) ==
        "3,process,yes,1,600000000,30.0,7,,,,,,4000,2000000000,800,,,0.300,0.300,,,9,8,7\n");
}

TEST_CASE("Memory by purpose: a purpose with a tensor that can't be placed is empty", "[output]") {
  StatsRun run;
  RunInfo info;
  DevicePurposes device;
  device.device = 1;
  device.in_use = 1000;
  device.peak_allocated = 700;
  device.peak_reserved = 800;
  device.bytes = {100, 90, 200, 1, 30, 7, 6, 7, 9, 20, 30, 500};
  device.tensors = {4, 4, 8, 1, 2};
  device.largest[0] = {64, "Linear.weight (4, 4) torch.float32"};
  info.memory_purposes.emplace();
  info.memory_purposes->devices.push_back(device);
  CHECK(
      rows_of("memory_purpose.csv", run, info) ==
      "1,parameters,no,4,100,64,\"Linear.weight (4, 4) torch.float32\",,,\n"
      "1,gradients,no,4,90,0,,,,\n1,optimizer state,no,8,200,0,,,,\n1,buffers,no,1,1,0,,,,\n"
      "1,other tensors,no,2,30,0,,,,\n1,workspaces,no,,7,,,,,\n1,communication buffers,no,,6,,,,,\n"
      "1,[no tensor],no,,7,,,,,\n1,[rounding],no,,9,,,,,\n1,[private pools],no,,20,,,,,\n"
      "1,[cached],no,,30,,,,,\n1,[outside of the allocator],no,,500,,,,,\n1,[all],yes,,1000,,,700,800,296\n");
  info.memory_purposes->unplaced[1] = 2;
  info.memory_purposes->devices[0].in_use = info.memory_purposes->devices[0].bytes[11] = 0;
  info.memory_purposes->devices[0].unknown[6] = true;
  const std::string rows = rows_of("memory_purpose.csv", run, info);
  CHECK(rows.find("1,gradients,no,4,,0,,,,\n") != std::string::npos);
  CHECK(rows.find("1,communication buffers,no,,,,,,,\n") != std::string::npos);
  CHECK(rows.find("1,[outside of the allocator],no,,,,,,,\n1,[all],yes,,,,,700,800,\n") != std::string::npos);
}

TEST_CASE("Iteration rows: one for the host and all devices, one per device", "[output]") {
  StatsRun run;
  const auto boundary = [&](std::uint64_t number, Nanoseconds begin, std::uint32_t window,
                            IterationLabel label = IterationLabel::kIteration) {
    run.statistics.iteration_boundary({number, begin, window, number == 4 ? 0u : 1u, label});
  };
  const auto launch = [&](Nanoseconds begin, Nanoseconds length, std::uint32_t device) {
    CallEvent call = call_event("cudaLaunchKernel", 11);
    call.correlation = 9;
    call.begin = begin;
    run.statistics.add(call);
    KernelEvent event = run.kernel("k", 0);
    event.launch.host_begin = begin;
    event.start = begin + 100;
    event.end = event.start + length;
    event.device = device;
    run.statistics.add(event);
  };
  launch(3100, 20, 0);  // before the first boundary
  boundary(4, 4000, 1);
  launch(4000, 30, 0);
  launch(4010, 50, 1);
  TransferEvent copy = copy_event(1, 3'000'000, 0);
  copy.launch.host_begin = 4020;
  copy.start = 4120;
  copy.end = 4150;
  run.statistics.add(copy);
  boundary(5, 5000, 1);
  launch(5000, 40, 0);
  boundary(0, 7000, 1, IterationLabel::kValidation);
  TransferEvent memset = memset_event(2'000'000, 0);
  memset.launch.host_begin = 7000;
  memset.start = 7200;
  memset.end = 7260;
  run.statistics.add(memset);
  run.statistics.settle_window(1, 3000, 9000);
  boundary(6, 9500, 0);
  RunInfo info = some_run();
  info.windows[0].losses = {};
  CHECK(rows_of("iteration_sum.csv", run, info) ==
        "1,,outside,,all,yes,,,,,,,,,1,,,1,20,0,0,0.000,0,0,0.000,0,0,,,,,,\n"
        "1,,outside,,0,no,,,,,,,,,,,,1,20,0,0,0.000,0,0,0.000,0,,,,,,,\n"
        "1,4,iteration,1,all,yes,3000,1000,1000.0,,,,,,2,100,940,2,80,1,30,3.000,0,0,0.000,0,0,,,80,4.0,,\n"
        "1,4,iteration,1,0,no,3000,1000,1000.0,,,,,,,50,950,1,30,1,30,3.000,0,0,0.000,0,,,,30,3.0,,\n"
        "1,4,iteration,1,1,no,3000,1000,1000.0,,,,,,,50,,1,50,0,0,0.000,0,0,0.000,0,,,,50,5.0,,\n"
        "1,5,iteration,1,all,yes,4000,2000,2000.0,,,,,,1,40,2060,1,40,0,0,0.000,0,0,0.000,0,0,,,40,1.9,,\n"
        "1,5,iteration,1,0,no,4000,2000,2000.0,,,,,,,40,2060,1,40,0,0,0.000,0,0,0.000,0,,,,40,1.9,,\n"
        "1,,validation,1,all,yes,6000,2000,,,,,,,0,60,,0,0,0,0,0.000,1,60,2.000,0,0,,,0,0.0,,\n"
        "1,,validation,1,0,no,6000,2000,,,,,,,,60,,0,0,0,0,0.000,1,60,2.000,0,,,,0,0.0,,\n");
  info.batch = 3;
  info.unit_source = UnitSource::kStated;
  const std::string rows = rows_of("iteration_sum.csv", run, info);
  CHECK(rows.find(
            "\n1,4,iteration,1,all,yes,3000,1000,1000.0,3000000.000,3,stated,3000000.000,60000000.000,2,") !=
        std::string::npos);
  CHECK(rows.find("\n1,,validation,1,all,yes,6000,2000,,") != std::string::npos);
  // Six samples in 3 us.
  CHECK(rows_of("window_sum.csv", run, info)
            .find(",2,1500.0,2000000.000,2,6,2000000.000,66666666.667,0,,,,,,stated,0,0,0,0,0,0,,,") !=
        std::string::npos);
}

TEST_CASE("Time in fetches is the host's, and that of idle time the device's", "[output]") {
  StatsRun run;
  const auto launch = [&](Nanoseconds begin) {
    CallEvent call = call_event("cudaLaunchKernel", 0);
    call.begin = begin;
    call.end = begin + 1000;
    run.statistics.add(call);
    KernelEvent event = run.kernel("k", 0);
    event.launch.host_begin = begin;
    event.launch.host_end = begin + 1000;
    event.start = begin + 1000;
    event.end = begin + 2000;
    run.statistics.add(event);
  };
  run.statistics.iteration_boundary({4, 10'000, 1, 0});
  launch(10'000);
  run.statistics.add(FetchEvent{1, 0, FetchKind::kWaiting, FetchThread::kAny, 11'500, 12'500});
  run.statistics.add(FetchEvent{1, 0, FetchKind::kProcessing, FetchThread::kAny, 13'000, 4'009'000});
  run.statistics.iteration_boundary({5, 4'010'000, 1, 1});
  launch(4'010'000);
  run.statistics.iteration_boundary({6, 4'020'000, 0, 1});
  run.statistics.settle_window(1, 10'000, 4'020'000);
  const auto ends = [&](const char* file, const std::string& row) {
    const std::string rows = rows_of(file, run, some_run());
    INFO(rows);
    return rows.find(row) != std::string::npos;
  };
  CHECK(ends("iteration_sum.csv", ",1000,3996000\n1,4,iteration,1,0,"));
  CHECK(ends("iteration_sum.csv", ",0,0\n1,5,iteration,1,0,"));
  CHECK(ends("window_sum.csv", ",1000,3996000,,\n1,api,closed,"));
  // The gap began at 12,000.
  CHECK(ends("window_sum.csv", ",500,3996000,0,0,"));
}

TEST_CASE("Step times are those of iterations without CUPTI", "[output]") {
  StatsRun run;
  IterationBoundary boundary;
  boundary.number = 40;
  boundary.begin = 20'000;
  // Two in a window, of 500 ns, and nine others, of 100, 200 … 900 ns.
  for (std::uint64_t i = 0; i <= 11; ++i) {
    boundary.window = i < 2 ? 1 : 0;
    boundary.unprofiled_before = i > 2;
    run.statistics.iteration_boundary(boundary);
    boundary.window_before = boundary.window;
    boundary.begin += i < 2 ? 500 : 100 * (i - 1);
    ++boundary.number;
  }
  run.statistics.settle_window(1, 20'000, 21'000);
  RunInfo info = some_run();
  info.windows[0].losses = {};
  const std::string times = rows_of("step_times.csv", run, info);
  CHECK(times.find("42,20000,100,100.0,,,,\n43,20100,200,200.0,,,,\n") == 0);
  CHECK(std::count(times.begin(), times.end(), '\n') == 9);
  info.batch = 3;
  info.unit_source = UnitSource::kStated;
  CHECK(
      rows_of("step_times.csv", run, info).find("\n50,23600,900,900.0,3333333.333,3,stated,3333333.333\n") !=
      std::string::npos);
  // Iterations and their time in the window; the run's step time, its interval, samples per second.
  CHECK(
      rows_of("window_sum.csv", run, info)
          .find(
              ",2,500.0,6000000.000,2,6,6000000.000,,9,500.0,100.0,900.0,6000000.000,6000000.000,stated,") !=
      std::string::npos);
}

TEST_CASE("Iterations that have found no room share a row", "[output]") {
  StatsRun run;
  for (std::uint64_t i = 0; i <= IterationStatistics::kMaxRows + 1; ++i) {
    run.statistics.iteration_boundary({i, 4000 + i * 10, 1, 1, IterationLabel::kIteration});
  }
  const std::string rows = rows_of("iteration_sum.csv", run, some_run());
  CHECK(rows.find("1,2,iteration,") == 0);
  CHECK(rows.substr(rows.rfind('\n', rows.size() - 2) + 1) ==
        "[other],,,,all,yes,,,,,,,,,0,0,,0,0,0,0,0.000,0,0,0.000,0,0,,,0,,,\n");
  // The iteration in progress.
  CHECK(rows.find(",0,all,yes," + std::to_string(3000 + 10 * (IterationStatistics::kMaxRows + 1)) +
                  ",,,,,,,,0,") != std::string::npos);
}

TEST_CASE("Units of work are of complete iterations, and a rate is of those alone that have them",
          "[output]") {
  StatsRun run;
  IterationBoundary boundary;
  boundary.window = boundary.window_before = 1;
  boundary.begin = 3000;
  // 1,000 ns each: 8 units, none reported, 0, 2.5; then one cut off by the window.
  const std::optional<double> said[] = {{}, 8.0, {}, 0.0, 2.5};
  for (const std::optional<double>& units : said) {
    boundary.units_before = units;
    run.statistics.iteration_boundary(boundary);
    boundary.begin += 1000;
    ++boundary.number;
  }
  boundary.units_before = 100;
  boundary.window = 0;
  boundary.begin += 5000;
  run.statistics.settle_window(1, 2000, 8000);
  RunInfo info = some_run();
  info.windows[0].losses = {};
  info.unit_source = UnitSource::kPayload;
  const std::string rows = rows_of("iteration_sum.csv", run, info);
  CHECK(rows.find("1,0,iteration,1,all,yes,2000,1000,1000.0,,8,payload,8000000.000,,") != std::string::npos);
  CHECK(rows.find("1,1,iteration,1,all,yes,3000,1000,1000.0,,,,,,") != std::string::npos);
  CHECK(rows.find("1,2,iteration,1,all,yes,4000,1000,1000.0,,0,payload,0.000,,") != std::string::npos);
  CHECK(rows.find("1,3,iteration,1,all,yes,5000,1000,1000.0,,2.500000,payload,2500000.000,,") !=
        std::string::npos);
  CHECK(rows.find("1,4,iteration,0,all,yes,6000,1000,,,,,,") != std::string::npos);
  // 10.5 in 3,000 ns.
  CHECK(rows_of("window_sum.csv", run, info).find(",4,1000.0,,3,10.500000,3500000.000,,0,,,,,,payload,") !=
        std::string::npos);
}

TEST_CASE("A rate has enough digits to compare it, however slow the steps are", "[output]") {
  // Steps of 1.83 s and 1.81 s differ by 1.1 %: with one decimal, a sample in each makes 0.5 and 0.6 a
  // second.
  for (const auto& [time, batch, rate] : {std::tuple{1'830'000'000u, 1u, "0.546448"},
                                          {1'810'000'000u, 1u, "0.552486"},
                                          {1'810'000'000u, 64u, "35.359"}}) {
    StatsRun run;
    // Eight steps without CUPTI, then three in a window.
    for (std::uint64_t number = 0; number <= 11; ++number) {
      IterationBoundary boundary{number, 3000 + number * time};
      boundary.unprofiled_before = number > 0 && number <= 8;
      boundary.window = number >= 8 ? 1 : 0;
      boundary.window_before = number > 8 ? 1 : 0;
      run.statistics.iteration_boundary(boundary);
    }
    run.statistics.settle_window(1, 3000 + 8ull * time, 3000 + 11ull * time);
    RunInfo info = some_run();
    info.windows[0].losses = {};
    info.batch = batch;
    const std::string cells = "," + std::to_string(time) + ".0," + rate + ",";
    CHECK(rows_of("iteration_sum.csv", run, info).find(cells) != std::string::npos);
    CHECK(rows_of("step_times.csv", run, info).find(cells) != std::string::npos);
    // By the steps in the window and by those without CUPTI.
    const std::string rows = rows_of("window_sum.csv", run, info);
    CHECK(rows.find(cells) != rows.rfind(cells));
  }
}

TEST_CASE("Without any event the tables are their headers", "[output]") {
  const StatsRun run;
  const RunInfo info;
  const Report report = build_report(run.statistics, info);
  for (const TableFile& table : table_files()) {
    const bool is_table = table.columns != nullptr;
    CHECK(table_text(table, report) == (is_table ? header_of(table, report) + "\n" : ""));
  }
}

TEST_CASE("All files are written, run.json with their names", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  run.statistics.add(run.kernel("k", 100));
  CHECK(write_run_json(folder.path(), some_run()).empty());
  CHECK(nlohmann::json::parse(folder.read("run.json"))["files"].empty());
  const RunInfo info = some_run();
  const Report report = build_report(run.statistics, info);
  CHECK(write_all(folder.path(), report).empty());
  for (const TableFile& table : table_files()) {
    if (!is_wanted(table, report)) continue;
    CHECK(folder.read(std::string(table.name)) == table_text(table, report));
  }
  const auto json = nlohmann::json::parse(folder.read("run.json"));
  CHECK(json["files"].size() == wanted_files());
  CHECK(json["write_errors"].empty());
  const auto files = std::distance(std::filesystem::directory_iterator(folder.path()), {});
  CHECK(static_cast<std::size_t>(files) == wanted_files() + 1);
}

TEST_CASE("What a killed process wrote of hardware metrics stays, and is listed", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  run.statistics.add(run.kernel("k", 100));
  std::ofstream(folder.path() + "/kernel_metrics.csv") << "before";
  RunInfo info = some_run();
  CHECK(write_all(folder.path(), build_report(run.statistics, info)).empty());
  // From another run, in the same folder.
  CHECK(nlohmann::json::parse(folder.read("run.json"))["files"].size() == wanted_files());
  info.recovered.emplace();
  CHECK(write_all(folder.path(), build_report(run.statistics, info)).empty());
  CHECK(folder.read("kernel_metrics.csv") == "before");
  const auto files = nlohmann::json::parse(folder.read("run.json"))["files"];
  CHECK(files.size() == wanted_files() + 1);
  CHECK(std::ranges::find(files, "kernel_metrics.csv") != files.end());
}

TEST_CASE("A file that cannot be written leaves the others and its predecessor", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  run.statistics.add(run.kernel("k", 100));
  // Blocks one table's temporary file.
  std::filesystem::create_directories(folder.path() + "/.cuda_api_sum.csv.new/x");
  std::ofstream(folder.path() + "/cuda_api_sum.csv") << "before";
  const std::vector<std::string> errors = write_all(folder.path(), build_report(run.statistics, some_run()));
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].find("cuda_api_sum.csv") != std::string::npos);
  CHECK(folder.read("cuda_api_sum.csv") == "before");
  CHECK(folder.read("cuda_gpu_kern_sum.csv").find(",k\n") != std::string::npos);
  const auto json = nlohmann::json::parse(folder.read("run.json"));
  CHECK(json["write_errors"].size() == 1);
  CHECK(json["files"].size() == wanted_files() - 1);
}

TEST_CASE("Tables of an earlier write that cannot be replaced are said to be", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  WrittenTables written;
  run.statistics.add(run.kernel("k", 100));
  REQUIRE(write_all(folder.path(), build_report(run.statistics, some_run()), written).empty());
  CHECK(nlohmann::json::parse(folder.read("run.json")).count("stale_files") == 0);

  std::filesystem::create_directories(folder.path() + "/.cuda_api_sum.csv.new/x");
  REQUIRE(write_all(folder.path(), build_report(run.statistics, some_run()), written).size() == 1);
  auto json = nlohmann::json::parse(folder.read("run.json"));
  CHECK(json["stale_files"] == std::vector<std::string>{"cuda_api_sum.csv"});
  CHECK(json["files"].size() == wanted_files());

  // There is no memory for any table.
  REQUIRE(write_run_json(folder.path(), some_run(), written).empty());
  json = nlohmann::json::parse(folder.read("run.json"));
  CHECK(json["files"].size() == wanted_files());
  CHECK(json["stale_files"] == json["files"]);

  std::filesystem::remove_all(folder.path() + "/.cuda_api_sum.csv.new");
  REQUIRE(write_all(folder.path(), build_report(run.statistics, some_run()), written).empty());
  CHECK(nlohmann::json::parse(folder.read("run.json")).count("stale_files") == 0);
}

TEST_CASE("where no write follows, run.json says that the tables are of an earlier moment", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  WrittenTables written;
  reserve_run_json(folder.path(), written);
  mark_outdated(written);  // there is none yet
  CHECK(!std::filesystem::exists(folder.path() + "/run.json"));
  REQUIRE(write_all(folder.path(), build_report(run.statistics, some_run()), written).empty());
  const auto before = nlohmann::json::parse(folder.read("run.json"));
  mark_outdated(written);
  auto json = nlohmann::json::parse(folder.read("run.json"));
  CHECK(json["stale_files"] == before["files"]);
  CHECK(json["write_errors"] == std::vector<std::string>{"out of memory"});
  json.erase("stale_files");
  json["write_errors"] = before["write_errors"];
  CHECK(json == before);
}

TEST_CASE("run.json is written into its reserved room where it can't be made anew", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  WrittenTables written;
  reserve_run_json(folder.path(), written);
  run.statistics.add(run.kernel("k", 100));
  REQUIRE(write_all(folder.path(), build_report(run.statistics, some_run()), written).empty());
  std::filesystem::create_directories(folder.path() + "/.run.json.new/x");
  std::filesystem::create_directories(folder.path() + "/.cuda_api_sum.csv.new/x");
  for (const auto write :
       {ReservedFile::Write::kFurther, ReservedFile::Write::kFurther, ReservedFile::Write::kLast}) {
    written.write = write;
    RunInfo info = some_run();
    info.pid = 100 + static_cast<int>(write);
    const auto errors = write_all(folder.path(), build_report(run.statistics, info), written);
    CHECK(errors.size() == 1);  // only the table's
    const auto json = nlohmann::json::parse(folder.read("run.json"));
    CHECK(json["pid"] == info.pid);
    CHECK(json["stale_files"] == std::vector<std::string>{"cuda_api_sum.csv"});
    CHECK(json["write_errors"] == errors);
    CHECK(std::filesystem::exists(folder.path() + "/.run.json.spare") ==
          (write == ReservedFile::Write::kFurther));
  }

  // Longer than the available space, including the spare for the last write.
  RunInfo info = some_run();
  info.windows.resize(1000);
  for (WindowInfo& window : info.windows) window.losses.host_records = 1;
  const auto errors = write_all(folder.path(), build_report(run.statistics, info), written);
  CHECK(errors.size() == 1);
  const auto json = nlohmann::json::parse(folder.read("run.json"));
  CHECK(json["windows"].empty());
  CHECK(json["windows_not_listed"] == 1000);
  CHECK(json["lost"]["host_records"] == 1000);
  CHECK(json["stale_files"] == std::vector<std::string>{"cuda_api_sum.csv"});
  written.run_file.remove();
  CHECK(write_all(folder.path(), build_report(run.statistics, info), written).size() == 2);
}

TEST_CASE("A folder that is gone is an error per file, not an exception", "[output]") {
  const StatsRun run;
  const auto errors = write_all("/nonexistent/folder", build_report(run.statistics, some_run()));
  CHECK(errors.size() == wanted_files() + 1);
  CHECK(write_run_json("/nonexistent/folder", some_run()).size() == 1);
}
