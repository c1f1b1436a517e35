// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// cuDNN's execution plans: what each computes is read once, when the program has finalized it, and looked up
// when it is executed.
#pragma once

#include <cudnn.h>

#include "libinject/capture/hooks/frame.h"
#include "libinject/capture/hooks/observers.h"
#include "libinject/capture/hooks/shim.h"
#include "libinject/model/functions.h"

namespace inject {

void on_descriptor_created(const void* descriptor, cudnnBackendDescriptorType_t type) noexcept;
/// `real`: the cudnnBackendFinalize that the program called.
void on_descriptor_finalized(cudnnBackendDescriptor_t descriptor, void* real) noexcept;
void on_descriptor_destroyed(const void* descriptor) noexcept;
/// What a plan computes; 0 if it is not known.
std::uint32_t shape_of_plan(const void* plan) noexcept;

// Planning goes through hundreds of descriptors: their creation and destruction is watched, not recorded.
template <>
struct Observer<kFn_cudnnBackendCreateDescriptor> {
  static constexpr bool kUnrecorded = true;
  static void after(void* /*real*/, int status, cudnnBackendDescriptorType_t type,
                    const cudnnBackendDescriptor_t* descriptor) noexcept {
    if (status == 0 && descriptor != nullptr) on_descriptor_created(*descriptor, type);
  }
};

template <>
struct Observer<kFn_cudnnBackendDestroyDescriptor> {
  static constexpr bool kUnrecorded = true;
  // Before the call, because afterwards another thread may get the same address.
  static void before(cudnnBackendDescriptor_t descriptor) noexcept { on_descriptor_destroyed(descriptor); }
};

template <>
struct Observer<kFn_cudnnBackendFinalize> {
  static void after(void* real, int status, cudnnBackendDescriptor_t descriptor) noexcept {
    if (status == 0) on_descriptor_finalized(descriptor, real);
  }
};

template <>
struct CallArguments<kFn_cudnnBackendExecute> {
  static void tell(CallFrame& frame, void* /*real*/, cudnnHandle_t, cudnnBackendDescriptor_t plan,
                   cudnnBackendDescriptor_t) noexcept {
    frame.shape(shape_of_plan(plan));
  }
};

template <>
struct CallArguments<kFn_cudnnBackendPopulateCudaGraph> {
  static void tell(CallFrame& frame, void* /*real*/, cudnnHandle_t, cudnnBackendDescriptor_t plan,
                   cudnnBackendDescriptor_t, cudaGraph_t) noexcept {
    frame.shape(shape_of_plan(plan));
    frame.captured();
  }
};

}  // namespace inject
