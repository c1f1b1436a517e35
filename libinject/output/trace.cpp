// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/trace.h"

#include <unistd.h>

#include <array>
#include <tuple>
#include <utility>

#include "libinject/base/csv.h"
#include "libinject/base/format.h"
#include "libinject/model/functions.h"
#include "libinject/stats/statistics.h"

namespace inject {

namespace {

using namespace units;

constexpr std::string_view kKernelsOnly = "copies and memsets";
constexpr std::string_view kTransfersOnly = "kernels";

std::vector<ColumnInfo> gpu_columns() {
  return {{"Start (ns)", kMoment, "When it started on the device.", ""},
          {"Duration (ns)", kTime, "End - start.", ""},
          {"CorrId", kNumber, "CUPTI's correlation id of the call that submitted it.", ""},
          {"GrdX", kCount, "Blocks in x.", kKernelsOnly},
          {"GrdY", kCount, "Blocks in y.", kKernelsOnly},
          {"GrdZ", kCount, "Blocks in z.", kKernelsOnly},
          {"BlkX", kCount, "Threads per block in x.", kKernelsOnly},
          {"BlkY", kCount, "Threads per block in y.", kKernelsOnly},
          {"BlkZ", kCount, "Threads per block in z.", kKernelsOnly},
          {"Reg/Trd", kCount, "Registers per thread.", kKernelsOnly},
          {"StcSMem (MB)", kMegabytes, "Static shared memory per block.", kKernelsOnly},
          {"DymSMem (MB)", kMegabytes, "Dynamic shared memory per block.", kKernelsOnly},
          {"Bytes (MB)", kMegabytes, "Bytes copied or set.", kTransfersOnly},
          {"Throughput (MB/s)", {"MB/s", "≥ 0", 3}, "Bytes / Duration.", "kernels; no duration"},
          {"SrcMemKd", kText, "Kind of memory copied from; for memsets, written to.", kTransfersOnly},
          {"DstMemKd", kText, "Kind of memory copied to.", "kernels and memsets"},
          {"Device", kText, "The GPU's name and its number in the process.", ""},
          {"Ctx", kNumber, "Context number.", ""},
          {"GreenCtx", kText, "Always empty; kept because Nsight Systems has this column.", "always"},
          {"Strm", kNumber, "Stream number.", ""},
          {"Name", kText, "The kernel, or `[CUDA memcpy …]`, `[CUDA memset]`.", ""}};
}

std::vector<ColumnInfo> api_columns() {
  return {{"Start (ns)", kMoment, "When the call began.", ""},
          {"Duration (ns)", kTime, "Time in the call.", ""},
          {"Name", kText, "The runtime or driver function.", ""},
          {"Result", kNumber, "What it returned; 0 is success.", ""},
          {"CorrID", kNumber, "CUPTI's correlation id of what it submitted; 0: it submitted nothing.", ""},
          {"Pid", kNumber, "The process.", ""},
          {"Tid", kNumber, "The thread.", ""},
          {"T-Pri", kText, "Always empty; kept because Nsight Systems has this column.", "always"},
          {"Thread Name", kText, "The thread's name.", "not known"}};
}

std::vector<ColumnInfo> library_columns() {
  return {{"Start (ns)", kMoment, "When the call began.", ""},
          {"Duration (ns)", kTime, "Time in the call.", ""},
          {"Name", kText, "The function.", ""},
          {"Result", kNumber, "What it returned; 0 is success.", ""},
          {"Depth", kCount, "Number of enclosing library calls.", ""},
          {"Pid", kNumber, "The process.", ""},
          {"Tid", kNumber, "The thread.", ""},
          {"Thread Name", kText, "The thread's name.", "not known"}};
}

std::vector<ColumnInfo> processor_columns() {
  return {{"Time (ns)", kMoment, "When it was read.", ""},
          {"CPU Time (ns)", kTime, "Processor time of the thread so far.", ""},
          {"Voluntary Switches", kCount,
           "How often the thread has voluntarily given up the processor so far.", ""},
          {"Tid", kNumber, "The thread.", ""}};
}

constexpr std::array kFiles{
    TraceFile{"cuda_gpu_trace.csv", "A kernel, copy or memset.", gpu_columns},
    TraceFile{"cuda_api_trace.csv", "A CUDA runtime or driver call.", api_columns},
    TraceFile{"library_trace.csv", "A cuBLAS, cuBLASLt, cuDNN or NCCL call.", library_columns},
    TraceFile{"thread_cpu_trace.csv", "A reading of a thread's processor time (diagnosis.md).",
              processor_columns},
};

// A run's numbers of devices and threads stay small; a number from a damaged record must not cost memory.
constexpr std::uint32_t kMaxDevices = 1u << 10;
constexpr std::uint32_t kMaxThreads = 1u << 20;

std::string field(std::string_view text) {
  std::string quoted;
  CsvRow(quoted).text(text);
  return quoted;
}

template <typename Value, typename Make>
const Value& cached(std::vector<Value>& cache, std::uint32_t index, std::uint32_t limit, const Make& make) {
  static const Value& nothing = *new Value{};  // never destroyed: the last tables are written at exit
  if (index >= limit) return nothing;
  if (index >= cache.size()) cache.resize(index + 1);
  if (cache[index] == Value{}) cache[index] = make();
  return cache[index];
}

std::int64_t since(Nanoseconds time, Nanoseconds base) {
  return static_cast<std::int64_t>(time - base);
}

double megabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

}  // namespace

std::span<const TraceFile> trace_files() {
  return kFiles;
}

TraceWriter::TraceWriter(Context context, std::uint64_t max_rows)
    : context_(std::move(context)), rows_left_(max_rows) {}

void TraceWriter::write_behind(FileQueue* queue) {
  for (WriteBehindFile& file : files_) file.write_behind(queue);
}

bool TraceWriter::open(const std::string& folder) {
  // Not through a temporary file, because what a killed program has traced so far is worth having.
  static_assert(kFiles.size() == std::tuple_size_v<decltype(files_)>);
  for (std::size_t i = 0; i < kFiles.size(); ++i) {
    if (!files_[i].open(folder + "/" + std::string(kFiles[i].name), OutputFile::Existing::kRefuse)) {
      // Some of the files alone would look like a complete trace. From here on, all rows are left out.
      for (; i > 0; --i) {
        files_[i - 1].close();
        unlink((folder + "/" + std::string(kFiles[i - 1].name)).c_str());
      }
      return false;
    }
    files_[i].buffer() += header_line(kFiles[i].columns()) + "\n";
  }
  return true;
}

bool TraceWriter::take_row(WriteBehindFile& file) {
  const bool room = file.has_room();
  fell_behind_ = fell_behind_ || !room;
  if (rows_left_ == 0 || !file.is_open() || !room) {
    ++rows_left_out_;
    return false;
  }
  --rows_left_;
  return true;
}

const std::string& TraceWriter::name_text(std::uint32_t name) {
  return cached(names_, name, context_.names->size(), [&] { return field(context_.names->name(name)); });
}

const std::string& TraceWriter::device_text(std::uint32_t device) {
  return cached(devices_, device, kMaxDevices, [&] {
    const std::string name = context_.device_name ? context_.device_name(device) : std::string();
    return field(str_format("{} ({})", name, device));
  });
}

const ThreadInfo& TraceWriter::thread_info(std::uint32_t thread) {
  return cached(threads_, thread, kMaxThreads, [&] {
    ThreadInfo info = context_.thread ? context_.thread(thread) : ThreadInfo{};
    info.name = field(info.name);
    return info;
  });
}

void TraceWriter::add(const KernelEvent& event, std::uint16_t /*attachment*/) {
  if (!take_row(gpu_)) return;
  CsvRow row(gpu_.buffer());
  row.number(since(event.start, context_.base)).number(event.end - event.start).number(event.correlation);
  for (const std::int32_t size : event.grid) row.number(size);
  for (const std::int32_t size : event.block) row.number(size);
  row.number(event.registers_per_thread);
  row.decimal(megabytes(event.static_shared_bytes), 3).decimal(megabytes(event.dynamic_shared_bytes), 3);
  row.empty().empty().empty().empty();
  row.raw(device_text(event.device)).number(event.context).empty().number(event.stream);
  row.raw(name_text(event.name)).end();
  gpu_.end_row();
}

void TraceWriter::add(const TransferEvent& event, std::uint16_t /*attachment*/) {
  if (!take_row(gpu_)) return;
  const std::uint64_t duration = event.end - event.start;
  CsvRow row(gpu_.buffer());
  row.number(since(event.start, context_.base)).number(duration).number(event.correlation);
  for (int i = 0; i < 9; ++i) row.empty();
  row.decimal(megabytes(event.bytes), 3);
  if (duration == 0) {
    row.empty();
  } else {
    row.decimal(static_cast<double>(event.bytes) * 1e3 / static_cast<double>(duration), 3);
  }
  if (event.memset) {
    // Nsight Systems puts the memory being set into the source's column.
    row.text(memory_kind_name(event.target_memory)).empty();
  } else {
    row.text(memory_kind_name(event.source_memory)).text(memory_kind_name(event.target_memory));
  }
  row.raw(device_text(event.device)).number(event.context).empty().number(event.stream);
  row.text(operation_name(event)).end();
  gpu_.end_row();
}

void TraceWriter::add(const CallEvent& event, std::uint16_t /*attachment*/) {
  const bool library = is_library_function(event.function);
  if (!library && !is_api_function(event.function)) return;
  WriteBehindFile& file = library ? library_ : api_;
  if (!take_row(file)) return;
  const ThreadInfo& thread = thread_info(event.thread);
  CsvRow row(file.buffer());
  row.number(since(event.begin, context_.base))
      .number(event.end - event.begin)
      .text(function_name(event.function));
  row.number(event.status);
  if (library) {
    row.number(library_depth(event.chain));
  } else {
    row.number(event.correlation);
  }
  row.number(context_.pid).number(thread.tid);
  if (!library) row.empty();  // the thread's priority
  row.raw(thread.name).end();
  file.end_row();
}

void TraceWriter::add(const ProcessorTimeEvent& event) {
  if (!take_row(processor_)) return;
  CsvRow(processor_.buffer())
      .number(since(event.time, context_.base))
      .number(event.processor)
      .number(event.waits)
      .number(thread_info(event.thread).tid)
      .end();
  processor_.end_row();
}

bool TraceWriter::flush() {
  bool good = true;
  for (WriteBehindFile& file : files_) good = file.flush() && good;
  return good;
}

bool TraceWriter::close() {
  bool good = true;
  for (WriteBehindFile& file : files_) good = file.close() && good;
  return good;
}

std::uint64_t TraceWriter::rows_left_out() const {
  std::uint64_t left_out = rows_left_out_;
  for (const WriteBehindFile& file : files_) left_out += file.rows_lost();
  return left_out;
}

std::string TraceWriter::error() const {
  for (const WriteBehindFile& file : files_) {
    if (std::string error = file.error(); !error.empty()) return error;
  }
  return {};
}

}  // namespace inject
