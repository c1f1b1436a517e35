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

/// A figure and half the width of the interval that holds the true one in 95 of 100 cases.
struct Estimate {
  double value = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not known
  double error = std::numeric_limits<double>::infinity();
};

/// Takes samples apart that are longer than the kernels in them. At any moment a device is in a state: it
/// idles, is in some part of one kernel (row), or runs two at once. A sample is the mean of its states,
/// weighted by the parts of the sample that they take; from many samples with different parts follow the
/// states, by least squares over all of them together: taking each kernel against "the others" would take its
/// neighbours, which in a program that repeats itself are always the same, for its own doing.
///
/// Kept are sums alone, those of eight groups of samples apart: how far the result moves when one group is
/// left out is the measure of its error (the jackknife). Samples are in groups in short runs, since
/// neighbours are alike, and at random, since programs repeat. One device's; one thread at a time; may throw
/// std::bad_alloc.
class SampleMixture {
 public:
  static constexpr std::uint32_t kIdle = 0;  ///< the state in which no kernel runs …
  static constexpr std::uint32_t kMixed =
      1;  ///< … and all that there are more than two kernels in, or no room for
  static constexpr std::uint32_t kMaxStates = 4096;
  static constexpr std::uint32_t kMaxPairs = 65'536;
  static constexpr std::size_t kMaxParts = 48;  ///< of a sample; those with more tell little of each
  static constexpr unsigned kMaxPartsOfRow = 6;
  static constexpr std::size_t kMaxSolved = 384;
  static constexpr std::size_t kMaxPools = 3;
  static constexpr std::size_t kGroups = 8;

  struct Part {
    std::uint32_t state = kIdle;
    double share = 0;  ///< of the sample; together 1
  };
  /// A row of the table, and the time in which it ran in any of the samples.
  struct Wanted {
    std::uint32_t row = 0;
    double time = 0;
  };

  explicit SampleMixture(std::size_t metrics);

  /// The state of the device while these rows, ascending, run; one that runs alone has `part`s, less than
  /// kMaxPartsOfRow, since kernels begin and end in other ways than they go on.
  std::uint32_t state(std::span<const std::uint32_t> rows, unsigned part);
  /// `serial`: the sample's number on its device. The weight is its length. What is NaN is left out.
  void add(std::uint64_t serial, std::span<const Part> parts, std::span<const float> values, double weight);
  /// By row, in the order of `rows`, and metric: what the device did while the row ran.
  std::vector<std::vector<Estimate>> solve(std::span<const Wanted> rows) const;

  /// Samples that had too many parts, or found no room for their sums.
  std::uint64_t left_out() const { return left_out_; }

 private:
  using Groups = std::array<double, kGroups>;
  /// Samples in which the same metrics were measured: usually there is one pool.
  struct Pool {
    explicit Pool(std::uint32_t mask) : measured(mask) {}
    std::uint32_t measured;
    KeyIndex<2> pairs{kMaxPairs};  // of states, the lesser first
    std::vector<Groups> products;  // beside them: sums of the products of their shares
    std::vector<Groups> sides;     // state x metric: of share and value
  };
  struct System;

  Pool* pool(std::uint32_t measured);
  System system(std::span<const std::size_t> metrics) const;

  std::size_t metrics_;
  KeyIndex<2> states_{kMaxStates};  // the rows that run; the same one twice: it alone
  std::vector<double> times_;       // of states
  std::vector<Pool> pools_;
  std::uint64_t left_out_ = 0;
};

}  // namespace inject
