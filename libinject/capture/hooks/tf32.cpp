// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/tf32.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace inject {

namespace {

bool is_set(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

/// An answer that is determined once, as the libraries do: the program may change its environment in another
/// thread.
class Once {
 public:
  template <typename Ask>
  bool get(Ask&& ask) noexcept {
    std::uint8_t answer = answer_.load(std::memory_order_relaxed);
    if (answer == 0) answer_.store(answer = ask() ? 2 : 1, std::memory_order_relaxed);
    return answer == 2;
  }

 private:
  std::atomic<std::uint8_t> answer_{0};
};

}  // namespace

ComputeType tf32_if_allowed() noexcept {
  static constinit Once forbidden;
  const bool is_forbidden = forbidden.get([] {
    const char* value = std::getenv("NVIDIA_TF32_OVERRIDE");
    return value != nullptr && std::string_view(value) == "0";
  });
  return is_forbidden ? ComputeType::kF32 : ComputeType::kF32Tf32;
}

ComputeType unless_emulated(ComputeType compute) noexcept {
  static constinit Once fp32;
  static constinit Once fp64;
  const bool emulated =
      (compute == ComputeType::kF32 && fp32.get([] { return is_set("CUBLAS_EMULATE_SINGLE_PRECISION"); })) ||
      (compute == ComputeType::kF64 && fp64.get([] { return is_set("CUBLAS_EMULATE_DOUBLE_PRECISION"); }));
  return emulated ? ComputeType::kOther : compute;
}

}  // namespace inject
