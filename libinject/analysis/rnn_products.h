// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// The matrix products of a call of a recurrent network, as its layers are defined. A library may divide or
// combine them: cuDNN uses one and a half times as many kernels for the products of a GRU's weight gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "libinject/model/call_shape.h"

namespace inject {

/// Products of one size in one call, column-major as in cuBLAS (docs/gemm.md).
struct RnnProduct {
  char op_a = 'N';
  char op_b = 'N';
  std::uint64_t m = 0;
  std::uint64_t n = 0;  ///< 0: varies, as sequences end at different steps
  std::uint64_t k = 0;
  std::uint64_t count = 0;
  std::uint64_t flops = 0;  ///< of all `count` products; the sum over all entries is rnn_flops()
};

/// Products of equal size are one entry, so there are at most four: the first layer's input, the other
/// layers', the state, and the projection. Empty if the call's operations are unknown, or too many to count.
std::vector<RnnProduct> rnn_products(const RnnShape& shape);

}  // namespace inject
