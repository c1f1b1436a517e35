// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The hooked functions, as listed in the .def tables: ids, names, groups, categories. No vendor header is
// needed here, and ids do not depend on which of them a build had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "libinject/model/records.h"

namespace inject {

/// The library that a function belongs to. kDriver stands for the driver calls that CUPTI's callbacks report.
enum class FunctionGroup : std::uint8_t { kCudart, kCublas, kCublasLt, kCudnn, kNccl, kCupti, kDriver };

/// What a call is about, as far as its name indicates.
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

/// The exported name, or the name given to a driver call; empty for other ids. Null-terminated.
std::string_view function_name(FunctionId function) noexcept;

/// Names the driver call `function` (kDriverFunction | cbid). The text is copied; the first name given is
/// kept.
void set_driver_function_name(FunctionId function, const char* name) noexcept;

/// kDriver for ids with kDriverFunction set.
FunctionGroup function_group(FunctionId function) noexcept;

/// kOther for ids that are not a hooked function's.
Category function_category(FunctionId function) noexcept;

/// is_bookkeeping() for a runtime function of that name. Consistent with host_state_of() and asks_for_work()
/// (analysis/idle_time.h), which a test verifies.
constexpr bool is_bookkeeping_name(std::string_view name) {
  // Creates or changes a node of a graph, whose work is done later.
  if (name.find("Graph") != std::string_view::npos && name.find("Node") != std::string_view::npos)
    return true;
  for (const std::string_view part : {"Synchronize", "Memcpy", "Memset", "Launch", "Query"}) {
    if (name.find(part) != std::string_view::npos) return false;
  }
  return true;
}

/// Whether a call neither submits work, nor waits for it, nor queries whether it is done, according to its
/// name. False for ids that are not a hooked function's.
bool is_bookkeeping(FunctionId function) noexcept;

/// "cudart", "cublas", …: the names accepted by INJECT_HOOKS and shown in library_sum.csv.
std::string_view group_name(FunctionGroup group) noexcept;

/// The id of an exported name, kNoFunction if there is no such hook. Linear: not for hot paths.
FunctionId find_function(std::string_view name) noexcept;

}  // namespace inject
