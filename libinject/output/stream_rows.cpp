// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/output/stream_rows.h"

#include <algorithm>

#include "libinject/base/mapping.h"

namespace inject {

namespace {
// Approximate number of spans remembered by all rows together.
constexpr std::size_t kKeptTotal = 1u << 17;
constexpr std::size_t kMinKept = 64;
}  // namespace

bool StreamRows::Shown::add(Nanoseconds begin, Nanoseconds end, std::size_t kept) {
  if (begin < known_from_) return false;
  if (spans_.empty() || spans_.back().end <= begin) {
    spans_.push_back({begin, end});
  } else {
    const auto next = std::upper_bound(spans_.begin(), spans_.end(), begin,
                                       [](Nanoseconds time, const Span& span) { return time < span.end; });
    if (next->begin < end) return false;
    spans_.insert(next, {begin, end});
  }
  if (spans_.size() >= 2 * kept) {
    const auto first = spans_.end() - static_cast<std::ptrdiff_t>(kept);
    known_from_ = (first - 1)->end;
    spans_.erase(spans_.begin(), first);
  }
  return true;
}

StreamRows::Stream* StreamRows::find(const Key& key) {
  const std::uint64_t hash = hash_mix(std::uint64_t{key.first} << 32 | key.second);
  Found& place = found_[hash % found_.size()];
  if (place.stream != nullptr && place.key == key) return place.stream;
  auto stream = streams_.find(key);
  if (stream == streams_.end()) {
    if (streams_.size() >= kMaxStreams) return nullptr;
    stream = streams_.emplace(key, Stream{Shown(key.second)}).first;
    ++rows_;
  }
  place = {key, &stream->second};
  return place.stream;
}

std::uint32_t StreamRows::place(std::uint32_t device, std::uint32_t stream, Nanoseconds begin,
                                Nanoseconds end) {
  Stream* rows = find({device, stream});
  if (rows == nullptr) return stream;
  end = std::max(begin, end);
  const std::size_t kept = std::clamp(kKeptTotal / rows_, kMinKept, kKept);
  for (Shown& row : *rows) {
    if (row.add(begin, end, kept)) return row.number();
  }
  if (rows->size() >= kMaxRows || beside_ >= kMaxBeside) return rows->back().number();
  Shown& row = rows->emplace_back(kFirstBeside + static_cast<std::uint32_t>(beside_++));
  ++rows_;
  row.add(begin, end, kept);
  return row.number();
}

std::vector<StreamRows::Row> StreamRows::rows() const {
  std::vector<Row> found;
  found.reserve(rows_);
  for (const auto& [key, rows] : streams_) {
    for (const Shown& row : rows) found.push_back({key.first, key.second, row.number()});
  }
  return found;
}

}  // namespace inject
