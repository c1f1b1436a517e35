// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The libinject authors
#include "libinject/capture/hooks/grouped_gemm.h"

#include "tests/unit/catch.h"

using namespace inject;

namespace {

GemmShape group_of(std::int64_t n, std::int64_t lda, std::uint32_t batch) {
  GemmShape shape;
  shape.op_a = 'T';
  shape.a = shape.b = shape.c = shape.d = DataType::kF16;
  shape.batch = batch;
  shape.m = 64;
  shape.n = n;
  shape.k = 32;
  shape.lda = lda;
  shape.ldb = 32;
  shape.ldc = 64;
  shape.flops = 1000 * batch;
  shape.bytes = 100 * batch;
  return shape;
}

}  // namespace

TEST_CASE("A grouped product has what all its groups have", "[shapes]") {
  GroupedGemm sum;
  sum.add(group_of(8, 32, 1));
  sum.add(group_of(16, 32, 2));
  GemmShape shape = sum.shape();
  CHECK((shape.groups == 2 && shape.batch == 3));
  CHECK((shape.m == 64 && shape.n == 0 && shape.k == 32));
  CHECK((shape.lda == 32 && shape.ldb == 32 && shape.ldc == 64));
  CHECK((shape.op_a == 'T' && shape.op_b == 'N'));
  CHECK((shape.flops == 3000 && shape.bytes == 300));

  GemmShape other = group_of(8, 48, 1);  // another leading dimension and operation, at equal sizes
  other.op_b = 'T';
  GroupedGemm mixed;
  mixed.add(group_of(8, 32, 1));
  mixed.add(other);
  mixed.add(group_of(8, 32, 1));
  shape = mixed.shape();
  CHECK((shape.m == 64 && shape.n == 8 && shape.k == 32));
  CHECK((shape.lda == 0 && shape.ldb == 32 && shape.ldc == 64));
  CHECK((shape.op_a == 'T' && shape.op_b == 0));

  other.batch = 0xFFFF'FFFF;
  other.flops = other.bytes = ~std::uint64_t{0};
  mixed.add(other);
  CHECK((mixed.shape().batch == 0xFFFF'FFFF && mixed.shape().groups == 4));
  CHECK((mixed.shape().flops == other.flops && mixed.shape().bytes == other.bytes));
}
