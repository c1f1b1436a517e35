// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libinject/base/time.h"

namespace inject {

/// A mean of samples, weighted by nanoseconds.
struct WeightedMean {
  double weight = 0;
  double sum = 0;
  void add(const WeightedMean& more) {
    weight += more.weight;
    sum += more.sum;
  }
  std::optional<double> value() const { return weight > 0 ? std::optional(sum / weight) : std::nullopt; }
};

/// A device's samples in order of time, for means over any interval. Memory is bounded: at kMaxCells,
/// neighbours are merged in pairs, so the ends of an interval are resolved to one part in kMaxCells / 2 of
/// the total time, or to one sample.
class MetricHistory {
 public:
  static constexpr std::size_t kMaxCells = 16'384;

  explicit MetricHistory(std::size_t metrics) : metrics_(metrics) {}

  /// A sample that begins before the last one added is ignored. `means` are weighted by nanoseconds, at most
  /// the sample's length.
  void add(Nanoseconds start, Nanoseconds end, std::span<const WeightedMean> means) {
    if (end <= start || (!cells_.empty() && start < last_start_)) return;
    last_start_ = start;
    if (cells_.empty() || filled_ == length_) {
      if (cells_.size() == kMaxCells) join_pairs();
      cells_.push_back({start, end});
      means_.resize(means_.size() + metrics_);
      filled_ = 0;
    }
    ++filled_;
    cells_.back().end = std::max(cells_.back().end, end);
    Mean* const cell = &means_[means_.size() - metrics_];
    for (std::size_t m = 0; m < metrics_; ++m) {
      if (const auto value = means[m].value())
        cell[m].join({static_cast<float>(*value), static_cast<float>(means[m].weight)});
    }
  }

  WeightedMean between(std::size_t metric, Nanoseconds from, Nanoseconds to) const {
    WeightedMean result;
    // Cells hardly overlap: the first that may reach into the interval is the one before the first that
    // begins in it.
    auto at = std::lower_bound(cells_.begin(), cells_.end(), from,
                               [](const Cell& cell, Nanoseconds time) { return cell.start < time; });
    if (at != cells_.begin()) --at;
    for (; at != cells_.end() && at->start < to; ++at) {
      const Nanoseconds begin = std::max(at->start, from);
      const Nanoseconds end = std::min(at->end, to);
      if (end <= begin) continue;
      const double part = static_cast<double>(end - begin) / static_cast<double>(at->end - at->start);
      const Mean& mean = means_[static_cast<std::size_t>(at - cells_.begin()) * metrics_ + metric];
      result.weight += part * double{mean.weight};
      result.sum += part * double{mean.weight} * double{mean.value};
    }
    return result;
  }

  /// Nothing that ended by then will be queried any more.
  void forget(Nanoseconds until) {
    const auto kept =
        std::find_if(cells_.begin(), cells_.end(), [until](const Cell& cell) { return cell.end > until; });
    const auto count = kept - cells_.begin();
    cells_.erase(cells_.begin(), kept);
    means_.erase(means_.begin(), means_.begin() + count * static_cast<std::ptrdiff_t>(metrics_));
    if (!cells_.empty()) return;
    length_ = 1;
    filled_ = 0;
  }

  std::size_t cells() const { return cells_.size(); }

 private:
  struct Cell {
    Nanoseconds start;
    Nanoseconds end;
  };
  struct Mean {
    float value = 0;
    float weight = 0;
    void join(const Mean& more) {
      weight += more.weight;
      if (weight > 0) value += (more.value - value) * (more.weight / weight);
    }
  };

  void join_pairs() {
    for (std::size_t i = 0; i < kMaxCells / 2; ++i) {
      cells_[i] = {cells_[2 * i].start, std::max(cells_[2 * i].end, cells_[2 * i + 1].end)};
      for (std::size_t m = 0; m < metrics_; ++m) {
        Mean joined = means_[2 * i * metrics_ + m];
        joined.join(means_[(2 * i + 1) * metrics_ + m]);
        means_[i * metrics_ + m] = joined;
      }
    }
    cells_.resize(kMaxCells / 2);
    means_.resize(kMaxCells / 2 * metrics_);
    length_ *= 2;
  }

  std::size_t metrics_;
  std::vector<Cell> cells_;
  std::vector<Mean> means_;   // cell x metric
  std::uint64_t length_ = 1;  // samples per cell; the last one has `filled_` so far
  std::uint64_t filled_ = 0;
  Nanoseconds last_start_ = 0;
};

}  // namespace inject
