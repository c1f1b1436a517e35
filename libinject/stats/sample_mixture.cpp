// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/sample_mixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "libinject/analysis/block_means.h"

namespace inject {

namespace {

// Take the place of rows in the keys of the two states that always exist.
constexpr std::uint32_t kNoRow = ~std::uint32_t{0};
constexpr std::uint32_t kManyRows = kNoRow - 1;
// Takes the place of a second row if there is none, plus the part of the first.
constexpr std::uint32_t kPart = kManyRows - SampleMixture::kMaxPartsOfRow;

// Number of neighbouring samples in one group.
constexpr std::uint64_t kRun = 4;
// Added to each diagonal element, as a fraction of it: states that no sample distinguishes then have a
// solution, though a meaningless one, which kMaxInflation catches.
constexpr double kRidge = 1e-7;
// Limit of the variance, as a multiple of what it would be if the kernel were the only unknown.
constexpr double kMaxInflation = 1e4;
// A row must occur in this many groups for its error to be meaningful.
constexpr std::size_t kMinGroups = 4;
// The largest share of a row's time in states that are not solved for.
constexpr double kMaxUnknown = 0.2;

std::size_t group_of(std::uint64_t serial) {
  std::uint64_t mixed = (serial / kRun + 1) * 0x9e3779b97f4a7c15u;
  mixed ^= mixed >> 32;
  mixed *= 0xd6e8feb86659fd93u;
  return static_cast<std::size_t>(mixed >> 61);
}
static_assert(SampleMixture::kGroups == 8, "group_of() takes three bits");

/// Cholesky factorization: a symmetric matrix as the product of a lower triangular one, stored in place, and
/// its transpose.
class Factors {
 public:
  Factors(std::vector<double> matrix, std::size_t size) : rows_(std::move(matrix)), size_(size) {
    for (std::size_t i = 0; i < size_; ++i) {
      double* const row = &rows_[i * size_];
      const double diagonal = row[i] > 0 ? row[i] * (1 + kRidge) : 1;
      for (std::size_t j = 0; j < i; ++j) {
        const double* const other = &rows_[j * size_];
        row[j] = (row[j] - std::inner_product(row, row + j, other, 0.0)) / other[j];
      }
      const double rest = diagonal - std::inner_product(row, row + i, row, 0.0);
      row[i] = std::sqrt(std::max(rest, diagonal * kRidge / 100));
    }
  }

  /// In place.
  void solve(std::vector<double>& side) const {
    for (std::size_t i = 0; i < size_; ++i) {
      const double* const row = &rows_[i * size_];
      side[i] = (side[i] - std::inner_product(row, row + i, side.begin(), 0.0)) / row[i];
    }
    for (std::size_t i = size_; i-- > 0;) {
      const double* const row = &rows_[i * size_];
      side[i] /= row[i];
      for (std::size_t j = 0; j < i; ++j) side[j] -= row[j] * side[i];
    }
  }

 private:
  std::vector<double> rows_;
  std::size_t size_;
};

}  // namespace

/// The equations of metrics that were measured in the same samples, and their solution.
struct SampleMixture::System {
  std::vector<std::uint32_t> states;  // those that have a column; the others, if any, share one more
  std::size_t columns = 0;
  std::vector<std::vector<double>> normal;  // by group: columns x columns
  // By metric, as in the list: the solutions that leave out one group each, then the one with all groups.
  std::vector<std::array<std::vector<double>, kGroups + 1>> solutions;
  std::vector<double> total;  // of `normal`
  std::array<bool, kGroups> used{};
};

SampleMixture::SampleMixture(std::size_t metrics) : metrics_(metrics) {
  states_.find_or_add({kNoRow, kNoRow});
  states_.find_or_add({kManyRows, kManyRows});
  times_.resize(2, 0.0);
}

std::uint32_t SampleMixture::state(std::span<const std::uint32_t> rows, unsigned part) {
  if (rows.empty()) return kIdle;
  if (rows.size() > 2) return kMixed;
  const std::uint32_t second = rows.size() == 2 ? rows[1] : kPart + part;
  const std::uint32_t state = states_.find_or_add({rows[0], second});
  if (state == KeyIndex<2>::kOther) return kMixed;
  if (state == times_.size()) times_.push_back(0);
  return state;
}

SampleMixture::Pool* SampleMixture::pool(std::uint32_t measured) {
  for (Pool& pool : pools_) {
    if (pool.measured == measured) return &pool;
  }
  if (pools_.size() == kMaxPools) return nullptr;
  return &pools_.emplace_back(measured);
}

void SampleMixture::add(std::uint64_t serial, std::span<const Part> parts, std::span<const float> values,
                        double weight) {
  std::uint32_t measured = 0;
  for (std::size_t m = 0; m < metrics_; ++m) measured |= std::uint32_t{!std::isnan(values[m])} << m;
  if (measured == 0) return;
  Pool* const into = parts.size() > kMaxParts ? nullptr : pool(measured);
  // Add the whole sample or nothing: half of its sums would be wrong.
  if (into == nullptr || into->pairs.size() + parts.size() * (parts.size() + 1) / 2 > kMaxPairs) {
    ++left_out_;
    return;
  }
  const std::size_t group = group_of(serial);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [state, share] = parts[i];
    times_[state] += weight * share;
    for (std::size_t j = i; j < parts.size(); ++j) {
      const std::uint32_t pair =
          into->pairs.find_or_add({std::min(state, parts[j].state), std::max(state, parts[j].state)});
      if (pair == into->products.size()) into->products.emplace_back();
      into->products[pair][group] += weight * share * parts[j].share;
    }
    if (into->sides.size() < (state + std::size_t{1}) * metrics_)
      into->sides.resize(times_.size() * metrics_);
    for (std::size_t m = 0; m < metrics_; ++m) {
      if ((measured >> m & 1) != 0)
        into->sides[state * metrics_ + m][group] += weight * share * double{values[m]};
    }
  }
}

SampleMixture::System SampleMixture::system(std::span<const std::size_t> metrics) const {
  System system;
  std::vector<std::uint32_t>& states = system.states;
  for (std::uint32_t i = 0; i < times_.size(); ++i) {
    if (times_[i] > 0 && i != kMixed) states.push_back(i);
  }
  std::stable_sort(states.begin(), states.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return times_[a] > times_[b]; });
  states.resize(std::min(states.size(), kMaxSolved));
  std::vector<std::size_t> column(times_.size(), states.size());
  for (std::size_t i = 0; i < states.size(); ++i) column[states[i]] = i;
  const std::size_t size = system.columns = states.size() + 1;
  system.normal.assign(kGroups, std::vector<double>(size * size, 0.0));
  system.solutions.resize(metrics.size());
  std::vector<std::vector<std::vector<double>>> sides(
      metrics.size(), std::vector<std::vector<double>>(kGroups, std::vector<double>(size, 0.0)));
  for (const Pool& pool : pools_) {
    if ((pool.measured >> metrics.front() & 1) == 0) continue;
    for (std::uint32_t i = 0; i < pool.pairs.size(); ++i) {
      const auto& [a, b] = pool.pairs.key(i);
      const std::size_t row = std::max(column[a], column[b]);
      const std::size_t other = std::min(column[a], column[b]);
      // Two states in one column: the square of their sum.
      const double times = a != b && row == other ? 2 : 1;
      for (std::size_t g = 0; g < kGroups; ++g)
        system.normal[g][row * size + other] += times * pool.products[i][g];
    }
    for (std::size_t state = 0; state * metrics_ < pool.sides.size(); ++state) {
      for (std::size_t m = 0; m < metrics.size(); ++m) {
        const Groups& side = pool.sides[state * metrics_ + metrics[m]];
        for (std::size_t g = 0; g < kGroups; ++g) sides[m][g][column[state]] += side[g];
      }
    }
  }
  system.total.assign(size * size, 0.0);
  for (std::size_t g = 0; g < kGroups; ++g) {
    for (std::size_t i = 0; i < size; ++i)
      system.used[g] = system.used[g] || system.normal[g][i * size + i] > 0;
    std::transform(system.total.begin(), system.total.end(), system.normal[g].begin(), system.total.begin(),
                   std::plus<>());
  }
  for (std::size_t left_out = 0; left_out <= kGroups; ++left_out) {
    // The last pass leaves out none.
    if (left_out < kGroups && !system.used[left_out]) continue;
    std::vector<double> matrix = system.total;
    if (left_out < kGroups) {
      std::transform(matrix.begin(), matrix.end(), system.normal[left_out].begin(), matrix.begin(),
                     std::minus<>());
    }
    const Factors factors(std::move(matrix), size);
    for (std::size_t m = 0; m < metrics.size(); ++m) {
      std::vector<double> side(size, 0.0);
      for (std::size_t g = 0; g < kGroups; ++g) {
        if (g == left_out) continue;
        std::transform(side.begin(), side.end(), sides[m][g].begin(), side.begin(), std::plus<>());
      }
      factors.solve(side);
      system.solutions[m][left_out] = std::move(side);
    }
  }
  return system;
}

std::vector<std::vector<Estimate>> SampleMixture::solve(std::span<const Wanted> rows) const {
  std::vector<std::vector<Estimate>> estimates(rows.size(), std::vector<Estimate>(metrics_));
  // Metrics in the same pools have the same matrix.
  std::map<std::uint32_t, std::vector<std::size_t>> alike;
  for (std::size_t m = 0; m < metrics_; ++m) {
    std::uint32_t pools = 0;
    for (std::size_t p = 0; p < pools_.size(); ++p) pools |= (pools_[p].measured >> m & 1) << p;
    if (pools != 0) alike[pools].push_back(m);
  }
  for (const auto& [pools, metrics] : alike) {
    const System system = this->system(metrics);
    const std::size_t size = system.columns;
    const Factors factors(system.total, size);
    // Columns of the states in which a row runs.
    std::unordered_map<std::uint32_t, std::vector<std::size_t>> columns;
    for (std::size_t i = 0; i < system.states.size(); ++i) {
      const auto& [a, b] = states_.key(system.states[i]);
      columns[a].push_back(i);
      if (b < kPart) columns[b].push_back(i);
    }
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto found = columns.find(rows[r].row);
      if (found == columns.end() || rows[r].time <= 0) continue;
      // The row's value is the mean of its states' values, weighted by their times.
      std::vector<double> weights(size, 0.0);
      double known = 0;
      double alone = 0;  // the variance if nothing else were unknown
      std::array<bool, kGroups> met{};
      for (const std::size_t i : found->second) {
        weights[i] = times_[system.states[i]];
        known += weights[i];
        for (std::size_t g = 0; g < kGroups; ++g) met[g] = met[g] || system.normal[g][i * size + i] > 0;
      }
      const double unknown = 1 - std::min(1.0, known / rows[r].time);
      const auto groups = static_cast<std::size_t>(std::count(met.begin(), met.end(), true));
      if (known <= 0 || unknown > kMaxUnknown || groups < kMinGroups) continue;
      for (const std::size_t i : found->second) {
        weights[i] /= known;
        if (system.total[i * size + i] > 0) alone += weights[i] * weights[i] / system.total[i * size + i];
      }
      std::vector<double> inverse = weights;
      factors.solve(inverse);
      if (std::inner_product(weights.begin(), weights.end(), inverse.begin(), 0.0) > kMaxInflation * alone)
        continue;
      for (std::size_t m = 0; m < metrics.size(); ++m) {
        const auto value = [&](std::size_t left_out) {
          const std::vector<double>& solution = system.solutions[m][left_out];
          double sum = 0;
          for (const std::size_t i : found->second) sum += weights[i] * solution[i];
          return sum;
        };
        double sum = 0;
        double squares = 0;
        double count = 0;
        for (std::size_t g = 0; g < kGroups; ++g) {
          if (!system.used[g]) continue;
          const double off = value(g) - value(kGroups);
          sum += off;
          squares += off * off;
          ++count;
        }
        Estimate& estimate = estimates[r][metrics[m]];
        estimate.value = value(kGroups);
        const double spread = std::max(0.0, squares - sum * sum / count) * (count - 1) / count;
        // Nothing is known about the rest of its time: the value there may be anything from 0 to twice the
        // estimate.
        estimate.error =
            confidence_factor(groups - 1) * std::sqrt(spread) + unknown * std::abs(estimate.value);
      }
    }
  }
  return estimates;
}

}  // namespace inject
