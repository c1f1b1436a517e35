// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// What each driver call does, apart from what all of them do (call.h). Of twins there is one function, which
// is told whether the default stream is the thread's own.
#pragma once

#include "tests/sim/arity.h"
#include "tests/sim/core/driver.h"

#pragma GCC visibility push(hidden)
namespace inject::sim::drv::impl {

#define SIM_DRIVER(name, arity) decltype(::name) name;
#define SIM_DRIVER_TWINS(name, twin, arity) WithDefaultStream<decltype(::name)> name;
#define SIM_DRIVER_OWN(name, arity)
#include "tests/sim/core/driver.def"

}  // namespace inject::sim::drv::impl
#pragma GCC visibility pop
