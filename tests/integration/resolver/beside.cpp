// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// usage: resolver_beside FOLDER
//
// How often hooks iterate over the loaded objects to find the library function that they call.
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "libinject/capture/hooks/real_symbol.h"

namespace {

int walks = 0;
int failures = 0;

void expect(const char* what, long expected, long found) {
  if (expected == found) return;
  ++failures;
  std::fprintf(stderr, "%s: expected %ld, found %ld\n", what, expected, found);
}

struct Library {
  explicit Library(const std::string& path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle == nullptr) std::exit(2);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    dlclose(handle);
    inject::note_unload();
  }
  void* find(const char* name) const { return dlsym(handle, name); }

  void* handle;
};

using Get = int(int*);
constinit inject::SameLibraryFunction<Get> device_count{"cudaGetDeviceCount"};
constinit inject::SameLibraryFunction<Get> no_function{"no_such_function_anywhere"};

int count_beside(const void* real) {
  int value = -1;
  Get* get = device_count.get(real);
  return get != nullptr && get(&value) == 0 ? value : -1;
}

}  // namespace

// Called by the library under test.
extern "C" int dl_iterate_phdr(int (*callback)(dl_phdr_info*, std::size_t, void*), void* data) {
  static auto* real = reinterpret_cast<decltype(&dl_iterate_phdr)>(dlsym(RTLD_NEXT, "dl_iterate_phdr"));
  ++walks;
  return real(callback, data);
}

int main(int, char** argv) {
  const std::string folder = argv[1];
  for (int i = 0; i < 3; ++i) {
    const Library first(folder + "/libcudart.so.13");
    // Unloads are counted once a hook is bound.
    expect("bound", 1, inject::resolve(inject::kFn_cudaGetDevice, &walks) == first.find("cudaGetDevice"));
    const void* real = first.find("cudaRuntimeGetVersion");
    for (int unloads = 0; unloads < 3; ++unloads) {
      { const Library other(folder + "/libcudart.so.12"); }
      const int before = walks;
      for (int call = 0; call < 100; ++call) expect("beside", 13001, count_beside(real));
      expect("walks in 100 calls after an unload", 1, walks - before);
      for (int call = 0; call < 100; ++call) expect("missing", 1, no_function.get(real) == nullptr);
      expect("walks in 100 calls for what is missing", 2, walks - before);
    }
  }
  // In the copy, another function is at the address of cudaRuntimeGetVersion.
  const void* real = nullptr;
  for (int i = 0; i < 4; ++i) {
    const Library library(folder + (i % 2 == 0 ? "/libcudart.so.13" : "/copy/libcudart.so.13"));
    const void* lowest = library.find(i % 2 == 0 ? "cudaRuntimeGetVersion" : "cudaGetDevice");
    if (i != 0) expect("the copy lies where the other lay", 1, lowest == real);
    real = lowest;
    inject::resolve(inject::kFn_cudaGetDevice, &walks);
    for (int call = 0; call < 3; ++call)
      expect("of the library that is there", i % 2 == 0 ? 13001 : 13501, count_beside(real));
  }
  return failures == 0 ? 0 : 1;
}
