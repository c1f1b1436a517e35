// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The hooked functions, as the .def tables list them: ids, names, groups, categories. No vendor header is
// needed here, and ids do not depend on which of them a build had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libinject/model/records.h"

namespace inject {

/// The library that a function belongs to. kDriver stands for the driver calls that CUPTI's callbacks report.
enum class FunctionGroup : std::uint8_t { kCudart, kCublas, kCublasLt, kCudnn, kNccl, kCupti, kDriver };
inline constexpr std::size_t kFunctionGroups = 7;

/// What a call is about, as far as its name tells.
enum class Category : std::uint8_t {
  kLaunch,
  kCopy,
  kMemset,
  kSync,
  kMemory,
  kStream,
  kEvent,
  kGraph,
  kModule,
  kDevice,
  kQuery,
  kProfiler,
  kGemm,
  kBlas,
  kConv,
  kRnn,
  kNorm,
  kAttention,
  kPool,
  kSoftmax,
  kActivation,
  kTensor,  ///< cuDNN's other operations
  kPlan,
  kCollective,
  kPointToPoint,
  kGroup,
  kOther,
};

/// kFn_<name> is the id of the function <name>. Ids start at 1 and follow the order of the tables.
enum HookedFunction : FunctionId {
  kFn_none = kNoFunction,  // NOLINT(readability-identifier-naming)
#define INJECT_HOOK(name, arity, category) kFn_##name,
#include "libinject/model/cudart.def"
#define INJECT_HOOK(name, arity, category) kFn_##name,
#include "libinject/model/cublas.def"
#define INJECT_HOOK(name, arity, category) kFn_##name,
#include "libinject/model/cublaslt.def"
#define INJECT_HOOK(name, arity, category) kFn_##name,
#include "libinject/model/cudnn.def"
#define INJECT_HOOK(name, arity, category) kFn_##name,
#include "libinject/model/nccl.def"
#define INJECT_HOOK(name, arity, category) kFn_##name,
#include "libinject/model/cupti.def"
  kFunctionEnd
};

/// Hooked functions have the ids 1 … kFunctionCount.
inline constexpr std::size_t kFunctionCount = kFunctionEnd - 1;

/// The exported name, or the name that a driver call was given; empty for other ids. Null-terminated.
std::string_view function_name(FunctionId function) noexcept;

/// Names the driver call `function` (kDriverFunction | cbid). The text is copied; the first name stays.
void set_driver_function_name(FunctionId function, const char* name) noexcept;

/// kDriver for ids with kDriverFunction set.
FunctionGroup function_group(FunctionId function) noexcept;

/// kOther for ids that are no hooked function's.
Category function_category(FunctionId function) noexcept;

/// Of a function of the runtime by that name. As host_state_of() and asks_for_work() have it
/// (analysis/idle_time.h), which a test compares.
constexpr bool is_bookkeeping_name(std::string_view name) {
  // Makes or changes a node of a graph: what the node does is done later.
  if (name.find("Graph") != std::string_view::npos && name.find("Node") != std::string_view::npos)
    return true;
  for (const std::string_view part : {"Synchronize", "Memcpy", "Memset", "Launch", "Query"}) {
    if (name.find(part) != std::string_view::npos) return false;
  }
  return true;
}

/// A call that neither submits work nor waits for it nor asks whether it is done: its name says so. False for
/// ids that are no hooked function's.
bool is_bookkeeping(FunctionId function) noexcept;

/// "cudart", "cublas", … : the names that INJECT_HOOKS takes and library_sum.csv shows.
std::string_view group_name(FunctionGroup group) noexcept;

/// The id of an exported name, kNoFunction if there is no such hook. Linear: not for hot paths.
FunctionId find_function(std::string_view name) noexcept;

}  // namespace inject
