// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libinject/base/log.h"
#include "libinject/config/window_spec.h"
#include "libinject/model/events.h"

namespace inject {

enum class ApiStatistics : std::uint8_t { kOff, kCuda, kFull };
/// Bits of Options::trace.
enum TraceFormats : std::uint8_t { kTraceCsv = 1u << 0, kTraceChrome = 1u << 1 };
enum class SummaryTarget : std::uint8_t { kStderr, kOff, kFile };
enum class AfterAction : std::uint8_t { kContinue, kInterrupt, kExit };
/// Bits of Options::hooks.
enum HookGroups : std::uint8_t {
  kHookCudart = 1u << 0,
  kHookCublas = 1u << 1,
  kHookCublasLt = 1u << 2,
  kHookCudnn = 1u << 3,
  kHookNccl = 1u << 4,
  kHookTorch = 1u << 5,   ///< interfaces of PyTorch itself (capture/torch, hooks/torch.cpp)
  kHookPython = 1u << 6,  ///< likewise: frames of the Python interpreter (capture/python)
  kHookAll = (1u << 7) - 1,
};

/// The user's settings. Paths are still patterns (out_path.h), which are expanded when needed.
struct Options {
  WindowSpec window;
  AfterAction after = AfterAction::kContinue;
  std::uint64_t timeout = 0;  ///< nanoseconds since CUDA's initialisation, 0: none
  std::string out = "inject-%h-%p";
  ApiStatistics api = ApiStatistics::kCuda;
  std::uint8_t hooks = kHookAll;
  std::uint64_t batch = 0;      ///< samples per iteration, 0 if not given
  bool loader_batches = false;  ///< number of samples from the batches returned by a DataLoader
  WindowSpec unit_ranges;       ///< kNvtx: the ranges whose payloads are units of work; other kinds: none
  bool metrics = false;
  std::vector<std::string> metric_names;     ///< chosen by the user; empty: a set chosen for the chip
  std::uint64_t metrics_interval = 500'000;  ///< nanoseconds
  bool metrics_timeline = false;
  std::uint8_t trace = 0;
  SummaryTarget summary = SummaryTarget::kStderr;
  std::string summary_file;
  std::string prometheus_file;  ///< empty: none
  std::size_t ring_bytes = std::size_t{16} << 20;
  std::size_t buffer_bytes = std::size_t{32} << 20;
  bool recover = true;
  bool control = false;
  LogLevel log_level = LogLevel::kInfo;
  std::string log_file;
  std::string iteration_record;
  bool help = false;

  UnitSource unit_source() const {
    if (unit_ranges.kind == WindowKind::kNvtx) return UnitSource::kPayload;
    if (loader_batches) return UnitSource::kLoader;
    return batch != 0 ? UnitSource::kStated : UnitSource::kCalled;
  }

  /// The variables of all options and the text in force, in the table's order; for run.json.
  std::vector<std::pair<std::string, std::string>> in_force;
};

struct ParseResult {
  Options options;
  std::vector<std::string> warnings;  ///< one line each, without a prefix
  std::string
      error;  ///< one line: the variable, its value and what is accepted; empty if all values are valid
};

/// How to treat a variable in INJECT_OUT and other paths (%q{VAR}) that is not set: as an error or, if the
/// options are read before the program starts, as one that a launcher may still set.
enum class UnsetVariable : std::uint8_t { kError, kMayComeLater };

/// Reads the INJECT_ variables from "NAME=value" strings; if a name occurs twice, the first one is used, as
/// by getenv(). An empty value is the same as an unset variable.
ParseResult parse_options(std::span<const std::string_view> environment,
                          UnsetVariable unset = UnsetVariable::kError);
/// The same for a zero-terminated array such as environ.
ParseResult parse_options(const char* const* environment, UnsetVariable unset = UnsetVariable::kError);

/// The table printed by INJECT_HELP=1: one or more lines per option, 110 columns.
std::string options_help();

struct OptionInfo {
  std::string_view variable;
  std::string_view default_value;
  std::string_view accepted;
  std::string_view help;
};
std::span<const OptionInfo> option_table();

}  // namespace inject
