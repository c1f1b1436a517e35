// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/session/drain_sources.h"

#include <cupti_activity.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "libinject/iterations/iteration_search.h"
#include "tests/unit/catch.h"

using namespace inject;

namespace {

using Rows = std::vector<std::string>;

/// Keeps what the drain is told, one row each.
class Kept : public IntakeLog {
 public:
  /// A queue's block may end anywhere between records.
  void take_run(std::uint32_t /*thread*/, const Block& /*block*/, BlockPosition from, BlockPosition to,
                bool /*done*/) override {
    if (from == to) return;
    if (records_ != 0) rows.pop_back();
    records_ += (to - from) / kBlockSteps;
    rows.push_back("records " + std::to_string(records_));
  }
  void begin_buffer(std::uint64_t /*sequence*/, std::uint16_t generation) override {
    rows.push_back("buffer " + std::to_string(generation));
  }
  void take(const KernelEvent& event, const char* pointer, std::uint32_t /*name*/) override {
    rows.push_back("kernel " + std::to_string(event.correlation) + " " +
                   (pointer == nullptr ? "without a name" : pointer));
  }
  void take(const TransferEvent& event) override {
    rows.push_back((event.memset ? "memset " : "copy ") + std::to_string(event.correlation));
  }
  void end_buffer() override { rows.push_back("end"); }
  void keep_record_size(std::uint32_t kind, std::uint64_t bytes) override {
    rows.push_back("size " + std::to_string(kind) + " " + std::to_string(bytes));
  }
  void drops(std::uint32_t window, HostDrops drops) override {
    rows.push_back("dropped " + std::to_string(window) + " " + std::to_string(drops.calls));
  }
  void settle(std::uint64_t dropped_by_cupti, bool delivered, std::uint32_t /*last*/) override {
    rows.push_back("settle " + std::to_string(dropped_by_cupti) + (delivered ? " delivered" : ""));
  }
  void commit() override {
    records_ = 0;
    rows.push_back("commit");
  }

  Rows rows;

 private:
  std::uint32_t records_ = 0;  // in this pass
};

/// Size of a CUPTI record; the next one follows it directly.
std::size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return sizeof(CUpti_ActivityKernel9);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return sizeof(CUpti_ActivityMemcpy5);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return sizeof(CUpti_ActivityMemset4);
    default:
      return sizeof(CUpti_ActivityOverhead);
  }
}

CUptiResult CUPTIAPI next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  std::uint8_t* const at =
      *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + size_of((*record)->kind);
  if (at == buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  return CUPTI_SUCCESS;
}

/// This thread's queue, which is registered in this process, and CUPTI's buffers, filled by hand.
struct Sources {
  static constexpr std::uint16_t kGeneration = 3;

  Sources() {
    cupti.ActivityGetNextRecord = &next_record;
    core.threads.drain([](std::uint32_t, const Slot&) {});  // left over from an earlier test
    sources.pass(nullptr);                                  // losses of an earlier test
    noted = 0;
    sources.log_to(log);
  }

  void launch(std::uint32_t correlation) {
    CallRecord record;
    record.function = find_function("cudaLaunchKernel");
    record.correlation = correlation;
    record.begin = 1000;
    record.end = 1100;
    record.window = 1;
    record.generation = kGeneration;
    record.call = correlation;
    ThreadRegistry::push(*ThreadRegistry::current(), record);
  }
  template <typename Record>
  void put(Record record, CUpti_ActivityKind kind) {
    record.kind = kind;
    std::memcpy(buffer.data + used, &record, sizeof record);
    used += sizeof record;
  }
  void kernel(std::uint32_t correlation, const char* name = "_Z5alphav") {
    CUpti_ActivityKernel9 record{};
    record.start = 2000;
    record.end = 2500;
    record.correlationId = correlation;
    record.gridX = record.gridY = record.gridZ = record.blockX = record.blockY = record.blockZ = 1;
    record.name = name;
    put(record, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  }
  void copy(std::uint32_t correlation) {
    CUpti_ActivityMemcpy5 record{};
    record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
    record.bytes = 4096;
    record.start = 2600;
    record.end = 2700;
    record.correlationId = correlation;
    put(record, CUPTI_ACTIVITY_KIND_MEMCPY);
  }
  void memset(std::uint32_t correlation) {
    CUpti_ActivityMemset4 record{};
    record.bytes = 16;
    record.start = 2800;
    record.end = 2900;
    record.correlationId = correlation;
    put(record, CUPTI_ACTIVITY_KIND_MEMSET);
  }
  void other() { put(CUpti_ActivityOverhead{}, CUPTI_ACTIVITY_KIND_OVERHEAD); }
  void begin() {
    buffer = buffers.take(kGeneration);
    REQUIRE(buffer.data != nullptr);
    used = 0;
  }
  void complete() { REQUIRE(buffers.complete(buffer.data, used)); }
  Rows told() { return std::exchange(log.rows, {}); }

  Core& core = *Core::get();
  ActivityBuffers buffers{std::size_t{1} << 20};
  WindowLog windows;
  Statistics statistics{core.names, core.ranges, core.shapes};
  Drain drain{core, windows, statistics, [] {}};
  DrainSources sources{core, buffers, windows, drain, [this] {
                         ++noted;
                         if (opens) windows.open("launch:0+1", 500);
                         opens = false;
                       }};
  Kept log;
  CuptiApi cupti;
  ActivityBuffers::Buffer buffer;
  std::size_t used = 0;
  int noted = 0;
  bool opens = false;
};

}  // namespace

TEST_CASE_METHOD(Sources, "a pass takes the threads' records, then CUPTI's", "[record]") {
  windows.open("test", 900);
  for (std::uint32_t correlation = 1; correlation <= 4; ++correlation) launch(correlation);
  begin();
  kernel(1);
  copy(2);
  other();
  memset(3);
  kernel(4, nullptr);
  complete();
  sources.pass(&cupti);
  const auto size = [](CUpti_ActivityKind kind) {
    return "size " + std::to_string(kind) + " " + std::to_string(size_of(kind));
  };
  CHECK(told() == Rows{"records 4", "buffer 3", "kernel 1 _Z5alphav",
                       size(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "copy 2",
                       size(CUPTI_ACTIVITY_KIND_MEMCPY), size(CUPTI_ACTIVITY_KIND_OVERHEAD), "memset 3",
                       size(CUPTI_ACTIVITY_KIND_MEMSET), "kernel 4 without a name", "end", "commit"});
  // Each record found its launch.
  CHECK(drain.waiting() == 0);
  CHECK(drain.unattributed() == 0);
  CHECK(statistics.host_total().submissions == 4);
  CHECK(statistics.device_total().kernels.count == 2);
  CHECK(buffers.handled() == 1);
  CHECK(buffers.outstanding() == 0);
}

TEST_CASE_METHOD(Sources,
                 "a record from before the first launch is the window's only where launches are lost",
                 "[record]") {
  const bool lost = GENERATE(false, true);
  windows.open("test", 900);
  launch(5);
  if (lost) drain.take_drops(1, {1, 0});
  begin();
  kernel(4);  // starts in the window
  kernel(5);
  complete();
  sources.pass(&cupti);
  windows.end(1, 3000);
  sources.settle(true);
  CHECK(drain.unattributed() == (lost ? 1 : 0));
  CHECK(statistics.device_total().kernels.count == (lost ? 2 : 1));
}

TEST_CASE_METHOD(Sources, "buffers wait where there is no CUPTI to step through them", "[record]") {
  windows.open("test", 900);
  launch(1);
  begin();
  kernel(1);
  complete();
  sources.pass(nullptr);
  CHECK(told() == Rows{"records 1", "commit"});
  CHECK(drain.waiting() == 1);
  sources.pass(&cupti);
  CHECK(drain.waiting() == 0);
}

TEST_CASE_METHOD(Sources, "a buffer without a record is given back", "[record]") {
  begin();
  complete();
  sources.pass(&cupti);
  CHECK(told() == Rows{"buffer 3", "end", "commit"});
  CHECK(buffers.outstanding() == 0);
}

TEST_CASE_METHOD(Sources, "a device record may come a pass before its launch", "[record]") {
  windows.open("test", 900);
  begin();
  kernel(1);
  complete();
  sources.pass(&cupti);
  CHECK(statistics.device_total().kernels.count == 0);
  launch(1);
  sources.pass(&cupti);
  CHECK(statistics.device_total().kernels.count == 1);
  CHECK(drain.waiting() == 0);
}

TEST_CASE_METHOD(Sources, "signs that came during a pass wait for the next", "[record][iterations]") {
  IterationSearch search(core.mangled, core.names, core.clock);
  drain.search_with(&search);
  for (std::uint64_t i = 0; i < 3; ++i) emit_sign(SignKind::kKernel, 10 + i, 20, 7, false);
  sources.pass(nullptr, true);
  CHECK(search.detector().events() == 0);  // signs are held back
  sources.pass(nullptr);
  CHECK(search.detector().events() == 3);
  emit_sign(SignKind::kKernel, 10, 20, 7, false);
  sources.pass(nullptr);
  CHECK(search.detector().events() == 4);
  drain.search_with(nullptr);
}

TEST_CASE("records that found no room are counted in their window", "[record]") {
  Sources run;
  run.windows.open("test", 900, run.core.threads.host_drops());
  const std::uint64_t before = run.core.threads.host_drops().calls;
  const std::size_t most = 8 * (run.core.configuration.options.ring_bytes / sizeof(CallRecord));
  std::uint32_t correlation = 0;
  while (run.core.threads.host_drops().calls < before + 5 && correlation < most) run.launch(++correlation);
  REQUIRE(run.core.threads.host_drops().calls == before + 5);
  // The window that just opened by itself takes all of them.
  run.opens = true;
  run.sources.pass(nullptr);
  CHECK(run.noted == 1);
  const Rows rows = run.told();
  CHECK(rows.back() == "commit");
  CHECK(rows[rows.size() - 2] == "dropped 2 5");
  CHECK(run.windows.copy()[1].losses.host_records == 5);
  // Only once.
  run.sources.pass(nullptr);
  CHECK(run.noted == 1);
  CHECK(run.told() == Rows{"commit"});
  CHECK(run.windows.copy()[1].losses.host_records == 5);
}

TEST_CASE_METHOD(Sources, "what has not come by the end is missing", "[record]") {
  windows.open("test", 900);
  launch(1);
  launch(2);
  begin();
  kernel(2);
  complete();
  sources.pass(&cupti);
  windows.end(1, 3000);
  told();
  sources.note_activity_drops();
  sources.settle(true);
  CHECK(told() == Rows{"settle 0 delivered"});
  CHECK(windows.copy()[0].losses.missing_records == 1);
  CHECK(drain.waiting() == 0);
  sources.note_activity_drops();
  sources.settle(false);
  CHECK(told() == Rows{"settle 0"});
}
