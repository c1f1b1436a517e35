// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "libinject/journal/codec.h"
#include "libinject/journal/run_state.h"
#include "libinject/output/run_json.h"
#include "libinject/output/table_files.h"
#include "libinject/replay/image.h"
#include "libinject/replay/recover.h"
#include "libinject/replay/replay.h"
#include "libinject/replay/shape_check.h"
#include "tests/unit/catch.h"
#include "tests/unit/recorded_run.h"
#include "tests/unit/temporary_folder.h"

using namespace inject;
using namespace inject::recovery;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(const TemporaryFolder& folder) {
  const std::string text = folder.read(kFileName);
  const auto* const data = reinterpret_cast<const std::uint8_t*>(text.data());
  return {data, data + text.size()};
}

/// The kernels in the tables, and the calls that submitted work.
struct Counts {
  std::uint64_t kernels = 0;
  std::uint64_t submissions = 0;
  std::uint64_t missing = 0;
  bool operator==(const Counts&) const = default;
};

Counts counts_of(const Statistics& statistics, const RunInfo& run) {
  Counts counts;
  counts.kernels = statistics.device_total().kernels.count;
  counts.submissions = statistics.host_total().submissions;
  for (const WindowInfo& window : run.windows) counts.missing += window.losses.missing_records;
  return counts;
}

Counts recovered(const Image& image) {
  Replay replay(image);
  replay.run();
  return counts_of(replay.statistics(), replay.run_info());
}

Counts recovered(const Bytes& bytes) {
  Image image;
  std::string problem;
  REQUIRE(image.open(bytes, problem));
  return recovered(image);
}

template <typename T>
void put(Bytes& bytes, std::size_t offset, const T& value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

Header header_of(const Bytes& bytes) {
  Header header;
  std::memcpy(static_cast<void*>(&header), bytes.data(), sizeof header);
  return header;
}

void seal(Bytes& bytes, Header header) {
  header.checksum = header_checksum(header);
  put(bytes, 0, header);
}

/// Each block of the journal, with its header and padding.
std::vector<std::size_t> block_begins(const Image& image, const Bytes& bytes) {
  std::vector<std::size_t> begins;
  for (const std::string_view block : image.blocks()) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(block.data());
    begins.push_back(static_cast<std::size_t>(data - bytes.data()) - sizeof(BlockHeader));
  }
  return begins;
}

RunInfo replayed(const Bytes& bytes) {
  Image image;
  std::string problem;
  REQUIRE(image.open(bytes, problem));
  Replay replay(image);
  replay.run();
  return replay.run_info();
}

/// As left in the folder by a process that has ended.
void leave(const TemporaryFolder& folder, Bytes bytes) {
  Header header = header_of(bytes);
  header.process_start = 0;
  seal(bytes, header);
  const std::string path = folder.path() + "/" + kFileName;
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

bool has_file(const TemporaryFolder& folder, const std::string& name) {
  return std::filesystem::exists(folder.path() + "/" + name);
}

/// Bytes of the journal that are in use.
std::size_t journal_end(const Bytes& bytes) {
  const Header header = header_of(bytes);
  std::size_t end = bytes.size();
  while (end > header.journal.offset && bytes[end - 1] == 0) --end;
  return end;
}

}  // namespace

TEST_CASE("numbers and texts are read as they were written, and nothing else is", "[recovery]") {
  Encoder to;
  const std::vector<std::uint64_t> numbers{0, 1, 127, 128, 300, 0xFFFF'FFFF, ~std::uint64_t{0}};
  for (const std::uint64_t number : numbers) to.number(number);
  to.text("text");
  Decoder from(to.bytes());
  for (const std::uint64_t number : numbers) CHECK(from.number() == number);
  CHECK(from.text(4) == "text");
  CHECK((from.ok() && from.at_end()));
  CHECK(from.number() == 0);
  CHECK_FALSE(from.ok());

  for (std::size_t length = 0; length < to.bytes().size(); ++length) {
    Decoder part(to.bytes().substr(0, length));
    for (std::size_t i = 0; i < numbers.size(); ++i) part.number();
    part.text(4);
    CHECK_FALSE(part.ok());
  }
  Decoder longest(std::string_view("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02", 10));
  longest.number();
  CHECK_FALSE(longest.ok());
  Decoder text(
      std::string_view("\x05"
                       "abcde",
                       6));
  text.text(4);
  CHECK_FALSE(text.ok());
  Decoder large(std::string_view("\x05", 1));
  large.number(4);
  CHECK_FALSE(large.ok());
}

TEST_CASE("coded records are what they were", "[recovery]") {
  std::mt19937 random(1);
  RecordCoder<16> encoder;
  Encoder to;
  std::vector<RecordCoder<16>::Words> all;
  RecordCoder<16>::Words words{};
  for (int i = 0; i < 1000; ++i) {
    for (std::uint32_t& word : words) {
      const auto how = random() % 8;
      if (how == 0) word = static_cast<std::uint32_t>(random());
      if (how == 1) word += static_cast<std::uint32_t>(random() % 100) - 50;
    }
    all.push_back(words);
    encoder.encode(to, words);
  }
  Decoder from(to.bytes());
  RecordCoder<16> decoder;
  for (const auto& expected : all) CHECK(decoder.decode(from) == expected);
  CHECK((from.ok() && from.at_end()));
}

TEST_CASE("what was taken, what was published and what was handed over is recovered once each",
          "[recovery][native]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  REQUIRE(run.problem.empty());
  struct stat status {};
  REQUIRE(stat((folder.path() + "/" + kFileName).c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0400);
  // The file is fully allocated, so that no write can run out of space.
  CHECK(status.st_blocks * 512 >= status.st_size);

  CHECK(recovered(bytes_of(folder)) == Counts{});
  run.open_window();
  for (int i = 0; i < 100; ++i) run.launch();
  CHECK(recovered(bytes_of(folder)) == Counts{0, 100, 100});
  run.pass();
  CHECK(recovered(bytes_of(folder)) == Counts{0, 100, 100});
  run.kernels(1, 60);
  CHECK(recovered(bytes_of(folder)) == Counts{60, 100, 40});
  run.pass();
  CHECK(recovered(bytes_of(folder)) == Counts{60, 100, 40});
  // More than one block: the first one is returned to the pool meanwhile and reused.
  for (int i = 0; i < 1000; ++i) {
    run.launch();
    if (i % 100 == 0) run.pass();
  }
  run.kernels(61, 200);
  CHECK(recovered(bytes_of(folder)) == Counts{200, 1100, 900});
  run.pass();
  for (std::uint32_t first = 201; first < 1100; first += 100) {
    run.kernels(first, first + 99);
    run.pass();
  }
  run.close_window();
  run.settle();
  CHECK(recovered(bytes_of(folder)) == Counts{1100, 1100, 0});
  CHECK(counts_of(run.statistics, {}).kernels == 1100);

  // The same tables, byte for byte, as the process would have written.
  Image image;
  std::string problem;
  const Bytes bytes = bytes_of(folder);
  REQUIRE(image.open(bytes, problem));
  Replay replay(image);
  replay.run();
  RunInfo there = replay.run_info();
  RunInfo here = there;
  here.windows = run.windows.copy();
  for (const TableFile& table : table_files()) {
    INFO(table.name);
    CHECK(table_text(table, build_report(replay.statistics(), there)) ==
          table_text(table, build_report(run.statistics, here)));
  }
  run.file.remove();
  CHECK(stat((folder.path() + "/" + kFileName).c_str(), &status) != 0);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they touch their own memory meanwhile
TEST_CASE("a buffer that was taken before the file was made is copied there without a page fault",
          "[recovery][native]") {
  const TemporaryFolder folder;
  Core core(RecordedRun::with_ring(64 * 1024));
  ActivityBuffers buffers(std::size_t{16} << 20);
  WindowLog windows;
  Journal journal(core, windows);
  RecordFile file;
  const ActivityBuffers::Buffer taken = buffers.take(RecordedRun::kGeneration);
  std::memset(taken.data, 1, taken.bytes);
  std::string problem;
  REQUIRE(file.open(folder.path(), core, buffers, journal, {RecordedRun::kBase, 5}, problem));
  while (file.warm()) {
  }
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  const long before = faults();
  REQUIRE(buffers.complete(taken.data, taken.bytes));
  CHECK(faults() - before < 16);  // of 256 pages
  file.remove();
}
#endif

TEST_CASE("short calls are recovered once each, whether their record is complete or not", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  run.launch();
  std::uint64_t calls = 1;
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i, ++calls) {
    const auto what = static_cast<unsigned>(random() % 20);
    if (what == 0) {
      run.launch();
    } else {
      run.short_call();
    }
    if (what < 4) run.pass();
    if (i % 29 != 0) continue;
    Image image;
    std::string problem;
    const Bytes bytes = bytes_of(folder);
    REQUIRE(image.open(bytes, problem));
    Replay replay(image);
    replay.run();
    CHECK(replay.statistics().host_total().api_calls == calls + 1);
    CHECK(replay.run_info().recovered->refused == 0);
    CHECK(replay.run_info().recovered->calls_not_kept == 0);
  }
}

TEST_CASE("fetches from a loader are recovered, and those that can't be are refused", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  run.launch();
  run.kernels(1, 1);
  run.time += 1000;
  const auto fetch = [&](Nanoseconds begin, Nanoseconds end, std::uint32_t window = 1) {
    FetchRecord record;
    record.window = window;
    record.begin = begin;
    record.end = end;
    return record;
  };
  run.queue.push(run.core.ring, fetch(run.time, 0), 1);
  run.pass();
  run.queue.push(run.core.ring, fetch(run.time, run.time + 300), 1);
  run.queue.push(run.core.ring, fetch(run.time, run.time + 300, 7'000'000), 1);
  FetchRecord wrong = fetch(run.time + 400, 0);
  wrong.fetch = static_cast<FetchKind>(kFetchKinds);
  run.queue.push(run.core.ring, wrong, 1);
  wrong.fetch = FetchKind::kWaiting;
  wrong.by = static_cast<FetchThread>(3);
  run.queue.push(run.core.ring, wrong, 1);
  run.time += 500;
  run.launch();
  run.kernels(2, 2);
  Image image;
  std::string problem;
  const Bytes bytes = bytes_of(folder);
  REQUIRE(image.open(bytes, problem));
  Replay replay(image);
  replay.run();
  CHECK(replay.statistics().fetches().of_window(1) == FetchTimes{300, 0});
  CHECK(replay.run_info().recovered->refused == 3);
}

TEST_CASE("a window whose beginning is not known has what ran before the first call that was kept",
          "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  // The first 50 calls were still elsewhere, and the journal is still empty.
  run.correlation = 50;
  run.time += 50 * 1200;
  for (int i = 0; i < 10; ++i) run.launch();
  run.kernels(1, 60);
  const Counts counts = recovered(bytes_of(folder));
  CHECK(counts.kernels == 60);
  CHECK(counts.submissions == 10);
  CHECK(counts.missing == 0);
}

TEST_CASE("a journal that ends anywhere is good up to its last whole block", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  for (int i = 0; i < 12; ++i) {
    run.launch();
    run.pass();
  }
  run.kernels(1, 6);
  run.pass();
  const Bytes whole = bytes_of(folder);
  const Header header = header_of(whole);
  const std::size_t end = journal_end(whole);
  std::uint64_t last = 0;
  std::size_t blocks = 0;
  for (std::size_t at = header.journal.offset; at <= end; ++at) {
    Bytes torn = whole;
    std::fill(torn.begin() + static_cast<std::ptrdiff_t>(at), torn.end(), std::uint8_t{0});
    Image image;
    std::string problem;
    REQUIRE(image.open(torn, problem));
    REQUIRE(image.blocks().size() >= blocks);
    if (image.blocks().size() == blocks) continue;
    blocks = image.blocks().size();
    const Counts counts = recovered(image);
    CHECK(counts.submissions >= last);
    last = counts.submissions;
  }
  CHECK(last == 12);
  CHECK(blocks == 13);
}

TEST_CASE("a bit that has changed in the journal costs what follows it", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  for (int i = 0; i < 5; ++i) {
    run.launch();
    run.pass();
  }
  Bytes bytes = bytes_of(folder);
  const Header header = header_of(bytes);
  const std::size_t end = journal_end(bytes);
  Image image;
  std::string problem;
  REQUIRE(image.open(bytes, problem));
  REQUIRE(image.blocks().size() == 5);
  const std::vector<std::size_t> begins = block_begins(image, bytes);
  for (std::size_t bit = header.journal.offset * 8; bit < end * 8; ++bit) {
    const auto block = static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), bit / 8) -
                                                begins.begin() - 1);
    const std::size_t contents_end = begins[block] + sizeof(BlockHeader) + image.blocks()[block].size();
    if (bit / 8 >= contents_end) continue;  // padding
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    Image damaged;
    REQUIRE(damaged.open(bytes, problem));
    REQUIRE(damaged.blocks().size() == block);
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
  }
}

TEST_CASE("a page of the journal that is zero is a gap, and not its end", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  for (int i = 0; i < 5; ++i) {
    run.launch();
    run.pass();
  }
  const Bytes whole = bytes_of(folder);
  Image image;
  std::string problem;
  REQUIRE(image.open(whole, problem));
  CHECK_FALSE(image.is_cut());
  const std::vector<std::size_t> begins = block_begins(image, whole);
  REQUIRE(begins.size() == 5);
  const auto zeroed = [&](std::size_t from, std::size_t to) {
    Bytes bytes = whole;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(from),
              bytes.begin() + static_cast<std::ptrdiff_t>(to), std::uint8_t{0});
    Image damaged;
    REQUIRE(damaged.open(bytes, problem));
    return std::pair(damaged.blocks().size(), damaged.is_cut());
  };
  CHECK(zeroed(begins[1], begins[2]) == std::pair(std::size_t{1}, true));
  CHECK(zeroed(begins[1], begins[1] + sizeof(BlockHeader)) == std::pair(std::size_t{1}, true));
  CHECK(zeroed(begins[0], begins[4]) == std::pair(std::size_t{0}, true));
  // As a process leaves it that is killed before it has written the block's length.
  CHECK(zeroed(begins[4], whole.size()) == std::pair(std::size_t{4}, false));
  CHECK(zeroed(begins[4] + offsetof(BlockHeader, bytes), begins[4] + sizeof(BlockHeader)) ==
        std::pair(std::size_t{4}, false));
}

TEST_CASE("what is said of a run is reported as damaged if no copy of it is intact", "[recovery][native]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  run.launch();
  run.pass();
  CHECK_FALSE(replayed(bytes_of(folder)).recovered->info_damaged);
  RunInfo info;
  info.command_line = {"train"};
  run.file.write_info(encode_run(info));
  run.file.write_info(encode_run(info));
  Bytes bytes = bytes_of(folder);
  const std::size_t first = header_of(bytes).info.offset;
  CHECK(replayed(bytes).command_line == info.command_line);
  bytes[first + sizeof(InfoHeader)] ^= 1;
  CHECK(replayed(bytes).command_line == info.command_line);
  CHECK_FALSE(replayed(bytes).recovered->info_damaged);
  bytes[first + kInfoBytes + sizeof(InfoHeader)] ^= 1;
  CHECK(replayed(bytes).recovered->info_damaged);

  const TemporaryFolder left;
  leave(left, bytes);
  const Outcome outcome = recover(left.path(), false);
  CHECK(outcome.done);
  CHECK(outcome.message.find("is damaged, so the records were not removed") != std::string::npos);
  CHECK(outcome.summary.find("that part of the file is damaged") != std::string::npos);
  CHECK(has_file(left, kFileName));
}

TEST_CASE("tables are kept only where there are some, and the records have a gap", "[recovery][native]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  for (int i = 0; i < 5; ++i) {
    run.launch();
    run.pass();
  }
  run.journal.written(run.journal.position());
  Bytes bytes = bytes_of(folder);
  Image image;
  std::string problem;
  REQUIRE(image.open(bytes, problem));
  const std::size_t second = block_begins(image, bytes)[1];
  RunInfo written;
  written.state = "open";
  written.pid = getpid();
  written.base = RecordedRun::kBase;
  written.windows = run.windows.copy();
  const auto write = [&](const TemporaryFolder& left) {
    std::ofstream(left.path() + "/window_sum.csv") << "Window\n1\n";
    const std::vector<std::string> files{"window_sum.csv"};
    std::ofstream(left.path() + "/run.json") << run_json_text(written, files, {});
  };
  const TemporaryFolder left;

  SECTION("a count of blocks that has changed") {
    put(bytes, kLiveOffset + offsetof(Live, written_block), std::uint64_t{1} << 40);
    write(left);
    leave(left, bytes);
    CHECK(recover(left.path(), false).summary.find("recovered: the process was killed") != std::string::npos);
    CHECK(left.read("window_sum.csv").size() > 100);
    CHECK_FALSE(has_file(left, kFileName));
  }
  SECTION("a gap, and tables") {
    bytes[second + sizeof(BlockHeader)] ^= 1;
    write(left);
    leave(left, bytes);
    for (int times = 0; times < 2; ++times) {
      const Outcome outcome = recover(left.path(), false);
      CHECK(outcome.done);
      CHECK(outcome.message.find("that the process wrote itself") != std::string::npos);
      CHECK(outcome.message.find("the journal is damaged") != std::string::npos);
      CHECK(left.read("window_sum.csv") == "Window\n1\n");
      CHECK(left.read("run.json").find("\"state\": \"cut\"") != std::string::npos);
      CHECK(has_file(left, kFileName));
    }
  }
  SECTION("a gap, and no tables") {
    bytes[second + sizeof(BlockHeader)] ^= 1;
    leave(left, bytes);
    const Outcome outcome = recover(left.path(), false);
    CHECK(outcome.done);
    CHECK(outcome.message.find("the journal is damaged") != std::string::npos);
    CHECK(has_file(left, "window_sum.csv"));
  }
  SECTION("calls after a journal that was full") {
    while (!run.journal.full()) {
      run.launch();
      run.pass();
    }
    run.journal.written(run.journal.position());
    run.launch();
    run.pass();
    write(left);
    leave(left, bytes_of(folder));
    CHECK(
        recover(left.path(), false).message.ends_with("what came later is missing: 1 call and 1 submission"));
    CHECK_FALSE(has_file(left, kFileName));
  }
  SECTION("another run's tables") {
    SECTION("of another process") {
      written.pid += 1;
    }
    SECTION("of an earlier run under the same process id") {
      written.base += 1;
    }
    write(left);
    leave(left, bytes);
    const Outcome outcome = recover(left.path(), false);
    CHECK_FALSE(outcome.done);
    CHECK(outcome.message.find("the records are of another run") != std::string::npos);
    CHECK(left.read("window_sum.csv") == "Window\n1\n");
    CHECK(has_file(left, kFileName));
  }
}

TEST_CASE("times in the future are refused", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  run.launch();
  run.kernels(1, 1);
  run.pass();
  run.launch();
  run.kernels(2, 2);
  const Bytes whole = bytes_of(folder);
  const RunInfo good = replayed(whole);
  REQUIRE(good.windows.size() == 1);
  CHECK(good.recovered->refused == 0);
  const auto with = [&](std::size_t word, std::uint64_t value) {
    Bytes bytes = whole;
    put(bytes, kLiveOffset + word, value);
    return replayed(bytes);
  };
  for (const std::uint64_t time : {std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    const RunInfo late = with(offsetof(Live, alive), time);
    CHECK(late.windows[0].end == RecordedRun::kBase + 2 * 1200 + 10);  // of the second kernel
    CHECK(late.recovered->refused == 1);
    const RunInfo ahead = with(offsetof(Live, clock_ahead), time);
    CHECK(ahead.windows[0].end == good.windows[0].end);
  }
  CHECK(with(offsetof(Live, clock_ahead), std::uint64_t{1} << 63).recovered->refused == 1);
  CallRecord record = run.next_launch();
  record.end = std::uint64_t{1} << 63;
  run.queue.push(run.core.ring, record, 1);
  const RunInfo called = replayed(bytes_of(folder));
  CHECK(called.windows[0].end == good.windows[0].end);
  CHECK(called.recovered->refused == 1);
}

TEST_CASE("a buffer that begins inside another one is not read", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  for (int i = 0; i < 6; ++i) run.launch();
  run.kernels(1, 4);
  run.kernels(5, 6);
  Bytes bytes = bytes_of(folder);
  Image image;
  std::string problem;
  REQUIRE(image.open(bytes, problem));
  REQUIRE(image.buffers().size() == 2);
  CHECK(image.overlapping_bytes() == 0);
  const Header header = header_of(bytes);
  const auto units = static_cast<std::uint32_t>(header.buffers.bytes / header.unit_bytes);
  // The first in the file, whichever that is, takes all.
  std::size_t at = header.marks.offset;
  std::uint64_t sequence = 0;
  for (; sequence == 0; at += sizeof(BufferMark)) std::memcpy(&sequence, bytes.data() + at, sizeof sequence);
  at -= sizeof(BufferMark);
  put(bytes, at + offsetof(BufferMark, units),
      units - static_cast<std::uint32_t>((at - header.marks.offset) / sizeof(BufferMark)));
  Image overlapping;
  REQUIRE(overlapping.open(bytes, problem));
  CHECK(overlapping.buffers().size() == 1);
  const RunInfo info = replayed(bytes);
  CHECK(info.recovered->buffer_records + info.recovered->unread_bytes / sizeof(CUpti_ActivityKernel9) == 6);
  CHECK(info.recovered->unread_bytes > 0);
}

TEST_CASE("windows that are settled again and again are not as a process writes them", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  run.launch();
  run.close_window();
  run.pass();
  bool paired = true;
  SECTION("in pairs") {}
  SECTION("without the end of the one before") {
    paired = false;
  }
  for (int i = 0; i < 2; ++i) {
    run.journal.settle(0, false, kAllWindows);
    if (paired) run.journal.settled(0, 0, kAllWindows);
  }
  run.journal.commit();
  CHECK(replayed(bytes_of(folder)).recovered->journal_cut == !paired);
}

TEST_CASE("a header with any other bit is refused", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  Bytes bytes = bytes_of(folder);
  std::string problem;
  for (std::size_t bit = 0; bit < sizeof(Header) * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
    Image image;
    problem.clear();
    REQUIRE_FALSE(image.open(bytes, problem));
    REQUIRE_FALSE(problem.empty());
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
  }
  for (const std::size_t length : {std::size_t{0}, sizeof(Header), kHeaderBytes, bytes.size() - 1}) {
    Image image;
    CHECK_FALSE(image.open(std::span(bytes).first(length), problem));
  }
}

TEST_CASE("a sealed header that lies about its parts is refused", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  const Bytes bytes = bytes_of(folder);
  const Header good = header_of(bytes);
  const auto refused = [&](Header header) {
    Bytes lying = bytes;
    seal(lying, header);
    Image image;
    std::string problem;
    return !image.open(lying, problem);
  };
  CHECK_FALSE(refused(good));
  for (Part Header::*part :
       {&Header::info, &Header::marks, &Header::ring, &Header::buffers, &Header::journal}) {
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{12}, std::uint64_t{bytes.size() + 8},
                                       ~std::uint64_t{0}, ~std::uint64_t{7}}) {
      Header header = good;
      (header.*part).offset = offset;
      CHECK(refused(header));
    }
    Header header = good;
    (header.*part).bytes = ~std::uint64_t{0};
    CHECK(refused(header));
  }
  Header header = good;
  header.unit_bytes = 0;
  CHECK(refused(header));
  header = good;
  header.block_bytes = 64;
  CHECK(refused(header));
  header = good;
  header.functions ^= 1;
  CHECK(refused(header));
}

TEST_CASE("a file of holes takes no memory, and one larger than its parts is refused", "[recovery][native]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  Header header = header_of(bytes_of(folder));
  header.process_start = 0;
  std::uint64_t end = header.marks.offset;
  const auto place = [&end](Part& part, std::uint64_t bytes) {
    part = {end, bytes};
    end += bytes;
  };
  const auto make = [&](std::uint64_t arena, std::uint64_t behind) {
    end = header.marks.offset;
    place(header.marks, arena / header.unit_bytes * sizeof(BufferMark));
    place(header.ring, arena);
    place(header.buffers, arena);
    place(header.journal, 2 * arena);
    header.file_bytes = end + behind;
    header.checksum = header_checksum(header);
    std::ofstream file(folder.path() + "/" + kFileName, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    file.close();
    std::filesystem::resize_file(folder.path() + "/" + kFileName, header.file_bytes);
  };

  make(kMaxArena, 0);
  const pid_t child = fork();
  if (child == 0) _exit(recover(folder.path(), true).done ? 0 : 1);
  int status = 0;
  rusage usage{};
  REQUIRE(wait4(child, &status, 0, &usage) == child);
  CHECK(status == 0);
  CHECK(usage.ru_maxrss < 4'000'000);  // KB, of 16 GB; includes a sanitizer's own memory

  make(2 * kMaxArena, 0);
  CHECK(recover(folder.path(), true).message.ends_with("which its parts do not account for"));
  make(std::uint64_t{64} << 20, std::uint64_t{32} << 30);
  CHECK(recover(folder.path(), true).message.ends_with("which its parts do not account for"));
}

TEST_CASE("what a process still writes to is left alone, wherever it runs", "[recovery][native]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  run.launch();
  run.pass();
  // As if its process id were another process's, or nobody's.
  Header header = header_of(bytes_of(folder));
  header.process_start = 0;
  header.checksum = header_checksum(header);
  std::fstream file(folder.path() + "/" + kFileName, std::ios::binary | std::ios::in | std::ios::out);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.close();

  bool full = false;
  SECTION("while its journal has room") {}
  SECTION("when its journal is full") {
    full = true;
  }
  while (full && !run.journal.full()) {
    run.launch();
    run.pass();
  }
  std::atomic<bool> ends{false};
  std::thread process([&] {
    for (; !ends; usleep(5000)) run.pass();
  });
  const Outcome refused = recover(folder.path(), false);
  ends = true;
  process.join();
  CHECK_FALSE(refused.done);
  CHECK(refused.message.ends_with("is still writing to it"));
  CHECK(recover(folder.path(), false).done);
}

TEST_CASE("the version of the format is the one that is described", "[recovery]") {
  std::ifstream file(INJECT_SOURCE_DIR "/docs/recovery.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  CHECK(text.find("in the byte order of the machine, version " + std::to_string(kVersion) + ".") !=
        std::string::npos);
}

TEST_CASE("records that make no sense are left out and counted", "[recovery][native]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  const auto push = [&](auto change) {
    CallRecord record;
    record.function = find_function("cudaLaunchKernel");
    record.correlation = ++run.correlation;
    record.begin = run.time += 10;
    record.end = run.time += 10;
    record.window = 1;
    record.generation = 1;
    change(record);
    // Counted as a call whatever its kind says, because the queue counts by it.
    run.queue.emplace<CallRecord>(run.core.ring, RecordKind::kCall, 1,
                                  [&](CallRecord& place) { place = record; });
  };
  push([](CallRecord&) {});
  push([](CallRecord& r) { r.function = 0; });
  push([](CallRecord& r) { r.function = kFunctionEnd; });
  push([](CallRecord& r) { r.function = 0xFFFF; });
  push([](CallRecord& r) { r.window = 0x7FFF'FFFF; });
  push([](CallRecord& r) { r.end = r.begin - 1; });
  push([](CallRecord& r) { r.chain = CallChain{kFunctionEnd}; });
  push([](CallRecord& r) { r.chain = CallChain{1} << 16; });
  push([](CallRecord& r) { r.kind = static_cast<RecordKind>(77); });
  // Without a known name, but valid.
  push([](CallRecord& r) { r.range = 99; });
  push([](CallRecord& r) { r.shape = 99; });
  push([](CallRecord& r) { r.function = kDriverFunction | 1; });
  Image image;
  std::string problem;
  const Bytes bytes = bytes_of(folder);
  REQUIRE(image.open(bytes, problem));
  Replay replay(image);
  replay.run();
  const RunInfo info = replay.run_info();
  CHECK(info.recovered->refused == 8);
  CHECK(info.recovered->queue_records == 4);
  CHECK(info.recovered->names_missing == 3);
  CHECK(counts_of(replay.statistics(), info).submissions == 4);
}

TEST_CASE("a journal that finds no room ends, and what follows is counted", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  std::uint64_t launched = 0;
  for (; !run.journal.full(); ++launched) {
    run.launch();
    run.pass();
    REQUIRE(launched < 1'000'000);
  }
  run.launch();
  run.pass();
  run.kernels(1, 10);
  run.pass();
  run.kernels(11, 15);  // handed over but not processed
  Image image;
  std::string problem;
  Bytes bytes = bytes_of(folder);
  REQUIRE(image.open(bytes, problem));
  CHECK(image.live().journal_full);
  CHECK_FALSE(image.live().written_beyond);
  CHECK(image.live().beyond_submissions == 2);
  CHECK(image.live().beyond_records == 10);
  CHECK(recovered(image).submissions == launched - 1);
  Replay replay(image);
  replay.run();
  CHECK(replay.run_info().recovered->calls_not_kept == 2);
  CHECK(replay.run_info().recovered->beyond_records == 15);

  // Records that the tables on disk contain are not missing.
  run.journal.written(run.journal.position());
  run.launch();
  run.pass();
  run.launch();
  bytes = bytes_of(folder);
  Image after;
  REQUIRE(after.open(bytes, problem));
  CHECK(after.live().written_beyond);
  CHECK(after.live().beyond_submissions == 1);
  CHECK(after.live().beyond_records == 5);
  Replay kept(after);
  kept.run();
  kept.keep_tables();
  CHECK(kept.run_info().recovered->tables_kept);
  CHECK(kept.run_info().recovered->calls_not_kept == 2);
}

TEST_CASE("killed as the tables are noted as written, what came after a full journal is counted",
          "[recovery][native]") {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const pages = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  // The counts are the last words of the first page.
  std::uint8_t* const second = static_cast<std::uint8_t*>(pages) + page;
  auto* const live = ::new (second - offsetof(Live, written_beyond)) Live{};
  Core core(RecordedRun::with_ring(64 * 1024));
  WindowLog windows;
  Journal journal(core, windows);
  journal.start(nullptr, 0, *live);
  journal.drops(1, {1, 0});
  journal.commit();
  REQUIRE(journal.full());
  live->beyond_submissions = 5;
  live->beyond_records = 7;
  const pid_t killed = fork();
  REQUIRE(killed >= 0);
  if (killed == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGSEGV, SIG_DFL);
    // The first write to a count kills the process.
    mprotect(pages, page, PROT_READ);
    journal.written(journal.position());
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(killed, &status, 0) == killed);
  REQUIRE(WIFSIGNALED(status));
  CHECK(live->beyond_submissions == 5);
  CHECK(live->beyond_records == 7);
  CHECK(live->written_beyond == 1);
  munmap(pages, 2 * page);
}

TEST_CASE("calls that found the ring full are counted, whether the drain thread had seen it or not",
          "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  const std::uint64_t room = 4 * Block::kSlots;  // 64 KB
  constexpr std::uint64_t kSeen = 7;
  constexpr std::uint64_t kUnseen = 5;
  for (std::uint64_t i = 0; i < room + kSeen; ++i) run.launch();
  run.drain.take_drops(1, {kSeen, 0});
  run.journal.commit();
  for (std::uint64_t i = 0; i < kUnseen; ++i) run.launch();
  Image image;
  std::string problem;
  const Bytes bytes = bytes_of(folder);
  REQUIRE(image.open(bytes, problem));
  CHECK(image.counted().published_calls == room);
  CHECK(image.counted().dropped.calls == kSeen + kUnseen);
  Replay replay(image);
  replay.run();
  const RunInfo info = replay.run_info();
  CHECK(info.recovered->calls_not_kept == 0);
  REQUIRE(info.windows.size() == 1);
  CHECK(info.windows[0].losses.host_records == kSeen + kUnseen);
  CHECK(counts_of(replay.statistics(), info).submissions == room);
}

TEST_CASE("calls that were jumped out of do not hide those that the ring had no room for", "[recovery]") {
  const TemporaryFolder folder;
  RecordedRun run(folder.path());
  REQUIRE(run.opened);
  run.open_window();
  constexpr std::uint64_t kLeft = 100;
  constexpr std::uint64_t kUnseen = 60;
  const std::uint64_t room = 4 * Block::kSlots;  // 64 KB
  HostDrops seen;
  ThreadRegistry::publish(&run.core.threads);
  std::thread([&] {
    ThreadState* state = ThreadRegistry::current();
    if (state == nullptr) return;
    for (std::uint32_t i = 1; i <= kLeft; ++i) {
      OpenCall call;
      call.function = find_function("cudaDeviceSynchronize");
      call.call = i;
      call.stack = 800;
      call.window = 1;
      state->open_calls.enter(call, false);
      state->open_calls.around(800);  // another one begins in its place
    }
    seen = run.core.threads.host_drops();
    run.drain.take_drops(1, seen);
    run.journal.commit();
    for (std::uint64_t i = 0; i < room + kUnseen; ++i) ThreadRegistry::push(*state, run.next_launch());
  }).join();
  ThreadRegistry::publish(&Core::get()->threads);
  CHECK(seen.calls == kLeft);
  Image image;
  std::string problem;
  const Bytes bytes = bytes_of(folder);
  REQUIRE(image.open(bytes, problem));
  CHECK(image.counted().dropped.calls == kLeft + kUnseen);
  Replay replay(image);
  replay.run();
  CHECK(replay.run_info().windows[0].losses.host_records == kLeft + kUnseen);
}

TEST_CASE("what is said of a run comes back, and half of it is not believed", "[recovery]") {
  RunInfo run;
  run.version = "1.2";
  run.command_line = {"python", "train.py"};
  run.host = "host";
  run.rank = "3";
  run.job = JobPlace{"torchrun", "id", 3, 4, 1, {}, {}, 2};
  run.base = 123;
  run.options = {{"INJECT_RING", "16M"}};
  run.messages = {"a message"};
  DeviceInfo device;
  device.name = "GPU";
  device.multiprocessors = 132;
  device.memory_bytes = 1u << 30;
  run.devices = {device};
  MemoryRow row;
  row.device = 2;
  row.api = AllocationApi::kMallocAsync;
  row.counts.peak = 77;
  row.counts.peak_at = 78;
  run.memory = {row};
  const MemoryLine line{
      2, MemoryLine::Of::kAllocated, {{100, 150, 7, 90, 120, 8, 3}, {200, 200, 5, 5, 200, 5, 0}}};
  MemoryLine disordered = line;
  std::swap(disordered.intervals[0], disordered.intervals[1]);
  run.memory_lines = {line, disordered};
  run.memory_until = 300;
  HostWindow host;
  host.window = 4;
  host.begin = 5;
  host.end = 6;
  host.moments.blocked = 3;
  host.workers = 2;
  host.roles = {{HostRole::kOurs, 2, {}}};
  host.roles[0].use.of(HostAmount::kReadBytes) = 8;
  HostWindow impossible = host;
  impossible.end = 4;
  run.host_windows = {host, impossible};
  run.host_readings.windows_not_read = 6;
  run.iterations = IterationInfo{};
  run.iterations->source = "hooks";
  run.iterations->begun = 9;
  const std::string text = encode_run(run);
  RunInfo back;
  REQUIRE(decode_run(text, back));
  CHECK(back.command_line == run.command_line);
  CHECK(back.rank == "3");
  REQUIRE(back.job);
  CHECK((back.job->launcher == "torchrun" && back.job->id == "id" && back.job->rank == 3));
  CHECK((back.job->world_size == 4u && back.job->local_rank == 1u && back.job->nodes == 2u));
  CHECK((!back.job->local_size && !back.job->node));
  CHECK(back.options == run.options);
  REQUIRE(back.devices.size() == 1);
  CHECK(back.devices[0].name == "GPU");
  CHECK(back.devices[0].multiprocessors == 132);
  REQUIRE(back.memory.size() == 1);
  CHECK(back.memory[0].api == AllocationApi::kMallocAsync);
  CHECK(back.memory[0].counts.peak == 77);
  CHECK(back.memory[0].counts.peak_at == 78);
  REQUIRE(back.memory_lines.size() == 1);
  CHECK((back.memory_lines[0].device == 2 && back.memory_lines[0].intervals == line.intervals));
  CHECK(back.memory_until == 300);
  CHECK(back.host_windows == std::vector{host});
  run.host_windows[0].quota_thousandths.reset();
  RunInfo of_unknown_quota;
  REQUIRE(decode_run(encode_run(run), of_unknown_quota));
  CHECK(of_unknown_quota.host_windows.at(0) == run.host_windows[0]);
  CHECK(back.host_readings == run.host_readings);
  REQUIRE(back.iterations);
  CHECK(back.iterations->begun == 9);
  for (std::size_t length = 0; length < text.size(); ++length) {
    RunInfo part;
    CHECK_FALSE(decode_run(std::string_view(text).substr(0, length), part));
  }
}

TEST_CASE("shapes that no library call has are not taken", "[recovery]") {
  GemmShape gemm;
  CHECK(is_shape(gemm));
  gemm.op_a = 0;
  CHECK_FALSE(is_shape(gemm));
  gemm.groups = 2;  // which differ
  CHECK(is_shape(gemm));
  gemm.a = static_cast<DataType>(200);
  CHECK_FALSE(is_shape(gemm));
  CollectiveShape collective;
  collective.operation = static_cast<Collective>(99);
  CHECK_FALSE(is_shape(collective));
  ConvolutionShape convolution;
  convolution.dimensions = 9;
  CHECK_FALSE(is_shape(convolution));
  CHECK_FALSE(is_shape(CallShape{}));
  CallShape::Words words{};
  words.fill(~std::uint64_t{0});
  CallShape any;
  std::memcpy(static_cast<void*>(&any), words.data(), sizeof any);
  CHECK_FALSE(is_shape(any));
}

TEST_CASE("records go neither over a network nor where nothing keeps its place", "[recovery]") {
  CHECK(filesystem_problem(0x6969).find("NFS") != std::string::npos);
  CHECK_FALSE(filesystem_problem(0x65735546).empty());
  CHECK_FALSE(filesystem_problem(0x0BD00BD0).empty());
  CHECK(filesystem_problem(0x9123683E).find("btrfs") != std::string::npos);
  CHECK(filesystem_problem(0xEF53).empty());
  // As a sign-extended 32-bit number, which some kernels report.
  CHECK_FALSE(filesystem_problem(0xFFFF'FFFF'FF53'4D42).empty());
}

TEST_CASE("a run.json is marked, and what is none is left alone", "[recovery]") {
  RunInfo run;
  run.state = "open";
  run.command_line = {"\"state\": \"closed\",\n"};
  std::string text = run_json_text(run, {}, {});
  const std::string before = text;
  RecoveredInfo recovered;
  recovered.tables_kept = true;
  REQUIRE(mark_recovered(text, recovered));
  CHECK(text.find("\"state\": \"recovered\"") != std::string::npos);
  CHECK(text.find("\"tables_kept\": true") != std::string::npos);
  run.state = "recovered";
  run.recovered = recovered;
  CHECK(text == run_json_text(run, {}, {}));
  CHECK_FALSE(mark_recovered(text, recovered));
  // No window is still open in tables that were kept.
  run = RunInfo{};
  run.state = "open";
  run.working_directory = "\"state\": \"open\"";
  run.windows.resize(3);
  run.windows[0].state = WindowState::kClosed;
  run.windows[1].state = WindowState::kClosing;
  text = run_json_text(run, {}, {});
  REQUIRE(mark_recovered(text, recovered));
  CHECK(text.find("\"state\": \"closed\"") != std::string::npos);
  const std::size_t cut = text.find("\"state\": \"cut\"");
  REQUIRE(cut != std::string::npos);
  CHECK(text.find("\"state\": \"cut\"", cut + 1) != std::string::npos);
  CHECK(text.find("\"state\": \"open\"") == std::string::npos);
  std::string none = "[\"state\": \"open\",\n";
  CHECK_FALSE(mark_recovered(none, recovered));
}
