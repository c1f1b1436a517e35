// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Every hooked function exists in the simulation: what no file defines is defined from the hooks' own tables,
// weakly, as a function that counts its calls, fails on demand and otherwise succeeds. A consumer sets up,
// before including this:
//   kLibrary   the soname
//   kDomain    Domain::kRuntime or kNone
//   template <class... A> int sim_default_work(const Function&, SimCategory, A...): what the call does
// and then includes a table.
#pragma once

#include "tests/sim/arity.h"
#include "tests/sim/core/base.h"
#include "tests/sim/core/trace.h"

namespace inject::sim {

enum class SimCategory {
  kLaunch,
  kCopy,
  kMemset,
  kSync,
  kMemory,
  kStream,
  kEvent,
  kGraph,
  kModule,
  kDevice,
  kQuery,
  kProfiler,
  kGemm,
  kBlas,
  kConv,
  kRnn,
  kNorm,
  kAttention,
  kPool,
  kSoftmax,
  kActivation,
  kTensor,
  kPlan,
  kCollective,
  kPointToPoint,
  kGroup,
  kOther,
};

/// A handle that a Create function can give out: unlike any other, and never null.
inline void* new_handle() {
  return new int(0);
}

}  // namespace inject::sim

// Deprecated functions are hooked as well: programs still call them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// A row whose name appears as SIM_SKIP_<name> (defined as `~, 1`) makes nothing: the header overloads it, and
// a file defines it.
#define SIM_SECOND(a, b, ...) b
#define SIM_PROBE(...) SIM_SECOND(__VA_ARGS__, 0, 0)
#define SIM_JOIN_(a, b) a##b
#define SIM_JOIN(a, b) SIM_JOIN_(a, b)
#define SIM_DEFINE_1(name, declared_as, arity, category)
#define SIM_DEFINE_0(name, declared_as, arity, category)                                                     \
  extern "C" __attribute__((weak)) inject::sim::Result<decltype(::declared_as)> name(                        \
      SIM_PARAMETERS_##arity(decltype(::declared_as))) {                                                     \
    using Return = inject::sim::Result<decltype(::declared_as)>;                                             \
    static_assert(inject::sim::Signature<decltype(::declared_as)>::kArity == arity, #name);                  \
    static constinit inject::sim::FunctionSlot slot;                                                         \
    inject::sim::Function& function = slot.get(kLibrary, #name, kDomain);                                    \
    int result = function.enter();                                                                           \
    inject::sim::trace::ApiCall api(function, nullptr, &result);                                             \
    if (result == 0)                                                                                         \
      result = sim_default_work(function,                                                                    \
                                inject::sim::SimCategory::category SIM_COMMA_##arity SIM_ARGUMENTS_##arity); \
    return inject::sim::status_result<Return>(result);                                                       \
  }

#define INJECT_HOOK(name, arity, category) \
  SIM_JOIN(SIM_DEFINE_, SIM_PROBE(SIM_SKIP_##name))(name, name, arity, category)
#define INJECT_HOOK_PTSZ(name, arity, category) \
  INJECT_HOOK(name, arity, category)            \
  SIM_DEFINE_0(name##_ptsz, name, arity, category)
#define INJECT_HOOK_PTDS(name, arity, category) \
  INJECT_HOOK(name, arity, category)            \
  SIM_DEFINE_0(name##_ptds, name, arity, category)

#define SIM_COMMA_0
#define SIM_COMMA_1 ,
#define SIM_COMMA_2 ,
#define SIM_COMMA_3 ,
#define SIM_COMMA_4 ,
#define SIM_COMMA_5 ,
#define SIM_COMMA_6 ,
#define SIM_COMMA_7 ,
#define SIM_COMMA_8 ,
#define SIM_COMMA_9 ,
#define SIM_COMMA_10 ,
#define SIM_COMMA_11 ,
#define SIM_COMMA_12 ,
#define SIM_COMMA_13 ,
#define SIM_COMMA_14 ,
#define SIM_COMMA_15 ,
#define SIM_COMMA_16 ,
#define SIM_COMMA_17 ,
#define SIM_COMMA_18 ,
#define SIM_COMMA_19 ,
#define SIM_COMMA_20 ,
#define SIM_COMMA_21 ,
#define SIM_COMMA_22 ,
#define SIM_COMMA_23 ,
#define SIM_COMMA_24 ,
#define SIM_COMMA_25 ,
#define SIM_COMMA_26 ,
#define SIM_COMMA_27 ,
#define SIM_COMMA_28 ,
#define SIM_COMMA_29 ,
#define SIM_COMMA_30 ,
#define SIM_COMMA_31 ,
#define SIM_COMMA_32 ,
#define SIM_COMMA_33 ,
