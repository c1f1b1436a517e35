// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A stand-in for a vendor's library: a few of its names, whose results tell which copy was reached. VALUE
// distinguishes the copies.

#define EXPORT __attribute__((visibility("default")))

extern "C" {

#ifdef SWAPPED
// At a different offset than in the other copies.
EXPORT int cudaGetDevice(int* value) {
  *value = VALUE + 2;
  return 0;
}
#endif

EXPORT int cudaRuntimeGetVersion(int* value) {
  *value = VALUE;
  return 0;
}

EXPORT int cudaGetDeviceCount(int* value) {
  *value = VALUE + 1;
  return 0;
}

#ifndef SWAPPED
EXPORT int cudaGetDevice(int* value) {
  *value = VALUE + 2;
  return 0;
}
#endif

#ifdef WITH_INDIRECT
// An indirect function, as in a library with code for several CPU types.
static int driver_version(int* value) {
  *value = VALUE + 3;
  return 0;
}
static int (*choose_driver_version())(int*) {
  return driver_version;
}
EXPORT int cudaDriverGetVersion(int* value) __attribute__((ifunc("choose_driver_version")));
#endif

#ifdef WITH_OLD_VERSION
// A name with an older version besides its default one; the older one is for callers that request it.
EXPORT int old_get_flags(unsigned* value) {
  *value = 1;
  return 0;
}
EXPORT int new_get_flags(unsigned* value) {
  *value = VALUE + 4;
  return 0;
}
__asm__(".symver old_get_flags, cudaGetDeviceFlags@older");
__asm__(".symver new_get_flags, cudaGetDeviceFlags@@libcudart.so.13");
#endif

#ifdef CUDNN
EXPORT int cudnnCreate(void** value) {
  *value = reinterpret_cast<void*>(VALUE);
  return 0;
}

// Calls another name of its own through the dynamic linker.
EXPORT long own_cudnn_create() {
  void* value = nullptr;
  cudnnCreate(&value);
  return reinterpret_cast<long>(value);
}
#endif
}
