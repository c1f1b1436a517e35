// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// libcudnn_graph.so.9, which libcudnn.so.9 (cudnn_shim.cpp) loads: the functions of a handle, and one kernel
// named for the function for whatever does work.
#include <cudnn.h>

#include <algorithm>
#include <cstring>

#include "tests/sim/core/library.h"
#include "tests/sim/cudnn_library.h"
#include "tests/sim/defaults.h"

using namespace inject::sim;
using inject::sim::cudnn::Handle;
using inject::sim::cudnn::handle_of;
using inject::sim::cudnn::kLibrary;

namespace {
constexpr Domain kDomain = Domain::kNone;
thread_local std::string last_error;

bool does_work(SimCategory category) {
  switch (category) {
    case SimCategory::kConv:
    case SimCategory::kRnn:
    case SimCategory::kNorm:
    case SimCategory::kAttention:
    case SimCategory::kPool:
    case SimCategory::kSoftmax:
    case SimCategory::kActivation:
    case SimCategory::kTensor:
      return true;
    default:
      return false;
  }
}

template <class... A>
int sim_default_work(const Function& function, SimCategory category, A... arguments) {
  if constexpr (std::is_same_v<std::tuple_element_t<0, std::tuple<A...>>, cudnnHandle_t>) {
    cudnnHandle_t handle = std::get<0>(std::tuple<A...>(arguments...));
    if (!does_work(category)) return 0;
    if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
    if (library::launch((function.name + "_kernel").c_str(), 132, 256, handle_of(handle)->stream) != 0)
      return CUDNN_STATUS_EXECUTION_FAILED;
  }
  return 0;
}
}  // namespace

cudnnStatus_t inject::sim::cudnn::fail(cudnnStatus_t status, const char* text) {
  last_error = text;
  return status;
}

extern "C" {

void cudnnGetLastErrorString(char* message, size_t most) {
  static constinit FunctionSlot slot;
  slot.get(kLibrary, "cudnnGetLastErrorString", Domain::kNone).enter();
  if (most == 0) return;
  const std::size_t length = std::min(last_error.size(), most - 1);
  std::memcpy(message, last_error.data(), length);
  message[length] = '\0';
  last_error.clear();
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId) {
  CUDNN_FUNCTION(cudnnSetStream);
  if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  handle_of(handle)->stream = streamId;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* streamId) {
  CUDNN_FUNCTION(cudnnGetStream);
  if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  *streamId = handle_of(handle)->stream;
  return CUDNN_STATUS_SUCCESS;
}
size_t cudnnGetVersion(void) {
  static constinit FunctionSlot slot;
  Function& function = slot.get(kLibrary, "cudnnGetVersion", Domain::kNone);
  function.enter();
  return CUDNN_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_EXECUTION_FAILED";
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  CUDNN_FUNCTION(cudnnCreate);
  *handle = reinterpret_cast<cudnnHandle_t>(new Handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  CUDNN_FUNCTION(cudnnDestroy);
  if (handle == nullptr) return CUDNN_STATUS_NOT_INITIALIZED;
  delete handle_of(handle);
  return CUDNN_STATUS_SUCCESS;
}
}

#define SIM_SKIP_cudnnCreate ~, 1
#define SIM_SKIP_cudnnDestroy ~, 1
#define SIM_SKIP_cudnnBackendCreateDescriptor ~, 1
#define SIM_SKIP_cudnnBackendDestroyDescriptor ~, 1
#define SIM_SKIP_cudnnBackendFinalize ~, 1
#define SIM_SKIP_cudnnBackendExecute ~, 1
#define SIM_SKIP_cudnnBackendPopulateCudaGraph ~, 1

#include "libinject/model/cudnn.def"
