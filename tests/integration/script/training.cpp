// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// For programs in Python: CUDA calls that pass hooks, as PyTorch's do.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

extern "C" {
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaRegisterFunction(void** handle, const char* stub, char* device_stub, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*);
}

namespace {

std::mutex mutex;
std::map<std::string, const char*> stubs;
cudaStream_t stream = nullptr;  // the capturing stream; null: no capture, launches go to the default stream
std::vector<cudaStream_t> streams;
std::vector<cudaGraphExec_t> graphs;  // by number

cudaStream_t stream_of(unsigned number) {
  while (streams.size() <= number) {
    streams.emplace_back();
    cudaStreamCreateWithFlags(&streams.back(), cudaStreamNonBlocking);
  }
  return streams[number];
}

cudaGraph_t captured_graph() {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_of(0), &graph);
  stream = nullptr;
  return graph;
}

const char* stub_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  const char*& stub = stubs[name];
  if (stub == nullptr) {
    char* fresh = new char(0);
    const char* kept = (new std::string("_Z" + std::to_string(name.size()) + name + "v"))->c_str();
    void** binary = __cudaRegisterFatBinary(nullptr);
    __cudaRegisterFunction(binary, fresh, fresh, kept, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(binary);
    stub = fresh;
  }
  return stub;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int training_launch(const char* name, unsigned blocks) {
  return cudaLaunchKernel(stub_of(name), dim3(blocks), dim3(128), nullptr, 0, stream);
}

/// Like Triton: no hook sees it.
[[gnu::visibility("default")]] int training_launch_unseen(const char* name, unsigned blocks) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto load = reinterpret_cast<decltype(&cuModuleLoadData)>(dlsym(driver, "cuModuleLoadData"));
  const auto find = reinterpret_cast<decltype(&cuModuleGetFunction)>(dlsym(driver, "cuModuleGetFunction"));
  const auto launch = reinterpret_cast<decltype(&cuLaunchKernel)>(dlsym(driver, "cuLaunchKernel"));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  load(&module, "");
  find(&function, module, name);
  return static_cast<int>(launch(function, blocks, 1, 1, 128, 1, 1, 0, stream, nullptr, nullptr));
}

/// Launches from here on become a graph.
[[gnu::visibility("default")]] int training_begin_capture() {
  stream = stream_of(0);
  return cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
}
/// Returns the graph's number.
[[gnu::visibility("default")]] int training_end_capture() {
  cudaGraph_t graph = captured_graph();
  graphs.emplace_back();
  cudaGraphInstantiate(&graphs.back(), graph, 0);
  cudaGraphDestroy(graph);
  return static_cast<int>(graphs.size()) - 1;
}
/// Updates an executable graph to what was captured.
[[gnu::visibility("default")]] int training_update_graph(int number) {
  cudaGraph_t graph = captured_graph();
  cudaGraphExecUpdateResultInfo result{};
  const cudaError_t status = cudaGraphExecUpdate(graphs.at(static_cast<std::size_t>(number)), graph, &result);
  cudaGraphDestroy(graph);
  return status;
}
[[gnu::visibility("default")]] int training_launch_graph(int number) {
  return cudaGraphLaunch(graphs.at(static_cast<std::size_t>(number)), stream);
}
[[gnu::visibility("default")]] int training_destroy_graph(int number) {
  return cudaGraphExecDestroy(graphs.at(static_cast<std::size_t>(number)));
}
/// Launches go to that stream from here on: after what has been captured so far, concurrent with what follows
/// on others.
[[gnu::visibility("default")]] int training_fork(unsigned number) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, stream_of(0));
  cudaStreamWaitEvent(stream_of(number), event, 0);
  stream = stream_of(number);
  return cudaEventDestroy(event);
}
/// Returns to the first stream, which waits for that one.
[[gnu::visibility("default")]] int training_join(unsigned number) {
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaEventRecord(event, stream_of(number));
  stream = stream_of(0);
  cudaStreamWaitEvent(stream, event, 0);
  return cudaEventDestroy(event);
}

[[gnu::visibility("default")]] int training_copy(std::size_t bytes, int to_device) {
  static void* device = nullptr;
  static void* host = nullptr;
  const std::lock_guard lock(mutex);
  if (device == nullptr) {
    cudaMalloc(&device, 1 << 20);
    cudaMallocHost(&host, 1 << 20);
  }
  return to_device != 0 ? cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, nullptr)
                        : cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
}

[[gnu::visibility("default")]] int training_synchronize() {
  return cudaDeviceSynchronize();
}
}
