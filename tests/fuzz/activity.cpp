// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// CUPTI's records with any contents, and the program's calls, ranges, iterations and windows around them: all
// statistics, tables, summary and run.json.
#include <cupti_activity.h>
#include <cupti_activity_deprecated.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "libinject/output/run_json.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/pipeline/decode.h"
#include "libinject/stats/statistics.h"
#include "tests/fuzz/fuzz.h"

using namespace inject;

namespace {

constexpr std::array<const char*, 8> kKernelNames{"ampere_sgemm_128x64_nn",
                                                  "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                                                  "void at::native::multi_tensor_apply_kernel<x, y>",
                                                  "k",
                                                  "",
                                                  "flash_fwd_kernel",
                                                  "\"a,b\"\n=1+1",
                                                  "sm90_xmma_fprop_implicit_gemm"};
constexpr std::array<const char*, 8> kFunctions{
    "cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize", "cublasSgemm_v2",
    "cublasLtMatmul",   "ncclAllReduce",   "cudnnBackendExecute",   "cudaMalloc"};

/// Small numbers and any: sums and differences of the latter overflow.
std::uint64_t time_of(fuzz::Input& input) {
  return input.flag() ? 1'000'000 + input.number<std::uint16_t>() : input.number<std::uint64_t>();
}
std::uint32_t index_of(fuzz::Input& input) {
  return input.flag() ? input.below(3) : input.number<std::uint32_t>();
}

struct Run {
  NameTable names{1000, std::size_t{1} << 16};
  RangeTree tree{100};
  ShapeTable shapes{100};
  Statistics statistics{names, tree, shapes};
  std::uint32_t settled = 0;
  Nanoseconds until = 0;

  FunctionId function(fuzz::Input& input) const {
    return find_function(kFunctions[input.below(kFunctions.size())]);
  }

  Attribution launch(fuzz::Input& input) {
    Attribution launch;
    launch.known = input.flag();
    if (!launch.known) return launch;
    launch.function = function(input);
    launch.window = index_of(input);
    launch.thread = index_of(input);
    launch.range = input.below(4);
    launch.owner = input.below(4);
    launch.shape = input.below(4);
    launch.chain = input.flag() ? chain_push(0, function(input)) : 0;
    launch.host_begin = time_of(input);
    launch.host_end = time_of(input);
    return launch;
  }

  void kernel(fuzz::Input& input) {
    CUpti_ActivityKernel9 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.start = time_of(input);
    record.end = input.flag() ? record.start + input.number<std::uint16_t>() : time_of(input);
    record.deviceId = index_of(input);
    record.contextId = index_of(input);
    record.streamId = index_of(input);
    record.correlationId = input.below(8);
    record.gridX = input.number<std::int32_t>();
    record.gridY = input.number<std::int8_t>();
    record.gridZ = 1;
    record.blockX = input.number<std::int32_t>();
    record.blockY = input.number<std::int8_t>();
    record.blockZ = 1;
    record.registersPerThread = input.number<std::uint16_t>();
    record.staticSharedMemory = input.number<std::int32_t>();
    record.dynamicSharedMemory = input.number<std::int32_t>();
    const auto& activity = reinterpret_cast<const CUpti_Activity&>(record);
    fuzz::require(activity_kind(activity) == ActivityKind::kKernel, "a kernel's record is one");
    KernelActivity decoded = decode_kernel(activity);
    if (!times_valid(decoded.event.start, decoded.event.end)) return;
    decoded.event.name = names.intern(kKernelNames[input.below(kKernelNames.size())]);
    decoded.event.launch = launch(input);
    statistics.add(decoded.event);
  }

  void transfer(fuzz::Input& input) {
    union {
      CUpti_Activity any;
      CUpti_ActivityMemcpy5 copy;
      CUpti_ActivityMemset4 set;
      CUpti_ActivityMemcpyPtoP4 peer;
      std::array<std::uint8_t, 256> bytes;
    } record{};
    for (std::uint8_t& byte : record.bytes) {
      if (input.empty()) break;
      byte = input.number<std::uint8_t>();
    }
    constexpr std::array kKinds{CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                                CUPTI_ACTIVITY_KIND_MEMSET};
    record.any.kind = kKinds[input.below(kKinds.size())];
    TransferEvent event = decode_transfer(record.any);
    if (input.flag()) {
      event.start = time_of(input);
      event.end = event.start + input.number<std::uint16_t>();
    }
    if (!times_valid(event.start, event.end)) return;
    event.launch = launch(input);
    statistics.add(event);
  }

  void call(fuzz::Input& input) {
    CallEvent event;
    event.function = function(input);
    event.status = input.number<std::int16_t>();
    event.captured = input.flag();
    event.owns_shape = input.flag();
    event.shared = input.flag();
    event.shape = input.below(4);
    event.owner = input.below(4);
    event.call = input.below(4);
    event.window = index_of(input);
    event.thread = index_of(input);
    event.range = input.below(4);
    event.correlation = input.below(8);
    event.chain = input.flag() ? chain_push(0, function(input)) : 0;
    // Both are readings of one clock, on one thread.
    event.begin = time_of(input);
    event.end = std::max<Nanoseconds>(event.begin, time_of(input));
    statistics.add(event);
  }

  void range(fuzz::Input& input) {
    RangeEvent event;
    event.node = tree.child(input.below(4), names.intern(kKernelNames[input.below(kKernelNames.size())]), 0,
                            input.flag() ? RangeStyle::kPushPop : RangeStyle::kStartEnd);
    event.window = index_of(input);
    event.thread = index_of(input);
    event.instance = input.below(8);
    event.clipped = input.flag();
    event.begin = time_of(input);
    event.end = std::max<Nanoseconds>(event.begin, time_of(input));
    statistics.add(event);
  }

  void processor_time(fuzz::Input& input) {
    ProcessorTimeEvent event;
    event.window = index_of(input);
    event.thread = index_of(input);
    event.time = time_of(input);
    event.processor = time_of(input);
    event.waits = input.number<std::uint8_t>();
    statistics.add(event);
  }

  void shape(fuzz::Input& input) {
    const auto type = [&] {
      return static_cast<DataType>(input.below(static_cast<unsigned>(DataType::kOther) + 1));
    };
    GemmShape gemm;
    gemm.op_a = "NTC"[input.below(3)];
    gemm.op_b = "NTC"[input.below(3)];
    gemm.a = type();
    gemm.b = type();
    gemm.c = type();
    gemm.d = type();
    gemm.compute = static_cast<ComputeType>(input.below(static_cast<unsigned>(ComputeType::kOther) + 1));
    gemm.epilogue = input.number<std::uint32_t>();
    gemm.groups = index_of(input);
    gemm.align_a = static_cast<std::uint8_t>(input.below(5));
    gemm.flags = static_cast<std::uint8_t>(input.below(2));
    gemm.batch = index_of(input);
    gemm.m = input.number<std::int64_t>();
    gemm.n = input.number<std::int64_t>();
    gemm.k = input.number<std::int16_t>();
    gemm.lda = input.number<std::int64_t>();
    gemm.flops = input.number<std::uint64_t>();
    gemm.bytes = input.number<std::uint64_t>();
    shapes.intern(gemm);
  }

  void settle(fuzz::Input& input) {
    const Nanoseconds begin = until + input.number<std::uint16_t>();
    until = begin + (input.flag() ? input.number<std::uint32_t>() : input.number<std::uint16_t>());
    ++settled;
    if (input.flag()) statistics.settle_times(settled, begin, until);
    statistics.settle_window(settled, begin, until);
  }
};

std::size_t columns_of(std::string_view line) {
  std::size_t columns = 1;
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) ++columns;
  }
  return columns;
}

/// Each row has as many fields as the header.
void check_table(std::string_view text) {
  std::size_t columns = 0;
  bool quoted = false;
  for (std::size_t begin = 0, i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] != '\n' || quoted) continue;
    const std::size_t found = columns_of(text.substr(begin, i - begin));
    if (columns == 0) columns = found;
    fuzz::require(found == columns, "a row has the header's columns");
    begin = i + 1;
  }
  fuzz::require(columns != 0 && !quoted, "a table has a header, and ends with a row");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Run run;
  for (int events = 0; !input.empty() && events < 400; ++events) {
    switch (input.number<std::uint8_t>() % 8) {
      case 0:
      case 1:
        run.kernel(input);
        break;
      case 2:
        run.transfer(input);
        break;
      case 3:
        run.call(input);
        break;
      case 4:
        run.range(input);
        break;
      case 5:
        run.processor_time(input);
        break;
      case 6:
        run.shape(input);
        break;
      default:
        run.settle(input);
        break;
    }
  }
  RunInfo info;
  info.version = "0";
  info.state = "closed";
  for (std::uint32_t number = 1; number <= run.settled; ++number) {
    WindowInfo window;
    window.number = number;
    window.reason = "api";
    window.state = WindowState::kClosed;
    window.start = 1;
    window.end = run.until;
    info.windows.push_back(window);
  }
  const Report report = build_report(run.statistics, info);
  for (const TableFile& table : table_files()) {
    if (is_wanted(table, report)) check_table(table_text(table, report));
  }
  summary_text(report, "folder");
  run_json_text(info, {}, {});
  return 0;
}
