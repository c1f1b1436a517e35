// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What CUPTI itself leaves behind each time that it is attached and given up: a client that does no more than
// that. usage: cupti_cycles unsubscribe|finalize|finalize_in_callback|nothing_enabled CYCLES KERNELS Prints
// device and host memory beyond what it was after the first cycle, in bytes, records, and what a launch takes
// bare and after the last cycle, in ns.
#include <cupti.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

__global__ void tick(int* out) {
  if (threadIdx.x == 0) atomicAdd(out, 1);
}

void* find(const char* name) {
  static void* const cupti = [] {
    void* handle = dlopen("libcupti.so.13", RTLD_NOW);
    return handle != nullptr ? handle : dlopen("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13", RTLD_NOW);
  }();
  void* const found = cupti == nullptr ? nullptr : dlsym(cupti, name);
  if (found == nullptr) {
    std::fprintf(stderr, "no %s\n", name);
    std::exit(1);
  }
  return found;
}

void check(const char* what, bool good) {
  if (good) return;
  std::fprintf(stderr, "%s failed\n", what);
  std::exit(1);
}

#define CUPTI(name, ...) \
  check(#name, reinterpret_cast<decltype(&name)>(find(#name))(__VA_ARGS__) == CUPTI_SUCCESS)
#define CUDA(call) check(#call, (call) == cudaSuccess)

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
std::vector<std::uint8_t*> pool;
std::size_t records = 0;
bool finalize_next = false;

void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
  if (pool.empty()) pool.push_back(static_cast<std::uint8_t*>(std::aligned_alloc(64, kBufferBytes)));
  *buffer = pool.back();
  pool.pop_back();
  *size = kBufferBytes;
  *most = 0;
}

void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  static const auto next =
      reinterpret_cast<decltype(&cuptiActivityGetNextRecord)>(find("cuptiActivityGetNextRecord"));
  for (CUpti_Activity* record = nullptr; next(buffer, valid, &record) == CUPTI_SUCCESS;) ++records;
  pool.push_back(buffer);
}

void CUPTIAPI called(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  if (!finalize_next || static_cast<const CUpti_CallbackData*>(data)->callbackSite != CUPTI_API_EXIT) return;
  finalize_next = false;
  CUPTI(cuptiFinalize);
}

long resident_bytes() {
  long pages = 0, resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  check("reading statm", file != nullptr && std::fscanf(file, "%ld %ld", &pages, &resident) == 2);
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

double launch_ns(int* out) {
  constexpr int kLaunches = 2'000;
  double best = 1e12;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) tick<<<1, 32>>>(out);
    CUDA(cudaDeviceSynchronize());
    best = std::min(
        best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count());
  }
  return best / kLaunches;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string mode = argv[1];
  const int cycles = std::atoi(argv[2]), kernels = std::atoi(argv[3]);
  int* out = nullptr;
  CUDA(cudaMalloc(&out, sizeof *out));
  const double bare = launch_ns(out);
  std::size_t first_free = 0, free_bytes = 0, total = 0;
  long first_resident = 0;
  for (int cycle = 0; cycle <= cycles; ++cycle) {
    CUpti_SubscriberHandle subscriber = nullptr;
    CUPTI(cuptiSubscribe, &subscriber, &called, nullptr);
    if (mode != "nothing_enabled") {
      CUPTI(cuptiActivityRegisterCallbacks, &requested, &completed);
      CUPTI(cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    }
    for (int i = 0; i < kernels; ++i) tick<<<1, 32>>>(out);
    CUDA(cudaDeviceSynchronize());
    if (mode != "nothing_enabled") {
      CUPTI(cuptiActivityDisable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
      CUPTI(cuptiActivityFlushAll, 0);
    }
    if (mode == "finalize_in_callback") {
      CUPTI(cuptiEnableCallback, 1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API,
            CUPTI_RUNTIME_TRACE_CBID_cudaDeviceSynchronize_v3020);
      finalize_next = true;
      CUDA(cudaDeviceSynchronize());
      check("being called back", !finalize_next);
    } else {
      CUPTI(cuptiUnsubscribe, subscriber);
      if (mode != "unsubscribe") CUPTI(cuptiFinalize);
    }
    CUDA(cudaMemGetInfo(&free_bytes, &total));
    if (cycle == 0) {
      first_free = free_bytes;
      first_resident = resident_bytes();
    }
  }
  std::printf("{\"device\": %lld, \"host\": %ld, \"records\": %zu, \"bare_ns\": %.0f, \"after_ns\": %.0f}\n",
              static_cast<long long>(first_free) - static_cast<long long>(free_bytes),
              resident_bytes() - first_resident, records, bare, launch_ns(out));
  return 0;
}
