// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Record files with any contents (docs/recovery.md), to the tables. The input is the journal's entries, then
// the threads' queues, CUPTI's buffers and the rest; header and checksums are made right, so that what is
// behind them is seen, unless the input says otherwise.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/output/run_json.h"
#include "libinject/output/summary.h"
#include "libinject/output/table_files.h"
#include "libinject/replay/image.h"
#include "libinject/replay/replay.h"
#include "tests/fuzz/fuzz.h"

using namespace inject;
using namespace inject::recovery;

namespace {

constexpr std::size_t kUnits = 4;
constexpr std::size_t kUnitBytes = 4096;
constexpr std::size_t kQueueBlocks = 2;
constexpr std::size_t kJournalBytes = 16 * 1024;

/// A whole file, of the smallest parts that there may be.
class File {
 public:
  File() {
    std::uint64_t end = kHeaderBytes;
    const auto place = [&end](Part& part, std::uint64_t bytes) {
      part = {end, bytes};
      end += bytes;
    };
    place(header_.info, 2 * kInfoBytes);
    place(header_.counts, ThreadRegistry::kCountLines * sizeof(RecordCounts));
    place(header_.marks, kUnits * sizeof(BufferMark));
    place(header_.ring, kQueueBlocks * sizeof(Block));
    place(header_.buffers, kUnits * kUnitBytes);
    place(header_.journal, kJournalBytes);
    header_.functions = function_print();
    header_.file_bytes = end;
    header_.block_bytes = sizeof(Block);
    header_.unit_bytes = kUnitBytes;
    header_.base = 1'000'000;
    header_.checksum = header_checksum(header_);
    bytes_.resize(end);
  }

  void clear() {
    std::memset(bytes_.data(), 0, kHeaderBytes);
    std::memset(bytes_.data() + header_.info.offset, 0, sizeof(InfoHeader));
    std::memset(bytes_.data() + header_.marks.offset, 0, bytes_.size() - header_.marks.offset);
    put(0, &header_, sizeof header_);
    at_ = header_.journal.offset;
    number_ = 0;
  }

  void block(std::string_view contents) {
    const std::size_t padded = (contents.size() + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
    if (contents.empty() || at_ + 2 * sizeof(BlockHeader) + padded > bytes_.size()) return;
    put(at_ + sizeof(BlockHeader), contents.data(), contents.size());
    const std::uint64_t number = ++number_;
    const std::uint64_t checksum = block_checksum(contents.data(), contents.size(), number);
    const std::uint64_t size = contents.size();
    put(at_ + offsetof(BlockHeader, checksum), &checksum, sizeof checksum);
    put(at_ + offsetof(BlockHeader, number), &number, sizeof number);
    put(at_ + offsetof(BlockHeader, bytes), &size, sizeof size);
    at_ += sizeof(BlockHeader) + padded;
  }

  void info(std::string_view text) {
    const InfoHeader header{block_checksum(text.data(), text.size(), 1), 1, text.size()};
    put(header_.info.offset, &header, sizeof header);
    put(header_.info.offset + sizeof header, text.data(), text.size());
  }

  void queue(std::size_t number, std::uint32_t published, std::uint32_t thread, std::uint64_t sequence,
             std::string_view slots) {
    const std::size_t at = header_.ring.offset + number * sizeof(Block);
    put(at + offsetof(Block, published), &published, sizeof published);
    put(at + offsetof(Block, thread), &thread, sizeof thread);
    put(at + offsetof(Block, sequence), &sequence, sizeof sequence);
    put(at + offsetof(Block, slots), slots.data(), std::min(slots.size(), sizeof(Block::slots)));
  }

  void buffer(std::size_t unit, std::uint64_t sequence, std::uint32_t units, std::uint64_t valid,
              std::string_view records) {
    const std::size_t at = header_.marks.offset + unit * sizeof(BufferMark);
    put(at + offsetof(BufferMark, sequence), &sequence, sizeof sequence);
    put(at + offsetof(BufferMark, units), &units, sizeof units);
    put(at + offsetof(BufferMark, valid), &valid, sizeof valid);
    put(header_.buffers.offset + unit * kUnitBytes, records.data(), std::min(records.size(), kUnitBytes));
  }

  /// Anywhere in the first pages: header and the words behind it.
  void change(std::size_t at, std::uint64_t value) {
    put(at % (kLiveOffset + sizeof(Live)) / 8 * 8, &value, sizeof value);
  }
  void seal() {
    Header header;
    std::memcpy(static_cast<void*>(&header), bytes_.data(), sizeof header);
    const std::uint64_t checksum = header_checksum(header);
    put(offsetof(Header, checksum), &checksum, sizeof checksum);
  }

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  void put(std::size_t at, const void* from, std::size_t size) {
    if (size != 0) std::memcpy(bytes_.data() + at, from, size);
  }

  Header header_;
  std::vector<std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::uint64_t number_ = 0;
};

std::string_view part_of(std::string_view& rest, fuzz::Input& lengths, std::size_t most) {
  const std::size_t length = std::min<std::size_t>({lengths.number<std::uint16_t>(), most, rest.size()});
  const std::string_view part = rest.substr(0, length);
  rest.remove_prefix(length);
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static File file;
  file.clear();
  // What says how the rest is laid out comes first.
  constexpr std::size_t kPlan = 64;
  fuzz::Input plan(data, std::min(size, kPlan));
  std::string_view rest(reinterpret_cast<const char*>(data) + std::min(size, kPlan),
                        size - std::min(size, kPlan));
  const auto flags = plan.number<std::uint8_t>();
  for (unsigned blocks = flags & 3u; blocks > 0; --blocks) file.block(part_of(rest, plan, kJournalBytes));
  if ((flags & 4) != 0) file.info(part_of(rest, plan, 4096));
  for (std::size_t i = 0; i < kQueueBlocks && (flags & 8) != 0; ++i) {
    const std::uint32_t published = plan.number<std::uint16_t>() % (Block::kFull + 2);
    const std::uint32_t thread = plan.flag() ? plan.number<std::uint8_t>() : plan.number<std::uint32_t>();
    const std::uint64_t sequence = plan.number<std::uint8_t>();
    file.queue(i, published, thread, sequence, part_of(rest, plan, sizeof(Block::slots)));
  }
  for (std::size_t i = 0; i < kUnits && (flags & 16) != 0; ++i) {
    const std::uint64_t sequence = plan.number<std::uint8_t>();
    const auto units = static_cast<std::uint32_t>(plan.number<std::uint8_t>() % (kUnits + 2));
    const std::uint64_t valid = plan.number<std::uint16_t>();
    file.buffer(i, sequence, units, valid, part_of(rest, plan, kUnitBytes));
  }
  if ((flags & 32) != 0) file.change(plan.number<std::uint16_t>(), plan.number<std::uint64_t>());
  if ((flags & 64) == 0) file.seal();

  Image image;
  std::string problem;
  if (!image.open(file.bytes(), problem)) {
    fuzz::require(!problem.empty() && fuzz::is_one_line(problem),
                  "what is refused has one line that says why");
    return 0;
  }
  Replay replay(image);
  replay.run();
  const RunInfo run = replay.run_info();
  const Report report = build_report(replay.statistics(), run);
  for (const TableFile& table : table_files()) {
    if (is_wanted(table, report)) table_text(table, report);
  }
  summary_text(report, "folder");
  std::string text = run_json_text(run, {}, {});
  fuzz::require(!mark_recovered(text, *run.recovered), "a run.json of a recovered run says so");
  return 0;
}
