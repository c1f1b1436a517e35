// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What each call of the runtime does, apart from what all of them do (call.h). Of twins there is one
// function, which is told whether the default stream is the thread's own.
#pragma once

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "tests/sim/arity.h"

#if SIM_CUDART_MAJOR < 13
// The head of CUDA 12's structure, which has a clock rate where 13's has none.
struct cudaDeviceProp12 {
  char name[256];
  cudaUUID_t uuid;
  char luid[8];
  unsigned int luidDeviceNodeMask;
  size_t totalGlobalMem;
  size_t sharedMemPerBlock;
  int regsPerBlock;
  int warpSize;
  size_t memPitch;
  int maxThreadsPerBlock;
  int maxThreadsDim[3];
  int maxGridSize[3];
  int clockRate;
  size_t totalConstMem;
  int major;
  int minor;
  size_t textureAlignment;
  size_t texturePitchAlignment;
  int deviceOverlap;
  int multiProcessorCount;
};
extern "C" cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp12* prop, int device);
#endif

#pragma GCC visibility push(hidden)
namespace inject::sim::rt::impl {

#define SIM_RUNTIME(name, arity, version, needs) decltype(::name) name;
#define SIM_RUNTIME_PLAIN(name, arity, needs) decltype(::name) name;
#define SIM_RUNTIME_TWINS(name, twin, arity, version, twin_version) WithDefaultStream<decltype(::name)> name;
#define SIM_RUNTIME_PLAIN_TWINS(name, twin, arity) WithDefaultStream<decltype(::name)> name;
#include "tests/sim/cudart/functions.def"

}  // namespace inject::sim::rt::impl
#pragma GCC visibility pop
