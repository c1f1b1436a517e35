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

#include "libinject/model/records.h"

namespace inject {

/// The timeline's row for what ran on a stream. Viewers can't show what overlaps on a row: they leave it out,
/// or draw it as a part of what it overlaps with. So a stream's row has what does not, and what would overlap
/// with it, as a kernel that began before the one that it follows had ended (programmatic dependent launch)
/// or those of a graph that run side by side, gets rows beside it. That holds in whatever order work is told:
/// of each row the latest spans are known, and what is older than those goes beside it as well. It no longer
/// does where the bounds are reached.
class StreamRows {
 public:
  static constexpr std::size_t kMaxStreams = 4096;
  /// Of a stream: a GPU runs no more kernels at a time.
  static constexpr std::size_t kMaxRows = 128;
  /// Of all streams, beside their own.
  static constexpr std::size_t kMaxBeside = 4096;
  /// Rows beside streams' own are numbered from here on, in the order in which they were needed. The
  /// programs' streams are counted from 1, and a viewer has 32 bits for a row.
  static constexpr std::uint32_t kFirstBeside = 1u << 30;
  /// Spans of a row that are known, for what comes late, where there are few rows. A call that waits for its
  /// copy is told after what other threads launched meanwhile, and its copy with it.
  static constexpr std::size_t kKept = 4096;

  struct Row {
    std::uint32_t device;
    std::uint32_t stream;
    std::uint32_t number;
  };

  /// The number of its row: the stream's, or one beside it.
  std::uint32_t place(std::uint32_t device, std::uint32_t stream, Nanoseconds begin, Nanoseconds end);
  /// Those of the first kMaxStreams streams, by device and stream, a stream's own first.
  std::vector<Row> rows() const;

 private:
  /// What a row shows, and does not overlap.
  class Shown {
   public:
    explicit Shown(std::uint32_t number) : number_(number) {}
    std::uint32_t number() const { return number_; }
    /// False: it would overlap, or may.
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
  std::array<Found, 64> found_{};  // those looked for last
  std::size_t rows_ = 0;
  std::size_t beside_ = 0;
};

}  // namespace inject
