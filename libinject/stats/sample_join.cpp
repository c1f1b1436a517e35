// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/sample_join.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace inject {

namespace {

constexpr std::uint32_t kNone = ~std::uint32_t{0};

/// Half of `size`, but at least 1.
std::size_t half(std::size_t size) {
  return std::max<std::size_t>(size / 2, 1);
}

/// The part for `key`, created if it does not exist yet.
template <typename Part, typename Make>
Part& part_of(std::vector<Part>& parts, std::vector<std::uint32_t>& part_of_key, std::uint32_t key,
              Make make) {
  if (key >= part_of_key.size()) part_of_key.resize(std::size_t{key} + 1, kNone);
  if (part_of_key[key] == kNone) {
    part_of_key[key] = static_cast<std::uint32_t>(parts.size());
    parts.push_back(make(key));
  }
  return parts[part_of_key[key]];
}

/// The mean of two values, the second of which covers `share` of the total time.
float joined(float value, float more, float share) {
  if (std::isnan(value)) return more;
  return std::isnan(more) ? value : value + (more - value) * share;
}

}  // namespace

bool SampleJoin::add(const Execution& execution) {
  if (execution.end <= std::max(execution.start, joined_until_)) return false;
  kernels_.push_back(execution);
  kernels_.back().start = std::max(execution.start, joined_until_);
  return true;
}

void SampleJoin::add(const Sample& sample, std::span<const float> values) {
  auto place = samples_.end();
  while (place != samples_.begin() && std::prev(place)->start > sample.start) --place;
  const auto index = place - samples_.begin();
  const auto stride = static_cast<std::ptrdiff_t>(stride_);
  samples_.insert(place, sample);
  values_.insert(values_.begin() + index * stride, values.begin(), values.begin() + stride);
}

std::size_t SampleJoin::samples_until(Nanoseconds time) const {
  const auto later = std::find_if(samples_.begin(), samples_.end(),
                                  [time](const Sample& sample) { return sample.end > time; });
  return static_cast<std::size_t>(later - samples_.begin());
}

std::size_t SampleJoin::samples_through(std::uint32_t window) const {
  const auto later = std::find_if(samples_.begin(), samples_.end(),
                                  [window](const Sample& sample) { return sample.window > window; });
  return static_cast<std::size_t>(later - samples_.begin());
}

void SampleJoin::join_older_half(SampleMixture& mixture, const Take& take) {
  std::vector<Nanoseconds> ends;
  ends.reserve(kernels_.size());
  for (const Execution& kernel : kernels_) ends.push_back(kernel.end);
  const auto middle = ends.begin() + static_cast<std::ptrdiff_t>(half(ends.size()));
  std::nth_element(ends.begin(), middle, ends.end());
  const auto later = std::find_if(samples_.begin(), samples_.end(),
                                  [until = *middle](const Sample& sample) { return sample.start >= until; });
  join(static_cast<std::size_t>(later - samples_.begin()), mixture, take);
  // There may have been no samples to join the kernels to.
  joined_until_ = std::max(joined_until_, *middle);
  forget_joined(0);
}

std::size_t SampleJoin::leave_out_older_half() {
  const std::size_t oldest = half(samples_.size());
  joined_until_ = std::max(joined_until_, samples_[oldest - 1].end);
  forget_joined(oldest);
  return oldest;
}

void SampleJoin::coarsen() {
  const std::size_t before = samples_.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < before; ++kept) {
    Sample sample = samples_[i];
    float* const values = &values_[kept * stride_];
    std::copy_n(&values_[i * stride_], stride_, values);
    ++i;
    if (i < before) {
      const Sample& next = samples_[i];
      const Nanoseconds length = sample.end - sample.start;
      if (next.window == sample.window && next.after == sample.after &&
          next.start <= sample.end + length / 64) {
        const auto share =
            static_cast<float>(next.end - next.start) / static_cast<float>(length + (next.end - next.start));
        for (std::size_t m = 0; m < stride_; ++m)
          values[m] = joined(values[m], values_[i * stride_ + m], share);
        sample.end = std::max(sample.end, next.end);
        ++i;
      }
    }
    samples_[kept] = sample;
  }
  samples_.resize(kept);
  values_.resize(kept * stride_);
}

// Kernels may run long after their window's end, while later windows are open, but no further sample of that
// window will come.
void SampleJoin::forget_kernels(std::uint32_t window) {
  const Nanoseconds sampled = samples_.empty() ? joined_until_ : samples_.back().end;
  std::erase_if(kernels_,
                [&](const Execution& kernel) { return kernel.window <= window && kernel.start >= sampled; });
}

/// By window, ascending: the latest end of a kernel of that window or an earlier one.
SampleJoin::WindowEnds SampleJoin::last_ends() const {
  WindowEnds ends;
  for (const Execution& kernel : kernels_) {
    if (kernel.row != kOthers) ends.emplace_back(kernel.window, kernel.end);
  }
  std::sort(ends.begin(), ends.end());
  for (std::size_t i = 1; i < ends.size(); ++i) ends[i].second = std::max(ends[i].second, ends[i - 1].second);
  return ends;
}

void SampleJoin::join(std::size_t count, SampleMixture& mixture, const Take& take) {
  if (count == 0) return;
  const WindowEnds ends = last_ends();
  const auto last_end = [&ends](std::uint32_t window) -> Nanoseconds {
    const auto after = std::upper_bound(ends.begin(), ends.end(), window,
                                        [](std::uint32_t of, const auto& end) { return of < end.first; });
    return after == ends.begin() ? 0 : std::prev(after)->second;
  };
  std::sort(kernels_.begin(), kernels_.end(), [](const Execution& a, const Execution& b) {
    return std::tie(a.start, a.end, a.row) < std::tie(b.start, b.end, b.row);
  });
  std::vector<Execution> running;
  auto next = kernels_.begin();
  Nanoseconds now = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Sample& sample = samples_[i];
    now = std::max(now, sample.start);
    if (now >= sample.end) continue;
    // After a window's end, a sample is used only as long as all running kernels are known.
    if (sample.window == 0 && sample.end > last_end(sample.after)) {
      now = sample.end;
      continue;
    }
    const std::uint64_t length = sample.end - now;
    while (now < sample.end) {
      for (; next != kernels_.end() && next->start <= now; ++next) running.push_back(*next);
      std::erase_if(running, [now](const Execution& kernel) { return kernel.end <= now; });
      Nanoseconds until = std::min(look(running, now, length, mixture), sample.end);
      if (next != kernels_.end()) until = std::min(until, next->start);
      spend(until - now);
      now = until;
    }
    if (!others_) hand_on({&values_[i * stride_], stride_}, length, take);
    clear_parts();
  }
  joined_until_ = std::max(joined_until_, now);
  forget_joined(count);
}

/// Records the device's state at `now`, with these kernels running; returns until when it lasts if nothing
/// else starts.
Nanoseconds SampleJoin::look(std::span<const Execution> running, Nanoseconds now, std::uint64_t sample_length,
                             SampleMixture& mixture) {
  active_.clear();
  Nanoseconds until = std::numeric_limits<Nanoseconds>::max();
  for (const Execution& kernel : running) {
    others_ = others_ || kernel.row == kOthers;
    active_.push_back(kernel.row);
    until = std::min(until, kernel.end);
  }
  // An unused sample is still processed: what runs at its end continues in the next one.
  if (others_) {
    active_.clear();
    state_ = SampleMixture::kMixed;
    return until;
  }
  std::sort(active_.begin(), active_.end());
  active_.erase(std::unique(active_.begin(), active_.end()), active_.end());
  unsigned part = 0;
  if (running.size() == 1) {
    const Execution& kernel = running.front();
    const Nanoseconds time = kernel.end - kernel.start;
    const bool halves = time <= sample_length / 2;
    const unsigned parts = halves ? 2 : 4;
    const auto end_of = [&](unsigned index) { return kernel.start + time * (index + 1) / parts; };
    while (part + 1 < parts && end_of(part) <= now) ++part;
    until = end_of(part);
    if (!halves) part += 2;  // quarters have numbers of their own
  }
  state_ = mixture.state(active_, part);
  return until;
}

void SampleJoin::spend(std::uint64_t time) {
  part_of(states_, part_of_state_, state_, [](std::uint32_t state) {
    return SampleMixture::Part{state, 0};
  }).share += static_cast<double>(time);
  for (const std::uint32_t row : active_) {
    JoinedSample::RowPart& part = part_of(rows_, part_of_row_, row, [](std::uint32_t number) {
      return JoinedSample::RowPart{number, 0, 0};
    });
    part.time += time;
    if (active_.size() > 1) part.shared += time;
  }
}

/// Passes on a sample of this length, all of whose parts have been assigned.
void SampleJoin::hand_on(std::span<const float> values, std::uint64_t length, const Take& take) {
  for (SampleMixture::Part& part : states_) part.share /= static_cast<double>(length);
  take({rows_, states_, values, length});
}

void SampleJoin::clear_parts() {
  for (const JoinedSample::RowPart& part : rows_) part_of_row_[part.row] = kNone;
  for (const SampleMixture::Part& part : states_) part_of_state_[part.state] = kNone;
  rows_.clear();
  states_.clear();
  others_ = false;
}

void SampleJoin::forget_joined(std::size_t count) {
  samples_.erase(samples_.begin(), samples_.begin() + static_cast<std::ptrdiff_t>(count));
  values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(count * stride_));
  std::erase_if(kernels_, [this](const Execution& kernel) { return kernel.end <= joined_until_; });
}

}  // namespace inject
