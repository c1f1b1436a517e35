// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/cupti/driver_functions.h"

#include <algorithm>
#include <string_view>

namespace inject {

namespace {

DriverFunction::Launch launch_of(std::string_view name) noexcept {
  using Launch = DriverFunction::Launch;
  if (name.starts_with("cuLaunchKernelEx")) return Launch::kKernelEx;
  if (name.starts_with("cuLaunchKernel")) return Launch::kKernel;
  // The cooperative launch has the same leading parameters.
  if (name.starts_with("cuLaunchCooperativeKernel") && name.find("MultiDevice") == std::string_view::npos)
    return Launch::kKernel;
  if (name.starts_with("cuGraphLaunch")) return Launch::kGraph;
  return Launch::kUnknown;
}

bool has_size_third(std::string_view name) noexcept {
  constexpr std::string_view kPrefixes[] = {
      "cuMemcpyHtoD_",      "cuMemcpyHtoDAsync_", "cuMemcpyDtoH_",   "cuMemcpyDtoHAsync_", "cuMemcpyDtoD_",
      "cuMemcpyDtoDAsync_", "cuMemsetD8_",        "cuMemsetD16_",    "cuMemsetD32_",       "cuMemcpyAsync",
      "cuMemsetD8Async",    "cuMemsetD16Async",   "cuMemsetD32Async"};
  return name == "cuMemcpy" || name == "cuMemcpy_ptds" ||
         std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

DriverFunction::Sizes sizes_of(std::string_view name) noexcept {
  using Sizes = DriverFunction::Sizes;
  struct Entry {
    std::string_view prefix;
    Sizes sizes;
  };
  // If there is a version 2, the first version was for 32 bits.
  constexpr Entry kEntries[] = {{"cuMemcpy2D_v2", Sizes::kCopy2D},
                                {"cuMemcpy2DUnaligned_v2", Sizes::kCopy2D},
                                {"cuMemcpy2DAsync_v2", Sizes::kCopy2D},
                                {"cuMemcpy3D_v2", Sizes::kCopy3D},
                                {"cuMemcpy3DAsync_v2", Sizes::kCopy3D},
                                {"cuMemcpy3DPeer", Sizes::kPeer3D},
                                {"cuMemcpyPeer", Sizes::kFifth},
                                {"cuMemcpyAtoA_v2", Sizes::kFifth},
                                {"cuMemcpyDtoA_v2", Sizes::kFourth},
                                {"cuMemcpyAtoD_v2", Sizes::kFourth},
                                {"cuMemcpyHtoA_v2", Sizes::kFourth},
                                {"cuMemcpyAtoH_v2", Sizes::kFourth},
                                {"cuMemcpyHtoAAsync_v2", Sizes::kFourth},
                                {"cuMemcpyAtoHAsync_v2", Sizes::kFourth},
                                {"cuMemsetD2D8_v2", Sizes::kFourthAndFifth},
                                {"cuMemsetD2D16_v2", Sizes::kFourthAndFifth},
                                {"cuMemsetD2D32_v2", Sizes::kFourthAndFifth},
                                {"cuMemsetD2D8Async", Sizes::kFourthAndFifth},
                                {"cuMemsetD2D16Async", Sizes::kFourthAndFifth},
                                {"cuMemsetD2D32Async", Sizes::kFourthAndFifth},
                                {"cuMemcpyBatchAsync", Sizes::kBatch}};
  for (const Entry& entry : kEntries) {
    if (name.starts_with(entry.prefix)) return entry.sizes;
  }
  return Sizes::kUnknown;
}

bool may_create_context(std::string_view name) noexcept {
  return name.starts_with("cuDevicePrimaryCtxRetain") || name.starts_with("cuCtxCreate") ||
         name.starts_with("cuGreenCtxCreate");
}

SignKind copy_kind_of(std::string_view name) noexcept {
  if (name.find("HtoD") != std::string_view::npos) return SignKind::kCopyToDevice;
  if (name.find("DtoH") != std::string_view::npos) return SignKind::kCopyToHost;
  return SignKind::kCopy;
}

}  // namespace

DriverCall classify_driver_call(const char* name) noexcept {
  if (name == nullptr) return DriverCall::kOther;
  const std::string_view function = name;
  if (function.starts_with("cuLaunchHostFunc")) return DriverCall::kOther;
  if (function.starts_with("cuLaunch")) return DriverCall::kLaunch;
  if (function.starts_with("cuGraphLaunch")) return DriverCall::kGraphLaunch;
  if (function.starts_with("cuMemcpy")) return DriverCall::kCopy;
  if (function.starts_with("cuMemset")) return DriverCall::kMemset;
  return DriverCall::kOther;
}

DriverFunction DriverFunction::named(const char* name) noexcept {
  return {.call = classify_driver_call(name),
          .launch = launch_of(name),
          .sizes = sizes_of(name),
          .copy = copy_kind_of(name),
          .size_is_third = has_size_third(name),
          .creates_context = may_create_context(name)};
}

bool DriverFunction::has_empty_size(const void* parameters) const noexcept {
  static_assert(
      offsetof(cuMemcpyPeer_params, ByteCount) == 32 && offsetof(cuMemcpyAtoA_v2_params, ByteCount) == 32 &&
      offsetof(cuMemcpyHtoAAsync_v2_params, ByteCount) == 24 &&
      offsetof(cuMemcpyAtoD_v2_params, ByteCount) == 24 && offsetof(cuMemsetD2D8_v2_params, Width) == 24 &&
      offsetof(cuMemsetD2D32Async_params, Height) == 32);
  const auto size_at = [parameters](std::size_t offset) {
    std::size_t size;
    std::memcpy(&size, static_cast<const char*>(parameters) + offset, sizeof size);
    return size;
  };
  const auto no_area = [](const auto* block) {
    return block != nullptr && (block->WidthInBytes == 0 || block->Height == 0);
  };
  const auto no_volume = [no_area](const auto* block) {
    return block != nullptr && (no_area(block) || block->Depth == 0);
  };
  const void* first = nullptr;
  switch (sizes) {
    case Sizes::kFourth:
      return size_at(24) == 0;
    case Sizes::kFifth:
      return size_at(32) == 0;
    case Sizes::kFourthAndFifth:
      return size_at(24) == 0 || size_at(32) == 0;
    case Sizes::kCopy2D:
      std::memcpy(static_cast<void*>(&first), parameters, sizeof first);
      return no_area(static_cast<const CUDA_MEMCPY2D*>(first));
    case Sizes::kCopy3D:
      std::memcpy(static_cast<void*>(&first), parameters, sizeof first);
      return no_volume(static_cast<const CUDA_MEMCPY3D*>(first));
    case Sizes::kPeer3D:
      std::memcpy(static_cast<void*>(&first), parameters, sizeof first);
      return no_volume(static_cast<const CUDA_MEMCPY3D_PEER*>(first));
    case Sizes::kBatch: {
      // Targets, sources, sizes, count.
      const std::size_t* batch = nullptr;
      std::memcpy(static_cast<void*>(&batch), static_cast<const char*>(parameters) + 16, sizeof batch);
      return batch != nullptr &&
             std::all_of(batch, batch + size_at(24), [](std::size_t size) { return size == 0; });
    }
    case Sizes::kUnknown:
      break;
  }
  return false;
}

}  // namespace inject
