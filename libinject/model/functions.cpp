// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/model/functions.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace inject {

namespace {

// One text and offsets into it instead of a thousand pointers, which the loader would have to relocate in
// every process.
constexpr char kFunctionNames[] = "\0"
#define INJECT_HOOK(name, arity, category) #name "\0"
#include "libinject/model/cudart.def"
#define INJECT_HOOK(name, arity, category) #name "\0"
#include "libinject/model/cublas.def"
#define INJECT_HOOK(name, arity, category) #name "\0"
#include "libinject/model/cublaslt.def"
#define INJECT_HOOK(name, arity, category) #name "\0"
#include "libinject/model/cudnn.def"
#define INJECT_HOOK(name, arity, category) #name "\0"
#include "libinject/model/nccl.def"
#define INJECT_HOOK(name, arity, category) #name "\0"
#include "libinject/model/cupti.def"
    ;

constexpr std::array<std::uint16_t, kFunctionEnd + 1> make_offsets() {
  static_assert(sizeof(kFunctionNames) <= UINT16_MAX);
  std::array<std::uint16_t, kFunctionEnd + 1> offsets{};
  std::size_t next = 0;
  for (std::size_t i = 0; i + 1 < sizeof(kFunctionNames); ++i) {
    if (kFunctionNames[i] == '\0') offsets[++next] = static_cast<std::uint16_t>(i + 1);
  }
  return offsets;
}
constexpr auto kOffsets = make_offsets();

constexpr Category kCategories[] = {
    Category::kOther,
#define INJECT_HOOK(name, arity, category) Category::category,
#include "libinject/model/cudart.def"
#define INJECT_HOOK(name, arity, category) Category::category,
#include "libinject/model/cublas.def"
#define INJECT_HOOK(name, arity, category) Category::category,
#include "libinject/model/cublaslt.def"
#define INJECT_HOOK(name, arity, category) Category::category,
#include "libinject/model/cudnn.def"
#define INJECT_HOOK(name, arity, category) Category::category,
#include "libinject/model/nccl.def"
#define INJECT_HOOK(name, arity, category) Category::category,
#include "libinject/model/cupti.def"
};

constexpr FunctionGroup kGroups[] = {
    FunctionGroup::kDriver,
#define INJECT_HOOK(name, arity, category) FunctionGroup::kCudart,
#include "libinject/model/cudart.def"
#define INJECT_HOOK(name, arity, category) FunctionGroup::kCublas,
#include "libinject/model/cublas.def"
#define INJECT_HOOK(name, arity, category) FunctionGroup::kCublasLt,
#include "libinject/model/cublaslt.def"
#define INJECT_HOOK(name, arity, category) FunctionGroup::kCudnn,
#include "libinject/model/cudnn.def"
#define INJECT_HOOK(name, arity, category) FunctionGroup::kNccl,
#include "libinject/model/nccl.def"
#define INJECT_HOOK(name, arity, category) FunctionGroup::kCupti,
#include "libinject/model/cupti.def"
};

constexpr bool kBookkeeping[] = {
    false,
#define INJECT_HOOK(name, arity, category) is_bookkeeping_name(#name),
#include "libinject/model/cudart.def"
};
static_assert(kGroups[std::size(kBookkeeping) - 1] == FunctionGroup::kCudart &&
              kGroups[std::size(kBookkeeping)] != FunctionGroup::kCudart);

static_assert(std::size(kCategories) == kFunctionEnd && std::size(kGroups) == kFunctionEnd);
static_assert(kOffsets[kFunctionEnd] == sizeof(kFunctionNames) - 1);
static_assert(kFunctionEnd < kDriverFunction);

// Names of driver calls by callback id (CUDA 13.0 has 800). Leaked on purpose: records outlive everything.
constinit std::array<std::atomic<const char*>, 2048> driver_names{};

}  // namespace

std::string_view function_name(FunctionId function) noexcept {
  if ((function & kDriverFunction) != 0) {
    const std::size_t index = function & ~kDriverFunction & 0xFFFFu;
    const char* name =
        index < driver_names.size() ? driver_names[index].load(std::memory_order_acquire) : nullptr;
    return name != nullptr ? std::string_view(name) : std::string_view{};
  }
  if (function == kNoFunction || function >= kFunctionEnd) return {};
  const std::size_t begin = kOffsets[function];
  return {kFunctionNames + begin, kOffsets[function + 1u] - begin - 1u};
}

void set_driver_function_name(FunctionId function, const char* name) noexcept {
  const std::size_t index = function & ~kDriverFunction & 0xFFFFu;
  if ((function & kDriverFunction) == 0 || index >= driver_names.size() || name == nullptr) return;
  if (driver_names[index].load(std::memory_order_relaxed) != nullptr) return;
  char* copy = ::strdup(name);
  const char* none = nullptr;
  if (copy != nullptr &&
      !driver_names[index].compare_exchange_strong(none, copy, std::memory_order_release)) {
    std::free(copy);
  }
}

FunctionGroup function_group(FunctionId function) noexcept {
  return function < kFunctionEnd ? kGroups[function] : FunctionGroup::kDriver;
}

Category function_category(FunctionId function) noexcept {
  return function < kFunctionEnd ? kCategories[function] : Category::kOther;
}

bool is_bookkeeping(FunctionId function) noexcept {
  return function < std::size(kBookkeeping) && kBookkeeping[function];
}

std::string_view group_name(FunctionGroup group) noexcept {
  switch (group) {
    case FunctionGroup::kCudart:
      return "cudart";
    case FunctionGroup::kCublas:
      return "cublas";
    case FunctionGroup::kCublasLt:
      return "cublaslt";
    case FunctionGroup::kCudnn:
      return "cudnn";
    case FunctionGroup::kNccl:
      return "nccl";
    case FunctionGroup::kCupti:
      return "cupti";
    case FunctionGroup::kDriver:
      return "driver";
  }
  return {};
}

FunctionId find_function(std::string_view name) noexcept {
  for (FunctionId id = 1; id < kFunctionEnd; ++id) {
    if (function_name(id) == name) return id;
  }
  return kNoFunction;
}

}  // namespace inject
