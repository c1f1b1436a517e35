// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/signs.h"

#include "libinject/base/caller_state.h"
#include "libinject/capture/hooks/real_symbol.h"

namespace inject {

namespace {
constinit SameLibraryFunction<cudaError_t()> peek_at_error{"cudaPeekAtLastError"};
constinit SameLibraryFunction<cudaError_t()> take_error{"cudaGetLastError"};
constinit SameLibraryFunction<cudaError_t(const char**, const void*)> name_of_function{
    "cudaFuncGetName"};  // since 12.3
}  // namespace

bool tell_kernel_name(SeenLaunch launch, const void* real) noexcept {
  const CallerState state;
  // The launch has succeeded, so context and module exist: the runtime only looks the name up. A pending
  // error that the program has not queried yet is left alone, because another one would replace it.
  auto* peek = peek_at_error.get(real);
  auto* get_name = name_of_function.get(real);
  auto* take = take_error.get(real);
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
