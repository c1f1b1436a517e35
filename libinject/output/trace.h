// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/base/write_behind_file.h"
#include "libinject/model/event_sink.h"
#include "libinject/model/run_info.h"
#include "libinject/output/columns.h"
#include "libinject/record/name_table.h"

namespace inject {

/// A file of raw records, as described in docs/columns.md.
struct TraceFile {
  std::string_view name;
  std::string_view rows;  ///< what a row is
  std::vector<ColumnInfo> (*columns)();
};
std::span<const TraceFile> trace_files();

/// INJECT_TRACE=csv: cuda_gpu_trace.csv and cuda_api_trace.csv with the headers of Nsight Systems' trace
/// reports, library_trace.csv and thread_cpu_trace.csv; one row per event in order of arrival. Rows are
/// written as they arrive, so memory is bounded and a killed program leaves what was flushed. The number of
/// rows is bounded; further ones are counted. For one thread, with all signals blocked (OutputFile).
class TraceWriter final : public EventSink {
 public:
  struct Context {
    const NameTable* names = nullptr;
    /// Returns the thread that events refer to by this index.
    std::function<ThreadInfo(std::uint32_t thread)> thread;
    std::function<std::string(std::uint32_t device)> device_name;
    int pid = 0;
    Nanoseconds base = 0;  ///< RunInfo::base: times in the files are relative to it
  };
  static constexpr std::uint64_t kMaxRows = 20'000'000;  // of all files together

  explicit TraceWriter(Context context, std::uint64_t max_rows = kMaxRows);

  /// Call before open(); as in WriteBehindFile.
  void write_behind(FileQueue* queue);
  /// Creates the files. False on failure: see error().
  bool open(const std::string& folder);

  using EventSink::add;
  void add(const KernelEvent& event, std::uint16_t attachment = 0) override;
  void add(const TransferEvent& event, std::uint16_t attachment = 0) override;
  void add(const CallEvent& event, std::uint16_t attachment = 0) override;
  void add(const ProcessorTimeEvent& event) override;

  /// Passes everything to the kernel, or to the queue.
  bool flush();
  bool close();

  std::uint64_t rows_left_out() const;
  /// True if some rows were left out because the folder was too slow.
  bool fell_behind() const { return fell_behind_; }
  /// The first failure; empty if there was none. Rows that its file did not accept, then or later, are
  /// counted as left out.
  std::string error() const;

 private:
  bool take_row(WriteBehindFile& file);
  const std::string& name_text(std::uint32_t name);
  const std::string& device_text(std::uint32_t device);
  const ThreadInfo& thread_info(std::uint32_t thread);

  Context context_;
  std::uint64_t rows_left_;
  std::uint64_t rows_left_out_ = 0;
  bool fell_behind_ = false;
  std::array<WriteBehindFile, 4> files_;  // in the order of trace_files()
  WriteBehindFile& gpu_ = files_[0];
  WriteBehindFile& api_ = files_[1];
  WriteBehindFile& library_ = files_[2];
  WriteBehindFile& processor_ = files_[3];
  // The quoted texts of names, devices and threads, by number; each is created once.
  std::vector<std::string> names_;
  std::vector<std::string> devices_;
  std::vector<ThreadInfo> threads_;  // names quoted
};

}  // namespace inject
