// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/stats/phases.h"

#include <algorithm>
#include <string>
#include <utility>

namespace inject {

namespace {

constexpr std::uint32_t kMaxThreads = 65'536;

bool contains_word(std::string_view text, std::string_view lower_case) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return std::search(text.begin(), text.end(), lower_case.begin(), lower_case.end(), same) != text.end();
}

/// The phase of work between two pieces whose phase is certain.
Phase between(Phase before, Phase after, bool any_backward) {
  if (!any_backward) return Phase::kOther;
  // Gradients are clipped and unscaled after the backward pass, and an optimizer's steps are many.
  if (after == Phase::kOptimizer) return before == Phase::kForward ? Phase::kForward : Phase::kOptimizer;
  // A forward pass precedes each backward pass.
  if (after == Phase::kBackward || after == Phase::kForward) return Phase::kForward;
  return before == Phase::kOptimizer || before == Phase::kForward ? Phase::kForward : Phase::kOther;
}

}  // namespace

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kNames{"forward", "backward", "optimizer", "other"};
  return kNames[static_cast<std::size_t>(phase)];
}

Phase phase_of_range(std::string_view name) {
  if (contains_word(name, "backward")) return Phase::kBackward;
  if (contains_word(name, "optimizer")) return Phase::kOptimizer;
  if (contains_word(name, "forward")) return Phase::kForward;
  return Phase::kOther;
}

bool is_backward_thread(std::string_view name) {
  return name.substr(0, 12) == "pt_autograd_";
}

void PhaseStatistics::threads_are_named_by(std::function<std::string(std::uint32_t)> name) {
  name_ = std::move(name);
}

bool PhaseStatistics::runs_backward(std::uint32_t thread) {
  if (!name_ || thread >= kMaxThreads) return false;
  if (thread >= backward_.size()) backward_.resize(thread + 1, 0);
  std::uint8_t& known = backward_[thread];
  if (known == 0) known = is_backward_thread(name_(thread)) ? 2 : 1;
  return known == 2;
}

void PhaseStatistics::work(std::uint32_t number, const PhasedWork& work) {
  if (windows_.size() >= kMaxUnsettled && windows_.count({number, work.device}) == 0) {
    Window& oldest = windows_.begin()->second;
    judge(windows_.begin()->first.first, oldest, oldest.work.size(), true);
    windows_.erase(windows_.begin());
  }
  if (held_ >= kMaxHeld) bound();
  windows_[{number, work.device}].work.push_back(work);
  ++held_;
}

/// Judges the older half of the fullest windows' work until a quarter of everything is gone, so that finding
/// them costs little per record.
void PhaseStatistics::bound() {
  std::vector<std::pair<std::uint32_t, Window*>> fullest;
  fullest.reserve(windows_.size());
  for (auto& [key, window] : windows_) fullest.emplace_back(key.first, &window);
  std::stable_sort(fullest.begin(), fullest.end(), [](const auto& a, const auto& b) {
    return a.second->work.size() > b.second->work.size();
  });
  for (const auto& [number, window] : fullest) {
    judge(number, *window, window->work.size() / 2, false);
    if (held_ <= kMaxHeld / 4 * 3) return;
  }
}

void PhaseStatistics::count(std::uint32_t number, Phase phase, const PhasedWork& work) {
  Key key{number, work.device};
  if (rows_.size() >= kMaxRows && rows_.count(key) == 0) key.first = kOtherWindow;
  DeviceWork& sum = rows_[key][static_cast<std::size_t>(phase)];
  if (work.memset) {
    ++sum.memsets;
    sum.memset_time += work.duration;
    sum.memset_bytes += work.bytes;
  } else if (work.copy) {
    ++sum.copies;
    sum.copy_time += work.duration;
    sum.copy_bytes += work.bytes;
  } else {
    sum.kernels.add(work.duration);
  }
  if (!work.launch_known) ++sum.unattributed;
}

/// Judges the `earliest` launches; unless `all` is set, those whose phase depends on later launches stay.
void PhaseStatistics::judge(std::uint32_t number, Window& window, std::size_t earliest, bool all) {
  std::vector<PhasedWork>& work = window.work;
  std::stable_sort(work.begin(), work.end(),
                   [](const PhasedWork& a, const PhasedWork& b) { return a.launch_begin < b.launch_begin; });
  const auto certain = [&](const PhasedWork& one) {
    if (one.range_phase != Phase::kOther || !one.launch_known) return one.range_phase;
    if (runs_backward(one.thread)) return Phase::kBackward;
    return one.optimizer ? Phase::kOptimizer : Phase::kOther;
  };
  for (const PhasedWork& one : work) {
    if (certain(one) == Phase::kBackward) window.any_backward = true;
  }
  std::size_t begin = 0;  // the first one that waits for the next certain one
  for (std::size_t i = 0; i < earliest; ++i) {
    if (!work[i].launch_known) continue;
    const Phase phase = certain(work[i]);
    if (phase == Phase::kOther) continue;
    for (; begin < i; ++begin) {
      count(number,
            work[begin].launch_known ? between(window.before, phase, window.any_backward) : Phase::kOther,
            work[begin]);
    }
    count(number, phase, work[i]);
    begin = i + 1;
    window.before = phase;
  }
  // A program without phases would never have a next certain one.
  if (all || begin < earliest / 2) {
    for (; begin < earliest; ++begin) {
      const Phase phase = between(window.before, Phase::kOther, window.any_backward);
      count(number, work[begin].launch_known ? phase : Phase::kOther, work[begin]);
    }
  }
  held_ -= begin;
  work.erase(work.begin(), work.begin() + static_cast<std::ptrdiff_t>(begin));
}

void PhaseStatistics::settle_window(std::uint32_t number) {
  while (!windows_.empty() && windows_.begin()->first.first <= number) {
    Window& window = windows_.begin()->second;
    judge(windows_.begin()->first.first, window, window.work.size(), true);
    windows_.erase(windows_.begin());
  }
}

std::vector<PhaseRow> PhaseStatistics::rows() const {
  std::vector<PhaseRow> result;
  for (const auto& [key, phases] : rows_) {
    for (std::size_t i = 0; i < kPhases; ++i) {
      const DeviceWork& work = phases[i];
      if (work.kernels.count + work.copies + work.memsets == 0) continue;
      result.push_back({key.first, key.second, static_cast<Phase>(i), work});
    }
  }
  return result;
}

}  // namespace inject
