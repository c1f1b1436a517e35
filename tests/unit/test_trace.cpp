// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/trace.h"

#include <sys/resource.h>

#include <filesystem>

#include "libinject/base/host_io.h"
#include "tests/unit/stats_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;

namespace {

TraceWriter::Context context_of(const StatsRun& run) {
  TraceWriter::Context context;
  context.names = &run.names;
  context.thread = [](std::uint32_t thread) {
    return ThreadInfo{100u + thread, "thread, " + std::to_string(thread)};
  };
  context.device_name = [](std::uint32_t) { return std::string("NVIDIA H200"); };
  context.pid = 42;
  context.base = 500;
  return context;
}

constexpr const char* kGpuHeader =
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes "
    "(MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n";

}  // namespace

TEST_CASE("Rows of the GPU trace", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  TraceWriter trace(context_of(run));
  REQUIRE(trace.open(folder.path()));
  KernelEvent kernel = run.kernel("burn(float*, int)", 75200);
  kernel.correlation = 1312;
  kernel.grid = {148, 1, 1};
  kernel.block = {256, 1, 1};
  kernel.registers_per_thread = 36;
  kernel.dynamic_shared_bytes = 214'016;
  kernel.context = 1;
  kernel.stream = 7;
  trace.add(kernel);
  TransferEvent copy = copy_event(1, 4000, 2000);
  copy.correlation = 1313;
  copy.source_memory = 2;
  copy.target_memory = 3;
  copy.context = 1;
  copy.stream = 13;
  copy.device = 1;
  trace.add(copy);
  TransferEvent memset = memset_event(262'144, 0);
  memset.target_memory = 3;
  memset.start = memset.end = 400;  // before the base
  trace.add(memset);
  CHECK(trace.close());
  CHECK(trace.error().empty());
  CHECK(folder.read("cuda_gpu_trace.csv") ==
        std::string(kGpuHeader) +
            "500,75200,1312,148,1,1,256,1,1,36,0.000,0.214,,,,,NVIDIA H200 (0),1,,7,\"burn(float*, int)\"\n"
            "-490,2000,1313,,,,,,,,,,0.004,2000.000,Pinned,Device,NVIDIA H200 (1),1,,13,[CUDA memcpy "
            "Host-to-Device]\n"
            "-100,0,0,,,,,,,,,,0.262,,Device,,NVIDIA H200 (0),0,,0,[CUDA memset]\n");
}

TEST_CASE("Rows of the API and library traces", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  TraceWriter trace(context_of(run));
  REQUIRE(trace.open(folder.path()));
  CallEvent launch = call_event("cudaLaunchKernel", 300);
  launch.begin += 100;
  launch.end += 100;
  launch.correlation = 101;
  launch.thread = 1;
  trace.add(launch);
  CallEvent failed = call_event("cudaMalloc", 10);
  failed.status = 2;
  trace.add(failed);
  CallEvent matmul = call_event("cublasLtMatmul", 20, chain_of({"cublasGemmEx"}));
  matmul.status = 7;
  trace.add(matmul);
  trace.add(call_event("cuptiSubscribe", 10));
  CHECK(trace.close());
  CHECK(folder.read("cuda_api_trace.csv") ==
        "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
        "100,300,cudaLaunchKernel,0,101,42,101,,\"thread, 1\"\n"
        "0,10,cudaMalloc,2,0,42,100,,\"thread, 0\"\n");
  CHECK(folder.read("library_trace.csv") ==
        "Start (ns),Duration (ns),Name,Result,Depth,Pid,Tid,Thread Name\n"
        "0,20,cublasLtMatmul,7,1,42,100,\"thread, 0\"\n");
}

TEST_CASE("The number of rows is bounded", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  TraceWriter trace(context_of(run), 3);
  REQUIRE(trace.open(folder.path()));
  for (int i = 0; i < 5; ++i) trace.add(run.kernel("k", 1));
  trace.add(call_event("cudaMalloc", 1));
  CHECK(trace.close());
  CHECK(trace.rows_left_out() == 3);
  const std::string text = folder.read("cuda_gpu_trace.csv");
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);
}

TEST_CASE("A trace that cannot be written says so once and counts what it leaves out", "[output]") {
  StatsRun run;
  TraceWriter trace(context_of(run));
  CHECK_FALSE(trace.open("/nonexistent"));
  CHECK(trace.error().find("cannot create /nonexistent/cuda_gpu_trace.csv") == 0);
  trace.add(run.kernel("k", 1));
  CHECK(trace.rows_left_out() == 1);
  CHECK_FALSE(trace.flush());
  // The trace of an earlier run is not overwritten.
  const TemporaryFolder folder;
  TraceWriter first(context_of(run));
  CHECK(first.open(folder.path()));
  TraceWriter second(context_of(run));
  CHECK_FALSE(second.open(folder.path()));
}

TEST_CASE("Of a trace that cannot be opened completely, no file is left", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  TraceWriter first(context_of(run));
  REQUIRE(first.open(folder.path()));
  REQUIRE(std::filesystem::remove(folder.path() + "/cuda_gpu_trace.csv"));
  TraceWriter trace(context_of(run));
  CHECK_FALSE(trace.open(folder.path()));
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/cuda_gpu_trace.csv"));
  trace.add(run.kernel("k", 1));
  CHECK(trace.rows_left_out() == 1);
}

TEST_CASE("Rows whose file fails are left out, those in its buffer as well", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  TraceWriter trace(context_of(run));
  REQUIRE(trace.open(folder.path()));
  trace.add(run.kernel("k", 1));
  REQUIRE(trace.flush());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const std::string written = folder.read("cuda_gpu_trace.csv");
  {
    const QuietSignals quiet;
    // Only part of a row fits: none of it may remain.
    const rlimit little{written.size() + 10, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &little) == 0);
    for (int i = 0; i < 3; ++i) trace.add(run.kernel("k", 1));
    CHECK_FALSE(trace.flush());
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  }
  CHECK(trace.rows_left_out() == 3);
  trace.add(run.kernel("k", 1));
  CHECK(trace.rows_left_out() == 4);
  CHECK_FALSE(trace.close());
  CHECK(trace.rows_left_out() == 4);
  CHECK(folder.read("cuda_gpu_trace.csv") == written);
}

TEST_CASE("Damaged events do not harm the trace", "[output]") {
  const TemporaryFolder folder;
  StatsRun run;
  TraceWriter trace(context_of(run));
  REQUIRE(trace.open(folder.path()));
  KernelEvent kernel = run.kernel("k", 1);
  kernel.name = 0xfffffff0;
  kernel.device = 0xfffffff0;
  trace.add(kernel);
  TransferEvent copy = copy_event(77, 1, 1);
  copy.source_memory = 99;
  trace.add(copy);
  CallEvent call = call_event("cudaMalloc", 1);
  call.thread = 0xfffffff0;
  trace.add(call);
  CHECK(trace.close());
  CHECK(folder.read("cuda_gpu_trace.csv").find("Unknown,Unknown") != std::string::npos);
}
