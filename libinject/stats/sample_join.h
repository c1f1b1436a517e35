// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "libinject/base/time.h"
#include "libinject/stats/sample_mixture.h"

namespace inject {

/// A sample's values, and what ran in it.
struct JoinedSample {
  struct RowPart {
    std::uint32_t row = 0;
    std::uint64_t time = 0;
    std::uint64_t shared = 0;  ///< of that, while kernels of other rows ran as well
  };
  std::span<const RowPart> rows;
  std::span<const SampleMixture::Part> states;  ///< of the device; their shares add up to 1
  std::span<const float> values;
  std::uint64_t length = 0;
};

/// Joins a device's samples to the kernels that ran meanwhile, by time. Both are held until the caller, who
/// knows when all kernels up to a time have been added, has them joined; anything that comes later for that
/// time is left out.
///
/// A sample is evidence about kernels only if everything that ran in it is known. It is joined to none if a
/// kernel launched outside all windows ran in it, or if it began after a window's end and none of that
/// window's kernels ends later, since activity may not have been recorded then.
class SampleJoin {
 public:
  /// A row beside those of the table, for all kernels launched outside all windows.
  static constexpr std::uint32_t kOthers = ~std::uint32_t{0};

  struct Execution {
    Nanoseconds start = 0;
    Nanoseconds end = 0;
    std::uint32_t row = 0;
    std::uint32_t window = 0;
  };
  struct Sample {
    Nanoseconds start = 0;
    Nanoseconds end = 0;
    std::uint32_t window = 0;  ///< in which it began; 0: none
    std::uint32_t after = 0;   ///< the latest window that had opened by then
  };
  using Take = std::function<void(const JoinedSample& sample)>;

  /// `values`: number of values per sample.
  explicit SampleJoin(std::size_t values) : stride_(values) {}

  /// False if all of it lies in time that is already joined.
  bool add(const Execution& execution);
  void add(const Sample& sample, std::span<const float> values);

  /// Everything before this time has been joined, or left out.
  Nanoseconds joined_until() const { return joined_until_; }
  std::size_t samples() const { return samples_.size(); }
  std::size_t kernels() const { return kernels_.size(); }
  /// The number of samples, counted from the oldest, that end by this time, or belong to this window or any
  /// before it.
  std::size_t samples_until(Nanoseconds time) const;
  std::size_t samples_through(std::uint32_t window) const;

  /// Joins the oldest `count` samples. `mixture` numbers the states of the device.
  void join(std::size_t count, SampleMixture& mixture, const Take& take);
  /// Joins the samples that begin before the time by which the older half of the kernels has ended.
  void join_older_half(SampleMixture& mixture, const Take& take);
  /// Leaves out the older half of the samples and returns their number.
  std::size_t leave_out_older_half();
  /// Merges contiguous neighbouring samples in pairs.
  void coarsen();
  /// No more samples will come for kernels of this window or any before it.
  void forget_kernels(std::uint32_t window);

 private:
  using WindowEnds = std::vector<std::pair<std::uint32_t, Nanoseconds>>;

  WindowEnds last_ends() const;
  Nanoseconds look(std::span<const Execution> running, Nanoseconds now, std::uint64_t sample_length,
                   SampleMixture& mixture);
  void spend(std::uint64_t time);
  void hand_on(std::span<const float> values, std::uint64_t length, const Take& take);
  void clear_parts();
  void forget_joined(std::size_t count);

  std::size_t stride_;
  std::vector<Execution> kernels_;
  std::vector<Sample> samples_;  // by start
  std::vector<float> values_;    // of samples_
  Nanoseconds joined_until_ = 0;

  // What ran in the sample being joined.
  std::vector<SampleMixture::Part> states_;  // their times, then their shares
  std::vector<std::uint32_t> part_of_state_;
  std::vector<JoinedSample::RowPart> rows_;
  std::vector<std::uint32_t> part_of_row_;
  std::vector<std::uint32_t> active_;  // rows that are running, ascending
  std::uint32_t state_ = SampleMixture::kIdle;
  bool others_ = false;  // a kernel launched outside all windows was among them
};

}  // namespace inject
