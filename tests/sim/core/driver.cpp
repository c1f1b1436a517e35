// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The driver's calls, made of their table: a call has the parameters that the vendor declares, and hands
// CUPTI the structure that the vendor has for them. What it does is in driver/.
#include "tests/sim/core/driver.h"

#include "tests/sim/arity.h"
#include "tests/sim/core/driver/call.h"
#include "tests/sim/core/driver/impl.h"

namespace inject::sim::drv {
namespace {

// The name of the kernel that a call launches, as callbacks have it.
template <class Parameters>
const char* launched(const Parameters& params) {
  if constexpr (requires { params.f; }) {
    return params.f == nullptr ? nullptr : reinterpret_cast<const Kernel*>(params.f)->name;
  } else {
    return nullptr;
  }
}

}  // namespace

// `twin` is `name` or has its prototype; the rest is what `impl::name` gets.
#define DEFINE_CALL(name, twin, arity, ...)                                                                \
  CUresult twin(SIM_PARAMETERS_##arity(decltype(::name))) {                                                \
    DRIVER_FUNCTION(twin);                                                                                 \
    const twin##_params params{SIM_ARGUMENTS_##arity};                                                     \
    return impl::call(function, &params, launched(params), true, [&] { return impl::name(__VA_ARGS__); }); \
  }
#define SIM_DRIVER(name, arity) DEFINE_CALL(name, name, arity, SIM_ARGUMENTS_##arity)
#define SIM_DRIVER_TWINS(name, twin, arity)                    \
  DEFINE_CALL(name, name, arity, false, SIM_ARGUMENTS_##arity) \
  DEFINE_CALL(name, twin, arity, true, SIM_ARGUMENTS_##arity)
#define SIM_DRIVER_OWN(name, arity)
#include "tests/sim/core/driver.def"

}  // namespace inject::sim::drv
