// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Preloaded before libinject.so: libraries whose path contains one of $HIDDEN_LIBRARIES (separated by colons)
// can't be opened by name, wherever they are on the machine. dlclose is passed on to libinject, as by tools
// that hook both functions (heaptrack).
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

namespace {

bool hidden(const char* file) {
  const char* list = getenv("HIDDEN_LIBRARIES");
  if (file == nullptr || list == nullptr) return false;
  while (*list != 0) {
    const size_t length = strcspn(list, ":");
    if (length != 0 && memmem(file, strlen(file), list, length) != nullptr) return true;
    list += length + (list[length] == ':' ? 1 : 0);
  }
  return false;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlopen(const char* file, int mode) noexcept {
  static auto* real = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  return real(hidden(file) ? "/nonexistent/hidden" : file, mode);
}

extern "C" __attribute__((visibility("default"))) int dlclose(void* handle) noexcept {
  static auto* real = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_NEXT, "dlclose"));
  return real(handle);
}
