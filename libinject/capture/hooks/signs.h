// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a hooked call reports to the search for iterations (record/launch_sign.h), read from its arguments:
// the kernel and its launch shape, the direction and size of a copy, the sizes of a matrix product. Written
// once for all rows of the tables, by category and type of argument.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>
#include <tuple>
#include <type_traits>

#include "libinject/base/mapping.h"
#include "libinject/model/functions.h"
#include "libinject/record/iteration_watch.h"

namespace inject {

/// The categories of the tables, as compile-time constants.
template <FunctionId function>
inline constexpr Category kCategory = Category::kOther;
#define INJECT_HOOK(name, arity, category) \
  template <>                              \
  inline constexpr Category kCategory<kFn_##name> = Category::category;
#include "libinject/model/cudart.def"
#define INJECT_HOOK(name, arity, category) \
  template <>                              \
  inline constexpr Category kCategory<kFn_##name> = Category::category;
#include "libinject/model/cublas.def"
#define INJECT_HOOK(name, arity, category) \
  template <>                              \
  inline constexpr Category kCategory<kFn_##name> = Category::category;
#include "libinject/model/cublaslt.def"
#define INJECT_HOOK(name, arity, category) \
  template <>                              \
  inline constexpr Category kCategory<kFn_##name> = Category::category;
#include "libinject/model/cudnn.def"
#define INJECT_HOOK(name, arity, category) \
  template <>                              \
  inline constexpr Category kCategory<kFn_##name> = Category::category;
#include "libinject/model/nccl.def"
#define INJECT_HOOK(name, arity, category) \
  template <>                              \
  inline constexpr Category kCategory<kFn_##name> = Category::category;
#include "libinject/model/cupti.def"

/// is_bookkeeping(), as a compile-time constant.
template <FunctionId function>
inline constexpr bool kBookkeeping = false;
/// Whether its default stream is the thread's own.
template <FunctionId function>
inline constexpr bool kOnPerThreadStream = false;
#define INJECT_HOOK(name, arity, category)                                     \
  template <>                                                                  \
  inline constexpr bool kBookkeeping<kFn_##name> = is_bookkeeping_name(#name); \
  template <>                                                                  \
  inline constexpr bool kOnPerThreadStream<kFn_##name> =                       \
      std::string_view(#name).ends_with("_ptsz") || std::string_view(#name).ends_with("_ptds");
#include "libinject/model/cudart.def"

/// True if calls of this category are signs.
constexpr bool is_sign(Category category) {
  switch (category) {
    case Category::kLaunch:
    case Category::kCopy:
    case Category::kMemset:
    case Category::kSync:
    case Category::kGemm:
    case Category::kBlas:
    case Category::kConv:
    case Category::kRnn:
    case Category::kNorm:
    case Category::kAttention:
    case Category::kPool:
    case Category::kSoftmax:
    case Category::kActivation:
    case Category::kTensor:
    case Category::kCollective:
    case Category::kPointToPoint:
      return true;
    default:
      return false;
  }
}

constexpr std::uint64_t hash_with(std::uint64_t hash, std::uint64_t value) {
  return hash_mix((hash ^ value) * kHashSeed);
}

/// A kernel's identity in signs: a hash of its handle or host-side address.
inline std::uint64_t function_hash(std::uint64_t handle) noexcept {
  return hash_mix(handle * kHashSeed + 1);
}

inline std::uint64_t shape_hash(std::uint64_t function, std::uint64_t grid_xy, std::uint64_t grid_z,
                                std::uint64_t block_xy, std::uint64_t block_z) noexcept {
  return hash_mix((function ^ grid_xy) * kHashSeed +
                  (block_xy ^ (grid_z << 32 | block_z)) * 0xD6E8'FEB8'6659'FD93u);
}

inline std::uint64_t pair(std::uint64_t x, std::uint64_t y) noexcept {
  return x << 32 | (y & 0xFFFF'FFFFu);
}

inline std::uint64_t shape_hash(std::uint64_t function, const dim3& grid, const dim3& block) noexcept {
  return shape_hash(function, pair(grid.x, grid.y), grid.z, pair(block.x, block.y), block.z);
}

/// A launch that a hook has seen; `kernel` is null if it does not launch a kernel.
struct SeenLaunch {
  std::uint64_t function = 0;
  const void* kernel = nullptr;
};

/// Adds one argument to a sign. Numbers are sizes, counts and modes; what pointers refer to is the program's.
template <typename Argument>
[[gnu::always_inline]] inline void tell_argument(FunctionId function, Argument argument, SignKind& kind,
                                                 std::uint64_t& called, std::uint64_t& shape) noexcept {
  if constexpr (std::is_same_v<Argument, cudaMemcpyKind>) {
    called = hash_with(function, static_cast<std::uint64_t>(argument) + 2);
    if (argument == cudaMemcpyHostToDevice) kind = SignKind::kCopyToDevice;
    if (argument == cudaMemcpyDeviceToHost) kind = SignKind::kCopyToHost;
  } else if constexpr (std::is_integral_v<Argument> || std::is_enum_v<Argument>) {
    shape = hash_with(shape, static_cast<std::uint64_t>(argument));
  }
}

template <FunctionId function, typename... A>
[[gnu::always_inline]] inline SeenLaunch tell_sign(A... args) noexcept {
  constexpr Category kOwn = kCategory<function>;
  SeenLaunch seen;
  if constexpr (kOwn == Category::kLaunch && sizeof...(A) == 6) {
    // (kernel, grid, block, arguments, shared memory, stream). Tuples are used only for launches: for all
    // other functions, they would take half of these files' compile time.
    const std::tuple<A...> all(args...);
    seen.kernel = reinterpret_cast<const void*>(std::get<0>(all));
    seen.function = function_hash(reinterpret_cast<std::uint64_t>(seen.kernel));
    emit_sign(SignKind::kKernel, seen.function, shape_hash(seen.function, std::get<1>(all), std::get<2>(all)),
              reinterpret_cast<std::uint64_t>(std::get<5>(all)), false);
  } else if constexpr (kOwn == Category::kLaunch && sizeof...(A) == 3) {
    // (configuration, kernel, arguments)
    const std::tuple<A...> all(args...);
    const cudaLaunchConfig_t* config = std::get<0>(all);
    if (config == nullptr) return seen;
    seen.kernel = reinterpret_cast<const void*>(std::get<1>(all));
    seen.function = function_hash(reinterpret_cast<std::uint64_t>(seen.kernel));
    emit_sign(SignKind::kKernel, seen.function, shape_hash(seen.function, config->gridDim, config->blockDim),
              reinterpret_cast<std::uint64_t>(config->stream), false);
  } else if constexpr (kOwn == Category::kLaunch) {
    static_assert(sizeof...(A) == 2);  // (graph, stream)
    const std::tuple<A...> all(args...);
    const std::uint64_t graph = function_hash(reinterpret_cast<std::uint64_t>(std::get<0>(all)));
    emit_sign(SignKind::kGraph, graph, hash_with(graph, 1), reinterpret_cast<std::uint64_t>(std::get<1>(all)),
              false);
  } else if constexpr (kOwn == Category::kSync) {
    emit_sign(SignKind::kSync, function, hash_with(function, 1), 0, false);
  } else {
    SignKind kind = kOwn == Category::kCopy     ? SignKind::kCopy
                    : kOwn == Category::kMemset ? SignKind::kMemset
                                                : SignKind::kCall;
    std::uint64_t called = function;
    std::uint64_t shape = 0;
    (tell_argument(function, args, kind, called, shape), ...);
    emit_sign(kind, called, hash_with(called, shape), 0, false);
  }
  return seen;
}

/// Queries the runtime that made the launch, by its function `real`, for the kernel's name, once for each
/// kernel. Leaves no error behind. False if the query was not possible and is to be repeated at the next
/// launch.
bool tell_kernel_name(SeenLaunch launch, const void* real) noexcept;

}  // namespace inject
