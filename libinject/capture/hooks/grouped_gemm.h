// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
//
// One shape for several groups of products in one call. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libinject/model/call_shape.h"

namespace inject {

class GroupedGemm {
 public:
  /// `group`: the shape of one group. All have the same types; what else differs becomes 0.
  void add(const GemmShape& group) noexcept {
    if (sum_.groups++ == 0) {
      sum_ = group;
      sum_.groups = 1;
      return;
    }
    const auto keep_if_equal = [](auto& all, auto one) {
      if (all != one) all = 0;
    };
    keep_if_equal(sum_.m, group.m);
    keep_if_equal(sum_.n, group.n);
    keep_if_equal(sum_.k, group.k);
    keep_if_equal(sum_.lda, group.lda);
    keep_if_equal(sum_.ldb, group.ldb);
    keep_if_equal(sum_.ldc, group.ldc);
    keep_if_equal(sum_.op_a, group.op_a);
    keep_if_equal(sum_.op_b, group.op_b);
    const std::uint64_t batch = std::uint64_t{sum_.batch} + group.batch;
    sum_.batch = static_cast<std::uint32_t>(std::min<std::uint64_t>(batch, 0xFFFF'FFFFu));
    sum_.flops = plus(sum_.flops, group.flops);
    sum_.bytes = plus(sum_.bytes, group.bytes);
  }

  const GemmShape& shape() const noexcept { return sum_; }

 private:
  /// Saturates.
  static std::uint64_t plus(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? ~std::uint64_t{0} : sum;
  }

  GemmShape sum_{};
};

}  // namespace inject
