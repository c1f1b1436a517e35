// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace inject {

/// Half the width of a 95 % confidence interval in standard errors, with `freedom` degrees of freedom (number
/// of values minus one): Student's t.
inline double confidence_factor(std::size_t freedom) {
  constexpr std::array<double, 16> kFactors{std::numeric_limits<double>::infinity(),
                                            12.71,
                                            4.30,
                                            3.18,
                                            2.78,
                                            2.57,
                                            2.45,
                                            2.36,
                                            2.31,
                                            2.26,
                                            2.23,
                                            2.20,
                                            2.18,
                                            2.16,
                                            2.14,
                                            2.13};
  return kFactors[std::min(freedom, kFactors.size() - 1)];
}

/// The weighted mean of values that come in order of time and are not independent, and its error, estimated
/// from the spread of the means of blocks of neighbours. Whenever there are kMaxBlocks blocks, their length
/// doubles, so they outgrow the correlation of neighbours, and memory is constant.
class BlockMeans {
 public:
  static constexpr std::size_t kMaxBlocks = 16;

  void add(double value, double weight) {
    ++values_;
    if (filled_ == length_) {
      if (blocks_ == kMaxBlocks) join_pairs();
      ++blocks_;
      filled_ = 0;
    }
    ++filled_;
    join(block_[blocks_ - 1], {static_cast<float>(value), static_cast<float>(weight)});
  }

  std::uint64_t values() const { return values_; }

  double mean() const {
    double sum = 0;
    for (std::size_t i = 0; i < blocks_; ++i) sum += double{block_[i].weight} * double{block_[i].mean};
    return sum / weight();
  }

  /// Half the width of the mean's 95 % confidence interval.
  double error() const {
    if (blocks_ < 2) return std::numeric_limits<double>::infinity();
    const double all = weight();
    const double mean = this->mean();
    double squares = 0;
    double neighbours = 0;
    double before = 0;
    for (std::size_t i = 0; i < blocks_; ++i) {
      const double off = double{block_[i].weight} * (double{block_[i].mean} - mean);
      squares += off * off;
      neighbours += off * before;
      before = off;
    }
    if (squares <= 0) return 0;
    // Blocks that still correlate with their neighbours, as when they are few and short, count for less than
    // one each.
    const double alike = std::clamp(neighbours / squares, 0.0, 0.9);
    const auto count = static_cast<double>(blocks_);
    return confidence_factor(blocks_ - 1) *
           std::sqrt(squares / (all * all) * count / (count - 1) * (1 + alike) / (1 - alike));
  }

 private:
  struct Block {
    float mean = 0;
    float weight = 0;
  };

  static void join(Block& block, const Block& more) {
    block.weight += more.weight;
    if (block.weight > 0) block.mean += (more.mean - block.mean) * (more.weight / block.weight);
  }

  double weight() const {
    double sum = 0;
    for (std::size_t i = 0; i < blocks_; ++i) sum += double{block_[i].weight};
    return sum;
  }

  void join_pairs() {
    for (std::size_t i = 0; i < kMaxBlocks / 2; ++i) {
      block_[i] = block_[2 * i];
      join(block_[i], block_[2 * i + 1]);
    }
    std::fill(block_.begin() + kMaxBlocks / 2, block_.end(), Block{});
    blocks_ = kMaxBlocks / 2;
    length_ *= 2;
  }

  std::array<Block, kMaxBlocks> block_{};
  std::size_t blocks_ = 0;
  std::uint64_t length_ = 1;  // values per block; the last one has `filled_` so far
  std::uint64_t filled_ = 1;
  std::uint64_t values_ = 0;
};

}  // namespace inject
