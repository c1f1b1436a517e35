// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What a CUPTI subscriber sees of the calls.
#include <cublas_v2.h>
#include <cuda_profiler_api.h>

#include <algorithm>
#include <array>

#include "tests/sim/client.h"
#include "tests/sim/cudasim.h"
#include "tests/unit/catch.h"

using namespace inject::sim;

namespace {
std::vector<CallbackEvent> of(const Client& client, CUpti_CallbackDomain domain,
                              const std::string& function) {
  std::vector<CallbackEvent> found;
  for (const CallbackEvent& event : client.callbacks)
    if (event.domain == domain && event.function == function) found.push_back(event);
  return found;
}
}  // namespace

TEST_CASE("a driver launch carries its kernel's correlation id, inside the runtime call") {
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  Client client;
  client.subscribe();
  client.trace();
  client.enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  client.enable(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000);
  cudaKernel_t kernel = test_kernel("_Z10correlatedv");
  for (int i = 0; i < 10; ++i) REQUIRE(launch(kernel) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  client.flush();

  REQUIRE(client.callbacks.size() == 40);
  REQUIRE(client.kernels.size() == 10);
  for (std::size_t i = 0; i < 10; ++i) {
    const CallbackEvent* events = &client.callbacks[4 * i];
    CHECK(events[0].function == "__cudaLaunchKernel_v13000");
    CHECK(events[0].enter);
    CHECK(events[1].function == "cuLaunchKernel");
    CHECK(events[1].enter);
    CHECK(events[1].symbol == "_Z10correlatedv");
    CHECK(events[2].function == "cuLaunchKernel");
    CHECK_FALSE(events[2].enter);
    CHECK(events[3].function == "__cudaLaunchKernel_v13000");
    CHECK_FALSE(events[3].enter);
    for (int j = 0; j < 4; ++j) CHECK(events[j].correlation == client.kernels[i].correlation);
  }
}

TEST_CASE("launches inside cuBLAS are seen by callbacks alone") {
  cublasHandle_t handle = nullptr;
  REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  Client client;
  client.subscribe();
  client.trace();
  client.enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  std::uint64_t hookable = cudasim_call_count("libcudart.so.13!cudaLaunchKernel");
  std::uint64_t nested = cudasim_call_count("libcublasLt.so.13!cublasLtMatmul");
  const float one = 1;
  REQUIRE(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, 256, 256, 64, &one, nullptr, 256, nullptr, 256, &one,
                      nullptr, 256) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 256, 256, 64, &one, nullptr, CUDA_R_16BF, 256,
                       nullptr, CUDA_R_16BF, 64, &one, nullptr, CUDA_R_16BF, 256, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  client.flush();

  REQUIRE(client.kernels.size() == 2);
  CHECK(client.kernels[0].name == "sm90_gemm_f32_nt_128x128");
  CHECK(client.kernels[0].grid_x == 4);
  CHECK(client.kernels[1].name == "sm90_lt_matmul_128x128");
  CHECK(client.callbacks.size() == 4);
  CHECK(client.kernels[0].correlation != client.kernels[1].correlation);
  CHECK(cudasim_call_count("libcudart.so.13!cudaLaunchKernel") == hookable);
  CHECK(cudasim_call_count("libcublasLt.so.13!cublasLtMatmul") == nested + 1);
  REQUIRE(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}

TEST_CASE("the profiler calls are reported twice, one inside the other") {
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  Client client;
  client.subscribe();
  client.enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuProfilerStart);
  client.enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuProfilerStop);
  REQUIRE(cudaProfilerStart() == cudaSuccess);
  REQUIRE(cudaProfilerStop() == cudaSuccess);
  std::vector<CallbackEvent> start = of(client, CUPTI_CB_DOMAIN_DRIVER_API, "cuProfilerStart");
  REQUIRE(start.size() == 4);
  CHECK((start[0].enter && start[1].enter && !start[2].enter && !start[3].enter));
  CHECK(of(client, CUPTI_CB_DOMAIN_DRIVER_API, "cuProfilerStop").size() == 4);
}

TEST_CASE("who is refused is told the subscriber's name") {
  auto callback = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
  CUpti_SubscriberHandle first = nullptr;
  CUpti_SubscriberHandle second = nullptr;
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> holder{};
  CUpti_SubscriberParams params{};
  CHECK(cuptiSubscribe_v2(&first, callback, nullptr, &params) == CUPTI_ERROR_INVALID_PARAMETER);
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "the first";
  params.oldSubscriberName = holder.data();
  params.oldSubscriberSize = holder.size();
  REQUIRE(cuptiSubscribe_v2(&first, callback, nullptr, &params) == CUPTI_SUCCESS);
  CHECK(cuptiSubscribe_v2(&second, callback, nullptr, &params) ==
        CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  CHECK(std::string(holder.data()) == "CUPTI for the first");
  CHECK(cuptiUnsubscribe(first) == CUPTI_SUCCESS);
  REQUIRE(cuptiSubscribe(&first, callback, nullptr) == CUPTI_SUCCESS);
  CHECK(cuptiSubscribe_v2(&second, callback, nullptr, &params) ==
        CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  CHECK(std::string(holder.data()) == "CUPTI for <not provided>");
  CHECK(cuptiUnsubscribe(first) == CUPTI_SUCCESS);
}

TEST_CASE("one subscriber at a time, and a name for every callback") {
  Client client;
  client.subscribe();
  CUpti_SubscriberHandle second = nullptr;
  auto callback = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
  CHECK(cuptiSubscribe(&second, callback, nullptr) == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  CHECK(cuptiUnsubscribe(client.subscriber) == CUPTI_SUCCESS);
  CHECK(cuptiSubscribe(&second, callback, nullptr) == CUPTI_SUCCESS);

  const char* name = nullptr;
  CHECK(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 307, &name) == CUPTI_SUCCESS);
  CHECK(std::string(name) == "cuLaunchKernel");
  CHECK(cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, 211, &name) == CUPTI_SUCCESS);
  CHECK(std::string(name) == "cudaLaunchKernel_v7000");
  CHECK(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, 100'000, &name) == CUPTI_ERROR_INVALID_PARAMETER);
}

TEST_CASE("correlation ids start anew after cuptiFinalize") {
  cudaKernel_t kernel = test_kernel("_Z11generationsv");
  std::uint32_t first = 0;
  for (int generation = 0; generation < 2; ++generation) {
    Client client;
    client.trace();
    REQUIRE(launch(kernel) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    client.flush();
    REQUIRE(client.kernels.size() == 1);
    if (generation == 0)
      first = client.kernels[0].correlation;
    else
      CHECK(client.kernels[0].correlation == first);
  }
}

TEST_CASE("CUDA calls from inside a callback are counted") {
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  Client client;
  std::uint64_t before = cudasim_calls_in_callbacks();
  CUpti_SubscriberHandle subscriber = nullptr;
  auto misbehave = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {
    int device = 0;
    cudaGetDevice(&device);
  };
  REQUIRE(cuptiSubscribe(&subscriber, misbehave, nullptr) == CUPTI_SUCCESS);
  REQUIRE(cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API,
                              CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) == CUPTI_SUCCESS);
  REQUIRE(launch(test_kernel("_Z8harmlessv")) == cudaSuccess);
  CHECK(cudasim_calls_in_callbacks() == before + 2);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}
