// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A library that calls the runtime, like a framework's extension.
#include <thread>

extern "C" {

int cudaRuntimeGetVersion(int* value);
int cudaGetDeviceCount(int* value);
int cudaGetDevice(int* value);
int cudaDriverGetVersion(int* value);
int cudaGetDeviceFlags(unsigned* value);
int cudnnCreate(void** value);

#ifdef CUDNN
long plugin_cudnn() {
  void* value = nullptr;
  return cudnnCreate(&value) == 0 ? reinterpret_cast<long>(value) : -1;
}
#else
// Not a tail call, so that the call returns here.
int plugin_version() {
  int value = -1;
  const int status = cudaRuntimeGetVersion(&value);
  return status == 0 ? value : -status;
}
int plugin_count() {
  int value = -1;
  const int status = cudaGetDeviceCount(&value);
  return status == 0 ? value - 1 : -status;
}
int plugin_device() {
  int value = -1;
  const int status = cudaGetDevice(&value);
  return status == 0 ? value - 2 : -status;
}
int plugin_tail_call(int* value) {
  return cudaRuntimeGetVersion(value);
}
#endif

#ifdef WITH_SPECIAL
int plugin_indirect() {
  int value = -1;
  const int status = cudaDriverGetVersion(&value);
  return status == 0 ? value - 3 : -status;
}
int plugin_versioned() {
  unsigned value = 0;
  const int status = cudaGetDeviceFlags(&value);
  return status == 0 ? static_cast<int>(value) - 4 : -status;
}
#endif

int plugin_constructed = -1;

#ifdef CALL_IN_CONSTRUCTOR
__attribute__((constructor)) static void construct() {
  plugin_constructed = plugin_version();
}
#endif

#ifdef CALL_IN_CONSTRUCTORS_THREAD
// The loader holds its lock while this waits: a hook that takes that lock never returns.
__attribute__((constructor)) static void construct() {
  std::thread([] { plugin_constructed = plugin_version(); }).join();
}
#endif
}
