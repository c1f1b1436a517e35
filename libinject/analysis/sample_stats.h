// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "libinject/base/uint128.h"

namespace inject {

/// Limits the bytes used by individual values kept for exact medians, shared by all rows of a run.
struct SampleBudget {
  std::size_t limit = std::size_t{16} << 20;
  std::size_t used = 0;
};

/// Number of values, their sum and the sum of their squares.
struct Moments {
  std::uint64_t count = 0;
  double sum = 0;
  double squares = 0;

  void add(std::uint64_t value, std::uint64_t times = 1) {
    const auto of = static_cast<double>(value);
    count += times;
    sum += of * static_cast<double>(times);
    squares += of * of * static_cast<double>(times);
  }
};

/// Counts of values in buckets whose width grows with the value: 64 buckets per power of two, so that the
/// middle of a bucket is at most 1/128 (0.8 %) off any value in it. At most 2 KiB of counters: if values
/// spread over more than 8 powers of two, buckets become twice as wide (1.6 %), over more than 16 four times
/// (3.1 %), over more than 32 eight times (6.3 %), which covers all 64-bit values.
class LogHistogram {
 public:
  void add(std::uint64_t value, std::uint32_t times = 1);
  void merge(const LogHistogram& other);
  /// The value of the given rank, counted from 0 in ascending order.
  std::uint64_t value_at(std::uint64_t rank) const;
  /// The moments of the values up to `most`, using the middles of their buckets.
  Moments moments_up_to(std::uint64_t most) const;
  std::uint64_t total() const { return total_; }
  /// Largest relative distance between a value and the middle of its bucket.
  double error() const;

 private:
  // Counters come in chunks of a cache line: the values of one kernel lie close together.
  static constexpr unsigned kChunkBuckets = 16;
  // Zero and 64 powers of two with an eighth of the buckets: no values need wider ones.
  static constexpr unsigned kMaxChunks = 33;
  using Counters = std::array<std::uint32_t, kChunkBuckets>;

  static unsigned bucket_of(std::uint64_t value, unsigned coarseness);
  static std::uint64_t middle_of(unsigned bucket, unsigned coarseness);
  unsigned find_or_add_chunk(unsigned chunk);
  void coarsen();
  void add_bucket(unsigned bucket, std::uint64_t times);

  std::uint64_t total_ = 0;
  std::uint8_t coarseness_ = 0;  // 64 >> coarseness_ buckets per power of two
  std::uint8_t chunks_ = 0;
  std::uint8_t last_chunk_ = 0;
  std::array<std::uint16_t, kMaxChunks> ids_{};
  std::vector<Counters> counters_;
};

/// Count, sum, minimum, maximum, mean and sample standard deviation of integers, exact and independent of
/// their order. The median is exact up to kExactSamples values, as long as the rows' shared budget permits,
/// and from a LogHistogram beyond that. May throw std::bad_alloc.
class SampleStats {
 public:
  static constexpr std::size_t kExactSamples = 1024;

  explicit SampleStats(SampleBudget* budget = nullptr) noexcept : budget_(budget) {}
  SampleStats(const SampleStats& other);
  SampleStats(SampleStats&& other) noexcept;
  SampleStats& operator=(SampleStats other) noexcept;
  ~SampleStats();

  void add(std::uint64_t value);
  void merge(const SampleStats& other);

  std::uint64_t count() const { return count_; }
  /// Saturates at the largest 64-bit value.
  std::uint64_t sum() const;
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  std::uint64_t max() const { return max_; }
  double mean() const;
  /// The sample standard deviation (n - 1), as Nsight Systems prints it; 0 for fewer than two values.
  double stddev() const;
  /// For an even number of values, the mean of the two middle ones.
  double median() const;
  /// The smallest value that is not exceeded by at least this share (0 … 1) of all values, as exact as
  /// median().
  std::uint64_t percentile(double share) const;
  /// The value of the given rank, counted from 0 in ascending order, as exact as median().
  std::uint64_t value_at(std::uint64_t rank) const;
  /// The moments of the values up to `most`, as exact as median().
  Moments moments_up_to(std::uint64_t most) const;
  /// Bound on the median's relative error; 0 if it is exact.
  double median_error() const { return histogram_ ? histogram_->error() : 0.0; }

 private:
  bool reserve_samples();
  void release_samples() noexcept;
  void to_histogram();

  std::uint64_t count_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
  std::uint64_t max_ = 0;
  Uint128 sum_ = 0;
  Uint128 squares_ = 0;  // saturates
  std::vector<std::uint64_t> samples_;
  std::unique_ptr<LogHistogram> histogram_;
  SampleBudget* budget_;
};

/// The part of SampleStats that needs no memory beyond itself.
struct Totals {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  std::uint64_t min = ~std::uint64_t{0};
  std::uint64_t max = 0;

  void add(std::uint64_t value) {
    ++count;
    sum += value;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  void merge(const Totals& other) {
    count += other.count;
    sum += other.sum;
    if (other.min < min) min = other.min;
    if (other.max > max) max = other.max;
  }
  std::uint64_t smallest() const { return count == 0 ? 0 : min; }
  double mean() const { return count == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(count); }
};

}  // namespace inject
