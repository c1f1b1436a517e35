// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/analysis/sample_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace inject {

namespace {

constexpr unsigned kOctaveBits = 6;  // 64 buckets per power of two
constexpr std::size_t kFirstSamples = 4;

}  // namespace

// Bucket 0 holds 0; the values of [2^k, 2^(k+1)) lie in the buckets from (k + 1) * 64 on, divided by
// 2^coarseness.
unsigned LogHistogram::bucket_of(std::uint64_t value, unsigned coarseness) {
  if (value == 0) return 0;
  const unsigned octave = 63u - static_cast<unsigned>(std::countl_zero(value));
  const std::uint64_t fraction =
      octave >= kOctaveBits ? value >> (octave - kOctaveBits) : value << (kOctaveBits - octave);
  const auto sub = static_cast<unsigned>(fraction) & ((1u << kOctaveBits) - 1);
  return (((octave + 1) << kOctaveBits) | sub) >> coarseness;
}

std::uint64_t LogHistogram::middle_of(unsigned bucket, unsigned coarseness) {
  const unsigned fine = bucket << coarseness;
  if (fine < (1u << kOctaveBits)) return 0;
  const unsigned octave = (fine >> kOctaveBits) - 1;
  const std::uint64_t sub = (fine & ((1u << kOctaveBits) - 1)) | (1u << kOctaveBits);
  const unsigned width_bits = octave + coarseness;  // times 2^-6
  if (octave < kOctaveBits) {
    const std::uint64_t low = sub >> (kOctaveBits - octave);
    if (width_bits < kOctaveBits) return low;
    return low + ((std::uint64_t{1} << (width_bits - kOctaveBits)) - 1) / 2;
  }
  return (sub << (octave - kOctaveBits)) + (std::uint64_t{1} << (width_bits - kOctaveBits)) / 2;
}

double LogHistogram::error() const {
  return 1.0 / static_cast<double>(128u >> coarseness_);
}

unsigned LogHistogram::find_or_add_chunk(unsigned chunk) {
  if (last_chunk_ < chunks_ && ids_[last_chunk_] == chunk) return last_chunk_;
  for (unsigned i = 0; i < chunks_; ++i) {
    if (ids_[i] == chunk) return i;
  }
  if (chunks_ == kMaxChunks) return kMaxChunks;
  counters_.emplace_back();
  ids_[chunks_] = static_cast<std::uint16_t>(chunk);
  return chunks_++;
}

void LogHistogram::coarsen() {
  LogHistogram wider;
  wider.coarseness_ = static_cast<std::uint8_t>(coarseness_ + 1);
  for (unsigned i = 0; i < chunks_; ++i) {
    for (unsigned j = 0; j < kChunkBuckets; ++j) {
      if (counters_[i][j] != 0) wider.add_bucket((ids_[i] * kChunkBuckets + j) >> 1, counters_[i][j]);
    }
  }
  *this = std::move(wider);
}

void LogHistogram::add_bucket(unsigned bucket, std::uint64_t times) {
  unsigned index = find_or_add_chunk(bucket / kChunkBuckets);
  // 64 powers of two take 256 chunks and zero one more; each step halves that, so three steps suffice for any
  // values.
  while (index == kMaxChunks) {
    coarsen();
    bucket >>= 1;
    index = find_or_add_chunk(bucket / kChunkBuckets);
  }
  last_chunk_ = static_cast<std::uint8_t>(index);
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  while (counters_[index][bucket % kChunkBuckets] + times > kMax) {
    // The median only needs the shape of the distribution, so halve all counters.
    total_ = 0;
    for (Counters& counters : counters_) {
      for (std::uint32_t& counter : counters) {
        counter /= 2;
        total_ += counter;
      }
    }
    times = std::max<std::uint64_t>(times / 2, 1);
  }
  counters_[index][bucket % kChunkBuckets] += static_cast<std::uint32_t>(times);
  total_ += times;
}

void LogHistogram::add(std::uint64_t value, std::uint32_t times) {
  add_bucket(bucket_of(value, coarseness_), times);
}

void LogHistogram::merge(const LogHistogram& other) {
  if (&other == this) {
    merge(LogHistogram(other));
    return;
  }
  while (coarseness_ < other.coarseness_) coarsen();
  for (unsigned i = 0; i < other.chunks_; ++i) {
    for (unsigned j = 0; j < kChunkBuckets; ++j) {
      // coarseness_ may grow during the loop.
      if (other.counters_[i][j] == 0) continue;
      const unsigned bucket = other.ids_[i] * kChunkBuckets + j;
      add_bucket(bucket >> (coarseness_ - other.coarseness_), other.counters_[i][j]);
    }
  }
}

std::uint64_t LogHistogram::value_at(std::uint64_t rank) const {
  std::array<std::uint8_t, kMaxChunks> order{};
  for (unsigned i = 0; i < chunks_; ++i) order[i] = static_cast<std::uint8_t>(i);
  std::sort(order.begin(), order.begin() + chunks_,
            [this](std::uint8_t a, std::uint8_t b) { return ids_[a] < ids_[b]; });
  std::uint64_t below = 0;
  unsigned last = 0;
  for (unsigned i = 0; i < chunks_; ++i) {
    for (unsigned j = 0; j < kChunkBuckets; ++j) {
      const std::uint32_t counter = counters_[order[i]][j];
      if (counter == 0) continue;
      last = ids_[order[i]] * kChunkBuckets + j;
      below += counter;
      if (below > rank) return middle_of(last, coarseness_);
    }
  }
  return middle_of(last, coarseness_);
}

Moments LogHistogram::moments_up_to(std::uint64_t most) const {
  Moments moments;
  for (unsigned i = 0; i < chunks_; ++i) {
    for (unsigned j = 0; j < kChunkBuckets; ++j) {
      const std::uint64_t value = middle_of(ids_[i] * kChunkBuckets + j, coarseness_);
      if (counters_[i][j] != 0 && value <= most) moments.add(value, counters_[i][j]);
    }
  }
  return moments;
}

SampleStats::SampleStats(const SampleStats& other)
    : count_(other.count_),
      min_(other.min_),
      max_(other.max_),
      sum_(other.sum_),
      squares_(other.squares_),
      samples_(other.samples_),
      histogram_(other.histogram_ ? std::make_unique<LogHistogram>(*other.histogram_) : nullptr),
      budget_(nullptr) {}  // copies are short-lived, for one report

SampleStats::SampleStats(SampleStats&& other) noexcept
    : count_(std::exchange(other.count_, 0)),
      min_(std::exchange(other.min_, ~std::uint64_t{0})),
      max_(std::exchange(other.max_, 0)),
      sum_(std::exchange(other.sum_, 0)),
      squares_(std::exchange(other.squares_, 0)),
      samples_(std::exchange(other.samples_, {})),
      histogram_(std::move(other.histogram_)),
      budget_(other.budget_) {}

SampleStats& SampleStats::operator=(SampleStats other) noexcept {
  std::swap(count_, other.count_);
  std::swap(min_, other.min_);
  std::swap(max_, other.max_);
  std::swap(sum_, other.sum_);
  std::swap(squares_, other.squares_);
  std::swap(samples_, other.samples_);
  std::swap(histogram_, other.histogram_);
  std::swap(budget_, other.budget_);
  return *this;
}

SampleStats::~SampleStats() {
  release_samples();
}

bool SampleStats::reserve_samples() {
  if (samples_.size() < samples_.capacity()) return true;
  if (samples_.size() >= kExactSamples) return false;
  const std::size_t capacity = std::max(kFirstSamples, std::min(samples_.size() * 2, kExactSamples));
  const std::size_t bytes = (capacity - samples_.capacity()) * sizeof(std::uint64_t);
  if (budget_ != nullptr) {
    if (budget_->used + bytes > budget_->limit) return false;
    budget_->used += bytes;
  }
  samples_.reserve(capacity);
  return true;
}

void SampleStats::release_samples() noexcept {
  if (budget_ != nullptr) budget_->used -= samples_.capacity() * sizeof(std::uint64_t);
  std::vector<std::uint64_t>().swap(samples_);
}

void SampleStats::to_histogram() {
  auto histogram = std::make_unique<LogHistogram>();
  for (const std::uint64_t sample : samples_) histogram->add(sample);
  histogram_ = std::move(histogram);
  release_samples();
}

void SampleStats::add(std::uint64_t value) {
  if (!histogram_) {
    if (reserve_samples()) {
      samples_.push_back(value);
    } else {
      to_histogram();
    }
  }
  if (histogram_) histogram_->add(value);
  ++count_;
  sum_ += value;
  const Uint128 square = static_cast<Uint128>(value) * value;
  if (__builtin_add_overflow(squares_, square, &squares_)) squares_ = ~Uint128{0};
  if (value < min_) min_ = value;
  if (value > max_) max_ = value;
}

void SampleStats::merge(const SampleStats& other) {
  if (&other == this) {
    merge(SampleStats(other));
    return;
  }
  if (!histogram_ && !other.histogram_) {
    for (const std::uint64_t sample : other.samples_) {
      if (!histogram_ && !reserve_samples()) to_histogram();
      if (histogram_) {
        histogram_->add(sample);
      } else {
        samples_.push_back(sample);
      }
    }
  } else {
    if (!histogram_) to_histogram();
    for (const std::uint64_t sample : other.samples_) histogram_->add(sample);
    if (other.histogram_) histogram_->merge(*other.histogram_);
  }
  count_ += other.count_;
  sum_ += other.sum_;
  if (__builtin_add_overflow(squares_, other.squares_, &squares_)) squares_ = ~Uint128{0};
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

std::uint64_t SampleStats::sum() const {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  return sum_ > kMax ? kMax : static_cast<std::uint64_t>(sum_);
}

double SampleStats::mean() const {
  return count_ == 0 ? 0.0
                     : static_cast<double>(static_cast<long double>(sum_) / static_cast<long double>(count_));
}

double SampleStats::stddev() const {
  if (count_ < 2) return 0.0;
  // (n * squares - sum^2) / (n * (n - 1)), in integers because the difference of two large numbers is small.
  const auto n = static_cast<long double>(count_);
  Uint128 scaled = 0;
  Uint128 sum_squared = 0;
  long double numerator = 0;
  if (!__builtin_mul_overflow(squares_, static_cast<Uint128>(count_), &scaled) &&
      !__builtin_mul_overflow(sum_, sum_, &sum_squared) && scaled >= sum_squared) {
    numerator = static_cast<long double>(scaled - sum_squared);
  } else {
    const auto sum = static_cast<long double>(sum_);
    numerator = std::max(0.0L, static_cast<long double>(squares_) * n - sum * sum);
  }
  return static_cast<double>(std::sqrt(numerator / (n * (n - 1))));
}

double SampleStats::median() const {
  if (count_ == 0) return 0.0;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  if (histogram_) {
    const std::uint64_t total = histogram_->total();
    low = std::clamp(histogram_->value_at((total - 1) / 2), min_, max_);
    high = std::clamp(histogram_->value_at(total / 2), min_, max_);
  } else {
    std::vector<std::uint64_t> sorted = samples_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    high = *middle;
    low = sorted.size() % 2 == 0 ? *std::max_element(sorted.begin(), middle) : high;
  }
  return static_cast<double>(low) + static_cast<double>(high - low) / 2;
}

std::uint64_t SampleStats::percentile(double share) const {
  if (count_ == 0) return 0;
  const std::uint64_t values = histogram_ ? histogram_->total() : samples_.size();
  const double place = std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(values));
  return value_at(std::clamp<std::uint64_t>(static_cast<std::uint64_t>(place), 1, values) - 1);
}

std::uint64_t SampleStats::value_at(std::uint64_t rank) const {
  if (count_ == 0) return 0;
  if (rank + 1 >= (histogram_ ? histogram_->total() : samples_.size())) return max_;
  if (histogram_) return std::clamp(histogram_->value_at(rank), min_, max_);
  std::vector<std::uint64_t> sorted = samples_;
  const auto nth = sorted.begin() + static_cast<std::ptrdiff_t>(rank);
  std::nth_element(sorted.begin(), nth, sorted.end());
  return *nth;
}

Moments SampleStats::moments_up_to(std::uint64_t most) const {
  if (histogram_) return histogram_->moments_up_to(most);
  Moments moments;
  for (const std::uint64_t sample : samples_) {
    if (sample <= most) moments.add(sample);
  }
  return moments;
}

}  // namespace inject
