// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// When work runs: streams, events, host functions, graphs, several devices.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/cudasim.h"
#include "tests/unit/catch.h"

using namespace inject::sim;

namespace {
const KernelRecord& named(const Client& client, const std::string& part) {
  auto found = std::find_if(client.kernels.begin(), client.kernels.end(), [&](const KernelRecord& kernel) {
    return kernel.name.find(part) != std::string::npos;
  });
  if (found == client.kernels.end()) throw std::runtime_error("no kernel " + part);
  return *found;
}

// A function that headers declare under its twin's name alone.
template <class Function>
Function* exported(const char* name) {
  auto* function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  if (function == nullptr) throw std::runtime_error(std::string("no function ") + name);
  return function;
}

struct Twins {
  std::string driver, suffix;  ///< what both go through in the driver
  std::function<cudaError_t()> call, twin;
};

template <class Function, class... Arguments>
Twins twins(const char* driver, const char* suffix, Function* call, Function* twin, Arguments... arguments) {
  return {driver, suffix, [=] { return call(arguments...); }, [=] { return twin(arguments...); }};
}
}  // namespace

TEST_CASE("streams overlap, the legacy stream waits for them and they for it") {
  Client client;
  client.trace();
  // A busy machine may take its time for the launches.
  cudasim_set_kernel_duration("overlap_", 400'000'000);
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaStream_t free_running = nullptr;
  REQUIRE(cudaStreamCreate(&a) == cudaSuccess);
  REQUIRE(cudaStreamCreate(&b) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(launch(test_kernel("overlap_a"), a) == cudaSuccess);
  REQUIRE(launch(test_kernel("overlap_b"), b) == cudaSuccess);
  REQUIRE(launch(test_kernel("overlap_legacy"), nullptr) == cudaSuccess);
  REQUIRE(launch(test_kernel("overlap_after"), a) == cudaSuccess);
  REQUIRE(launch(test_kernel("overlap_free"), free_running) == cudaSuccess);
  CHECK(cudaStreamQuery(a) == cudaErrorNotReady);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(cudaStreamQuery(a) == cudaSuccess);
  client.flush();

  REQUIRE(client.kernels.size() == 5);
  CHECK(named(client, "overlap_b").start < named(client, "overlap_a").end);
  CHECK(named(client, "overlap_legacy").start ==
        std::max(named(client, "overlap_a").end, named(client, "overlap_b").end));
  CHECK(named(client, "overlap_after").start == named(client, "overlap_legacy").end);
  CHECK(named(client, "overlap_free").start < named(client, "overlap_a").end);
  CHECK(named(client, "overlap_a").stream != named(client, "overlap_b").stream);
  for (cudaStream_t stream : {a, b, free_running}) REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(a) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("a twin works on the thread's own default stream, through the driver's twin") {
  Client client;
  client.trace();
  void* device = nullptr;
  REQUIRE(cudaMalloc(&device, 4096) == cudaSuccess);
  std::vector<char> host(4096);
  cudaPitchedPtr box{device, 64, 64, 2};
  cudaMemcpy3DParms copy{};
  copy.srcPtr = {host.data(), 64, 64, 2};
  copy.dstPtr = box;
  copy.extent = {64, 2, 2};

#define TWINS(driver, name, suffix, ...) \
  twins(#driver, #suffix, name, exported<decltype(name)>(#name #suffix), __VA_ARGS__)
  const std::vector<Twins> all = {
      TWINS(cuMemcpyHtoD_v2, cudaMemcpy, _ptds, device, host.data(), 64, cudaMemcpyHostToDevice),
      TWINS(cuMemcpyHtoDAsync_v2, cudaMemcpyAsync, _ptsz, device, host.data(), 64, cudaMemcpyHostToDevice,
            nullptr),
      TWINS(cuMemcpy2DUnaligned_v2, cudaMemcpy2D, _ptds, device, 64, host.data(), 64, 32, 2,
            cudaMemcpyDefault),
      TWINS(cuMemcpy2DAsync_v2, cudaMemcpy2DAsync, _ptsz, device, 64, host.data(), 64, 32, 2,
            cudaMemcpyDefault, nullptr),
      TWINS(cuMemcpy3D_v2, cudaMemcpy3D, _ptds, &copy),
      TWINS(cuMemcpy3DAsync_v2, cudaMemcpy3DAsync, _ptsz, &copy, nullptr),
      TWINS(cuMemsetD8_v2, cudaMemset, _ptds, device, 1, 64),
      TWINS(cuMemsetD8Async, cudaMemsetAsync, _ptsz, device, 1, 64, nullptr),
      TWINS(cuMemsetD2D8_v2, cudaMemset2D, _ptds, device, 64, 1, 32, 2),
      TWINS(cuMemsetD2D8Async, cudaMemset2DAsync, _ptsz, device, 64, 1, 32, 2, nullptr),
      TWINS(cuMemsetD2D8_v2, cudaMemset3D, _ptds, box, 1, copy.extent),
      TWINS(cuMemsetD2D8Async, cudaMemset3DAsync, _ptsz, box, 1, copy.extent, nullptr),
  };
#undef TWINS
  constexpr std::uint32_t kLegacy = 7;
  for (const Twins& pair : all) {
    INFO(pair.driver);
    const std::string twin = pair.driver + pair.suffix;
    const auto calls = cudasim_call_count(pair.driver.c_str());
    const auto twin_calls = cudasim_call_count(twin.c_str());
    REQUIRE(pair.call() == cudaSuccess);
    CHECK(cudasim_call_count(pair.driver.c_str()) == calls + 1);
    CHECK(cudasim_call_count(twin.c_str()) == twin_calls);
    REQUIRE(pair.twin() == cudaSuccess);
    CHECK(cudasim_call_count(pair.driver.c_str()) == calls + 1);
    CHECK(cudasim_call_count(twin.c_str()) == twin_calls + 1);
  }
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  client.flush();
  REQUIRE(client.transfers.size() == 2 * all.size());
  std::sort(client.transfers.begin(), client.transfers.end(),
            [](const auto& a, const auto& b) { return a.correlation < b.correlation; });
  const std::uint32_t own = client.transfers[1].stream;
  CHECK(own != kLegacy);
  for (std::size_t i = 0; i < client.transfers.size(); ++i) {
    INFO(all[i / 2].driver);
    CHECK(client.transfers[i].stream == (i % 2 == 0 ? kLegacy : own));
  }
  REQUIRE(cudaFree(device) == cudaSuccess);
}

TEST_CASE("events order streams and measure them") {
  Client client;
  client.trace();
  cudasim_set_kernel_duration("event_", 300'000'000);
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreate(&start) == cudaSuccess);
  REQUIRE(cudaEventCreate(&end) == cudaSuccess);
  REQUIRE(launch(test_kernel("event_first"), a) == cudaSuccess);
  REQUIRE(cudaEventRecord(start, a) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(b, start, 0) == cudaSuccess);
  REQUIRE(launch(test_kernel("event_second"), b) == cudaSuccess);
  REQUIRE(cudaEventRecord(end, b) == cudaSuccess);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  REQUIRE(cudaEventSynchronize(end) == cudaSuccess);
  float milliseconds = 0;
  REQUIRE(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds == Approx(300.0f));
  client.flush();
  CHECK(named(client, "event_second").start == named(client, "event_first").end);
  REQUIRE(cudaEventDestroy(start) == cudaSuccess);
  REQUIRE(cudaEventDestroy(end) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(a) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(b) == cudaSuccess);
}

TEST_CASE("a host function runs when the stream has come to it, and the stream waits for it") {
  Client client;
  client.trace();
  cudasim_set_kernel_duration("hosted_", 1'000'000);
  static std::atomic<std::uint64_t> ran{0};
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  REQUIRE(launch(test_kernel("hosted_before"), stream) == cudaSuccess);
  auto host = [](void* data) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    *static_cast<std::atomic<std::uint64_t>*>(data) =
        static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
  };
  REQUIRE(cudaLaunchHostFunc(stream, host, &ran) == cudaSuccess);
  REQUIRE(launch(test_kernel("hosted_after"), stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  client.flush();
  // Records are on CLOCK_REALTIME unless the client brings a clock.
  CHECK(ran.load() + 100'000 >= named(client, "hosted_before").end);
  CHECK(named(client, "hosted_after").start + 100'000 >= ran.load());
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
}

TEST_CASE("the kernels of a graph launch share its correlation id and differ by node") {
  REQUIRE(cudaFree(nullptr) == cudaSuccess);
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  void* device = nullptr;
  REQUIRE(cudaMalloc(&device, 4096) == cudaSuccess);
  cudaKernel_t kernel = test_kernel("_Z8in_graphv");

  Client client;
  client.subscribe();
  client.trace();
  client.enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
  client.enable(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  client.enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
  client.enable(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  void* forbidden = nullptr;
  CHECK(cudaMalloc(&forbidden, 16) == cudaErrorStreamCaptureUnsupported);
  for (int i = 0; i < 3; ++i) REQUIRE(launch(kernel, stream) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(device, 0, 4096, stream) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGetLastError();
  // ENTER, the node, EXIT for each captured launch; the memset's node alone.
  REQUIRE(client.callbacks.size() == 10);
  CHECK(client.callbacks[0].enter);
  CHECK(client.callbacks[1].domain == CUPTI_CB_DOMAIN_RESOURCE);
  CHECK_FALSE(client.callbacks[2].enter);

  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  // The executable graph's nodes are new ones, and copies of those that were captured.
  REQUIRE(client.callbacks.size() == 18);
  std::map<std::uint64_t, std::uint64_t> original;
  for (const auto& callback : client.callbacks) {
    if (callback.domain != CUPTI_CB_DOMAIN_RESOURCE || callback.cbid != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)
      continue;
    original[callback.node] = callback.original_node;
  }
  CHECK(original.size() == 4);
  client.callbacks.clear();
  REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  client.flush();

  REQUIRE(client.callbacks.size() == 4);
  REQUIRE(client.kernels.size() == 6);
  CHECK(client.transfers.size() == 2);
  std::map<std::uint32_t, std::vector<std::uint64_t>> nodes;
  for (const KernelRecord& record : client.kernels) {
    CHECK(record.graph != 0);
    CHECK(original.contains(record.graph_node));
    nodes[record.correlation].push_back(record.graph_node);
  }
  REQUIRE(nodes.size() == 2);
  CHECK(nodes.count(client.callbacks[0].correlation) == 1);
  CHECK(nodes.begin()->second == nodes.rbegin()->second);
  std::vector<std::uint64_t> distinct = nodes.begin()->second;
  CHECK(std::unique(distinct.begin(), distinct.end()) == distinct.end());
  for (std::size_t i = 1; i < 6; ++i) CHECK(client.kernels[i].start >= client.kernels[i - 1].end);
  REQUIRE(cudaGraphExecDestroy(exec) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  REQUIRE(cudaFree(device) == cudaSuccess);
}

TEST_CASE("devices have contexts of their own, and copies between them are peer copies") {
  int count = 0;
  REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
  REQUIRE(count == 2);
  Client client;
  client.trace();
  void* memory[2] = {};
  for (int device = 0; device < 2; ++device) {
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    REQUIRE(cudaMalloc(&memory[device], 1'000'000) == cudaSuccess);
    REQUIRE(launch(test_kernel("_Z9on_devicev")) == cudaSuccess);
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaMemcpyPeerAsync(memory[1], 1, memory[0], 0, 1'000'000, nullptr) == cudaSuccess);
  for (int device : {1, 0}) {
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  }
  client.flush();
  REQUIRE(client.kernels.size() == 2);
  CHECK(client.kernels[0].device == 0);
  CHECK(client.kernels[1].device == 1);
  CHECK(client.kernels[0].context != client.kernels[1].context);
  REQUIRE(client.transfers.size() == 1);
  CHECK(client.transfers[0].kind == CUPTI_ACTIVITY_KIND_MEMCPY2);
  CHECK(client.transfers[0].end - client.transfers[0].start == 10'000);
  for (void* pointer : memory) REQUIRE(cudaFree(pointer) == cudaSuccess);
}

TEST_CASE("many threads launch at once and nothing is lost") {
  Client client(16 << 10);
  client.trace();
  cudaKernel_t kernel = test_kernel("_Z7crowdedv");
  cudasim_set_kernel_duration("crowded", 100);
  constexpr int kThreads = 8;
  constexpr int kLaunches = 500;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([kernel] {
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      for (int n = 0; n < kLaunches; ++n) launch(kernel, stream);
      cudaStreamSynchronize(stream);
      cudaStreamDestroy(stream);
    });
  for (std::thread& thread : threads) thread.join();
  client.flush();
  CHECK(client.kernels.size() == kThreads * kLaunches);
  CHECK(client.dropped == 0);
  CHECK(client.buffers_requested >= kThreads);
  CHECK(client.buffers_requested == client.buffers_completed);
}
