// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A program on the CUDA 12 runtime: a known number of kernels, copies and memsets between cudaProfilerStart
// and Stop. Built against the headers and the libcudart.so.12 of the vendor's wheels, so its only kernel is
// given as PTX text.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#if CUDART_VERSION < 12080 || CUDART_VERSION >= 13000
#error "this program is for the CUDA 12 runtime (12.8 or later, for cudaLibraryLoadData)"
#endif

// None of the runtime's wheels has cuda_profiler_api.h.
extern "C" cudaError_t CUDARTAPI cudaProfilerStart(void);
extern "C" cudaError_t CUDARTAPI cudaProfilerStop(void);

namespace {

constexpr int kKernels = 100;
constexpr int kCopies = 10;
constexpr int kMemsets = 5;
constexpr unsigned kElements = 1u << 16;

// void inject_saxpy12(float a, const float* x, float* y): y[i] += a * x[i]
constexpr const char* kPtx = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry inject_saxpy12(.param .f32 a, .param .u64 x, .param .u64 y)
{
  .reg .f32 %f<4>;
  .reg .b32 %r<5>;
  .reg .b64 %rd<6>;
  ld.param.f32 %f1, [a];
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mul.wide.u32 %rd3, %r4, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f3, %f1, %f2, %f3;
  st.global.f32 [%rd5], %f3;
  ret;
}
)";

#define CHECK(call)                                                              \
  do {                                                                           \
    const cudaError_t check_status = (call);                                     \
    if (check_status != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(check_status)); \
      return 1;                                                                  \
    }                                                                            \
  } while (0)

}  // namespace

int main() {
  int runtime = 0;
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaSetDevice(0));
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  CHECK(cudaLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CHECK(cudaLibraryGetKernel(&kernel, library, "inject_saxpy12"));
  std::vector<float> host(kElements, 1.0f);
  float *x = nullptr, *y = nullptr;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&x), kElements * sizeof(float)));
  CHECK(cudaMalloc(reinterpret_cast<void**>(&y), kElements * sizeof(float)));
  float a = 1.0f;
  void* arguments[] = {&a, &x, &y};

  CHECK(cudaMemset(y, 0, kElements * sizeof(float)));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaProfilerStart());
  for (int i = 0; i < kMemsets; ++i) CHECK(cudaMemsetAsync(y, 0, kElements * sizeof(float), nullptr));
  for (int i = 0; i < kCopies; ++i) {
    CHECK(cudaMemcpy(x, host.data(), kElements * sizeof(float), cudaMemcpyHostToDevice));
  }
  for (int i = 0; i < kKernels; ++i) {
    CHECK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(kElements / 256), dim3(256), arguments,
                           0, nullptr));
  }
  for (int i = 0; i < kCopies; ++i) {
    CHECK(cudaMemcpy(host.data(), y, kElements * sizeof(float), cudaMemcpyDeviceToHost));
  }
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaProfilerStop());
  for (const float value : host) {
    if (value != static_cast<float>(kKernels)) {
      std::fprintf(stderr, "wrong result %f\n", static_cast<double>(value));
      return 1;
    }
  }
  std::printf("{\"runtime\": %d, \"kernels\": %d, \"copies\": %d, \"memsets\": %d}\n", runtime, kKernels,
              kCopies, kMemsets);
  return 0;
}
