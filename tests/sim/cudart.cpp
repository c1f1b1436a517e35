// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The calls of libcudart.so.13 and libcudart.so.12, made of their table once for each: a call has the
// parameters that the vendor declares, and hands CUPTI the structure that the vendor has for them. What it
// does is in cudart/, and goes through the driver layer, whose callbacks nest inside it.
#include "tests/sim/arity.h"
#include "tests/sim/cudart/call.h"
#include "tests/sim/cudart/impl.h"

using namespace inject::sim;
using namespace inject::sim::rt;

extern "C" {

// `twin` is `name` or has its prototype; the rest is what `impl::name` gets.
#define DEFINE_PLAIN_CALL(name, twin, arity, needs, ...)                                   \
  cudaError_t twin(SIM_PARAMETERS_##arity(decltype(::name))) {                             \
    static_assert(Signature<decltype(::name)>::kArity == arity, #name);                    \
    RUNTIME_FUNCTION(twin);                                                                \
    return call(function, nullptr, Needs::needs, [&] { return impl::name(__VA_ARGS__); }); \
  }
#define DEFINE_CALL(name, twin, arity, version, needs, ...)                                \
  cudaError_t twin(SIM_PARAMETERS_##arity(decltype(::name))) {                             \
    static_assert(Signature<decltype(::name)>::kArity == arity, #name);                    \
    RUNTIME_FUNCTION(twin);                                                                \
    const twin##_##version##_params params{SIM_ARGUMENTS_##arity};                         \
    return call(function, &params, Needs::needs, [&] { return impl::name(__VA_ARGS__); }); \
  }
#define SIM_RUNTIME(name, arity, version, needs) \
  DEFINE_CALL(name, name, arity, version, needs, SIM_ARGUMENTS_##arity)
#define SIM_RUNTIME_PLAIN(name, arity, needs) \
  DEFINE_PLAIN_CALL(name, name, arity, needs, SIM_ARGUMENTS_##arity)
#define SIM_RUNTIME_TWINS(name, twin, arity, version, twin_version)               \
  DEFINE_CALL(name, name, arity, version, kContext, false, SIM_ARGUMENTS_##arity) \
  DEFINE_CALL(name, twin, arity, twin_version, kContext, true, SIM_ARGUMENTS_##arity)
#define SIM_RUNTIME_PLAIN_TWINS(name, twin, arity)                             \
  DEFINE_PLAIN_CALL(name, name, arity, kContext, false, SIM_ARGUMENTS_##arity) \
  DEFINE_PLAIN_CALL(name, twin, arity, kContext, true, SIM_ARGUMENTS_##arity)
#include "tests/sim/cudart/functions.def"
}
