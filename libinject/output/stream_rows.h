// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// Assigns work on streams to rows of the timeline. Viewers cannot show overlapping events on one row: they
/// leave them out, or draw one as part of the other. So work that would overlap with what its stream's row
/// already has goes to an extra row: a kernel that began before its predecessor had ended (programmatic
/// dependent launch), or concurrent kernels of a graph. This holds in whatever order work arrives: each row
/// remembers its latest spans, and work older than those goes to an extra row as well. It no longer holds
/// once the limits are reached.
class StreamRows {
 public:
  static constexpr std::size_t kMaxStreams = 4096;
  /// Per stream: a GPU does not run more kernels concurrently.
  static constexpr std::size_t kMaxRows = 128;
  /// Extra rows of all streams together.
  static constexpr std::size_t kMaxBeside = 4096;
  /// Extra rows are numbered from here, in the order in which they were needed. The program's streams count
  /// from 1, and a viewer has 32 bits for a row.
  static constexpr std::uint32_t kFirstBeside = 1u << 30;
  /// Spans that a row remembers for work that arrives late, as long as there are few rows. A call that waits
  /// for its copy arrives later than what other threads launched in the meantime, and so does its copy.
  static constexpr std::size_t kKept = 4096;

  struct Row {
    std::uint32_t device;
    std::uint32_t stream;
    std::uint32_t number;
  };

  /// The number of the row: the stream's own or an extra one.
  std::uint32_t place(std::uint32_t device, std::uint32_t stream, Nanoseconds begin, Nanoseconds end);
  /// The rows of the first kMaxStreams streams, by device and stream; a stream's own row comes first.
  std::vector<Row> rows() const;

 private:
  /// The spans on a row, which do not overlap.
  class Shown {
   public:
    explicit Shown(std::uint32_t number) : number_(number) {}
    std::uint32_t number() const { return number_; }
    /// False if it would, or might, overlap.
    bool add(Nanoseconds begin, Nanoseconds end, std::size_t kept);

   private:
    struct Span {
      Nanoseconds begin;
      Nanoseconds end;
    };
    std::uint32_t number_;
    Nanoseconds known_from_ = 0;
    std::vector<Span> spans_;  // in order
  };
  using Stream = std::vector<Shown>;
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // device, stream
  struct Found {
    Key key;
    Stream* stream = nullptr;
  };

  Stream* find(const Key& key);

  std::map<Key, Stream> streams_;
  std::array<Found, 64> found_{};  // cache of the latest lookups
  std::size_t rows_ = 0;
  std::size_t beside_ = 0;
};

}  // namespace inject
