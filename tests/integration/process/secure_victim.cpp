// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// usage: secure_victim LIBRARY
//
// Loads the library like a program that is linked with it, and requests a window. Prints the results: whether
// the loader considers the process to have other rights than its user's, what the request returned, and
// whether the library has changed the environment.
#include <dlfcn.h>
#include <sys/auxv.h>

#include <cstdio>
#include <cstdlib>

int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  auto* start = library == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(library, "inject_start"));
  if (start == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  const int started = start();
  std::printf("%lu %d %d\n", getauxval(AT_SECURE), started,
              getenv("CUDA_INJECTION64_PATH") != nullptr ? 1 : 0);
  return 0;
}
