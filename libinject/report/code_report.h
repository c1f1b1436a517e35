// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Kernels by operator, module and line of Python (docs/code.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libinject/analysis/diagnosis.h"
#include "libinject/analysis/idle_time.h"
#include "libinject/analysis/sample_stats.h"
#include "libinject/model/code_place.h"
#include "libinject/record/code_places.h"
#include "libinject/report/flop_rate.h"
#include "libinject/stats/code_times.h"

namespace inject {

struct CodeWork {
  std::uint64_t instances = 0;
  std::uint64_t time = 0;
  std::array<std::uint64_t, kCodePhases> phases{};  ///< time, by CodePhase
  FlopCount flops;                                  ///< of library calls and operators of known shape
  std::uint64_t flop_time = 0;                      ///< of the kernels of these calls
  FlopRate rate;                                    ///< `flops` divided by `flop_time`
  KernelLimits limits;                              ///< what limits the kernels, except collectives

  void add(const Totals& kernels, CodePhase phase) {
    instances += kernels.count;
    time += kernels.sum;
    phases[static_cast<std::size_t>(phase)] += kernels.sum;
  }
  void add(const CodeTimes::Flops& more) {
    flops.merge(more.flops);
    flop_time += more.time;
  }
};

/// Stand for kernels launched outside any operator, module or frame, and for those whose place is unknown.
inline constexpr std::string_view kNoCode = "[none]";
inline constexpr std::string_view kUnattributed = "[unattributed]";
/// Stands for gaps in which the host was not late.
inline constexpr std::string_view kDeviceGap = "[device]";

/// In each row, `self` is what was launched with it as the innermost one; over all rows, these add up to all
/// kernels. `inclusive` also has what was launched in others inside it.
struct OperatorRow {
  std::string_view name;
  CodeWork self;
  CodeWork inclusive;
};

struct ModuleRow {
  std::string path;
  // Empty if calls of one path differ in them:
  std::optional<std::string> parent;
  std::optional<std::string_view> type;
  std::optional<std::uint32_t> depth;  ///< number of modules around it; 0 also for rows that are not modules
  CodeWork self;
  CodeWork inclusive;
};

struct LineRow {
  std::string_view file;
  std::string_view function;
  std::uint32_t line = 0;  ///< 0: none
  bool is_library = false;
  CodeWork self;
  CodeWork inclusive;
  // Launched with it as the innermost line outside libraries:
  std::uint64_t user_time = 0;  ///< kernels
  KernelLimits user_limits;     ///< what bounds them
  std::uint64_t copies = 0;     ///< copies and memsets
  std::uint64_t copy_time = 0;
};

/// A line outside libraries for which the devices waited, or a substitute for one.
struct GapLineRow {
  std::string_view file;
  std::string_view function;
  std::uint32_t line = 0;  ///< 0: none
  std::uint64_t gaps = 0;
  std::uint64_t time = 0;
  std::array<std::uint64_t, kIdleCauses> causes{};  ///< time, by IdleCause
  std::uint64_t own_work = 0;                       ///< part due to host compute: the host's own work
};

/// Kernels of one name launched by one Python stack in one phase.
struct KernelStack {
  /// Phase, frames from the outermost, and kernel, separated by ';'. If a phase has too many stacks, the
  /// shortest-running ones are combined, without frames and with the kernel `[other]`.
  std::string text;
  std::uint64_t time = 0;
};

/// By descending time: operators by self, modules by inclusive, lines by user_time and
/// then inclusive. Stacks by their text.
struct CodeReport {
  std::vector<OperatorRow> operators;
  std::vector<ModuleRow> modules;
  std::vector<LineRow> lines;
  std::vector<GapLineRow> gaps;
  std::vector<KernelStack> stacks;
  CodeWork all;
  FlopCount recomputed;             ///< the part of the FLOPs of `all` that is recomputation
  bool recomputation_known = true;  ///< no others may be, but for a hundredth of all
  std::uint64_t idle = 0;           ///< time of `gaps`
  std::uint64_t unattributed = 0;   ///< part of `idle` whose place is unknown

  bool empty() const { return operators.empty(); }
};

/// `forward`, as in the stacks.
std::string_view phase_name(CodePhase phase);

/// True if a source file belongs to an installed package or to Python itself, or stands for generated code.
/// `<string>` does, unless a stack of the program begins there (`python -c`).
bool is_library_file(std::string_view file);

/// Maximum length of the text of all stacks. A large model needs a tenth of it.
inline constexpr std::size_t kMostStackText = std::size_t{32} << 20;

/// What is known about kernels beyond their times.
struct CodeReportInput {
  DeviceSpecs device;  ///< the one with whose peaks rates are compared
  /// What limits kernels with these details (DetailRow::number), of which `time` is part.
  std::function<KernelLimits(std::uint32_t detail, std::uint64_t time)> limits;
};

/// Empty if no launch has been named.
CodeReport build_code_report(const CodeTimes& times, const CodePlaces& places, const CodeReportInput& input,
                             std::size_t most_stack_text = kMostStackText);

}  // namespace inject
