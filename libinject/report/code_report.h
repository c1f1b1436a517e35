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
  std::uint64_t flop_time = 0;                      ///< of these calls' kernels
  FlopRate rate;                                    ///< `flops` by `flop_time`
  KernelLimits limits;                              ///< what limits the kernels, collectives excepted

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

/// Stand for kernels that are launched in no operator, module or frame, and for those whose place is not
/// known.
inline constexpr std::string_view kNoCode = "[none]";
inline constexpr std::string_view kUnattributed = "[unattributed]";
/// Stands for gaps in which the host was not late.
inline constexpr std::string_view kDeviceGap = "[device]";

/// Of each, `self` is what was launched with it as the innermost one; those of all rows add up to all
/// kernels. `inclusive` has what was launched inside of others in it as well.
struct OperatorRow {
  std::string_view name;
  CodeWork self;
  CodeWork inclusive;
};

struct ModuleRow {
  std::string path;
  // Empty where calls of one path differ in them:
  std::optional<std::string> parent;
  std::optional<std::string_view> type;
  std::optional<std::uint32_t> depth;  ///< modules around it; 0 for rows that are none, too
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
  // Launched with it as the innermost line that is no library's:
  std::uint64_t user_time = 0;  ///< kernels …
  KernelLimits user_limits;     ///< … and what bounds them
  std::uint64_t copies = 0;     ///< copies and memsets
  std::uint64_t copy_time = 0;
};

/// A line, no library's, for which the devices waited; or what stands for no line.
struct GapLineRow {
  std::string_view file;
  std::string_view function;
  std::uint32_t line = 0;  ///< 0: none
  std::uint64_t gaps = 0;
  std::uint64_t time = 0;
  std::array<std::uint64_t, kIdleCauses> causes{};  ///< time, by IdleCause
  std::uint64_t own_work = 0;                       ///< of that due to host compute: the host's own work
};

/// Kernels of one name that one Python stack has launched in one phase.
struct KernelStack {
  /// Phase, frames from the outermost, and kernel, with ';' between them. Of a phase that has too many, the
  /// shortest are together, without frames and as the kernel `[other]`.
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
  FlopCount recomputed;            ///< of the FLOPs of `all`, those of recomputation
  std::uint64_t idle = 0;          ///< that of `gaps`
  std::uint64_t unattributed = 0;  ///< of that, the time whose place is not known

  bool empty() const { return operators.empty(); }
};

/// `forward`, as in the stacks.
std::string_view phase_name(CodePhase phase);

/// Whether a source file belongs to an installed package, to Python itself or is none.
bool is_library_file(std::string_view file);

/// How long the text of all stacks may be. A large model's has a tenth of it.
inline constexpr std::size_t kMostStackText = std::size_t{32} << 20;

/// What is known of kernels beyond their times.
struct CodeJudge {
  DeviceSpecs device;  ///< the one with whose peaks rates are compared
  /// What limits kernels with those details (DetailRow::number), of which `time` is part.
  std::function<KernelLimits(std::uint32_t detail, std::uint64_t time)> limits;
};

/// Empty where no launch has been named.
CodeReport build_code_report(const CodeTimes& times, const CodePlaces& places, const CodeJudge& judge,
                             std::size_t most_stack_text = kMostStackText);

}  // namespace inject
