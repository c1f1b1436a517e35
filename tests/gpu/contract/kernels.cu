// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// Kernels with the names that the cases of contract.py launch.
#include "tests/gpu/contract/kernels.h"

#include <cstring>

// clang-format off
#define KERNELS(X)                                                                                \
  X(a) X(after) X(b) X(before) X(c) X(d) X(e) X(g) X(h) X(in) X(inside) X(k) X(late) X(m) X(other) \
  X(out) X(t) X(u) X(x) X(y) X(z)
// clang-format on

#define DEFINE(name) \
  __global__ void name() {}
KERNELS(DEFINE)

const void* contract::stub_of(const char* name) {
#define RETURN_STUB(kernel) \
  if (std::strcmp(name, #kernel) == 0) return reinterpret_cast<const void*>(&kernel);
  KERNELS(RETURN_STUB)
  return nullptr;
}
