// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The runtime API and the libraries above it, by operations (script.h):
//
//   kernel:NAME[:COUNT[:STREAM[:GRID[:BLOCK]]]]   launches like nvcc's code; STREAM: 0, a number, or "own",
//                                                 one per thread
//   runtime_kernel:NAME[:COUNT]                   launches by cudaLaunchKernel
//   kernels:NAME:COUNT                            COUNT different kernels, named NAME0, NAME1, ...
//   copy:KIND:BYTES[:STREAM[:MEMORY]]             KIND: h2d d2h d2d, p2p to the next device; with a stream
//                                                 asynchronous; the host's MEMORY: pinned (default), pageable
//   memset:BYTES[:STREAM]                         likewise
//   copy2d:WIDTH:HEIGHT[:STREAM] copy3d:WIDTH:HEIGHT:DEPTH memset2d:WIDTH:HEIGHT[:STREAM]   on the device
//   record:EVENT[:STREAM] await:EVENT[:STREAM]    records the stream's work so far; later work waits for it
//   malloc:NAME:BYTES[:HOW]  HOW: plain, async, async_ptsz, managed, pitch, 3d, pool, host, host_alloc,
//                            driver (which no hook sees);
//                            prints errno if it has changed
//   free:NAME[:HOW]          HOW: plain, async, host, twice
//   mallocs:COUNT:BYTES      COUNT allocations, each freed at once
//   fork_malloc              a child allocates, and reports the result
//   fork_load                a child loads a library
//   reset                    cudaDeviceReset
//   sync  stream_sync:STREAM  device:N  device_count  start stop  bad_copy  last_error
//   capture:STREAM  end_capture:STREAM:GRAPH  graph:GRAPH[:STREAM]  destroy_stream:STREAM
//   gemm[:STREAM] sgemm allow_tf32 math_mode:MODE pedantic complex_int8 vectors convolution all_reduce
//   group_start group_end
#include <cublas_v2.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#if INJECT_HAVE_CUDNN
#include <cudnn.h>
#endif
#if INJECT_HAVE_NCCL
#include <nccl.h>
#endif

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <mutex>

#include "tests/integration/script/script.h"
#if INJECT_HAVE_CUDNN
#include "tests/integration/script/cudnn.h"
#endif
#if INJECT_HAVE_NCCL
#include "tests/integration/script/nccl.h"
#endif

// Functions that nvcc's code calls, declared in headers that only nvcc's own code includes.
extern "C" {
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaRegisterFunction(void** handle, const char* stub, char* device_stub, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream);
// The variant called by code compiled for per-thread default streams.
cudaError_t cudaMallocAsync_ptsz(void** memory, std::size_t bytes, cudaStream_t stream);
}

namespace {

using script::Arguments;
using script::report;

std::mutex mutex;  // protects the maps below
std::map<std::string, const char*> stubs;
std::map<std::string, cudaStream_t> streams;
std::map<std::string, cudaGraphExec_t> graphs;
std::map<std::string, cudaEvent_t> events;

// A unique address stands for each host stub, as with a compiled kernel.
const char* stub_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  const char*& stub = stubs[name];
  if (stub == nullptr) {
    char* fresh = new char(0);
    const std::string mangled = "_Z" + std::to_string(name.size()) + name + "v";
    const char* kept = (new std::string(mangled))->c_str();
    void** binary = __cudaRegisterFatBinary(nullptr);
    __cudaRegisterFunction(binary, fresh, fresh, kept, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(binary);
    stub = fresh;
  }
  return stub;
}

cudaStream_t stream_of(const std::string& name) {
  if (name.empty() || name == "0") return nullptr;
  thread_local cudaStream_t own = nullptr;
  if (name == "own") {
    if (own == nullptr) report("cudaStreamCreate", cudaStreamCreate(&own));
    return own;
  }
  const std::lock_guard lock(mutex);
  cudaStream_t& stream = streams[name];
  if (stream == nullptr)
    report("cudaStreamCreate", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void destroy_stream(const Arguments& a) {
  cudaStream_t stream = stream_of(a.text(1));
  {
    const std::lock_guard lock(mutex);
    streams.erase(a.text(1));
  }
  report("cudaStreamDestroy", cudaStreamDestroy(stream));
}

void launch(const Arguments& a) {
  const std::string name = a.text(1);
  const char* stub = stub_of(name);
  cudaKernel_t kernel = nullptr;
  report("__cudaGetKernel", __cudaGetKernel(&kernel, stub));
  cudaStream_t stream = stream_of(a.text(3));
  const dim3 grid(static_cast<unsigned>(a.number(4, 1)));
  const dim3 block(static_cast<unsigned>(a.number(5, 32)));
  for (std::uint64_t i = a.number(2, 1); i > 0; --i) {
    const script::Submission submission;
    report("__cudaLaunchKernel", __cudaLaunchKernel(kernel, grid, block, nullptr, 0, stream));
  }
}

void launch_many(const Arguments& a) {
  for (std::uint64_t i = 0; i < a.number(2); ++i)
    launch(Arguments("kernel:" + a.text(1) + std::to_string(i)));
}

void runtime_launch(const Arguments& a) {
  const char* stub = stub_of(a.text(1));
  for (std::uint64_t i = a.number(2, 1); i > 0; --i)
    report("cudaLaunchKernel", cudaLaunchKernel(stub, dim3(1), dim3(32), nullptr, 0, nullptr));
}

// Space for every copy: two areas on each device, one of pinned memory, one that CUDA does not know.
constexpr std::size_t kMaxBytes = std::size_t{4} << 20;
struct Areas {
  void* device[2] = {nullptr, nullptr};
  void* pinned = nullptr;
  void* pageable = nullptr;
};
Areas& areas() {
  static std::array<Areas, 64> all;
  int device = 0;
  report("cudaGetDevice", cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  Areas& mine = all[static_cast<std::size_t>(device)];
  if (mine.pinned == nullptr) {
    for (void*& area : mine.device) report("cudaMalloc", cudaMalloc(&area, kMaxBytes));
    report("cudaMallocHost", cudaMallocHost(&mine.pinned, kMaxBytes));
    mine.pageable = new char[kMaxBytes]();
  }
  return mine;
}

void copy_to_next_device(const Arguments& a) {
  int device = 0;
  int devices = 0;
  report("cudaGetDevice", cudaGetDevice(&device));
  report("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
  const int next = (device + 1) % devices;
  const void* source = areas().device[0];
  report("cudaSetDevice", cudaSetDevice(next));
  void* target = areas().device[1];
  report("cudaSetDevice", cudaSetDevice(device));
  if (a.text(3).empty()) {
    report("cudaMemcpyPeer", cudaMemcpyPeer(target, next, source, device, a.number(2)));
  } else {
    report("cudaMemcpyPeerAsync",
           cudaMemcpyPeerAsync(target, next, source, device, a.number(2), stream_of(a.text(3))));
  }
}

void copy(const Arguments& a) {
  const std::string kind = a.text(1);
  if (kind == "p2p") {
    copy_to_next_device(a);
    return;
  }
  Areas& memory = areas();
  const script::Submission submission;
  void* host = a.text(4) == "pageable" ? memory.pageable : memory.pinned;
  void* target = kind == "d2h" ? host : memory.device[0];
  const void* source = kind == "h2d" ? host : memory.device[1];
  const cudaMemcpyKind how = kind == "h2d"   ? cudaMemcpyHostToDevice
                             : kind == "d2h" ? cudaMemcpyDeviceToHost
                                             : cudaMemcpyDeviceToDevice;
  if (a.text(3).empty()) {
    report("cudaMemcpy", cudaMemcpy(target, source, a.number(2), how));
  } else {
    report("cudaMemcpyAsync", cudaMemcpyAsync(target, source, a.number(2), how, stream_of(a.text(3))));
  }
}

void copy_2d(const Arguments& a) {
  const Areas& memory = areas();
  const std::size_t pitch = 4096;
  if (a.has(3)) {
    report("cudaMemcpy2DAsync",
           cudaMemcpy2DAsync(memory.device[0], pitch, memory.device[1], pitch, a.number(1), a.number(2),
                             cudaMemcpyDeviceToDevice, stream_of(a.text(3))));
  } else {
    report("cudaMemcpy2D", cudaMemcpy2D(memory.device[0], pitch, memory.device[1], pitch, a.number(1),
                                        a.number(2), cudaMemcpyDeviceToDevice));
  }
}

void copy_3d(const Arguments& a) {
  const Areas& memory = areas();
  cudaMemcpy3DParms copy{};
  copy.srcPtr = make_cudaPitchedPtr(memory.device[1], 256, 256, 4);
  copy.dstPtr = make_cudaPitchedPtr(memory.device[0], 256, 256, 4);
  copy.extent = make_cudaExtent(a.number(1), a.number(2), a.number(3));
  copy.kind = cudaMemcpyDeviceToDevice;
  report("cudaMemcpy3D", cudaMemcpy3D(&copy));
}

void set_2d(const Arguments& a) {
  const Areas& memory = areas();
  const std::size_t pitch = 4096;
  if (a.has(3)) {
    report("cudaMemset2DAsync",
           cudaMemset2DAsync(memory.device[0], pitch, 0, a.number(1), a.number(2), stream_of(a.text(3))));
  } else {
    report("cudaMemset2D", cudaMemset2D(memory.device[0], pitch, 0, a.number(1), a.number(2)));
  }
}

void set(const Arguments& a) {
  const Areas& memory = areas();
  const script::Submission submission;
  if (a.has(2)) {
    report("cudaMemsetAsync", cudaMemsetAsync(memory.device[0], 0, a.number(1), stream_of(a.text(2))));
  } else {
    report("cudaMemset", cudaMemset(memory.device[0], 0, a.number(1)));
  }
}

cudaEvent_t event_of(const std::string& name) {
  const std::lock_guard lock(mutex);
  cudaEvent_t& event = events[name];
  if (event == nullptr) report("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void end_capture(const Arguments& a) {
  if (!a.has(2)) {
    report("cudaStreamEndCapture", cudaStreamEndCapture(stream_of(a.text(1)), nullptr));
    return;
  }
  cudaGraph_t graph = nullptr;
  report("cudaStreamEndCapture", cudaStreamEndCapture(stream_of(a.text(1)), &graph));
  cudaGraphExec_t executable = nullptr;
  report("cudaGraphInstantiate", cudaGraphInstantiate(&executable, graph, 0));
  const std::lock_guard lock(mutex);
  graphs[a.text(2)] = executable;
}

void launch_graph(const Arguments& a) {
  cudaGraphExec_t graph = nullptr;
  {
    const std::lock_guard lock(mutex);
    graph = graphs[a.text(1)];
  }
  report("cudaGraphLaunch", cudaGraphLaunch(graph, stream_of(a.text(2))));
}

std::map<std::string, void*> allocations;

cudaError_t allocate(const std::string& how, std::size_t bytes, void** memory) {
  if (how == "async") return cudaMallocAsync(memory, bytes, nullptr);
  if (how == "async_ptsz") return cudaMallocAsync_ptsz(memory, bytes, nullptr);
  if (how == "managed") return cudaMallocManaged(memory, bytes, cudaMemAttachGlobal);
  if (how == "host") return cudaMallocHost(memory, bytes);
  if (how == "host_alloc") return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
  if (how == "pool") return cudaMallocFromPoolAsync(memory, bytes, nullptr, nullptr);
  if (how == "driver") {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto driver = reinterpret_cast<int (*)(void**, std::size_t)>(dlsym(library, "cuMemAlloc_v2"));
    return static_cast<cudaError_t>(driver(memory, bytes));
  }
  if (how == "pitch") {
    std::size_t pitch = 0;
    const cudaError_t result = cudaMallocPitch(memory, &pitch, bytes / 10, 10);
    if (result == cudaSuccess) std::printf("pitch: %zu\n", pitch);
    return result;
  }
  if (how == "3d") {
    cudaPitchedPtr box{};
    const cudaError_t result = cudaMalloc3D(&box, {bytes / 10, 5, 2});
    *memory = box.ptr;
    if (result == cudaSuccess) std::printf("pitch: %zu\n", box.pitch);
    return result;
  }
  return cudaMalloc(memory, bytes);
}

void allocate_named(const Arguments& a) {
  void* memory = nullptr;
  errno = 77;
  const cudaError_t result = allocate(a.text(3), a.number(2), &memory);
  report("malloc", result);
  if (errno != 77) report("errno", errno);
  const std::lock_guard lock(mutex);
  allocations[a.text(1)] = memory;
}

void free_named(const Arguments& a) {
  const std::string how = a.text(2);
  void* memory = nullptr;
  {
    const std::lock_guard lock(mutex);
    memory = allocations[a.text(1)];
  }
  errno = 77;
  report("free", how == "async"  ? cudaFreeAsync(memory, nullptr)
                 : how == "host" ? cudaFreeHost(memory)
                                 : cudaFree(memory));
  if (how == "twice") report("free", cudaFree(memory));
  if (errno != 77) report("errno", errno);
}

void allocate_in_turn(const Arguments& a) {
  for (std::uint64_t i = 0; i < a.number(1); ++i) {
    void* memory = nullptr;
    report("cudaMalloc", cudaMalloc(&memory, a.number(2)));
    report("cudaFree", cudaFree(memory));
  }
}

void initialise_nvml(const Arguments&) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* initialise =
      library == nullptr ? nullptr : reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  if (initialise == nullptr || initialise() != 0) std::puts("NVML: not initialised");
}

void allocate_in_child(const Arguments&) {
  const pid_t child = fork();
  if (child == 0) {
    void* memory = nullptr;
    _exit(cudaMalloc(&memory, 1000) == cudaSuccess ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  report("child", status);
}

void load_in_child(const Arguments&) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(dlopen("libresolv.so.2", RTLD_NOW) == nullptr ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  report("child", status);
}

cublasHandle_t blas() {
  thread_local cublasHandle_t handle = nullptr;
  if (handle == nullptr) report("cublasCreate", cublasCreate(&handle));
  return handle;
}

constexpr float kOne = 1.0f;

void gemm(const Arguments& a) {
  if (a.has(1)) report("cublasSetStream", cublasSetStream(blas(), stream_of(a.text(1))));
  void* memory = areas().device[0];
  report("cublasGemmEx", cublasGemmEx(blas(), CUBLAS_OP_N, CUBLAS_OP_N, 128, 128, 64, &kOne, memory,
                                      CUDA_R_16F, 128, memory, CUDA_R_16F, 64, &kOne, memory, CUDA_R_16F, 128,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

void sgemm(const Arguments&) {
  auto* memory = static_cast<float*>(areas().device[0]);
  report("cublasSgemm", cublasSgemm(blas(), CUBLAS_OP_N, CUBLAS_OP_T, 64, 64, 64, &kOne, memory, 64, memory,
                                    64, &kOne, memory, 64));
}

void allow_tf32(const Arguments&) {
  report("cublasSetMathMode", cublasSetMathMode(blas(), CUBLAS_TF32_TENSOR_OP_MATH));
}

void math_mode(const Arguments& a) {
  report("cublasSetMathMode", cublasSetMathMode(blas(), static_cast<cublasMath_t>(a.number(1))));
}

// fp32 that must not be replaced, whatever the handle's mode.
void pedantic(const Arguments&) {
  void* memory = areas().device[0];
  report("cublasGemmEx", cublasGemmEx(blas(), CUBLAS_OP_N, CUBLAS_OP_N, 64, 64, 64, &kOne, memory, CUDA_R_32F,
                                      64, memory, CUDA_R_32F, 64, &kOne, memory, CUDA_R_32F, 64,
                                      CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_GEMM_DEFAULT));
}

// Complex numbers of two int8.
void complex_int8(const Arguments&) {
  void* memory = areas().device[0];
  const cuComplex one{1, 0};
  report("cublasCgemmEx", cublasCgemmEx(blas(), CUBLAS_OP_N, CUBLAS_OP_N, 32, 16, 8, &one, memory, CUDA_C_8I,
                                        32, memory, CUDA_C_8I, 8, &one, memory, CUDA_C_32F, 32));
}

// Four vectors and one matrix.
void vectors(const Arguments&) {
  auto* memory = static_cast<float*>(areas().device[0]);
  report("cublasSgemvStridedBatched",
         cublasSgemvStridedBatched(blas(), CUBLAS_OP_N, 64, 32, &kOne, memory, 64, 0, memory, 1, 32, &kOne,
                                   memory, 1, 64, 4));
}

// Four products with one A.
void batched(const Arguments&) {
  void* memory = areas().device[0];
  report("cublasGemmStridedBatchedEx",
         cublasGemmStridedBatchedEx(blas(), CUBLAS_OP_T, CUBLAS_OP_N, 64, 32, 16, &kOne, memory, CUDA_R_16BF,
                                    16, 0, memory, CUDA_R_16BF, 16, 512, &kOne, memory, CUDA_R_16BF, 64, 2048,
                                    4, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

#if INJECT_HAVE_CUDNN
void convolution(const Arguments&) {
  thread_local cudnnHandle_t handle = nullptr;
  if (handle == nullptr) report("cudnnCreate", cudnnCreate(&handle));
  report("cudnnConvolutionForward",
         cudnnConvolutionForward(handle, &kOne, nullptr, nullptr, nullptr, nullptr, nullptr,
                                 CUDNN_CONVOLUTION_FWD_ALGO_GEMM, nullptr, 0, &kOne, nullptr, nullptr));
}
#endif

#if INJECT_HAVE_NCCL
void all_reduce(const Arguments&) {
  thread_local ncclComm_t communicator = nullptr;
  if (communicator == nullptr) report("ncclCommInitAll", ncclCommInitAll(&communicator, 1, nullptr));
  void* memory = areas().device[0];
  report("ncclAllReduce", ncclAllReduce(memory, memory, 16, ncclFloat, ncclSum, communicator, nullptr));
}
#endif

const script::Operations kOperations {
  {"kernel", launch}, {"runtime_kernel", runtime_launch}, {"kernels", launch_many}, {"copy2d", copy_2d},
      {"copy3d", copy_3d}, {"memset2d", set_2d}, {"copy", copy}, {"memset", set}, {"malloc", allocate_named},
      {"free", free_named}, {"mallocs", allocate_in_turn}, {"fork_malloc", allocate_in_child},
      {"fork_load", load_in_child},
      {"reset", [](const Arguments&) { report("cudaDeviceReset", cudaDeviceReset()); }},
      {"sync", [](const Arguments&) { report("cudaDeviceSynchronize", cudaDeviceSynchronize()); }},
      {"stream_sync",
       [](const Arguments& a) {
         report("cudaStreamSynchronize", cudaStreamSynchronize(stream_of(a.text(1))));
       }},
      {"device",
       [](const Arguments& a) { report("cudaSetDevice", cudaSetDevice(static_cast<int>(a.number(1)))); }},
      {"device_count",
       [](const Arguments&) {
         int count = 0;
         report("cudaGetDeviceCount", cudaGetDeviceCount(&count));
       }},
      {"nvml_init", initialise_nvml},
      {"record",
       [](const Arguments& a) {
         report("cudaEventRecord", cudaEventRecord(event_of(a.text(1)), stream_of(a.text(2))));
       }},
      {"await",
       [](const Arguments& a) {
         report("cudaStreamWaitEvent", cudaStreamWaitEvent(stream_of(a.text(2)), event_of(a.text(1)), 0));
       }},
      {"start", [](const Arguments&) { report("cudaProfilerStart", cudaProfilerStart()); }},
      {"stop", [](const Arguments&) { report("cudaProfilerStop", cudaProfilerStop()); }},
      {"bad_copy",
       [](const Arguments&) {
         report("cudaMemcpy", cudaMemcpy(nullptr, nullptr, 4, cudaMemcpyHostToDevice));
       }},
      {"last_error",
       [](const Arguments&) {
         report("cudaPeekAtLastError", cudaPeekAtLastError());
         report("cudaGetLastError", cudaGetLastError());
       }},
      {"capture",
       [](const Arguments& a) {
         report("cudaStreamBeginCapture",
                cudaStreamBeginCapture(stream_of(a.text(1)), cudaStreamCaptureModeGlobal));
       }},
      {"destroy_stream", destroy_stream}, {"end_capture", end_capture}, {"graph", launch_graph},
      {"gemm", gemm}, {"batched", batched}, {"sgemm", sgemm}, {"allow_tf32", allow_tf32},
      {"math_mode", math_mode}, {"pedantic", pedantic}, {"complex_int8", complex_int8}, {"vectors", vectors},
#if INJECT_HAVE_CUDNN
      {"convolution", convolution},
#endif
#if INJECT_HAVE_NCCL
      {"all_reduce", all_reduce},
      {"group_start", [](const Arguments&) { report("ncclGroupStart", ncclGroupStart()); }},
      {"group_end", [](const Arguments&) { report("ncclGroupEnd", ncclGroupEnd()); }},
#endif
};

}  // namespace

int main(int argc, char** argv) {
  script::Operations operations = kOperations;
#if INJECT_HAVE_CUDNN
  script::add_cudnn(operations);
#endif
#if INJECT_HAVE_NCCL
  script::add_nccl(operations, stream_of);
#endif
  return script::run(argc, argv, operations);
}
