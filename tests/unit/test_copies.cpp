// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/copies.h"

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <tuple>

#include "libinject/output/tables.h"
#include "tests/unit/devices.h"
#include "tests/unit/stats_run.h"

using namespace inject;

namespace {

constexpr std::uint8_t kDeviceMemory = 3;
constexpr std::uint64_t kMiB = 1024 * 1024;

TransferEvent copy(std::uint8_t kind, std::uint8_t source, std::uint8_t target, std::uint64_t bytes,
                   Nanoseconds start, Nanoseconds end) {
  TransferEvent event = copy_event(kind, bytes, 0);
  event.source_memory = source;
  event.target_memory = target;
  event.start = start;
  event.end = end;
  return event;
}

TransferEvent peer_copy(std::uint32_t by, std::uint32_t from, std::uint32_t to) {
  TransferEvent event = copy(kPeerToPeer, kDeviceMemory, kDeviceMemory, 1000, 10, 30);
  event.peer = true;
  event.device = by;
  event.source_device = from;
  event.target_device = to;
  return event;
}

/// One second of device time, one hundredth of it in 20 copies of 4 MiB to the device.
CopyFacts uploads() {
  CopyFacts facts;
  facts.path = CopyPath::kToDevice;
  facts.host_memory = kPinnedMemory;
  facts.count = 20;
  facts.time = 10'000'000;
  facts.bytes = 20 * 4 * kMiB;
  facts.judged_time = facts.time;
  facts.overlapped = facts.time;
  facts.device_time = 1'000'000'000;
  facts.link = 10e9;
  return facts;
}

/// Enough reads of single values to give a hint.
CopyFacts reads() {
  CopyFacts facts;
  facts.path = CopyPath::kFromDevice;
  facts.host_memory = kPageableMemory;
  facts.count = 200;
  facts.small = 200;
  facts.synchronizing = 200;
  facts.small_synchronizing = 100;
  facts.time = 200'000;
  facts.bytes = 800;
  facts.device_time = 1'000'000'000;
  return facts;
}

bool says(const CopyFacts& facts, std::string_view what) {
  return copy_hint(facts).find(what) != std::string::npos;
}

std::string table(const StatsRun& run, const RunInfo& info) {
  const std::string text = table_text(copy_table(), build_report(run.statistics, info));
  return text.substr(text.find('\n') + 1);
}

}  // namespace

TEST_CASE("A PCIe link's bandwidth is its transfer rate less its encoding", "[copies]") {
  // GB/s of a link with 16 lanes, as commonly stated.
  const double known[] = {4.0, 8.0, 15.754, 31.508, 63.015, 118.0};
  for (int generation = 1; generation <= 6; ++generation) {
    INFO("generation " << generation);
    REQUIRE(pcie_bandwidth(generation, 16));
    CHECK(*pcie_bandwidth(generation, 16) / 1e9 == Approx(known[generation - 1]).epsilon(1e-4));
    CHECK(*pcie_bandwidth(generation, 1) * 8 == Approx(*pcie_bandwidth(generation, 8)));
  }
  for (const auto& [generation, width] : {std::pair(0, 16), {7, 16}, {-1, 16}, {5, 0}, {5, -1}, {5, 33}})
    CHECK_FALSE(pcie_bandwidth(generation, width));
}

TEST_CASE("A link counts only if it was seen at its speed, and no copy was faster", "[copies]") {
  CHECK(copying_generation(5, 5) == 5);
  CHECK(copying_generation(4, 4) == 4);
  CHECK(copying_generation(1, 5) == 0);  // idle link
  CHECK(copying_generation(4, 5) == 0);
  CHECK(copying_generation(4, 0) == 0);
  CHECK(copying_generation(0, 0) == 0);
  const double link = *pcie_bandwidth(5, 16);
  CHECK(plausible_link(CopyPath::kToDevice, link, 0.9 * link) == link);
  CHECK_FALSE(plausible_link(CopyPath::kToDevice, link, 1.01 * link));
  CHECK_FALSE(plausible_link(CopyPath::kFromDevice, link, 5 * link));
  // Copies that stay in the L2 cache.
  CHECK(plausible_link(CopyPath::kWithinDevice, link, 5 * link) == link);
  CHECK_FALSE(plausible_link(CopyPath::kToDevice, {}, link));
}

TEST_CASE("A link that was read while it idled is in no row", "[copies]") {
  // 100 MB in 2 ms: 50 GB/s, on a link that was only seen at generation 1 (4 GB/s).
  const auto row_with = [](int generation) {
    StatsRun run;
    RunInfo info;
    info.devices = {h200(0)};
    info.devices[0].pcie_generation = generation;
    info.devices[0].pcie_max_generation = 5;
    info.devices[0].pcie_width = 16;
    run.statistics.add(copy(kHostToDevice, kPinnedMemory, kDeviceMemory, 100'000'000, 1'000'000, 3'000'000));
    return table(run, info);
  };
  CHECK(row_with(5).find(",50.000,63.015,79.3,") != std::string::npos);
  CHECK(row_with(1).find(",50.000,,,") != std::string::npos);
}

TEST_CASE("Copies between host and device go over the link, those on a device through its memory twice",
          "[copies]") {
  DeviceSpecs device;
  device.memory_clock_khz = 3'201'000;
  device.bus_bits = 6144;
  const auto of = [&](std::uint32_t kind, int generation = 5) {
    return copy_bandwidth(copy_path(kind), generation, 16, device);
  };
  for (const std::uint32_t kind : {1u, 2u, 3u, 4u}) {  // to and from the device, and its arrays
    CHECK(of(kind) == pcie_bandwidth(5, 16));
    CHECK_FALSE(of(kind, 0));
  }
  for (const std::uint32_t kind : {5u, 6u, 7u, 8u}) {
    REQUIRE(of(kind, 0));
    CHECK(*of(kind, 0) == Approx(*peak_bandwidth(device) / 2));
    CHECK_FALSE(copy_bandwidth(copy_path(kind), 5, 16, {}));
  }
  for (const std::uint32_t kind : {0u, 9u, 10u, 11u, 200u}) CHECK_FALSE(of(kind));
}

TEST_CASE("Hints for large copies begin at a hundredth of the device's time", "[copies]") {
  CHECK(copy_hint(uploads()).empty());
  CopyFacts facts = uploads();
  facts.host_memory = kPageableMemory;
  CHECK(copy_hint(facts) == "pageable memory: pin it (pin_memory=True) and copy with non_blocking=True");
  --facts.time;
  CHECK(copy_hint(facts).empty());
  ++facts.time;
  facts.path = CopyPath::kFromDevice;
  CHECK(copy_hint(facts) == "pageable memory: copy into pinned memory with non_blocking=True");
  facts.path = CopyPath::kWithinDevice;
  CHECK(copy_hint(facts).empty());
  facts.path = CopyPath::kToDevice;
  facts.bytes = facts.count * kSmallCopy - 1;
  CHECK(copy_hint(facts).empty());
  ++facts.bytes;
  CHECK_FALSE(copy_hint(facts).empty());
  facts.device_time = 0;  // unknown
  CHECK(copy_hint(facts).empty());
  CHECK(copy_hint({}).empty());
}

TEST_CASE("Hints for pinned copies: waited for, alone, or slow", "[copies]") {
  CopyFacts facts = uploads();
  facts.synchronizing = 9;
  CHECK(copy_hint(facts).empty());
  facts.synchronizing = 10;
  CHECK(copy_hint(facts) == "the host waits for the copies: non_blocking=True");
  facts.path = CopyPath::kFromDevice;
  CHECK(says(facts, "the host waits"));

  facts = uploads();
  facts.overlapped = facts.time / 10;
  CHECK(copy_hint(facts).empty());
  --facts.overlapped;
  CHECK(copy_hint(facts) == "no kernel runs meanwhile: copy ahead of time, on a stream of its own");
  facts.judged_time = 0;  // unknown
  CHECK(copy_hint(facts).empty());
  facts.judged_time = facts.time;
  facts.path = CopyPath::kFromDevice;
  CHECK(copy_hint(facts).empty());

  facts = uploads();  // at 8.39 GB/s
  facts.link = 16.7e9;
  CHECK(copy_hint(facts).empty());
  facts.link = 16.8e9;
  CHECK(copy_hint(facts) == "slower than the link: memory of another NUMA node, or a link that is shared");
  facts.synchronizing = 20;
  CHECK(copy_hint(facts) ==
        "the host waits for the copies: non_blocking=True; slower than the link: memory of another NUMA "
        "node, or a link that is shared");
  facts.host_memory = kPageableMemory;
  CHECK_FALSE(says(facts, "slower than the link"));
  facts = uploads();
  facts.link = 16.8e9;
  facts.bytes = facts.count * kMiB - 1;
  facts.time = 20'000'000;
  CHECK(copy_hint(facts).empty());
  facts.link.reset();
  facts.bytes = uploads().bytes;
  CHECK(copy_hint(facts).empty());
}

TEST_CASE("Hints for small copies go by how many there are", "[copies]") {
  CHECK(says(reads(), "values read one by one"));
  CopyFacts facts = reads();
  facts.small_synchronizing = 99;
  CHECK(copy_hint(facts).empty());
  facts = reads();
  facts.device_time += 10'000'000;  // fewer than 100 a second
  CHECK(copy_hint(facts).empty());
  facts = reads();
  facts.count = facts.small = facts.small_synchronizing = 9;
  facts.device_time = 1'000'000;
  CHECK(copy_hint(facts).empty());
  facts.count = facts.small = facts.small_synchronizing = 10;
  CHECK(says(facts, "values read one by one"));

  facts = reads();
  facts.path = CopyPath::kWithinDevice;
  CHECK(copy_hint(facts).empty());
  facts.device_time = 200'000'000;
  CHECK(copy_hint(facts) == "small copies: batch them");
  facts.count = 400;
  CHECK(says(facts, "batch"));
  facts.count = 401;
  CHECK(copy_hint(facts).empty());
  facts = reads();
  facts.path = CopyPath::kToDevice;
  facts.count = facts.small = 99;
  facts.device_time = 1'000'000;
  CHECK(copy_hint(facts).empty());
  // Many small copies beside few large ones: both may be worth a hint.
  facts = uploads();
  facts.host_memory = kPageableMemory;
  facts.count = 1000;
  facts.small = 1000 - 20;
  facts.bytes = 1000 * kSmallCopy;
  facts.device_time /= 2;
  CHECK(copy_hint(facts) ==
        "small copies: batch them; pageable memory: pin it (pin_memory=True) and copy with "
        "non_blocking=True");
}

TEST_CASE("A row of copies is a device, a direction and the kinds of memory", "[copies]") {
  StatsRun run;
  run.statistics.add(copy(kHostToDevice, kPageableMemory, kDeviceMemory, 65'535, 100, 200));
  TransferEvent waited = copy(kHostToDevice, kPageableMemory, kDeviceMemory, 65'536, 200, 400);
  waited.launch.host_end = 400;
  run.statistics.add(waited);
  waited.bytes = 1;
  run.statistics.add(waited);
  TransferEvent early = copy(kHostToDevice, kPinnedMemory, kDeviceMemory, 500, 200, 210);
  early.launch.host_end = 209;
  run.statistics.add(early);
  early.launch.host_end = 300;
  early.launch.known = false;
  run.statistics.add(early);
  run.statistics.add(memset_event(10, 10'000));
  TransferEvent elsewhere = copy(kHostToDevice, kPageableMemory, kDeviceMemory, 7, 100, 101);
  elsewhere.device = 1;
  run.statistics.add(elsewhere);
  const std::vector<CopyRow> rows = run.statistics.copies().rows();
  REQUIRE(rows.size() == 3);
  CHECK(direction_name(rows[0].operation) == "Host-to-Device");
  CHECK(rows[0].source_memory == kPageableMemory);
  CHECK(rows[0].time.count == 3);
  CHECK(rows[0].time.sum == 100 + 200 + 200);
  CHECK(rows[0].bytes == 65'535 + 65'536 + 1);
  CHECK(rows[0].small == 2);
  CHECK(rows[0].synchronizing == 2);
  CHECK(rows[0].small_synchronizing == 1);
  CHECK(rows[1].source_memory == kPinnedMemory);
  CHECK(rows[1].time.count == 2);
  CHECK(rows[1].synchronizing == 0);
  CHECK(rows[2].device == 1);
}

TEST_CASE("The host waits for a copy if it synchronizes next", "[copies]") {
  struct Step {
    std::string_view what;  // the function, or the copy's record
    Nanoseconds begin = 0;
    Nanoseconds end = 0;
    std::uint32_t correlation = 0;
    std::uint32_t thread = 1;
    CallChain chain = 0;
  };
  const Step call{"cudaMemcpyAsync", 100, 110, 7};
  const Step record{"record", 200, 250};
  const Step sync{"cudaStreamSynchronize", 111, 260};
  const Step early{"cudaStreamSynchronize", 111, 249};
  const Step launch{"cudaLaunchKernel", 111, 112, 8};
  const Step asked{"cudaGetLastError", 111, 112};
  const Step elsewhere{"cudaStreamSynchronize", 111, 260, 0, 2};
  const Step nested{"cudaStreamSynchronize", 111, 260, 0, 1, chain_of({"cublasGemmEx"})};
  const Step other_copy{"cudaMemcpyAsync", 112, 113, 9};
  const Step settled{"settle"};
  const std::vector<std::pair<std::vector<Step>, std::uint64_t>> cases{
      {{call, record}, 0},
      {{call, sync, record}, 1},
      {{call, record, sync}, 1},
      {{call, early, record}, 0},
      {{call, record, early}, 0},
      {{call, asked, sync, record}, 1},
      {{call, asked, record, sync}, 1},
      {{call, launch, sync, record}, 0},
      {{call, launch, record, sync}, 0},
      {{call, other_copy, record, sync}, 0},
      {{call, elsewhere, record, elsewhere}, 0},
      {{call, nested, record, nested}, 0},
      {{call, record, sync, sync}, 1},
      {{call, record, settled, sync}, 0},
      {{call, sync, settled, record}, 0},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    INFO("case " << i);
    StatsRun run;
    for (const Step& step : cases[i].first) {
      if (step.what == "settle") {
        run.statistics.settle_window(1, 0, 1000);
      } else if (step.what == "record") {
        TransferEvent event = copy(kDeviceToHost, kDeviceMemory, kPinnedMemory, 4, step.begin, step.end);
        event.launch.host_begin = call.begin;
        event.launch.host_end = call.end;
        event.launch.thread = step.thread;
        run.statistics.add(event);
      } else {
        CallEvent event = call_event(step.what, 0, step.chain);
        event.begin = step.begin;
        event.end = step.end;
        event.correlation = step.correlation;
        event.thread = step.thread;
        run.statistics.add(event);
      }
    }
    const std::vector<CopyRow> rows = run.statistics.copies().rows();
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].synchronizing == cases[i].second);
    CHECK(rows[0].small_synchronizing == cases[i].second);
  }
}

TEST_CASE("Copies between devices are told by both of them", "[copies]") {
  StatsRun run;
  run.statistics.add(peer_copy(0, 0, 1));
  run.statistics.add(peer_copy(0, 0, 1));
  run.statistics.add(peer_copy(0, 1, 0));
  run.statistics.add(peer_copy(1, 0, 1));
  CHECK(run.statistics.copies().rows().size() == 3);
  CHECK(table(run, {}) ==
        "0,Peer-to-Peer,Device 0,Device 1,2,40,20.0,0.002,0.001,50.000,,,2,100.0,,0,0.0,\n"
        "0,Peer-to-Peer,Device 1,Device 0,1,20,20.0,0.001,0.001,50.000,,,1,100.0,,0,0.0,\n"
        "1,Peer-to-Peer,Device 0,Device 1,1,20,20.0,0.001,0.001,50.000,,,1,100.0,,0,0.0,\n");
}

TEST_CASE("Kinds that nobody knows are one, and many kinds share a row", "[copies]") {
  StatsRun run;
  run.statistics.add(copy(99, 99, 200, 1, 10, 20));
  run.statistics.add(copy(0, 0, 0, 1, 10, 20));
  CHECK(table(run, {}) == "0,Unknown,Unknown,Unknown,2,20,10.0,0.000,0.000,0.100,,,2,100.0,,0,0.0,\n");
  for (std::uint32_t i = 1; i < CopyStatistics::kMaxRows + 3; ++i) {
    TransferEvent event = copy(kHostToDevice, kPinnedMemory, kDeviceMemory, 1000, 100, 110);
    event.device = i;
    run.statistics.add(event);
  }
  // On another device than the copies without a row.
  run.statistics.add(run.kernel("k", 10));
  const std::vector<CopyRow> rows = run.statistics.copies().rows();
  CHECK(rows.size() == CopyStatistics::kMaxRows + 1);
  const auto other = std::find_if(rows.begin(), rows.end(), [](const CopyRow& row) { return row.other; });
  REQUIRE(other != rows.end());
  CHECK(other->time.count == 3);
  CHECK(table(run, {}).starts_with(",[other],,,3,30,10.0,0.003,0.001,100.000,,,3,100.0,,0,0.0,\n"));
}

TEST_CASE("copy_sum.csv has the link, its share, overlap and hints", "[copies]") {
  StatsRun run;
  RunInfo info;
  info.devices = {h200(0), h200(1)};
  info.devices[0].memory_clock_khz = 3'201'000;
  info.devices[0].memory_bus_bits = 6144;
  info.devices[0].pcie_generation = 5;
  info.devices[0].pcie_width = 16;
  info.devices[0].pcie_max_generation = 5;
  // 100 MB in 2 ms: 50 GB/s of 63. A kernel runs in a quarter of it.
  TransferEvent upload = copy(kHostToDevice, kPinnedMemory, kDeviceMemory, 100'000'000, 1'000'000, 3'000'000);
  upload.launch.host_begin = 900'000;
  upload.launch.host_end = 3'000'001;
  run.statistics.add(upload);
  KernelEvent kernel = run.kernel("k", 0);
  kernel.start = 900'000;
  kernel.end = 950'000;
  run.statistics.add(kernel);
  kernel.start = 2'500'000;
  kernel.end = 5'000'000;
  run.statistics.add(kernel);
  run.statistics.add(
      copy(kDeviceToDevice, kDeviceMemory, kDeviceMemory, 100'000'000, 10'000'000, 10'100'000));
  TransferEvent unknown = copy(kDeviceToHost, kDeviceMemory, kPageableMemory, 8, 20'000'000, 20'000'000);
  unknown.device = 1;
  unknown.launch.host_end = 20'000'000;
  run.statistics.add(unknown);
  const std::string before =
      "0,Host-to-Device,Pinned,Device,1,2000000,2000000.0,100.000,100.000,50.000,63.015,79.3,0,0.0,25.0,1,"
      "100.0,";
  const std::string after =
      "\n"
      "0,Device-to-Device,Device,Device,1,100000,100000.0,100.000,100.000,1000.000,2458.368,40.7,0,0.0,0.0,0,"
      "0.0,\n"
      // No time, hence no rate; no link.
      "1,Device-to-Host,Device,Pageable,1,0,0.0,0.000,0.000,,,,1,100.0,,1,100.0,\n";
  CHECK(table(run, info) == before + after);
  // The device's time is known.
  run.statistics.settle_window(1, 0, 50'000'000);
  CHECK(table(run, info) == before + "the host waits for the copies: non_blocking=True" + after);
}

TEST_CASE("Hints are held against the device's time in all windows, listed or not", "[copies]") {
  StatsRun run;
  RunInfo info;
  info.devices = {h200(0)};
  constexpr auto kListed = static_cast<std::uint32_t>(DeviceTimeStatistics::kMaxRows);
  for (std::uint32_t window = 1; window <= kListed + 1; ++window) {
    TransferEvent event = copy(kHostToDevice, kPinnedMemory, kDeviceMemory, 8, 100, 101);
    event.launch.window = window;
    run.statistics.add(event);
    // 10 ms in the listed windows, one minute in the last.
    run.statistics.settle_window(window, 0, window <= kListed ? 1000 : Nanoseconds{60'000'000'000});
  }
  const std::string text = table(run, info);
  CHECK(text.find("Host-to-Device,Pinned,Device,10001,") != std::string::npos);
  CHECK(text.find("batch them") == std::string::npos);
}

TEST_CASE("Copies of random runs agree with plain counting and with the tables of operations", "[copies]") {
  const unsigned seed = GENERATE(range(1u, 7u));
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&random](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint8_t, std::uint8_t>;
  struct Plain {
    std::uint64_t count = 0, time = 0, bytes = 0, small = 0, waited = 0, judged = 0, overlapped = 0;
  };
  struct Copy {
    Key key;
    std::uint32_t window;
    Nanoseconds start, end;
  };
  constexpr Nanoseconds kEnd = 30'000;
  StatsRun run;
  std::map<Key, Plain> plain;
  std::vector<Copy> copies;
  // Checked nanosecond by nanosecond, for each window and device.
  std::array<std::array<std::vector<bool>, 2>, 3> busy;
  for (auto& window : busy) window.fill(std::vector<bool>(kEnd));
  for (int i = 0; i < 3000; ++i) {
    const std::uint32_t window = 1 + below(2);
    const std::uint32_t device = below(2);
    const Nanoseconds start = below(kEnd - 500);
    const Nanoseconds end = start + below(below(3) == 0 ? 400 : 40);
    if (below(2) == 0) {
      KernelEvent event = run.kernel("k" + std::to_string(below(5)), 0);
      event.launch.window = window;
      event.device = device;
      event.start = start;
      event.end = end;
      run.statistics.add(event);
      for (Nanoseconds t = start; t < end; ++t) busy[window][device][t] = true;
      continue;
    }
    const auto kind = static_cast<std::uint8_t>(below(11));
    TransferEvent event = copy(kind, static_cast<std::uint8_t>(below(8)), static_cast<std::uint8_t>(below(8)),
                               below(200'000), start, end);
    event.memset = below(8) == 0;
    event.device = device;
    event.launch.window = window;
    event.launch.known = below(5) != 0;
    event.launch.host_end = end - 20 + below(40);
    run.statistics.add(event);
    if (event.memset) continue;
    const Key key{device, kind, event.source_memory, event.target_memory};
    Plain& row = plain[key];
    ++row.count;
    row.time += end - start;
    row.bytes += event.bytes;
    if (event.bytes < 65'536) ++row.small;
    if (event.launch.known && event.launch.host_end >= end) ++row.waited;
    copies.push_back({key, window, start, end});
  }
  for (const Copy& one : copies) {
    const auto& times = busy[one.window][std::get<0>(one.key)];
    const auto first = std::find(times.begin(), times.end(), true) - times.begin();
    for (Nanoseconds t = std::max(one.start, static_cast<Nanoseconds>(first)); t < one.end; ++t) {
      ++plain[one.key].judged;
      plain[one.key].overlapped += times[t] ? 1 : 0;
    }
  }
  const auto check = [&] {
    const std::vector<CopyRow> rows = run.statistics.copies().rows();
    REQUIRE(rows.size() == plain.size());
    std::map<std::string, std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> operations;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const CopyRow& row = rows[i];
      if (i != 0) REQUIRE(rows[i - 1].time.sum >= row.time.sum);
      const auto found = plain.find({row.device, row.operation, row.source_memory, row.target_memory});
      REQUIRE(found != plain.end());
      const Plain& expected = found->second;
      REQUIRE(row.time.count == expected.count);
      REQUIRE(row.time.sum == expected.time);
      REQUIRE(row.bytes == expected.bytes);
      REQUIRE(row.small == expected.small);
      REQUIRE(row.synchronizing == expected.waited);
      REQUIRE(row.overlap.time == expected.judged);
      REQUIRE(row.overlap.overlapped == expected.overlapped);
      auto& [count, time, bytes] =
          operations["[CUDA memcpy " + std::string(direction_name(row.operation)) + "]"];
      count += row.time.count;
      time += row.time.sum;
      bytes += row.bytes;
    }
    std::size_t named = 0;
    for (const TimeRow& row : run.statistics.operation_times()) {
      if (row.name == "[CUDA memset]") continue;
      ++named;
      REQUIRE(std::get<0>(operations.at(std::string(row.name))) == row.stats->count());
      REQUIRE(std::get<1>(operations.at(std::string(row.name))) == row.stats->sum());
    }
    REQUIRE(operations.size() == named);
    for (const TimeRow& row : run.statistics.operation_sizes()) {
      if (row.name != "[CUDA memset]")
        REQUIRE(std::get<2>(operations.at(std::string(row.name))) == row.stats->sum());
    }
  };
  check();
  run.statistics.settle_window(1, 0, kEnd);
  check();
  run.statistics.settle_window(2, 0, kEnd);
  check();
  CHECK(run.statistics.copies().late() == 0);
}

TEST_CASE("What comes too late for a copy's overlap is counted", "[copies]") {
  StatsRun run;
  run.statistics.add(copy(kHostToDevice, kPinnedMemory, kDeviceMemory, 1000, 1000, 1100));
  run.statistics.settle_window(1, 0, 2000);
  const std::uint64_t before = run.statistics.late_for_busy_time();
  CHECK(run.statistics.copies().late() == 0);
  run.statistics.add(run.kernel("k", 50));
  CHECK(run.statistics.copies().late() == 1);
  CHECK(run.statistics.late_for_busy_time() > before);
  CHECK(run.statistics.copies().rows()[0].overlap.overlapped == 0);
}
