// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/signs.h"

#include "libinject/base/caller_state.h"
#include "libinject/capture/hooks/real_symbol.h"

namespace inject {

bool tell_kernel_name(SeenLaunch launch, const void* caller) noexcept {
  const CallerState state;
  // The launch has succeeded, so context and module are there: the runtime looks the name up, no more. An
  // error that the program has not asked for yet is left alone: another one would take its place.
  const auto peek = reinterpret_cast<cudaError_t (*)()>(resolve(kFn_cudaPeekAtLastError, caller));
  const auto get_name =
      reinterpret_cast<cudaError_t (*)(const char**, const void*)>(resolve(kFn_cudaFuncGetName, caller));
  const auto take = reinterpret_cast<cudaError_t (*)()>(resolve(kFn_cudaGetLastError, caller));
  if (peek == nullptr || get_name == nullptr || take == nullptr) return true;
  if (peek() != cudaSuccess) return false;
  const char* name = nullptr;
  if (get_name(&name, launch.kernel) == cudaSuccess) {
    emit_name(launch.function, name);
  } else {
    take();
  }
  return true;
}

}  // namespace inject
