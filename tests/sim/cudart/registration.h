// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The kernels and variables that the program's binaries register, by what stands for them on the host.
#pragma once

#include "tests/sim/core/device.h"

namespace inject::sim::rt {

/// Null if there is no such kernel. Its handle is accepted in place of the host function.
Kernel* find_kernel(const void* function);

/// A __device__ variable: the host's shadow variable stands for it.
struct Variable {
  const char* name = nullptr;
  void* device = nullptr;
  std::size_t bytes = 0;
};

/// False if there is no such variable, or no room for it.
bool find_variable(const void* symbol, Variable& found);

}  // namespace inject::sim::rt
