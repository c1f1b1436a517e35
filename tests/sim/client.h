// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// A bare CUPTI client and a few kernels, for the simulation's own tests.
#pragma once

#include <cuda_runtime_api.h>
#include <cupti.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// What nvcc's code calls; declared by headers that only nvcc's own code includes.
extern "C" {
void** __cudaRegisterFatBinary(void* fatCubin);
void __cudaRegisterFatBinaryEnd(void** fatCubinHandle);
void __cudaRegisterFunction(void** fatCubinHandle, const char* hostFun, char* deviceFun,
                            const char* deviceName, int thread_limit, uint3* tid, uint3* bid, dim3* bDim,
                            dim3* gDim, int* wSize);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* entryFunction);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void** args,
                               size_t sharedMem, cudaStream_t stream);
}

namespace inject::sim {

struct KernelRecord {
  std::string name;
  std::uint64_t start, end;
  std::uint32_t correlation, device, context, stream, graph;
  std::uint64_t graph_node;
  int grid_x, block_x;
};
struct TransferRecord {
  CUpti_ActivityKind kind;
  std::uint64_t start, end, bytes;
  std::uint32_t correlation, stream;
  std::uint8_t copy_kind, source, target;
};
struct CallbackEvent {
  CUpti_CallbackDomain domain;
  std::uint32_t cbid;
  bool enter;
  std::uint32_t correlation;
  std::string function;
  std::string symbol;
  std::uint64_t node = 0;           ///< of a graph, by CUPTI's id
  std::uint64_t original_node = 0;  ///< that it is a clone of
};

/// Collects what CUPTI delivers. One at a time; the destructor finalizes CUPTI.
class Client {
 public:
  explicit Client(std::size_t buffer_bytes = 64 << 10);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  CUpti_SubscriberHandle subscriber = nullptr;
  std::vector<KernelRecord> kernels;
  std::vector<TransferRecord> transfers;
  std::vector<CallbackEvent> callbacks;
  std::size_t dropped = 0;
  std::size_t buffers_requested = 0;
  std::size_t buffers_completed = 0;

  /// Subscribes and enables callbacks for a driver or runtime function by its name.
  void subscribe();
  void enable(CUpti_CallbackDomain domain, std::uint32_t cbid);
  /// Kernel, copy and memset records.
  void trace();
  void flush(bool forced = false);
};

/// A kernel as nvcc registers one; the handle is what __cudaLaunchKernel takes.
cudaKernel_t test_kernel(const char* mangled_name);
cudaError_t launch(cudaKernel_t kernel, cudaStream_t stream = nullptr, unsigned grid = 1,
                   unsigned block = 32);

}  // namespace inject::sim
