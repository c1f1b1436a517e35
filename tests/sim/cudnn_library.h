// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What the files of libcudnn_graph.so.9 share.
#pragma once

#include <cudnn.h>

#include <string>

#include "tests/sim/core/base.h"

namespace inject::sim::cudnn {

inline constexpr const char* kLibrary = "libcudnn_graph.so.9";

struct Handle {
  cudaStream_t stream = nullptr;
};

inline Handle* handle_of(cudnnHandle_t handle) {
  return reinterpret_cast<Handle*>(handle);
}

/// Leaves `status` and what it means for cudnnGetLastErrorString. Of this thread, as the vendor's.
cudnnStatus_t fail(cudnnStatus_t status, const char* text);

}  // namespace inject::sim::cudnn

#define CUDNN_FUNCTION(name)                                                     \
  static constinit inject::sim::FunctionSlot slot;                               \
  inject::sim::Function& function =                                              \
      slot.get(inject::sim::cudnn::kLibrary, #name, inject::sim::Domain::kNone); \
  if (int fault = function.enter()) return static_cast<cudnnStatus_t>(fault)
