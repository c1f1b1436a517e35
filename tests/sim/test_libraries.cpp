// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The libraries as libraries: names, versions, two majors in one process, driver API, memory.
#include <cuda.h>
#include <dlfcn.h>
#if INJECT_HAVE_CUDNN
#include <cudnn.h>
#endif
#if INJECT_HAVE_NCCL
#include <nccl.h>
#endif

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/cudasim.h"
#include "tests/unit/catch.h"

using namespace inject::sim;

namespace {

void* open_library(const std::string& name) {
  void* library = dlopen((std::string(SIM_DIRECTORY) + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <class Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

struct Table {
  const char* library;
  bool versioned;
  std::vector<const char*> names;
};

const std::vector<Table>& tables() {
  static std::vector<Table> all = {
    {"libcudart.so.13",
     true,
     {
#define INJECT_HOOK(name, arity, category) #name,
#include "libinject/model/cudart.def"
     }},
    {"libcublas.so.13",
     true,
     {
#define INJECT_HOOK(name, arity, category) #name,
#include "libinject/model/cublas.def"
     }},
    {"libcublasLt.so.13",
     true,
     {
#define INJECT_HOOK(name, arity, category) #name,
#include "libinject/model/cublaslt.def"
     }},
    {"libcupti.so.13",
     true,
     {
#define INJECT_HOOK(name, arity, category) #name,
#include "libinject/model/cupti.def"
     }},
#if INJECT_HAVE_CUDNN
    {"libcudnn.so.9",
     true,
     {
#define INJECT_HOOK(name, arity, category) #name,
#include "libinject/model/cudnn.def"
     }},
#endif
#if INJECT_HAVE_NCCL
    {"libnccl.so.2",
     false,
     {
#define INJECT_HOOK(name, arity, category) #name,
#include "libinject/model/nccl.def"
     }},
#endif
  };
  return all;
}

}  // namespace

TEST_CASE("every hooked function exists, under the vendor's version node") {
  for (const Table& table : tables()) {
    void* library = open_library(table.library);
    CHECK_FALSE(table.names.empty());
    for (const char* name : table.names) {
      INFO(table.library << " " << name);
      CHECK(dlsym(library, name) != nullptr);
      CHECK((dlvsym(library, name, table.library) != nullptr) == table.versioned);
    }
  }
}

TEST_CASE("the runtimes of two majors live side by side") {
  void* twelve = open_library("libcudart.so.12");
  auto* malloc12 = symbol<cudaError_t(void**, std::size_t)>(twelve, "cudaMalloc");
  auto* free12 = symbol<decltype(cudaFree)>(twelve, "cudaFree");
  auto* version12 = symbol<decltype(cudaRuntimeGetVersion)>(twelve, "cudaRuntimeGetVersion");
  auto* last_error12 = symbol<decltype(cudaGetLastError)>(twelve, "cudaGetLastError");
  REQUIRE(malloc12 != nullptr);
  REQUIRE(malloc12 != static_cast<cudaError_t (*)(void**, std::size_t)>(&cudaMalloc));
  int version = 0;
  CHECK(version12(&version) == cudaSuccess);
  CHECK(version == 12060);
  CHECK(cudaRuntimeGetVersion(&version) == cudaSuccess);
  CHECK(version == 13000);

  std::uint64_t calls12 = cudasim_call_count("libcudart.so.12!cudaMalloc");
  std::uint64_t calls13 = cudasim_call_count("libcudart.so.13!cudaMalloc");
  void* memory = nullptr;
  CHECK(malloc12(&memory, 64) == cudaSuccess);
  CHECK(cudasim_call_count("libcudart.so.12!cudaMalloc") == calls12 + 1);
  CHECK(cudasim_call_count("libcudart.so.13!cudaMalloc") == calls13);
  CHECK(free12(memory) == cudaSuccess);
  // Each has a last error of its own.
  CHECK(free12(&memory) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(last_error12() == cudaErrorInvalidValue);
  CHECK(dlsym(twelve, "cudaGetDeviceProperties_v2") != nullptr);
  CHECK(dlsym(twelve, "cudaGetDeviceProperties") == nullptr);
}

TEST_CASE("the CUPTI of CUDA 12 writes and walks its own, shorter records") {
  void* twelve = open_library("libcupti.so.12");
  static auto* next12 = symbol<decltype(cuptiActivityGetNextRecord)>(twelve, "cuptiActivityGetNextRecord");
  auto* register12 =
      symbol<decltype(cuptiActivityRegisterCallbacks)>(twelve, "cuptiActivityRegisterCallbacks");
  auto* enable12 = symbol<decltype(cuptiActivityEnable)>(twelve, "cuptiActivityEnable");
  auto* flush12 = symbol<decltype(cuptiActivityFlushAll)>(twelve, "cuptiActivityFlushAll");
  auto* finalize12 = symbol<decltype(cuptiFinalize)>(twelve, "cuptiFinalize");
  static std::vector<std::uint8_t> buffer(1 << 16);
  static std::size_t kernels = 0;
  static std::size_t bytes = 0;
  kernels = bytes = 0;
  auto requested = [](std::uint8_t** out, std::size_t* size, std::size_t* records) {
    *out = buffer.data();
    *size = buffer.size();
    *records = 0;
  };
  auto completed = [](CUcontext, std::uint32_t, std::uint8_t* data, std::size_t, std::size_t valid) {
    CUpti_Activity* record = nullptr;
    while (next12(data, valid, &record) == CUPTI_SUCCESS) {
      const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      if (std::string(kernel.name) == "_Z6twelvev" && kernel.end - kernel.start == 10'000) ++kernels;
    }
    bytes += valid;
  };
  REQUIRE(register12(requested, completed) == CUPTI_SUCCESS);
  REQUIRE(enable12(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
  cudaKernel_t kernel = test_kernel("_Z6twelvev");
  for (int i = 0; i < 20; ++i) REQUIRE(launch(kernel) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  REQUIRE(flush12(0) == CUPTI_SUCCESS);
  CHECK(kernels == 20);
  CHECK(bytes == 20 * sizeof(CUpti_ActivityKernel9));
  static_assert(sizeof(CUpti_ActivityKernel9) < sizeof(CUpti_ActivityKernel10));
  REQUIRE(finalize12() == CUPTI_SUCCESS);
}

TEST_CASE("a driver-API program finds everything through cuGetProcAddress") {
  void* driver = open_library("libcuda.so.1");
  auto* get = symbol<CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*)>(
      driver, "cuGetProcAddress_v2");
  REQUIRE(get != nullptr);
  auto find = [get](const char* name, cuuint64_t flags = 0) {
    void* found = nullptr;
    get(name, &found, 13000, flags, nullptr);
    return found;
  };
  auto* init = reinterpret_cast<decltype(&cuInit)>(find("cuInit"));
  auto* module_load = reinterpret_cast<decltype(&cuModuleLoadData)>(find("cuModuleLoadData"));
  auto* function_get = reinterpret_cast<decltype(&cuModuleGetFunction)>(find("cuModuleGetFunction"));
  auto* launch_kernel = reinterpret_cast<decltype(&cuLaunchKernel)>(find("cuLaunchKernel"));
  auto* retain = reinterpret_cast<decltype(&cuDevicePrimaryCtxRetain)>(find("cuDevicePrimaryCtxRetain"));
  auto* set_current = reinterpret_cast<decltype(&cuCtxSetCurrent)>(find("cuCtxSetCurrent"));
  auto* synchronize = reinterpret_cast<decltype(&cuCtxSynchronize)>(find("cuCtxSynchronize"));
  CHECK(find("cuMemAlloc") == dlsym(driver, "cuMemAlloc_v2"));
  CHECK(find("cuLaunchKernel", CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) ==
        dlsym(driver, "cuLaunchKernel_ptsz"));
  CHECK(find("cuNoSuchFunction") == nullptr);

  Client client;
  REQUIRE(init(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(retain(&context, 0) == CUDA_SUCCESS);
  REQUIRE(set_current(context) == CUDA_SUCCESS);
  client.trace();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  REQUIRE(module_load(&module, "") == CUDA_SUCCESS);
  REQUIRE(function_get(&function, module, "triton_kernel") == CUDA_SUCCESS);
  REQUIRE(launch_kernel(function, 3, 1, 1, 128, 1, 1, 0, nullptr, nullptr, nullptr) == CUDA_SUCCESS);
  REQUIRE(synchronize() == CUDA_SUCCESS);
  client.flush();
  REQUIRE(client.kernels.size() == 1);
  CHECK(client.kernels[0].name == "triton_kernel");
  CHECK(client.kernels[0].grid_x == 3);
}

#if INJECT_HAVE_CUDNN
TEST_CASE("cuDNN's library hands every call to one that has the same names") {
  void* shim = open_library("libcudnn.so.9");
  auto* create = symbol<decltype(cudnnCreate)>(shim, "cudnnCreate");
  auto* destroy = symbol<decltype(cudnnDestroy)>(shim, "cudnnDestroy");
  auto* softmax = symbol<decltype(cudnnSoftmaxForward)>(shim, "cudnnSoftmaxForward");
  Client client;
  client.trace();
  cudnnHandle_t handle = nullptr;
  REQUIRE(create(&handle) == CUDNN_STATUS_SUCCESS);
  REQUIRE(softmax(handle, CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_MODE_CHANNEL, nullptr, nullptr, nullptr, nullptr,
                  nullptr, nullptr) == CUDNN_STATUS_SUCCESS);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  client.flush();
  REQUIRE(client.kernels.size() == 1);
  CHECK(client.kernels[0].name == "cudnnSoftmaxForward_kernel");
  CHECK(cudasim_call_count("libcudnn.so.9!cudnnSoftmaxForward") == 1);
  CHECK(cudasim_call_count("libcudnn_graph.so.9!cudnnSoftmaxForward") == 1);
  REQUIRE(destroy(handle) == CUDNN_STATUS_SUCCESS);
}
#endif

#if INJECT_HAVE_NCCL
TEST_CASE("NCCL's work in a group is submitted at its end") {
  void* library = open_library("libnccl.so.2");
  auto* init_all = symbol<decltype(ncclCommInitAll)>(library, "ncclCommInitAll");
  auto* start = symbol<decltype(ncclGroupStart)>(library, "ncclGroupStart");
  auto* end = symbol<decltype(ncclGroupEnd)>(library, "ncclGroupEnd");
  auto* all_reduce = symbol<decltype(ncclAllReduce)>(library, "ncclAllReduce");
  ncclComm_t communicators[2] = {};
  REQUIRE(init_all(communicators, 2, nullptr) == ncclSuccess);
  Client client;
  client.trace();
  REQUIRE(start() == ncclSuccess);
  for (ncclComm_t communicator : communicators)
    REQUIRE(all_reduce(nullptr, nullptr, 1024, ncclFloat, ncclSum, communicator, nullptr) == ncclSuccess);
  client.flush(true);
  CHECK(client.kernels.empty());
  REQUIRE(end() == ncclSuccess);
  for (int device : {1, 0}) {
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  client.flush();
  REQUIRE(client.kernels.size() == 2);
  CHECK(client.kernels[0].device != client.kernels[1].device);
  CHECK(client.kernels[0].name == "ncclDevKernel_AllReduce");
}
#endif

TEST_CASE("device memory is finite, and pointers know where they belong") {
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, std::size_t{200} << 30) == cudaErrorMemoryAllocation);
  cudaGetLastError();
  std::size_t free_before = 0;
  std::size_t free_after = 0;
  std::size_t total = 0;
  REQUIRE(cudaMemGetInfo(&free_before, &total) == cudaSuccess);
  REQUIRE(cudaMalloc(&memory, std::size_t{10} << 30) == cudaSuccess);
  REQUIRE(cudaMemGetInfo(&free_after, &total) == cudaSuccess);
  CHECK(free_before - free_after == std::size_t{10} << 30);
  cudaPointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, static_cast<char*>(memory) + 5000) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  int local = 0;
  REQUIRE(cudaPointerGetAttributes(&attributes, &local) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("the list of work is the truth that tools are held against") {
  cudasim_record_work(1);
  std::uint64_t before_ns = 0;
  std::uint64_t before = cudasim_work_count("kernel", "listed", &before_ns);
  cudasim_set_kernel_duration("listed", 4'321);
  cudaKernel_t kernel = test_kernel("_Z6listedv");
  for (int i = 0; i < 7; ++i) REQUIRE(launch(kernel) == cudaSuccess);
  std::uint64_t total = 0;
  CHECK(cudasim_work_count("kernel", "listed", &total) - before == 7);
  CHECK(total - before_ns == 7 * 4'321);
  cudasim_record_work(0);
}
