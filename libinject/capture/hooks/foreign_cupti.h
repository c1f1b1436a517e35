// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Reports the program's own CUPTI calls to cupti/foreign_client.h and, if they claim what we hold, to the
// session, which releases it before they are made. Implemented as observers (observers.h); for cupti.cpp
// only.
//
// The hooks see what the dynamic linker binds to us: calls of libraries that are linked with CUPTI, and names
// looked up in the global scope. A client that gets its functions from dlsym on CUPTI's own handle is not
// seen.
#pragma once

#include <cupti.h>

#include "libinject/capture/cupti/foreign_client.h"
#include "libinject/capture/hooks/observers.h"

namespace inject {

template <ForeignCall call>
struct TakesCupti {
  static void called_from(const void* caller) noexcept {
    foreign_client.arrive();
    on_foreign_cupti(call, caller);
  }
};

template <>
struct Observer<kFn_cuptiSubscribe> : TakesCupti<ForeignCall::kSubscribe> {
  static void after(void*, int status, CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.subscribed();
    foreign_client.arrived();
  }
};

template <>
struct Observer<kFn_cuptiSubscribe_v2> : TakesCupti<ForeignCall::kSubscribe> {
  static void after(void*, int status, CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*,
                    CUpti_SubscriberParams*) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.subscribed();
    foreign_client.arrived();
  }
};

template <>
struct Observer<kFn_cuptiUnsubscribe> {
  static void after(void*, int status, CUpti_SubscriberHandle) noexcept {
    if (status != CUPTI_SUCCESS) return;
    foreign_client.unsubscribed();
    on_foreign_cupti_left(false);
  }
};

template <>
struct Observer<kFn_cuptiActivityRegisterCallbacks> : TakesCupti<ForeignCall::kRegisterBuffers> {
  static void after(void* real, int status, CUpti_BuffersCallbackRequestFunc requested,
                    CUpti_BuffersCallbackCompleteFunc completed) noexcept {
    if (status == CUPTI_SUCCESS)
      foreign_client.registered(reinterpret_cast<ForeignClient::RegisterBuffers>(real), requested, completed);
    foreign_client.arrived();
  }
};

// Kineto registers its own clock before its buffers: if CUPTI were finalized in between, it would forget it.
template <>
struct Observer<kFn_cuptiActivityRegisterTimestampCallback> : TakesCupti<ForeignCall::kRegisterClock> {
  static void after(void* real, int status, CUpti_TimestampCallbackFunc clock) noexcept {
    if (status == CUPTI_SUCCESS)
      foreign_client.registered_clock(reinterpret_cast<ForeignClient::RegisterClock>(real), clock);
    foreign_client.arrived();
  }
};

/// Only for a client that has registered buffers: without any, activity is delivered to nobody.
template <>
struct Observer<kFn_cuptiActivityEnable> {
  static void called_from(const void* caller) noexcept {
    foreign_client.arrive();
    if (!foreign_client.has_registered()) return;
    on_foreign_cupti(ForeignCall::kEnableActivity, caller);
    foreign_client.restore();
  }
  static void after(void*, int status, CUpti_ActivityKind kind) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.enabled(kind);
    foreign_client.arrived();
  }
};

template <>
struct Observer<kFn_cuptiActivityEnableContext> {
  static void called_from(const void* caller) noexcept {
    Observer<kFn_cuptiActivityEnable>::called_from(caller);
  }
  static void after(void*, int status, CUcontext, CUpti_ActivityKind kind) noexcept {
    Observer<kFn_cuptiActivityEnable>::after(nullptr, status, kind);
  }
};

template <>
struct Observer<kFn_cuptiActivityDisable> {
  static void after(void*, int status, CUpti_ActivityKind kind) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.disabled(kind);
  }
};

template <>
struct Observer<kFn_cuptiActivityDisableContext> {
  static void after(void*, int status, CUcontext, CUpti_ActivityKind kind) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.disabled(kind);
  }
};

template <>
struct Observer<kFn_cuptiActivityFlushAll> {
  static void after(void*, int status, std::uint32_t) noexcept {
    if (status != CUPTI_SUCCESS || !foreign_client.has_buffers()) return;
    foreign_client.flushed();
    if (!foreign_client.has_buffers()) on_foreign_cupti_left(false);
  }
};

template <>
struct Observer<kFn_cuptiFinalize> {
  static void called_from(const void* caller) noexcept {
    foreign_client.arrive();
    on_foreign_cupti(ForeignCall::kFinalize, caller);
  }
  static void after(int status) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.finalized();
    on_foreign_cupti_finalized(status);
    foreign_client.arrived();
    if (status == CUPTI_SUCCESS) on_foreign_cupti_left(true);
  }
};

template <>
struct Observer<kFn_cuptiProfilerInitialize> {
  static void before() noexcept { on_foreign_cupti_profiler(true); }
  static void after(int status) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.profiler(true);
  }
};

template <>
struct Observer<kFn_cuptiProfilerDeInitialize> {
  static void before() noexcept { on_foreign_cupti_profiler(false); }
  static void after(int status) noexcept {
    if (status == CUPTI_SUCCESS) foreign_client.profiler(false);
  }
};

}  // namespace inject
