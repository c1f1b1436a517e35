// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/replay/image.h"

#include <algorithm>
#include <cstring>

#include "libinject/base/format.h"

namespace inject::recovery {

namespace {

template <typename T>
T read_at(std::span<const std::uint8_t> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Reads an atomic word, which cannot be copied.
std::uint64_t word_at(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return read_at<std::uint64_t>(bytes, offset);
}

std::string_view text_of(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Each use of a block or buffer has one entry.
template <typename Found>
void in_order(std::vector<Found>& found) {
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.sequence < b.sequence; });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const Found& a, const Found& b) { return a.sequence == b.sequence; }),
              found.end());
}

}  // namespace

bool Image::open(std::span<const std::uint8_t> bytes, std::string& problem) {
  bytes_ = bytes;
  if (bytes.size() < kHeaderBytes) {
    problem = "it is too short for a record file";
    return false;
  }
  header_ = read_at<Header>(bytes, 0);
  if (header_.magic != kMagic) {
    problem = "it is not a record file";
    return false;
  }
  if (header_.version != kVersion) {
    problem = str_format("it has version {} of the format; this injectctl reads version {}", header_.version,
                         kVersion);
    return false;
  }
  if (header_.header_bytes != sizeof(Header) || header_.checksum != header_checksum(header_)) {
    problem = "its header is damaged";
    return false;
  }
  if (header_.functions != function_print()) {
    problem = "it was written by another version of libinject than this injectctl's";
    return false;
  }
  if (!check_parts(problem)) return false;
  read_live();
  read_counts();
  read_info();
  read_blocks();
  read_buffers();
  return true;
}

bool Image::check_parts(std::string& problem) const {
  if (header_.file_bytes != bytes_.size()) {
    problem = str_format("it has {} bytes, and was made with {}", bytes_.size(), header_.file_bytes);
    return false;
  }
  std::uint64_t end = kHeaderBytes;
  for (const Part* part :
       {&header_.info, &header_.counts, &header_.marks, &header_.ring, &header_.buffers, &header_.journal}) {
    if (part->offset % 8 != 0 || part->offset < end || part->offset > bytes_.size() ||
        part->bytes > bytes_.size() - part->offset) {
      problem = "its header is damaged";
      return false;
    }
    end = part->offset + part->bytes;
  }
  if (header_.info.bytes != 2 * kInfoBytes ||
      header_.counts.bytes != ThreadRegistry::kCountLines * sizeof(RecordCounts) ||
      header_.block_bytes != sizeof(Block) || header_.unit_bytes % kUnitAlign != 0 ||
      header_.unit_bytes == 0) {
    problem = "its header is damaged";
    return false;
  }
  // The space between the parts, and after the last, is less than a page, so these bound the file's size.
  const std::uint64_t units = header_.marks.bytes / sizeof(BufferMark);
  const std::uint64_t parts = header_.info.bytes + header_.counts.bytes + header_.marks.bytes +
                              header_.ring.bytes + header_.buffers.bytes + header_.journal.bytes;
  if (header_.ring.bytes > kMaxArena || header_.buffers.bytes > kMaxArena ||
      header_.journal.bytes > header_.ring.bytes + header_.buffers.bytes ||
      header_.buffers.bytes / header_.unit_bytes != units || bytes_.size() - parts > 7 * kHeaderBytes) {
    problem = str_format("it has {} bytes, which its parts do not account for", bytes_.size());
    return false;
  }
  return true;
}

void Image::read_live() {
  const auto word = [this](std::size_t offset) { return word_at(bytes_, kLiveOffset + offset); };
  live_.journal_full = word(offsetof(Live, journal_full)) != 0;
  live_.written_beyond = word(offsetof(Live, written_beyond)) != 0;
  live_.beyond_submissions = word(offsetof(Live, beyond_submissions));
  live_.beyond_records = word(offsetof(Live, beyond_records));
  live_.written_block = word(offsetof(Live, written_block));
  live_.written_calls = word(offsetof(Live, written_calls));
  live_.cupti_version = word(offsetof(Live, cupti_version));
  live_.clock_ahead = word(offsetof(Live, clock_ahead));
  live_.alive = word(offsetof(Live, alive));
  for (std::size_t i = 0; i < live_.record_bytes.size(); ++i) {
    const std::uint64_t bytes = word(offsetof(Live, record_bytes) + 8 * i);
    live_.record_bytes[i] = bytes > kBlockAlign && bytes <= 4096 ? static_cast<std::uint32_t>(bytes) : 0;
  }
}

void Image::read_counts() {
  const auto lines = part(header_.counts);
  for (std::size_t at = 0; at < lines.size(); at += sizeof(RecordCounts)) {
    const auto count = [&](std::size_t words, RecordKind kind) {
      return word_at(lines, at + words + 8 * kind_index(kind));
    };
    counted_.published_calls += count(offsetof(RecordCounts, published), RecordKind::kCall);
    counted_.dropped.calls += count(offsetof(RecordCounts, dropped), RecordKind::kCall);
    counted_.dropped.ranges += count(offsetof(RecordCounts, dropped), RecordKind::kRange);
  }
}

void Image::read_info() {
  const auto places = part(header_.info);
  std::uint64_t newest = 0;
  for (const std::size_t at : {std::size_t{0}, kInfoBytes}) {
    const auto found = read_at<InfoHeader>(places, at);
    if (found.number != 0) info_damaged_ = newest == 0;
    if (found.number <= newest || found.bytes > kInfoBytes - sizeof found) continue;
    const auto text = places.subspan(at + sizeof found, found.bytes);
    if (found.checksum != block_checksum(text.data(), text.size(), found.number)) continue;
    newest = found.number;
    info_ = text_of(text);
    info_damaged_ = false;
  }
}

void Image::read_blocks() {
  const auto journal = part(header_.journal);
  std::size_t at = 0;
  for (std::uint64_t number = 1; journal.size() - at >= sizeof(BlockHeader); ++number) {
    const std::uint64_t bytes = word_at(journal, at + offsetof(BlockHeader, bytes));
    cut_ = bytes != 0 || has_block_after(at, number);
    if (bytes == 0) return;
    const std::size_t room = journal.size() - at - sizeof(BlockHeader);
    if (bytes > room || word_at(journal, at + offsetof(BlockHeader, number)) != number) return;
    const auto contents = journal.subspan(at + sizeof(BlockHeader), bytes);
    if (word_at(journal, at + offsetof(BlockHeader, checksum)) !=
        block_checksum(contents.data(), contents.size(), number)) {
      return;
    }
    cut_ = false;
    blocks_.push_back(text_of(contents));
    const std::size_t padded = (bytes + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
    if (padded > room) return;
    at += sizeof(BlockHeader) + padded;
  }
}

// Whether block `number`, which should be at `at`, was lost: the page with its header may never have reached
// the disk, while pages after it did.
bool Image::has_block_after(std::size_t at, std::uint64_t number) const {
  const auto journal = part(header_.journal);
  // Bounds the time that contents full of headers can take.
  std::size_t left = journal.size();
  // Nor is a file of holes read to its end.
  constexpr std::size_t kLargestGap = std::size_t{16} << 20;
  const std::size_t end = std::min(journal.size(), at + kLargestGap);
  for (; end - at >= sizeof(BlockHeader); at += kBlockAlign) {
    const std::uint64_t later = word_at(journal, at + offsetof(BlockHeader, number));
    if (later <= number || later - number > journal.size() / sizeof(BlockHeader)) continue;
    const std::uint64_t bytes = word_at(journal, at + offsetof(BlockHeader, bytes));
    if (bytes == 0 || bytes > journal.size() - at - sizeof(BlockHeader)) continue;
    if (bytes > left) return true;  // it is not as libinject writes it
    left -= bytes;
    const auto* const contents = journal.data() + at + sizeof(BlockHeader);
    if (word_at(journal, at + offsetof(BlockHeader, checksum)) == block_checksum(contents, bytes, later))
      return true;
  }
  return false;
}

std::vector<Image::QueueBlock> Image::queue_blocks() const {
  const auto ring = part(header_.ring);
  std::vector<QueueBlock> found;
  for (std::size_t at = 0; ring.size() - at >= sizeof(Block); at += sizeof(Block)) {
    QueueBlock block;
    block.sequence = word_at(ring, at + offsetof(Block, sequence));
    block.thread = read_at<std::uint32_t>(ring, at + offsetof(Block, thread));
    block.published = read_at<BlockPosition>(ring, at + offsetof(Block, published));
    block.slots = reinterpret_cast<const Slot*>(ring.data() + at + offsetof(Block, slots));
    if (block.sequence != 0 && block.published != 0 && block.published <= Block::kFull)
      found.push_back(block);
  }
  in_order(found);
  return found;
}

void Image::read_buffers() {
  const auto marks = part(header_.marks);
  const auto all = part(header_.buffers);
  const std::size_t unit = header_.unit_bytes;
  std::size_t claimed = 0;  // units before this belong to an earlier buffer
  for (std::size_t i = 0; marks.size() - i * sizeof(BufferMark) >= sizeof(BufferMark); ++i) {
    const std::size_t at = i * sizeof(BufferMark);
    const std::uint64_t sequence = word_at(marks, at + offsetof(BufferMark, sequence));
    const auto units = read_at<std::uint32_t>(marks, at + offsetof(BufferMark, units));
    const std::uint64_t valid = word_at(marks, at + offsetof(BufferMark, valid));
    if (sequence == 0 || i >= all.size() / unit || units > all.size() / unit - i || valid > units * unit)
      continue;
    if (i < claimed) {
      overlapping_bytes_ += valid;
      continue;
    }
    claimed = i + units;
    buffers_.push_back({sequence, read_at<std::uint16_t>(marks, at + offsetof(BufferMark, generation)),
                        all.subspan(i * unit, valid)});
  }
  in_order(buffers_);
}

}  // namespace inject::recovery
