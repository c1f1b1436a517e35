// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/tf32.h"

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace inject {

ComputeType tf32_if_allowed() noexcept {
  // Once, as the libraries do: the program may change its environment in another thread.
  static constinit std::atomic<ComputeType> known{ComputeType::kUnknown};
  ComputeType answer = known.load(std::memory_order_relaxed);
  if (answer == ComputeType::kUnknown) {
    const char* value = std::getenv("NVIDIA_TF32_OVERRIDE");
    answer = value != nullptr && std::string_view(value) == "0" ? ComputeType::kF32 : ComputeType::kF32Tf32;
    known.store(answer, std::memory_order_relaxed);
  }
  return answer;
}

}  // namespace inject
