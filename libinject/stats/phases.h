// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/model/events.h"
#include "libinject/stats/device_work.h"

namespace inject {

/// A part of a training step.
enum class Phase : std::uint8_t { kForward, kBackward, kOptimizer, kOther };
inline constexpr std::size_t kPhases = 4;

/// "forward", "backward", "optimizer", "other".
std::string_view phase_name(Phase phase);

/// The phase that an NVTX range of this name stands for; kOther if none.
Phase phase_of_range(std::string_view name);

/// Whether a thread of this name runs the backward pass: PyTorch's autograd does so on threads of its own.
bool is_backward_thread(std::string_view name);

/// The properties of a kernel, copy or memset that determine its phase.
struct PhasedWork {
  Nanoseconds launch_begin = 0;
  std::uint64_t duration = 0;
  std::uint64_t bytes = 0;
  std::uint32_t thread = 0;
  std::uint16_t device = 0;
  bool launch_known = false;
  bool memset = false;
  bool copy = false;
  Phase range_phase = Phase::kOther;  ///< from the NVTX ranges around the launch; kOther if they name none
  bool optimizer = false;             ///< by its name, an optimizer's kernel
};

struct PhaseRow {
  std::uint32_t window = 0;
  std::uint32_t device = 0;
  Phase phase = Phase::kOther;
  DeviceWork work;
};

/// Device work by phase of the training step (docs/diagnosis.md): from NVTX ranges, the launching thread and
/// optimizer kernels; for work in between, from what was launched before and after it. This needs the
/// launches in order, so work waits for its window to be settled: up to kMaxHeld records, then the older half
/// of the fullest windows' work is judged by what has arrived. One thread at a time; may throw
/// std::bad_alloc.
class PhaseStatistics {
 public:
  static constexpr std::size_t kMaxHeld = 131'072;
  static constexpr std::size_t kMaxRows = 10'000;
  static constexpr std::size_t kMaxUnsettled = 4096;  // windows, counted per device

  /// `name` returns a thread's name; called when a window is judged.
  void threads_are_named_by(std::function<std::string(std::uint32_t thread)> name);

  void work(std::uint32_t window, const PhasedWork& work);
  /// Nothing more will come for this window or any before it.
  void settle_window(std::uint32_t window);

  /// By window, device and phase, of the work judged so far; windows beyond kMaxRows rows share those of
  /// window kOtherWindow.
  std::vector<PhaseRow> rows() const;
  std::size_t held() const { return held_; }

  static constexpr std::uint32_t kOtherWindow = ~std::uint32_t{0} - 1;

 private:
  /// A device in a window.
  struct Window {
    std::vector<PhasedWork> work;
    Phase before = Phase::kOther;  // the last phase that is certain
    bool any_backward = false;
  };
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // window, device
  void bound();
  void judge(std::uint32_t number, Window& window, std::size_t earliest, bool all);
  void count(std::uint32_t window, Phase phase, const PhasedWork& work);
  bool runs_backward(std::uint32_t thread);

  std::function<std::string(std::uint32_t)> name_;
  std::vector<std::uint8_t> backward_;  // by thread: 0 not determined, 1 no, 2 yes
  std::map<Key, Window> windows_;
  std::map<Key, std::array<DeviceWork, kPhases>> rows_;
  std::size_t held_ = 0;
};

}  // namespace inject
