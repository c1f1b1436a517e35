// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A hook remembers the address of the real function, so it has to notice unloading. dlclose, unlike dlopen
// and dlsym, does not depend on its caller and can be forwarded.
#include <dlfcn.h>

#include <atomic>

#include "libinject/capture/hooks/real_symbol.h"
#include "libinject/capture/hooks/shim.h"

namespace {

using Close = int (*)(void*);

// The C library is never unloaded.
constinit std::atomic<Close> real_dlclose{nullptr};

}  // namespace

extern "C" INJECT_EXPORT int dlclose(void* handle) {
  Close real = real_dlclose.load(std::memory_order_acquire);
  if (real == nullptr) {
    real = reinterpret_cast<Close>(inject::symbol_after_ours("dlclose"));
    if (real == nullptr) return -1;
    real_dlclose.store(real, std::memory_order_release);
  }
  const int result = real(handle);
  inject::note_unload();
  return result;
}
