// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What one event costs the drain thread, and what a run's tables cost at its end.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "libinject/base/demangle.h"
#include "libinject/output/chrome_trace.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/output/trace.h"
#include "libinject/report/report.h"
#include "libinject/stats/statistics.h"
#include "tests/unit/devices.h"

using namespace inject;

namespace {

/// A training step as the drain thread sees it: 200 kernel names, 600 launch shapes, ranges nested three
/// deep, half of the kernels inside library calls, two threads.
struct Workload {
  NameTable names{1u << 16, std::size_t{16} << 20};
  RangeTree tree{1u << 16};
  ShapeTable shapes{100};
  std::vector<KernelEvent> kernels;

  Workload() {
    std::mt19937 random(1);
    const auto below = [&random](std::uint32_t limit) {
      return static_cast<std::uint32_t>(random() % limit);
    };
    std::vector<std::uint32_t> leaves;
    const std::uint32_t step = tree.child(0, names.intern("step"), 0, RangeStyle::kPushPop);
    for (const char* phase : {"forward", "backward", "optimizer"}) {
      const std::uint32_t node = tree.child(step, names.intern(phase), 0, RangeStyle::kPushPop);
      for (int layer = 0; layer < 10; ++layer) {
        leaves.push_back(
            tree.child(node, names.intern("layer " + std::to_string(layer)), 0, RangeStyle::kPushPop));
      }
    }
    const CallChain gemm =
        chain_push(chain_push(0, find_function("cublasGemmEx")), find_function("cublasLtMatmul"));
    // A kernel's time depends on its name and shape; the same launch varies by a few percent.
    std::lognormal_distribution<double> times(9.0, 1.0);
    std::vector<double> usual;
    for (int i = 0; i < 600; ++i) usual.push_back(times(random));
    std::normal_distribution<double> jitter(1.0, 0.03);
    Nanoseconds clock = 1'000'000;
    for (std::uint32_t i = 0; i < 4096; ++i) {
      KernelEvent event;
      const std::uint32_t name = below(200);
      event.name =
          names.intern("void at::native::vectorized_elementwise_kernel<4, functor" + std::to_string(name) +
                       "<float>, std::array<char*, 3ul> >(int, functor, std::array<char*, 3ul>)");
      const std::uint32_t shape = name * 3 + below(3);
      event.grid = {static_cast<int>(1 + shape), 1, 1};
      event.block = {128, 1, 1};
      event.registers_per_thread = 32;
      event.start = clock;
      event.end = clock + static_cast<Nanoseconds>(usual[shape] * jitter(random));
      clock = event.end + 500;
      event.launch.known = true;
      event.launch.window = 1;
      event.launch.thread = i / 1024 % 2;
      event.launch.range = leaves[i / 137 % leaves.size()];
      event.launch.chain = name % 2 == 0 ? gemm : 0;
      event.launch.function = find_function("cudaLaunchKernel");
      event.launch.host_begin = clock - 100'000;
      kernels.push_back(event);
    }
  }

  void fill(Statistics& statistics, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) statistics.add(kernel(i));
  }

  /// The i-th kernel of a run: the steps follow each other.
  KernelEvent kernel(std::size_t i) const {
    KernelEvent event = kernels[i % kernels.size()];
    const Nanoseconds later = i / kernels.size() * (kernels.back().end - kernels.front().start + 500);
    event.start += later;
    event.end += later;
    event.launch.host_begin += later;
    event.correlation = static_cast<std::uint32_t>(i + 1);
    return event;
  }
};

const Workload& workload() {
  static const Workload instance;
  return instance;
}

void BM_AddKernel(benchmark::State& state) {
  const Workload& work = workload();
  Statistics statistics(work.names, work.tree, work.shapes);
  std::size_t i = 0;
  for (auto _ : state) statistics.add(work.kernel(i++));
}
BENCHMARK(BM_AddKernel);

/// The same with iterations of 1024 kernels, known as they begin.
void BM_AddKernelOfIteration(benchmark::State& state) {
  const Workload& work = workload();
  Statistics statistics(work.names, work.tree, work.shapes);
  std::size_t i = 0;
  for (auto _ : state) {
    const KernelEvent event = work.kernel(i++);
    if (i % 1024 == 1) statistics.iteration_boundary({i / 1024, event.launch.host_begin, 1, 1, {}});
    statistics.add(event);
  }
}
BENCHMARK(BM_AddKernelOfIteration);

std::string fresh_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "inject-bench-XXXXXX").string();
  return mkdtemp(path.data()) == nullptr ? std::string() : path;
}

void remove_folder(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

CallEvent call_of(const KernelEvent& kernel) {
  CallEvent call;
  call.function = kernel.launch.function;
  call.window = 1;
  call.thread = kernel.launch.thread;
  call.correlation = kernel.correlation;
  call.begin = kernel.launch.host_begin;
  call.end = kernel.launch.host_begin + 3000 + kernel.start % 701;
  return call;
}

/// A kernel and the call that launched it, in the raw records' tables.
void BM_CsvTrace(benchmark::State& state) {
  const Workload& work = workload();
  const std::string folder = fresh_folder();
  TraceWriter::Context context;
  context.names = &work.names;
  TraceWriter trace(context, ~std::uint64_t{0});
  if (!trace.open(folder)) state.SkipWithError("no folder");
  std::size_t i = 0;
  for (auto _ : state) {
    const KernelEvent event = work.kernel(i++);
    trace.add(call_of(event));
    trace.add(event);
  }
  trace.close();
  remove_folder(folder);
}
BENCHMARK(BM_CsvTrace);

/// The same in the timeline, with the arrow between them; its size is a counter, in bytes for each such pair.
void BM_ChromeTrace(benchmark::State& state) {
  const Workload& work = workload();
  const std::string folder = fresh_folder();
  const std::vector<DeviceInfo> devices{h200(0)};
  ChromeTrace::Context context;
  context.names = &work.names;
  context.ranges = &work.tree;
  context.devices = [&devices] { return std::span<const DeviceInfo>(devices); };
  context.pid = 123'456;
  ChromeTrace trace(context, {~std::uint64_t{0}, ~std::uint64_t{0}});
  if (!trace.open(folder)) state.SkipWithError("no folder");
  std::size_t i = 0;
  for (auto _ : state) {
    const KernelEvent event = work.kernel(i++);
    trace.add(call_of(event), 1);
    trace.add(event, 1);
  }
  trace.complete({});
  state.counters["bytes"] =
      static_cast<double>(std::filesystem::file_size(folder + "/" + ChromeTrace::kFileName)) /
      static_cast<double>(std::max<std::size_t>(i, 1));
  remove_folder(folder);
}
BENCHMARK(BM_ChromeTrace);

void BM_AddKernelOutsideRanges(benchmark::State& state) {
  const Workload& work = workload();
  std::vector<KernelEvent> kernels = work.kernels;
  for (KernelEvent& event : kernels) event.launch.range = 0;
  Statistics statistics(work.names, work.tree, work.shapes);
  std::size_t i = 0;
  for (auto _ : state) statistics.add(kernels[i++ % kernels.size()]);
}
BENCHMARK(BM_AddKernelOutsideRanges);

void BM_AddCall(benchmark::State& state) {
  const Workload& work = workload();
  Statistics statistics(work.names, work.tree, work.shapes);
  CallEvent event;
  event.function = find_function("cudaLaunchKernel");
  event.window = 1;
  event.end = 3000;
  for (auto _ : state) {
    event.begin = (event.begin + 7) % 3000;
    statistics.add(event);
  }
}
BENCHMARK(BM_AddCall);

void BM_AddLibraryCall(benchmark::State& state) {
  const Workload& work = workload();
  Statistics statistics(work.names, work.tree, work.shapes);
  CallEvent event;
  event.function = find_function("cublasLtMatmul");
  event.chain = chain_push(0, find_function("cublasGemmEx"));
  event.window = 1;
  event.end = 3000;
  for (auto _ : state) statistics.add(event);
}
BENCHMARK(BM_AddLibraryCall);

void BM_AddRange(benchmark::State& state) {
  const Workload& work = workload();
  Statistics statistics(work.names, work.tree, work.shapes);
  RangeEvent event;
  event.node = work.kernels[0].launch.range;
  event.window = 1;
  for (auto _ : state) {
    event.begin += 100;
    event.end = event.begin + 90;
    statistics.add(event);
  }
}
BENCHMARK(BM_AddRange);

/// 1,000,000 kernels of 200 names: what is left to do at the end.
void BM_AllTables(benchmark::State& state) {
  const Workload& work = workload();
  Statistics statistics(work.names, work.tree, work.shapes);
  const std::size_t before = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  work.fill(statistics, 1'000'000);
  const std::size_t after = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  state.counters["heap_MB"] = static_cast<double>(after - before) / 1e6;
  const RunInfo info;
  std::size_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    const Report report = build_report(statistics, info);
    for (const TableFile& table : table_files()) bytes += table_text(table, report).size();
    bytes += summary_text(report, "/out").size();
  }
  state.counters["text_MB"] = static_cast<double>(bytes) / 1e6;
}
BENCHMARK(BM_AllTables)->Unit(benchmark::kMillisecond);

/// Tables at their bounds: as many keys as there is room for, with as many values as the medians' budget has.
void BM_FullTables(benchmark::State& state) {
  NameTable names{1u << 16, std::size_t{16} << 20};
  const RangeTree tree{1u << 10};
  const std::size_t before = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  ShapeTable shapes(100);
  Statistics statistics(names, tree, shapes);
  std::mt19937 random(2);
  std::vector<KernelEvent> kernels;
  for (int i = 0; i < 12'000; ++i) {
    KernelEvent event;
    event.name = names.intern("kernel number " + std::to_string(i));
    event.grid = {i, 1, 1};
    event.launch.known = true;
    kernels.push_back(event);
  }
  for (int round = 0; round < 200; ++round) {
    for (KernelEvent& event : kernels) {
      event.end = event.start + (std::uint64_t{1} << random() % 40) + random() % 1024;
      statistics.add(event);
    }
  }
  const std::size_t after = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
  state.counters["heap_MB"] = static_cast<double>(after - before) / 1e6;
  const RunInfo info;
  for (auto _ : state) {
    std::size_t bytes = 0;
    const Report report = build_report(statistics, info);
    for (const TableFile& table : table_files()) bytes += table_text(table, report).size();
    benchmark::DoNotOptimize(bytes);
  }
}
BENCHMARK(BM_FullTables)->Unit(benchmark::kMillisecond)->Iterations(1);

/// As many shapes of library calls as there is room for: all tables, the diagnosis and the summary once, as
/// the files are written. `range(0)`: calls that are still joined to their kernels, as amid a window.
void BM_TablesOfShapes(benchmark::State& state) {
  NameTable names{1u << 16, std::size_t{16} << 20};
  const RangeTree tree{1u << 10};
  ShapeTable shapes(CallShapeStatistics::kMaxRows + 1);
  Statistics statistics(names, tree, shapes);
  KernelEvent kernel;
  kernel.launch.known = true;
  kernel.launch.window = 1;
  kernel.launch.chain = chain_push(0, find_function("cublasGemmEx"));
  CallEvent call;
  call.function = find_function("cublasGemmEx");
  call.owns_shape = true;
  call.window = 1;
  const std::uint32_t count = CallShapeStatistics::kMaxRows;
  const auto joined = static_cast<std::uint32_t>(state.range(0));
  for (std::uint32_t i = 0; i < std::max(count, joined); ++i) {
    if (i == std::max(count, joined) - joined) statistics.settle_window(1, 0, kernel.end);
    if (i >= std::max(count, joined) - joined) call.window = kernel.launch.window = 2;
    GemmShape shape;
    shape.m = 8 * (1 + i % count);
    shape.n = shape.k = 1024;
    shape.a = shape.b = shape.c = shape.d = DataType::kF16;
    call.shape = kernel.launch.shape = shapes.intern(shape);
    call.call = kernel.launch.owner = i + 1;
    call.begin = kernel.end;
    call.end = call.begin + 1000;
    statistics.add(call);
    kernel.name = names.intern("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize" + std::to_string(i % 200));
    kernel.grid = {static_cast<std::int32_t>(1 + i % count), 1, 1};
    kernel.block = {128, 1, 1};
    kernel.start = call.end;
    kernel.end = kernel.start + 1000 + i % 977;
    statistics.add(kernel);
  }
  if (joined == 0) statistics.settle_window(1, 0, kernel.end);
  RunInfo run;
  for (auto _ : state) {
    state.PauseTiming();
    statistics.add(call);  // something has come since the files were last written
    state.ResumeTiming();
    std::size_t bytes = 0;
    const Report report = build_report(statistics, run);
    for (const TableFile& table : table_files()) bytes += table_text(table, report).size();
    bytes += summary_text(report, "/out").size();
    benchmark::DoNotOptimize(bytes);
  }
}
BENCHMARK(BM_TablesOfShapes)->Unit(benchmark::kMillisecond)->Arg(0)->Arg(CallShapeStatistics::kMaxCalls);

void BM_Demangle(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        demangle("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
                 "addIfEESt5arrayIPcLm3EEEEviT0_T1_"));
  }
}
BENCHMARK(BM_Demangle);

}  // namespace

BENCHMARK_MAIN();
