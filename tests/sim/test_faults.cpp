// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The faults do what cudasim.h says, and what was seen on hardware when a tracer is closed under load.
#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "tests/sim/client.h"
#include "tests/sim/cudasim.h"
#include "tests/unit/catch.h"

using namespace inject::sim;

namespace {

class Fault {
 public:
  Fault(const char* name, const char* value) : name_(name) {
    if (cudasim_set_fault(name, value) != 0) throw std::runtime_error("no such fault");
  }
  ~Fault() { cudasim_set_fault(name_, "off"); }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

 private:
  const char* name_;
};

using Clock = std::chrono::steady_clock;
double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void launch_and_wait(const char* name, int count) {
  cudaKernel_t kernel = test_kernel(name);
  for (int i = 0; i < count; ++i) REQUIRE(launch(kernel) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

}  // namespace

// What a test has to be quicker than, on a busy machine as well: half a second of device time.
constexpr std::uint64_t kQueued = 10'000'000;
constexpr int kQueue = 50;

TEST_CASE("closing under load: nothing at first, zero timestamps if forced, all in the end") {
  cudasim_set_kernel_duration("queued_", kQueued);
  cudaKernel_t kernel = test_kernel("queued_");
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  Client client;
  client.trace();
  for (int i = 0; i < kQueue; ++i) REQUIRE(launch(kernel) == cudaSuccess);
  SECTION("unforced") {
    REQUIRE(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) == CUPTI_SUCCESS);
    REQUIRE(cudaStreamQuery(nullptr) == cudaErrorNotReady);
    client.flush();
    // It has waited for the work.
    CHECK(cudaStreamQuery(nullptr) == cudaSuccess);
    CHECK(client.kernels.empty());
    client.flush();
    CHECK(client.kernels.size() == kQueue);
  }
  SECTION("forced") {
    client.flush(true);
    CHECK(client.kernels.size() == kQueue);
    auto unfinished =
        std::count_if(client.kernels.begin(), client.kernels.end(),
                      [](const KernelRecord& record) { return record.start == 0 && record.end == 0; });
    CHECK(unfinished >= kQueue / 2);  // but for those that a busy machine let finish
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  SECTION("polled while the program goes on") {
    client.flush();
    // It has not waited for the work.
    CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
    CHECK(client.kernels.empty());
    auto start = Clock::now();
    while (client.kernels.size() < kQueue && milliseconds_since(start) < 30'000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      client.flush();
    }
    CHECK(client.kernels.size() == kQueue);
    CHECK(cudaStreamQuery(nullptr) == cudaSuccess);
  }
}

TEST_CASE("late records come late") {
  Fault late("late", "400");
  Client client;
  client.trace();
  auto start = Clock::now();
  launch_and_wait("_Z4latev", 3);
  client.flush();
  CHECK(client.kernels.empty());
  while (client.kernels.empty() && milliseconds_since(start) < 30'000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    client.flush();
  }
  CHECK(client.kernels.size() == 3);
  CHECK(milliseconds_since(start) > 399);
}

TEST_CASE("dropped records are counted") {
  Client client;
  client.trace();
  Fault drop("drop", "4");
  launch_and_wait("_Z7droppedv", 10);
  client.flush();
  CHECK(client.kernels.size() == 6);
  CHECK(client.dropped == 4);
}

TEST_CASE("repeated records come twice") {
  Client client;
  client.trace();
  Fault repeat("repeat", "2");
  launch_and_wait("_Z8repeatedv", 5);
  client.flush();
  REQUIRE(client.kernels.size() == 7);
  CHECK(client.kernels[0].correlation == client.kernels[1].correlation);
  std::set<std::uint32_t> distinct;
  for (const KernelRecord& record : client.kernels) distinct.insert(record.correlation);
  CHECK(distinct.size() == 5);
}

TEST_CASE("zero-time records and records out of order") {
  Client client;
  client.trace();
  Fault zero("zero_time", "1");
  Fault order("out_of_order", "");
  launch_and_wait("_Z10disorderlyv", 4);
  client.flush();
  REQUIRE(client.kernels.size() == 4);
  CHECK(client.kernels[3].start == 0);
  CHECK(client.kernels[3].end == 0);
  for (std::size_t i = 1; i < 4; ++i)
    CHECK(client.kernels[i].correlation < client.kernels[i - 1].correlation);
}

TEST_CASE("attaching waits for the kernel that runs") {
  cudasim_set_kernel_duration("attached_over", 500'000'000);
  REQUIRE(launch(test_kernel("attached_over")) == cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Client client;
  REQUIRE(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  SECTION("by default") {
    client.trace();
    CHECK(cudaStreamQuery(nullptr) == cudaSuccess);
  }
  SECTION("unless switched off") {
    Fault no_wait("no_attach_wait", "");
    client.trace();
    CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("a kernel waits for a flag that another launch sets") {
  Fault flag("wait_for", "flag_waiter/flag_setter");
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
  Client client;
  client.trace();
  REQUIRE(launch(test_kernel("flag_waiter"), a) == cudaSuccess);
  REQUIRE(launch(test_kernel("behind_it"), a) == cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(cudaStreamQuery(a) == cudaErrorNotReady);
  client.flush();
  CHECK(client.kernels.empty());
  REQUIRE(launch(test_kernel("flag_setter"), b) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  client.flush();
  REQUIRE(client.kernels.size() == 3);
  CHECK(client.kernels[0].end - client.kernels[0].start > 4'000'000);
  CHECK(client.kernels[1].start == client.kernels[0].end);
  CHECK(client.kernels[0].end == client.kernels[2].start);
  REQUIRE(cudaStreamDestroy(a) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(b) == cudaSuccess);
}

TEST_CASE("functions fail on demand") {
  Client client;
  SECTION("CUPTI") {
    Fault fail("cupti_fail", "cuptiActivityEnable:15");
    CHECK(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY) == CUPTI_ERROR_NOT_INITIALIZED);
    CHECK(cuptiGetLastError() == CUPTI_ERROR_NOT_INITIALIZED);
  }
  SECTION("the runtime, from the second call on, twice") {
    void* memory = nullptr;
    std::uint64_t before = cudasim_call_count("cudaMallocHost");
    std::string rule = "cudaMallocHost:2:" + std::to_string(before + 2) + ":2";
    Fault fail("api_fail", rule.c_str());
    CHECK(cudaMallocHost(&memory, 16) == cudaSuccess);
    CHECK(cudaFreeHost(memory) == cudaSuccess);
    CHECK(cudaMallocHost(&memory, 16) == cudaErrorMemoryAllocation);
    CHECK(cudaMallocHost(&memory, 16) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaMallocHost(&memory, 16) == cudaSuccess);
    CHECK(cudaFreeHost(memory) == cudaSuccess);
    CHECK(cudasim_call_count("cudaMallocHost") == before + 4);
  }
  SECTION("a taken subscriber slot") {
    Fault taken("subscriber_taken", "");
    CHECK_THROWS(client.subscribe());
  }
  SECTION("an old version") {
    Fault old("cupti_version", "12");
    std::uint32_t version = 0;
    CHECK(cuptiGetVersion(&version) == CUPTI_SUCCESS);
    CHECK(version == 12);
  }
  SECTION("an unknown fault") {
    CHECK(cudasim_set_fault("no_such_fault", "1") == -1);
  }
}

TEST_CASE("a fatal error is reported, and CUPTI is gone") {
  Client client;
  client.subscribe();
  client.enable(CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  client.trace();
  Fault fatal("fatal_error", "");
  launch_and_wait("_Z5fatalv", 3);
  REQUIRE(client.callbacks.size() == 1);
  CHECK(client.callbacks[0].domain == CUPTI_CB_DOMAIN_STATE);
  CHECK(client.kernels.empty());
  CHECK(cuptiActivityFlushAll(0) == CUPTI_ERROR_INVALID_OPERATION);
  CHECK(cuptiUnsubscribe(client.subscriber) == CUPTI_ERROR_INVALID_PARAMETER);
}

// Last: its stream never gets free again.
TEST_CASE("a kernel that never finishes leaves its record incomplete") {
  Fault hang("hang", "endless");
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  Client client;
  client.trace();
  REQUIRE(launch(test_kernel("endless"), stream) == cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  client.flush();
  CHECK(client.kernels.empty());
  client.flush(true);
  REQUIRE(client.kernels.size() == 1);
  CHECK(client.kernels[0].end == 0);
}
