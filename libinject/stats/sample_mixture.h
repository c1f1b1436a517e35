// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "libinject/stats/key_index.h"

namespace inject {

/// A value and half the width of its 95 % confidence interval.
struct Estimate {
  double value = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not known
  double error = std::numeric_limits<double>::infinity();
};

/// Decomposes samples that are longer than the kernels in them. At any moment a device is in a state: it is
/// idle, in some part of one kernel (row), or running two at once. A sample is the mean of its states,
/// weighted by their shares of the sample; given many samples with different shares, the states' values
/// follow by least squares over all of them together. Fitting each kernel against "the others" would
/// attribute to it what its neighbours do, which in a repetitive program are always the same.
///
/// Only sums are kept, separately for eight groups of samples: how much the result changes when one group is
/// left out measures its error (the jackknife). Short runs of samples share a group, since neighbours are
/// alike, and runs are assigned to groups at random, since programs repeat. For one device; one thread at a
/// time; may throw std::bad_alloc.
class SampleMixture {
 public:
  static constexpr std::uint32_t kIdle = 0;   ///< the state in which no kernel runs …
  static constexpr std::uint32_t kMixed = 1;  ///< … and all with more than two kernels, or that did not fit
  static constexpr std::uint32_t kMaxStates = 4096;
  static constexpr std::uint32_t kMaxPairs = 65'536;
  static constexpr std::size_t kMaxParts = 48;  ///< per sample; with more, a sample says little about each
  static constexpr unsigned kMaxPartsOfRow = 6;
  static constexpr std::size_t kMaxSolved = 384;
  static constexpr std::size_t kMaxPools = 3;
  static constexpr std::size_t kGroups = 8;

  struct Part {
    std::uint32_t state = kIdle;
    double share = 0;  ///< of the sample; the shares of all parts add up to 1
  };
  /// A row of the table, and how long it ran during samples.
  struct Wanted {
    std::uint32_t row = 0;
    double time = 0;
  };

  explicit SampleMixture(std::size_t metrics);

  /// The state of the device while these rows (ascending) run. A row that runs alone is in `part`, which is
  /// less than kMaxPartsOfRow: kernels behave differently at their beginning and end.
  std::uint32_t state(std::span<const std::uint32_t> rows, unsigned part);
  /// `serial`: the sample's number on its device; `weight`: its length. NaN values are left out.
  void add(std::uint64_t serial, std::span<const Part> parts, std::span<const float> values, double weight);
  /// By row, in the order of `rows`, and metric: the estimate for the time in which the row ran.
  std::vector<std::vector<Estimate>> solve(std::span<const Wanted> rows) const;

  /// Samples that had too many parts, or whose sums did not fit.
  std::uint64_t left_out() const { return left_out_; }

 private:
  using Groups = std::array<double, kGroups>;
  /// Samples in which the same metrics were measured: usually there is one pool.
  struct Pool {
    explicit Pool(std::uint32_t mask) : measured(mask) {}
    std::uint32_t measured;
    KeyIndex<2> pairs{kMaxPairs};  // of states, the smaller first
    std::vector<Groups> products;  // per pair: sum of the products of their shares
    std::vector<Groups> sides;     // state x metric: of share and value
  };
  struct System;

  Pool* pool(std::uint32_t measured);
  System system(std::span<const std::size_t> metrics) const;

  std::size_t metrics_;
  KeyIndex<2> states_{kMaxStates};  // the two rows that run, or a row alone and its part
  std::vector<double> times_;       // of states
  std::vector<Pool> pools_;
  std::uint64_t left_out_ = 0;
};

}  // namespace inject
